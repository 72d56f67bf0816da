"""Pages with failed runs, files that change or disappear while a page is open, and many runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from acenode_app.services import Services
from conftest import RunFolder
from quick_settings import QUICK
from streamlit.testing.v1 import AppTest
from test_pages import PAGES, no_exception, page_text

from acenode import experiments
from acenode.bench.synthetic import finished_runs

Page = Callable[..., AppTest]


@pytest.mark.parametrize(("given", "words"), [
    ({"rtol": 1e-9, "atol": 1e-9, "max_steps": 2}, "raise max_steps"),
    ({"solver": "euler", "step_size": 1.0, "learning_rate": 10.0, "weight_decay": 1.0, "batch_size": 32, "epochs": 4},
     "learning rate"),  # every step multiplies the parameters by -9
])
def test_failed_run_shows_reason_and_advice(given: dict, words: str, page: Page, services: Services) -> None:
    settings = {**QUICK, "device": "cpu", **given}
    run = services.launcher.start(experiments.get("mnist").configure("ace", **settings))
    assert services.launcher.wait(120)
    assert run.status()["state"] == "failed"
    app = no_exception(page("mnist", runs=run.id))
    assert words in app.error[0].value.replace("\\", "")
    app.button(key=f"Resume/{run.id}").click().run()
    no_exception(app)
    assert services.launcher.wait(120)


def test_out_of_memory_is_explained(page: Page, run_folder: RunFolder) -> None:
    run = run_folder.failed("out of memory: use a smaller batch_size, gradient=checkpointed, or another device")
    app = no_exception(page("mnist", runs=run.id))
    assert "smaller batch" in app.error[0].value


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "dancing"}', '{"state": "finished", "process": {}}'])
def test_files_that_change_while_a_page_is_open(name: str, text: str, page: Page, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    app = page(name, runs=run.id)
    (run.path / "status.json").write_text(text)
    no_exception(app.run())
    (run.path / "config.json").write_text(text)
    no_exception(app.run())
    (run.path / "result.json").write_text(text)
    no_exception(app.run())


@pytest.mark.parametrize("name", PAGES)
def test_run_deleted_while_its_page_is_open(name: str, page: Page, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    app = page(name, runs=run.id)
    shutil.rmtree(run.path)
    no_exception(app.run())


@pytest.mark.parametrize("name", ["", "mnist", "compare", "runs"])
def test_five_hundred_runs(name: str, page: Page, services: Services) -> None:
    finished_runs(services.store.root, 500)
    app = no_exception(page(name))
    if name == "runs":
        assert len(app.dataframe[0].value) == 500


def test_stop_pressed_in_two_sessions(page: Page, services: Services) -> None:
    first = page("mnist")
    first.button(key="train").click().run()
    (entry,) = services.catalogue.entries()
    second = page("mnist", runs=entry.id)
    first.button(key=f"Stop/{entry.id}").click().run()
    assert services.launcher.wait(60)
    second.button(key=f"Stop/{entry.id}").click().run()  # its page still shows the button
    no_exception(first)
    no_exception(second)
    assert entry.run.status()["state"] == "stopped"


@pytest.mark.parametrize("name", ["runs", "mnist"])
def test_a_changed_digit_of_the_curves_is_told(name: str, page: Page, run_folder: RunFolder,
                                               caplog: pytest.LogCaptureFixture) -> None:
    run = run_folder.finished()[0]
    assert not any("metrics" in w.value for w in no_exception(page(name, runs=run.id)).warning)
    metrics = run.path / "metrics.jsonl"
    content = metrics.read_bytes()
    at = content.index(b'"L_h": ') + 7
    metrics.write_bytes(content[:at] + (b"8" if content[at:at + 1] != b"8" else b"7") + content[at + 1:])
    for _ in range(2):
        app = no_exception(page(name, runs=run.id))
        (warning,) = (w.value for w in app.warning if "metrics" in w.value)
        assert "line 1 was changed after training wrote it" in warning
    assert sum("line 1 was changed" in record.message for record in caplog.records) == 1  # not at every look


def test_error_text_is_never_interpreted_as_markup(page: Page, run_folder: RunFolder) -> None:
    run = run_folder.failed("<img src=x onerror=alert(1)> ![i](http://nowhere)")
    app = no_exception(page("mnist", runs=run.id))
    assert "![i](" not in app.error[0].value
    no_exception(page("runs", runs=run.id))
    assert "![i](" not in page_text(page("runs", runs=run.id))


@pytest.mark.parametrize("name", ["", "runs", "compare", "mnist", "tour"])
def test_a_folder_that_cannot_be_read_is_not_an_empty_one(name: str, page: Page, run_folder: RunFolder,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder.finished()
    real = os.scandir

    def denied(path: os.PathLike = Path()) -> object:  # type: ignore[type-arg]
        if Path(path) == run_folder.services.store.root:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", denied)
    app = no_exception(page(name))
    assert "cannot be read (Permission denied): change its permissions" in app.error[0].value.replace("\\", "")
    assert not any("No runs" in info.value for info in app.info)
    assert bool(app.title) == (name == "tour")
