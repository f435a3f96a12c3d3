"""Pictures as plain data: arrays in, Plotly figure dictionaries out. No database, no HTTP, no Plotly import."""
