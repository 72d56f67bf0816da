"""Autoregressive models: a recurrent network predicts each point from the ones before it, and classifies them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.backend import ACCELERATED, Backend
from acenode.data.points import SeriesBatch
from acenode.models.dense_layers import MLP
from acenode.models.gru import states_at
from acenode.models.latent.latent_ode import Predictions
from acenode.models.latent.ode_rnn import ODERNN
from acenode.models.missing_data import MissingDataGRU


class Autoregressive(nn.Module):
    """h at each point by a recurrence; one network predicts the next point from h, another the class."""

    def __init__(self, recurrence: MissingDataGRU | ODERNN, variables: int, size: int, units: int,
                 classifier: nn.Module | None, classify: str, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.recurrence, self.latent, self.classify = recurrence, size, classify
        self.output, self.classifier = MLP(size, variables, units, 2, backend=backend), classifier
        self.backwards: bool | None = False if isinstance(recurrence, ODERNN) else None

    def states(self, batch: SeriesBatch) -> Tensor:
        """Return h after every observed point, (B, T, size)."""
        if isinstance(self.recurrence, MissingDataGRU):
            return self.recurrence(batch.seen)
        assert batch.schedule is not None
        means = self.recurrence(batch.seen, batch.schedule)[..., :self.latent]  # μ after every row, (S, B, r)
        return means[batch.schedule.row, torch.arange(len(batch.seen.t), device=means.device)[:, None]]

    def forward(self, batch: SeriesBatch, *, detach_attention: bool = False) -> Predictions:
        h, seen = self.states(batch), batch.seen
        x = torch.cat((seen.x[:, :1], self.output(h[:, :-1])), 1)  # the first point is not predicted
        if self.classifier is None:
            return Predictions(x[None], None)
        if self.classify == "points":
            return Predictions(x[None], self.classifier(h)[None])
        last = seen.valid.sum(1).clamp(min=1) - 1
        end = h[torch.arange(len(h), device=h.device), last]
        return Predictions(x[None], self.classifier(end).squeeze(-1)[None])

    def trajectory(self, batch: SeriesBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """Return h at common times, (F, B, size): the state after the last point so far."""
        return states_at(self.states(batch), batch.seen, t), None
