"""Failed runs, damaged folders, files that change while a page is open, many runs, and the HTTP routes."""

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
from acenode_app import messages, server
from acenode_app.routes import ROUTES
from acenode_app.services import Services
from conftest import RunFolder
from quick import QUICK
from starlette.applications import Starlette
from streamlit.testing.v1 import AppTest
from test_pages import PAGES, no_exception, page_text

from acenode import experiments
from acenode.bench.synthetic_runs import finished_runs

Page = Callable[..., AppTest]


@dataclass
class Answer:
    """The response of a route."""

    status: int = 0
    kind: str = ""
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


def get(target: str) -> Answer:
    """Request one of the app's routes without a server."""
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
    with ThreadPoolExecutor(1) as other:  # the browser may already run an event loop in this thread
        other.submit(lambda: asyncio.run(Starlette(routes=ROUTES)(scope, receive, send))).result()
    return answer


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


def test_markup_is_escaped() -> None:
    assert messages.escape("<b> *x* [a](b) $1$ :red[x]") == "\\<b\\> \\*x\\* \\[a\\]\\(b\\) \\$1\\$ \\:red\\[x\\]"


def test_error_text_is_never_interpreted_as_markup(page: Page, run_folder: RunFolder) -> None:
    run = run_folder.failed("<img src=x onerror=alert(1)> ![i](http://nowhere)")
    app = no_exception(page("mnist", runs=run.id))
    assert "![i](" not in app.error[0].value
    no_exception(page("runs", runs=run.id))
    assert "![i](" not in page_text(page("runs", runs=run.id))


def test_server_listens_on_localhost_only() -> None:
    settings = server.settings()
    assert settings["server.address"] == "127.0.0.1"
    assert settings["browser.gatherUsageStats"] is False


def test_routes_answer_for_known_unknown_and_damaged_runs(services: Services, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    run_folder.foreign("torn", config_json="{", status_json="{")
    answer = get(f"/lab/live?runs={run.id}@0,gone@5,..%2F..@0,torn@0").json()["runs"]
    assert answer[run.id]["status"]["state"] == "finished"
    assert json.loads(answer[run.id]["lines"].splitlines()[0])["kind"] == "step"
    assert answer["gone"] == answer["../.."] == {"gone": True}
    assert answer["torn"]["status"]["state"] == "unreadable"
    again = get(f"/lab/live?runs={run.id}@{answer[run.id]['offset']}").json()["runs"][run.id]
    assert again["lines"] == ""
    shorter = get(f"/lab/live?runs={run.id}@{10**9}").json()["runs"][run.id]
    assert shorter["offset"] == answer[run.id]["offset"]  # the file is shorter than that: from the beginning
    assert get("/lab/film/gone").status == 404
    assert get(f"/lab/film/{run.id}").json()["epochs"]
    assert get(f"/lab/film/{run.id}/0").status == 200
    assert get(f"/lab/film/{run.id}/999").status == 404
    assert get("/lab/assets/..%2Fservices.py").status == 404
    assert get("/lab/assets/curves.js").kind.startswith("text/javascript")
    assert len(get("/lab/plotly.js").body) > 1_000_000
    assert get("/lab/active").json()["devices"] == []  # the request does not wait for torch
    assert services.launcher.device_states()
    assert get("/lab/active").json()["devices"]


def test_page_error_is_shown_in_one_line(page: Page, services: Services, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture) -> None:
    import streamlit as st

    shown: list[str] = []
    monkeypatch.setattr(st, "error", lambda text, **_: shown.append(text))
    assert server.on_script_error(ValueError("a bug")) is True
    assert "ValueError" in shown[0]
    assert "a bug" in capsys.readouterr().err

