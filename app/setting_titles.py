"""What the settings are called in the app: a plain name, then the symbol or the key where it says more."""

from __future__ import annotations

import re

TITLES = {
    "attention": "Attention (a)",
    "initial": "How attention starts (q)",
    "schedule": "How state and attention take turns (schedule)",
    "penalty": "Penalty on the attention's parameters (θ_g)",
    "penalty_weight": "Weight of the penalty (λ)",
    "detach_attention": "Hold attention constant while the state trains (detach attention)",
    "coupling": "What the derivative of the state reads (coupling)",
    "pull": "Return of attention to its start (ρ)",
    "block": "Numbers per variable (k)",
    "embedding": "Embedding of a variable (e)",
    "relative_to": "Predictions relative to",
    "attention_in": "Where attention acts",
    "g": "How attention changes (g)",
    "feedback": "State that decays (feedback)",
    "at_jump": "Attention where the state jumps (at jump)",
    "attention_every": "State steps per attention step",
    "f_layers": "Convolutions in the derivative of the state (f)",
    "q_layers": "Convolutions where attention starts (q)",
    "augment": "Added dimensions (augment)",
    "latent": "Size of the latent state (z)",
    "recognition": "Size of the encoder's state",
    "units": "Units per hidden layer",
    "f_maps": "Linear layers in the derivatives (f, g)",
    "encoder_maps": "Linear layers in the encoder's derivative (f)",
    "bounded": "Bounded derivative of the state (f)",
    "trajectories": "Sampled starts per record (z0)",
    "mixing": "Weight of the KL divergence (mixing)",
    "features": "Features per variable at a jump",
    "cut": "Where a record is split (cut)",
    "targets": "Forecast times per series (targets)",
    "deviation": "Standard deviation of an observation (σ)",
    "classify_from": "State that is classified",
    "rtol": "Relative tolerance (rtol)",
    "atol": "Absolute tolerance (atol)",
    "max_steps": "Maximum number of steps",
    "impute": "Feed back predictions (impute)",
    "grid": "Times at which records are read (grid)",
    "analysis": "Analyse features after training",
}


def plain(name: str) -> str:
    """Return the plain name of a setting within a sentence, without its symbol: `how attention starts`."""
    title = re.sub(r" \([^)]*\)$", "", setting(name))
    return title[:1].lower() + title[1:]


def setting(name: str) -> str:
    """Return the label of a setting: its plain name, or its key in words."""
    return TITLES.get(name, name.replace("_", " ").capitalize())
