"""ODE layers with a few hidden units, such as those of the playground, solved and differentiated in numpy.

torch spends its time on calling operations here; numpy calls them in a tenth of that. The plain twins are the layers of
`acenode.node`, which train the same network if the trainer gets no pass of its own. The steps are those of
`acenode.ode.stepping`; only the arrays differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from acenode.attention import Pairwise
from acenode.node import ACENODE, NODE, AugmentedNODE, Trajectory
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State, Step, dense_weights
from acenode.ode.stepping import SharedSteps, adaptive_steps
from acenode.ode.tableaus import TABLEAUS
from acenode.training.trainer import PassResult, PassSpec, gradient_norm

Array = np.ndarray
Saved = tuple[Array, ...]  # what the backward pass of one evaluation needs


class SmallMLP:
    """W₂ tanh(W₁ x + w t + b₁) + b₂ on rows of x, with the arrays of torch layers (`read`, `time`, `write`).

    Backward passes are collected, and `gradients` sums them up in one go.
    """

    def __init__(self, read: nn.Linear, write: nn.Linear, time: nn.Linear | None = None) -> None:
        self.parameters: list[Tensor] = [read.weight, read.bias, write.weight, write.bias]
        self.parameters += [time.weight] if time is not None else []
        self.W1, self.b1, self.W2, self.b2 = (p.detach().numpy() for p in self.parameters[:4])  # share their memory
        self.w = time.weight.detach().numpy()[:, 0] if time is not None else None
        self.tape: list[tuple[Array, float, Array, Array, Array]] = []  # x, t, hidden, dL/dy, dL/d(W₁ x + …)

    def forward(self, x: Array, t: float) -> tuple[Array, Array]:
        """Return y and the hidden units, which the backward pass needs."""
        shift = self.b1 if self.w is None else self.b1 + np.float32(t) * self.w
        z = np.tanh(x @ self.W1.T + shift)
        return z @ self.W2.T + self.b2, z

    def backward(self, x: Array, t: float, z: Array, gy: Array) -> Array:
        """Return dL/dx from dL/dy, and keep what the parameters' gradients need."""
        gz = (gy @ self.W2) * (1 - z * z)
        self.tape.append((x, t, z, gy, gz))
        return gz @ self.W1

    def gradients(self) -> list[Array]:
        """Return dL/dθ of every parameter, in order."""
        if not self.tape:
            return [np.zeros(p.shape, np.float32) for p in self.parameters]
        x, z, gy, gz = (np.concatenate([entry[i] for entry in self.tape]) for i in (0, 2, 3, 4))
        found = [gz.T @ x, gz.sum(0), gy.T @ z, gy.sum(0)]
        if self.w is not None:
            times = np.repeat(np.array([t for _, t, *_ in self.tape], np.float32), len(self.tape[0][0]))
            found.append((times @ gz).reshape(-1, 1))
        return found


def _elementwise(h: Array, a: Array) -> tuple[Array, Array]:
    """Return h′ = h ⊙ sigmoid(a) (Eq. 5), and the weights."""
    weights = 0.5 * (1 + np.tanh(0.5 * a))  # without overflow
    return h * weights, weights


def _elementwise_back(h: Array, weights: Array, g: Array) -> tuple[Array, Array]:
    """Return dL/dh and dL/da from dL/dh′."""
    return g * weights, g * h * weights * (1 - weights)


def _pairwise(h: Array, a: Array) -> tuple[Array, Array]:
    """The same for h′ = softmax(a) h (Eq. 4); a's rows stand one after another in a state's columns."""
    a = a.reshape(len(h), h.shape[1], -1)
    e = np.exp(a - a.max(-1, keepdims=True))
    weights = e / e.sum(-1, keepdims=True)
    return np.einsum("bij,bj->bi", weights, h), weights


def _pairwise_back(h: Array, weights: Array, g: Array) -> tuple[Array, Array]:
    gw = g[:, :, None] * h[:, None, :]
    ga = weights * (gw - np.einsum("bij,bij->bi", gw, weights)[:, :, None])
    return np.einsum("bi,bij->bj", g, weights), ga.reshape(len(h), -1)


