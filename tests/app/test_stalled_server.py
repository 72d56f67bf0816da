"""A server whose folder of runs has pipes and a mount that has stalled: it answers, and ends when it is asked to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from conftest import RunFolder

from acenode.bench.browser import free_port

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
