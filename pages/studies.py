"""Studies: named questions that several runs answer."""

from acenode_app.study_pages import show

show()
