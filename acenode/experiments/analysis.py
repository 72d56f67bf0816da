"""Analysis of a trained classifier: confusion, accuracy per class, silhouette and t-SNE of its features."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

SEED = 0
TSNE_POINTS = 2000
SILHOUETTE_POINTS = 10_000


def confusion(predicted: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the confusion matrix (rows: true classes, columns: predicted) and the accuracy of each class."""
    matrix = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(matrix, (labels, predicted), 1)
    support = matrix.sum(1)
    recall = np.divide(matrix.diagonal(), support, out=np.zeros(len(classes)), where=support > 0)
    return {"classes": list(classes), "confusion": matrix.tolist(),
            "class_accuracy": dict(zip(classes, recall.round(6).tolist(), strict=True))}


def embedding(features: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Return silhouettes of K-means clusters (K = number of classes, Euclidean) and a t-SNE of the features.

    The paper does not say which representation it clusters, so all three candidates are returned.
    """
    from sklearn.manifold import TSNE

    start = time.perf_counter()
    order = np.random.default_rng(SEED).permutation(len(features))
    chosen = np.sort(order[:TSNE_POINTS])
    perplexity = min(30.0, (len(chosen) - 1) / 3)
    points = TSNE(2, perplexity=perplexity, init="pca", random_state=SEED).fit_transform(features[chosen])
    clusters = logits.shape[1]
    return {
        "silhouette": {"features": silhouette(features, clusters), "logits": silhouette(logits, clusters),
                       "tsne": silhouette(points, clusters)},
        "tsne": {"x": points[:, 0].round(3).tolist(), "y": points[:, 1].round(3).tolist(),
                 "label": labels[chosen].tolist(), "index": chosen.tolist()},
        "analysis_seconds": round(time.perf_counter() - start, 3),
    }


def silhouette(x: np.ndarray, clusters: int) -> float | None:
    """Return the mean silhouette of K-means clusters; None if there are too few distinct points."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    if len(np.unique(x, axis=0)) <= clusters:
        return None
    found = KMeans(clusters, n_init=10, random_state=SEED).fit_predict(x)
    size = SILHOUETTE_POINTS if len(x) > SILHOUETTE_POINTS else None
    return float(silhouette_score(x, found, sample_size=size, random_state=SEED))
