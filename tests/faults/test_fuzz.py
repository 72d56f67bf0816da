"""A few hundred generated cases of bad input; `make fuzz` runs thousands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fuzz


@pytest.mark.parametrize(("kind", "count"), [("run folders", 40), ("command lines", 100), ("addresses", 80),
                                             ("data files", 80)])
def test_nothing_fails_hangs_or_shows_nothing(kind: str, count: int) -> None:
    found = fuzz.run(kind, range(count), seed=1)
    assert (found.cases, found.tracebacks, found.hangs, found.empty) == (count, 0, 0, 0), "\n".join(found.found)


def test_a_fault_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty:
        name = "faulty"

        def __init__(self, folder: Path) -> None:
            pass

        def case(self, rng: object) -> None:
            raise next(errors)

        def close(self) -> None:
            pass

    errors = iter([KeyError("x"), fuzz.EmptyPageError("page"), fuzz.HangError()])
    monkeypatch.setitem(fuzz.KINDS, "faulty", Faulty)
    found = fuzz.run("faulty", range(3))
    assert (found.cases, found.tracebacks, found.hangs, found.empty) == (3, 1, 1, 1)
    assert len(found.found) == 3
