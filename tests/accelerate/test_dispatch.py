"""The backend of a run: which implementations it allows, and that each choice is reported once."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from irregular_batches import filled
from sporadic_batches import STEP, D, H, several

from acenode import experiments
from acenode.accelerate.gru_ode_bayes import compiled
from acenode.accelerate.triton_support import kernels_available
from acenode.backend import ACCELERATED, COMPILED_C, PLAIN, TORCH_OPERATIONS, Backend
from acenode.data.points import Points, pad
from acenode.data.schedule import SporadicBatch
from acenode.execution import execute
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.runs.store import RunStore


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("switch", ["0", None])
def test_a_run_passes_its_backend_to_its_task(engine: str, switch: str | None, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Backend] = []

    def train_on(device: torch.device, backend: Backend, *_: Any) -> tuple[dict[str, float] | None, float]:
        found.append(backend)
        return None, 0.0

    monkeypatch.setattr(execute, "_train_on", train_on)
    monkeypatch.delenv("ACENODE_NATIVE", raising=False)
    if switch is not None:
        monkeypatch.setenv("ACENODE_NATIVE", switch)
    config = experiments.get("ushcn").configure("ace", device="cpu", engine=engine)
    assert execute.execute(execute.create(RunStore(tmp_path), config), tmp_path).state == "stopped"
    assert [(b.accelerated, b.compile_c) for b in found] == [(engine == "auto", switch is None)]


def test_without_compiled_c_series_are_integrated_by_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACENODE_NATIVE", "0")
    config = experiments.get("ushcn").configure("gru-ode-bayes", device="cpu", epochs=1, batch_size=400, latent=4,
                                                  step_size=1.0, snapshots=2)
    run = execute.create(RunStore(tmp_path), config)
    assert execute.execute(run, tmp_path).state == "finished"
    assert run.description()["series_by"] == TORCH_OPERATIONS


def test_the_implementation_in_use_is_reported_once() -> None:
    plain, minimal = (lambda backend, minimal=minimal: GRUODEBayes(D, H, 4, 2, step=STEP, minimal=minimal,
                                                                   backend=backend) for minimal in (False, True))
    seen = Points(*(v.float() if v.is_floating_point() else v for v in vars(pad(several())).values()))
    fastest = COMPILED_C if compiled.available(ACCELERATED) else TORCH_OPERATIONS
    for make, accelerated, expected in ((plain, True, fastest), (plain, False, TORCH_OPERATIONS),
                                        (minimal, True, TORCH_OPERATIONS)):
        lines, names = list[str](), list[str]()
        model = filled(make(Backend(accelerated, log=lines.append, on_series_by=names.append)).float())
        for _ in range(2):
            model(SporadicBatch(seen, seen, 5.0))
        assert lines == [f"series are integrated by {expected}"]
        assert names == [expected]


def test_the_backend_is_not_in_the_state_dict_and_not_copied() -> None:
    backend = Backend(log=print)
    model = GRUODEBayes(D, H, 4, 2, step=STEP, backend=backend)
    assert not any("backend" in key for key in model.state_dict())
    assert copy.deepcopy(model).backend is backend


@pytest.mark.cuda
def test_a_plain_backend_allows_no_kernels() -> None:
    assert not kernels_available(PLAIN, torch.device("cuda"))
