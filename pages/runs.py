"""All runs: filter, annotate, export, delete."""

from app.runs import show

show()
