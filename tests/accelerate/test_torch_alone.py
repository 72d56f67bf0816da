"""`engine=reference` is torch alone: no kernels of our own in the thread that trains, and no other thread minds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from series_problems import filled
from sporadic_problems import STEP, D, H, several

from acenode import experiments
from acenode.accelerate.encoder import cuda as scan_cuda
from acenode.accelerate.gru_ode_bayes import compiled as jump_native
from acenode.accelerate.told import COMPILED, OPERATIONS, telling
from acenode.accelerate.torch_alone import kernels_wanted, torch_alone
from acenode.data.points import Points, pad
from acenode.data.sporadic import SporadicBatch
from acenode.execution import execute
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.runs.store import RunStore


def test_kernels_are_left_out_in_this_thread_and_for_as_long() -> None:
    with ThreadPoolExecutor(1) as other, torch_alone():
        with torch_alone(False):
            assert not kernels_wanted()
        assert other.submit(kernels_wanted).result()
    assert kernels_wanted()
    with pytest.raises(KeyError), torch_alone():
        raise KeyError
    assert kernels_wanted()


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_a_reference_run_is_trained_so(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(execute, "_train_on", lambda *_: seen.append(kernels_wanted()) or ({}, 0.0))
    config = experiments.get("ushcn").configure("ace", device="cpu", engine=engine)
    assert execute.execute(execute.create(RunStore(tmp_path), config), tmp_path).state == "stopped"
    assert seen == [engine == "auto"]
    assert kernels_wanted()


def test_what_took_the_series_is_told_once() -> None:
    told: list[str] = []
    plain, minimal = (GRUODEBayes(D, H, 4, 2, step=STEP, minimal=minimal) for minimal in (False, True))
    seen = Points(*(v.float() if v.is_floating_point() else v for v in vars(pad(several())).values()))
    by = COMPILED if jump_native.available() else OPERATIONS
    for model, alone, expected in ((plain, False, by), (plain, True, OPERATIONS), (minimal, False, OPERATIONS)):
        filled(model.float())
        with torch_alone(alone), telling(told.append):
            for _ in range(2):
                model(SporadicBatch(seen, seen, 5.0))
        assert told == [f"series are taken through their times by {expected}"]
        told.clear()
    plain(SporadicBatch(seen, seen, 5.0))
    assert not told


@pytest.mark.cuda
def test_no_device_is_ready_for_kernels_then() -> None:
    was = scan_cuda.ready(torch.cuda.current_device())
    with torch_alone():
        assert not scan_cuda.ready(torch.cuda.current_device())
    assert scan_cuda.ready(torch.cuda.current_device()) == was
