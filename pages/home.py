"""Home: what ACE-NODE is, a demo, and the latest results."""

from acenode_app.home import show

show()
