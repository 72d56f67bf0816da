"""Every setting of a run: its type, bounds and help, which method reads it, and which other setting it depends on.

Settings are declared in groups by concern, what a method is built from and trained with. A method names the groups that
apply to it; `Config.part` reads one. The command line, config.json and the app's form use the same keys.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, dataclass_transform

from acenode.ode.options import ENGINES, GRADIENTS, METHODS, Engine, Gradient, Solver
from acenode.ode.tableaus import TABLEAUS

AttentionKind = Literal["evolving", "fixed", "none"]
Needs = tuple[str, frozenset[str]]  # another setting, and the values with which this one applies
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
    needs: Needs | None = None


def setting(help: str, group: str = "training", *, default: Any = MISSING, **more: Any) -> Any:
    """Declare a field of a group as a setting.

    Args:
        help: what the setting does, in the app's form and `acenode methods`.
        group: heading in the app's form.
        default: of a setting that `needs` another; it is used only where the setting does not apply: a penalty of
            "none" has weight 0.
        more: fields of `Setting`.
    """
    return dataclasses.field(default=default, metadata={"help": help, "group": group, **more})


def where(key: str, *values: str) -> Needs:
    return key, frozenset(values)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Settings:
    """Base of all groups, which are frozen dataclasses without missing values."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


def keys_of(*groups: type[Settings]) -> frozenset[str]:
    return frozenset(f.name for group in groups for f in fields(group))  # type: ignore[arg-type]


class Arguments(Settings):
    experiment: str = setting("name of the experiment", "run", chosen_by_user=False)
    method: str = setting("name of the method", "run", chosen_by_user=False)
    data: str = setting("sample: bundled, no download; full: the paper's data set", "run", chosen_by_user=False,
                        choices=("sample", "full"))
    seed: int = setting("sets the initial parameters and the order of the data; the same seed gives the same numbers",
                        "run", chosen_by_user=False, low=0, high=2**31 - 1)
    device: str = setting("auto uses a GPU if there is one; of several GPUs, cuda is the least busy and cuda:3 one of "
                          "them", "run", chosen_by_user=False, choices=("auto", "cpu", "cuda"),
                          pattern=r"cuda:(0|[1-9][0-9]?)")


# Training and snapshots ---------------------------------------------------------------------------------------------


class Training(Settings):
    epochs: int = setting("passes over the training data", low=1, high=100_000)
    batch_size: int = setting("samples per mini-batch", low=1, high=100_000)
    learning_rate: float = setting("initial learning rate of both optimisers", above=0, high=10)


class DecayTraining(Training):
    weight_decay: float = setting("weight decay of all parameters but those of the attention's derivative (θ_g), which "
                                  "have a penalty of their own", low=0, high=1)


class MomentumTraining(DecayTraining):
    momentum: float = setting("momentum of stochastic gradient descent", low=0, high=0.9999)


class AttentionTraining(Settings):
    """How θ_g trains beside the rest (Algorithm 1)."""

    schedule: str = setting(
        "alternating: two passes per mini-batch, one that trains the derivative of the state (f) and one that trains "
        "that of attention (g), Algorithm 1; joint: one pass trains both; epoch: they take turns by epoch",
        "attention", default="alternating", choices=("alternating", "joint", "epoch"),
        needs=where("attention", "evolving"))
    penalty: str = setting(
        "norm of the parameters of the attention's derivative (θ_g), added to the loss that trains them: "
        "L_a = L_task + λ‖θ_g‖", "attention", default="none", choices=("l1", "l2", "none"),
        needs=where("attention", "evolving"))
    penalty_weight: float = setting("weight of that norm in the loss of attention (λ)", "attention", default=0.0,
                                    low=0, high=100, needs=where("penalty", "l1", "l2"))
    detach_attention: bool = setting(
        "while the derivative of the state (f) trains, gradients do not pass through attention, a(t): a literal "
        "reading of the paper; off: they do", "attention", default=False,
        needs=where("schedule", "alternating", "epoch"))


