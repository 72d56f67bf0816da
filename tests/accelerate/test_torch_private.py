"""A torch without one of its private functions costs speed and one warning, never a run."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from eager_recorder import train
from problems import relative

from acenode.accelerate import torch_private

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(r"torch(?:\.\w+)*\._[a-z]|torch\._[A-Z]")


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "_reported", set())


def test_private_functions_of_torch_are_called_in_one_module_only() -> None:
    found = [str(path.relative_to(ROOT)) for folder in ("acenode", "app", "pages")
             for path in (ROOT / folder).rglob("*.py") if PRIVATE.search(path.read_text())]
    assert found == ["acenode/accelerate/torch_private.py"]


def test_training_works_without_the_private_arithmetic(monkeypatch: pytest.MonkeyPatch,
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
