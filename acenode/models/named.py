"""Models of named variables, which exchange information through the attention and through nothing else.

    h_i(0) = encoder(observations of i)    own observations start own blocks
    m = softmax(a) h                       what each variable attends to, (V × V)(V × k)
    dh_i/dt = f(h_i, m_i, c_i, e_i, t)     own: one f for all variables, told apart by an embedding e_i
    dh/dt = f(m, c, t)                     mixed: one f on everything, as in the paper (Eq. 3)
    da/dt = g(m, e, t) − ρ (a − a(0))      g is a bilinear form of the embedded m; a(0) is the same for every series
    x_i(t) = r_i + W h_i(t) + b            own read-outs

c_i(t) are the variable's own observations as a function of time, for tasks in which they continue while the ODE runs.
With `own`, others act on a variable through m alone, so that softmax(a) is the coupling that the model uses. r_i is 0,
the variable's mean, or its last (or interpolated) own observation, which the state then corrects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.attention import Pairwise
from acenode.backend import ACCELERATED, Backend
from acenode.data.named_batches import SAME, NamedBatch
from acenode.data.passes import MidpointInputs, MidpointStates
from acenode.data.points import Points
from acenode.errors import SMALLER_STEPS, SolveError, UserError
from acenode.models.layers import MaskedGRU
from acenode.node import Trajectory
from acenode.ode.dense_output import interpolate_between, solve_at
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.runge_kutta_solve import within_memory
from acenode.ode.solve import Solver, solve
from acenode.ode.stepping import fixed_grid

SPEED = 4.0  # factor of f: a series lasts one unit of time, in which a state changes several times
WRITTEN_OUT = 400_000  # products in a sum over small matrices that is written out, at most
CONTROLS = 2  # numbers of c_i(t): the interpolated value, and how near the last and next observations are


class Embedding(nn.Module):
    """The vectors e_i that tell variables apart, (V, E)."""

    def __init__(self, variables: int, size: int) -> None:
        super().__init__()
        self.e = nn.Parameter(torch.zeros(variables, size))

    def initialise(self, generator: torch.Generator) -> None:
        self.e.data.normal_(0.0, 0.3, generator=generator)

    def forward(self, *parts: Tensor) -> Tensor:
        """Append e_i to the parts of variable i, (..., V, ·) each."""
        return torch.cat((*parts, self.e.expand(*parts[0].shape[:-1], -1)), -1)


def time_like(t: Tensor, x: Tensor) -> Tensor:
    """Return t, a number or one per sample, as a column beside x (B, ..., ·)."""
    column = t if t.dim() == 0 else t.reshape(-1, *[1] * (x.dim() - 1))
    return column.expand(*x.shape[:-1], 1)


def weighted_sums(S: Tensor, h: Tensor) -> Tensor:
    """Return S h, (..., V, V) times (..., V, k).

    On a CPU a product of many small matrices costs more than the sums written out. Either may be shared by the batch.
    """
    products = torch.broadcast_shapes(S.shape[:-2], h.shape[:-2]).numel() * S.shape[-2:].numel() * h.shape[-1]
    if h.device.type != "cpu" or products > WRITTEN_OUT:
        return S @ h
    return (S.unsqueeze(-1) * h.unsqueeze(-3)).sum(-2)


def layers(*sizes: int) -> nn.Sequential:
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        modules += [nn.Tanh()] if modules else []
        modules.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*modules)


class OwnRate(nn.Module):
    """dh_i/dt = f(h_i, m_i, c_i, e_i, t), the same f for every variable. Without attention, there is no m_i."""

    def __init__(self, block: int, embedding: Embedding, units: int, controls: int, *, attends: bool) -> None:
        super().__init__()
        inputs = (1 + attends) * block + embedding.e.shape[1] + controls + 1
        self.layers, self.attends = layers(inputs, units, units, block), attends

    def forward(self, h: Tensor, m: Tensor | None, c: Tensor | None, t: Tensor, embedding: Embedding) -> Tensor:
        parts = [x for x in (h, m if self.attends else None, c, time_like(t, h)) if x is not None]
        return SPEED * self.layers(embedding(*parts))


class MixedRate(nn.Module):
    """dh/dt = f(m, c, t), one f on all variables at once; f(h, c, t) without attention."""

    def __init__(self, variables: int, block: int, units: int, controls: int) -> None:
        super().__init__()
        self.layers = layers(variables * (block + controls) + 1, units, units, variables * block)
        self.shape = (variables, block)

    def forward(self, h: Tensor, m: Tensor | None, c: Tensor | None, t: Tensor, embedding: Embedding) -> Tensor:
        parts = [x.flatten(1) for x in (h if m is None else m, c) if x is not None]
        x = torch.cat((*parts, time_like(t, parts[0])), -1)
        return SPEED * self.layers(x).unflatten(-1, self.shape)


class BilinearRate(nn.Module):
    """g: da_ij/dt = u(m_i, e_i, t) · w(m_j, e_j, t) / r, with linear u and w of r numbers."""

    def __init__(self, block: int, embedding: int, rank: int) -> None:
        super().__init__()
        self.u_and_w, self.rank = nn.Linear(block + embedding + 1, 2 * rank), rank

    def forward(self, m: Tensor, t: Tensor, embedding: Embedding) -> Tensor:
        u, w = self.u_and_w(embedding(m, time_like(t, m))).split(self.rank, -1)
        return SPEED / self.rank * weighted_sums(u, w.transpose(-1, -2))


@dataclass(frozen=True)
class Control:
    """A path c(t), (B, G, V, CONTROLS) on G equal steps of the span; linear between them."""

    values: Tensor
    span: tuple[float, float]

    def __call__(self, t: Tensor) -> Tensor:
        """Return c(t), (B, V, CONTROLS); t is a number or one per sample."""
        if t.dim() == 0:
            return self.at(t.reshape(1))[0]
        index, share = self._place(t.reshape(-1))
        rows = torch.arange(len(self.values), device=t.device)
        return torch.lerp(self.values[rows, index], self.values[rows, index + 1], share.view(-1, 1, 1))

    def at(self, t: Tensor) -> Tensor:
        """Return c at common times t (T,), as (T, B, V, CONTROLS)."""
        index, share = self._place(t)
        low, high = (self.values.index_select(1, index + i).transpose(0, 1) for i in (0, 1))
        return torch.lerp(low, high, share.view(-1, 1, 1, 1))

    def _place(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the step of the path that contains t, and how much of it has passed."""
        last = self.values.shape[1] - 1
        place = ((t - self.span[0]) / (self.span[1] - self.span[0]) * last).clamp(0, last)
        low = place.floor().clamp(max=last - 1)
        return low.long(), (place - low).to(self.values)


