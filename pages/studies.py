"""Studies: named questions that several runs answer."""

from acenode_app.questions.studies import PAGE

PAGE.show()
