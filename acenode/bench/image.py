"""`acenode bench image`: one alternating ACE training iteration against a direct implementation.

Reports the median time, memory and gradient error of each implementation, and the time of the parts of one pass. The
implementations are timed in turns in one process.
"""

from __future__ import annotations

import json
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.bench.image_baseline import DirectACE
from acenode.bench.interleave import split_parameters
from acenode.bench.memory import peak_megabytes
from acenode.data.batches import DeviceImages, TrainingBatches
from acenode.errors import UserError
from acenode.execution.environment import describe, device_of
from acenode.models.image.model import ImageModel, ImageShape, ace_ode_net
from acenode.models.layers import initialise
from acenode.node import CoEvolving
from acenode.ode.solve import Solver
from acenode.training.passes import parameter_norm, train_only

TOLERANCE, PENALTY_WEIGHT = 1e-4, 1e-4  # the paper's, for MNIST
MNIST = ImageShape(inputs=1, side=28, classes=10, channels=64, padding=0)


def our_model(gradient: str, tolerance: float | None = None) -> ImageModel:
    """Build ACE of MNIST's size, always with the same parameters."""
    tolerance = tolerance or TOLERANCE
    model = ace_ode_net(MNIST, Solver(rtol=tolerance, atol=tolerance, gradient=gradient),  # type: ignore[arg-type]
                        f_layers=1, q_layers=1)
    initialise(model, 0)
    return model


def implementations() -> dict[str, nn.Module]:
    return {"direct": DirectACE(our_model("backprop"), TOLERANCE),
            **{name: our_model(name) for name in ("backprop", "checkpointed", "adjoint")}}


def theta_g(model: nn.Module) -> list[nn.Parameter]:
    part: Any = model.field.g if isinstance(model, DirectACE) else model.ode.g  # type: ignore[union-attr]
    return list(part.parameters())


def iteration(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compute the gradients of both phases of Algorithm 1; no parameter changes, so every repeat does the same work.

    The direct implementation computes all gradients in both phases, as a plain `loss.backward()` does.
    """
    x, y = batch
    g = theta_g(model)
    everything, others = split_parameters(model, g)
    for phase in (others, g):
        model.zero_grad(set_to_none=True)
        with train_only(everything if isinstance(model, DirectACE) else phase, everything):
            loss = F.cross_entropy(model(x), y)
            (loss + PENALTY_WEIGHT * parameter_norm(g, "l2") if phase is g else loss).backward()


def run(options: Namespace) -> int:
    """Measure and print."""
    if options.repeats < 1 or options.batch < 1:
        raise UserError("--repeats and --batch must be at least 1")
    device = device_of(options.device)
    images, labels = _random_images(max(4 * options.batch, 512))
    batches = TrainingBatches(DeviceImages(images, labels, device), options.batch, 4, 28, 0)
    batch = batches.batch(0, 0)
    models = {name: model.to(device) for name, model in implementations().items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    for repeat in range(options.repeats + 1):  # the first is a warm-up
        for name, model in models.items():
            seconds = _timed(lambda model=model: iteration(model, batch), device)  # type: ignore[misc]
            if repeat:
                times[name].append(seconds)
    medians = {name: statistics.median(t) for name, t in times.items()}
    loading = _timed(lambda: [batches.batch(0, i % batches.iterations) for i in range(20)], device) / 20
    result = {
        "batch": options.batch, "tolerance": TOLERANCE, "environment": describe(device),
        "seconds": medians, "speedup": {n: medians["direct"] / t for n, t in medians.items()},
        "loading_share": loading / medians["backprop"], "gradient_error": gradient_errors(batch),
        "memory_megabytes": {n: _memory(m, batch, device) for n, m in models.items()},
        "where": profile(models["backprop"], batch, device),
    }
    print(json.dumps(result) if options.json else render(result))
    return 0


def gradient_errors(batch: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Return the relative error of each implementation's gradient of θ_g at the benchmark's tolerance.

    The exact gradient comes from a tolerance a thousand times smaller. All is in double precision, so that only the
    solver's error counts.
    """
    x, y = batch[0][:4].double(), batch[1][:4]

    def gradient(model: nn.Module) -> Tensor:
        model.double().to(x.device).zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        g: Any = model.field.g if isinstance(model, DirectACE) else model.ode.g  # type: ignore[union-attr]
        wide: list[Any] = [c.weight.grad if isinstance(c, nn.Conv2d) else torch.cat((c.weight.grad, c.time.grad), 1)
                           for c in g.convs]
        return torch.cat([w.flatten() for w in wide])

    exact = gradient(our_model("backprop", TOLERANCE / 1000))
    return {name: float((gradient(model) - exact).norm() / exact.norm()) for name, model in implementations().items()}


def profile(model: nn.Module, batch: tuple[Tensor, Tensor], device: torch.device) -> dict[str, float]:
    """Time the parts of one pass with the default gradient, in seconds."""
    assert isinstance(model, ImageModel)
    parts: dict[str, float] = {}
    model.zero_grad(set_to_none=True)
    x, y = batch
    parts["stem"] = _timed(lambda: model.encode(x), device)
    h0 = model.encode(x)
    kept: list[Any] = []
    parts["solve, forward"] = _timed(lambda: kept.append(model.evolve(h0)), device)
    trajectory = kept.pop()
    parts["head and loss"] = _timed(lambda: kept.append(F.cross_entropy(model.read_out(trajectory.h[-1]), y)), device)
    parts["backward"] = _timed(lambda: kept.pop().backward(), device)
    with torch.no_grad():
        field, state = CoEvolving(model.ode, False), (h0, torch.zeros_like(h0))  # type: ignore[arg-type]
        t = torch.zeros((), device=device)
        parts["one evaluation of f and g"] = _timed(lambda: [field(t, state) for _ in range(5)], device) / 5
    return parts | {"evaluations": float(trajectory.evaluations.forward)}


def _timed(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _memory(model: nn.Module, batch: tuple[Tensor, Tensor], device: torch.device) -> float:
    """Return the peak memory of a forward and backward pass in MB, above what was allocated before."""
    model.zero_grad(set_to_none=True)
    return peak_megabytes(lambda: F.cross_entropy(model(batch[0]), batch[1]).backward(), device)


def _random_images(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8), rng.integers(0, 10, count, dtype=np.uint8)


def render(result: dict[str, Any]) -> str:
    """Format the result as a table."""
    lines = [f"ACE-ODE-Net, MNIST size, batch {result['batch']}, rtol = atol = {result['tolerance']:g}, "
             f"{result['environment']['device']}", "",
             f"{'one alternating iteration':<34}{'seconds':>9}{'speedup':>8}{'memory MB':>11}"
             f"{'error of θ_g gradient':>23}"]
    titles = {"direct": "direct (concat, adjoint)", "backprop": "acenode backprop (default)",
              "checkpointed": "acenode checkpointed", "adjoint": "acenode adjoint"}
    for name, seconds in result["seconds"].items():
        lines.append(f"{titles[name]:<34}{seconds:>9.3f}{result['speedup'][name]:>7.2f}×"
                     f"{result['memory_megabytes'][name]:>11.0f}{result['gradient_error'][name]:>23.1e}")
    lines += ["", "one pass with backprop, by part:"]
    lines += [f"  {name:<32}{value:>9.4f}" + ("" if name == "evaluations" else " s")
              for name, value in result["where"].items()]
    lines.append(f"  {'loading a batch / iteration':<32}{100 * result['loading_share']:>8.2f}%")
    return "\n".join(lines)
