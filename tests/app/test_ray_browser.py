"""The app that trains on Ray, in a real browser: train, watch, stop; Ray ends with the app."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import config
from tabs import Tab

from acenode.bench.browser import server
from acenode.execution.execute import create
from acenode.runs.store import RunStore

pytestmark = pytest.mark.long  # a local Ray beside a browser


def test_a_run_on_ray_is_trained_watched_and_stopped(chrome: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    store = RunStore(tmp_path / "runs")
    source = create(store, config(epochs=5000, batch_size=128))
    source.set_state("stopped")
    with server(store.root, options=["--on", "ray"], OMP_NUM_THREADS="1") as served:
        tab = Tab(chrome, served).open(f"mnist?from={source.id}")
        tab.press("Train")
        for words in (r"1 of \d+ workers in use", r"Ray, \d+ CPUs? on 1 machine"):
            tab.page.get_by_text(re.compile(words)).wait_for()
        run = store.open("last")
        assert run.id != source.id
        tab.until(f"{tab.points(run.id)} > 3")
        assert _of_ray(run.id)
        tab.press("Stop")
        tab.page.get_by_role("button", name="Resume", exact=True).wait_for()
        assert run.status()["state"] == "stopped"
        assert (run.path / "checkpoints" / "last.pt").exists()
        tab.close()
    assert not _of_ray(run.id)


def _of_ray(run: str) -> list[int]:
    """Return the processes of Ray that train a run: Ray gives them the name of the task."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        found += [int(pid)] if words.startswith(b"ray::") and run.encode() in words else []
    return found
