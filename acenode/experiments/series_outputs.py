"""What a series model predicts on a whole split, summed batch by batch, and the metrics computed from it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from acenode.data.points import SeriesBatch
from acenode.models.latent.latent_ode import Predictions, squared_error
from acenode.training.metrics import binary_auc, macro_auc


@dataclass
class SeriesOutputs:
    """Logits of a split and the sums that its other metrics need. `kind` is record, points or vitals."""

    kind: str
    edges: Tensor | None = None  # of the time bins in which errors are summed
    logits: list[np.ndarray] = field(default_factory=list)
    labels: list[np.ndarray] = field(default_factory=list)
    diluted: float = 0.0  # the published error, which averages per variable before it averages over variables
    squared: float = 0.0
    observed: float = 0.0
    records: int = 0
    nfe: float = 0.0
    batches: int = 0
    bins: np.ndarray | None = None  # (2, bins): squared errors and counts over time

    def add(self, predicted: Predictions, batch: SeriesBatch) -> None:
        """Add the predictions of one batch."""
        B = len(batch.seen.t)
        if predicted.logits is not None and self.kind == "record":
            self.logits.append(predicted.logits.cpu().numpy())
            self.labels.append(batch.label.cpu().numpy())
        elif predicted.logits is not None:
            counted = (batch.label >= 0) & batch.target.observed
            self.logits.append(predicted.logits[:, counted].cpu().numpy())
            self.labels.append(batch.label[counted].cpu().numpy())
        if predicted.x is not None:
            error = (predicted.x - batch.target.x).square() * batch.target.m  # (K, B, T, D)
            self.diluted += float(squared_error(predicted.x, batch.target)) * B
            self.squared += float(error.sum()) / len(predicted.x)
            self.observed += float(batch.target.m.sum())
            if self.edges is not None:
                self._add_bins(error, batch, self.edges)
        self.records += B
        self.nfe += predicted.evaluations.forward if predicted.evaluations is not None else 0
        self.batches += 1

    def _add_bins(self, error: Tensor, batch: SeriesBatch, edges: Tensor) -> None:
        index = (torch.bucketize(batch.target.t, edges[1:-1], right=True)).flatten()
        sums = torch.zeros(2, len(edges) - 1, dtype=torch.float64, device=index.device)
        sums[0].index_add_(0, index, error.mean(0).sum(-1).flatten().double())
        sums[1].index_add_(0, index, batch.target.m.sum(-1).flatten().double())
        self.bins = sums.cpu().numpy() + (0 if self.bins is None else self.bins)

    def labelled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return logits (K, N, …) and labels (N,) of everything that has a label."""
        logits, labels = np.concatenate(self.logits, 1), np.concatenate(self.labels)
        known = ~np.isnan(labels)
        return logits[:, known], labels[known]

    def metrics(self, *, has_ode: bool) -> dict[str, float]:
        """Return the metrics of the protocol, and plainer ones beside them under their own names."""
        found: dict[str, float] = {}
        if self.kind == "record":
            logits, labels = self.labelled()
            found |= {"auc": binary_auc(logits.ravel(), np.tile(labels, len(logits))),
                      "mean_logit_auc": binary_auc(logits.mean(0), labels)}
        if self.kind == "points":
            logits, labels = self.labelled()
            probability = torch.from_numpy(logits).softmax(-1).mean(0).numpy()
            found |= {"accuracy": float((logits.argmax(-1) == labels).mean()),
                      "macro_auc": macro_auc(probability, labels)}
        else:
            found |= {"mse": self.diluted / max(1, self.records), "micro_mse": self.squared / max(1.0, self.observed)}
        if has_ode:
            found["nfe"] = self.nfe / max(1, self.batches)
        return found
