"""`acenode bench together`: what is trained, how it is measured, and what the table says."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from acenode import UserError, experiments
from acenode.bench import OPTIONS, mps, settle, together
from acenode.bench.together_table import render, shares


def test_runs_are_named_by_experiment_method_and_epochs() -> None:
    configs = together.configs_of("physionet/ace:1, mnist/odenet:4", 2, "sample", "cpu")
    assert [(c.experiment, c.method, c.seed, c.get("epochs"), c.device) for c in configs] == [
        ("physionet", "ace", 0, 1, "cpu"), ("physionet", "ace", 1, 1, "cpu"),
        ("mnist", "odenet", 0, 4, "cpu"), ("mnist", "odenet", 1, 4, "cpu")]
    for text, each in (("physionet", 1), ("physionet/ace", 1), ("physionet/ace:x", 1), ("physionet/ace:1", 0)):
        with pytest.raises(UserError):
            together.configs_of(text, each, "sample", "cpu")


def test_ways_are_measured_in_one_order_and_mps_needs_a_gpu() -> None:
    cpu = torch.device("cpu")
    assert together.ways_of(None, cpu) == ["processes", "one", "threads"]
    assert together.ways_of("threads,one", cpu) == ["one", "threads"]
    for text in ("fibres", "one,mps"):
        with pytest.raises(UserError):
            together.ways_of(text, cpu)


def test_an_arm_has_the_times_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "SAMPLE_SECONDS", 0.05)
    configs = [experiments.get("mnist").configure("odenet", device="cpu", epochs=1, batch_size=512, solver="euler",
                                                  step_size=1.0, analysis=False, seed=seed) for seed in range(2)]
    arm = together.measure_arm("threads", configs, "cpu", 2, tmp_path)
    assert [run.name for run in arm.runs] == ["mnist/odenet, seed 0", "mnist/odenet, seed 1"]
    for run in arm.runs:
        assert 0 < run.training < run.ended - run.began < arm.seconds
        assert run.epochs == 1
    assert arm.memory is None or arm.memory > 50e6


def test_a_run_that_fails_ends_the_benchmark(tmp_path: Path) -> None:
    stuck = experiments.get("mnist").configure("odenet", device="cpu", epochs=1, max_steps=1, rtol=1e-6, atol=1e-6)
    with pytest.raises(UserError, match="mnist/odenet failed: .*step limit"):
        together.measure_arm("one", [stuck], "cpu", 1, tmp_path)


def arm(way: str, seconds: float, training: list[float], began: list[float]) -> dict[str, Any]:
    runs = [{"name": "x", "epochs": 1, "training": t, "began": b, "ended": seconds}
            for t, b in zip(training, began, strict=True)]
    return {"way": way, "seconds": seconds, "memory": 500_000_000, "gpu_memory": None, "runs": runs}


def test_the_table_compares_with_one_after_another() -> None:
    one, other = arm("one", 20.0, [8.0, 6.0], [0.1, 10.0]), arm("processes", 12.0, [10.0, 10.0], [1.5, 2.5])
    assert shares(other, one) == [0.8, 0.6]
    result = {"environment": {"threads": 2, "device": "cpu"}, "data": "sample", "at_a_time": 2, "runs": 2,
              "train": "a/b:1", "each": 2, "mps_running": False, "arms": [other, one]}
    lines = render(result).splitlines()
    rows = [line.split() for line in lines if line.startswith(("  one", "  processes"))]
    assert rows[0][:3] == ["one", "after", "another"]  # first, although it was measured last
    assert rows[0][3:6] == ["20.0", "s", "100%"]
    assert rows[1][1:] == ["12.0", "s", "60%", "0.60", "to", "0.80", "0.75", "2.5", "s", "500", "MB", "—"]
    assert "—" in render(result | {"arms": [other]})


def test_memory_counts_child_processes() -> None:
    alone = together.process_memory()
    if alone is None:
        pytest.skip("no /proc")
    child = subprocess.Popen([sys.executable, "-c", "x = bytearray(100_000_000); print(flush=True); input()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert (together.process_memory() or 0) - alone > 90e6
    finally:
        child.kill()
        child.wait()


def test_the_service_of_cuda_is_started_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program in place of nvidia-cuda-mps-control that writes down its requests."""
    program, requests = tmp_path / mps.CONTROL, tmp_path / "requests"
    program.write_text(f'#!/bin/sh\n[ "$1" = -d ] && echo start in "$CUDA_MPS_PIPE_DIRECTORY" >> {requests} || '
                       f'{{ read line; echo "$line" >> {requests}; }}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    assert mps.is_running()
    with mps.daemon():
        folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert requests.read_text().splitlines() == ["get_server_list", f"start in {folder}", "quit"]


def test_options_have_defaults() -> None:
    options = Namespace(what="together", **dict.fromkeys(OPTIONS))
    settle(options)
    assert len(together.configs_of(options.train, options.each, options.data, "cpu")) == 2
