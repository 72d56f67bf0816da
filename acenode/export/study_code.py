"""A study as code that repeats it: command lines, and a short Python script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from acenode.runs.questions import Study, StudyGroup


def to_commands(study: Study) -> str:
    """Write the commands that make, train and show a study."""
    words = ["acenode", "study", "new", study.name, study.experiment, "--data", study.data]
    for group in study.groups:
        words += ["--group", " ".join([group.method, *_assignments(group.settings)])]
    for text in _assignments(study.held):
        words += ["--set", text]
    if study.seeds:
        words += ["--seeds", ",".join(map(str, study.seeds))]
    if study.folds:
        words += ["--folds", ",".join(map(str, study.folds))]
    words += ["--baseline", str(study.baseline + 1)]
    words += ["--metric", study.metric] if study.metric else []
    words += ["--question", study.question] if study.question else []
    return "\n".join([shlex.join(words), f"acenode study run {study.name}", f"acenode study show {study.name}"]) + "\n"


def _assignments(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()]


def to_python(study: Study, runs: str = "runs") -> str:
    """Write a script that trains what is missing of a study in the folder `runs` and prints the answer."""
    groups = "".join(f"    {_group(group)},\n" for group in study.groups)
    more = [f"data={study.data!r}", f"seeds={study.seeds!r}", f"baseline={study.baseline}"]
    more += [f"folds={study.folds!r}"] if study.folds else []
    more += [f"held={dict(study.held)!r}"] if study.held else []
    more += [f"metric={study.metric!r}"] if study.metric else []
    more += [f"question={study.question!r}"] if study.question else []
    return (f'"""Train what is missing of the study {study.name} and print its answer."""\n'
            "from acenode.execution.study_run import train_study\n"
            "from acenode.compare.study_answer import answer\n"
            "from acenode.runs.questions import Study, StudyGroup\n\n"
            f"groups = (\n{groups})\n"
            f"study = Study({study.name!r}, {study.experiment!r}, groups, {', '.join(more)})\n"
            f"print(answer(train_study(study, {runs!r})).text)\n")


def _group(group: StudyGroup) -> str:
    return f"StudyGroup({group.method!r}, {dict(group.settings)!r})"