class SnapshotSettings(Settings):
    snapshots: int = setting("number of snapshots of the state h(t) and attention a(t) to keep", "record", low=2,
                             high=100)


class FeatureSnapshotSettings(SnapshotSettings):
    """Snapshots of an image classifier, and whether its features are analysed at the end."""

    analysis: bool = setting("compute silhouettes and a t-SNE of the features after training", "record")


class OldSettings(Settings):
    """Only in runs of version 0.1."""

    checkpoint_seconds: float = setting("longest time between checkpoints", "record", low=0, high=86_400,
                                        chosen_by_user=False)


# Solving ------------------------------------------------------------------------------------------------------------


class EngineSettings(Settings):
    engine: Engine = setting("auto: the fastest that is supported; reference: torchdiffeq and torch's own operations; "
                             "graph: CUDA graphs, which auto uses too", "solver", choices=ENGINES)


class SolverSettings(EngineSettings):
    solver: str = setting("ODE solver", "solver", choices=METHODS)
    rtol: float = setting("relative tolerance of an adaptive solver", "solver", default=Solver.rtol, above=0, high=1,
                          needs=("solver", TOLERANT))
    atol: float = setting("absolute tolerance of an adaptive solver", "solver", default=Solver.atol, above=0, high=1,
                          needs=("solver", TOLERANT))
    step_size: float | None = setting("step of a fixed-step solver; in ushcn, Euler step in the data set's own time",
                                      "solver", default=None, above=0, high=1, needs=("solver", FIXED_STEP))
    max_steps: int = setting("maximum number of steps per solve", "solver", low=1, high=10_000_000)
    gradient: Gradient = setting("backprop: through the steps; checkpointed: the same with the memory of one step; "
                                 "adjoint: a second ODE", "solver", choices=GRADIENTS)
    seminorm: bool = setting("leave the parameter gradients out of the adjoint's error norm", "solver", default=False,
                             needs=where("gradient", "adjoint"))

    def to_solver(self) -> Solver:
        """Return the options of `acenode.ode.solve`."""
        return Solver(self.solver, self.rtol, self.atol, self.step_size, self.gradient, self.seminorm, self.max_steps,
                      self.engine)


class Augmentation(Settings):
    augment: int = setting("zero channels, or coordinates, appended to the state at the start, h(0)", "model", low=1,
                           high=64)


class AttentionSettings(Settings):
    attention: AttentionKind = setting(
        "evolving: attention has an ODE of its own (a); fixed: it is computed from the state at every moment, a(t) = "
        "q(h(t)), or between named variables kept at a(0); none: the state alone (h)", "attention",
        choices=("evolving", "fixed", "none"))
    initial: str = setting(
        "how attention at the start, a(0), is computed from the state, h(0), by the function q; between named "
        "variables, correlation is that of the training data; learned: a(0) is a parameter", "attention",
        default="correlation", choices=("correlation", "dense", "conv", "learned"),
        needs=where("attention", "evolving", "fixed"))


# Images -------------------------------------------------------------------------------------------------------------


class ImageNetwork(Settings):
    size: str = setting("small: 64 channels; large: 128 (sample data: 24 and 48)", "model", choices=("small", "large"))
    crop: int = setting("side of the random crops in training, in pixels", "model", low=6, high=40)
    stem_padding: int = setting("padding of the stem's first convolution", "model", low=0, high=1,
                                chosen_by_user=False)


class ImageAttention(AttentionSettings):
    f_layers: int = setting("convolutions in the derivative of the state (f)", "model", low=1, high=2)
    q_layers: int = setting("convolutions in the function that computes attention at the start (q)", "model",
                            default=1, low=1, high=2, needs=where("initial", "conv"))


# Latent models of irregular series ----------------------------------------------------------------------------------


