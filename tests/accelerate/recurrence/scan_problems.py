"""Scans of every recurrent cell with random inputs: the accelerated node beside the plain loop of the models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from acenode.accelerate.recurrence.cell import RecurrentCell, ScanInputs
from acenode.accelerate.recurrence.gru import DecayGRU
from acenode.accelerate.recurrence.posterior import SampledPosterior
from acenode.accelerate.recurrence.scan import scan
from acenode.accelerate.recurrence.time_lstm import DecayLSTM
from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.models.forecast.baselines import MIN_VARIANCE, Posterior, TimeLSTM
from acenode.models.recurrent import GRUCell, run_recurrence

CELLS = ["gru", "gru one decay", "gru full decay", "lstm", "posterior"]
Step = Callable[..., Tensor]


@dataclass
class Problem:
    """Inputs of one scan. The first series has no points, the second all of them; the others are drawn."""

    cell: RecurrentCell
    step: Step
    mask: Tensor
    start: Tensor
    rows: list[Tensor | None]
    weights: list[Tensor]  # the parameters that `step` uses
    grad: Tensor

    def leaves(self) -> list[Tensor]:
        """Return all that gets a gradient."""
        first, second = self.rows
        assert first is not None
        return [self.start, first, *([second] if second is not None and second.requires_grad else []), *self.weights]

    def by_scan(self, backend: Backend = ACCELERATED) -> list[Tensor]:
        """Return the states and all gradients by the accelerated node."""
        return self._with_gradients(scan(backend, self.cell, self.mask, self.start, self.rows, self.weights))

    def by_loop(self) -> list[Tensor]:
        """Return the same by the plain loop with autograd."""
        rows = tuple(row for row in self.rows if row is not None)
        return self._with_gradients(run_recurrence(self.step, rows, self.mask, self.start))

    def scan_inputs(self) -> ScanInputs:
        """Return the inputs row by row, as a cell takes them."""
        rows = [None if row is None else row.detach().transpose(0, 1) for row in self.rows]
        return ScanInputs(self.mask.t().unsqueeze(-1), self.start.detach(), rows, [w.detach() for w in self.weights])

    def _with_gradients(self, states: Tensor) -> list[Tensor]:
        return [states.detach(), *torch.autograd.grad((states * self.grad).sum(), self.leaves())]


def make(name: str, B: int, T: int, size: int, *, units: int = 5, device: str = "cpu",
         dtype: torch.dtype = torch.float64, seed: int = 0) -> Problem:
    """Draw a problem of B series with T points."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    mask = torch.rand(B, T, generator=generator) > 0.4
    mask[:1], mask[1:2] = False, True
    cell: RecurrentCell
    step: Step
    if name.startswith("gru"):
        cell, plain, width = DecayGRU(), GRUCell(2, size, PLAIN).to(device, dtype), size
        rows = [draw(B, T, 3 * size), None]
        weights = [plain.hidden.weight, plain.hidden.bias]
        step = lambda h, x: plain(x, h)  # noqa: E731
        if name != "gru":
            rows[1] = torch.sigmoid(draw(B, T, 1 if name == "gru one decay" else size)).requires_grad_()
            step = lambda h, x, decay: plain(x, decay * h)  # noqa: E731
    elif name == "lstm":
        model, width = TimeLSTM(2, size, PLAIN).to(device, dtype), 2 * size
        cell, step = DecayLSTM(), model.step
        rows = [draw(B, T, 4 * size), -torch.sigmoid(draw(B, T, 1))]
        weights = [model.hidden.weight, model.hidden.bias, model.short.weight, model.short.bias]
    else:
        posterior, width = Posterior(2, size, units).to(device, dtype), size
        cell, step = SampledPosterior(MIN_VARIANCE), posterior.sample
        rows = [draw(B, T, units), draw(B, T, size)]
        weights = [posterior.own.weight, posterior.own.bias, posterior.out.weight, posterior.out.bias]
    with torch.no_grad():
        for w in weights:
            w.copy_((1.0 if w.dim() == 1 else size ** -0.5) * draw(*w.shape))
    first = rows[0]
    assert first is not None
    first.requires_grad_()
    return Problem(cell, step, mask.to(device), draw(B, width).requires_grad_(), rows, list(weights),
                   draw(B, T, width))