class NamedField(nn.Module):
    """The vector field of (h, a), or of (h,) if attention does not evolve. h is (B, V, k), a is (B, V, V).

    With `q`, a(0) is computed in every evaluation, so that gradients "checkpointed" and "adjoint" find its parameters.
    """

    def __init__(self, f: nn.Module, g: nn.Module | None, embedding: Embedding, a0: Tensor | None, pull: float,
                 control: Control | None = None, *, detach_attention: bool = False, q: nn.Module | None = None) -> None:
        super().__init__()
        self.q = q
        self.f, self.g, self.embedding, self.a0, self.pull = f, g, embedding, a0, pull
        self.control, self.detach_attention = control, detach_attention

    def forward(self, t: Tensor, state: State) -> State:
        a0 = self.a0 if self.q is None else self.q()
        h, a = state[0], state[1] if len(state) > 1 else a0
        c = None if self.control is None else self.control(t)
        if a is None:
            return (self.f(h, None, c, t, self.embedding),)
        m = weighted_sums(self.weights(a.detach() if self.detach_attention else a), h)
        dh = self.f(h, m, c, t, self.embedding)
        if self.g is None:
            return (dh,)
        assert a0 is not None
        return dh, self.g(m, t, self.embedding) - self.pull * (a - a0)

    def weights(self, a: Tensor) -> Tensor:
        """Return softmax(a): row i is what variable i attends to."""
        return Pairwise.weights(a)


RECENT = 6  # observations that are read directly, besides the GRU
FEATURES = 3  # of an observation: its value, the time since the last one, the time until the ODE starts
STRENGTH = 3.0  # of the correlation in a(0) before training
ROUNDING = 0.01  # a step may be longer than its size by this share


