"""Every setting of a run by its key: type, bounds, help, and which other setting it depends on.

The command line, config.json and the app all use these keys. The order is that of config.json and of the app's form: a
setting follows those it depends on.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from acenode.errors import UserError
from acenode.ode.options import ENGINES, GRADIENTS, METHODS
from acenode.ode.tableaus import TABLEAUS

FIXED_STEP = frozenset(m for m in METHODS if not (m in TABLEAUS and TABLEAUS[m].adaptive) and m != "scipy_solver")
TOLERANT = (frozenset(METHODS) - FIXED_STEP) | {"implicit_adams", "fixed_adams"}  # these iterate to a tolerance


@dataclass(frozen=True)
class Setting:
    """A key of the configuration with what a form or a command line needs to know about it."""

    key: str
    type: type
    help: str
    group: str = "training"  # heading in the app's form: run, task, training, attention, model, solver or record
    low: float | None = None
    high: float | None = None
    above: float | None = None  # a lower bound that is itself not allowed
    choices: tuple[str, ...] = ()
    pattern: str = ""  # a regular expression of further choices
    chosen_by_user: bool = True  # False: a constant of the experiment or the program, read from config.json only


_ALL = (
    Setting("experiment", str, "name of the experiment", "run", chosen_by_user=False),
    Setting("method", str, "name of the method", "run", chosen_by_user=False),
    Setting("data", str, "sample: bundled, no download; full: the paper's data set", "run", chosen_by_user=False,
            choices=("sample", "full")),
    Setting("seed", int, "sets the initial parameters and the order of the data; the same seed gives the same numbers",
            "run", chosen_by_user=False, low=0, high=2**31 - 1),
    Setting("device", str, "auto uses a GPU if there is one; of several GPUs, cuda is the least busy and cuda:3 one of "
            "them", "run", chosen_by_user=False, choices=("auto", "cpu", "cuda"), pattern=r"cuda:(0|[1-9][0-9]?)"),

    Setting("epochs", int, "passes over the training data", low=1, high=100_000),
    Setting("batch_size", int, "samples per mini-batch", low=1, high=100_000),
    Setting("learning_rate", float, "initial learning rate of both optimisers", above=0, high=10),
    Setting("momentum", float, "momentum of stochastic gradient descent", low=0, high=0.9999),
    Setting("weight_decay", float, "weight decay of all parameters but those of the attention's derivative "
            "(θ_g), which have a penalty of their own", low=0, high=1),

    Setting("dropout", float, "fraction of hidden units dropped during training", low=0, high=0.95),
    Setting("mixing", float, "weight of the KL divergence after each jump, relative to the likelihood before it",
            low=0, high=10),

    Setting("attention", str, "evolving: attention has an ODE of its own (a); fixed: it is computed from the state at "
            "every moment, a(t) = q(h(t)), or between named variables kept at a(0); none: the state alone (h)",
            "attention", choices=("evolving", "fixed", "none")),
    Setting("coupling", str, "own: the derivative of every variable reads its own state and the states it attends "
            "to; mixed: one derivative reads all variables at once, as in the paper", "attention",
            choices=("own", "mixed")),
    Setting("initial", str, "how attention at the start, a(0), is computed from the state, h(0), by the function q; "
            "between named variables, correlation is that of the training data; learned: a(0) is a parameter",
            "attention", choices=("correlation", "dense", "conv", "learned")),
    Setting("pull", float, "how fast attention between named variables returns to a(0), per duration of a series (ρ)",
            "attention", low=0, high=100),
    Setting("schedule", str, "alternating: two passes per mini-batch, one that trains the derivative of the state (f) "
            "and one that trains that of attention (g), Algorithm 1; joint: one pass trains both; epoch: they take "
            "turns by epoch", "attention", choices=("alternating", "joint", "epoch")),
    Setting("penalty", str, "norm of the parameters of the attention's derivative (θ_g), added to the loss that trains "
            "them: L_a = L_task + λ‖θ_g‖", "attention", choices=("l1", "l2", "none")),
    Setting("penalty_weight", float, "weight of that norm in the loss of attention (λ)", "attention", low=0, high=100),
    Setting("detach_attention", bool, "while the derivative of the state (f) trains, gradients do not pass through "
            "attention, a(t): a literal reading of the paper; off: they do", "attention"),

    Setting("size", str, "small: 64 channels; large: 128 (sample data: 24 and 48)", "model",
            choices=("small", "large")),
    Setting("f_layers", int, "convolutions in the derivative of the state (f)", "model", low=1, high=2),
    Setting("q_layers", int, "convolutions in the function that computes attention at the start (q)", "model",
            low=1, high=2),
    Setting("augment", int, "zero channels, or coordinates, appended to the state at the start, h(0)", "model",
            low=1, high=64),
    Setting("crop", int, "side of the random crops in training, in pixels", "model", low=6, high=40),
    Setting("stem_padding", int, "padding of the stem's first convolution", "model", low=0, high=1,
            chosen_by_user=False),

    Setting("task", str, "interpolation: reconstruct the points that were read; extrapolation: predict the second half "
            "from the first", "task", choices=("interpolation", "extrapolation")),
    Setting("cut", str, "where the record is split. half: the middle of a batch's distinct times; 24h: 24 hours",
            "task", choices=("half", "24h")),
    Setting("normalisation", str, "comparable: (x − min)/max over all records, as published; standard: mean 0 and "
            "standard deviation 1 over the training records", "task", choices=("comparable", "standard")),
    Setting("split", str, "window: random windows, as published; recording: whole recordings are held out", "task",
            choices=("window", "recording")),
    Setting("sample", str, "which bundled set: a simulated climate, pairs of Ornstein–Uhlenbeck processes, or "
            "Brusselators (chemical oscillators)", "task", choices=("climate", "ou", "brusselator")),
    Setting("fold", int, "which of the five splits into training, validation and test", "task", low=0, high=4),
    Setting("targets", int, "times after the cut that are forecast in every series", "task", low=1, high=1000),
    Setting("deviation", float, "standard deviation of an observation, in normalised units", above=0, high=100),
    Setting("latent", int, "size of the latent state (z), which the ODE moves, or of the hidden state of a recurrent "
            "method", "model", low=2, high=256),
    Setting("block", int, "numbers in the state of every named variable (k)", "model", low=1, high=64),
    Setting("embedding", int, "numbers that tell a named variable from the others (e)", "model", low=1, high=64),
    Setting("relative_to", str, "what predictions start from. mean: the variable's mean; last: its last observation, "
            "or the interpolation of its observations", "model", choices=("mean", "last")),
    Setting("recognition", int, "size of the encoder's state", "model", low=2, high=512),
    Setting("units", int, "units of every hidden layer; in ushcn, of the layer that outputs the predicted distribution",
            "model", low=2, high=2048),
    Setting("gru_units", int, "units in the gates of the encoder", "model", low=2, high=512, chosen_by_user=False),
    Setting("f_maps", int, "linear layers in the derivatives of the state and of attention (f, g)",
            "model", low=2, high=10),
    Setting("encoder_maps", int, "linear layers in the derivative of the encoder's state", "model", low=2, high=10),
    Setting("bounded", bool, "tanh on the derivative of the state (f), as in the paper's table", "model"),
    Setting("trajectories", int, "how many starts of the latent state (z0) are sampled per record",
            "model", low=1, high=50),
    Setting("classify_from", str, "start: classify the latent state at the start (z0), as published; end: at the end "
            "(z1)", "model", choices=("start", "end")),
    Setting("attention_in", str, "generative: in the ODE of the latent state (z) only; both: in the encoder's ODE too",
            "attention", choices=("generative", "both")),
    Setting("g", str, "how the derivative of attention (g) is computed. rows: a continuous GRU on every row of "
            "attention, whose weights the rows share, so that they become equal; matrix: all entries from the attended "
            "state (h'), each with weights of its own", "attention", choices=("rows", "matrix")),
    Setting("feedback", str, "which state decays between observations. attended: the attended state (h'), as in the "
            "paper; own: the state itself (h), which keeps it within [−1, 1]", "attention",
            choices=("attended", "own")),
    Setting("at_jump", str, "at an observation the state (h) jumps; what attention (a) does there. keep: it stays; "
            "recompute: it restarts from the correlation of the state, in evaluation after every step; observed: the "
            "same, only for the observed series. Both are about ten times slower than keep",
            "attention", choices=("keep", "recompute", "observed")),
    Setting("attention_every", int, "Euler steps of the state per step of attention", "model", low=1,
            high=1000),
    Setting("features", int, "features of every variable at a jump", "model", low=1, high=256),
    Setting("cell", str, "continuous GRU: full, with a reset gate, or minimal", "model", choices=("full", "minimal")),
    Setting("impute", bool, "feed the cell its own prediction at every step; slower", "model"),
    Setting("grid", str, "own: every record is read at its own times; union: at all times of its batch, as published",
            "model", choices=("own", "union")),

    Setting("solver", str, "ODE solver", "solver", choices=METHODS),
    Setting("rtol", float, "relative tolerance of an adaptive solver", "solver", above=0, high=1),
    Setting("atol", float, "absolute tolerance of an adaptive solver", "solver", above=0, high=1),
    Setting("step_size", float, "step of a fixed-step solver; in ushcn, Euler step in the data set's own time",
            "solver", above=0, high=1),
    Setting("max_steps", int, "maximum number of steps per solve", "solver", low=1, high=10_000_000),
    Setting("gradient", str, "backprop: through the steps; checkpointed: the same with the memory of one step; "
            "adjoint: a second ODE", "solver", choices=GRADIENTS),
    Setting("seminorm", bool, "leave the parameter gradients out of the adjoint's error norm", "solver"),
    Setting("engine", str, "auto: the fastest that is supported; reference: torchdiffeq and torch's own operations; "
            "graph: CUDA graphs, which auto uses too", "solver", choices=ENGINES),

    Setting("snapshots", int, "number of snapshots of the state h(t) and attention a(t) to keep", "record",
            low=2, high=100),
    Setting("checkpoint_seconds", float, "longest time between checkpoints", "record", low=0, high=86_400,
            chosen_by_user=False),
    Setting("analysis", bool, "compute silhouettes and a t-SNE of the features after training", "record"),
)

KEYS: dict[str, Setting] = {s.key: s for s in _ALL}
SETTINGS: dict[str, Setting] = {s.key: s for s in _ALL if s.chosen_by_user}  # what `--set` and the form can change
ARGUMENTS = frozenset({"experiment", "method", "data", "seed", "device"})  # arguments of `acenode train`

# A setting applies only if another one has one of these values.
DEPENDS: dict[str, tuple[str, frozenset[str]]] = {
    "initial": ("attention", frozenset({"evolving", "fixed"})),
    "q_layers": ("initial", frozenset({"conv"})),
    "schedule": ("attention", frozenset({"evolving"})),
    "penalty": ("attention", frozenset({"evolving"})),
    "penalty_weight": ("penalty", frozenset({"l1", "l2"})),
    "detach_attention": ("schedule", frozenset({"alternating", "epoch"})),
    "attention_in": ("attention", frozenset({"evolving"})),
    "pull": ("attention", frozenset({"evolving"})),
    "g": ("attention", frozenset({"evolving"})),
    "feedback": ("attention", frozenset({"evolving", "fixed"})),
    "at_jump": ("attention", frozenset({"evolving"})),
    "attention_every": ("attention", frozenset({"evolving"})),
    "sample": ("data", frozenset({"sample"})),
    "cut": ("task", frozenset({"extrapolation"})),
    "rtol": ("solver", TOLERANT),
    "atol": ("solver", TOLERANT),
    "step_size": ("solver", FIXED_STEP),
    "seminorm": ("gradient", frozenset({"adjoint"})),
}

# Settings that older runs do not have, with the value that holds for them.
ADDED: dict[str, Any] = {"g": "rows"}


def excluded(key: str, values: Mapping[str, Any]) -> bool:
    """True if this setting does not apply because of the values of others."""
    other, allowed = DEPENDS.get(key, ("", frozenset()))
    return bool(other) and values.get(other) not in allowed


def known(key: str, among: Iterable[str] = SETTINGS, owner: str = "") -> str:
    """Return the key, or raise an error that suggests the nearest one or lists those in `among`, which `owner` has."""
    if key in KEYS:
        return key
    possible = [k for k in SETTINGS if k in set(among)]
    near = difflib.get_close_matches(key, possible, 1) or difflib.get_close_matches(key, KEYS, 1)
    listed = f"{owner} has {', '.join(possible)}" if owner else f"choose from {', '.join(possible)}"
    raise UserError(f"there is no setting {key!r}: " + (f"did you mean {near[0]}?" if near else listed))


def check(key: str, value: Any) -> Any:
    """Return the value in its setting's type; raise an error if it is out of bounds."""
    try:
        return _checked(key, value)
    except TypeError:  # a list, for instance, which cannot be looked up
        return _check(key, value)


