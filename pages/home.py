"""Home: what ACE-NODE is, what runs now, the latest results."""

from acenode_app.home import show

show()