class SmallNetwork:
    """The arrays of an ODE layer: f and, with attention, g and q. They share the memory of the torch parameters.

    A state is (B, n); its blocks, h and a, are columns of it.

    Args:
        layer: whose f and g have the layers of `SmallMLP`, and whose q is `Dense`.
        d: the number of coordinates of h(0).
    """

    def __init__(self, layer: NODE | ACENODE, d: int) -> None:
        self.layer, self.d, self.q = layer, d, None
        self.h = slice(0, d + (layer.extra if isinstance(layer, AugmentedNODE) else 0))
        modules: list[Any] = [layer.f, layer.g] if isinstance(layer, ACENODE) else [layer.f]
        self.fields = [SmallMLP(module.read, module.write, module.time) for module in modules]
        self.networks = [*self.fields]
        if isinstance(layer, ACENODE):
            read, _, write = layer.q.layers  # type: ignore[union-attr, misc]
            self.q = SmallMLP(read, write)
            self.networks.append(self.q)
            self.attend, self.attend_back = ((_pairwise, _pairwise_back) if isinstance(layer.attend, Pairwise)
                                             else (_elementwise, _elementwise_back))
        self.blocks = [self.h, slice(self.h.stop, None)][:len(self.fields)]

    def forward(self, y: Array, t: float) -> tuple[Array, Saved]:
        """Return d(state)/dt, and what its backward pass needs."""
        if self.q is None:
            rate, z = self.fields[0].forward(y, t)
            return rate, (y, z)
        f, g = self.fields
        h = y[:, self.h]
        attended, weights = self.attend(h, y[:, self.h.stop:])
        dh, zf = f.forward(attended, t)
        da, zg = g.forward(attended, t)
        return np.concatenate((dh, da), 1), (h, weights, attended, zf, zg)

    def backward(self, t: float, saved: Saved, grad: Array) -> Array:
        if self.q is None:
            return self.fields[0].backward(saved[0], t, saved[1], grad)
        (f, g), (h, weights, attended, zf, zg) = self.fields, saved
        g_attended = f.backward(attended, t, zf, grad[:, self.h]) + g.backward(attended, t, zg, grad[:, self.h.stop:])
        return np.concatenate(self.attend_back(h, weights, g_attended), 1)

    def solve(self, h0: Array, times: Sequence[float]) -> tuple[SmallSolve, Array | None]:
        """Integrate from h0 (B, d); also return the hidden units of q."""
        more, z = np.zeros((len(h0), self.h.stop - self.d), np.float32), None
        if self.q is not None:
            more, z = self.q.forward(h0, 0.0)
        return SmallSolve(self, np.concatenate((h0, more), 1), times, self.layer.solver), z

    @np.errstate(over="ignore", invalid="ignore")  # a solve that diverges raises a SolveError
    def trajectory(self, h0: Tensor, times: Sequence[float]) -> Trajectory:
        """Return what the layer returns, without gradients."""
        solved, _ = self.solve(h0.numpy(), times)
        h, a = torch.from_numpy(solved.states[..., self.h]), None
        if isinstance(self.layer, ACENODE):
            a = torch.from_numpy(solved.states[..., self.h.stop:].copy())
            if isinstance(self.layer.attend, Pairwise):
                a = a.unflatten(-1, (self.d, self.d))
        return Trajectory(torch.tensor(times, dtype=torch.float64), h, a, solved.cost)


@dataclass(frozen=True)
class SmallStep:
    """A step from y0 to y1, and which of the requested times it reaches."""

    t: float
    dt: float
    y0: Array
    y1: Array
    ks: list[Array]
    stages: list[tuple[float, Saved]]  # of the second stage on: its time and what was saved
    inside: list[tuple[int, list[float]]]  # number of the time, weights of the stages
    at_end: list[int]  # numbers of times at the step's end