class OwnEncoder(nn.Module):
    """h_i(0) from the observations of variable i alone, by a GRU that all variables share, told apart by e_i.

    Gaps are skipped: the GRU reads a variable's observations only, with the times between them. The few that it reads
    last are read directly too.

    Args:
        backwards: read the last observation first, for an ODE that starts before them.
    """

    def __init__(self, block: int, embedding: Embedding, hidden: int, *, backwards: bool) -> None:
        super().__init__()
        size = embedding.e.shape[1]
        self.gru = MaskedGRU(FEATURES + size, hidden)
        self.out = layers(hidden + RECENT * FEATURES + size, hidden, block)
        self.backwards = backwards

    def forward(self, seen: Points, start: float, embedding: Embedding) -> Tensor:
        """Return h(0), (B, V, k), for an ODE that begins at `start`."""
        x, observed = self._features(seen, start)  # (B, V, T, FEATURES), (B, V, T)
        B, V, T = observed.shape
        e = embedding.e[:, None].expand(B, V, T, -1)
        read = self.gru(torch.cat((x, e), -1).flatten(0, 1), observed.flatten(0, 1))[:, -1]  # (B·V, hidden)
        return self.out(embedding(read.unflatten(0, (B, V)), recent(x, observed, RECENT)))

    def _features(self, seen: Points, start: float) -> tuple[Tensor, Tensor]:
        """Return what is read of each variable's observations in the order of reading, and which there are."""
        t = seen.t[:, None].expand(-1, seen.x.shape[-1], -1)  # (B, V, T)
        x, observed = seen.x.transpose(1, 2), seen.m.transpose(1, 2) > 0
        if self.backwards:
            t, x, observed = t.flip(-1), x.flip(-1), observed.flip(-1)
        none = torch.inf if self.backwards else -torch.inf
        times = torch.where(observed, t, none)
        so_far = times.cummin(-1).values if self.backwards else times.cummax(-1).values
        before = F.pad(so_far[..., :-1], (1, 0), value=none)  # the time of the observation that is read before
        gap = torch.where(observed & before.isfinite(), (t - before).abs(), 0.0)
        return torch.stack((x, gap, (start - t).abs()), -1) * observed.unsqueeze(-1), observed


def recent(x: Tensor, observed: Tensor, count: int) -> Tensor:
    """Return the features of the observations that are read last, the very last first, (B, V, count · features).

    Where there are fewer, the rest is zero.
    """
    x, observed = x.flip(-2), observed.flip(-1)
    order = (~observed).to(torch.uint8).argsort(dim=-1, stable=True)[..., :count]
    chosen = x.gather(-2, order.unsqueeze(-1).expand(*order.shape, x.shape[-1]))
    chosen = chosen * observed.gather(-1, order).unsqueeze(-1)
    missing = count - order.shape[-1]
    return F.pad(chosen, (0, 0, 0, missing)).flatten(-2)


class InitialAttention(nn.Module):
    """q of named variables: a(0) = B, learned from zero; or a(0) = β |C| + B with the data's correlation C.

    The diagonal of C is left out: every variable reads its own state anyway.

    Args:
        variables: V.
        kind: "correlation" or "learned".
    """

    C: Tensor  # (V, V), absolute correlations of the training data, zero on the diagonal

    def __init__(self, variables: int, kind: str = "correlation") -> None:
        super().__init__()
        self.kind = kind
        self.B = nn.Parameter(torch.zeros(variables, variables))
        if kind == "correlation":
            self.strength = nn.Parameter(torch.tensor(STRENGTH))
            self.register_buffer("C", torch.zeros(variables, variables))

    def initialise(self, generator: torch.Generator) -> None:
        self.B.data.zero_()
        if self.kind == "correlation":
            self.strength.data.fill_(STRENGTH)

    def set_correlation(self, correlation: Tensor) -> None:
        if self.kind == "correlation":
            self.C.copy_(correlation.abs() * (1 - torch.eye(len(correlation))))

    def forward(self) -> Tensor:
        """Return a(0), (V, V)."""
        return self.strength * self.C + self.B if self.kind == "correlation" else self.B


