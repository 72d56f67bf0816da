"""Change single operators and constants of the source and see whether tests notice. Run it in a clean clone.

    python tests/mutants.py list MUTANTS [--count 600] [--seed 0]      choose mutants of this tree
    python tests/mutants.py cover MUTANTS COVER [pytest options]       add which tests reach them; needs `coverage`
    python tests/mutants.py run MUTANTS COVER RESULT [--part 1/2]      try each against the tests that reach it

A mutant is a line and what it becomes, so that a list can be used on a later version of the source, where the line may
stand in another file. RESULT has a JSON line a mutant: killed, survived, uncovered, or gone where the line is no more.
Each is tried against the fastest tests that reach it, --budget seconds of them at most. `run` continues a RESULT.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = {  # the number of mutants is shared out equally
    "attention": ["attention.py"], "node": ["node.py"], "ode": ["ode"], "training": ["training"], "models": ["models"],
    "runs": ["runs"], "compare": ["compare", "results"], "import": ["data/importing"]}
SWAPS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"), ast.Pow: ("**", "*"), ast.And: ("and", "or"), ast.Or: ("or", "and"), ast.Not: ("not ", ""),
    ast.USub: ("-", "")}
PRELOADED = ("torch", "torchdiffeq", "pandas", "sklearn.manifold", "scipy.stats", "plotly.graph_objects", "pytest")


def sources() -> list[Path]:
    return sorted((ROOT / "acenode").rglob("*.py"))


def mutants_of(path: Path) -> Iterator[dict[str, str]]:
    """Yield every change of one operator or constant on one line."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()

    def change(row: int, start: int, end: int, was: str, becomes: str) -> Iterator[dict[str, str]]:
        line = lines[row - 1].encode()
        middle = line[start:end].decode()
        if middle.count(was) == 1:
            new = (line[:start].decode() + middle.replace(was, becomes) + line[end:].decode()).strip()
            yield {"file": str(path.relative_to(ROOT)), "line": lines[row - 1].strip(), "becomes": new}

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            operands = [(node.left, node.comparators[0], node.ops[0])]
        elif isinstance(node, ast.BinOp):
            operands = [(node.left, node.right, node.op)]
        elif isinstance(node, ast.BoolOp):
            operands = [(node.values[0], node.values[1], node.op)]
        else:
            operands = []
        for left, right, op in operands:
            if type(op) in SWAPS and left.end_lineno == right.lineno:
                yield from change(right.lineno, left.end_col_offset, right.col_offset, *SWAPS[type(op)])
        if isinstance(node, ast.UnaryOp) and type(node.op) in SWAPS and node.lineno == node.operand.lineno:
            yield from change(node.lineno, node.col_offset, node.operand.col_offset, *SWAPS[type(node.op)])
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool) and node.lineno == node.end_lineno:
            becomes = str(not node.value if isinstance(node.value, bool) else node.value + 1)
            yield from change(node.lineno, node.col_offset, node.end_col_offset, ast.unparse(node), becomes)