@lru_cache(maxsize=4096, typed=True)
def _checked(key: str, value: Any) -> Any:
    """As `check`: thousands of runs share most of their values."""
    return _check(key, value)


def _check(key: str, value: Any) -> Any:
    setting = KEYS[key]
    if setting.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not setting.type:  # bool is a subclass of int, and not accepted as one
        raise UserError(f"{key} must be {_a(setting.type)}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key} must be a finite number, not {value}")
    if setting.choices and value not in setting.choices and not re.fullmatch(setting.pattern or "(?!)", str(value)):
        raise UserError(f"{key} has no value {value!r}: choose one of {', '.join(setting.choices)}"
                        + " or cuda:N" * bool(setting.pattern))
    low, high, above = setting.low, setting.high, setting.above
    number: Any = value
    too_low = (low is not None and number < low) or (above is not None and number <= above)
    if too_low or (high is not None and number > high):
        least = f"at least {_number(low)}" if low is not None else f"above {_number(above)}"
        raise UserError(f"{key} must be {least} and at most {_number(high)}, not {_number(value)}")
    return value


def choosable(key: str) -> str:
    """Return the key, or raise an error if users cannot set it."""
    if key in ARGUMENTS:
        raise UserError(f"{key} is an argument of the command, not a setting")
    if key not in SETTINGS:
        raise UserError(f"{key} is a constant and cannot be set: leave it out")
    return key


def parse(key: str, text: str, among: Iterable[str] = SETTINGS, owner: str = "") -> Any:
    """Read the value of `--set key=text`; the error for an unknown key lists those in `among`, which `owner` has."""
    kind = KEYS[choosable(known(key, among, owner))].type
    try:
        if kind is bool:
            value: Any = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        elif kind is not str and (not text.isascii() or "_" in text):  # Python reads 1_0 and digits of other scripts
            raise ValueError
        else:
            value = kind(text)
    except (ValueError, KeyError):
        raise UserError(f"{key} must be {_a(kind)}, not {text!r}") from None
    return check(key, value)


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _a(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}[kind]
