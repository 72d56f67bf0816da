"""The methods of the paper's latent family: what each is built from, and the settings that have a meaning for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from acenode.backend import Backend
from acenode.config import Config
from acenode.config.groups import (
    AttentionTraining,
    Augmentation,
    Decoder,
    EngineSettings,
    GatedRecognition,
    LatentAttention,
    ODERecognition,
    ODERecurrenceSettings,
    Recognition,
    RecordClassification,
    SeriesNetwork,
    Settings,
    SnapshotSettings,
    SolverSettings,
    Training,
)
from acenode.experiments.base import Method

if TYPE_CHECKING:  # needs torch, which a list of methods does not
    from torch import nn

COMMON = (Training, SeriesNetwork, SnapshotSettings)
DECODER = (Decoder, SolverSettings)
TIMES = 21  # at which the correlation of fixed attention keeps its running averages
LAST_UNITS = 100  # hidden units of the network that predicts from the state of an ODE-RNN


@dataclass(frozen=True)
class SeriesShape:
    """What a series model reads and predicts: the number of variables and, if it classifies, what."""

    variables: int
    classify: str | None = None  # "record", "points" or None
    classes: int = 1


def _classifier(shape: SeriesShape, inputs: int, backend: Backend, *, linear: bool = True) -> nn.Module | None:
    from acenode.models.latent.latent_ode import classifier
    from acenode.models.layers import LinearLayer

    if shape.classify is None:
        return None
    if linear and shape.classify == "points":
        return LinearLayer(inputs, shape.classes, backend=backend)
    return classifier(inputs, shape.classes, backend)


def _where(shape: SeriesShape, config: Config) -> str:
    """Return which state is classified: "points" (each), "start" or "end"."""
    if shape.classify == "points":
        return "points"
    return config.part(RecordClassification).classify_from if config.get("classify_from") is not None else "start"


def _encoder(shape: SeriesShape, c: Config, latent: int, backend: Backend, *, attentive: bool = False) -> nn.Module:
    from acenode.models.latent.ode_rnn import ODERNN, AttentiveDrift, Drift, ODEEncoder
    from acenode.models.layers import MLPField

    chosen, units = c.part(ODERecognition), c.part(SeriesNetwork).units
    r, maps = chosen.recognition, chosen.encoder_maps
    f = MLPField(r, r, units, maps, backend=backend)
    g = MLPField(r, r * r, units, maps, square=True, backend=backend) if attentive else None
    drift = Drift(f) if g is None else AttentiveDrift(f, g)
    return ODEEncoder(latent, ODERNN(2 * shape.variables, r, chosen.gru_units, drift, backend))


def _latent(shape: SeriesShape, c: Config, encoder: nn.Module, ode: nn.Module, size: int,
            backend: Backend) -> nn.Module:
    """Return a model that decodes z of `size` coordinates, and classifies all of them if it classifies points."""
    from acenode.models.latent.latent_ode import LatentODE
    from acenode.models.layers import LinearLayer

    latent = c.part(SeriesNetwork).latent
    classified = size if shape.classify == "points" else latent
    emission = LinearLayer(size, shape.variables, backend=backend)
    return LatentODE(encoder, ode, emission, _classifier(shape, classified, backend), latent, _where(shape, c))


def _field(c: Config, size: int, backend: Backend) -> nn.Module:
    from acenode.models.layers import MLPField

    decoder = c.part(Decoder)
    return MLPField(size, size, c.part(SeriesNetwork).units, decoder.f_maps, bounded=decoder.bounded,
                    backend=backend)


def build_latent_ode(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.node import NODE

    d, solver = c.part(SeriesNetwork).latent, c.part(SolverSettings).to_solver()
    return _latent(shape, c, _encoder(shape, c, d, backend), NODE(_field(c, d, backend), solver), d, backend)


def build_augmented(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.node import AugmentedNODE

    d, extra, solver = c.part(SeriesNetwork).latent, c.part(Augmentation).augment, c.part(SolverSettings).to_solver()
    ode = AugmentedNODE(_field(c, d + extra, backend), extra, solver=solver)
    return _latent(shape, c, _encoder(shape, c, d, backend), ode, d + extra, backend)


def build_ace(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.attention import Correlation, Dense
    from acenode.models.latent.latent_ode import PerTrajectory
    from acenode.models.layers import MLPField
    from acenode.node import ACENODE

    network, decoder, chosen = c.part(SeriesNetwork), c.part(Decoder), c.part(LatentAttention)
    d, attention = network.latent, chosen.attention
    g: nn.Module | None = None
    if attention == "evolving":
        g = MLPField(d, d * d, network.units, decoder.f_maps, square=True, backend=backend)
    q: nn.Module | None = None
    if attention != "none":
        bins = TIMES if attention == "fixed" else 1
        q = Dense((d,)) if chosen.initial == "dense" else Correlation((d,), bins=bins)
        q = PerTrajectory(q, decoder.trajectories)
    ode = ACENODE(_field(c, d, backend), g, q, attention=attention, solver=c.part(SolverSettings).to_solver())
    return _latent(shape, c, _encoder(shape, c, d, backend, attentive=chosen.attention_in == "both"), ode, d, backend)


def build_poisson(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.latent.latent_ode import LatentPoisson, PoissonODE
    from acenode.models.layers import MLP, LinearLayer

    network, solver = c.part(SeriesNetwork), c.part(SolverSettings).to_solver()
    d, D = network.latent, shape.variables
    ode = PoissonODE(_field(c, 2 * d, backend), MLP(d, D, network.units, 3, backend=backend), d, D, solver)
    encoder, classifier = _encoder(shape, c, 2 * d, backend), _classifier(shape, 2 * d, backend)
    return LatentPoisson(encoder, ode, LinearLayer(d, D, backend=backend), classifier, 2 * d, _where(shape, c))


def build_latent_rnn(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.latent.ode_rnn import RNNEncoder
    from acenode.node import NODE

    d, chosen = c.part(SeriesNetwork).latent, c.part(GatedRecognition)
    encoder = RNNEncoder(shape.variables, d, chosen.recognition, chosen.gru_units, backend)
    return _latent(shape, c, encoder, NODE(_field(c, d, backend), c.part(SolverSettings).to_solver()), d, backend)


def build_rnn_vae(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.latent.baselines import RecurrentVAE
    from acenode.models.latent.ode_rnn import RNNEncoder

    network = c.part(SeriesNetwork)
    d, units = network.latent, network.units
    encoder = RNNEncoder(shape.variables, d, c.part(Recognition).recognition, units, backend)
    return RecurrentVAE(encoder, shape.variables, d, units, _classifier(shape, d, backend), _where(shape, c), backend)


def _recurrent(*, gap: bool, impute: bool, decay: bool) -> Callable[[SeriesShape, Config, Backend], nn.Module]:
    """Return a builder of recurrent networks with these treatments of missing values."""
    def build(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
        from acenode.models.latent.baselines import Autoregressive
        from acenode.models.recurrent import MissingDataGRU

        network = c.part(SeriesNetwork)
        d = network.latent
        gru = MissingDataGRU(shape.variables, d, gap=gap, impute=impute, decay=decay, backend=backend)
        return Autoregressive(gru, shape.variables, d, network.units, _classifier(shape, d, backend), _where(shape, c),
                              backend)

    return build


def build_ode_rnn(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.latent.baselines import Autoregressive
    from acenode.models.latent.ode_rnn import ODERNN, Drift
    from acenode.models.layers import MLPField

    network, chosen = c.part(SeriesNetwork), c.part(ODERecurrenceSettings)
    d = network.latent
    drift = Drift(MLPField(d, d, network.units, chosen.encoder_maps, backend=backend))
    recurrence = ODERNN(2 * shape.variables, d, chosen.gru_units, drift, backend)
    classifier = _classifier(shape, d, backend, linear=False)
    return Autoregressive(recurrence, shape.variables, d, LAST_UNITS, classifier, _where(shape, c), backend)


_METHODS: tuple[Method[SeriesShape], ...] = (
    Method("rnn-dt", "RNN Δt", _recurrent(gap=True, impute=False, decay=False), COMMON),
    Method("rnn-impute", "RNN-Impute", _recurrent(gap=True, impute=True, decay=False), COMMON),
    Method("rnn-decay", "RNN-Decay", _recurrent(gap=False, impute=False, decay=True), COMMON),
    Method("gru-d", "GRU-D", _recurrent(gap=False, impute=True, decay=True), COMMON),
    Method("rnn-vae", "RNN-VAE", build_rnn_vae, (*COMMON, Recognition)),
    Method("latent-rnn", "Latent-ODE (RNN enc.)", build_latent_rnn, (*COMMON, *DECODER, GatedRecognition)),
    Method("ode-rnn", "ODE-RNN", build_ode_rnn, (*COMMON, ODERecurrenceSettings, EngineSettings)),
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
