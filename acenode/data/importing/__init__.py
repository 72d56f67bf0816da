"""Import a table of your own: read it safely, find its series, check them, and keep them in the data folder."""
