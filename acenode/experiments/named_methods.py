"""The methods for named variables: exchange through the attention alone, no exchange, and one f on everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acenode.backend import Backend
from acenode.config import Config
from acenode.config.groups import (
    AttentionTraining,
    DecayTraining,
    NamedAttention,
    NamedCoupling,
    NamedNetwork,
    SnapshotSettings,
    SolverSettings,
)
from acenode.experiments.base import Method

if TYPE_CHECKING:  # needs torch, which a list of methods does not
    from acenode.models.named.model import NamedModel

COMMON = (DecayTraining, NamedNetwork, SolverSettings, SnapshotSettings)
RANK = 8  # of the bilinear form that moves attention


@dataclass(frozen=True)
class NamedShape:
    """What a model of named variables reads and predicts."""

    variables: int
    classes: int = 0  # 0: it predicts values
    controlled: bool = False  # True if observations continue while the ODE runs


def build_ace(shape: NamedShape, c: Config, backend: Backend) -> NamedModel:
    return _build(shape, c, c.part(NamedAttention), c.part(NamedCoupling).coupling, backend)


def build_no_attention(shape: NamedShape, c: Config, backend: Backend) -> NamedModel:
    return _build(shape, c, NamedAttention(attention="none"), "own", backend)


def build_mixed(shape: NamedShape, c: Config, backend: Backend) -> NamedModel:
    return _build(shape, c, c.part(NamedAttention), "mixed", backend)


def _build(shape: NamedShape, c: Config, chosen: NamedAttention, coupling: str,
           backend: Backend) -> NamedModel:
    from torch import nn

    from acenode.models.named.field import CONTROLS, BilinearRate, Embedding, MixedRate, OwnRate
    from acenode.models.named.model import InitialAttention, NamedModel, NamedODE, OwnEncoder

    network, V = c.part(NamedNetwork), shape.variables
    k, units, controls = network.block, network.units, CONTROLS if shape.controlled else 0
    embedding = Embedding(V, network.embedding)
    f: nn.Module = MixedRate(V, k, units, controls)
    if coupling == "own":
        f = OwnRate(k, embedding, units, controls, attends=chosen.attention != "none")
    g = BilinearRate(k, network.embedding, RANK) if chosen.attention == "evolving" else None
    q = InitialAttention(V, chosen.initial) if chosen.attention != "none" else None
    ode = NamedODE(f, g, q, embedding, chosen.attention, chosen.pull, c.part(SolverSettings).to_solver(),
                   backend)
    encoder = OwnEncoder(k, embedding, network.recognition, backwards=shape.controlled)
    return NamedModel(V, k, embedding, encoder, ode, classes=shape.classes, units=units,
                      relative=network.relative_to == "last")


METHODS: dict[str, Method[NamedShape]] = {m.name: m for m in (
    Method("no-attention", "No attention", build_no_attention, COMMON),
    Method("mixed", "ACE, one f on everything", build_mixed, (*COMMON, NamedAttention, AttentionTraining)),
    Method("ace", "ACE", build_ace, (*COMMON, NamedAttention, NamedCoupling, AttentionTraining)),
)}
