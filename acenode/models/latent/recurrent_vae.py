"""RNN-VAE: a GRU encodes a series into z0, and a GRU that starts at z0 decodes it point by point."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acenode.backend import ACCELERATED, Backend
from acenode.data.points import SeriesBatch
from acenode.models.dense_layers import MLP
from acenode.models.gru import GRUCell
from acenode.models.latent.latent_ode import Predictions, sample_z0


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
