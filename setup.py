"""List the packages: acenode/, and app/, pages/ and runs/paper/ under names of ours. All else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["acenode", "acenode.*"]), "acenode.recorded", "acenode_app",
                "acenode_app.pages", *(f"acenode_app.{name}" for name in find_packages("app"))])
