"""The HTTP routes that the charts read."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace

from acenode_app import components
from acenode_app.routes import load_words
from acenode_app.services import Services
from app_routes import get
from conftest import RunFolder
from test_pages import TEXTS, VALUES, damage

from acenode.execution.devices import DeviceState


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
    assert get(f"/lab/film/{run.id}").json()["epochs"]
    assert get(f"/lab/film/{run.id}/0").status == 200
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


def test_an_unchanged_description_is_not_sent_again(services: Services, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    found = get(f"/lab/film/{run.id}").json()
    again = get(f"/lab/film/{run.id}?known={found['version']}")
    assert (again.status, again.body) == (204, b"")
    run.snapshots()[-1].unlink()
    changed = get(f"/lab/film/{run.id}?known={found['version']}").json()
    assert changed["epochs"] == found["epochs"][:-1]
    assert get(f"/lab/film/{run.id}?known=").status == 200


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
