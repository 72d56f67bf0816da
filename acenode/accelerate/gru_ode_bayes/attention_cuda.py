"""GRU-ODE-Bayes with ACE's pairwise attention on a CUDA device, in one launch.

Row by row, for every series separately:

    s = σ(a) h        r, z = σ(s W_rz)        u = tanh((r ⊙ s) W_u)        h ← h + dt (1−z) ⊙ (u−s)

(u−h with `own_feedback`), at an observation the jump (`events`), and after the rows of a window, τ long, with the mean
m of s over the window,

    r, z = σ(a G_rz + m V_rz)        u = tanh((r ⊙ a) G_u + m V_u)        a ← u + e^(−τ(1−z)) ⊙ (a−u)

or, if g gives the whole matrix,

    r, z = σ(m V_rz)        u = tanh((r ⊙ m) V_u)        v = (1−z) ⊙ (u−m)        a ← a + τ (v W + b)

The forward pass saves h, s and the gates of every row, and a at the start of every window. The backward pass is one
launch again and recomputes g's gates. The gradient of f's weights is then one product over all rows, that of the jump's
weights one batch of all observations, that of W one product over all windows, and that of g's weights on the rows of a
a sum over the series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate.gru_ode_bayes.events import (
    F_WEIGHTS,
    MAX_WIDTH,
    REGISTERS,
    WARPS,
    KernelEvents,
    KernelWeights,
    jump_gradients,
    max_width,
    sizes,
)
from acenode.accelerate.triton_support import MAX_ELEMENTS, block_size, kernel_works, kernels_available
from acenode.backend import Backend
from acenode.data.gru_ode_bayes_pass import GWeights, MatrixGWeights

MEMORY_SHARE = 0.125  # of the device's memory that a pass and its gradient may use
STRIP = 16  # rows of a that a program handles at a time
PRECISION = "tf32x3"  # three tf32 products, as accurate as float32
MIN_CAPABILITY = (8, 0)  # the first compute capability with tf32


class KernelGWeights(NamedTuple):
    """g's weights, all as (inputs, outputs)."""

    G_rz: Tensor  # (H, 2H) of the rows of a
    G_u: Tensor
    V_rz: Tensor  # (H, 2H) of the mean
    V_u: Tensor


class KernelMatrixWeights(NamedTuple):
    """The weights of a g that gives the whole matrix."""

    V_rz: Tensor  # (H, 2H) of the mean
    V_u: Tensor
    W: Tensor  # (H², H)
    b: Tensor  # (H²,)


KernelG = KernelGWeights | KernelMatrixWeights


