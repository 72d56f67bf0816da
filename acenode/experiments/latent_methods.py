"""The methods of the paper's latent family: what each is built from, and the settings that have a meaning for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from acenode.accelerate.dispatch import Backend
from acenode.config import Config
from acenode.config.groups import (
    AttentionTraining,
    Augmentation,
    Decoder,
    EngineChoice,
    GatedRecognition,
    LatentAttention,
    ODERecognition,
    ODERecurrenceSettings,
    Recognition,
    RecordClassification,
    RecordingSettings,
    SeriesNetwork,
    Settings,
    SolverSettings,
    Training,
)
from acenode.experiments.base import Method

if TYPE_CHECKING:  # needs torch, which a list of methods does not
    from torch import nn

COMMON = (Training, SeriesNetwork, RecordingSettings)
DECODER = (Decoder, SolverSettings)
TIMES = 21  # at which the correlation of fixed attention keeps its running averages
LAST_UNITS = 100  # hidden units of the network that predicts from the state of an ODE-RNN


@dataclass(frozen=True)
class SeriesShape:
    """What a series model reads and predicts: the number of variables and, if it classifies, what."""

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
    """Return which state is classified: "points" (each), "start" or "end"."""
    if shape.classify == "points":
        return "points"
    return config.part(RecordClassification).classify_from if config.get("classify_from") is not None else "start"


def _encoder(shape: SeriesShape, c: Config, latent: int, backend: Backend, *, attentive: bool = False) -> nn.Module:
    from acenode.models.dense_layers import Field
    from acenode.models.latent.recognition import AttentiveDrift, Drift, ODEEncoder, ODERecurrence

    chosen, units = c.part(ODERecognition), c.part(SeriesNetwork).units
    r, maps = chosen.recognition, chosen.encoder_maps
    f = Field(r, r, units, maps)
    drift = AttentiveDrift(f, Field(r, r * r, units, maps, square=True)) if attentive else Drift(f)
    return ODEEncoder(latent, ODERecurrence(2 * shape.variables, r, chosen.gru_units, drift, backend))


def _latent(shape: SeriesShape, c: Config, encoder: nn.Module, ode: nn.Module, size: int) -> nn.Module:
    """Return a model that decodes z of `size` coordinates, and classifies all of them if it classifies points."""
    from acenode.models.dense_layers import Map
    from acenode.models.latent.model import LatentODE

    latent = c.part(SeriesNetwork).latent
    classified = size if shape.classify == "points" else latent
    return LatentODE(encoder, ode, Map(size, shape.variables), _classifier(shape, classified), latent, _where(shape, c))


def _field(c: Config, size: int) -> nn.Module:
    from acenode.models.dense_layers import Field

    decoder = c.part(Decoder)
    return Field(size, size, c.part(SeriesNetwork).units, decoder.f_maps, bounded=decoder.bounded)


def build_latent_ode(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.node import NODE

    d, solver = c.part(SeriesNetwork).latent, c.part(SolverSettings).to_solver()
    return _latent(shape, c, _encoder(shape, c, d, backend), NODE(_field(c, d), solver), d)


def build_augmented(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.node import AugmentedNODE

    d, extra, solver = c.part(SeriesNetwork).latent, c.part(Augmentation).augment, c.part(SolverSettings).to_solver()
    ode = AugmentedNODE(_field(c, d + extra), extra, solver=solver)
    return _latent(shape, c, _encoder(shape, c, d, backend), ode, d + extra)


def build_ace(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.attention import Correlation, Dense
    from acenode.models.dense_layers import Field
    from acenode.models.latent.model import PerTrajectory
    from acenode.node import ACENODE

    network, decoder, chosen = c.part(SeriesNetwork), c.part(Decoder), c.part(LatentAttention)
    d, attention = network.latent, chosen.attention
    g = Field(d, d * d, network.units, decoder.f_maps, square=True) if attention == "evolving" else None
    q: nn.Module | None = None
    if attention != "none":
        bins = TIMES if attention == "fixed" else 1
        q = Dense((d,)) if chosen.initial == "dense" else Correlation((d,), bins=bins)
        q = PerTrajectory(q, decoder.trajectories)
    ode = ACENODE(_field(c, d), g, q, attention=attention, solver=c.part(SolverSettings).to_solver())
    return _latent(shape, c, _encoder(shape, c, d, backend, attentive=chosen.attention_in == "both"), ode, d)


def build_poisson(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.dense_layers import Map, Perceptron
    from acenode.models.latent.model import LatentPoisson, PoissonODE

    network, solver = c.part(SeriesNetwork), c.part(SolverSettings).to_solver()
    d, D = network.latent, shape.variables
    ode = PoissonODE(_field(c, 2 * d), Perceptron(d, D, network.units, 3), d, D, solver)
    encoder, classifier = _encoder(shape, c, 2 * d, backend), _classifier(shape, 2 * d)
    return LatentPoisson(encoder, ode, Map(d, D), classifier, 2 * d, _where(shape, c))


def build_latent_rnn(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.latent.recognition import RNNEncoder
    from acenode.node import NODE

    d, chosen = c.part(SeriesNetwork).latent, c.part(GatedRecognition)
    encoder = RNNEncoder(shape.variables, d, chosen.recognition, chosen.gru_units)
    return _latent(shape, c, encoder, NODE(_field(c, d), c.part(SolverSettings).to_solver()), d)


def build_rnn_vae(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.latent.model import RecurrentVAE
    from acenode.models.latent.recognition import RNNEncoder

    network = c.part(SeriesNetwork)
    d, units = network.latent, network.units
    encoder = RNNEncoder(shape.variables, d, c.part(Recognition).recognition, units)
    return RecurrentVAE(encoder, shape.variables, d, units, _classifier(shape, d), _where(shape, c))


def _recurrent(**kind: bool) -> Callable[[SeriesShape, Config, Backend], nn.Module]:
    """Return a builder of recurrent networks that treat gaps in time as `kind` says."""
    def build(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
        from acenode.models.latent.autoregressive import Autoregressive
        from acenode.models.latent.recurrence import Recurrence

        network = c.part(SeriesNetwork)
        d = network.latent
        return Autoregressive(Recurrence(shape.variables, d, **kind), shape.variables, d, network.units,
                              _classifier(shape, d), _where(shape, c))

    return build


def build_ode_rnn(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.dense_layers import Field
    from acenode.models.latent.autoregressive import Autoregressive
    from acenode.models.latent.recognition import Drift, ODERecurrence

    network, chosen = c.part(SeriesNetwork), c.part(ODERecurrenceSettings)
    d = network.latent
    drift = Drift(Field(d, d, network.units, chosen.encoder_maps))
    recurrence = ODERecurrence(2 * shape.variables, d, chosen.gru_units, drift, backend)
    classifier = _classifier(shape, d, linear=False)
    return Autoregressive(recurrence, shape.variables, d, LAST_UNITS, classifier, _where(shape, c))


_METHODS: tuple[Method[SeriesShape], ...] = (
    Method("rnn-dt", "RNN Δt", _recurrent(gap=True, impute=False, decay=False), COMMON),
    Method("rnn-impute", "RNN-Impute", _recurrent(gap=True, impute=True, decay=False), COMMON),
    Method("rnn-decay", "RNN-Decay", _recurrent(gap=False, impute=False, decay=True), COMMON),
    Method("gru-d", "GRU-D", _recurrent(gap=False, impute=True, decay=True), COMMON),
    Method("rnn-vae", "RNN-VAE", build_rnn_vae, (*COMMON, Recognition)),
    Method("latent-rnn", "Latent-ODE (RNN enc.)", build_latent_rnn, (*COMMON, *DECODER, GatedRecognition)),
    Method("ode-rnn", "ODE-RNN", build_ode_rnn, (*COMMON, ODERecurrenceSettings, EngineChoice)),
    Method("latent-poisson", "Latent-ODE + Poisson", build_poisson, (*COMMON, ODERecognition, *DECODER)),
    Method("latent-ode", "Latent-ODE (ODE enc.)", build_latent_ode, (*COMMON, ODERecognition, *DECODER)),
    Method("augmented", "Augmented-Latent-ODE", build_augmented, (*COMMON, ODERecognition, *DECODER, Augmentation)),
    Method("ace", "ACE-Latent-ODE", build_ace,
           (*COMMON, ODERecognition, *DECODER, LatentAttention, AttentionTraining)),
)
GENERATIVE = ("rnn-vae", "latent-rnn", "latent-poisson", "latent-ode", "augmented", "ace")  # in the vitals table


def methods(names: tuple[str, ...] | None, *extra: type[Settings], record: bool = False) -> dict[str, Method]:
    """Return the methods of these names (None: all), each with an experiment's own groups of settings.

    With `record` the experiment classifies whole records, and a method with a solver can do that at either end of z.
    """
    found = {}
    for m in _METHODS:
        if names is None or m.name in names:
            ends = (RecordClassification,) if record and SolverSettings in m.groups else ()
            found[m.name] = replace(m, groups=(*m.groups, *extra, *ends))
    return found
