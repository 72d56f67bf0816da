"""Searches: good settings of a method, found by validation."""

from acenode_app.questions.search_pages import show

show()
