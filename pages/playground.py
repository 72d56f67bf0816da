"""Playground: tiny networks that train while one watches."""

from acenode_app.playground.page import show

show()
