"""Areas under the receiver operating characteristic."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def binary_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The share of (positive, negative) pairs in the right order, ties counting half; 0.5 where there is no pair."""
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
    """One class against the rest by its probability, (N, classes), the mean over the classes that occur."""
    shown = [c for c in range(scores.shape[1]) if 0 < (labels == c).sum() < len(labels)]
    found = [binary_auc(scores[:, c], labels == c) for c in shown]
    return float(np.mean(found)) if found else 0.5


def batch_auc(logits: Tensor, labels: Tensor) -> Tensor:
    """The same of a batch (K, B), pooled over K, on its device and without asking the host; NaN labels do not count."""
    scores, labels = logits.flatten(), labels.expand_as(logits).flatten()
    ways = [_ordered_pairs(scores, labels), _ordered_pairs(scores.flip(0), labels.flip(0))]  # ties: once each way
    pairs = (labels > 0.5).sum() * (labels < 0.5).sum()
    return torch.where(pairs > 0, torch.stack(ways).mean() / pairs.clamp(min=1), 0.5)


def _ordered_pairs(scores: Tensor, labels: Tensor) -> Tensor:
    """How many (positive, negative) pairs a stable sort puts in the right order."""
    sorted_labels = labels[scores.argsort(stable=True)]
    negatives = (sorted_labels < 0.5).to(scores).cumsum(0)
    return (negatives * (sorted_labels > 0.5)).sum()


def roc(scores: np.ndarray, labels: np.ndarray, most: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates from (0, 0) to (1, 1), at most that many points."""
    order = np.argsort(-scores, kind="stable")
    s, y = scores[order], labels[order] > 0
    ends = np.append(np.flatnonzero(np.diff(s)), len(s) - 1)  # the last of every group of equal scores
    tpr = np.append(0.0, np.cumsum(y)[ends] / max(1, y.sum()))
    fpr = np.append(0.0, np.cumsum(~y)[ends] / max(1, (~y).sum()))
    keep = np.unique(np.linspace(0, len(tpr) - 1, min(most, len(tpr))).round().astype(int))
    return fpr[keep], tpr[keep]
