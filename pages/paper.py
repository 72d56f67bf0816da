"""The paper's tables and figures with our results."""

from acenode_app.paper import show

show()
