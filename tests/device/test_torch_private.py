"""Without one of torch's private functions, training is slower and one warning is logged, but runs finish."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from eager_recorder import train
from problems import relative

from acenode import experiments
from acenode.accelerate import convolution
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


def test_training_works_without_private_foreach_functions(monkeypatch: pytest.MonkeyPatch,
                                                          caplog: pytest.LogCaptureFixture) -> None:
    expected = train(True)[0].task.model.state_dict()
    assert not caplog.records
    monkeypatch.delattr(torch, "_foreach_zero_")
    monkeypatch.delattr(torch, "_foreach_add_")
    with caplog.at_level(logging.WARNING):
        found = train(True)[0].task.model.state_dict()
    for name, tensor in expected.items():
        assert relative(found[name], tensor) < 1e-6, name
    assert sorted(record.args[1] for record in caplog.records) == ["torch._foreach_add_", "torch._foreach_zero_"]  # type: ignore[index]


@pytest.mark.parametrize(("gradient", "function"), [
    (torch_private.sigmoid_gradient, torch.sigmoid), (torch_private.tanh_gradient, torch.tanh),
    (torch_private.relu_gradient, torch.relu)])
def test_pointwise_gradients_work_without_their_operators(
        gradient: Callable[..., torch.Tensor], function: Callable[[torch.Tensor], torch.Tensor],
        monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    grad, y = torch.arange(9.0, dtype=torch.float64), function(x)
    (expected,) = torch.autograd.grad(y, x, grad)
    assert torch.equal(gradient(grad, y.detach(), out=torch.empty_like(grad)), expected)
    monkeypatch.setattr(torch_private, "torch", SimpleNamespace(ops=SimpleNamespace(aten=SimpleNamespace()),
                                                                __version__="without"))
    assert torch.allclose(gradient(grad, y.detach(), out=torch.empty_like(grad)), expected, atol=1e-15)


def test_writing_to_a_tensor_is_counted_where_torch_counts(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.zeros(2)
    before = torch_private.times_written(x)
    x.copy_(x.clone())
    assert torch_private.times_written(x) == before + 1
    assert not caplog.records
    assert torch_private.times_written(SimpleNamespace()) == 0  # type: ignore[arg-type]
    assert "torch.Tensor._version" in caplog.text


def missing(*args: object) -> None:
    raise AttributeError("'_OpNamespace' 'aten' object has no attribute 'convolution_backward'")


def of_other_arguments(*args: object) -> None:
    torch.ops.aten.convolution_backward.default(*args, None)


def with_fewer_arguments(grad: torch.Tensor) -> None:
    raise AssertionError("called with more arguments than it takes")


@pytest.mark.parametrize("operator", [missing, of_other_arguments, with_fewer_arguments])
def test_training_works_without_the_gradient_of_convolutions(operator: Callable[..., None],
                                                             monkeypatch: pytest.MonkeyPatch,
                                                             caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(convolution, "flipped", lambda x: False)
    expected = train(False, iterations=1)[0].task.model.state_dict()
    assert not caplog.records
    operators = SimpleNamespace(convolution_backward=operator)
    monkeypatch.setattr(torch_private, "torch", SimpleNamespace(
        ops=SimpleNamespace(aten=operators), __version__=torch.__version__))
    with caplog.at_level(logging.WARNING):
        found = train(False, iterations=1)[0].task.model.state_dict()
    for name, tensor in expected.items():
        assert relative(found[name], tensor) < 1e-5, name
    (record,) = [r for r in caplog.records if "convolution_backward" in r.getMessage()]
    assert record.args[1] == "torch.ops.aten.convolution_backward"  # type: ignore[index]


def test_a_run_logs_what_torch_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "flipped", lambda x: False)
    monkeypatch.setattr(torch.ops.aten, "convolution_backward", missing)
    config = experiments.get("mnist").configure("resnet", device="cpu", epochs=1, batch_size=512, analysis=False)
    run = execute.create(RunStore(tmp_path), config)
    assert execute.execute(run, tmp_path).state == "finished"
    lines = [line for line in (run.path / "log.txt").read_text().splitlines() if "convolution_backward" in line]
    assert len(lines) == 1
    assert lines[0].endswith("gradients are computed as forward convolutions")
    assert not logging.getLogger("acenode").handlers


def test_other_errors_of_the_gradient_of_convolutions_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch.ops.aten, "convolution_backward", fail)
    x = torch.zeros(1, 1, 3, 3)
    with pytest.raises(RuntimeError, match="out of memory"):
        torch_private.convolution_gradients(x, x, x, True, True)


@pytest.mark.parametrize(("name", "call"), [
    ("_cuda_clearCublasWorkspaces", torch_private.free_cublas_workspaces),
    ("_cuda_endAllocateToPool", lambda: torch_private.end_allocation_to_pool(0, (0, 1))),
    ("_cuda_releasePool", lambda: torch_private.release_pool(0, (0, 1)))])
@pytest.mark.parametrize("changed", [False, True])
def test_memory_is_not_freed_without_the_private_function(name: str, call: object, changed: bool,
                                                          monkeypatch: pytest.MonkeyPatch,
                                                          caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delattr(torch._C, name, raising=False)
    if changed:
        monkeypatch.setattr(torch._C, name, lambda first, second, third: None, raising=False)
    for _ in range(2):
        call()  # type: ignore[operator]
    assert [record.args[1] for record in caplog.records] == [f"torch._C.{name}"]  # type: ignore[index]


def test_the_recompile_limit_is_optional(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import torch._dynamo

    with torch_private.recompile_limit(64):
        assert torch._dynamo.config.recompile_limit == 64
    assert not caplog.records
    monkeypatch.setattr(torch, "_dynamo", SimpleNamespace())
    with torch_private.recompile_limit(64):
        pass
    assert len(caplog.records) == 1
