"""Searches: good settings of a method, found by validation."""

from acenode_app.questions.searches import PAGE

PAGE.show()
