"""Generated cases of bad input: run folders, command lines, addresses and data files; what must hold in each."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import app_routes
import bad_values
import numpy as np
from acenode_app import estimates, routes, services
from importing_tables import labelled, long, wide
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from acenode import experiments
from acenode.cli import main, training
from acenode.cli.parser import make_parser
from acenode.config import SETTINGS, Config
from acenode.data.folder import read_npz, write_npz
from acenode.execution.estimate import Estimate
from acenode.experiments import EXPERIMENTS
from acenode.runs.catalogue import Catalogue
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore

MAIN = Path(__file__).parents[2] / "app" / "main.py"
EXIT_CODES = (0, 1, 2)


class FaultError(Exception):
    """Something that must not happen."""


def call(*arguments: str) -> str:
    """Run a command and return what it printed; a failure must be explained in one line."""
    out, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = main(arguments)
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
    if code not in EXIT_CODES:
        raise FaultError(f"exit code {code}")
    said = errors.getvalue().strip()
    if "Traceback" in said:
        raise FaultError(said)
    if code == 2 and (not said.startswith("acenode: ") or len(said.splitlines()) > 1):
        raise FaultError(f"not explained in one line: {said!r}")
    if code == 0 and "--json" in arguments and not {"-h", "--help"} & set(arguments):
        json.loads(out.getvalue(), parse_constant=_no_number)
    return out.getvalue()


def _no_number(name: str) -> None:
    raise FaultError(f"{name} is not JSON")


def get(target: str, body: bytes | None = None, **headers: str) -> Any:
    """Request one of the app's routes; it must answer, and what it calls JSON must be JSON."""
    path, _, query = target.partition("?")
    answer = app_routes.get(f"{quote(path, safe='/%')}?{quote(query, safe='=&%@,+')}", body, **headers)
    if answer.status >= 500 or answer.status == 0:
        raise FaultError(f"{target} answered {answer.status}")
    if not answer.body and answer.status == 200:
        raise FaultError(f"{target} shows nothing")
    if answer.headers.get("content-type") == "application/json":
        json.loads(answer.body, parse_constant=_no_number)
    return answer


class AppOver:
    """The app's services over a folder, in which nothing is timed to estimate how long a run takes."""

    def __init__(self, folder: Path) -> None:
        self.services = services.Services(folder / "runs", folder / "data")
        services.replace(self.services)
        self.patches = contextlib.ExitStack()
        for module, name, value in ((estimates, "estimate", _one_minute), (estimates, "DELAY", 0.0),
                                    (routes, "PATIENCE", 0.01)):
            self.patches.enter_context(mock.patch.object(module, name, value))

    def close(self) -> None:
        estimates._timed.clear()
        self.patches.close()
        self.services.close()
        services.replace(None)


def _one_minute(configs: Sequence[Config], *given: object) -> Estimate:
    return Estimate(len(configs), 60.0 * len(configs), "timing 1 configuration", dict.fromkeys(configs, 60.0))


def page(name: str, query: dict[str, str]) -> None:
    """Open a page of the app; it must raise nothing and show something."""
    app = AppTest.from_file(str(MAIN), default_timeout=60)
    for key, value in query.items():
        app.query_params[key] = value
    app._page_hash = calc_hash(name)
    app.run()
    if app.exception:
        raise FaultError(f"page {name!r} {query}: {[e.value for e in app.exception]}")
    if not app.title and not app.markdown:
        raise FaultError(f"page {name!r} {query} shows nothing")


def recorded_with_snapshots() -> list[Path]:
    """Return the folders of the recorded runs that have snapshots."""
    found = recorded_runs()
    assert found is not None
    return [path for path in sorted(found.iterdir()) if (path / "snapshots").is_dir()]


GOOD, BAD = "good", "bad"
PAGE_SHARE = 0.04  # of the cases: a page takes longer than the rest of a case


