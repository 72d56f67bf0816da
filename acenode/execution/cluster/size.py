"""The size of a Ray cluster: its processors, GPUs and machines, and how many runs fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ClusterSize:
    """What a cluster has."""

    cpus: int
    gpus: int
    machines: int
    runs: int  # that can be trained at a time: on the GPUs if there are any

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def title(self) -> str:
        """Describe the cluster for people."""
        parts = [_count(self.cpus, "CPU"), *([_count(self.gpus, "GPU")] if self.gpus else [])]
        return f"Ray, {', '.join(parts)} on {_count(self.machines, 'machine')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def cluster_size(nodes: Iterable[Mapping[str, Any]], threads: int, gpu: float) -> ClusterSize:
    """Return the size of the machines that are alive.

    Args:
        nodes: as `ray.nodes()` describes them.
        threads: CPUs that a run takes.
        gpu: share of a GPU that a run takes where there are GPUs.
    """
    found = [node.get("Resources", {}) for node in nodes if node.get("Alive")]
    cpus, gpus = ([float(have.get(kind, 0)) for have in found] for kind in ("CPU", "GPU"))
    fit = [int(c // threads) for c in cpus]
    if sum(gpus):
        fit = [min(of_cpus, int(g / gpu + 1e-6)) for of_cpus, g in zip(fit, gpus, strict=True)]
    return ClusterSize(int(sum(cpus)), int(sum(gpus)), len(found), sum(fit))
