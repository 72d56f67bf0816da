"""Home: what ACE-NODE is, what runs now, the latest results."""

from app.home import show

show()
