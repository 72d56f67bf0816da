"""Generated command lines: each is carried out, or refused in one line."""

from __future__ import annotations

import argparse
import os
import random
import shutil
from pathlib import Path
from typing import Any

import bad_values
from checks import call

from acenode import experiments
from acenode.cli import training
from acenode.cli.parser import make_parser
from acenode.config import SETTINGS
from acenode.runs.recorded import recorded_runs

LONG = frozenset({"app", "bench", "demo", "reproduce", "study run", "data get", "data build"})  # only with bad options
RIGHT = ["mnist", "ushcn", "physionet", "ace", "odenet", "gru-simple", "0", "1", "2", "cpu", "sample", "good", "csv",
         "html", "last", "attention=fixed", "epochs=1", "seed=1"]


class CommandLines:
    """Random arguments for every command; training itself is left out."""

    name = "command lines"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = recorded_runs()
        assert found is not None
        template = next(path for path in sorted(found.iterdir()) if (path / "snapshots").is_dir())
        shutil.copytree(template, folder / "runs" / "good")
        self.commands = dict(_commands(make_parser()))
        self.before = {name: os.environ.get(name) for name in ("ACENODE_RUNS", "ACENODE_DATA")}
        os.environ.update(ACENODE_RUNS=str(folder / "runs"), ACENODE_DATA=str(folder / "data"))
        self.home, self.execute = Path.cwd(), training._execute
        (folder / "here").mkdir()
        os.chdir(folder / "here")  # commands write beside themselves
        training._execute = _not_trained

    def case(self, rng: random.Random) -> None:
        name = rng.choice(sorted(self.commands))
        words = name.split()
        for action in self.commands[name]:
            needed = action.required or not action.option_strings
            if rng.random() < (0.95 if needed else 0.25):
                words += self._argument(action, rng)
        if rng.random() < 0.15:
            words.insert(rng.randrange(len(words) + 1), bad_values.text(rng))
        if rng.random() < 0.05:
            rng.shuffle(words)
        if name in LONG or set(words) & {"get", "build", "bench", "app", "demo", "reproduce"} or "run" in words[:2]:
            words = [*words, "--no-such-option"]  # parsed, and refused before anything begins
        if "record" in words:  # by default it writes to the repository
            words += ["--to", "recorded-here"]
        call(*map(_inside, words))

    def _argument(self, action: argparse.Action, rng: random.Random) -> list[str]:
        flag = [rng.choice(action.option_strings)] if action.option_strings else []
        if action.nargs == 0:
            return flag
        count = action.nargs if isinstance(action.nargs, int) else rng.choice([1, 1, 1, 2]) if action.nargs else 1
        return [*flag, *(self._value(action, rng) for _ in range(count))]

    def _value(self, action: argparse.Action, rng: random.Random) -> str:
        what = rng.random()
        if action.choices and what < 0.7:
            return str(rng.choice(list(action.choices)))
        if what < 0.5:
            return rng.choice(list(experiments.EXPERIMENTS) if "experiment" in action.dest else RIGHT)
        if what < 0.7 and action.dest in ("set", "vary", "group"):
            return f"{rng.choice(list(SETTINGS))}={bad_values.text(rng)}"
        return bad_values.text(rng)

    def close(self) -> None:
        os.chdir(self.home)
        training._execute = self.execute
        for name, value in self.before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _not_trained(run: Any, options: argparse.Namespace, cluster: Any = None) -> int:
    print("{}")
    return 0


def _inside(word: str) -> str:
    """Keep a command from writing outside its folder."""
    return word.replace("/", "_").replace("..", "__").replace("~", "-")


def _commands(parser: argparse.ArgumentParser, before: str = "") -> Any:
    """Yield every command with its arguments, without those that print help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from _commands(child, f"{before} {name}".strip())
            return
    yield before, [a for a in parser._actions if not isinstance(a, argparse._HelpAction)]
