"""List the packages: acenode/, and app/ and pages/ as acenode_app. All else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["acenode", "acenode.*"]), "acenode_app", "acenode_app.pages"])
