"""What is ACE-NODE? A tour in five steps."""

from acenode_app.tour import show

show()
