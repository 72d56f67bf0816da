"""Without one of torch's private functions, training is slower and one warning is logged, but runs finish."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from eager_recorder import train
from problems import relative

from acenode import experiments
from acenode.accelerate import layers as convolution
from acenode.device import torch_private
from acenode.execution import execute
from acenode.runs.store import RunStore

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(r"torch(?:\.\w+)*\._[a-z]|torch\._[A-Z]|torch\.ops\.aten|from torch(?:\.\w+)* import _|"
                     r"getattr\(torch[\w.]*, f?\"_")


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "_reported", set())
    monkeypatch.setattr(convolution, "flipped", lambda x: False)


def test_private_functions_of_torch_are_called_in_one_module_only() -> None:
    found = [str(path.relative_to(ROOT)) for folder in ("acenode", "app", "pages")
             for path in (ROOT / folder).rglob("*.py") if PRIVATE.search(path.read_text())]
    assert found == ["acenode/device/torch_private.py"]


def missing(*args: object) -> None:
    raise AttributeError("'_OpNamespace' 'aten' object has no attribute 'convolution_backward'")


def of_other_arguments(*args: object) -> None:
    torch.ops.aten.convolution_backward.default(*args, None)


def fewer(grad: torch.Tensor) -> None:
    raise AssertionError("called with more arguments than it takes")


@pytest.mark.parametrize("operator", [None, missing, of_other_arguments, fewer])
def test_training_works_without_a_private_function(operator: Any, monkeypatch: pytest.MonkeyPatch,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    """Without functions of lists, or with another operator for the gradient of convolutions."""
    expected = train(True, 1)[0].task.model.state_dict()
    assert not caplog.records
    if operator is None:
        monkeypatch.delattr(torch, "_foreach_zero_")
        monkeypatch.delattr(torch, "_foreach_add_")
    else:
        stand_in = SimpleNamespace(**{name: getattr(torch, name) for name in (
            "__version__", "_C", "_foreach_zero_", "_foreach_add_")},
            ops=SimpleNamespace(aten=SimpleNamespace(convolution_backward=operator)))
        monkeypatch.setattr(torch_private, "torch", stand_in)
    with caplog.at_level(logging.WARNING):
        found = train(True, 1)[0].task.model.state_dict()
    for name, tensor in expected.items():
        assert relative(found[name], tensor) < 1e-5, name
    names = sorted(record.args[1] for record in caplog.records)  # type: ignore[index]
    assert names == (["torch.ops.aten.convolution_backward"] if operator is not None else
                     ["torch._foreach_add_", "torch._foreach_zero_"])


def test_a_run_logs_what_torch_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.aten, "convolution_backward", missing)
    config = experiments.get("mnist").configure("resnet", device="cpu", epochs=1, batch_size=512, analysis=False)
    run = execute.create(RunStore(tmp_path), config)
    assert execute.execute(run, tmp_path).state == "finished"
    (line,) = [line for line in (run.path / "log.txt").read_text().splitlines() if "convolution_backward" in line]
    assert line.endswith("gradients are computed as forward convolutions")


def test_other_errors_of_the_gradient_of_convolutions_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch.ops.aten, "convolution_backward", fail)
    x = torch.zeros(1, 1, 3, 3)
    with pytest.raises(RuntimeError, match="out of memory"):
        torch_private.convolution_gradients(x, x, x, True, True)


def limit() -> None:
    with torch_private.recompile_limit(64):
        pass


@pytest.mark.parametrize(("owner", "name", "call"), [
    (torch._C, "_cuda_clearCublasWorkspaces", torch_private.free_cublas_workspaces),
    (torch._C, "_cuda_endAllocateToPool", lambda: torch_private.end_allocation_to_pool(0, (0, 1))),
    (torch._C, "_cuda_releasePool", lambda: torch_private.release_pool(0, (0, 1))),
    (torch._C, "_are_functorch_transforms_active", torch_private.transforms_active),
    (torch, "_dynamo", limit)])
@pytest.mark.parametrize("changed", [False, True])
def test_what_is_optional_is_left_out_without_its_function(owner: Any, name: str, call: Callable[[], object],
                                                           changed: bool, monkeypatch: pytest.MonkeyPatch,
                                                           caplog: pytest.LogCaptureFixture) -> None:
    if owner is torch:  # a module that torch would import again
        monkeypatch.setattr(owner, name, SimpleNamespace())
    else:
        monkeypatch.delattr(owner, name, raising=False)
    if changed:
        monkeypatch.setattr(owner, name, lambda first, second, third: None, raising=False)
    for _ in range(2):
        assert not call()
    assert len(caplog.records) == 1
    assert name in caplog.records[0].args[1]  # type: ignore[index, operator]


def test_writing_to_a_tensor_is_counted_where_torch_counts(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.zeros(2)
    before = torch_private.times_written(x)
    x.copy_(x.clone())
    assert torch_private.times_written(x) == before + 1
    assert torch_private.times_written(SimpleNamespace()) == 0  # type: ignore[arg-type]
    assert "torch.Tensor._version" in caplog.text
