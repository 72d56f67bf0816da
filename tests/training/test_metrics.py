"""AUC and ROC curve against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from acenode.training.metrics import batch_auc, binary_auc, macro_auc, roc


def scores(seed: int = 0, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.3).astype(float)
    return (labels + rng.normal(size=n)).round(1), labels  # rounded, so that there are ties


def test_auc_equals_scikit_learn() -> None:
    s, y = scores()
    assert binary_auc(s, y) == pytest.approx(roc_auc_score(y, s))
    assert binary_auc(s, np.ones_like(y)) == 0.5  # no pair
    assert np.isnan(binary_auc(np.append(s, np.nan), np.append(y, 1)))


def test_batch_auc_equals_scikit_learn_and_ignores_nan_labels() -> None:
    s, y = scores(1, 60)
    logits, labels = torch.from_numpy(s.reshape(2, 30)), torch.from_numpy(y[:30])
    pooled = np.tile(y[:30], 2)
    assert float(batch_auc(logits, labels)) == pytest.approx(roc_auc_score(pooled, s))
    labels[:5] = torch.nan
    kept = np.tile(np.arange(30) >= 5, 2)
    assert float(batch_auc(logits, labels)) == pytest.approx(roc_auc_score(pooled[kept], s[kept]))
    assert float(batch_auc(logits, torch.zeros(30))) == 0.5


def test_macro_auc_equals_scikit_learn() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 90)
    s = rng.random((90, 3)) + np.eye(3)[labels] * 0.4
    s /= s.sum(1, keepdims=True)
    assert macro_auc(s, labels) == pytest.approx(roc_auc_score(labels, s, multi_class="ovr", average="macro"))


def test_area_under_the_roc_curve_is_the_auc() -> None:
    s, y = scores(3, 1000)
    fpr, tpr = roc(s, y, max_points=400)
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(tpr, fpr) == pytest.approx(roc_auc_score(y, s), abs=1e-3)
    assert (np.diff(fpr) >= 0).all()
    assert (np.diff(tpr) >= 0).all()
