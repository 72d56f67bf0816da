"""The ODE layers: plain, augmented and co-evolving. Each turns h(0) into a `Trajectory`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from acenode.attention import Attend, Pairwise
from acenode.errors import UserError
from acenode.ode.dense_output import SampledSolution, solve_at
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.solve import Solver, solve

Attention = Literal["evolving", "fixed", "none"]
Times = Tensor | Sequence[float]


@dataclass(frozen=True)
class Trajectory:
    """h and, where there is one, a at the requested times, and what the solve cost."""

    t: Tensor  # (T,)
    h: Tensor  # (T, B, ...)
    a: Tensor | None  # (T, B, d, d) pairwise, (T, B, ...) elementwise
    evaluations: Evaluations


class _Plain(nn.Module):
    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f

    def forward(self, t: Tensor, state: State) -> State:
        return (_same("f", self.f(state[0], t), "h", state[0]),)


def _same(name: str, rate: Tensor, of: str, state: Tensor) -> Tensor:
    """The rate itself, if it has its state's shape; broadcasting would hide a mistake."""
    if rate.shape != state.shape:
        raise UserError(f"{name} gave {tuple(rate.shape)} where {of} is {tuple(state.shape)}: they must be equal")
    return rate


def _check_solver(solver: Solver | None) -> Solver:
    if not isinstance(solver, Solver | None):
        raise UserError(f"solver must be a Solver, such as Solver('dopri5'), not {solver!r}")
    return solver or Solver()


class _Layer(nn.Module):
    """What every ODE layer does with its `system`: the field and the state at t_0."""

    solver: Solver

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        raise NotImplementedError

    def at(self, h0: Tensor, times: Tensor, span: tuple[float, float] = (0.0, 1.0), *,
           detach_attention: bool = False) -> SampledSolution:
        """h at times (B, T) of every sample's own, within the span."""
        field, state = self.system(h0, detach_attention)
        return solve_at(field, state, span, times, self.solver, per_sample=not self.training)


class NODE(_Layer):
    """dh/dt = f(h, t; θ_f) (Eq. 1)."""

    def __init__(self, f: nn.Module, solver: Solver | None = None) -> None:
        super().__init__()
        self.f, self.solver = f, _check_solver(solver)

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        return _Plain(self.f), (h0,)

    def forward(self, h0: Tensor, t: Times = (0.0, 1.0), *, detach_attention: bool = False) -> Trajectory:
        """`detach_attention` is there so that all layers are called alike; there is none here."""
        field, state = self.system(h0, detach_attention)
        solution = solve(field, state, t, self.solver, per_sample=not self.training)
        return Trajectory(_times(t), solution.states[0], None, solution.evaluations)


class AugmentedNODE(NODE):
    """The same on h(0) ⊕ 0: `extra` zero coordinates, or channels, appended along `dim`; f acts on all of them."""

    def __init__(self, f: nn.Module, extra: int, dim: int = 1, solver: Solver | None = None) -> None:
        super().__init__(f, solver)
        if extra < 1:
            raise UserError(f"augmentation appends at least one dimension, not {extra}")
        self.extra, self.dim = extra, dim

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        shape = list(h0.shape)
        shape[self.dim] = self.extra
        return _Plain(self.f), (torch.cat((h0, h0.new_zeros(shape)), dim=self.dim),)


class CoEvolving(nn.Module):
    """The joint field of (h, a): f and g both read the attended h (Eqs. 3 to 5)."""

    def __init__(self, layer: ACENODE, detach_attention: bool) -> None:
        super().__init__()
        assert layer.g is not None
        self.f, self.g = layer.f, layer.g
        self.attend, self.g_reads_attention = layer.attend, layer.g_reads_attention
        self.detach_attention, self.fused = detach_attention, layer.fused

    def forward(self, t: Tensor, state: State) -> State:
        h, a = state
        if self.fused is not None:
            return self.fused(t, h, a, self.detach_attention)
        attended = self.attend(h, a.detach() if self.detach_attention else a)
        rate = self.g(attended, t, a) if self.g_reads_attention else self.g(attended, t)
        return _same("f", self.f(attended, t), "h", h), _same("g", rate, "a", a)


class _Fixed(nn.Module):
    """dh/dt = f(h'), with a(t) = q(h(t)) made anew at every evaluation: nothing of a is integrated."""

    def __init__(self, layer: ACENODE) -> None:
        super().__init__()
        assert layer.q is not None
        self.f, self.q, self.attend = layer.f, layer.q, layer.attend

    def forward(self, t: Tensor, state: State) -> State:
        (h,) = state
        return (_same("f", self.f(self.attend(h, self.q(h, t)), t), "h", h),)


class ACENODE(_Layer):
    """Attentive co-evolving NODE: dh/dt = f(h', t), da/dt = g(h', t), a(0) = q(h(0)), integrated as one state.

    f(h, t), g(h, t) and q(h) are any modules; g(h, t, a) with `g_reads_attention`, and q(h, t) where attention is
    fixed, since it is then asked at every t. `attention` "fixed" has no g, "none" has neither g nor q.
    """

    def __init__(self, f: nn.Module, g: nn.Module | None = None, q: nn.Module | None = None, *,
                 attend: Attend | None = None, attention: Attention = "evolving", solver: Solver | None = None,
                 g_reads_attention: bool = False) -> None:
        super().__init__()
        if attention not in ("evolving", "fixed", "none"):
            raise UserError(f"there is no attention {attention!r}: choose evolving, fixed or none")
        if attention == "evolving" and (g is None or q is None):
            raise UserError("evolving attention needs g, how a changes, and q, how a(0) is made")
        if attention == "fixed" and q is None:
            raise UserError("fixed attention needs q, how a(t) is made from h(t)")
        self.f = f
        self.g = g if attention == "evolving" else None
        self.q = q if attention != "none" else None
        self.attend, self.attention = (attend() if isinstance(attend, type) else attend) or Pairwise(), attention
        self.solver, self.g_reads_attention = _check_solver(solver), g_reads_attention
        self.fused: Callable[[Tensor, Tensor, Tensor, bool], State] | None = None  # f and g in few kernels, see engine

    def system(self, h0: Tensor, detach_attention: bool) -> tuple[nn.Module, State]:
        if self.attention == "none":
            return _Plain(self.f), (h0,)
        assert self.q is not None
        if self.attention == "fixed":
            return _Fixed(self), (h0,)
        a0 = self.q(h0)
        self.attend.check(h0, a0)
        return CoEvolving(self, detach_attention), (h0, a0)

    def forward(self, h0: Tensor, t: Times = (0.0, 1.0), *, detach_attention: bool = False) -> Trajectory:
        """`detach_attention` takes a(t) as a constant in the gradient, as the paper's first formula reads."""
        field, state = self.system(h0, detach_attention)
        solution = solve(field, state, t, self.solver, per_sample=not self.training)
        times, h = _times(t), solution.states[0]
        a = solution.states[1] if self.attention == "evolving" else None
        if self.attention == "fixed":
            assert self.q is not None
            with torch.no_grad():  # to look at; h already felt it
                a = torch.stack([self.q(x, s) for x, s in zip(h, times, strict=True)])
        return Trajectory(times, h, a, solution.evaluations)


def _times(t: Times) -> Tensor:
    return t if isinstance(t, Tensor) else torch.tensor(t, dtype=torch.float64)
