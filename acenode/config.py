"""One typed description of a run: its fields, their bounds and help, JSON in and out; unknown keys are refused.

A field that is None has no meaning for the run (a ResNet has no solver). Which fields have a meaning is decided by
the method and by the fields they depend on.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from acenode.errors import UserError
from acenode.ode.options import ENGINES, GRADIENTS, METHODS
from acenode.ode.tableaus import TABLEAUS

FORMAT = 1  # of config.json; a newer one is refused
MOST_SEEDS = 50  # at a time

FIXED_STEP = frozenset(m for m in METHODS if not (m in TABLEAUS and TABLEAUS[m].adaptive) and m != "scipy_solver")
TOLERANT = (frozenset(METHODS) - FIXED_STEP) | {"implicit_adams", "fixed_adams"}  # these iterate to a tolerance


def option(help: str, *, low: float | None = None, high: float | None = None, choices: tuple[str, ...] | None = None,
           above: float | None = None, group: str = "training") -> Any:
    """A field with what a form or a command line needs to know about it; `above` is a bound not itself allowed."""
    return dataclasses.field(default=None, metadata={"help": help, "low": low, "high": high, "above": above,
                                                     "choices": choices, "group": group})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that decides what a run computes."""

    experiment: str
    method: str
    data: str = dataclasses.field(default="sample", metadata={
        "help": "sample: bundled, no download; full: the paper's data set", "choices": ("sample", "full"),
        "group": "run"})
    seed: int = dataclasses.field(default=0, metadata={
        "help": "initial parameters and the order of the data; equal seeds give equal numbers", "low": 0,
        "high": 2**31 - 1, "group": "run"})
    device: str = dataclasses.field(default="auto", metadata={
        "help": "auto takes the GPU where there is one", "choices": ("auto", "cpu", "cuda"), "group": "run"})

    epochs: int | None = option("passes over the training data", low=1, high=100_000)
    batch_size: int | None = option("samples a mini-batch", low=1, high=100_000)
    learning_rate: float | None = option("initial learning rate of both optimisers", above=0, high=10)
    momentum: float | None = option("momentum of stochastic gradient descent", low=0, high=0.9999)
    weight_decay: float | None = option("weight decay on θ_f and θ_others; θ_g has its own norm", low=0, high=1)

    dropout: float | None = option("share of the hidden units that are dropped in training", low=0, high=0.95)
    mixing: float | None = option("weight of the divergence after a jump beside the likelihood before", low=0, high=10)

    attention: str | None = option(
        "evolving: a(t) is an ODE of its own; fixed: a(t) = q(h(t)), nothing of a is integrated; none: h alone",
        choices=("evolving", "fixed", "none"), group="attention")
    initial: str | None = option("q, which makes a(0) from h(0)", choices=("correlation", "dense", "conv"),
                                 group="attention")
    schedule: str | None = option(
        "alternating: Algorithm 1, two passes a mini-batch; joint: one pass, both updates; epoch: alternate by epoch",
        choices=("alternating", "joint", "epoch"), group="attention")
    penalty: str | None = option("norm of θ_g in L_a = L_task + λ‖θ_g‖", choices=("l1", "l2", "none"),
                                 group="attention")
    penalty_weight: float | None = option("λ, the weight of that norm", low=0, high=100, group="attention")
    detach_attention: bool | None = option("take a(t) as a constant while θ_f trains, the paper's text read literally",
                                           group="attention")

    size: str | None = option("small: 64 channels; large: 128 (sample data: 24 and 48)", choices=("small", "large"),
                              group="model")
    f_layers: int | None = option("convolutions in f", low=1, high=2, group="model")
    q_layers: int | None = option("convolutions in q", low=1, high=2, group="model")
    augment: int | None = option("zero channels, or coordinates, appended to h(0)", low=1, high=64, group="model")
    crop: int | None = option("side of the random crops in training", low=6, high=40, group="model")
    stem_padding: int | None = option("padding of the stem's first convolution", low=0, high=1, group="model")

    task: str | None = option("interpolation: say again what was seen; extrapolation: the second half from the first",
                              choices=("interpolation", "extrapolation"), group="task")
    cut: str | None = option("where the halves meet. half: at the middle of a batch's distinct times; 24h: at 24 hours",
                             choices=("half", "24h"), group="task")
    normalisation: str | None = option(
        "comparable: (x − min)/max over all records, as published; standard: mean 0, deviation 1 of the training ones",
        choices=("comparable", "standard"), group="task")
    split: str | None = option("window: windows at random, as published; recording: whole recordings are held out",
                               choices=("window", "recording"), group="task")
    sample: str | None = option("which of the bundled sets: a simulated climate, pairs of Ornstein–Uhlenbeck "
                                "processes, or chemical clocks", choices=("climate", "ou", "brusselator"), group="task")
    fold: int | None = option("which of the five splits into training, validation and test", low=0, high=4,
                              group="task")
    targets: int | None = option("times after the cut that are forecast of every series", low=1, high=1000,
                                 group="task")
    deviation: float | None = option("standard deviation of an observation, in normalised units", above=0, high=100,
                                     group="training")
    latent: int | None = option("coordinates of z, or of the hidden state", low=2, high=256, group="model")
    recognition: int | None = option("coordinates of the encoder's state", low=2, high=512, group="model")
    units: int | None = option("units of every hidden layer; in ushcn of the one that says p", low=2, high=2048,
                               group="model")
    gru_units: int | None = option("units in the gates of the encoder", low=2, high=512, group="model")
    f_maps: int | None = option("linear maps in f and g", low=2, high=10, group="model")
    encoder_maps: int | None = option("linear maps in the encoder's f", low=2, high=10, group="model")
    bounded: bool | None = option("a tanh on the output of f, as the paper's table has it", group="model")
    trajectories: int | None = option("samples of z0 a record", low=1, high=50, group="model")
    classify_from: str | None = option("start: the class is read off z0, as published; end: off z(1)",
                                       choices=("start", "end"), group="model")
    attention_in: str | None = option("generative: attention in the ODE of z alone; both: in the encoder's ODE too",
                                      choices=("generative", "both"), group="attention")
    feedback: str | None = option("what pulls h back in f'. attended: h', the paper's text; own: h, which then stays "
                                  "within [−1, 1]", choices=("attended", "own"), group="attention")
    at_jump: str | None = option(
        "a where h jumps. keep: as it is; recompute: the correlation of h anew, in evaluation after every step; "
        "observed: that, for the observed series alone. Anew goes row by row, some ten times slower",
        choices=("keep", "recompute", "observed"), group="attention")
    attention_every: int | None = option("Euler steps of h to one exponential step of a", low=1, high=1000,
                                         group="model")
    features: int | None = option("features of every variable at a jump", low=1, high=256, group="model")
    cell: str | None = option("the continuous GRU: full, with a reset gate, or minimal", choices=("full", "minimal"),
                              group="model")
    impute: bool | None = option("feed the cell what it would say at every step, which goes row by row", group="model")
    grid: str | None = option("own: every record walks its own times; union: all those of its batch, as published",
                              choices=("own", "union"), group="model")

    solver: str | None = option("ODE solver", choices=METHODS, group="solver")
    rtol: float | None = option("relative tolerance of an adaptive solver", above=0, high=1, group="solver")
    atol: float | None = option("absolute tolerance of an adaptive solver", above=0, high=1, group="solver")
    step_size: float | None = option("step of a fixed-step solver; in ushcn of Euler's rule, in the set's own time",
                                     above=0, high=1, group="solver")
    max_steps: int | None = option("steps a solve may try before it gives up", low=1, high=10_000_000, group="solver")
    gradient: str | None = option(
        "backprop: through the steps; checkpointed: the same with the memory of one step; adjoint: a second ODE",
        choices=GRADIENTS, group="solver")
    seminorm: bool | None = option("leave the parameter gradients out of the adjoint's error norm", group="solver")
    engine: str | None = option(
        "auto: the fastest that can do it; reference: torchdiffeq and torch's own operations; graph: CUDA graphs, "
        "which auto takes too",
        choices=ENGINES, group="solver")

    snapshots: int | None = option("how often h(t) and a(t) of the probes are kept", low=2, high=100, group="record")
    checkpoint_seconds: float | None = option("longest time between checkpoints", low=0, high=86_400, group="record")
    analysis: bool | None = option("silhouette and t-SNE of the features after training", group="record")

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value is not None:
                object.__setattr__(self, f.name, check(f.name, value))

    def to_dict(self) -> dict[str, Any]:
        """The fields that have a meaning."""
        return {"format": FORMAT} | {k: v for k, v in dataclasses.asdict(self).items() if v is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        values = dict(values)
        version = values.pop("format", FORMAT)
        if not isinstance(version, int) or version > FORMAT:
            raise UserError(f"this run was written by a newer version (format {version}, this one reads {FORMAT}): "
                            "update acenode")
        for key in values:
            known(key)
        missing = {"experiment", "method"} - values.keys()
        if missing:
            raise UserError(f"the configuration lacks {', '.join(sorted(missing))}")
        return cls(**values)


FIELDS: dict[str, dataclasses.Field] = {f.name: f for f in dataclasses.fields(Config)}
TYPES: dict[str, type] = {name: next(t for t in (*get_args(hint), hint) if t is not type(None))
                          for name, hint in get_type_hints(Config).items()}
SETTINGS: tuple[str, ...] = tuple(n for n, f in FIELDS.items() if f.default is None)  # what `--set` may name

# A field has a meaning only where another has one of these values.
DEPENDS: dict[str, tuple[str, frozenset[str]]] = {
    "initial": ("attention", frozenset({"evolving", "fixed"})),
    "q_layers": ("initial", frozenset({"conv"})),
    "schedule": ("attention", frozenset({"evolving"})),
    "penalty": ("attention", frozenset({"evolving"})),
    "penalty_weight": ("penalty", frozenset({"l1", "l2"})),
    "detach_attention": ("schedule", frozenset({"alternating", "epoch"})),
    "attention_in": ("attention", frozenset({"evolving"})),
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


def known(key: str) -> str:
    """The key itself, or an error that names the nearest one."""
    if key in FIELDS:
        return key
    near = difflib.get_close_matches(key, FIELDS, 1)
    raise UserError(f"there is no setting {key!r}" + (f": did you mean {near[0]}?" if near else
                                                      f": choose from {', '.join(SETTINGS)}"))


def check(key: str, value: Any) -> Any:
    """The value in its field's type and within its bounds."""
    meta, kind = FIELDS[key].metadata, TYPES[key]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise UserError(f"{key} must be {_a(kind)}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key} must be a finite number, not {value}")
    choices, low, high, above = (meta.get(k) for k in ("choices", "low", "high", "above"))
    if choices and value not in choices:
        raise UserError(f"{key} has no value {value!r}: choose one of {', '.join(choices)}")
    too_low = (low is not None and value < low) or (above is not None and value <= above)
    if too_low or (high is not None and value > high):
        least = f"at least {_number(low)}" if low is not None else f"above {_number(above)}"
        raise UserError(f"{key} must be {least} and at most {_number(high)}, not {_number(value)}")
    return value


def parse(key: str, text: str) -> Any:
    """The value of `--set key=text`."""
    kind = TYPES[known(key)]
    if key not in SETTINGS:
        raise UserError(f"{key} is no setting but an argument of the command itself")
    try:
        if kind is bool:
            value: Any = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        else:
            value = kind(text)
    except (ValueError, KeyError):
        raise UserError(f"{key} must be {_a(kind)}, not {text!r}") from None
    return check(key, value)


def read_seeds(text: str) -> list[int]:
    """`0`, `0, 1, 5` or `0-4`."""
    found: list[int] = []
    for part in text.replace(";", ",").split(","):
        first, dash, last = (p.strip() for p in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError(f"seeds are whole numbers, such as 0 or 0, 1, 2 or 0-4, not {part.strip()!r}")
        end = int(last) if dash else int(first)
        if not 0 <= end - int(first) < MOST_SEEDS:
            raise UserError(f"a range of seeds goes upwards and has at most {MOST_SEEDS} of them, not {part.strip()!r}")
        found += [check("seed", n) for n in range(int(first), end + 1)]
    if len(found) > MOST_SEEDS:
        raise UserError(f"at most {MOST_SEEDS} seeds at a time, not {len(found)}")
    return list(dict.fromkeys(found))


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _a(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}[kind]


def resolve(experiment: str, method: str, *, uses: frozenset[str], defaults: Mapping[str, Any],
            given: Mapping[str, Any]) -> Config:
    """The defaults with what was given, less what has no meaning; what was given in vain is an error."""
    for key, value in given.items():
        check(known(key), value)
        if key in SETTINGS and key not in uses:
            raise UserError(f"{key} has no meaning for {method} in {experiment}: leave it out, or take another method")
    values = {k: v for k, v in defaults.items() if k in uses} | dict(given)
    for key, (other, allowed) in DEPENDS.items():  # in order: a dropped field drops what hangs on it
        if key in values and (other in uses or other == "data") and values.get(other) not in allowed:
            if key in given:
                raise UserError(f"{key} has no meaning with {other}={values.get(other, 'none')}: leave it out")
            del values[key]
    return Config(experiment=experiment, method=method, **values)
