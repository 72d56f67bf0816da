"""Compare runs side by side."""

from acenode_app.compare import show

show()
