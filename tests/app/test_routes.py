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

from acenode.execution.devices import DeviceState


def test_one_bad_run_does_not_stop_the_curves_of_others(services: Services, run_folder: RunFolder) -> None:
    good, bad, piped = run_folder.finished()[0], run_folder.failed(), run_folder.failed()
    status = json.loads((bad.path / "status.json").read_text())
    (bad.path / "status.json").write_text(json.dumps(status | {"best": float("nan"), "seconds": 10**400}))
    (piped.path / "metrics.jsonl").unlink(missing_ok=True)
    os.mkfifo(piped.path / "metrics.jsonl")
    answer = get(f"/lab/live?runs={bad.id}@0,{piped.id}@0,{good.id}@0").json()["runs"]
    assert answer[good.id]["points"]
    assert answer[bad.id]["state"] == "failed"
    assert answer[piped.id]["points"] == 0


def test_compressed_curves_that_are_cut_short_do_not_stop_those_of_others(services: Services,
                                                                        run_folder: RunFolder) -> None:
    good, torn, damaged = run_folder.finished()[0], run_folder.failed(), run_folder.failed()
    content = gzip.compress((good.path / "metrics.jsonl").read_bytes())
    for run, stored in ((torn, content[:len(content) // 2]), (damaged, content[:12] + bytes(60) + content[72:])):
        (run.path / "metrics.jsonl").unlink(missing_ok=True)
        (run.path / "metrics.jsonl.gz").write_bytes(stored)
    answer = get(f"/lab/live?runs={torn.id}@0,{damaged.id}@0,{good.id}@0").json()["runs"]
    assert answer[good.id]["points"]
    assert answer[torn.id]["points"] == answer[damaged.id]["points"] == 0
    assert torn.metrics() == damaged.metrics() == ([], 0)


def test_a_number_with_many_digits_is_no_epoch(services: Services, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    assert get(f"/lab/film/{run.id}/{'9' * 5000}").status == 404
    assert get(f"/lab/film/{run.id}/x").status == 404


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
    assert get(f"/lab/film/{run.id}/999").status == 404
    assert get("/lab/assets/x/..%2Fservices.py").status == 404
    script, outdated = (get(f"/lab/assets/{version}/curves.js") for version in (components.assets_version(), "x"))
    assert script.kind.startswith("text/javascript")
    assert "immutable" in script.cache
    assert outdated.cache == "no-store"
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
    assert services.launcher
    for attention in ("evolving", "fixed"):
        run_folder.queued(attention=attention, initial="conv")
    other = run_folder.queued(method="odenet")
    found = {run["id"]: run["name"] for run in get("/lab/active").json()["runs"]}
    name = found.pop(other.id)
    assert name.startswith("ODE-Net · batch size: 512, ")  # the only one of its method
    assert name.endswith(" · MNIST · seed 0")
    assert sorted(found.values()) == [f"ACE-ODE-Net · attention: {kind} · MNIST · seed 0"
                                      for kind in ("evolving", "fixed")]


def test_a_single_run_is_named_by_the_titles_of_its_experiment_and_method(services: Services,
                                                                          run_folder: RunFolder) -> None:
    run_folder.queued()
    (run,) = get("/lab/active").json()["runs"]
    assert (run["name"], run["device"]) == ("MNIST · ACE-ODE-Net · seed 0", "")
