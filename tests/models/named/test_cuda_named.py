"""Models of named variables on a GPU: the same numbers as on the CPU, and training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from named_models import batch_of, build

from acenode.backend import ACCELERATED, PLAIN
from acenode.experiments.named import EXAMPLES
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("task", ["forecast", "fill", "classify"])
@pytest.mark.parametrize("method", ["ace", "mixed", "no-attention"])
def test_outputs_and_gradients_are_those_of_the_cpu(method: str, task: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        model, batch = build(method, task).to(device), batch_of(task).to(torch.device(device))
        predicted = model(batch)
        out = predicted.logits if predicted.x is None else predicted.x * batch.target.m
        out.square().sum().backward()
        found.append([out.detach().cpu(), *(p.grad.cpu() for p in model.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1])
    for x, y in zip(*found, strict=True):
        torch.testing.assert_close(y, x, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["oscillators", "predator-prey", "liver"])
def test_training_follows_that_of_the_cpu(name: str) -> None:
    """Twelve iterations of Algorithm 1: losses agree up to rounding, which training amplifies."""
    losses = []
    for device, backend in (("cpu", PLAIN), ("cuda", ACCELERATED)):
        task = EXAMPLES[name].make(EXAMPLES[name].configure("ace", seed=0, device=device), Path(),
                                   torch.device(device), backend)
        task.model.train()
        trainer, found = Trainer(task, task.recipe(), SilentListener()), []
        for i in range(12):
            trainer.iteration = i % task.iterations
            record = trainer.train_batch()
            found += [float(record["L_h"]), float(record["L_a"])]
        losses.append(found)
    assert losses[1] == pytest.approx(losses[0], rel=5e-3)