class HiddenUnits(Settings):
    units: int = setting("units of every hidden layer; in ushcn, of the layer that outputs the predicted distribution",
                         "model", low=2, high=2048)


class SeriesNetwork(HiddenUnits):
    latent: int = setting("size of the latent state (z), which the ODE moves, or of the hidden state of a recurrent "
                          "method", "model", low=2, high=256)


class Recognition(Settings):
    recognition: int = setting("size of the encoder's state", "model", low=2, high=512)


class GateUnits(Settings):
    gru_units: int = setting("units in the gates of the encoder", "model", low=2, high=512, chosen_by_user=False)


class GatedRecognition(Recognition, GateUnits):
    """A recurrent encoder whose gates have hidden layers."""


class ODERecurrenceSettings(GateUnits):
    encoder_maps: int = setting("linear layers in the derivative of the encoder's state", "model", low=2, high=10)
    grid: str = setting("own: every record is read at its own times; union: at all times of its batch, as published",
                        "model", choices=("own", "union"))


class ODERecognition(ODERecurrenceSettings, Recognition):
    """An encoder whose state follows an ODE between points."""


class Decoder(Settings):
    """The ODE of z and the samples of z0 that it starts from."""

    f_maps: int = setting("linear layers in the derivatives of the state and of attention (f, g)", "model", low=2,
                          high=10)
    bounded: bool = setting("tanh on the derivative of the state (f), as in the paper's table", "model")
    trajectories: int = setting("how many starts of the latent state (z0) are sampled per record", "model", low=1,
                                high=50)


class LatentAttention(AttentionSettings):
    attention_in: str = setting("generative: in the ODE of the latent state (z) only; both: in the encoder's ODE too",
                                "attention", default="generative", choices=("generative", "both"),
                                needs=where("attention", "evolving"))


class RecordClassification(Settings):
    classify_from: str = setting("start: classify the latent state at the start (z0), as published; end: at the end "
                                 "(z1)", "model", choices=("start", "end"))


class Normalisation(Settings):
    normalisation: str = setting("comparable: (x − min)/max over all records, as published; standard: mean 0 and "
                                 "standard deviation 1 over the training records", "task",
                                 choices=("comparable", "standard"))
    deviation: float = setting("standard deviation of an observation, in normalised units", above=0, high=100)


class Reconstruction(Settings):
    task: str = setting("interpolation: reconstruct the points that were read; extrapolation: predict the second half "
                        "from the first", "task", choices=("interpolation", "extrapolation"))
    cut: str = setting("where the record is split. half: the middle of a batch's distinct times; 24h: 24 hours",
                       "task", default="half", choices=("half", "24h"), needs=where("task", "extrapolation"))


class RecordingSplit(Settings):
    split: str = setting("window: random windows, as published; recording: whole recordings are held out", "task",
                         choices=("window", "recording"))


# Forecasts of sporadic series ---------------------------------------------------------------------------------------


class ForecastData(Settings):
    sample: str = setting("which bundled set: a simulated climate, pairs of Ornstein–Uhlenbeck processes, or "
                          "Brusselators (chemical oscillators)", "task", default="",
                          choices=("climate", "ou", "brusselator"), needs=where("data", "sample"))
    fold: int = setting("which of the five splits into training, validation and test", "task", low=0, high=4)
    targets: int = setting("times after the cut that are forecast in every series", "task", low=1, high=1000)


class ForecastNetwork(SeriesNetwork):
    dropout: float = setting("fraction of hidden units dropped during training", low=0, high=0.95)


class JumpNetwork(Settings):
    """GRU-ODE-Bayes: a continuous GRU that jumps at observations."""

    features: int = setting("features of every variable at a jump", "model", low=1, high=256)
    step_size: float  # as in `SolverSettings`
    mixing: float = setting("weight of the KL divergence after each jump, relative to the likelihood before it", low=0,
                            high=10)
    cell: str = setting("continuous GRU: full, with a reset gate, or minimal", "model", choices=("full", "minimal"))
    impute: bool = setting("feed the cell its own prediction at every step; slower", "model")


