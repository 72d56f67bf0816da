"""`acenode bench latent --device cuda`: the time of the parts of one training batch on a GPU.

Each part is timed alone, with the GPU idle before and after. "whole batch" is one call of the trainer, waited for;
"five batches" are five calls in a row without waiting between them.
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
from acenode.models.latent.latent_ode import sample_z0
from acenode.training.passes import gradient_norm
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

METHODS = ("latent-ode", "ace")
WARM = 3


def run(options: Namespace) -> int:
    """Measure and print."""
    device_of("cuda")
    result = {name: measure(name, options.repeats) for name in METHODS}
    print(json.dumps({"device": describe(torch.device("cuda")), **result}) if options.json else render(result))
    return 0


class _PartTimer:
    """Time the parts of a batch, synchronising with the GPU before and after each."""

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


def time_parts(made: SeriesTask, trainer: Trainer, timer: _PartTimer) -> None:
    """Time one batch of phase one, with separate backward passes for the decoder and the encoder."""
    model: Any = made.model
    trainer.main_optimiser.zero_grad()
    batch = timer("assembly and transfer", lambda: made.batch(0, 0))
    posterior = timer("encoder forward", lambda: model.encode(batch))
    mean, deviation = (x.detach().requires_grad_() for x in posterior)
    z0 = sample_z0(mean, deviation, batch.noise)
    times = batch.target.t.expand(len(z0), -1, -1).flatten(0, 1)
    solution = timer("decoder forward", lambda: model.ode.at(z0.flatten(0, 1), times, batch.span))
    model.encode, model.ode.at = lambda *_: (mean, deviation), lambda *_, **__: solution  # reuse what was computed
    loss = timer("heads and loss", lambda: made.loss(batch, detach_attention=False))
    del model.encode, model.ode.at
    timer("decoder and heads backward", loss.task.backward)
    timer("encoder backward", lambda: torch.autograd.backward(posterior, [mean.grad, deviation.grad]))
    timer("optimiser", trainer.main_optimiser.step)
    timer("gradient norm", lambda: gradient_norm(trainer.phase_one.trained))


def synchronisations(trainer: Trainer) -> int:
    """Count how often the host waits for the GPU in one batch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        trainer.train_batch()
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(w.message) for w in caught)


def measure(method: str, repeats: int) -> dict[str, Any]:
    """Return the median time of each part and of whole batches."""
    made = latent_task(method, "cuda")
    made.model.train()
    trainer, timer = Trainer(made, made.recipe(), SilentListener()), _PartTimer()
    begun = time.perf_counter()
    trainer.train_batch()
    torch.cuda.synchronize()
    first = time.perf_counter() - begun
    for _ in range(WARM + repeats):
        time_parts(made, trainer, timer)
    record: dict[str, Any] = {}
    for _ in range(WARM + repeats):
        record = timer("whole batch", trainer.train_batch)
    waits = synchronisations(trainer)

    def several() -> None:
        for _ in range(5):
            trainer.train_batch()

    for _ in range(max(1, repeats // 3)):
        timer("five batches", several)
    seconds = timer.medians()
    return {"seconds": seconds, "first_batch": first, "synchronisations": waits, "steps": record["steps"],
            "evaluations": record["nfe_forward"], "loss": float(record["L_h"])}


def render(result: dict[str, Any]) -> str:
    """Format the result as a table."""
    lines = []
    for method, found in result.items():
        lines += [f"{method}: {found['steps']} steps, {found['evaluations']} evaluations, {found['synchronisations']} "
                  f"synchronisations, loss {found['loss']:.6g}, first batch {found['first_batch']:.2f} s"]
        lines += [f"  {name:<28}{1000 * s:>9.2f} ms" for name, s in found["seconds"].items()]
    return "\n".join(lines)
