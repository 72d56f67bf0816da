"""GRU-ODE-Bayes, with or without ACE's pairwise attention, on a CUDA device in one launch each way.

The equations are in `pass.c` and `acenode.models.forecast`. The forward pass saves h, s and the gates of every row, and
a at the start of every window; the backward pass recomputes g's gates. The gradient of f's weights is then one product
over all rows, that of the jump's weights one batch of all observations, and that of g's weights on the rows of a a sum
over the series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate.triton_support import MAX_ELEMENTS, block_size, kernel_works, kernels_available
from acenode.backend import GPU_KERNELS, Backend
from acenode.data.passes import CellWeights, GWeights, PassInputs, PassOutputs

MAX_WIDTH = 64  # of any layer: a program holds f's weights, with their gradients or with σ(a), in registers
WARPS = 4
REGISTERS = 168  # per thread: three programs run on a multiprocessor at a time
MEMORY_SHARE = 0.125  # of the device's memory that a pass and its gradient may use
STRIP = 16  # rows of a that a program handles at a time
PRECISION = "tf32x3"  # three tf32 products, as accurate as float32
MIN_CAPABILITY = (8, 0)  # the first compute capability with tf32
OF_F, OF_JUMP = slice(0, 2), slice(2, 12)  # the others are g's


@dataclass(frozen=True)
class KernelPlan:
    """What a pass of B series needs besides tensors with a gradient.

    "Events" are N observations and read points, sorted by series and then by row.
    """

    dt: Tensor  # (S, B), which may be an expanded tensor
    offsets: Tensor  # (B + 1,): series b has the events offsets[b]:offsets[b + 1]
    row: Tensor  # (N,), the row that an event follows
    x: Tensor  # (N, D)
    m: Tensor  # (N, D), one where observed
    dropout: Tensor | None  # (N, Q), dropout mask of the hidden layer
    observed: Tensor | None  # (N,) bool, False for a read point; None if all are observations
    every: int  # rows of a window; all of them without attention
    attention: bool
    own_feedback: bool
    detach: bool  # a is a constant in the gradient
    save: bool  # keep values for a backward pass

    @property
    def windows(self) -> int:
        """Return the number of windows. Row 0 counts as part of the first."""
        return max(1, -(-(len(self.dt) - 1) // self.every))

    def constants(self, w: Sequence[Tensor]) -> dict[str, Any]:
        """Return what both kernels are compiled with."""
        H, Q, (D, _, each) = len(w[1]), w[2].shape[1], w[6].shape
        return {"ATTENTION": self.attention, "OWN": self.own_feedback, "H": H, "Q": Q, "D": D, "F": each,
                "DROPOUT": self.dropout is not None, "NO_READS": self.observed is None,
                "P": block_size(H), "PQ": block_size(Q), "PK": block_size(D * each)}


def _saved_shapes(plan: KernelPlan, B: int, H: int) -> list[tuple[int, ...]]:
    """Return the shapes of what the forward pass saves; without a backward pass most of it is empty.

    That is a at the start of each window (two buffers that alternate without a backward pass), h before every row, s
    with attention, the gates r, z and u, of each window but the last the mean of s, its terms in g's gates and τ, and h
    before each event.
    """
    rows, starts = len(plan.dt) if plan.save else 0, plan.windows if plan.save else min(2, plan.windows)
    n = plan.windows - 1 if plan.save else 0
    return [(starts * plan.attention, B, H, H), (rows, B, H), (rows * plan.attention, B, H), (rows, B, 3 * H),
            (n, B, H), (n, B, 3 * H), (n, B), (len(plan.row), H)]


def integrate(backend: Backend, inputs: PassInputs) -> PassOutputs | None:
    """Integrate with the kernels, one program per series; None if they do not support the pass."""
    h0, attention, schedule = inputs.h0, inputs.attention, inputs.schedule
    events, place = in_order(inputs)
    dt = schedule.dt.squeeze(-1).expand(-1, len(h0))
    weights = kernel_weights(inputs.weights, attention.weights if attention is not None else None)
    a0, every, own, detach = ((h0.new_empty(0), len(dt), False, False) if attention is None else
                              (attention.a0, attention.every, attention.own_feedback, attention.detach))
    plan = KernelPlan(dt, **events, every=every, attention=attention is not None, own_feedback=own, detach=detach,
                      save=torch.is_grad_enabled())
    if not supports(backend, h0, plan, weights):
        return None
    backend.report_series_by(GPU_KERNELS)
    before, after = KernelPass.apply(plan, h0, a0, *weights)
    reads, observations = place[:len(schedule.reads)], place[len(schedule.reads):]
    w, before_jump = inputs.weights, before[observations]
    hidden = torch.relu(F.linear(before_jump, w.p_hidden, w.p_hidden_bias))
    hidden = hidden if inputs.dropout is None else hidden * inputs.dropout
    return PassOutputs(F.linear(hidden, w.p_out, w.p_out_bias), after[observations], before[reads])


def in_order(inputs: PassInputs) -> tuple[dict[str, Any], Tensor]:
    """Sort the points by series and row, read points before observations; also return where each of them went."""
    observations, reads = inputs.schedule.observations, inputs.schedule.reads
    series, row = torch.cat((reads.series, observations.series)), torch.cat((reads.row, observations.row))
    order = (series * inputs.schedule.rows + row).argsort(stable=True)
    offsets = torch.searchsorted(series[order], torch.arange(len(inputs.h0) + 1, device=order.device))
    values = {name: None if v is None else F.pad(v, (0, 0, len(reads), 0))[order]
              for name, v in (("x", inputs.x), ("m", inputs.m), ("dropout", inputs.dropout))}
    observed = None if len(reads) == 0 else order >= len(reads)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return {"offsets": offsets, "row": row[order], "observed": observed, **values}, place


def kernel_weights(w: CellWeights, g: GWeights | None) -> list[Tensor]:
    """Return the weights as the kernels take them, matrices as (inputs, outputs).

    Those are W_rz and W_u of f, W₁, b₁, W₂, b₂, M (D, 4, F) and b (D, F) of the jump and its GRU's matrix and bias for
    the input and for h, and with attention G_rz and G_u of the rows of a, V_rz and V_u of the mean.
    """
    of_g = [] if g is None else [g.gates.t(), g.new.t(), g.gates_in.t(), g.new_in.t()]
    return [torch.cat((w.f_reset, w.f_update)).t(), w.f_new.t(), w.p_hidden.t(), w.p_hidden_bias, w.p_out.t(),
            w.p_out_bias, w.features, w.features_bias, w.gru_input.t(), w.gru_input_bias, w.gru_hidden.t(),
            w.gru_hidden_bias, *of_g]


def supports(backend: Backend, h0: Tensor, plan: KernelPlan, weights: list[Tensor]) -> bool:
    """Return True if the kernels support these inputs, fit in memory and run on this device."""
    if any(x.dtype != torch.float32 for x in (h0, plan.dt, plan.x, plan.m, *weights)):
        return False
    (B, H), constants = h0.shape, plan.constants(weights)
    if B == 0 or max(constants[name] for name in ("P", "PQ", "PK")) > MAX_WIDTH:
        return False
    if plan.attention and torch.cuda.get_device_capability(h0.device) < MIN_CAPABILITY:
        return False
    counts = [torch.Size(shape).numel() for shape in _saved_shapes(plan, B, H)]
    scratch = B * max(5 * MAX_WIDTH, plan.every + 1) * MAX_WIDTH if plan.attention else 0
    elements = 2 * sum(counts) + 2 * scratch  # with their gradients
    available = MEMORY_SHARE * torch.cuda.get_device_properties(h0.device).total_memory
    if (max(*counts, scratch) >= MAX_ELEMENTS or 4 * elements > available
            or not kernels_available(backend, h0.device)):
        return False
    needed = [w.requires_grad for w in weights]
    kind = ("GRU-ODE-Bayes", h0.device, plan.detach, plan.save, any(needed[OF_F]), any(needed[OF_JUMP.stop:]),
            *constants.values())
    return kernel_works(backend, kind, lambda: _attempt(h0, plan, weights, needed))


@torch.no_grad()
def _attempt(h0: Tensor, plan: KernelPlan, weights: list[Tensor], needed: list[bool]) -> None:
    """Run the forward pass and, if values are saved for it, the backward pass."""
    B, H = h0.shape
    post, saved = forward(h0, h0.new_zeros(B, H, H), plan, weights)
    if plan.save:
        backward(saved[-1], post, plan, weights, saved, needed)


def _launch(kernel: Any, first: tuple[Tensor, ...], plan: KernelPlan, w: Sequence[Tensor], last: tuple[Tensor, ...],
            B: int, **flags: bool) -> None:
    constants, H = plan.constants(w), len(w[1])
    observed = plan.x if plan.observed is None else plan.observed.contiguous().view(torch.uint8)  # x: not read
    dropout = plan.x if plan.dropout is None else plan.dropout
    given = [x.contiguous() for x in (plan.offsets, plan.row, observed, plan.x, plan.m, dropout)]
    both = [*w[OF_F], *w[OF_JUMP.stop:]]
    parts = [part for rz, u in zip(both[::2], both[1::2], strict=True) for part in (rz[:, :H], rz[:, H:], u)]
    padding = constants["P"] - H
    matrices = F.pad(torch.stack(parts), (0, padding, 0, padding)).contiguous()
    flat = torch.cat([x.flatten() for x in w[OF_JUMP]])
    with torch.cuda.device(plan.dt.device):
        kernel[(B,)](*first, plan.dt, *plan.dt.stride(), *given, flat, matrices, matrices.mT.contiguous(), *last,
                     len(plan.dt), B, plan.windows, plan.every, M=min(STRIP, constants["P"]), PRECISION=PRECISION,
                     **flags, **constants, num_warps=WARPS, num_stages=1, maxnreg=REGISTERS)


def forward(h0: Tensor, a0: Tensor, plan: KernelPlan, weights: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return h after each event, (N, H), and the saved values, from h0 (B, H) and with attention a0 (B, H, H)."""
    from acenode.accelerate.gru_ode_bayes import kernels

    (B, H), P = h0.shape, block_size(h0.shape[1])
    a, *others = saved = [h0.new_empty(shape) for shape in _saved_shapes(plan, B, H)]
    if plan.attention:
        a[0] = a0
    post, soft = torch.empty_like(saved[-1]), h0.new_empty(B * plan.attention, P, P)
    _launch(kernels.forward, (h0.contiguous(),), plan, weights, (a, soft, *others, post), B, SAVE=plan.save)
    return post, saved


