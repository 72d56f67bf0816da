"""The ODE layers: plain (Eq. 1), augmented, and co-evolving (Eq. 3). Each maps h(0) to a `Trajectory`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from acenode.attention import Attend, Pairwise
from acenode.errors import SolveError, UserError
from acenode.ode.dense_output import SampledSolution, check_rows, solve_at
from acenode.ode.runge_kutta import Evaluations, State, VectorField
from acenode.ode.solve import Solution, Solver, checked_state, checked_times, has_batch, integrate, transforms_explained
from acenode.ode.stepping import Attempt

Attention = Literal["evolving", "fixed", "none"]
Times = Tensor | Sequence[float]
LayerEvent = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # (t, h, a) -> one number
TimeUse = Literal["batch", "alone", "shared"]
RecordSteps = Callable[[nn.Module, State, Solver], tuple[State, Attempt | None]]  # start, what computes steps

TOLERANCE = 0.02  # of slopes that should be equal, relative to the largest: far above rounding, also in half precision
ALONE = ("f, g or q does not compute with one time per sample, so every sample is solved alone, which is slow: let it "
         "broadcast t, of shape (B, 1, ...), or use Solver(per_sample=False)")


@dataclass(frozen=True)
class Trajectory:
    """The output of an ODE layer: h and a at the requested times, and what the solve cost.

    Args:
        t: (T,), the requested times; with an event that happened, those before it and, last, the event's.
        h: (T, B, ...).
        a: the attention logits, (T, B, d, d) if pairwise, (T, B, ...) if elementwise; None without attention.
        evaluations: how often the field was evaluated and which steps were taken.
        event_t: the time at which an event ended the solve; None if none did.

    Examples:
        >>> import torch
        >>> from acenode import NODE
        >>> class Decay(torch.nn.Module):
        ...     def forward(self, h, t):
        ...         return -h
        >>> trajectory = NODE(Decay())(torch.ones(4, 2), [0.0, 0.5, 1.0])
        >>> trajectory.t.shape, trajectory.h.shape, trajectory.a
        (torch.Size([3]), torch.Size([3, 4, 2]), None)
        >>> trajectory.evaluations.forward > 0
        True
    """

    t: Tensor
    h: Tensor
    a: Tensor | None
    evaluations: Evaluations
    event_t: Tensor | None = None


class LayerField(nn.Module):
    """Base of the vector fields of (h, a) and (h,).

    With one time per sample, g and q get it to broadcast against a, or against h if `time_like_output` is False.
    """

    names: ClassVar = {0: ("f", "h"), 1: ("g", "a")}  # what computes the slope of each block, and the block
    time_like_output = True


class _PlainField(LayerField):
    """The vector field of (h,): dh/dt = f(h, t)."""

    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f

    def forward(self, t: Tensor, state: State) -> State:
        return (self.f(state[0], t),)


class ODELayer(nn.Module):
    """Base of the ODE layers. A layer defines `system`, the initial value problem it solves."""

    def __init__(self, solver: Solver | None = None) -> None:
        super().__init__()
        if not isinstance(solver, Solver | None):
            raise UserError(f"solver must be a Solver, such as Solver('dopri5'), not {solver!r}")
        self.solver = solver or Solver()
        self.record_steps: RecordSteps | None = None  # lets training on a GPU replay recorded steps
        self._reported_alone = False  # whether the warning was given that every sample is solved alone

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        """Return the vector field and the state at t_0."""
        raise NotImplementedError

    def at(self, h0: Tensor, times: Tensor, span: tuple[float, float] = (0.0, 1.0), *,
           detach_attention: bool = False) -> SampledSolution:
        """Evaluate h at different times for every sample, times (B, T) within the span."""
        with self._checked(h0):
            field, state = self.system(h0, detach_attention)
            use = self._use_of_time(field, state, span)
            if use == "alone":
                check_rows(times, len(h0))
                found = [solve_at(field, tuple(b[i:i + 1] for b in state), span, times[i:i + 1], self.solver)
                         for i in range(len(h0))]
                end = tuple(torch.cat(block) for block in zip(*(s.end for s in found), strict=True))
                return SampledSolution(torch.cat([s.h for s in found]), end, _total([s.evaluations for s in found]))
            attempt = None
            if self.record_steps is not None and self.training:
                state, attempt = self.record_steps(field, state, self.solver)
            return solve_at(field, state, span, times, self.solver, per_sample=use == "batch", attempt=attempt)

    def forward(self, h0: Tensor, t: Times = (0.0, 1.0), *, detach_attention: bool = False,
                event: LayerEvent | None = None) -> Trajectory:
        """Integrate from h0, and from a(0) = q(h0) if attention evolves.

        Args:
            h0: (B, ...), h at t[0]; (B, d) for pairwise attention.
            t: (T,), the times at which h and a are returned, t[0] first.
            detach_attention: treat a(t) as a constant in the gradient, as Eq. 7 reads if a is held fixed. It has no
                effect on layers without attention.
            event: called as event(t, h, a), with a None unless attention is evolving, returns one number; the solve
                ends where it crosses zero.

        Returns:
            A `Trajectory`; its a is computed without gradients for fixed attention, and None without attention.

        Raises:
            UserError: f, g or q returns a tensor of another shape than it should, or the times are not monotone.
            SolveError: the solve failed.
        """
        solution = self._solve(h0, t, detach_attention, event)
        times = t if isinstance(t, Tensor) else torch.tensor(t, dtype=torch.float64)
        if event is not None:
            times = solution.t.detach()  # up to the event
        return Trajectory(times, solution.states[0], self._attention(solution, times), solution.evaluations,
                          solution.event_t)

    def _attention(self, solution: Solution, t: Tensor) -> Tensor | None:
        return None

    def _solve(self, h0: Tensor, t: Times, detach_attention: bool, event: LayerEvent | None) -> Solution:
        """Integrate; in evaluation every sample has its own steps where the solver allows it."""
        times = checked_times(t)
        with self._checked(h0):
            field, state = self.system(h0, detach_attention)
            state = checked_state(state)
            if event is not None:
                return integrate(field, state, times, self.solver,
                                 event=lambda t, y: event(t, y[0], y[1] if len(y) > 1 else None))
            use = self._use_of_time(field, state, (times[0], times[-1]))
            if use != "alone":
                return integrate(field, state, times, self.solver, per_sample=use == "batch")
            found = [integrate(field, tuple(b[i:i + 1] for b in state), times, self.solver) for i in range(len(h0))]
            blocks = zip(*(s.states for s in found), strict=True)
            return Solution(tuple(torch.cat(b, dim=1) for b in blocks), _total([s.evaluations for s in found]),
                            found[0].t)

    @contextmanager
    def _checked(self, h0: Tensor) -> Iterator[None]:
        """Raise a UserError for an h(0) that no f can take, or that failed because of its precision."""
        if not isinstance(h0, Tensor) or not h0.is_floating_point():
            given, how = ((h0.dtype, "h.float()") if isinstance(h0, Tensor) else
                          (f"{type(h0).__module__}.{type(h0).__name__}".removeprefix("builtins."),
                           "torch.as_tensor(h, dtype=torch.float32)"))
            raise UserError(f"h(0) is a floating-point tensor, not {given}: convert it, such as by {how}")
        if not h0.numel():
            raise UserError(f"h(0) is empty, {tuple(h0.shape)}: give the layer at least one sample")
        try:
            yield
        except SolveError:
            raise
        except RuntimeError as error:
            types = {p.dtype for p in self.parameters() if p.is_floating_point()}
            if not types or h0.dtype in types or torch.is_autocast_enabled(h0.device.type):
                raise
            raise UserError(f"h(0) is {h0.dtype} and the layer's parameters are {', '.join(map(str, types))}: convert "
                            "one of them, such as by h.to(dtype) or layer.to(dtype)") from error

    def _use_of_time(self, field: nn.Module, state: State, span: tuple[float, float]) -> TimeUse:
        """Return how the batch is solved, and let the field choose which shape of t it passes to its g or q.

        It is found out at every evaluation, on a few samples: f, g and q may have changed since the last one.
        """
        if self.training or not self.solver.steps_per_sample or not has_batch(state):
            return "shared"
        for like_output in (True, False):
            if isinstance(field, LayerField):
                field.time_like_output = like_output
            with transforms_explained(self.solver):
                use = time_use(field, state, span)
            if use == "batch":
                break
        if use == "alone" and not self._reported_alone:
            warnings.warn(ALONE, stacklevel=4)
        self._reported_alone = use == "alone"
        return use


class NODE(ODELayer):
    """A neural ODE layer (Eq. 1): dh/dt = f(h, t; θ_f).

    Args:
        f: a module called as f(h, t) that returns a tensor of h's shape.
        solver: how to integrate; `Solver()` if None.

    Raises:
        UserError: the solver is not a `Solver`.

    Examples:
        >>> import torch
        >>> from acenode import NODE, Solver
        >>> class Field(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = torch.nn.Linear(2, 2)
        ...     def forward(self, h, t):
        ...         return torch.tanh(self.linear(h))
        >>> layer = NODE(Field(), Solver("rk4", step_size=0.1))
        >>> layer(torch.zeros(8, 2)).h[-1].shape
        torch.Size([8, 2])
    """

    def __init__(self, f: nn.Module, solver: Solver | None = None) -> None:
        super().__init__(solver)
        self.f = f

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        return _PlainField(self.f), (h0,)


class AugmentedNODE(NODE):
    """An augmented neural ODE: `NODE` on h(0) with zeros appended, so that trajectories need not cross.

    Args:
        f: a module called as f(h, t), where h has the appended coordinates too.
        extra: how many zeros, or channels of zeros, to append.
        dim: the axis of h(0), (B, ...), along which they are appended.
        solver: how to integrate; `Solver()` if None.

    Raises:
        UserError: `extra` is less than one, or the solver is not a `Solver`.

    Examples:
        >>> import torch
        >>> from acenode import AugmentedNODE
        >>> class Decay(torch.nn.Module):
        ...     def forward(self, h, t):
        ...         return -h
        >>> AugmentedNODE(Decay(), extra=5)(torch.ones(8, 3, 28, 28)).h[-1].shape
        torch.Size([8, 8, 28, 28])
    """

    def __init__(self, f: nn.Module, extra: int, dim: int = 1, solver: Solver | None = None) -> None:
        super().__init__(f, solver)
        if extra < 1:
            raise UserError(f"augmentation appends at least one dimension, not {extra}")
        self.extra, self.dim = extra, dim

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        shape = list(h0.shape)
        shape[self.dim] = self.extra
        return _PlainField(self.f), (torch.cat((h0, h0.new_zeros(shape)), dim=self.dim),)


class CoEvolving(LayerField):
    """The vector field of (h, a) (Eq. 3): dh/dt = f(h', t), da/dt = g(h', t), h' the attended h (Eq. 4 or 5)."""

    def __init__(self, layer: ACENODE, detach_attention: bool) -> None:
        super().__init__()
        assert layer.g is not None
        self.f, self.g = layer.f, layer.g
        self.attend, self.g_reads_attention = layer.attend, layer.g_reads_attention
        self.detach_attention = detach_attention

    def forward(self, t: Tensor, state: State) -> State:
        h, a = state
        attended = self.attend(h, a.detach() if self.detach_attention else a)
        t_g = like_block(t, a) if self.time_like_output else t
        rate = self.g(attended, t_g, a) if self.g_reads_attention else self.g(attended, t_g)
        return self.f(attended, t), rate


class _FixedAttentionField(LayerField):
    """The vector field of (h,) with fixed attention: dh/dt = f(h', t), where a(t) = q(h(t), t) is not integrated."""

    def __init__(self, layer: ACENODE) -> None:
        super().__init__()
        assert layer.q is not None
        self.f, self.q, self.attend = layer.f, layer.q, layer.attend

    def forward(self, t: Tensor, state: State) -> State:
        (h,) = state
        t_q = t.unsqueeze(-1) if t.dim() and self.time_like_output and self.attend.name == "pairwise" else t
        return (self.f(self.attend(h, self.q(h, t_q)), t),)


class ACENODE(ODELayer):
    """An attentive co-evolving neural ODE layer (Eq. 3), h and a integrated as one state.

    dh/dt = f(h', t; θ_f), da/dt = g(h', t; θ_g), a(0) = q(h(0)), where h' is the attended h (Eq. 4 or 5).

    Args:
        f: a module called as f(h', t) that returns a tensor of h's shape.
        g: a module called as g(h', t) that returns a tensor of a's shape; needed for evolving attention.
        q: a module called as q(h) that returns a(0), such as `Correlation` or `Dense`; needed unless attention is
            "none". Fixed attention calls it as q(h, t).
        attend: `Pairwise()` or `Elementwise()`; `Pairwise()` if None.
        attention: "evolving" integrates a; "fixed" uses a(t) = q(h(t), t) and no g; "none" leaves a plain NODE.
        solver: how to integrate; `Solver()` if None.
        g_reads_attention: call g(h', t, a).

    Raises:
        UserError: a module that the kind of attention needs is missing, or the solver is not a `Solver`.

    Examples:
        >>> import torch
        >>> from acenode import ACENODE, Dense
        >>> class Field(torch.nn.Module):
        ...     def __init__(self, d, *shape):
        ...         super().__init__()
        ...         self.linear, self.shape = torch.nn.Linear(d, torch.Size(shape).numel()), shape
        ...     def forward(self, h, t):
        ...         return torch.tanh(self.linear(h)).unflatten(-1, self.shape)
        >>> layer = ACENODE(Field(3, 3), Field(3, 3, 3), Dense((3,)))
        >>> trajectory = layer(torch.randn(8, 3), [0.0, 0.5, 1.0])
        >>> trajectory.h.shape, trajectory.a.shape
        (torch.Size([3, 8, 3]), torch.Size([3, 8, 3, 3]))
    """

    def __init__(self, f: nn.Module, g: nn.Module | None = None, q: nn.Module | None = None, *,
                 attend: Attend | None = None, attention: Attention = "evolving", solver: Solver | None = None,
                 g_reads_attention: bool = False) -> None:
        super().__init__(solver)
        if attention not in ("evolving", "fixed", "none"):
            raise UserError(f"unknown attention {attention!r}: choose evolving, fixed or none")
        if attention == "evolving" and (g is None or q is None):
            raise UserError("evolving attention needs g, which computes da/dt, and q, which computes a(0)")
        if attention == "fixed" and q is None:
            raise UserError("fixed attention needs q, which computes a(t) from h(t)")
        self.f = f
        self.g = g if attention == "evolving" else None
        self.q = q if attention != "none" else None
        self.attend, self.attention = (attend() if isinstance(attend, type) else attend) or Pairwise(), attention
        self.g_reads_attention = g_reads_attention

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        if self.attention == "none":
            return _PlainField(self.f), (h0,)
        assert self.q is not None
        if self.attention == "fixed":
            return _FixedAttentionField(self), (h0,)
        a0 = self.q(h0)
        self.attend.check(h0, a0)
        return CoEvolving(self, detach_attention), (h0, a0)

    def _attention(self, solution: Solution, t: Tensor) -> Tensor | None:
        if self.attention != "fixed":
            return solution.states[1] if self.attention == "evolving" else None
        assert self.q is not None
        with torch.no_grad():  # for display only: the solve already used it
            return torch.stack([self.q(x, s) for x, s in zip(solution.states[0], t, strict=True)])


# One time per sample ------------------------------------------------------------------------------------------------
# In training t is a scalar. With steps per sample t is (B, 1, ...), which is right only for a field that broadcasts it.


def like_block(t: Tensor, block: Tensor) -> Tensor:
    """Shape per-sample times (B, 1, ...) to broadcast against a block (B, ...); a scalar stays a scalar."""
    return t if t.dim() in (0, block.dim()) else t.reshape(-1, *[1] * (block.dim() - 1))


@torch.no_grad()
def time_use(field: VectorField, state: State, span: tuple[float, float]) -> TimeUse:
    """Find out on a few samples how a field, which takes t as a scalar or as (B, 1, ...), can be solved.

    Returns:
        "batch" if samples at different times give the slopes that each of them gives alone; "alone" if they do not,
        and each has to be solved by itself; "shared" if the slope of a sample depends on the rest of its batch.
    """
    sizes = {size for block in state for size in block.shape[1:]}
    n = next(n for n in range(2, len(sizes) + 3) if n not in sizes)  # so that no other axis can pass for the batch
    index = torch.arange(n, device=state[0].device) % len(state[0])
    rows = tuple(block[index] for block in state)
    times = torch.linspace(*span, n, dtype=torch.float64).to(rows[0])
    try:
        alone = _slopes_alone(field, rows, times)
    except Exception:  # the field needs the whole batch, or is wrong for every t, which the solve will report
        return "shared"
    try:
        same = _equal(tuple(field(like_block(times[:, None], rows[0]), rows)), alone)
    except Exception as error:
        if str(error).startswith("vmap:"):  # values cannot be read here, nor in the solve
            raise
        same = False
    if same:
        return "batch"
    common = times[:1].expand(n)
    try:
        return "alone" if _equal(tuple(field(common[0], rows)), _slopes_alone(field, rows, common)) else "shared"
    except Exception:
        return "alone"


def _slopes_alone(field: VectorField, rows: State, times: Tensor) -> State:
    each = [tuple(field(t, tuple(b[i:i + 1] for b in rows))) for i, t in enumerate(times)]
    return tuple(torch.cat(block) for block in zip(*each, strict=True))


def _equal(x: State, y: State) -> bool:
    """Return whether two slopes are equal up to rounding; NaN equals NaN."""
    return all(a.shape == b.shape and bool(torch.isclose(
        a, b, rtol=0.0, atol=TOLERANCE * float(b.nan_to_num(0.0, 0.0, 0.0).abs().max()) + 1e-12, equal_nan=True).all())
        for a, b in zip(x, y, strict=True))


def _total(costs: Sequence[Evaluations]) -> Evaluations:
    return Evaluations(sum(c.forward for c in costs), 0, sum(c.rejected for c in costs),
                       [size for c in costs for size in c.step_sizes])