class SmallSolve(SharedSteps):
    """A solve from the first of the times to the last, which can be differentiated.

    `states` (T, B, n) are those at the times.
    """

    def __init__(self, network: SmallNetwork, y0: Array, times: Sequence[float], solver: Solver) -> None:
        self.network, self.cost, self.tableau = network, Evaluations(), TABLEAUS[solver.method]
        self.states = np.empty((len(times), *y0.shape), np.float32)
        self.states[0] = y0
        self.start: tuple[float, Saved] | None = None  # the time of the first evaluation, and what it saved
        self.steps: list[SmallStep] = []
        reached = 1
        for _ in adaptive_steps(self, (torch.from_numpy(y0),), times, solver, self,  # type: ignore[arg-type]
                                self._attempt):
            self.steps.append(self.tried)
            reached = self._keep(self.tried, times, reached)

    def __call__(self, t: float, y: State) -> State:
        self.cost.forward += 1
        rate, saved = self.network.forward(y[0].numpy(), t)
        self.start = self.start or (t, saved)
        return (torch.from_numpy(rate),)

    def norm(self, error: State, y0: State, y1: State, solver: Solver) -> float:
        largest = np.maximum(np.abs(y0[0].numpy()), np.abs(y1[0].numpy()))
        ratio = error[0].numpy() / (solver.atol + solver.rtol * largest)
        return max(math.sqrt(float(np.mean(ratio[:, block] ** 2))) for block in self.network.blocks)

    def _attempt(self, _: Any, t: float, dt: float, y: State, k1: State) -> tuple[Step, float]:
        ks, stages, y0 = [k1[0].numpy()], list[tuple[float, Saved]](), y[0].numpy()
        for c, row in zip(self.tableau.c, self.tableau.a, strict=True):
            y1 = combined(y0, dt, row, ks)
            k, saved = self.network.forward(y1, t + c * dt)
            ks.append(k)
            stages.append((t + c * dt, saved))
        self.cost.forward += len(stages)
        self.tried = SmallStep(t, dt, y0, y1, ks, stages, [], [])
        error = combined(np.zeros_like(y0), dt, self.tableau.error or (), ks)
        slopes = [k1] * len(stages) + [(torch.from_numpy(k),)]  # nobody reads those between
        end = (torch.from_numpy(y1),)
        return Step(t, dt, y, slopes, end), self.norm((torch.from_numpy(error),), y, end, self.network.layer.solver)

    def _keep(self, step: SmallStep, times: Sequence[float], reached: int) -> int:
        """Record the states at the times that an accepted step reaches; return how many are reached by now."""
        t, dt = step.t, step.dt
        near = 4 * math.ulp(max(abs(t), abs(t + dt)))
        while reached < len(times) and times[reached] <= t + dt + near:
            if times[reached] < t + dt - near:
                weights = dense_weights((times[reached] - t) / dt, self.tableau, len(step.ks))
                self.states[reached] = combined(step.y0, dt, weights, step.ks)
                step.inside.append((reached, weights))
            else:
                self.states[reached] = step.y1
                step.at_end.append(reached)
            reached += 1
        return reached

    def backward(self, g: Array) -> Array:
        """Return dL/dy(t₀) from dL/dy (T, B, n) at the times; the networks collect the parameters' part."""
        tableau, count = self.tableau, len(self.tableau.b)
        gy, g_last = np.zeros_like(g[0]), np.zeros_like(g[0])  # of a step's end, and of its last slope
        for step in reversed(self.steps):
            for n in step.at_end:
                gy = gy + g[n]
            g0, gk = np.zeros_like(gy), [np.zeros_like(gy) for _ in range(count)]
            gk[-1] = g_last
            for n, weights in step.inside:
                g0 = g0 + g[n]
                for i, w in enumerate(weights):
                    if w:
                        gk[i] = gk[i] + np.float32(step.dt * w) * g[n]
            for i in range(count - 1, 0, -1):  # the last stage's state is the step's end
                gi = self.network.backward(*step.stages[i - 1], gk[i]) + (gy if i == count - 1 else 0)
                g0 = g0 + gi
                for j, w in enumerate(tableau.a[i - 1]):
                    if w:
                        gk[j] = gk[j] + np.float32(step.dt * w) * gi
            gy, g_last = g0, gk[0]  # the first slope is the last one of the step before
        assert self.start is not None
        return gy + self.network.backward(*self.start, g_last) + g[0]


def combined(y: Array, dt: float, weights: Sequence[float], ks: Sequence[Array]) -> Array:
    """Return y + dt Σ w_i k_i."""
    for w, k in zip(weights, ks, strict=False):
        if w:
            y = y + np.float32(dt * w) * k
    return y


class SmallPass:
    """Runs a pass for the trainer: loss and gradients in numpy, the update by the pass's own optimisers.

    Args:
        layer: see `SmallNetwork`.
        d: the number of coordinates of h(0).
        times: t = 0 and the K times that the loss reads.
        loss: computes the loss from the first d coordinates at those times, (K, B, d).
    """

    def __init__(self, layer: NODE | ACENODE, d: int, times: Sequence[float],
                 loss: Callable[[Tensor], Tensor]) -> None:
        self.small, self.times, self.loss = SmallNetwork(layer, d), [float(t) for t in times], loss

    @np.errstate(over="ignore", invalid="ignore")
    def run(self, spec: PassSpec, batch: Any) -> PassResult | None:
        """Do one pass; None, so that torch does it, if a(t) is to be held constant in the gradient."""
        if spec.detach_attention:
            return None
        small, h0, d = self.small, batch.numpy(), self.small.d
        for network in small.networks:
            network.tape.clear()
        solved, z = small.solve(h0, self.times)
        visible = torch.from_numpy(solved.states[1:, :, :d]).requires_grad_()
        loss = self.loss(visible)
        (seen,) = torch.autograd.grad(loss, visible)
        g = np.zeros_like(solved.states)
        g[1:, :, :d] = seen.numpy()
        g0 = solved.backward(g)
        if small.q is not None and z is not None:
            small.q.backward(h0, 0.0, z, g0[:, d:])
        penalty = self._update(spec)
        return PassResult(loss.detach(), loss.detach() + penalty, {},
                          [gradient_norm(group.parameters) for group in spec.groups], solved.cost)

    def _update(self, spec: PassSpec) -> Tensor | float:
        """Set the gradients of the parameters that the pass trains, update them, and return λ‖θ_g‖."""
        trained = {id(p) for p in spec.trained}
        for network in self.small.networks:
            if id(network.parameters[0]) in trained:
                for p, gradient in zip(network.parameters, network.gradients(), strict=True):
                    p.grad = torch.from_numpy(gradient)
        penalty = spec.penalty_term()
        if isinstance(penalty, Tensor):
            penalty.backward()
        for group in spec.groups:
            group.optimiser.step()
        return penalty.detach() if isinstance(penalty, Tensor) else penalty
