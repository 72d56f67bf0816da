"""List all runs: filter, annotate, export, delete."""

from acenode_app.runs.page import show

show()
