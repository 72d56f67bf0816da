"""One training iteration or pass against a plain implementation of the same model: `acenode bench image`, `latent`,
`ushcn` and `named`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode import experiments
from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.bench import Row, in_turns, peak_megabytes
from acenode.bench.workloads import configured, iterate, latent_task, ushcn_series
from acenode.data.named_set import NamedSet
from acenode.data.points import TimeSeries, pad
from acenode.data.schedule import SporadicBatch, make_schedule
from acenode.data.series import Record
from acenode.data.ushcn import END, VARIABLES
from acenode.execution.environment import describe, device_of
from acenode.experiments.named import EXAMPLES, named_spec
from acenode.experiments.series_batches import Layout, assemble
from acenode.experiments.series_task import SeriesTask
from acenode.models.forecast.gaussian import gaussian_nll
from acenode.models.image import ConvAttention, ConvField, ImageModel, ImageShape, TimeConv, ace_ode_net
from acenode.models.layers import initialise
from acenode.ode.solve import Solver
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer, parameter_norm, train_only

CPU = torch.device("cpu")


def both_phases(model: nn.Module, g: nn.Module, loss: Callable[[], Tensor], penalty: float = 0.0) -> None:
    """Compute the gradients of both phases of Algorithm 1; no parameter changes, so every repeat does the same work."""
    everything, chosen = list(model.parameters()), list(g.parameters())
    others = [p for p in everything if all(p is not q for q in chosen)]
    model.zero_grad(set_to_none=True)
    with train_only(others, everything):
        loss().backward()
    with train_only(chosen, everything):
        (loss() + (penalty * parameter_norm(chosen, "l2") if penalty else 0)).backward()


# Images -------------------------------------------------------------------------------------------------------------

TOLERANCE, PENALTY_WEIGHT = 1e-4, 1e-4  # the paper's, for MNIST
MNIST = ImageShape(inputs=1, side=28, classes=10, channels=64, padding=0)


class DirectNetwork(nn.Module):
    """f, g or q in torch's layers, with a network's parameters; time is concatenated to h as a channel."""

    def __init__(self, source: ConvField | ConvAttention) -> None:
        super().__init__()
        norms: Any = source.norms
        self.norms, self.convs = nn.ModuleList(), nn.ModuleList()
        for norm in norms:
            self.norms.append(nn.GroupNorm(norm.num_groups, norm.num_channels))
            self.norms[-1].load_state_dict(norm.state_dict())
        convs: Any = source.convs
        for conv in convs:
            weight = torch.cat((conv.weight, conv.time), dim=1) if isinstance(conv, TimeConv) else conv.weight
            self.convs.append(nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1))
            self.convs[-1].load_state_dict({"weight": weight.detach(), "bias": conv.bias.detach()})

    def forward(self, h: Tensor, t: Tensor | None = None) -> Tensor:
        for i, norm in enumerate(self.norms[:-1]):
            h = F.relu(norm(h))
            if i < len(self.convs):
                h = self.convs[i](h if t is None else torch.cat((h, torch.ones_like(h[:, :1]) * t), dim=1))
        return self.norms[-1](h)


class DirectACE(nn.Module):
    """A direct implementation of an ACE-ODE-Net, with its parameters: torchdiffeq's `odeint_adjoint` on (h, a)."""

    def __init__(self, source: ImageModel, tolerance: float) -> None:
        super().__init__()
        ode: Any = source.ode
        self.stem, self.head, self.tolerance = source.stem, source.head, tolerance
        self.q, self.f, self.g = DirectNetwork(ode.q), DirectNetwork(ode.f), DirectNetwork(ode.g)

    def field(self, t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the derivatives of (h, a) with elementwise attention; f and g attend to h separately."""
        h, a = state
        return self.f(h * torch.sigmoid(a), t), self.g(h * torch.sigmoid(a), t)

    def forward(self, x: Tensor) -> Tensor:
        from torchdiffeq import odeint_adjoint

        h0 = self.stem(x)
        h, _ = odeint_adjoint(self.field, (h0, self.q(h0)), torch.tensor([0.0, 1.0], device=x.device),
                              rtol=self.tolerance, atol=self.tolerance,
                              adjoint_params=(*self.f.parameters(), *self.g.parameters()))
        return self.head(h[-1])


def ace_model(gradient: str, tolerance: float) -> ImageModel:
    """Build ACE of MNIST's size, always with the same parameters."""
    model = ace_ode_net(MNIST, Solver(rtol=tolerance, atol=tolerance, gradient=gradient),  # type: ignore[arg-type]
                        f_layers=1, q_layers=1)
    initialise(model, 0)
    return model


def image_models() -> dict[str, nn.Module]:
    return {"direct": DirectACE(ace_model("backprop", TOLERANCE), TOLERANCE),
            **{name: ace_model(name, TOLERANCE) for name in ("backprop", "checkpointed", "adjoint")}}


def _g(model: Any) -> Any:
    return model.g if isinstance(model, DirectACE) else model.ode.g


def image(options: Namespace) -> Row:
    """Time one alternating iteration; the direct implementation computes all gradients in both phases."""
    device, rng = device_of(options.device), torch.Generator().manual_seed(0)
    x, y = torch.rand(128, 1, 28, 28, generator=rng).to(device), torch.randint(10, (128,), generator=rng).to(device)
    models = {name: model.to(device) for name, model in image_models().items()}

    def loss(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(x), y)

    def iteration(model: nn.Module) -> None:
        if not isinstance(model, DirectACE):
            return both_phases(model, _g(model), lambda: loss(model), PENALTY_WEIGHT)
        for penalty in (0.0, PENALTY_WEIGHT):
            model.zero_grad(set_to_none=True)
            (loss(model) + penalty * parameter_norm(list(_g(model).parameters()), "l2")).backward()

    works = {name: partial(iteration, model) for name, model in models.items()}
    in_turns(works, 1)  # to warm up
    seconds, errors = in_turns(works), gradient_errors(x, y)
    return {"environment": describe(device), "tolerance": TOLERANCE, "rows": [
        {"one iteration": name, "seconds": seconds[name], "speedup": seconds["direct"] / seconds[name],
         "memory MB": peak_megabytes(lambda model=model: loss(model).backward(), device),  # type: ignore[misc]
         "error of the gradient of θ_g": errors[name]} for name, model in models.items()]}


def gradient_errors(x: Tensor, y: Tensor) -> dict[str, float]:
    """Return each implementation's relative error of the gradient of θ_g at the benchmark's tolerance.

    The exact gradient comes from a tolerance a thousand times smaller. All is in double precision, so that only the
    solver's error counts.
    """
    def gradient(model: Any) -> Tensor:
        F.cross_entropy(model.double().to(x.device)(x[:4].double()), y[:4]).backward()
        return torch.cat([(torch.cat((conv.weight.grad, conv.time.grad), 1) if hasattr(conv, "time") else
                           conv.weight.grad).flatten() for conv in _g(model).convs])

    exact = gradient(ace_model("backprop", TOLERANCE / 1000))
    return {name: float((gradient(model) - exact).norm() / exact.norm()) for name, model in image_models().items()}


# Irregular and sporadic series --------------------------------------------------------------------------------------

Losses = Mapping[str, tuple[nn.Module, Callable[[], Tensor]]]  # a model and a function that computes its loss


def time_losses(losses: Losses, series: list[TimeSeries], base: str, **others: Callable[[], object]) -> Row:
    """Time each implementation's loss with its gradient, and other functions."""
    found: dict[str, float] = {}

    def work(name: str) -> None:
        model, loss = losses[name]
        model.zero_grad()
        value = loss()
        value.backward()
        found[name] = float(value.detach())

    seconds = in_turns({name: partial(work, name) for name in losses} | others)
    return {"environment": describe(CPU), "series": len(series), "rows": [
        {"loss and gradient": name, "seconds": taken, f"relative to {base}": taken / seconds[base],
         "loss": found.get(name)} for name, taken in seconds.items()]}


def latent_losses(made: SeriesTask) -> Losses:
    """Return implementations that assemble a batch from the records and compute the loss of one model."""
    noise, plain = made.batch(0, 0).noise, latent_task(backend=PLAIN)
    plain.model.load_state_dict(made.model.state_dict())

    def loss(task: SeriesTask, layout: Layout) -> Tensor:
        return task.loss(assemble(made.splits.train, layout, noise, 0.0), detach_attention=False).task

    union = replace(made.layout, union=True)
    return {"union grid, baseline": (plain.model, lambda: loss(plain, union)),
            "union grid": (made.model, lambda: loss(made, union)),
            "own times": (made.model, lambda: loss(made, made.layout))}


def latent(options: Namespace) -> Row:
    """Time a batch of a latent ODE on the union of its records' times, by plain autograd and by ours, and on own times.

    The two on the union grid have the same loss up to rounding; on own times the encoder takes other Euler steps.
    """
    made = latent_task()
    optimiser = torch.optim.Adamax(made.model.parameters(), lr=1e-2)
    for _ in range(20):  # a trained encoder matters to the loss, so that a wrong implementation would show
        optimiser.zero_grad()
        made.loss(made.batch(0, 0), detach_attention=False).task.backward()
        optimiser.step()
    return time_losses(latent_losses(made), made.splits.train.series, "own times")


BASELINE, OURS, ACE = "gru-ode-bayes, baseline", "gru-ode-bayes", "ace"


def ushcn_works(made: list[TimeSeries]) -> Losses:
    """Return models of the paper's size with functions that assemble the batch and compute the loss.

    Dropout is off, so that the losses can be compared.
    """
    def work_of(method: str, backend: Backend) -> tuple[Any, Callable[[], Tensor]]:
        model = experiments.get("ushcn").methods[method].build(
            len(VARIABLES), configured("ushcn", method, "cpu", {"dropout": 0.0}), backend)
        initialise(model, 0)

        def loss() -> Tensor:
            seen = pad(made)
            forecast = model(SporadicBatch(seen, seen, END, schedule=make_schedule(seen, None, model.step_size)))
            return ((gaussian_nll(seen.x, forecast.mean, forecast.logvar) * seen.m).sum() + forecast.extra) / len(made)

        return model, loss

    return {BASELINE: work_of(OURS, PLAIN), OURS: work_of(OURS, ACCELERATED), ACE: work_of(ACE, ACCELERATED)}


def ushcn(options: Namespace) -> Row:
    """Time loss and gradient of a batch of GRU-ODE-Bayes and of ACE, and ACE's two passes of Algorithm 1."""
    made = ushcn_series()
    works = ushcn_works(made)
    model: Any = works[ACE][0]
    phases = {"ace, both phases": lambda: both_phases(model, model.attention, works[ACE][1])}
    return time_losses(works, made, OURS, **phases)


# Named variables ----------------------------------------------------------------------------------------------------

SERIES = 5_000  # of the epoch that is projected


def large_set(variables: int = 50, times: int = 200, count: int = 200) -> NamedSet:
    """Generate noisy oscillations, the first half of which is seen."""
    rng, t = np.random.default_rng(0), np.arange(float(times))
    frequency, index = rng.uniform(1, 3, variables), np.arange(count + 40)
    series = [Record.from_gaps(t, np.sin(6 * frequency * t[:, None] / times + rng.uniform(0, 6, variables))
                               + 0.1 * rng.normal(size=(times, variables))) for _ in index]
    return NamedSet(
        name="large", title="", note="", variables=tuple(f"v{i}" for i in range(variables)), units=("",) * variables,
        time_unit="h", time_origin="", ids=tuple(map(str, index)), series=tuple(series), task="forecast",
        given=times / 2, parts={"train": index[:count], "validation": index[count:-20], "test": index[-20:]},
        labels=None, classes=())


def named(options: Namespace) -> Row:
    """Time iterations of ACE on the oscillators, with and without C, and on a large set.

    On a GPU, torch's operations alone are measured. An epoch of 5,000 series is projected from the large set.
    """
    device, made = device_of(options.device), large_set()

    def trainer(entry: Any, backend: Backend) -> Trainer:
        task = entry.make(entry.configure("ace", seed=0, device=device.type), Path(), device, backend)
        task.model.train()
        return Trainer(task, task.recipe(), SilentListener())

    backends = {"torch's operations": PLAIN} | ({} if device.type == "cuda" else {"as trained": ACCELERATED})
    small = {name: partial(iterate, trainer(EXAMPLES["oscillators"], one)) for name, one in backends.items()}
    large = trainer(named_spec(made.name, "", "", "", "forecast", load=lambda root: made).experiment(), ACCELERATED)
    in_turns(small, 1)  # to warm up
    seconds, megabytes = in_turns(small), peak_megabytes(lambda: iterate(large), device)
    iteration = in_turns({"large": partial(iterate, large)})["large"]
    return {"environment": describe(device), "rows": [
        *({"one iteration of ace": f"oscillators, {name}", "seconds": taken,
           "speedup": seconds["torch's operations"] / taken} for name, taken in seconds.items()),
        {"one iteration of ace": "50 variables", "seconds": iteration, "memory MB": megabytes,
         f"epoch of {SERIES:,} series": iteration * SERIES * large.task.iterations / len(made.parts["train"])}]}
