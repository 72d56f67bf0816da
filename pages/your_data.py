"""Your data: import a table, and train on it."""

from acenode_app.your_data.page import show

show()
