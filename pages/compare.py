"""Compare runs side by side."""

from acenode_app.compare.page import show

show()