def backward(grad_pre: Tensor, grad_post: Tensor, plan: KernelPlan, weights: Sequence[Tensor], saved: Sequence[Tensor],
             needed: Sequence[bool]) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """Return the gradients of h(0), of a(0) and of the weights that are `needed`."""
    from acenode.accelerate.gru_ode_bayes import kernels

    a, states, attended, gates, means, mean_terms, taus, pre = saved
    B, H = states.shape[1:]
    P, grad_a = block_size(H), plan.attention and not plan.detach
    of_f, of_g = any(needed[OF_F]), grad_a and any(needed[OF_JUMP.stop:])
    new, none = grad_pre.new_empty, grad_pre.new_empty(0)
    d_post = torch.zeros_like(pre)  # ∂h after each jump
    d_start, d_a = new(B, H), grad_pre.new_zeros(B * plan.attention, P, P)
    d_gates = torch.empty_like(gates) if of_f else none
    d_mean_terms = torch.empty_like(mean_terms) if of_g else none
    scratch, sums = (new(B, 5, P, P), grad_pre.new_zeros(B, 3, P, P)) if of_g else (none, none)
    soft, d_s = (new(B, P, P), new(B, plan.every + 1, P)) if plan.attention else (none, none)
    attended = attended if plan.attention else states
    _launch(kernels.backward, (grad_pre.contiguous(), grad_post.contiguous()), plan, weights,
            (a, states, attended, gates, mean_terms, taus, pre, d_post, soft, d_s, d_a, d_gates, d_mean_terms, scratch,
             sums, d_start), B, GRAD_A=grad_a, F_TRAINED=of_f, G_TRAINED=of_g)
    found: list[Tensor | None] = [None, None]
    if of_f:
        s, d = attended.view(-1, H), d_gates.view(-1, 3 * H)
        found = [s.t() @ d[:, :2 * H], (s * gates.view(-1, 3 * H)[:, :H]).t() @ d[:, 2 * H:]]
    found += _jump_gradients(pre, plan, weights[OF_JUMP], d_post, needed[OF_JUMP])
    if of_g:
        (r, z, u), m, d = sums.sum(0)[:, :H, :H], means.view(-1, H), d_mean_terms.view(-1, 3 * H)
        found += [torch.cat((r, z), 1), u, m.t() @ d[:, :2 * H], m.t() @ d[:, 2 * H:]]
    else:
        found += [torch.zeros_like(w) if wanted else None
                  for w, wanted in zip(weights[OF_JUMP.stop:], needed[OF_JUMP.stop:], strict=True)]
    return d_start, d_a[:, :H, :H] if plan.attention else None, found


