"""Every page in every state: without runs, with runs in all states, with damaged folders and with read-only ones."""

from __future__ import annotations

import builtins
import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acenode_app import navigation, server
from acenode_app import services as app_services
from acenode_app.access import Guard
from acenode_app.services import Services
from app_routes import get
from conftest import Page, RunFolder, no_exception, open_tab, page_text, titled
from streamlit.testing.v1 import AppTest

from acenode import UserError, experiments
from acenode.bench.synthetic import finished_runs
from acenode.cli import main
from acenode.compare.study_grid import PAGES as ADDRESSES
from acenode.compare.study_grid import reserved_names
from acenode.execution.execute import create, execute
from acenode.experiments import EXPERIMENTS
from acenode.runs import catalogue as catalogue_module
from acenode.runs.store import Run

PAGES = ["", "paper", "mnist", "compare", "runs", "studies", "searches"]  # experiments share their code
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SMALL = {"epochs": 1, "batch_size": 32, "units": 8, "recognition": 8, "block": 2, "step_size": 0.2, "device": "cpu"}
VALUES: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "no-method": ("config.json", lambda d: d["config"].update(method=None)),
    "late": ("config.json", lambda d: d.update(created=1e308)),
    "surrogate": ("config.json", lambda d: d.update(data_note="\ud800")),
    "nan": ("status.json", lambda d: d.update(progress=float("nan"))),
    "heartbeat": ("status.json", lambda d: d.update(heartbeat=10**400)),
}
TEXTS = {"nested": ("config.json", "[" * 5000 + "]" * 5000), "cut": ("status.json", '{"state": "fin'),
         "newer": ("config.json", '{"format": 99, "config": {}}')}
EVIL = "![x](nowhere) <img src=x onerror=alert(1)>"
BAD = {*VALUES, *TEXTS, "pipe", "not-a-run", EVIL}


def damage(folder: RunFolder) -> Run:
    """Return a finished run beside bad copies of it, one of each kind, and folders that are no runs."""
    good = folder.finished()[0]
    root = good.path.parent
    for name in {*VALUES, *TEXTS, "pipe"}:
        shutil.copytree(good.path, root / name)
    for name, (file, change) in VALUES.items():
        values = json.loads((root / name / file).read_text())
        change(values)
        (root / name / file).write_text(json.dumps(values))
    for name, (file, text) in TEXTS.items():
        (root / name / file).write_text(text)
    (root / "pipe" / "status.json").unlink()
    os.mkfifo(root / "pipe" / "status.json")
    folder.foreign("not-a-run", readme_txt="hello")
    folder.foreign(EVIL)
    return good


STATES: dict[str, Callable[[RunFolder], object]] = {
    "finished": RunFolder.finished, "running": RunFolder.running, "failed": RunFolder.failed, "damaged": damage,
    "many": lambda folder: finished_runs(folder.services.store.root, 500)}


def check(name: str, state: str, app: AppTest) -> None:
    """Check what a page has to show in a state."""
    text, tables = page_text(app), [table.value for table in app.dataframe] if name in ("", "compare", "runs") else []
    shown = app.multiselect(key="shown/mnist").value if name == "mnist" and state != "empty" else []
    if state == "empty" and name not in ("tour", "playground", "your-data"):
        assert re.search("rain|Start", app.info[0].value)  # Train, or how to
    if state in ("finished", "damaged", "read-only") and tables:
        assert "ACE-ODE-Net" in tables[0].to_csv()
    if state == "running" and name == "mnist":
        assert app.button(key=f"Stop/{shown[0]}")
    if state == "failed" and name == "mnist":
        assert "loosen rtol and atol" in text
        assert app.button(key=f"Resume/{shown[0]}")
    if state == "damaged" and name == "runs":
        bad = tables[0][tables[0]["State"].str.contains("unreadable")]
        assert set(bad["Id"]) == BAD
        assert all(len(reason) > 20 for reason in bad["Settings"])
    if state == "many" and name == "runs":
        assert len(tables[0]) == 500
    assert "Read-only" not in text


