"""The methods of the forecasting family: what each is built from, and the settings that have a meaning for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acenode.accelerate.dispatch import Backend
from acenode.config import Config
from acenode.experiments.base import Method
from acenode.experiments.solver_settings import SOLVER, solver_of

if TYPE_CHECKING:
    from torch import nn

COMMON = frozenset({"epochs", "batch_size", "learning_rate", "weight_decay", "dropout", "latent", "units", "sample",
                    "fold", "targets", "snapshots", "checkpoint_seconds"})
JUMPS = COMMON | {"features", "step_size", "mixing", "cell", "impute", "engine"}
ATTENTION = frozenset({"attention", "initial", "schedule", "penalty", "penalty_weight", "detach_attention", "feedback",
                       "at_jump", "attention_every"})
BASELINE = {"learning_rate": 1e-3}


def _recurrent(make: Callable[[int, int], Any], variables: int, c: Config) -> nn.Module:
    from acenode.models.forecast.sporadic_recurrent import RecurrentForecaster

    return RecurrentForecaster(make(variables, c.latent or 1), variables, c.units or 1, c.dropout or 0.0)


def build_gru_simple(variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.forecast.sporadic_recurrent import GRUSimple

    return _recurrent(GRUSimple, variables, c)


def build_gru_d(variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.forecast.sporadic_recurrent import gru_d

    return _recurrent(gru_d, variables, c)


def build_t_lstm(variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.forecast.sporadic_recurrent import TimeLSTM

    return _recurrent(TimeLSTM, variables, c)


def build_seq_vae(variables: int, c: Config, backend: Backend) -> nn.Module:
    from acenode.models.forecast.sequential_vae import SequentialVAE

    d = c.latent or 1
    return SequentialVAE(variables, d, d, c.recognition or 1, c.units or 1, c.dropout or 0.0)


def _node_vae(variables: int, c: Config, mask: bool) -> nn.Module:
    from acenode.models.forecast.ode_vae import ODEVAE

    d = c.latent or 1
    return ODEVAE(variables, d, d, c.recognition or 1, c.units or 1, mask=mask, solver=solver_of(c),
                  dropout=c.dropout or 0.0)


def build_node_vae(variables: int, c: Config, backend: Backend) -> nn.Module:
    return _node_vae(variables, c, mask=False)


def build_node_vae_mask(variables: int, c: Config, backend: Backend) -> nn.Module:
    return _node_vae(variables, c, mask=True)


def build_gru_ode_bayes(variables: int, c: Config, backend: Backend) -> nn.Module:
    """With `augment` zeros appended to h(0), and with attention where there is any."""
    from acenode.models.forecast.gru_ode_bayes import GRUODEBayes

    return GRUODEBayes(variables, c.latent or 1, c.units or 1, c.features or 1, step=c.step_size or 0.1,
                       dropout=c.dropout or 0.0, mixing=c.mixing or 0.0, minimal=c.cell == "minimal",
                       impute=bool(c.impute), extra=c.augment or 0, attention=_attention(c),  # type: ignore[arg-type]
                       backend=backend)


def _attention(c: Config) -> nn.Module | None:
    if c.attention in (None, "none"):
        return None
    from acenode.attention import Correlation, Dense
    from acenode.models.forecast.gru_ode import RowGRU
    from acenode.models.forecast.jump_attention import Attention

    d = c.latent or 1
    q = Dense((d,)) if c.initial == "dense" else Correlation((d,), bins=41 if c.attention == "fixed" else 1)
    return Attention(RowGRU(d) if c.attention == "evolving" else None, q, every=c.attention_every or 1,
                     at_jump=c.at_jump or "keep", own_feedback=c.feedback == "own")


METHODS: dict[str, Method[int]] = {m.name: m for m in (
    Method("node-vae", "Neural-ODE-VAE", build_node_vae, COMMON | SOLVER | {"recognition"}, BASELINE),
    Method("node-vae-mask", "Neural-ODE-VAE-Mask", build_node_vae_mask, COMMON | SOLVER | {"recognition"}, BASELINE),
    Method("seq-vae", "Sequential VAE", build_seq_vae, COMMON | {"recognition"}, BASELINE),
    Method("gru-simple", "GRU-Simple", build_gru_simple, COMMON, BASELINE),
    Method("gru-d", "GRU-D", build_gru_d, COMMON, BASELINE),
    Method("t-lstm", "T-LSTM", build_t_lstm, COMMON, BASELINE),
    Method("gru-ode-bayes", "GRU-ODE-Bayes", build_gru_ode_bayes, JUMPS),
    Method("augmented", "Augmented-GRU-ODE-Bayes", build_gru_ode_bayes, JUMPS | {"augment"}),
    Method("ace", "ACE-GRU-ODE-Bayes", build_gru_ode_bayes, JUMPS | ATTENTION),
)}
