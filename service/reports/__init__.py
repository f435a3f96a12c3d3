"""Reports: one run's whole account as a document, from what is stored; as JSON, Markdown, or one page of HTML."""
