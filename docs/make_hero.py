"""The home page's moving picture from a real run: python docs/make_hero.py RUN_FOLDER app/assets/hero.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from acenode.results.maps import ELEMENTWISE, weights

from acenode.results.pca import principal
from acenode.runs.store import Run


def gather(run: Run) -> dict[str, object]:
    """h(t) of the probes in the plane, σ(a(t)) as maps, the inputs; after the last epoch."""
    arrays = run.snapshot(run.snapshots()[-1])
    h, a = arrays["h"].astype(np.float32), arrays["a"]
    maps, (T, P) = weights(a, ELEMENTWISE), h.shape[:2]
    plane = principal(h.reshape(T * P, -1)).points.reshape(T, P, 2)
    span = np.abs(plane).max(axis=(0, 1))
    return {"t": arrays["t"].round(4).tolist(), "labels": arrays["label"].tolist(),
            "image": arrays["image"][:, 0].tolist(), "plane": (plane / span).round(4).tolist(),
            "maps": maps.round(3).tolist()}


if __name__ == "__main__":
    source, target = sys.argv[1:]
    Path(target).write_text(json.dumps(gather(Run(Path(source))), separators=(",", ":")), encoding="utf-8")