@dataclass(frozen=True)
class NamedShape:
    """What a model of named variables reads and predicts."""

    variables: int
    classes: int = 0  # 0: it predicts values
    controlled: bool = False  # True if observations continue while the ODE runs


@dataclass(frozen=True)
class NamedPredictions:
    """What a model predicts of a batch; None for what it does not predict."""

    x: Tensor | None  # (B, T, V) at the targets
    logits: Tensor | None  # (B, classes)
    evaluations: Evaluations


class NamedODE(nn.Module):
    """The ODE layer of named variables: f, g, and q, which gives a(0).

    Args:
        attention: "evolving" integrates a; "fixed" keeps a(0); "none" exchanges nothing.
        pull: ρ, how fast attention returns to a(0).
        backend: which implementations may take the steps.
    """

    def __init__(self, f: nn.Module, g: nn.Module | None, q: InitialAttention | None, embedding: Embedding,
                 attention: str, pull: float, solver: Solver, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.backend = backend
        self.f, self.embedding, self.attention, self.pull, self.solver = f, embedding, attention, pull, solver
        self.g = g if attention == "evolving" else None
        self.q = q if attention != "none" else None

    def system(self, h0: Tensor, control: Control | None, detach_attention: bool = False) -> tuple[NamedField, State]:
        a0 = None if self.q is None else self.q()
        field = NamedField(self.f, self.g, self.embedding, a0, self.pull, control, detach_attention=detach_attention,
                           q=self.q if self.solver.gradient != "backprop" else None)
        if self.g is None or a0 is None:
            return field, (h0,)
        return field, (h0, a0.expand(len(h0), *a0.shape))

    def forward(self, h0: Tensor, t: list[float], control: Control | None = None) -> Trajectory:
        """Return h (T, B, V, k) and a (T, B, V, V) at the times t, the start first."""
        field, state = self.system(h0, control)
        solution = solve(field, state, t, self.solver, per_sample=not self.training)
        a = solution.states[1] if len(solution.states) > 1 else None
        if a is None and field.a0 is not None:
            a = field.a0.expand(len(t), len(h0), *field.a0.shape)
        return Trajectory(torch.tensor(t, dtype=torch.float64), solution.states[0], a, solution.evaluations)

    def states_at_steps(self, field: NamedField, h0: Tensor, grid: list[float], *,
                        slopes: bool = False) -> MidpointStates | None:
        """Take midpoint steps between the times of the grid, if there is a faster version of `solve`; otherwise None.

        With `slopes`, return dh/dt too.
        """
        solver, f, g = self.solver, field.f, field.g
        if not (solver.native and solver.method == "midpoint" and isinstance(f, OwnRate)
                and isinstance(g, BilinearRate | None)):
            return None
        control = None
        if field.control is not None:
            middle = [t for a, b in pairwise(grid) for t in (a, a + 0.5 * (b - a))]
            control = field.control.at(torch.tensor([*middle, grid[-1]], dtype=h0.dtype, device=h0.device))
        cost = Evaluations(2 * (len(grid) - 1) + slopes, step_sizes=[b - a for a, b in pairwise(grid)])
        found = dispatch.named_midpoint(self.backend, MidpointInputs(
            h0, field.a0, self.embedding.e, [(x.weight, x.bias) for x in f.layers if isinstance(x, nn.Linear)],
            None if g is None else (g.u_and_w.weight, g.u_and_w.bias), 0 if g is None else g.rank, SPEED, self.pull,
            field.detach_attention, control, grid, slopes, solver.gradient == "backprop", cost))
        if found is None:
            return None
        if found.failed < cost.accepted:
            raise SolveError("the state became NaN or infinite", grid[found.failed], cost.step_sizes[found.failed],
                             SMALLER_STEPS)
        return found


class NamedModel(nn.Module):
    """Encoder, ODE layer and read-out.

    Args:
        classes: how many classes there are to tell apart at the end of the span; 0 if values are predicted.
        relative: add the last own observation (or the interpolation of own observations) to the read-out.
    """

    def __init__(self, variables: int, block: int, embedding: Embedding, encoder: OwnEncoder, ode: NamedODE, *,
                 classes: int = 0, units: int = 32, relative: bool = False) -> None:
        super().__init__()
        self.embedding, self.encoder, self.ode, self.relative = embedding, encoder, ode, relative
        self.read_out: nn.Linear = nn.Linear(block, 1)
        self.classifier = layers(variables * block, units, classes) if classes else None

    def start(self, batch: NamedBatch) -> tuple[Tensor, Control | None]:
        """Return h at the start of the span, (B, V, k), and the observations that drive the ODE, if any do."""
        control = None if batch.control is None else Control(batch.control, batch.span)
        return self.encoder(batch.seen, batch.span[0], self.embedding), control

    def forward(self, batch: NamedBatch, *, detach_attention: bool = False) -> NamedPredictions:
        h0, control = self.start(batch)
        field, state = self.ode.system(h0, control, detach_attention)
        if self.classifier is not None:
            end, evaluations = self._end(field, state, batch)
            return NamedPredictions(None, self.classifier(end.flatten(1)), evaluations)
        h, evaluations = self._at_targets(field, state, batch)
        return NamedPredictions(self.values(h, batch.reference), None, evaluations)

    def _end(self, field: NamedField, state: State, batch: NamedBatch) -> tuple[Tensor, Evaluations]:
        solver = self.ode.solver
        fast = self.ode.states_at_steps(field, state[0], fixed_grid([*batch.span], solver.step_size, solver.max_steps))
        if fast is not None:
            return fast.h[-1], fast.cost
        solution = solve(field, state, batch.span, solver, per_sample=not self.training)
        return solution.states[0][-1], solution.evaluations

    def _at_targets(self, field: NamedField, state: State, batch: NamedBatch) -> tuple[Tensor, Evaluations]:
        solver = self.ode.solver
        if batch.times is not None:  # all series have the same targets, at which steps can end
            grid, targets, solver = step_ends(batch.span[0], batch.times, solver)
            if (fast := self.ode.states_at_steps(field, state[0], grid)) is not None:
                return fast.h[targets].transpose(0, 1), fast.cost
            solver = within_memory(solver, field, state, len(grid) - 1)
            field.q = self.ode.q if solver.gradient != "backprop" else None
            found = solve(field, state, grid, solver, per_sample=not self.training)
            return found.states[0][targets].transpose(0, 1), found.evaluations
        if solver.step_size is not None:
            grid = fixed_grid([*batch.span], solver.step_size, solver.max_steps)
            fast = self.ode.states_at_steps(field, state[0], grid, slopes=True)
            if fast is not None and fast.slopes is not None:
                return interpolate_between(grid, fast.h, fast.slopes, batch.target.t), fast.cost
        sampled = solve_at(field, state, batch.span, batch.target.t, solver, per_sample=not self.training)
        return sampled.h, sampled.evaluations

    def values(self, h: Tensor, reference: Tensor) -> Tensor:
        """Return the predicted values, (..., V), of states h (..., V, k) with references (..., V)."""
        x = self.read_out(h).squeeze(-1)
        return x + reference if self.relative else x

    def trajectory(self, batch: NamedBatch, t: list[float]) -> Trajectory:
        """Return h (F, B, V, k) and a (F, B, V, V) at common times.

        Args:
            batch: the series.
            t: F increasing times in units of the longest duration; the first is the start of the span, `batch.span[0]`.

        Raises:
            UserError: the first time is another one.
        """
        if not t or abs(t[0] - batch.span[0]) > SAME:
            raise UserError(f"the first time must be {batch.span[0]:g}, where the ODE of this batch starts "
                            "(batch.span[0])" + (f", not {t[0]:g}" if t else ""))
        h0, control = self.start(batch)
        return self.ode(h0, t, control)


def step_ends(start: float, times: Sequence[float], solver: Solver) -> tuple[list[float], list[int], Solver]:
    """Return times at which steps end, which of them are the given times, and a solver that steps there.

    A fixed-step solver takes equal steps between each two of the given times, none longer than its step size. Other
    solvers choose their own steps.
    """
    grid, chosen = [start], []
    for before, time in pairwise((start, *times)):
        count = 1 if solver.step_size is None else max(1, math.ceil((time - before) / solver.step_size - ROUNDING))
        grid += [before + (time - before) * i / count for i in range(1, count)] + [time]
        chosen.append(len(grid) - 1)
    return grid, chosen, replace(solver, step_size=None)
