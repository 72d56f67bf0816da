"""The HTTP routes that the charts read, the HTML around a page, commands, and a server with a stalled mount."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from acenode_app import components, messages, server
from acenode_app.routes import load_words
from acenode_app.services import Services
from app_routes import get
from conftest import RunFolder
from starlette.requests import Request
from test_pages import TEXTS, VALUES, damage

from acenode.bench.browser import free_port
from acenode.execution.devices import DeviceState

LINES = "acenode study run mine\nacenode study show mine\n"
SERVER = """
import os, sys, threading
stalled = sys.argv.pop(1)
def through(real):
    def call(path=".", *given, **named):
        if isinstance(path, str | os.PathLike) and stalled in os.fspath(path):
            threading.Event().wait()  # for ever
        return real(path, *given, **named)
    return call
for name in ("stat", "lstat", "open", "scandir", "listdir"):
    setattr(os, name, through(getattr(os, name)))
from acenode.runs import process as limits
limits.LIMIT = 0.5
from acenode_app.__main__ import main
sys.exit(main())
"""


def test_bad_runs_do_not_stop_the_curves_of_others(services: Services, run_folder: RunFolder) -> None:
    good = damage(run_folder)
    values, piped, torn, damaged = (run_folder.failed() for _ in range(4))
    status = json.loads((values.path / "status.json").read_text())
    (values.path / "status.json").write_text(json.dumps(status | {"best": float("nan"), "seconds": 10**400}))
    content = gzip.compress((good.path / "metrics.jsonl").read_bytes())
    for run in (piped, torn, damaged):
        (run.path / "metrics.jsonl").unlink(missing_ok=True)
    os.mkfifo(piped.path / "metrics.jsonl")
    (torn.path / "metrics.jsonl.gz").write_bytes(content[:len(content) // 2])
    (damaged.path / "metrics.jsonl.gz").write_bytes(content[:12] + bytes(60) + content[72:])
    copies = {*VALUES, *TEXTS, "pipe"}
    names = ",".join([*sorted(copies), *(f"{run.id}@0" for run in (values, piped, torn, damaged, good))])
    answer = get(f"/lab/live?runs={names}").json()["runs"]
    assert answer[good.id]["points"]
    assert answer[values.id]["state"] == "failed"
    assert [answer[run.id]["points"] for run in (piped, torn, damaged)] == [0, 0, 0]
    assert torn.metrics() == damaged.metrics() == ([], 0)
    assert {name for name in copies if answer[name]["state"] == "unreadable"} >= {"nan", "heartbeat", "cut", "pipe"}
    assert get("/lab/active").status == 200


def test_routes_answer_for_known_unknown_and_damaged_runs(services: Services, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    run_folder.foreign("torn", config_json="{", status_json="{")
    answer = get(f"/lab/live?runs={run.id}@0,gone@5,..%2F..@0,torn@0").json()["runs"]
    assert answer[run.id]["state"] == "finished"
    assert answer[run.id]["points"] == sum(record["kind"] == "step" for record in run.metrics()[0])
    assert answer["gone"]["gone"]
    assert answer["../.."]["gone"]
    assert answer["torn"]["state"] == "unreadable"
    assert get(f"/lab/live?runs={run.id}&view=7").status == 200
    assert get(f"/lab/live?runs={run.id}&view=%7B").status == 400
    assert get("/lab/film/gone").status == 404
    found = get(f"/lab/film/{run.id}").json()
    assert found["epochs"]
    assert get(f"/lab/film/{run.id}/0").status == 200
    again = get(f"/lab/film/{run.id}?known={found['version']}")
    assert (again.status, again.body) == (204, b"")  # an unchanged description is not sent again
    run.snapshots()[-1].unlink()
    changed = get(f"/lab/film/{run.id}?known={found['version']}").json()
    assert changed["epochs"] == found["epochs"][:-1]
    assert get(f"/lab/film/{run.id}?known=").status == 200
    for text in ("999", "x", "9" * 5000):
        assert get(f"/lab/film/{run.id}/{text}").status == 404
    assert get("/lab/assets/x/..%2Fservices.py").status == 404
    script, outdated = (get(f"/lab/assets/{version}/curves.js") for version in (components.assets_version(), "x"))
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in script.headers["cache-control"]
    assert outdated.headers["cache-control"] == "no-store"
    assert len(get("/lab/plotly.js").body) > 1_000_000
    assert get("/lab/active").json()["devices"] == []  # the request does not wait for torch
    assert services.launcher.device_states()
    assert get("/lab/active").json()["devices"][0]["load"].startswith("No run started in this app")


def test_an_idle_device_says_that_others_use_it() -> None:
    state = DeviceState("cpu", "CPU, 2 cores", 1, 0, None, None, 1.0)
    assert load_words(state) == "No run started in this app · 100% used by other processes"
    assert load_words(replace(state, utilisation=None)) == "No run started in this app"
    assert load_words(replace(state, running=1)) == "1 of 1 workers in use · 100% utilisation"
    assert load_words(replace(state, running=1, utilisation=None)) == "1 of 1 workers in use"


def test_running_runs_are_named_by_what_differs(services: Services, run_folder: RunFolder) -> None:
    other = run_folder.queued(method="odenet")
    (run,) = get("/lab/active").json()["runs"]
    assert (run["name"], run["device"]) == ("MNIST · ODE-Net · seed 0", "")
    assert services.launcher  # the settings are known once torch is loaded
    for attention in ("evolving", "fixed"):
        run_folder.queued(attention=attention, initial="conv")
    found = {run["id"]: run["name"] for run in get("/lab/active").json()["runs"]}
    name = found.pop(other.id)
    assert name.startswith("ODE-Net · batch size: 512, ")  # the only one of its method
    assert name.endswith(" · MNIST · seed 0")
    assert sorted(found.values()) == [f"ACE-ODE-Net · attention: {kind} · MNIST · seed 0"
                                      for kind in ("evolving", "fixed")]


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A terminal in the repository's folder that does not find the program."""
    folder = tmp_path / "my lab" / ".venv" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "my lab")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(folder))
    return folder


