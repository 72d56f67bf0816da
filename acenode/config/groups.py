"""Settings by concern: what a method is built from and trained with, each a dataclass without missing values.

A method names the groups that apply to it; `Config.part` reads one. A field with a default depends on another setting
(see `DEPENDS`). The default is used only when the field does not apply: a penalty of "none" has weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from acenode.ode.options import Engine, Gradient, Solver

AttentionKind = Literal["evolving", "fixed", "none"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all groups."""


def keys_of(*groups: type[Settings]) -> frozenset[str]:
    """Return the keys that these groups read."""
    return frozenset(f.name for group in groups for f in fields(group))


# Training and snapshots ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Training(Settings):
    epochs: int
    batch_size: int
    learning_rate: float


@dataclass(frozen=True, kw_only=True)
class MomentumTraining(Training):
    """Stochastic gradient descent, for images."""

    momentum: float
    weight_decay: float


@dataclass(frozen=True, kw_only=True)
class DecayTraining(Training):
    """Adam with weight decay, for forecasts."""

    weight_decay: float


@dataclass(frozen=True, kw_only=True)
class AttentionTraining(Settings):
    """How θ_g trains beside the rest (Algorithm 1)."""

    schedule: str = "alternating"
    penalty: str = "none"
    penalty_weight: float = 0.0
    detach_attention: bool = False


@dataclass(frozen=True, kw_only=True)
class SnapshotSettings(Settings):
    snapshots: int


@dataclass(frozen=True, kw_only=True)
class FeatureSnapshotSettings(SnapshotSettings):
    """Snapshots of an image classifier, and whether its features are analysed at the end."""

    analysis: bool


# Solving ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EngineSettings(Settings):
    engine: Engine


@dataclass(frozen=True, kw_only=True)
class SolverSettings(EngineSettings):
    """How an ODE layer is integrated."""

    solver: str
    rtol: float = Solver.rtol
    atol: float = Solver.atol
    step_size: float | None = None
    max_steps: int
    gradient: Gradient
    seminorm: bool = False

    def to_solver(self) -> Solver:
        """Return the options of `acenode.ode.solve`."""
        return Solver(self.solver, self.rtol, self.atol, self.step_size, self.gradient, self.seminorm, self.max_steps,
                      self.engine)


@dataclass(frozen=True, kw_only=True)
class Augmentation(Settings):
    augment: int


# Images -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ImageNetwork(Settings):
    size: str
    crop: int
    stem_padding: int


@dataclass(frozen=True, kw_only=True)
class ImageAttention(Settings):
    attention: AttentionKind
    initial: str = "conv"
    f_layers: int
    q_layers: int = 1


# Latent models of irregular series ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SeriesNetwork(Settings):
    latent: int
    units: int


@dataclass(frozen=True, kw_only=True)
class Recognition(Settings):
    """A recurrent encoder."""

    recognition: int


@dataclass(frozen=True, kw_only=True)
class GatedRecognition(Recognition):
    """A recurrent encoder whose gates have hidden layers."""

    gru_units: int


@dataclass(frozen=True, kw_only=True)
class ODERecurrenceSettings(Settings):
    """A recurrence whose state follows an ODE between points."""

    gru_units: int
    encoder_maps: int
    grid: str


@dataclass(frozen=True, kw_only=True)
class ODERecognition(ODERecurrenceSettings, Recognition):
    """An encoder whose state follows an ODE between points."""


@dataclass(frozen=True, kw_only=True)
class Decoder(Settings):
    """The ODE of z and the samples of z0 that it starts from."""

    f_maps: int
    bounded: bool
    trajectories: int


@dataclass(frozen=True, kw_only=True)
class LatentAttention(Settings):
    attention: AttentionKind
    initial: str = "correlation"
    attention_in: str = "generative"


@dataclass(frozen=True, kw_only=True)
class RecordClassification(Settings):
    classify_from: str


@dataclass(frozen=True, kw_only=True)
class Normalisation(Settings):
    normalisation: str
    deviation: float


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Settings):
    task: str
    cut: str = "half"


@dataclass(frozen=True, kw_only=True)
class RecordingSplit(Settings):
    split: str


# Forecasts of sporadic series ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ForecastData(Settings):
    """Which series are forecast, and how far."""

    sample: str = ""
    fold: int
    targets: int


@dataclass(frozen=True, kw_only=True)
class ForecastNetwork(SeriesNetwork):
    dropout: float


@dataclass(frozen=True, kw_only=True)
class JumpNetwork(Settings):
    """GRU-ODE-Bayes: a continuous GRU that jumps at observations."""

    features: int
    step_size: float
    mixing: float
    cell: str
    impute: bool


@dataclass(frozen=True, kw_only=True)
class JumpAttention(Settings):
    attention: AttentionKind
    initial: str = "correlation"
    g: str = "rows"
    feedback: str = "attended"
    at_jump: str = "keep"
    attention_every: int = 1


# Named variables ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NamedNetwork(Settings):
    """A block of numbers and an embedding for every variable."""

    block: int
    embedding: int
    units: int
    recognition: int
    relative_to: str


@dataclass(frozen=True, kw_only=True)
class NamedAttention(Settings):
    attention: AttentionKind
    initial: str = "correlation"
    pull: float = 0.0


@dataclass(frozen=True, kw_only=True)
class NamedCoupling(Settings):
    coupling: str
