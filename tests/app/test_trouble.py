"""Trouble: runs that fail, folders that are torn, files edited under the app's hands, five hundred runs."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pytest
from acenode_app import say, server
from acenode_app.lab import Lab
from acenode_app.routes import ROUTES
from conftest import Shelf
from quick import QUICK
from starlette.applications import Starlette
from streamlit.testing.v1 import AppTest
from test_pages import PAGES, said, sound

from acenode import experiments
from acenode.bench.folders import finished_runs

Page = Callable[..., AppTest]


@dataclass
class Answer:
    """What a route answered."""

    status: int = 0
    kind: str = ""
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


def get(target: str) -> Answer:
    """Ask the lab's routes, without a server."""
    path, _, query = target.partition("?")
    answer = Answer()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.kind = dict(message["headers"]).get(b"content-type", b"").decode()
        else:
            answer.body += message.get("body", b"")

    scope = {"type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(), "headers": [],
             "query_string": query.encode(), "root_path": "", "http_version": "1.1", "scheme": "http",
             "server": ("127.0.0.1", 80)}
    with ThreadPoolExecutor(1) as other:  # this thread may have a loop of the browser's already
        other.submit(lambda: asyncio.run(Starlette(routes=ROUTES)(scope, receive, send))).result()
    return answer


@pytest.mark.parametrize(("given", "words"), [
    ({"rtol": 1e-9, "atol": 1e-9, "max_steps": 2}, "raise max_steps"),
    ({"solver": "euler", "step_size": 1.0, "learning_rate": 10.0, "weight_decay": 1.0, "batch_size": 32, "epochs": 4},
     "learning rate"),  # every step multiplies the parameters by -9
])
def test_a_failed_run_shows_its_reason_and_advice(given: dict, words: str, page: Page, lab: Lab) -> None:
    settings = {**QUICK, "device": "cpu", **given}
    run = lab.launcher.start(experiments.get("mnist").configure("ace", **settings))
    assert lab.launcher.wait(120)
    assert run.status()["state"] == "failed"
    app = sound(page("mnist", runs=run.id))
    assert words in app.error[0].value.replace("\\", "")
    app.button(key=f"Resume/{run.id}").click().run()
    sound(app)
    assert lab.launcher.wait(120)


def test_running_out_of_memory_is_explained(page: Page, shelf: Shelf) -> None:
    run = shelf.failed("out of memory: use a smaller batch_size, gradient=checkpointed, or another device")
    app = sound(page("mnist", runs=run.id))
    assert "smaller batch" in app.error[0].value


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "dancing"}', '{"state": "finished", "process": {}}'])
def test_a_file_edited_under_its_hands(name: str, text: str, page: Page, shelf: Shelf) -> None:
    run = shelf.finished()[0]
    app = page(name, runs=run.id)
    (run.path / "status.json").write_text(text)
    sound(app.run())
    (run.path / "config.json").write_text(text)
    sound(app.run())
    (run.path / "result.json").write_text(text)
    sound(app.run())


@pytest.mark.parametrize("name", PAGES)
def test_a_run_deleted_while_it_is_open(name: str, page: Page, shelf: Shelf) -> None:
    run = shelf.finished()[0]
    app = page(name, runs=run.id)
    shutil.rmtree(run.path)
    sound(app.run())


@pytest.mark.parametrize("name", ["", "mnist", "compare", "runs"])
def test_five_hundred_runs(name: str, page: Page, lab: Lab) -> None:
    finished_runs(lab.store.root, 500)
    app = sound(page(name))
    if name == "runs":
        assert len(app.dataframe[0].value) == 500


def test_two_people_press_stop(page: Page, lab: Lab) -> None:
    first = page("mnist")
    first.button(key="train").click().run()
    (entry,) = lab.catalogue.entries()
    second = page("mnist", runs=entry.id)
    first.button(key=f"Stop/{entry.id}").click().run()
    assert lab.launcher.wait(60)
    second.button(key=f"Stop/{entry.id}").click().run()  # the button of a moment ago
    sound(first)
    sound(second)
    assert entry.run.status()["state"] == "stopped"


def test_markup_in_texts_is_shown_letter_by_letter() -> None:
    assert say.plain("<b> *x* [a](b) $1$ :red[x]") == "\\<b\\> \\*x\\* \\[a\\]\\(b\\) \\$1\\$ \\:red\\[x\\]"


def test_an_error_text_with_markup_is_no_markup(page: Page, shelf: Shelf) -> None:
    run = shelf.failed("<img src=x onerror=alert(1)> ![i](http://nowhere)")
    app = sound(page("mnist", runs=run.id))
    assert "![i](" not in app.error[0].value
    sound(page("runs", runs=run.id))
    assert "![i](" not in said(page("runs", runs=run.id))


def test_the_server_is_for_this_machine_alone() -> None:
    settings = server.settings()
    assert settings["server.address"] == "127.0.0.1"
    assert settings["browser.gatherUsageStats"] is False


def test_routes_refuse_what_is_no_run(lab: Lab, shelf: Shelf) -> None:
    run = shelf.finished()[0]
    shelf.foreign("torn", config_json="{", status_json="{")
    answer = get(f"/lab/live?runs={run.id}@0,gone@5,..%2F..@0,torn@0").json()["runs"]
    assert answer[run.id]["status"]["state"] == "finished"
    assert json.loads(answer[run.id]["lines"].splitlines()[0])["kind"] == "step"
    assert answer["gone"] == answer["../.."] == {"gone": True}
    assert answer["torn"]["status"]["state"] == "unreadable"
    again = get(f"/lab/live?runs={run.id}@{answer[run.id]['offset']}").json()["runs"][run.id]
    assert again["lines"] == ""
    shorter = get(f"/lab/live?runs={run.id}@{10**9}").json()["runs"][run.id]
    assert shorter["offset"] == answer[run.id]["offset"]  # shorter than it was: from the beginning
    assert get("/lab/film/gone").status == 404
    assert get(f"/lab/film/{run.id}").json()["epochs"]
    assert get(f"/lab/film/{run.id}/0").status == 200
    assert get(f"/lab/film/{run.id}/999").status == 404
    assert get("/lab/assets/..%2Flab.py").status == 404
    assert get("/lab/assets/curves.js").kind.startswith("text/javascript")
    assert len(get("/lab/plotly.js").body) > 1_000_000
    assert get("/lab/active").json()["devices"] == []  # a look does not wait for torch
    assert lab.launcher.read_outs()
    assert get("/lab/active").json()["devices"]


def test_a_page_that_stumbles_says_so_in_one_line(page: Page, lab: Lab, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture) -> None:
    import streamlit as st

    shown: list[str] = []
    monkeypatch.setattr(st, "error", lambda text, **_: shown.append(text))
    assert server.on_script_error(ValueError("a bug")) is True
    assert "ValueError" in shown[0]
    assert "a bug" in capsys.readouterr().err

