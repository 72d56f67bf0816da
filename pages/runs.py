"""List all runs: filter, annotate, export, delete."""

from acenode_app.runs import show

show()
