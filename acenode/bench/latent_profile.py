"""`acenode bench latent --device cuda`: where the time of a training batch goes on a GPU, part by part.

A part is timed alone, the device idle before and after it; a whole batch is what the trainer does, batch after batch.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch

from acenode.bench.latent_workload import latent_task
from acenode.execution.environment import describe, device_of
from acenode.experiments.series_task import SeriesTask
from acenode.models.latent.model import draw
from acenode.training.passes import gradient_norm
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

METHODS = ("latent-ode", "ace")
WARM = 3


def run(options: Namespace) -> int:
    device_of("cuda")
    result = {name: measure(name, options.repeats) for name in METHODS}
    print(json.dumps({"device": describe(torch.device("cuda")), **result}) if options.json else render(result))
    return 0


class _Clock:
    """Seconds of each part, between two waits for the device."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def __call__(self, name: str, part: Callable[[], Any]) -> Any:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        found = part()
        torch.cuda.synchronize()
        self.seconds.setdefault(name, []).append(time.perf_counter() - begun)
        return found

    def medians(self) -> dict[str, float]:
        return {name: statistics.median(s[WARM:] or s) for name, s in self.seconds.items()}


def parts(made: SeriesTask, trainer: Trainer, clock: _Clock) -> None:
    """One batch of phase one; the gradient reaches the encoder's output first, then passes through the encoder."""
    model: Any = made.model
    trainer.main_optimiser.zero_grad()
    batch = clock("assembly and transfer", lambda: made.batch(0, 0))
    posterior = clock("encoder forward", lambda: model.encode(batch))
    mean, deviation = (x.detach().requires_grad_() for x in posterior)
    z0 = draw(mean, deviation, batch.noise)
    times = batch.target.t.expand(len(z0), -1, -1).flatten(0, 1)
    answers = clock("decoder forward", lambda: model.ode.at(z0.flatten(0, 1), times, batch.span))
    model.encode, model.ode.at = lambda *_: (mean, deviation), lambda *_, **__: answers  # what is known by now
    loss = clock("heads and loss", lambda: made.loss(batch, detach_attention=False))
    del model.encode, model.ode.at
    clock("decoder and heads backward", loss.task.backward)
    clock("encoder backward", lambda: torch.autograd.backward(posterior, [mean.grad, deviation.grad]))
    clock("optimiser", trainer.main_optimiser.step)
    clock("gradient norm", lambda: gradient_norm(trainer.phase_one.trained))


def synchronisations(trainer: Trainer) -> int:
    """How often a batch makes the host wait for the device."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        trainer.train_batch()
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(w.message) for w in said)


def measure(method: str, repeats: int) -> dict[str, Any]:
    made = latent_task(method, "cuda")
    made.model.train()
    trainer, clock = Trainer(made, made.recipe(), SilentListener()), _Clock()
    begun = time.perf_counter()
    trainer.train_batch()
    torch.cuda.synchronize()
    first = time.perf_counter() - begun
    for _ in range(WARM + repeats):
        parts(made, trainer, clock)
    record: dict[str, Any] = {}
    for _ in range(WARM + repeats):
        record = clock("whole batch", trainer.train_batch)
    waits = synchronisations(trainer)

    def several() -> None:
        for _ in range(5):
            trainer.train_batch()

    for _ in range(max(1, repeats // 3)):
        clock("five batches", several)
    seconds = clock.medians()
    return {"seconds": seconds, "first_batch": first, "synchronisations": waits, "steps": record["steps"],
            "evaluations": record["nfe_forward"], "loss": float(record["L_h"])}


def render(result: dict[str, Any]) -> str:
    lines = []
    for method, found in result.items():
        lines += [f"{method}: {found['steps']} steps, {found['evaluations']} evaluations, {found['synchronisations']} "
                  f"waits, loss {found['loss']:.6g}, first batch {found['first_batch']:.2f} s"]
        lines += [f"  {name:<28}{1000 * s:>9.2f} ms" for name, s in found["seconds"].items()]
    return "\n".join(lines)
