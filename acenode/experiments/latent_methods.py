"""The methods of the paper's latent family: what each is built from, and the settings that have a meaning for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acenode.accelerate.dispatch import Backend
from acenode.config import Config
from acenode.experiments.base import Method
from acenode.experiments.solver_settings import SOLVER, solver_of

if TYPE_CHECKING:
    from torch import nn

COMMON = frozenset({"epochs", "batch_size", "learning_rate", "latent", "units", "snapshots", "checkpoint_seconds"})
ENCODER = frozenset({"recognition", "gru_units", "encoder_maps", "grid"})
SAMPLES = frozenset({"trajectories"})
DECODER = frozenset({"f_maps", "bounded"}) | SOLVER | SAMPLES
ATTENTION = frozenset({"attention", "initial", "schedule", "penalty", "penalty_weight", "detach_attention",
                       "attention_in"})


@dataclass(frozen=True)
class SeriesShape:
    """What a series model is made for: its variables and what is classified, if anything."""

    variables: int
    classify: str | None = None  # "record", "points" or None
    classes: int = 1


def _classifier(shape: SeriesShape, inputs: int, *, linear: bool = True) -> nn.Module | None:
    from acenode.models.dense_layers import Map
    from acenode.models.latent.model import classifier

    if shape.classify is None:
        return None
    return Map(inputs, shape.classes) if linear and shape.classify == "points" else classifier(inputs, shape.classes)


def _where(shape: SeriesShape, config: Config) -> str:
    return "points" if shape.classify == "points" else config.classify_from or "start"


def _encoder(shape: SeriesShape, c: Config, latent: int, backend: Backend) -> nn.Module:
    from acenode.models.dense_layers import Field
    from acenode.models.latent.recognition import AttentiveDrift, Drift, ODEEncoder, ODERecurrence

    r, units, maps = c.recognition or 1, c.units or 1, c.encoder_maps or 2
    f = Field(r, r, units, maps)
    drift = AttentiveDrift(f, Field(r, r * r, units, maps, square=True)) if c.attention_in == "both" else Drift(f)
    return ODEEncoder(latent, ODERecurrence(2 * shape.variables, r, c.gru_units or 1, drift, backend))


def _latent(shape: SeriesShape, c: Config, encoder: nn.Module, ode: nn.Module, size: int) -> nn.Module:
    """z of `size` coordinates is emitted, and classified where that is asked of every z(t)."""
    from acenode.models.dense_layers import Map
    from acenode.models.latent.model import LatentODE

    latent = c.latent or 1
    classified = size if shape.classify == "points" else latent
    return LatentODE(encoder, ode, Map(size, shape.variables), _classifier(shape, classified), latent, _where(shape, c))


def _field(c: Config, size: int) -> nn.Module:
    from acenode.models.dense_layers import Field

    return Field(size, size, c.units or 1, c.f_maps or 2, bounded=bool(c.bounded))


def build_latent_ode(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.node import NODE

    d = c.latent or 1
    return _latent(shape, c, _encoder(shape, c, d, backend), NODE(_field(c, d), solver_of(c)), d)


def build_augmented(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.node import AugmentedNODE

    d, extra = c.latent or 1, c.augment or 5
    ode = AugmentedNODE(_field(c, d + extra), extra, solver=solver_of(c))
    return _latent(shape, c, _encoder(shape, c, d, backend), ode, d + extra)


def build_ace(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.attention import Correlation, Dense
    from acenode.models.dense_layers import Field
    from acenode.models.latent.model import PerTrajectory
    from acenode.node import ACENODE

    d, attention = c.latent or 1, c.attention or "none"
    g = Field(d, d * d, c.units or 1, c.f_maps or 2, square=True) if attention == "evolving" else None
    q: nn.Module | None = None
    if attention != "none":
        q = Dense((d,)) if c.initial == "dense" else Correlation((d,), bins=21 if attention == "fixed" else 1)
        q = PerTrajectory(q, c.trajectories or 1)
    ode = ACENODE(_field(c, d), g, q, attention=attention, solver=solver_of(c))  # type: ignore[arg-type]
    return _latent(shape, c, _encoder(shape, c, d, backend), ode, d)


def build_poisson(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.dense_layers import Map, Perceptron
    from acenode.models.latent.model import LatentPoisson, PoissonODE

    d, units = c.latent or 1, c.units or 1
    ode = PoissonODE(_field(c, 2 * d), Perceptron(d, shape.variables, units, 3), d, shape.variables, solver_of(c))
    return LatentPoisson(_encoder(shape, c, 2 * d, backend), ode, Map(d, shape.variables), _classifier(shape, 2 * d),
                         2 * d, _where(shape, c))


def build_latent_rnn(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.latent.recognition import RNNEncoder
    from acenode.node import NODE

    d = c.latent or 1
    encoder = RNNEncoder(shape.variables, d, c.recognition or 1, c.gru_units or 1)
    return _latent(shape, c, encoder, NODE(_field(c, d), solver_of(c)), d)


def build_rnn_vae(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.latent.model import RecurrentVAE
    from acenode.models.latent.recognition import RNNEncoder

    d, units = c.latent or 1, c.units or 1
    encoder = RNNEncoder(shape.variables, d, c.recognition or 1, units)
    return RecurrentVAE(encoder, shape.variables, d, units, _classifier(shape, d), _where(shape, c))


def _recurrent(**kind: bool) -> Any:
    def build(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
        from acenode.models.latent.autoregressive import Autoregressive
        from acenode.models.latent.recurrence import Recurrence

        d = c.latent or 1
        return Autoregressive(Recurrence(shape.variables, d, **kind), shape.variables, d, c.units or 1,
                              _classifier(shape, d), _where(shape, c))

    return build


def build_ode_rnn(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.dense_layers import Field
    from acenode.models.latent.autoregressive import Autoregressive
    from acenode.models.latent.recognition import Drift, ODERecurrence

    d = c.latent or 1
    drift = Drift(Field(d, d, c.units or 1, c.encoder_maps or 2))
    recurrence = ODERecurrence(2 * shape.variables, d, c.gru_units or 1, drift, backend)
    return Autoregressive(recurrence, shape.variables, d, 100, _classifier(shape, d, linear=False), _where(shape, c))


_METHODS: tuple[Method[SeriesShape], ...] = (
    Method("rnn-dt", "RNN Δt", _recurrent(gap=True, impute=False, decay=False), COMMON),
    Method("rnn-impute", "RNN-Impute", _recurrent(gap=True, impute=True, decay=False), COMMON),
    Method("rnn-decay", "RNN-Decay", _recurrent(gap=False, impute=False, decay=True), COMMON),
    Method("gru-d", "GRU-D", _recurrent(gap=False, impute=True, decay=True), COMMON),
    Method("rnn-vae", "RNN-VAE", build_rnn_vae, COMMON | {"recognition"}),
    Method("latent-rnn", "Latent-ODE (RNN enc.)", build_latent_rnn, COMMON | DECODER | {"recognition", "gru_units"}),
    Method("ode-rnn", "ODE-RNN", build_ode_rnn, COMMON | {"gru_units", "encoder_maps", "grid", "engine"}),
    Method("latent-poisson", "Latent-ODE + Poisson", build_poisson, COMMON | ENCODER | DECODER),
    Method("latent-ode", "Latent-ODE (ODE enc.)", build_latent_ode, COMMON | ENCODER | DECODER),
    Method("augmented", "Augmented-Latent-ODE", build_augmented, COMMON | ENCODER | DECODER | {"augment"}),
    Method("ace", "ACE-Latent-ODE", build_ace, COMMON | ENCODER | DECODER | ATTENTION),
)
GENERATIVE = ("rnn-vae", "latent-rnn", "latent-poisson", "latent-ode", "augmented", "ace")  # what the vitals table has


def methods(names: tuple[str, ...] | None, extra: frozenset[str], record: bool = False) -> dict[str, Method]:
    """The methods of those names, each with an experiment's own settings; of a `record` one class is said."""
    found = {}
    for m in _METHODS:
        if names is None or m.name in names:
            end = frozenset({"classify_from"}) if record and "solver" in m.uses else frozenset()
            found[m.name] = Method(m.name, m.title, m.build, m.uses | extra | end, m.defaults)
    return found
