"""The recurrent models that say at each point what comes at the next one, and classify what they have read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.data.points import SeriesBatch
from acenode.models.dense_layers import Perceptron
from acenode.models.latent.model import Predictions
from acenode.models.latent.recognition import ODERecurrence
from acenode.models.latent.recurrence import Recurrence, held


class Autoregressive(nn.Module):
    """h at each point by a recurrence; a network reads the next point off it, another the class."""

    def __init__(self, recurrence: Recurrence | ODERecurrence, variables: int, size: int, units: int,
                 classifier: nn.Module | None, classify: str) -> None:
        super().__init__()
        self.recurrence, self.latent, self.classify = recurrence, size, classify
        self.output, self.classifier = Perceptron(size, variables, units, 2), classifier
        self.backwards: bool | None = False if isinstance(recurrence, ODERecurrence) else None

    def states(self, batch: SeriesBatch) -> Tensor:
        """h after every point of what is seen, (B, T, size)."""
        if isinstance(self.recurrence, Recurrence):
            return self.recurrence(batch.seen)
        assert batch.schedule is not None
        history = self.recurrence(batch.seen, batch.schedule)[..., :self.latent]  # (S, B, r): the means
        return history[batch.schedule.row, torch.arange(len(batch.seen.t), device=history.device)[:, None]]

    def forward(self, batch: SeriesBatch, *, detach_attention: bool = False) -> Predictions:
        h, seen = self.states(batch), batch.seen
        x = torch.cat((seen.x[:, :1], self.output(h[:, :-1])), 1)  # the first is given
        if self.classifier is None:
            return Predictions(x[None], None)
        if self.classify == "points":
            return Predictions(x[None], self.classifier(h)[None])
        last = seen.valid.sum(1).clamp(min=1) - 1
        end = h[torch.arange(len(h), device=h.device), last]
        return Predictions(x[None], self.classifier(end).squeeze(-1)[None])

    def trajectory(self, batch: SeriesBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """h as it stands at common times: what the last point before left."""
        return held(self.states(batch), batch.seen, t), None
