"""Area under the receiver operating characteristic (AUC) and its curve."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def binary_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of (positive, negative) pairs ranked correctly; ties count half, no pairs give 0.5."""
    positive = labels > 0
    n, total = int(positive.sum()), len(labels)
    if not np.isfinite(scores).all():
        return float("nan")
    if n in (0, total):
        return 0.5
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # the mean rank of each distinct score
    return float((ranks[inverse][positive].sum() - n * (n + 1) / 2) / (n * (total - n)))


def macro_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the one-against-rest AUC of `scores` (N, classes), averaged over the classes that occur in `labels`."""
    occurring = [c for c in range(scores.shape[1]) if 0 < (labels == c).sum() < len(labels)]
    areas = [binary_auc(scores[:, c], labels == c) for c in occurring]
    return float(np.mean(areas)) if areas else 0.5


def batch_auc(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the AUC of a batch (K, B), pooled over K, without copying to the host; NaN labels are left out."""
    scores, labels = logits.flatten(), labels.expand_as(logits).flatten()
    both = [_ordered_pairs(scores, labels), _ordered_pairs(scores.flip(0), labels.flip(0))]  # ties: once in each order
    pairs = (labels > 0.5).sum() * (labels < 0.5).sum()
    return torch.where(pairs > 0, torch.stack(both).mean() / pairs.clamp(min=1), 0.5)


def _ordered_pairs(scores: Tensor, labels: Tensor) -> Tensor:
    """Count the (positive, negative) pairs that a stable sort puts in the right order."""
    sorted_labels = labels[scores.argsort(stable=True)]
    negatives = (sorted_labels < 0.5).to(scores).cumsum(0)
    return (negatives * (sorted_labels > 0.5)).sum()


def roc(scores: np.ndarray, labels: np.ndarray, max_points: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Return false and true positive rates from (0, 0) to (1, 1), thinned to at most `max_points`."""
    order = np.argsort(-scores, kind="stable")
    s, y = scores[order], labels[order] > 0
    ends = np.append(np.flatnonzero(np.diff(s)), len(s) - 1)  # the last of each run of equal scores
    tpr = np.append(0.0, np.cumsum(y)[ends] / max(1, y.sum()))
    fpr = np.append(0.0, np.cumsum(~y)[ends] / max(1, (~y).sum()))
    keep = np.unique(np.linspace(0, len(tpr) - 1, min(max_points, len(tpr))).round().astype(int))
    return fpr[keep], tpr[keep]
