"""Playground: tiny networks that train while one watches."""

from acenode_app.playground import show

show()