def choose(count: int, seed: int) -> list[dict[str, str]]:
    """Draw mutants of each room; only lines that stand once in the source can be found again."""
    often = Counter(line.strip() for path in sources() for line in path.read_text(encoding="utf-8").splitlines())
    chosen = []
    for room, places in ROOMS.items():
        files = [path for path in sources() for place in places
                 if (ROOT / "acenode" / place) in (path, *path.parents)]
        found = [m | {"room": room} for path in files for m in mutants_of(path) if often[m["line"]] == 1]
        chosen += random.Random(f"{seed} {room}").sample(found, min(len(found), count // len(ROOMS)))
    return chosen


def locate(mutants: list[dict[str, str]]) -> list[tuple[Path, int] | None]:
    """Return the file and number of each mutant's line in this tree."""
    places: dict[str, list[tuple[Path, int]]] = {}
    for path in sources():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            places.setdefault(line.strip(), []).append((path, number))
    return [found[0] if len(found := places.get(m["line"], [])) == 1 else None for m in mutants]


class Cover:
    """A pytest plugin that records which tests reach the mutants' lines, and how long tests take."""

    def __init__(self, mutants: list[dict[str, str]], out: Path) -> None:
        import coverage

        self.places, self.out, self.seconds = locate(mutants), out, {}
        self.cov = coverage.Coverage(data_file=None, include=sorted({str(p[0]) for p in self.places if p}))
        self.cov.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.cov.switch_context(nodeid)

    def pytest_runtest_logreport(self, report) -> None:
        if report.outcome != "failed":
            self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        self.cov.stop()
        data = self.cov.get_data()
        by_file = {str(p[0]): data.contexts_by_lineno(str(p[0])) for p in self.places if p}
        tests = [sorted({t for t in by_file[str(p[0])].get(p[1], ()) if t in self.seconds},
                        key=lambda test: self.seconds[test]) if p else [] for p in self.places]
        if self.out.exists():  # another part of the tests
            other = json.loads(self.out.read_text(encoding="utf-8"))
            self.seconds |= other["seconds"]
            tests = [sorted({*mine, *theirs}, key=lambda test: self.seconds[test])
                     for mine, theirs in zip(tests, other["tests"], strict=True)]
        self.out.write_text(json.dumps({"tests": tests, "seconds": self.seconds}), encoding="utf-8")


def affordable(tests: list[str], seconds: dict[str, float], budget: float) -> list[str]:
    """Return the fastest tests that take `budget` seconds together, and at least one."""
    spent, chosen = 0.0, []
    for test in tests:
        spent += seconds[test]
        if chosen and spent > budget:
            break
        chosen.append(test)
    return chosen


def attempt(path: Path, number: int, mutant: dict[str, str], tests: list[str], limit: float) -> str:
    """Run the tests on the changed source in a forked process."""
    original = path.read_text(encoding="utf-8")
    lines = original.splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(mutant["line"], mutant["becomes"])
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()
    path.write_text("".join(lines), encoding="utf-8")
    try:
        child = os.fork()
        if not child:
            os.setsid()
            with open(os.devnull, "w") as null:
                os.dup2(null.fileno(), 1)
                os.dup2(null.fileno(), 2)
            os._exit(int(importlib.import_module("pytest").main(
                ["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *tests])))
        until = time.monotonic() + limit
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return "survived" if status == 0 else "killed"
            time.sleep(0.05)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "killed"  # it hangs
    finally:
        path.write_text(original, encoding="utf-8")


def run(mutants: list[dict[str, str]], cover: dict, result: Path, part: str, budget: float) -> None:  # type: ignore[type-arg]
    """Try the mutants of this part and append each outcome to `result`."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    for name in PRELOADED:
        importlib.import_module(name)
    known = [json.loads(line) for line in result.read_text().splitlines()] if result.exists() else []
    done = {one["id"] for one in known}
    first, parts = map(int, part.split("/"))
    for i, (mutant, place) in enumerate(zip(mutants, locate(mutants), strict=True)):
        if i % parts != first - 1 or i in done:
            continue
        tests = affordable(cover["tests"][i], cover["seconds"], budget)
        if place and tests:
            outcome = attempt(*place, mutant, tests, 4 * budget + 60)
        else:
            outcome = "uncovered" if place else "gone"
        with result.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": i, "outcome": outcome, "tests": len(tests), **mutant}) + "\n")
        print(i, outcome, mutant["file"], mutant["becomes"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("list", "cover", "run"))
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--budget", type=float, default=15.0)
    given, options = parser.parse_known_args()
    if given.action == "list":
        chosen = choose(given.count, given.seed)
        given.files[0].write_text(json.dumps(chosen, indent=0), encoding="utf-8")
        print(Counter(m["room"] for m in chosen))
        return
    mutants = json.loads(given.files[0].read_text(encoding="utf-8"))
    os.chdir(ROOT)
    if given.action == "cover":
        import pytest

        tests = [*map(str, given.files[2:]), *options]
        sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[Cover(mutants, given.files[1])]))
    cover = json.loads(given.files[1].read_text(encoding="utf-8"))
    run(mutants, cover, given.files[2], given.part, given.budget)


if __name__ == "__main__":
    main()
