"""Searches: good settings of a method, found by validation."""

from acenode_app.search_pages import show

show()