@dataclass(frozen=True)
class AttentionOptions:
    """Options of attention, and whether values are saved for a backward pass."""

    every: int  # rows of a window
    own_feedback: bool
    detach: bool  # a is a constant in the gradient
    save: bool
    matrix: bool = False  # g gives the whole matrix

    def kernel_weights(self, weights: Sequence[Tensor]) -> KernelG:
        """Return g's weights by name."""
        return KernelMatrixWeights(*weights) if self.matrix else KernelGWeights(*weights)

    def windows(self, S: int) -> int:
        """Return the number of windows of S rows. Row 0 counts as part of the first window."""
        return max(1, -(-(S - 1) // self.every))


class SavedForBackward(NamedTuple):
    """Values of the forward pass. Without a backward pass most of them are empty."""

    a: Tensor  # (windows, B, H, H) at the start of each; without a backward pass two buffers that alternate
    states: Tensor  # (S, B, H), h before every row
    attended: Tensor  # s
    gates: Tensor  # r, z, u: (S, B, 3H)
    means: Tensor  # (windows − 1, B, H) of s
    mean_terms: Tensor  # (windows − 1, B, 3H), the mean's terms in g's gates; the gates if g gives the whole matrix
    taus: Tensor  # (windows − 1, B)
    drifts: Tensor  # (windows − 1, B, H), v if g gives the whole matrix; without a backward pass one buffer
    pre: Tensor  # (N, H)


def _saved_shapes(options: AttentionOptions, S: int, B: int, H: int, N: int) -> tuple[tuple[int, ...], ...]:
    windows = options.windows(S)
    n, rows, a = (windows - 1, S, windows) if options.save else (0, 0, min(2, windows))
    drifts = (n if options.save else 1) if options.matrix else 0
    return ((a, B, H, H), (rows, B, H), (rows, B, H), (rows, B, 3 * H), (n, B, H), (n, B, 3 * H), (n, B),
            (drifts, B, H), (N, H))


def kernel_g_weights(w: GWeights | MatrixGWeights) -> KernelG:
    """Return g's weights as the kernels take them."""
    if isinstance(w, MatrixGWeights):
        return KernelMatrixWeights(torch.cat((w.reset, w.update)).t(), w.new.t(), w.out, w.out_bias)
    return KernelGWeights(w.gates.t(), w.new.t(), w.gates_in.t(), w.new_in.t())


def supports(backend: Backend, h0: Tensor, dt: Tensor, events: KernelEvents, options: AttentionOptions,
             weights: KernelWeights, g: KernelG) -> bool:
    """Return True if the kernels support these inputs, fit in memory and run on this device."""
    if not h0.is_cuda or any(x.dtype != torch.float32 for x in (h0, dt, events.x, events.m, *weights, *g)):
        return False
    if len(h0) == 0 or max_width(weights) > MAX_WIDTH or torch.cuda.get_device_capability(h0.device) < MIN_CAPABILITY:
        return False
    B, H = h0.shape
    counts = [torch.Size(shape).numel() for shape in _saved_shapes(options, len(dt), B, H, len(events.row))]
    scratch = B * max(5 * MAX_WIDTH, options.every + 1) * MAX_WIDTH
    elements = 2 * sum(counts) + 2 * scratch  # with their gradients
    available = MEMORY_SHARE * torch.cuda.get_device_properties(h0.device).total_memory
    if (max(*counts, scratch) >= MAX_ELEMENTS or 4 * elements > available
            or not kernels_available(backend, h0.device)):
        return False
    needed = [w.requires_grad for w in (*weights, *g)]
    kind = ("attention", h0.device, options.matrix, options.own_feedback, options.detach, options.save,
            any(needed[:F_WEIGHTS]), any(needed[len(weights):]), *sizes(events, weights).values())
    return kernel_works(backend, kind, lambda: _attempt(h0, dt, events, options, weights, g, needed))


@torch.no_grad()
def _attempt(h0: Tensor, dt: Tensor, events: KernelEvents, options: AttentionOptions, weights: KernelWeights,
             g: KernelG, needed: list[bool]) -> None:
    """Run the forward pass and, if values are saved for it, the backward pass."""
    B, H = h0.shape
    post, saved = forward(h0, h0.new_zeros(B, H, H), dt, events, options, weights, g)
    if options.save:
        backward(saved.pre, post, dt, events, options, weights, g, saved, needed)


def _padded_matrices(weights: KernelWeights, g: KernelG) -> Tensor:
    """Return r, z and u of f, of the rows of a (zeros if g does not read them) and of the mean, padded to (9, P, P)."""
    H = len(weights.W_u)
    rows = (g.G_rz, g.G_u) if isinstance(g, KernelGWeights) else (torch.zeros_like(g.V_rz), torch.zeros_like(g.V_u))
    each = [part for rz, u in ((weights.W_rz, weights.W_u), rows, (g.V_rz, g.V_u))
            for part in (rz[:, :H], rz[:, H:], u)]
    return _padded(torch.stack(each), H)


def _padded(matrices: Tensor, H: int) -> Tensor:
    """Pad matrices (n, H, H) with zeros to (n, P, P)."""
    padding = block_size(H) - H
    return F.pad(matrices, (0, padding, 0, padding)).contiguous()


def _launch(kernel: Any, first: tuple[Tensor, ...], dt: Tensor, events: KernelEvents, options: AttentionOptions,
            weights: KernelWeights, g: KernelG, last: tuple[Tensor, ...], B: int, **flags: bool) -> None:
    S, matrices, constants = len(dt), _padded_matrices(weights, g), sizes(events, weights)
    flat = torch.cat([w.flatten() for w in weights[F_WEIGHTS:]])
    with torch.cuda.device(dt.device):
        kernel[(B,)](*first, dt, *dt.stride(), *events.arguments(), flat, matrices, matrices.mT.contiguous(), *last, S,
                     B, options.windows(S), options.every, OWN=options.own_feedback, MATRIX=options.matrix,
                     M=min(STRIP, constants["P"]), PRECISION=PRECISION, **flags, **constants, num_warps=WARPS,
                     num_stages=1, maxnreg=REGISTERS)


def forward(h0: Tensor, a0: Tensor, dt: Tensor, events: KernelEvents, options: AttentionOptions, weights: KernelWeights,
            g: KernelG) -> tuple[Tensor, SavedForBackward]:
    """Return h after each event, (N, H), and the saved values, from h0 (B, H), a0 (B, H, H) and dt (S, B)."""
    from acenode.accelerate.gru_ode_bayes import attention_scan_kernels

    (B, H), S, N = h0.shape, len(dt), len(events.row)
    saved = SavedForBackward(*(h0.new_empty(shape) for shape in _saved_shapes(options, S, B, H, N)))
    saved.a[0] = a0
    soft, post = h0.new_empty(B, block_size(H), block_size(H)), torch.empty_like(saved.pre)
    a, *others = saved
    out = h0
    if isinstance(g, KernelMatrixWeights):
        out = _padded(torch.cat((g.W.t(), g.b[None])).view(H + 1, H, H), H)
    _launch(attention_scan_kernels.forward, (h0.contiguous(),), dt, events, options, weights, g,
            (out, a, soft, *others, post), B, SAVE=options.save)
    return post, saved


class PassGradients(NamedTuple):
    """Gradients of the inputs; None for weights that need none."""

    h0: Tensor
    a0: Tensor
    weights: list[Tensor | None]
    g: list[Tensor | None]


def backward(grad_pre: Tensor, grad_post: Tensor, dt: Tensor, events: KernelEvents, options: AttentionOptions,
             weights: KernelWeights, g: KernelG, saved: SavedForBackward,
             needed: Sequence[bool]) -> PassGradients:
    """Return the gradients; `needed` has one entry for each of `weights` and then of `g`."""
    from acenode.accelerate.gru_ode_bayes import attention_scan_kernels

    B, H = saved.states.shape[1:]
    P, grad_a = block_size(H), not options.detach
    of_f, of_jump = any(needed[:F_WEIGHTS]), needed[F_WEIGHTS:len(weights)]
    of_g = grad_a and any(needed[len(weights):])
    new, none = grad_pre.new_empty, grad_pre.new_empty(0)
    d_post = torch.zeros_like(saved.pre)  # ∂h after each jump
    d_start, d_a = new(B, H), grad_pre.new_zeros(B, P, P)
    d_gates = torch.empty_like(saved.gates) if of_f else none
    d_mean_terms = torch.empty_like(saved.mean_terms) if of_g else none
    scratch, sums, out_rows, d_steps = none, none, none, none
    if isinstance(g, KernelMatrixWeights):
        out_rows = _padded(g.W.reshape(H, H, H), H)
        d_steps = new(len(saved.means), B, H * H) if of_g else none
    elif of_g:
        scratch, sums = new(B, 5, P, P), grad_pre.new_zeros(B, 3, P, P)
    _launch(attention_scan_kernels.backward, (grad_pre.contiguous(), grad_post.contiguous()), dt, events, options,
            weights, g, (out_rows, saved.a, saved.states, saved.attended, saved.gates, saved.means, saved.mean_terms,
                         saved.taus, saved.pre, d_post, new(B, P, P), new(B, options.every + 1, P), d_a, d_gates,
                         d_mean_terms, d_steps, scratch, sums, d_start), B,
            GRAD_A=grad_a, F_TRAINED=of_f, G_TRAINED=of_g)
    f_grads: list[Tensor | None] = [None, None]
    if of_f:
        s, d = saved.attended.view(-1, H), d_gates.view(-1, 3 * H)
        f_grads = [s.t() @ d[:, :2 * H], (s * saved.gates.view(-1, 3 * H)[:, :H]).t() @ d[:, 2 * H:]]
    g_grads: list[Tensor | None] = [torch.zeros_like(w) if wanted else None
                                    for w, wanted in zip(g, needed[len(weights):], strict=True)]
    means, d = saved.means.view(-1, H), d_mean_terms.view(-1, 3 * H)
    if of_g and options.matrix:
        d_steps = (d_steps * saved.taus.unsqueeze(-1)).view(-1, H * H)
        g_grads = [means.t() @ d[:, :2 * H], (saved.mean_terms.view(-1, 3 * H)[:, :H] * means).t() @ d[:, 2 * H:],
                   d_steps.t() @ saved.drifts.view(-1, H), d_steps.sum(0)]
    elif of_g:
        r, z, u = sums.sum(0)[:, :H, :H]
        g_grads = [torch.cat((r, z), 1), u, means.t() @ d[:, :2 * H], means.t() @ d[:, 2 * H:]]
    jump_grads = jump_gradients(saved.pre, events, weights, d_post, of_jump)
    return PassGradients(d_start, d_a[:, :H, :H], [*f_grads, *jump_grads], g_grads)


class AttentionKernelPass(torch.autograd.Function):
    """`AttentionKernelPass.apply(h0, a0, dt, events, options, *weights, *g)`: h before and after each event."""

    @staticmethod
    def forward(ctx: Any, h0: Tensor, a0: Tensor, dt: Tensor, events: KernelEvents, options: AttentionOptions,
                *weights: Tensor) -> tuple[Tensor, Tensor]:
        own = len(KernelWeights._fields)
        post, saved = forward(h0, a0, dt, events, options, KernelWeights(*weights[:own]),
                              options.kernel_weights(weights[own:]))
        ctx.dt, ctx.events, ctx.options = dt, events, options
        ctx.save_for_backward(*saved, *weights)
        return saved.pre, post

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        own, count, tensors = len(KernelWeights._fields), len(SavedForBackward._fields), ctx.saved_tensors
        saved, weights = SavedForBackward(*tensors[:count]), tensors[count:]
        found = backward(grads[0], grads[1], ctx.dt, ctx.events, ctx.options, KernelWeights(*weights[:own]),
                         ctx.options.kernel_weights(weights[own:]), saved, ctx.needs_input_grad[5:])
        return found.h0, found.a0, None, None, None, *found.weights, *found.g
