"""The methods of the forecasting family: what each is built from, and the settings that have a meaning for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acenode.backend import Backend
from acenode.config import Config
from acenode.config.groups import (
    AttentionTraining,
    Augmentation,
    DecayTraining,
    EngineSettings,
    ForecastData,
    ForecastNetwork,
    JumpAttention,
    JumpNetwork,
    Recognition,
    SnapshotSettings,
    SolverSettings,
)
from acenode.experiments.base import Method

if TYPE_CHECKING:  # type checking only: avoids importing torch
    from torch import nn

COMMON = (DecayTraining, ForecastNetwork, ForecastData, SnapshotSettings)
JUMPS = (*COMMON, JumpNetwork, EngineSettings)
BASELINE = {"learning_rate": 1e-3}
TIMES = 41  # at which the correlation of fixed attention keeps its running averages


def _recurrent(make: Callable[[int, int, Backend], Any], variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.forecast.baselines import RecurrentForecaster

    network = c.part(ForecastNetwork)
    return RecurrentForecaster(make(variables, network.latent, backend), variables, network.units, network.dropout)


def build_gru_simple(variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.forecast.baselines import GRUSimple

    return _recurrent(GRUSimple, variables, c, backend)


def build_gru_d(variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.forecast.baselines import gru_d

    return _recurrent(gru_d, variables, c, backend)


def build_t_lstm(variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.forecast.baselines import TimeLSTM

    return _recurrent(TimeLSTM, variables, c, backend)


def build_seq_vae(variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.forecast.baselines import SequentialVAE

    network, recognition = c.part(ForecastNetwork), c.part(Recognition).recognition
    return SequentialVAE(variables, network.latent, network.latent, recognition, network.units, network.dropout,
                         backend)


def _node_vae(variables: int, c: Config, backend: Backend, mask: bool) -> nn.Module:
    from acenode.models.forecast.baselines import ODEVAE

    network, recognition = c.part(ForecastNetwork), c.part(Recognition).recognition
    return ODEVAE(variables, network.latent, network.latent, recognition, network.units, mask=mask,
                  solver=c.part(SolverSettings).to_solver(), dropout=network.dropout, backend=backend)


def build_node_vae(variables: int, c: Config, backend: Backend) -> nn.Module:
    return _node_vae(variables, c, backend, mask=False)


def build_node_vae_mask(variables: int, c: Config, backend: Backend) -> nn.Module:
    return _node_vae(variables, c, backend, mask=True)


def _jumping(variables: int, c: Config, backend: Backend, *, extra: int = 0, attention: Any = None) -> nn.Module:
    from acenode.models.forecast.gru_ode_bayes import GRUODEBayes

    network, jumps = c.part(ForecastNetwork), c.part(JumpNetwork)
    return GRUODEBayes(variables, network.latent, network.units, jumps.features, step=jumps.step_size,
                       dropout=network.dropout, mixing=jumps.mixing, minimal=jumps.cell == "minimal",
                       impute=jumps.impute, extra=extra, attention=attention, backend=backend)


def build_gru_ode_bayes(variables: int, c: Config, backend: Backend) -> nn.Module:
    return _jumping(variables, c, backend)


def build_augmented(variables: int, c: Config, backend: Backend) -> nn.Module:
    return _jumping(variables, c, backend, extra=c.part(Augmentation).augment)


def build_ace(variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.attention import Correlation, Dense
    from acenode.models.forecast.gru_ode import GRUAttention, MatrixGRU, RowGRU

    d, chosen = c.part(ForecastNetwork).latent, c.part(JumpAttention)
    if chosen.attention == "none":
        return _jumping(variables, c, backend)
    evolving = chosen.attention == "evolving"
    q = Dense((d,)) if chosen.initial == "dense" else Correlation((d,), bins=1 if evolving else TIMES)
    g = MatrixGRU(d) if chosen.g == "matrix" else RowGRU(d)
    attention = GRUAttention(g if evolving else None, q, every=chosen.attention_every, at_jump=chosen.at_jump,
                             own_feedback=chosen.feedback == "own")
    return _jumping(variables, c, backend, attention=attention)


METHODS: dict[str, Method[int]] = {m.name: m for m in (
    Method("node-vae", "Neural-ODE-VAE", build_node_vae, (*COMMON, SolverSettings, Recognition), BASELINE),
    Method("node-vae-mask", "Neural-ODE-VAE-Mask", build_node_vae_mask, (*COMMON, SolverSettings, Recognition),
           BASELINE),
    Method("seq-vae", "Sequential VAE", build_seq_vae, (*COMMON, Recognition), BASELINE),
    Method("gru-simple", "GRU-Simple", build_gru_simple, COMMON, BASELINE),
    Method("gru-d", "GRU-D", build_gru_d, COMMON, BASELINE),
    Method("t-lstm", "T-LSTM", build_t_lstm, COMMON, BASELINE),
    Method("gru-ode-bayes", "GRU-ODE-Bayes", build_gru_ode_bayes, JUMPS),
    Method("augmented", "Augmented-GRU-ODE-Bayes", build_augmented, (*JUMPS, Augmentation)),
    Method("ace", "ACE-GRU-ODE-Bayes", build_ace, (*JUMPS, JumpAttention, AttentionTraining)),
)}
