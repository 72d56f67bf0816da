"""A few fixed samples whose h(t) and a(t) are recorded while a model trains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from acenode.models.image.model import ImageModel

LIMIT = 1_900_000  # bytes of a snapshot before compression
PROBES, FRAMES = (4, 10), (9, 41)  # fewest and most


@dataclass(frozen=True)
class Probes:
    """Images (uint8) with their labels, ordered so that the classes take turns."""

    x: Tensor
    y: Tensor

    @classmethod
    def choose(cls, x: Tensor, y: Tensor) -> Probes:
        """Choose the first sample of each class, then the second of each, and so on."""
        chosen = in_turn(list(enumerate(y.tolist())))[:PROBES[1]]
        return cls(x[chosen], y[chosen])

    @torch.no_grad()
    def take(self, model: ImageModel) -> dict[str, np.ndarray]:
        """Return t, h(t) and a(t) in half precision, with as many probes and frames as fit, and the logits."""
        was_training = model.training
        model.eval()
        h0 = model.encode(self.x.float().div(255))
        blocks = 2 if getattr(model.ode, "attention", "none") != "none" else 1
        probes, frames = fit(h0[0].numel() * blocks * 2)
        t = torch.linspace(0, 1, frames, dtype=torch.float64)
        trajectory = model.evolve(h0[:probes], t.tolist())
        logits = model.read_out(trajectory.h[-1])
        model.train(was_training)
        arrays = {
            "t": t.numpy().astype(np.float32), "h": half(trajectory.h), "image": self.x[:probes].cpu().numpy(),
            "label": self.y[:probes].cpu().numpy(), "logits": logits.float().cpu().numpy(),
        }
        return arrays | ({"a": half(trajectory.a)} if trajectory.a is not None else {})


def fit(bytes_each: int) -> tuple[int, int]:
    """Return how many probes and frames of `bytes_each` fit under the limit, with at least the fewest probes."""
    pairs = max(LIMIT // bytes_each, PROBES[0])
    probes = min(PROBES[1], max(PROBES[0], pairs // 15))
    return probes, int(np.clip(pairs // probes, 2, FRAMES[1]))


def in_turn(labelled: Sequence[tuple[int, int]]) -> list[int]:
    """Order (sample, label) pairs: the first sample of each label, then the second of each, and so on."""
    seen: Counter[int] = Counter()
    order = []
    for i, label in labelled:
        order.append((seen[label], label, i))
        seen[label] += 1
    return [i for _, _, i in sorted(order)]


def half(x: Tensor) -> np.ndarray:
    """Return x in half precision, clamped to its range."""
    return x.clamp(-65_000, 65_000).half().cpu().numpy()
