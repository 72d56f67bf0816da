"""A folder of runs that cannot be written works for looking; training is refused in words."""

from __future__ import annotations

import builtins
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acenode_app.services import Services
from conftest import RunFolder
from streamlit.testing.v1 import AppTest
from test_pages import PAGES, no_exception, page_text
from test_routes import get

from acenode import UserError, experiments
from acenode.cli import main
from acenode.runs import catalogue as catalogue_module
from acenode.runs.store import Run

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def make_read_only(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refuse to change anything below `root`, as a read-only file system does; return what was tried.

    Permissions would not do: tests may be run by root, whom they do not stop.
    """
    tried: list[str] = []

    def refusing(real: Callable[..., Any], writes: Callable[..., bool] = lambda *given, **named: True) -> Any:
        def call(path: Any, *given: Any, **named: Any) -> Any:
            inside = isinstance(path, str | Path) and Path(path).is_relative_to(root)
            if inside and writes(*given, **named):
                tried.append(str(path))
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            return real(path, *given, **named)

        return call

    for name in ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "utime"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    monkeypatch.setattr(os, "open", refusing(os.open, lambda flags, *_, **__: bool(flags & WRITING)))
    monkeypatch.setattr(builtins, "open", refusing(open, lambda mode="r", *_, **__: any(c in mode for c in "wax+")))
    return tried


@pytest.fixture
def runs(run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Return three finished runs and an interrupted one in a folder that cannot be written."""
    monkeypatch.setattr(catalogue_module, "INDEXED_AFTER", 1)  # an index would be written
    found = run_folder.finished()
    left = run_folder.running(process={"pid": 1, "started": "x", "host": "y"}, heartbeat=0)
    make_read_only(run_folder.services.store.root, monkeypatch)
    return [*found, left]


@pytest.mark.parametrize("name", PAGES)
def test_pages(name: str, page: Callable[..., AppTest], runs: list[Run]) -> None:
    for run in (runs[0], runs[-1]):
        app = no_exception(page(name, runs=run.id))
        assert app.title
        assert "Read-only" not in page_text(app)


def test_commands_and_routes(runs: list[Run], services: Services, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--runs", str(services.store.root)]
    for words in (["list"], ["show", runs[0].id], ["show", runs[-1].id], ["table", "mnist"]):
        assert main([*words, *folder]) == 0
    assert runs[-1].id in capsys.readouterr().out
    states = {entry.id: entry.state for entry in services.catalogue.entries()}
    assert [states[run.id] for run in runs] == ["finished"] * 3 + ["interrupted"]
    live = get(f"/lab/live?runs={','.join(run.id for run in runs)}").json()["runs"]
    assert [live[run.id]["status"]["state"] for run in runs] == ["finished"] * 3 + ["interrupted"]
    assert json.loads(get(f"/lab/film/{runs[0].id}").body)["epochs"]
    assert services.launcher.active() == []  # created, after a recovery that could write nothing


def test_training_and_changes_are_refused_in_words(runs: list[Run], services: Services, page: Callable[..., AppTest],
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"runs cannot be written to .* \(Read-only file system\): use --runs DIR"):
        services.launcher.start(experiments.get("mnist").configure("resnet"))
    assert main(["train", "mnist", "--method", "resnet", "--runs", str(services.store.root)]) == 2
    assert "Read-only file system" in capsys.readouterr().err
    assert main(["resume", runs[-1].id, "--runs", str(services.store.root)]) == 2
    assert "Read-only file system" in capsys.readouterr().err
    app = page("runs", runs=runs[0].id)
    app.text_area(key=f"notes/{runs[0].id}/0").set_value("new").run()
    no_exception(app)
