"""Which implementations a run may use and does use.

With `engine=reference` only the dispatcher of `acenode.accelerate` is imported. Each kind of kernel is tried once per
process; a failure is reported to every run.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from irregular_batches import filled
from named_models import batch_of, build
from sporadic_batches import STEP, D, H, evolving, several
from torch import Tensor

from acenode import experiments
from acenode.accelerate import dispatch, named_midpoint, triton_support
from acenode.accelerate.gru_ode_bayes import compiled
from acenode.backend import ACCELERATED, COMPILED_C, PLAIN, TORCH_OPERATIONS, Backend
from acenode.data.points import Points, pad
from acenode.data.schedule import SporadicBatch
from acenode.errors import SolveError
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


def sporadic(backend: Backend, dtype: torch.dtype, **given: Any) -> list[Tensor]:
    """Return predictions of GRU-ODE-Bayes."""
    attention = evolving(g=given.pop("g")) if "g" in given else None
    model = filled(GRUODEBayes(D, H, 4, 2, step=STEP, attention=attention, backend=backend, **given)).to(dtype)
    seen = Points(*(v.to(dtype) if v.is_floating_point() else v for v in vars(pad(several())).values()))
    return [model(SporadicBatch(seen, seen, 5.0)).mean for _ in range(2)]


def named(backend: Backend, dtype: torch.dtype, **given: Any) -> list[Tensor]:
    """Return predictions of named variables."""
    return [build(**given, dtype=dtype, backend=backend)(batch_of(dtype=dtype)).x]


@pytest.mark.parametrize(("predict", "given", "dtype"), [
    (sporadic, {}, torch.float32), (sporadic, {"g": "rows"}, torch.float32), (sporadic, {}, torch.float64),
    (sporadic, {"minimal": True}, torch.float32), (sporadic, {"g": "matrix"}, torch.float32),
    (named, {}, torch.float32), (named, {}, torch.float64), (named, {"solver": "rk4"}, torch.float32),
    (named, {"method": "mixed"}, torch.float32),
    (named, {"gradient": "adjoint", "attention": "none"}, torch.float32)])
@pytest.mark.parametrize("why", ["", "no compiler", "no C allowed", "reference"])
def test_the_implementation_in_use_is_reported_once_and_otherwise_the_plain_one_is_used(
        predict: Any, given: dict[str, Any], dtype: torch.dtype, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, names = list[str](), list[str]()
    if why == "no compiler":
        for kernel in (compiled.KERNEL, named_midpoint.KERNEL):
            monkeypatch.setattr(kernel, "load", lambda: None)
    by_c = (not why and dtype == torch.float32 and (not given or given == {"g": "rows"})
            and compiled.KERNEL.allowed(ACCELERATED))
    backend = Backend(why != "reference", why != "no C allowed", log=lines.append, on_series_by=names.append)
    found, plain = predict(backend, dtype, **given), predict(PLAIN, dtype, **given)
    expected = [COMPILED_C] if by_c else [TORCH_OPERATIONS] if predict is sporadic else []
    assert (lines, names) == ([f"series are integrated by {name}" for name in expected], expected)
    assert by_c or all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


def test_a_small_product_is_used_for_few_rows_on_arm_only(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many, W, b = torch.ones(2, 3), torch.ones(dispatch.SMALL + 1, 3), torch.ones(4, 3), torch.ones(4)
    for arm in (True, False):
        monkeypatch.setattr(dispatch, "ARM", arm)
        assert (dispatch.linear(ACCELERATED, few, W, b) is not None) == arm
        assert dispatch.linear(ACCELERATED, many, W, b) is dispatch.linear(PLAIN, few, W, b) is None


@pytest.mark.skipif(not named_midpoint.KERNEL.allowed(ACCELERATED), reason="no working C compiler")
def test_checkpointed_midpoint_steps_are_evaluated_again() -> None:
    model = build(dtype=torch.float32, backend=ACCELERATED, gradient="checkpointed")
    found = model(batch_of(dtype=torch.float32))
    found.x.sum().backward()
    assert found.evaluations.backward == found.evaluations.forward == 2 * found.evaluations.accepted + 1


def test_a_state_that_is_not_finite_is_the_same_error_with_and_without_c() -> None:
    messages = []
    for backend in (ACCELERATED, PLAIN):
        model = build(dtype=torch.float32, backend=backend)
        model.ode.f.layers[-1].bias.data.fill_(3e38)
        with pytest.raises(SolveError) as caught:
            model(batch_of(dtype=torch.float32))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["node-vae-mask", "seq-vae", "gru-d", "t-lstm", "gru-ode-bayes", "augmented", "ace"])
def test_every_forecasting_method_trains_on_a_gpu(method: str, tmp_path: Path) -> None:
    config = experiments.get("ushcn").configure(method, device="cuda", epochs=1, batch_size=400)
    outcome = execute.execute(execute.create(RunStore(tmp_path), config), tmp_path)
    assert outcome.state == "finished", outcome.error
    assert outcome.metrics["mse"] > 0


def test_the_backend_is_not_in_the_state_dict_and_not_copied() -> None:
    backend = Backend(log=print)
    model = GRUODEBayes(D, H, 4, 2, step=STEP, backend=backend)
    assert not any("backend" in key for key in model.state_dict())
    assert copy.deepcopy(model).backend is backend


@pytest.mark.cuda
def test_a_plain_backend_allows_no_kernels() -> None:
    assert not triton_support.kernels_available(PLAIN, torch.device("cuda"))


@pytest.mark.parametrize("error", [None, ValueError("no such instruction\nsm_20")])
def test_kernels_are_tried_once_and_a_failure_is_reported_to_every_run(error: Exception | None,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by threads that ask at the same time."""
    monkeypatch.setattr(triton_support, "_failures", {})
    attempts, answers, ready = list[int](), list[bool](), threading.Barrier(4)

    def attempt() -> None:
        attempts.append(1)
        time.sleep(0.05)
        if error is not None:
            raise error

    def ask(lines: list[str]) -> None:
        ready.wait()
        backend = Backend(log=lines.append)
        answers.extend(triton_support.kernel_works(backend, "kind", attempt) for _ in range(3))

    logs: list[list[str]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=ask, args=(lines,)) for lines in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (attempts, answers) == ([1], [error is None] * 12)
    said = [] if error is None else ["GPU kernels do not run here: ValueError: no such instruction"]
    assert logs == [said] * 4
    assert triton_support.kernel_works(ACCELERATED, "another", lambda: None)


