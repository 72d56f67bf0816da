"""Without one of torch's private functions, training is slower and one warning is logged, but runs finish."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from eager_recorder import parameters, train
from problems import relative

from acenode import experiments
from acenode.device import torch_private
from acenode.execution import execute
from acenode.runs.store import RunStore

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(r"torch(?:\.\w+)*\._[a-z]|torch\._[A-Z]|torch\.ops\.aten|from torch(?:\.\w+)* import _|"
                     r"getattr\(torch[\w.]*, f?\"_")


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "_reported", set())


def test_private_functions_of_torch_are_called_in_one_module_only() -> None:
    found = [str(path.relative_to(ROOT)) for folder in ("acenode", "app", "pages")
             for path in (ROOT / folder).rglob("*.py") if PRIVATE.search(path.read_text())]
    assert found == ["acenode/device/torch_private.py"]


def test_training_works_without_functions_of_lists(monkeypatch: pytest.MonkeyPatch,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    expected = parameters(train(True, 1)[0])
    assert not caplog.records
    for name in ("zero", "add"):
        monkeypatch.delattr(torch, f"_foreach_{name}_")
    assert relative(parameters(train(True, 1)[0]), expected) < 1e-5
    assert sorted(record.args[1] for record in caplog.records) == [  # type: ignore[index]
        "torch._foreach_add_", "torch._foreach_zero_"]


def test_a_run_logs_what_torch_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "torch", SimpleNamespace(__version__="", _C=SimpleNamespace()))
    config = experiments.get("mnist").configure("resnet", device="cpu", epochs=1, batch_size=512, analysis=False)
    run = execute.create(RunStore(tmp_path), config)
    assert execute.execute(run, tmp_path).state == "finished"
    (line,) = [line for line in (run.path / "log.txt").read_text().splitlines() if "functorch" in line]
    assert line.endswith("torch.func cannot pass through a solve")


@pytest.mark.parametrize(("name", "call"), [
    ("_cuda_clearCublasWorkspaces", torch_private.free_cublas_workspaces),
    ("_cuda_endAllocateToPool", lambda: torch_private.end_allocation_to_pool(0, (0, 1))),
    ("_cuda_releasePool", lambda: torch_private.release_pool(0, (0, 1))),
    ("_are_functorch_transforms_active", torch_private.transforms_active)])
@pytest.mark.parametrize("changed", [False, True])
def test_what_is_optional_is_left_out_without_its_function(name: str, call: Callable[[], object], changed: bool,
                                                           monkeypatch: pytest.MonkeyPatch,
                                                           caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delattr(torch._C, name, raising=False)
    if changed:
        monkeypatch.setattr(torch._C, name, lambda first, second, third: None, raising=False)
    for _ in range(2):
        assert not call()
    assert len(caplog.records) == 1
    assert name in caplog.records[0].args[1]  # type: ignore[index, operator]