class RunFolders:
    """A good run, and one that is damaged anew in each case; both are copies of recorded runs."""

    def __init__(self, folder: Path) -> None:
        self.root, self.out = folder / "runs", folder / "out"
        self.templates = {p.name.partition("-")[0]: p for p in recorded_with_snapshots()}
        shutil.copytree(next(iter(self.templates.values())), self.root / GOOD)
        self.app = AppOver(folder)

    def case(self, rng: random.Random) -> None:
        bad = self.root / BAD
        shutil.rmtree(bad, ignore_errors=True)
        experiment = rng.choice(sorted(self.templates))
        shutil.copytree(self.templates[experiment], bad)
        bad_values.damage_folder(bad, rng)
        found = {entry.id: entry for entry in Catalogue(RunStore(self.root)).entries()}
        if set(found) != {GOOD, BAD} or found[GOOD].state != "finished":
            raise FaultError(f"the list has {found}")
        if found[BAD].state == "unreadable" and not found[BAD].error:
            raise FaultError("no reason is given")
        call("list", "--runs", str(self.root))
        call("show", BAD, "--runs", str(self.root), *rng.choice([(), ("--json",)]))
        answer = get(f"/lab/live?runs={GOOD},{BAD}@{rng.choice(['', '0', '17', '99999999'])}")
        if not answer.json()["runs"][GOOD]["points"]:
            raise FaultError("the good run has no curves")
        get(f"/lab/film/{BAD}")
        get(f"/lab/film/{BAD}/{rng.choice([0, 1, 5])}")
        shutil.rmtree(self.out, ignore_errors=True)
        other = rng.random()
        if other < 0.15:
            call("export", BAD, "--to", rng.choice(["csv", "html"]), "--out", str(self.out), "--runs", str(self.root))
        elif other < 0.2:
            call("table", experiment if found[BAD].experiment == experiment else "mnist", "--runs", str(self.root))
        elif other < 0.2 + PAGE_SHARE:
            name = rng.choice(["", "runs", "compare", experiment])
            page(name, {"runs": rng.choice([BAD, f"{GOOD},{BAD}"])})

    def close(self) -> None:
        self.app.close()


LONG = frozenset({"app", "bench", "demo", "reproduce", "study run", "data get", "data build"})  # only with bad options
RIGHT = ["mnist", "ushcn", "physionet", "ace", "odenet", "gru-simple", "0", "1", "2", "cpu", "sample", "good", "csv",
         "html", "last", "attention=fixed", "epochs=1", "seed=1"]


class CommandLines:
    """Random arguments for every command; training itself is left out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(recorded_with_snapshots()[0], folder / "runs" / "good")
        self.commands = dict(_commands(make_parser()))
        (folder / "here").mkdir()
        self.changed = contextlib.ExitStack()
        self.changed.enter_context(mock.patch.dict(os.environ, ACENODE_RUNS=str(folder / "runs"),
                                                   ACENODE_DATA=str(folder / "data")))
        self.changed.enter_context(contextlib.chdir(folder / "here"))  # commands write beside themselves
        self.changed.enter_context(mock.patch.object(training, "execute_run", _not_trained))

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
        self.changed.close()


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


PAGES = ["", "paper", "runs", "compare", "studies", "your-data", "tour", "playground", *EXPERIMENTS]
QUERIES = ["runs", "experiment", "methods", "states", "tags", "search", "from", "study", "baseline", "epoch", "by",
           "set", "cell", "table", "name", "preset", "data", "step", "new", "task", "method"]
ROUTES = ["assets", "live", "active", "film", "epoch", "study", "playground", "command", "any", "plotly"]
COMMAND = {"speed": 1, "play": True}


class Addresses:
    """Random addresses of the app's own routes and pages, over a folder with two runs."""

    def __init__(self, folder: Path) -> None:
        chosen = recorded_with_snapshots()
        for path in (chosen[0], chosen[-1]):
            shutil.copytree(path, folder / "runs" / path.name)
        self.runs = [chosen[0].name, chosen[-1].name]
        self.app = AppOver(folder)

    def case(self, rng: random.Random) -> None:
        if rng.random() < PAGE_SHARE:
            query = {rng.choice(QUERIES): self._word(rng) for _ in range(rng.choice([1, 1, 2, 3]))}
            page(rng.choice(PAGES), query)
            return
        kind = rng.choice(ROUTES)
        word = self._word(rng).replace("/", "%2F")
        if kind == "live":
            runs = ",".join(f"{self._word(rng)}{rng.choice(['', '@', '@0', '@17', '@-1', '@' + '9' * 30, '@٣'])}"
                            for _ in range(rng.choice([1, 2, 80])))
            get(f"/lab/live?runs={runs}").json()
        elif kind == "active":
            get(f"/lab/active?{word}").json()
        elif kind == "epoch":
            get(f"/lab/film/{rng.choice(self.runs)}/{word}")
        elif kind == "playground":
            get(f"/lab/playground/{word}?after={self._word(rng)}", sec_fetch_site="cross-site")
        elif kind == "command":
            body = rng.choice([json.dumps(bad_values.change_json(COMMAND, rng)).encode(), b"[" * 9999, b"\xff", b""])
            get(f"/lab/playground/{word}", body)
        elif kind == "any":
            get(f"/lab/{word}/{self._word(rng)}?{self._word(rng)}={self._word(rng)}")
        elif kind == "plotly":
            get(rng.choice(["/lab/plotly.js", "/lab/active", "/lab/live"]))
        else:
            get(f"/lab/{kind}/{word}")

    def _word(self, rng: random.Random) -> str:
        found = rng.choice([*self.runs, *EXPERIMENTS, "player.js"]) if rng.random() < 0.3 else bad_values.text(rng)
        return found.encode("utf-8", "replace").decode()

    def close(self) -> None:
        self.app.close()


