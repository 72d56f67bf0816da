"""Solutions, models and runs on a GPU equal those on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from problems import Linear, relative

from acenode import Solver, experiments, solve
from acenode.execution.execute import create, execute
from acenode.models.image import ImageShape, ace_ode_net
from acenode.models.layers import initialise
from acenode.runs.store import RunStore
from acenode.runs.writer import load_checkpoint

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("gradient", ["backprop", "checkpointed", "adjoint"])
def test_solution_and_gradient_equal_those_of_the_cpu(gradient: str) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        generator = torch.Generator().manual_seed(0)
        field = Linear(3, generator).to(device)
        h0 = torch.randn(4, 3, generator=generator, dtype=torch.float64).to(device).requires_grad_()
        solution = solve(field, (h0, torch.zeros_like(h0)), [0.0, 0.3, 1.0], Solver(rtol=1e-8, atol=1e-8,
                                                                                    gradient=gradient))  # type: ignore[arg-type]
        solution.states[0].sin().sum().backward()
        found[device] = solution.states[0].detach().cpu(), field.M.grad.cpu(), solution.evaluations.forward  # type: ignore[union-attr]
    assert relative(found["cuda"][0], found["cpu"][0]) < 1e-9
    assert relative(found["cuda"][1], found["cpu"][1]) < 1e-7
    assert found["cuda"][2] == found["cpu"][2]


def test_image_model_equals_the_cpu() -> None:
    torch.backends.cudnn.allow_tf32 = False
    shape = ImageShape(1, 28, 10, 64, 0)
    x = torch.rand(8, 1, 28, 28, generator=torch.Generator().manual_seed(0)).double()
    outputs, gradients = [], []
    for device in ("cpu", "cuda"):
        model = ace_ode_net(shape, Solver(rtol=1e-6, atol=1e-6), f_layers=1, q_layers=2)
        initialise(model, 0)
        model.double().to(device)
        logits = model(x.to(device))
        logits.square().sum().backward()
        outputs.append(logits.detach().cpu())
        gradients.append(model.ode.g.convs[0].weight.grad.cpu())
    assert relative(outputs[1], outputs[0]) < 1e-8
    assert relative(gradients[1], gradients[0]) < 1e-6


@pytest.mark.parametrize(("experiment", "method"), [
    *(("mnist", method) for method in ("resnet", "rknet", "odenet", "augmented", "ace")), ("physionet", "ace"),
    ("physionet-vitals", "augmented"), ("activity", "latent-ode"), ("activity", "gru-d")])
def test_every_method_trains(experiment: str, method: str, tmp_path: Path) -> None:
    given = {"analysis": False, "batch_size": 256} if experiment == "mnist" else {}
    config = experiments.get(experiment).configure(method, device="cuda", epochs=1, **given)
    outcome = execute(create(RunStore(tmp_path), config), tmp_path)
    assert outcome.state == "finished", outcome.error
    assert "no analysis" not in (outcome.run.path / "log.txt").read_text()


@pytest.mark.parametrize(("experiment", "method", "settings"), [
    ("mnist", "ace", {"analysis": False}), ("mnist", "ace", {"analysis": False, "engine": "reference"}),
    ("mnist", "resnet", {"analysis": False}), ("physionet", "ace", {}), ("ushcn", "ace", {})])
def test_the_same_seed_gives_the_same_parameters(experiment: str, method: str, settings: dict[str, Any],
                                                 tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run, starting from torch's default settings."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    config = experiments.get(experiment).configure(method, device="cuda", epochs=2, **settings)
    last = []
    for _ in range(2):
        outcome = execute(create(RunStore(tmp_path), config), tmp_path)
        assert outcome.state == "finished", outcome.error
        saved = load_checkpoint(outcome.run.path / "checkpoints" / "last.pt", torch.device("cuda"))
        last.append(saved["trainer"]["model"])
    for name, tensor in last[0].items():
        assert torch.equal(last[1][name], tensor), name


def test_out_of_memory_fails_the_run_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.experiments.image_task import ImageTask

    def greedy(self: ImageTask, batch: object) -> None:
        torch.empty(1 << 48, device="cuda")

    monkeypatch.setattr(ImageTask, "encode", greedy)
    config = experiments.get("mnist").configure("ace", device="cuda", epochs=1, analysis=False)
    outcome = execute(create(RunStore(tmp_path), config), tmp_path)
    assert outcome.state == "failed"
    assert outcome.error is not None
    assert "smaller batch_size" in outcome.error


@pytest.mark.parametrize(("experiment", "method"), [
    ("physionet", "ace"), ("physionet", "gru-d"), ("activity", "ode-rnn"), ("physionet-vitals", "latent-poisson"),
    ("physionet", "rnn-vae")])
def test_a_series_loss_and_its_gradient_equal_those_of_the_cpu(experiment: str, method: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        entry = experiments.get(experiment)
        task = entry.make(entry.configure(method, device=device, batch_size=16), Path(), torch.device(device))
        loss = task.loss(task.batch(0, 0), detach_attention=False).task
        loss.backward()
        gradients = torch.cat([p.grad.flatten().cpu() for p in task.model.parameters() if p.grad is not None])
        found.append((loss.detach().cpu(), gradients))
    assert relative(found[1][0], found[0][0]) < 1e-4
    assert relative(found[1][1], found[0][1]) < 1e-2