@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")], ids=str)
def test_running_out_of_memory_does_not_disable_kernels(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_support, "_failures", {})

    def attempt() -> None:
        raise error

    with pytest.raises(type(error)):
        triton_support.kernel_works(ACCELERATED, "kind", attempt)
    assert triton_support.kernel_works(ACCELERATED, "kind", lambda: None)


SCRIPT = """
import sys
from importlib.abc import MetaPathFinder


class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("acenode.accelerate.") and name != "acenode.accelerate.dispatch":
            raise ImportError(f"{name} is an accelerated implementation")


sys.meta_path.insert(0, Refuse())

from pathlib import Path

import torch

from acenode import experiments
from acenode.execution import execute
from acenode.execution.engine_choice import choose_engine
from acenode.execution.environment import run_context
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

device = torch.device("cpu")
for experiment in sys.argv[1:]:
    print(experiment, file=sys.stderr)
    entry = experiments.get(experiment)
    config = entry.configure("ace", device="cpu", engine="reference", batch_size=8)
    with run_context(device, "reference") as backend:
        task = entry.make(config, Path(), device, backend)
        chosen = choose_engine(task, device, "reference", backend)
        trainer = Trainer(task, task.recipe(), SilentListener(), chosen.engine)
        task.model.train()
        before = [p.clone() for p in task.model.parameters()]
        trainer.train_batch()
        assert any(not torch.equal(p, q) for p, q in zip(task.model.parameters(), before))
        task.evaluate("validation")
        task.snapshot()
assert not [m for m in sys.modules if m.startswith("acenode.accelerate.") and m != "acenode.accelerate.dispatch"]
"""


def test_training_and_evaluation_import_no_accelerated_implementation() -> None:
    """Train one step, evaluate and take a snapshot of ACE, with one experiment of each family of models."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, "mnist", "physionet", "ushcn"], capture_output=True, text=True,
                          check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
