"""Vector fields of small networks in numpy, with their backward passes."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from torch import Tensor, nn

from acenode.attention import Dense
from acenode.node import ACENODE, NODE

Array = np.ndarray


class TimedMLP(Protocol):
    """A torch module that computes W₂ tanh(W₁ x + w t + b₁) + b₂."""

    read: nn.Linear  # W₁, b₁
    time: nn.Linear  # w
    write: nn.Linear  # W₂, b₂


class SmallMLP:
    """W₂ tanh(W₁ x + w t + b₁) + b₂ on rows of x, with the arrays of a torch module.

    Backward passes are collected, and `gradients` sums them up in one go.
    """

    def __init__(self, module: TimedMLP | Dense) -> None:
        if isinstance(module, Dense):
            read, _, write = module.layers
            assert isinstance(read, nn.Linear)
            assert isinstance(write, nn.Linear)
            self.parameters: list[Tensor] = [read.weight, read.bias, write.weight, write.bias]
        else:
            read, write = module.read, module.write
            self.parameters = [read.weight, read.bias, write.weight, write.bias, module.time.weight]
        self.W1, self.b1, self.W2, self.b2 = (p.detach().numpy() for p in self.parameters[:4])  # share their memory
        self.w = self.parameters[4].detach().numpy()[:, 0] if len(self.parameters) > 4 else None
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


class SmallField(Protocol):
    """d(state)/dt; a state is (B, n), and its blocks, such as h and a, are columns of it."""

    blocks: list[slice]
    networks: list[SmallMLP]

    def forward(self, y: Array, t: float) -> tuple[Array, tuple[Array, ...]]: ...
    def backward(self, t: float, saved: tuple[Array, ...], g: Array) -> Array: ...


class SmallPlain:
    """dh/dt = f(h, t)."""

    def __init__(self, layer: NODE, size: int) -> None:
        self.f = SmallMLP(layer.f)  # type: ignore[arg-type]
        self.blocks, self.networks = [slice(0, size)], [self.f]

    def forward(self, y: Array, t: float) -> tuple[Array, tuple[Array, ...]]:
        rate, z = self.f.forward(y, t)
        return rate, (y, z)

    def backward(self, t: float, saved: tuple[Array, ...], g: Array) -> Array:
        y, z = saved
        return self.f.backward(y, t, z, g)


class SmallElementwise:
    """dh/dt = f(h′, t), da/dt = g(h′, t), h′ = h ⊙ sigmoid(a) (Eq. 5)."""

    def __init__(self, layer: ACENODE, d: int) -> None:
        self.f, self.g, self.d = SmallMLP(layer.f), SmallMLP(layer.g), d  # type: ignore[arg-type]
        self.blocks, self.networks = [slice(0, d), slice(d, self.columns(d))], [self.f, self.g]

    @staticmethod
    def columns(d: int) -> int:
        return 2 * d

    def attend(self, h: Array, a: Array) -> tuple[Array, Array]:
        """Return h′ and the weights."""
        weights = 0.5 * (1 + np.tanh(0.5 * a))  # sigmoid(a), without overflow
        return h * weights, weights

    def unattend(self, h: Array, weights: Array, g: Array) -> tuple[Array, Array]:
        """Return dL/dh and dL/da from dL/dh′."""
        return g * weights, g * h * weights * (1 - weights)

    def forward(self, y: Array, t: float) -> tuple[Array, tuple[Array, ...]]:
        h = y[:, :self.d]
        attended, weights = self.attend(h, y[:, self.d:])
        dh, zf = self.f.forward(attended, t)
        da, zg = self.g.forward(attended, t)
        return np.concatenate((dh, da), 1), (h, weights, attended, zf, zg)

    def backward(self, t: float, saved: tuple[Array, ...], g: Array) -> Array:
        h, weights, attended, zf, zg = saved
        g_attended = self.f.backward(attended, t, zf, g[:, :self.d]) + self.g.backward(attended, t, zg, g[:, self.d:])
        return np.concatenate(self.unattend(h, weights, g_attended), 1)


class SmallPairwise(SmallElementwise):
    """The same with h′ = softmax(a) h (Eq. 4); a's rows stand one after another in a state's columns."""

    @staticmethod
    def columns(d: int) -> int:
        return d + d * d

    def attend(self, h: Array, a: Array) -> tuple[Array, Array]:
        a = a.reshape(-1, self.d, self.d)
        e = np.exp(a - a.max(-1, keepdims=True))
        weights = e / e.sum(-1, keepdims=True)
        return np.einsum("bij,bj->bi", weights, h), weights

    def unattend(self, h: Array, weights: Array, g: Array) -> tuple[Array, Array]:
        gw = g[:, :, None] * h[:, None, :]
        ga = weights * (gw - np.einsum("bij,bij->bi", gw, weights)[:, :, None])
        return np.einsum("bi,bij->bj", g, weights), ga.reshape(len(h), -1)