@pytest.mark.parametrize(("name", "state"), [
    *((name, state) for state in (*STATES, "empty", "read-only") for name in PAGES),
    *((name, "empty") for name in (*EXPERIMENTS, "tour", "playground", "your-data") if name != "mnist")])
def test_page_in_a_state(name: str, state: str, page: Page, run_folder: RunFolder,
                         request: pytest.FixtureRequest) -> None:
    if state == "read-only":
        made = request.getfixturevalue("read_only")[-1]
    else:
        made = STATES[state](run_folder) if state in STATES else None
    app = page(name, **({"runs": made.id} if isinstance(made, Run) else {}))
    assert app.title[0].value
    levels = {int(tag[1]) for tag in re.findall(r"\bh[1-6]\b", " ".join(
        heading.tag for heading in [*app.title, *app.header, *app.subheader]))}
    assert len(app.title) == 1
    assert 3 not in levels or 2 in levels  # none is skipped
    check(name, state, app)


@pytest.mark.parametrize("name", ["", "mnist", "compare", "runs"])
def test_files_that_change_or_go_while_a_page_is_open(name: str, page: Page, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    app = page(name, runs=run.id)
    for text in ("", "[]", '{"state": "dancing"}', '{"state": "finished", "process": {}}'):
        for file in ("status.json", "config.json", "result.json"):
            (run.path / file).write_text(text)
        no_exception(app.run())
    shutil.rmtree(run.path)
    no_exception(app.run())


def test_every_address_is_reserved_and_an_imported_set_with_one_takes_no_page_down(
        page: Page, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(ADDRESSES) == navigation.ICONS.keys() <= reserved_names(services.catalogue)
    monkeypatch.setattr(navigation, "imported_names", lambda: ["searches", "mnist"])
    assert navigation.experiment_names() == [*EXPERIMENTS, *experiments.EXAMPLES]
    assert page("searches").title[0].value == "Searches"


@pytest.mark.parametrize("name", ["runs", "mnist"])
def test_a_changed_digit_of_the_curves_is_told(name: str, page: Page, run_folder: RunFolder,
                                               caplog: pytest.LogCaptureFixture) -> None:
    run = run_folder.finished()[0]
    assert not any("metrics" in w.value for w in page(name, runs=run.id).warning)
    metrics = run.path / "metrics.jsonl"
    content = metrics.read_bytes()
    at = content.index(b'"L_h": ') + 7
    metrics.write_bytes(content[:at] + (b"8" if content[at:at + 1] != b"8" else b"7") + content[at + 1:])
    for _ in range(2):
        app = page(name, runs=run.id)
        (warning,) = (w.value for w in app.warning if "metrics" in w.value)
        assert "line 1 was changed after training wrote it" in warning
    assert sum("line 1 was changed" in record.message for record in caplog.records) == 1  # not at every look


@pytest.mark.parametrize("name", ["", "runs", "mnist", "tour"])
def test_a_folder_that_cannot_be_read_is_not_an_empty_one(name: str, page: Page, run_folder: RunFolder,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder.finished()
    real = os.scandir

    def denied(path: os.PathLike = Path()) -> object:  # type: ignore[type-arg]
        if Path(path) == run_folder.services.store.root:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", denied)
    app = page(name)
    assert "cannot be read (Permission denied): change its permissions" in page_text(app)
    assert not any("No runs" in info.value for info in app.info)
    assert bool(app.title) == (name == "tour")


def test_a_run_is_shown_with_its_coupling_and_what_if(page: Page, services: Services) -> None:
    run = create(services.store, experiments.get("stocks").configure("ace", **SMALL))
    assert execute(run, services.data_root).state == "finished"
    app = page("stocks")
    text = page_text(app)
    assert "Stock prices" in text
    assert "This is the sample" not in text
    assert "the model's predictions; the forecast begins" in text
    assert not [w for w in app.segmented_control if w.label == "Data"]  # there is one set
    assert {"Records", "Coupling", "What if"} <= {tab.label for tab in app.tabs}
    assert "Attention and influence" in page_text(open_tab(app, "Coupling", "watch"))
    open_tab(app, "What if", "watch")
    variable = titled(app.selectbox, "Variable")
    assert variable.options == ["GOOG", "AAPL", "AMZN", "FB", "NFLX", "MSFT"]
    assert "changes most, by up to" in page_text(no_exception(variable.set_value("FB").run()))
    hold = titled(app.selectbox, "Hold")
    assert titled(no_exception(hold.set_value(hold.options[1]).run()).selectbox, "Attends to")


@pytest.mark.parametrize("name", ["no-method", "nested", "pipe"])
def test_bad_runs_are_deleted_from_the_app(name: str, page: Page, run_folder: RunFolder) -> None:
    good = damage(run_folder)
    app = page("runs", runs=name)
    app.button(key="runs/delete").click().run()
    no_exception(app.button(key="delete/yes").click().run())
    assert not (good.path.parent / name).exists()
    assert {e.id for e in run_folder.services.catalogue.entries() if e.state == "unreadable"} == BAD - {name}


def make_read_only(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to change anything below `root`, as a read-only file system does.

    Permissions would not do: tests may be run by root, whom they do not stop.
    """

    def refusing(real: Callable[..., Any], writes: Callable[..., bool] = lambda *given, **named: True) -> Any:
        def call(path: Any, *given: Any, **named: Any) -> Any:
            inside = isinstance(path, str | Path) and Path(path).is_relative_to(root)
            if inside and writes(*given, **named):
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            return real(path, *given, **named)

        return call

    for name in ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "utime"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    monkeypatch.setattr(os, "open", refusing(os.open, lambda flags, *_, **__: bool(flags & WRITING)))
    monkeypatch.setattr(builtins, "open", refusing(open, lambda mode="r", *_, **__: any(c in mode for c in "wax+")))


@pytest.fixture
def read_only(run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Return three finished runs and an interrupted one in a folder that cannot be written."""
    monkeypatch.setattr(catalogue_module, "INDEXED_AFTER", 1)  # an index would be written
    found = run_folder.finished()
    left = run_folder.running(process={"pid": 1, "started": "x", "host": "y"}, heartbeat=0)
    make_read_only(run_folder.services.store.root, monkeypatch)
    return [*found, left]


def test_a_read_only_folder_is_read_and_changes_are_refused_in_words(
        read_only: list[Run], services: Services, page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    runs, folder = read_only, ["--runs", str(services.store.root)]
    for words in (["list"], ["show", runs[0].id], ["show", runs[-1].id], ["table", "mnist"]):
        assert main([*words, *folder]) == 0
    assert runs[-1].id in capsys.readouterr().out
    live = get(f"/lab/live?runs={','.join(run.id for run in runs)}").json()["runs"]
    assert [live[run.id]["state"] for run in runs] == ["finished"] * 3 + ["interrupted"]
    assert json.loads(get(f"/lab/film/{runs[0].id}").body)["epochs"]
    assert services.launcher.running == {}  # created, after a recovery that could write nothing
    with pytest.raises(UserError, match=r"runs cannot be written to .* \(Read-only file system\): use --runs DIR"):
        services.launcher.start(experiments.get("mnist").configure("resnet"))
    for words in (["train", "mnist", "--method", "resnet"], ["resume", runs[-1].id]):
        assert main([*words, *folder]) == 2
        assert "Read-only file system" in capsys.readouterr().err
    app = page("runs", runs=runs[0].id)
    no_exception(app.text_area(key=f"notes/{runs[0].id}/0").set_value("new").run())


def test_warming_up_creates_the_launcher(services: Services) -> None:
    server.warm_up()
    assert services.launcher_ready


def test_a_server_without_the_checks_shows_no_page(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_services, "is_served", lambda: True)
    monkeypatch.setattr(Guard, "installed", False)
    app = page("runs")
    assert [e.value for e in app.error] == [app_services.UNGUARDED]
    assert not app.title
    assert not app.sidebar.caption
    monkeypatch.setattr(Guard, "installed", True)
    assert page("runs").title


def test_page_error_is_shown_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    import streamlit as st

    shown: list[str] = []
    monkeypatch.setattr(st, "error", lambda text, **_: shown.append(text))
    assert server.on_script_error(ValueError("a bug")) is True
    assert "ValueError" in shown[0]
    assert "a bug" in capsys.readouterr().err
