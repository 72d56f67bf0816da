"""The run directory: read it, write it, list all runs of a folder."""
