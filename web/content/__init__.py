"""What a page shows, read from the repositories in one session and put into plain data for the templates."""
