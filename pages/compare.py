"""Runs side by side."""

from app.compare import show

show()