def _jump(h: Tensor, plan: KernelPlan, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor, M: Tensor, b: Tensor,
          W_input: Tensor, b_input: Tensor, W_hidden: Tensor, b_hidden: Tensor) -> Tensor:
    """Return h (N, H) after the update at every event."""
    hidden = torch.relu(torch.addmm(b_1, h, W_1))
    p = torch.addmm(b_2, hidden if plan.dropout is None else hidden * plan.dropout, W_2)
    mean, logvar = p.chunk(2, 1)
    features = torch.stack((plan.x, mean, logvar, (plan.x - mean) * torch.exp(-0.5 * logvar)), -1)  # (N, D, 4)
    q = torch.relu(torch.addmm(b.flatten(), features.flatten(1), torch.block_diag(*M)))
    q = q * plan.m.repeat_interleave(b.shape[1], 1)
    of_q, of_h = torch.addmm(b_input, q, W_input), torch.addmm(b_hidden, h, W_hidden)
    (r, z, n), (r_h, z_h, n_h) = of_q.chunk(3, 1), of_h.chunk(3, 1)
    r, z = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    return torch.lerp(torch.tanh(n + r * n_h), h, z)


def _jump_gradients(pre: Tensor, plan: KernelPlan, weights: Sequence[Tensor], d_post: Tensor,
                    needed: Sequence[bool]) -> list[Tensor | None]:
    """Return the gradients of p's and the update's weights, all observations at once, from ∂h after each."""
    if not any(needed):
        return [None] * len(needed)
    with torch.enable_grad():
        own = [w.detach().requires_grad_(wanted) for w, wanted in zip(weights, needed, strict=True)]
        after = _jump(pre.detach(), plan, *own)
        found = iter(torch.autograd.grad(after, [w for w in own if w.requires_grad], d_post))
    return [next(found) if wanted else None for wanted in needed]


class KernelPass(torch.autograd.Function):
    """`KernelPass.apply(plan, h0, a0, *weights)`: h before and after each event."""

    @staticmethod
    def forward(ctx: Any, plan: KernelPlan, h0: Tensor, a0: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        post, saved = forward(h0, a0, plan, weights)
        ctx.plan, ctx.count = plan, len(saved)
        ctx.save_for_backward(*saved, *weights)
        return saved[-1], post

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        saved, weights = ctx.saved_tensors[:ctx.count], ctx.saved_tensors[ctx.count:]
        d_h0, d_a0, found = backward(grads[0], grads[1], ctx.plan, weights, saved, ctx.needs_input_grad[3:])
        return None, d_h0, d_a0, *found