def test_commands_call_the_program_as_the_terminal_finds_it(scripts: Path, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert messages.commands(LINES) == LINES.replace("acenode", "/usr/bin/python3 -m acenode.cli")
    for folder, program in ((scripts, ".venv/bin/acenode"), (tmp_path, "acenode")):  # after make app; on the path
        (folder / "acenode").write_text("#!/bin/sh\n")
        (folder / "acenode").chmod(0o755)
        assert messages.commands(LINES) == LINES.replace("acenode", program)


def test_the_page_of_a_search_does_not_load_torch() -> None:
    code = "import sys, acenode_app.questions.searches; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def html_of(name: str, query: str = "") -> str:
    """Return the HTML of the page with this address."""
    scope = {"type": "http", "path_params": {"name": name}, "headers": [], "query_string": query.encode()}
    return bytes(server.index(Request(scope)).body).decode()


def test_the_charts_and_trials_of_a_search_are_fetched_before_streamlit_starts() -> None:
    html = html_of("searches", "search=many")
    head = html[:html.index("<script")]
    assert "/search_charts.js" in head
    assert 'href="./lab/search/many?since="' in head
    for name, query in (("searches", ""), ("searches", "search=%22%3E%3Cb%3E"), ("studies", "search=many")):
        other = html_of(name, query)
        assert "lab/search/" not in other
        assert "search_charts.js" not in other
        assert "<b>" not in other


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_pipes_and_a_stalled_mount_do_not_hold_up_the_server(run_folder: RunFolder, tmp_path: Path) -> None:
    good, piped, stalled = run_folder.finished()
    for place in (piped.path / "status.json", piped.path / "metrics.jsonl", piped.path / "lock",
                  run_folder.services.store.root / "pipe", run_folder.services.store.root / ".index.json"):
        place.unlink(missing_ok=True)
        os.mkfifo(place)
    shutil.move(stalled.path, stalled.path.with_name("mnist-stalled"))
    port = free_port()
    with open(tmp_path / "output", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, "mnist-stalled", "--headless", "--no-token", f"--port={port}",
             f"--runs={run_folder.services.store.root}"], stdout=output, stderr=output)
        try:
            _ask(port, "/lab/active", process, tmp_path / "output")
            for _ in range(3):
                live = _ask(port, f"/lab/live?runs={good.id},{piped.id},mnist-stalled", process, tmp_path / "output")
                states = {name: run["state"] for name, run in live["runs"].items()}
                assert states == {good.id: "finished", piped.id: "unreadable", "mnist-stalled": "unreadable"}
                assert "does not answer" in live["runs"]["mnist-stalled"]["error"]
                assert _ask(port, "/lab/film/mnist-stalled", process, tmp_path / "output")["why"]
                assert _ask(port, f"/lab/film/{good.id}", process, tmp_path / "output")["epochs"]
            for _ in range(600):
                if _ask(port, "/lab/active", process, tmp_path / "output")["devices"]:
                    break  # torch is loaded, and the recovery at the start has ended
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            process.wait(120)
        finally:
            process.kill()
    assert "Traceback" not in (tmp_path / "output").read_text()


def _ask(port: int, target: str, process: subprocess.Popen, output: Path) -> Any:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{target}", timeout=60) as answer:
                return json.load(answer)
        except OSError as error:
            if "refused" not in str(error):
                raise
        assert process.poll() is None, output.read_text()
        time.sleep(0.1)
    raise AssertionError("the server did not start")