class DataFiles:
    """Tables and npz files that are damaged, and cells that hold something else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.variables = folder, mock.patch.dict(os.environ, ACENODE_DATA=str(folder / "data"))
        self.variables.start()
        self.tables: list[Callable[[], str]] = [wide, long, labelled]
        rng = np.random.default_rng(0)
        write_npz(folder / "good.npz", {"x": rng.normal(size=(20, 3)), "y": np.arange(20)})
        self.imported = 0

    def case(self, rng: random.Random) -> None:
        if rng.random() < 0.25:
            self._npz(rng)
            return
        path = self.folder / rng.choice(["mine.csv", "mine.csv", "mine.parquet", "mine"])
        path.unlink(missing_ok=True)
        data = _changed_cells(rng.choice(self.tables)(), rng).encode("utf-8", "surrogatepass")
        path.write_bytes(data)
        if rng.random() < 0.4:
            bad_values.damage_file(path, rng)
        words = ["data", "import", str(path)]
        if rng.random() < 0.15:
            self.imported += 1
            words += ["--name", f"set-{self.imported}"]
        else:
            words.append("--preview")
        for flag in ("--time", "--id", "--label", "--given", "--window", "--stride", "--time-unit"):
            if rng.random() < 0.08:
                words += [flag, rng.choice([bad_values.text(rng), "time", "id", "1", "24"])]
        call(*words, *rng.choice([(), ("--json",)]))
        if path.is_dir():
            path.rmdir()

    def _npz(self, rng: random.Random) -> None:
        path = self.folder / "bad.npz"
        path.write_bytes(bad_values.change_bytes((self.folder / "good.npz").read_bytes(), rng))
        try:
            found = read_npz(path, ["x", "y"])
        except ValueError as error:
            if not str(error) or "\n" in str(error):
                raise FaultError(f"not explained in one line: {error!r}") from None
        else:
            if any(not isinstance(array, np.ndarray) for array in found.values()):
                raise FaultError("not arrays")

    def close(self) -> None:
        self.variables.stop()


def _changed_cells(table: str, rng: random.Random) -> str:
    """Replace cells, names of columns, separators or line ends."""
    rows = [line.split(",") for line in table.splitlines()]
    for _ in range(rng.choice([0, 1, 1, 2, 10])):
        row = rng.choice([rows[0], rng.choice(rows)])
        if row:
            row[rng.randrange(len(row))] = bad_values.text(rng)
    if rng.random() < 0.1:
        del rows[rng.randrange(len(rows)):]
    if rng.random() < 0.1:
        for row in rng.sample(rows, min(5, len(rows))):
            row.append("1")
    if rng.random() < 0.1:
        rng.shuffle(rows)
    separator = rng.choice([",", ",", ",", ";", "\t", "|", " "])
    end = rng.choice(["\n", "\n", "\r\n", "\r"])
    return rng.choice(["", "", "", "\ufeff"]) + "".join(separator.join(row) + end for row in rows)
