"""Studies: named questions that several runs answer."""

from acenode_app.questions.study_pages import show

show()
