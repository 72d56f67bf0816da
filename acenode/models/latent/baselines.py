"""Recurrent baselines of the latent family: autoregressive networks, and a variational autoencoder of GRUs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.backend import ACCELERATED, Backend
from acenode.data.points import SeriesBatch
from acenode.models.latent.latent_ode import Predictions, sample_z0
from acenode.models.latent.ode_rnn import ODERNN
from acenode.models.layers import MLP
from acenode.models.recurrent import GRUCell, MissingDataGRU, states_at


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


class RecurrentVAE(nn.Module):
    """z0 from a GRU over the reversed points; the decoder reads its own previous output and the time gap."""

    def __init__(self, encoder: nn.Module, variables: int, latent: int, units: int, classifier: nn.Module | None,
                 classify: str = "start", backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.encoder, self.latent, self.classify = encoder, latent, classify
        self.cell = GRUCell(2 * variables + 1, latent, backend)
        self.emission = MLP(latent, variables, units, 2, backend=backend)
        self.classifier, self.variables = classifier, variables
        self.backwards: bool | None = None  # the encoder needs no schedule

    def forward(self, batch: SeriesBatch, *, detach_attention: bool = False) -> Predictions:
        posterior = self.encoder(batch.seen, batch.schedule)
        mean, deviation = posterior
        z0 = sample_z0(mean, deviation, None if batch.noise is None else batch.noise[:1])[0]
        h, x = self.decode(z0, batch.target.t - batch.span[0])
        if self.classifier is None:
            logits = None
        elif self.classify == "points":
            logits = self.classifier(h)[None]
        else:
            logits = self.classifier(posterior[0]).squeeze(-1)[None]
        return Predictions(x[None], logits, posterior)

    def decode(self, h: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return states (B, T, latent) and values (B, T, D) at times t (B, T) after the start."""
        x, states, values = h.new_zeros(len(h), self.variables), [], []
        ones = torch.ones_like(x)  # the mask of the decoder's own output
        for dt in t.diff(dim=1, prepend=torch.zeros_like(t[:, :1])).unsqueeze(-1).unbind(1):
            h = self.cell(self.cell.input(torch.cat((x, ones, dt), 1)), h)
            x = self.emission(h)
            states.append(h)
            values.append(x)
        return torch.stack(states, 1), torch.stack(values, 1)

    def trajectory(self, batch: SeriesBatch, t: list[float]) -> tuple[Tensor, Tensor | None]:
        """Return h at common times, (F, B, latent), from the posterior's mean."""
        mean, _ = self.encoder(batch.seen, batch.schedule)
        times = torch.tensor(t, dtype=mean.dtype, device=mean.device).expand(len(mean), -1)
        return self.decode(mean, times - times[:, :1])[0].transpose(0, 1), None
