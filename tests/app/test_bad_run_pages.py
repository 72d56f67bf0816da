"""Runs with bad values on the pages: each is one unreadable row with its reason, and can be deleted there."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from acenode_app.services import Services
from conftest import RunFolder
from streamlit.testing.v1 import AppTest
from test_pages import no_exception
from test_routes import get

from acenode.runs.store import Run

Page = Callable[..., AppTest]

VALUES: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "no-method": ("config.json", lambda d: d["config"].update(method=None)),
    "late": ("config.json", lambda d: d.update(created=1e308)),
    "surrogate": ("config.json", lambda d: d.update(data_note="\ud800")),
    "nan": ("status.json", lambda d: d.update(progress=float("nan"))),
    "heartbeat": ("status.json", lambda d: d.update(heartbeat=10**400)),
}
TEXTS = {"nested": ("config.json", "[" * 5000 + "]" * 5000), "cut": ("status.json", '{"state": "fin')}
NAMES = {*VALUES, *TEXTS, "pipe"}


@pytest.fixture
def good(run_folder: RunFolder) -> Run:
    """Return a finished run beside bad copies of it, one of each kind."""
    found = run_folder.finished()[0]
    root = found.path.parent
    for name in NAMES:
        shutil.copytree(found.path, root / name)
    for name, (file, change) in VALUES.items():
        values = json.loads((root / name / file).read_text())
        change(values)
        (root / name / file).write_text(json.dumps(values))
    for name, (file, text) in TEXTS.items():
        (root / name / file).write_text(text)
    (root / "pipe" / "status.json").unlink()
    os.mkfifo(root / "pipe" / "status.json")
    return found


@pytest.mark.parametrize("name", ["", "runs", "compare", "mnist"])
def test_pages_show_the_others(name: str, page: Page, good: Run) -> None:
    app = no_exception(page(name, runs=good.id))
    assert app.title
    if name == "runs":
        table = app.dataframe[0].value
        bad = table[table["State"].str.contains("unreadable")]
        assert set(bad["Id"]) == NAMES
        assert all(len(reason) > 20 for reason in bad["Settings"])
    if name in ("", "compare"):
        assert "ACE-ODE-Net" in app.dataframe[0].value.to_csv()


def test_curves_asked_for_together_go_on(good: Run, services: Services) -> None:
    runs = get(f"/lab/live?runs={','.join([*sorted(NAMES), good.id])}").json()["runs"]
    assert runs[good.id]["lines"]
    unreadable = {name for name in NAMES if runs[name]["status"]["state"] == "unreadable"}
    assert unreadable >= {"nan", "heartbeat", "cut", "pipe"}
    assert get("/lab/active").status == 200


@pytest.mark.parametrize("name", ["no-method", "nested", "pipe"])
def test_they_are_deleted_from_the_app(name: str, page: Page, good: Run, services: Services) -> None:
    app = no_exception(page("runs", runs=name))
    app.button(key="runs/delete").click().run()
    no_exception(app.button(key="delete/yes").click().run())
    assert not (good.path.parent / name).exists()
    assert {e.id for e in services.catalogue.entries() if e.state == "unreadable"} == NAMES - {name}
    assert not re.search(r"\bTraceback\b", str(app.main))