class JumpAttention(AttentionSettings):
    g: str = setting(
        "how the derivative of attention (g) is computed. rows: a continuous GRU on every row of attention, whose "
        "weights the rows share, so that they become equal; matrix: all entries from the attended state (h'), each "
        "with weights of its own", "attention", default="rows", choices=("rows", "matrix"),
        needs=where("attention", "evolving"))
    feedback: str = setting(
        "which state decays between observations. attended: the attended state (h'), as in the paper; own: the state "
        "itself (h), which keeps it within [−1, 1]", "attention", default="attended", choices=("attended", "own"),
        needs=where("attention", "evolving", "fixed"))
    at_jump: str = setting(
        "at an observation the state (h) jumps; what attention (a) does there. keep: it stays; recompute: it restarts "
        "from the correlation of the state, in evaluation after every step; observed: the same, only for the observed "
        "series. Both are about ten times slower than keep", "attention", default="keep",
        choices=("keep", "recompute", "observed"), needs=where("attention", "evolving"))
    attention_every: int = setting("Euler steps of the state per step of attention", "model", default=1, low=1,
                                   high=1000, needs=where("attention", "evolving"))


# Named variables ----------------------------------------------------------------------------------------------------


class NamedNetwork(HiddenUnits, Recognition):
    block: int = setting("numbers in the state of every named variable (k)", "model", low=1, high=64)
    embedding: int = setting("numbers that tell a named variable from the others (e)", "model", low=1, high=64)
    relative_to: str = setting("what predictions start from. mean: the variable's mean; last: its last observation, "
                               "or the interpolation of its observations", "model", choices=("mean", "last"))


class NamedAttention(AttentionSettings):
    pull: float = setting("how fast attention between named variables returns to a(0), per duration of a series (ρ)",
                          "attention", default=0.0, low=0, high=100, needs=where("attention", "evolving"))


class NamedCoupling(Settings):
    coupling: str = setting("own: the derivative of every variable reads its own state and the states it attends to; "
                            "mixed: one derivative reads all variables at once, as in the paper", "attention",
                            choices=("own", "mixed"))


# The vocabulary -----------------------------------------------------------------------------------------------------

# of config.json and of the app's form: a setting follows those it depends on
ORDER = """experiment method data seed device epochs batch_size learning_rate momentum weight_decay dropout mixing
    attention coupling initial pull schedule penalty penalty_weight detach_attention
    size f_layers q_layers augment crop stem_padding task cut normalisation split sample fold targets deviation
    latent block embedding relative_to recognition units gru_units f_maps encoder_maps bounded trajectories
    classify_from attention_in g feedback at_jump attention_every features cell impute grid
    solver rtol atol step_size max_steps gradient seminorm engine snapshots checkpoint_seconds analysis"""
TYPES = {"int": int, "float": float, "bool": bool}  # of fields by their annotation; others are words


def every_group(base: type[Settings] = Settings) -> list[type[Settings]]:
    return [group for child in base.__subclasses__() for group in (child, *every_group(child))]


_DECLARED = {f.name: Setting(f.name, TYPES.get(str(f.type).split()[0], str), **f.metadata)
             for group in every_group() for f in fields(group) if f.metadata}  # type: ignore[arg-type]
KEYS: dict[str, Setting] = {key: _DECLARED[key] for key in ORDER.split()}
SETTINGS: dict[str, Setting] = {key: s for key, s in KEYS.items() if s.chosen_by_user}  # for `--set` and the form
ARGUMENTS = keys_of(Arguments)  # arguments of `acenode train`
DEPENDS: dict[str, Needs] = {key: s.needs for key, s in KEYS.items() if s.needs is not None}
ADDED: dict[str, Any] = {"g": "rows"}  # settings that older runs do not have, with the value that holds for them
