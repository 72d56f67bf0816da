"""The recurrent models that say at each point what comes at the next one, and classify what they have read."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.data.points import Batch, Points
from acenode.models.dense_layers import GRUCell, Perceptron
from acenode.models.latent import Predictions
from acenode.models.recognition import GRU, ODERecurrence, gaps

LIMIT = 1000.0  # of a decay's exponent


class Decay(nn.Module):
    """exp(−max(0, w·δ + b)), which begins as no decay at all."""

    def __init__(self, inputs: int, each: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs))
        self.bias = nn.Parameter(torch.zeros(inputs if each else 1))
        self.each = each  # a factor for every input, or one for all

    def initialise(self, generator: torch.Generator) -> None:
        for p in self.parameters():
            p.data.zero_()

    def forward(self, delta: Tensor) -> Tensor:
        y = self.weight * delta
        y = (y if self.each else y.sum(-1, keepdim=True)) + self.bias
        return (-y.clamp(0, LIMIT)).exp()


def since(points: Points) -> tuple[Tensor, Tensor]:
    """δ and x_last (B, T, D): the time since a variable was last seen before a point, and what it was; zeros before."""
    t, seen = points.t.unsqueeze(-1), points.m > 0
    index = torch.arange(t.shape[1], device=t.device).view(1, -1, 1).expand_as(points.x)
    last = torch.where(seen, index, -1).cummax(1).values
    last = F.pad(last[:, :-1], (0, 0, 1, 0), value=-1)  # strictly before
    at = last.clamp(min=0)
    delta = t - t.expand_as(points.x).gather(1, at)
    delta = torch.where(last >= 0, delta, t - t[:, :1])
    return delta, torch.where(last >= 0, points.x.gather(1, at), 0.0)


class Recurrence(nn.Module):
    """A GRU over the observed points with, as asked, Δ, decayed imputation of the inputs, and a decay of h."""

    def __init__(self, variables: int, size: int, *, gap: bool, impute: bool, decay: bool) -> None:
        super().__init__()
        self.size, self.gap = size, gap
        inputs = 2 * variables + gap
        self.impute = Decay(variables, each=True) if impute else None
        self.decay = Decay(variables, each=False) if decay else None
        self.cell = GRUCell(inputs, size) if decay else None
        self.gru = None if decay else GRU(inputs, size)
        self.register_buffer("mean", torch.zeros(variables))  # of what was observed in training

    def forward(self, points: Points) -> Tensor:
        """h after every point, (B, T, size)."""
        delta, last = since(points) if self.impute or self.decay else (points.x, points.x)
        x = points.x
        if self.impute is not None:
            share = self.impute(delta)
            x = torch.where(points.m > 0, x, share * last + (1 - share) * self.mean)
        given = torch.cat((x, points.m, *((gaps(points).unsqueeze(-1),) if self.gap else ())), -1)
        if self.gru is not None:
            return self.gru(given, points.observed)
        assert self.cell is not None
        assert self.decay is not None
        h, states = x.new_zeros(len(x), self.size), []
        shares, read = self.decay(delta).unbind(1), points.observed.unsqueeze(-1).unbind(1)
        for i, row in enumerate(self.cell.input(given).unbind(1)):
            h = torch.where(read[i], self.cell(row, shares[i] * h), h)
            states.append(h)
        return torch.stack(states, 1)


class Autoregressive(nn.Module):
    """h at each point by a recurrence; a network reads the next point off it, another the class."""

    def __init__(self, recurrence: Recurrence | ODERecurrence, variables: int, size: int, units: int,
                 classifier: nn.Module | None, classify: str) -> None:
        super().__init__()
        self.recurrence, self.latent, self.classify = recurrence, size, classify
        self.output, self.classifier = Perceptron(size, variables, units, 2), classifier
        self.backwards: bool | None = False if isinstance(recurrence, ODERecurrence) else None

    def states(self, batch: Batch) -> Tensor:
        """h after every point of what is seen, (B, T, size)."""
        if isinstance(self.recurrence, Recurrence):
            return self.recurrence(batch.seen)
        assert batch.walk is not None
        history = self.recurrence(batch.seen, batch.walk)[..., :self.latent]  # (S, B, r): the means
        return history[batch.walk.row, torch.arange(len(batch.seen.t), device=history.device)[:, None]]

    def forward(self, batch: Batch, *, detach_attention: bool = False) -> Predictions:
        h, seen = self.states(batch), batch.seen
        x = torch.cat((seen.x[:, :1], self.output(h[:, :-1])), 1)  # the first is given
        if self.classifier is None:
            return Predictions(x[None], None)
        if self.classify == "points":
            return Predictions(x[None], self.classifier(h)[None])
        last = seen.there.sum(1).clamp(min=1) - 1
        end = h[torch.arange(len(h), device=h.device), last]
        return Predictions(x[None], self.classifier(end).squeeze(-1)[None])

    def trajectory(self, batch: Batch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """h as it stands at common times: what the last point before left."""
        h, seen = self.states(batch), batch.seen
        times = torch.tensor(t, dtype=h.dtype, device=h.device)
        count = ((seen.t[:, None] <= times[:, None]) & seen.there[:, None]).sum(-1)  # (B, F)
        states = torch.cat((torch.zeros_like(h[:, :1]), h), 1)
        return states[torch.arange(len(h), device=h.device)[:, None], count].transpose(0, 1), None
