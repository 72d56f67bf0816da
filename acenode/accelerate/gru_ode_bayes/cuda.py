"""GRU-ODE-Bayes, with or without ACE's pairwise attention, on a CUDA device in one launch each way.

Row by row, for every series separately, with s = σ(a) h, or s = h without attention:

    r, z = σ(s W_rz)        u = tanh((r ⊙ s) W_u)        h ← h + dt (1−z) ⊙ (u−s)

(u−h with `own_feedback`). At an observation, with [mean, log σ²] = ReLU(h W₁ + b₁) W₂ + b₂ for each of D variables and
the mask m,

    q_d = m_d ReLU([x_d, mean_d, log σ_d², (x_d − mean_d)/σ_d] M_d + b_d)        h ← GRU([q_1, …, q_D], h)

(De Brouwer et al., GRU-ODE-Bayes). After the rows of a window, τ long, with the mean m of s over the window,

    r, z = σ(a G_rz + m V_rz)        u = tanh((r ⊙ a) G_u + m V_u)        a ← u + e^(−τ(1−z)) ⊙ (a−u)

The forward pass saves h, s and the gates of every row, and a at the start of every window; the backward pass recomputes
g's gates. The gradient of f's weights is then one product over all rows, that of the jump's weights one batch of all
observations, and that of g's weights on the rows of a a sum over the series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class KernelWeights(NamedTuple):
    """All as (inputs, outputs); g's are None without attention."""

    W_rz: Tensor  # (H, 2H)
    W_u: Tensor  # (H, H)
    W_1: Tensor  # (H, Q)
    b_1: Tensor
    W_2: Tensor  # (Q, 2D)
    b_2: Tensor
    M: Tensor  # (D, 4, F)
    b: Tensor  # (D, F)
    W_input: Tensor  # (D·F, 3H): reset, update, new
    b_input: Tensor
    W_hidden: Tensor  # (H, 3H)
    b_hidden: Tensor
    G_rz: Tensor | None = None  # (H, 2H) of the rows of a
    G_u: Tensor | None = None
    V_rz: Tensor | None = None  # (H, 2H) of the mean
    V_u: Tensor | None = None


class KernelEvents(NamedTuple):
    """N observations and read points ("events") of B series, sorted by series and then by row."""

    offsets: Tensor  # (B + 1,): series b has the events offsets[b]:offsets[b + 1]
    row: Tensor  # (N,), the row that the event follows
    x: Tensor  # (N, D)
    m: Tensor  # (N, D), one where observed
    dropout: Tensor | None  # (N, Q), dropout mask of the hidden layer
    observed: Tensor | None  # (N,) bool, False for a read point; None if all are observations


@dataclass(frozen=True)
class KernelPlan:
    """What a pass needs besides tensors with a gradient."""

    dt: Tensor  # (S, B), which may be an expanded tensor
    events: KernelEvents
    every: int  # rows of a window; all of them without attention
    attention: bool
    own_feedback: bool
    detach: bool  # a is a constant in the gradient
    save: bool  # keep values for a backward pass

    @property
    def windows(self) -> int:
        """Return the number of windows. Row 0 counts as part of the first."""
        return max(1, -(-(len(self.dt) - 1) // self.every))

    def constants(self, w: KernelWeights) -> dict[str, Any]:
        """Return what both kernels are compiled with."""
        H, Q, (D, _, each) = len(w.W_u), w.W_1.shape[1], w.M.shape
        return {"ATTENTION": self.attention, "OWN": self.own_feedback, "H": H, "Q": Q, "D": D, "F": each,
                "DROPOUT": self.events.dropout is not None, "NO_READS": self.events.observed is None,
                "P": block_size(H), "PQ": block_size(Q), "PK": block_size(D * each)}


class SavedForBackward(NamedTuple):
    """Values of the forward pass. Without a backward pass most of them are empty."""

    a: Tensor  # (windows, B, H, H) at the start of each; without a backward pass two buffers that alternate
    states: Tensor  # (S, B, H), h before every row
    attended: Tensor  # s, with attention
    gates: Tensor  # r, z, u: (S, B, 3H)
    means: Tensor  # (windows − 1, B, H) of s
    mean_terms: Tensor  # (windows − 1, B, 3H), the mean's terms in g's gates
    taus: Tensor  # (windows − 1, B)
    pre: Tensor  # (N, H)


def _saved_shapes(plan: KernelPlan, B: int, H: int) -> list[tuple[int, ...]]:
    rows, starts = len(plan.dt) if plan.save else 0, plan.windows if plan.save else min(2, plan.windows)
    n = plan.windows - 1 if plan.save else 0
    return [(starts * plan.attention, B, H, H), (rows, B, H), (rows * plan.attention, B, H), (rows, B, 3 * H),
            (n, B, H), (n, B, 3 * H), (n, B), (len(plan.events.row), H)]


def integrate(backend: Backend, inputs: PassInputs) -> PassOutputs | None:
    """Integrate with the kernels, one program per series; None if they do not support the pass."""
    h0, attention, schedule = inputs.h0, inputs.attention, inputs.schedule
    events, place = in_order(inputs)
    dt = schedule.dt.squeeze(-1).expand(-1, len(h0))
    weights = kernel_weights(inputs.weights, attention and attention.weights)
    if attention is None:
        a0, options = h0.new_empty(0), (len(dt), False, False, False)
    else:
        a0, options = attention.a0, (attention.every, True, attention.own_feedback, attention.detach)
    plan = KernelPlan(dt, events, *options, save=torch.is_grad_enabled())
    if not supports(backend, h0, plan, weights):
        return None
    backend.report_series_by(GPU_KERNELS)
    before, after = KernelPass.apply(plan, h0, a0, *weights)
    reads, observations = place[:len(schedule.reads)], place[len(schedule.reads):]
    w, before_jump = inputs.weights, before[observations]
    hidden = torch.relu(F.linear(before_jump, w.p_hidden, w.p_hidden_bias))
    hidden = hidden if inputs.dropout is None else hidden * inputs.dropout
    return PassOutputs(F.linear(hidden, w.p_out, w.p_out_bias), after[observations], before[reads])


def in_order(inputs: PassInputs) -> tuple[KernelEvents, Tensor]:
    """Sort the points by series and row, read points before observations; also return where each of them went."""
    observations, reads = inputs.schedule.observations, inputs.schedule.reads
    series, row = torch.cat((reads.series, observations.series)), torch.cat((reads.row, observations.row))
    order = (series * inputs.schedule.rows + row).argsort(stable=True)
    offsets = torch.searchsorted(series[order], torch.arange(len(inputs.h0) + 1, device=order.device))
    x, m, dropout = (None if v is None else F.pad(v, (0, 0, len(reads), 0))[order]
                     for v in (inputs.x, inputs.m, inputs.dropout))
    assert x is not None
    assert m is not None
    observed = None if len(reads) == 0 else order >= len(reads)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return KernelEvents(offsets, row[order], x, m, dropout, observed), place


def kernel_weights(w: CellWeights, g: GWeights | None) -> KernelWeights:
    """Return the model's weights as the kernels take them."""
    of_g = () if g is None else (g.gates.t(), g.new.t(), g.gates_in.t(), g.new_in.t())
    return KernelWeights(torch.cat((w.f_reset, w.f_update)).t(), w.f_new.t(), w.p_hidden.t(), w.p_hidden_bias,
                         w.p_out.t(), w.p_out_bias, w.features, w.features_bias, w.gru_input.t(), w.gru_input_bias,
                         w.gru_hidden.t(), w.gru_hidden_bias, *of_g)


def supports(backend: Backend, h0: Tensor, plan: KernelPlan, weights: KernelWeights) -> bool:
    """Return True if the kernels support these inputs, fit in memory and run on this device."""
    given = [w for w in weights if w is not None]
    if any(x.dtype != torch.float32 for x in (h0, plan.dt, plan.events.x, plan.events.m, *given)):
        return False
    (B, H), (D, _, each) = h0.shape, weights.M.shape
    if B == 0 or max(H, weights.W_1.shape[1], D * each) > MAX_WIDTH:
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
    needed = [w is not None and w.requires_grad for w in weights]
    kind = ("GRU-ODE-Bayes", h0.device, plan.detach, plan.save, any(needed[OF_F]), any(needed[OF_JUMP.stop:]),
            *plan.constants(weights).values())
    return kernel_works(backend, kind, lambda: _attempt(h0, plan, weights, needed))


@torch.no_grad()
def _attempt(h0: Tensor, plan: KernelPlan, weights: KernelWeights, needed: list[bool]) -> None:
    """Run the forward pass and, if values are saved for it, the backward pass."""
    B, H = h0.shape
    post, saved = forward(h0, h0.new_zeros(B, H, H), plan, weights)
    if plan.save:
        backward(saved.pre, post, plan, weights, saved, needed)


def _launch(kernel: Any, first: tuple[Tensor, ...], plan: KernelPlan, w: KernelWeights, last: tuple[Tensor, ...],
            B: int, **flags: bool) -> None:
    unused, events, constants, H = plan.events.x, plan.events, plan.constants(w), len(w.W_u)
    observed = unused if events.observed is None else events.observed.contiguous().view(torch.uint8)
    dropout = unused if events.dropout is None else events.dropout
    given = [x.contiguous() for x in (events.offsets, events.row, observed, events.x, events.m, dropout)]
    parts = [part for rz, u in ((w.W_rz, w.W_u), (w.G_rz, w.G_u), (w.V_rz, w.V_u)) if rz is not None and u is not None
             for part in (rz[:, :H], rz[:, H:], u)]
    padding = constants["P"] - H
    matrices = F.pad(torch.stack(parts), (0, padding, 0, padding)).contiguous()
    jump_weights: Any = w[OF_JUMP]
    flat = torch.cat([x.flatten() for x in jump_weights])
    with torch.cuda.device(plan.dt.device):
        kernel[(B,)](*first, plan.dt, *plan.dt.stride(), *given, flat, matrices, matrices.mT.contiguous(), *last,
                     len(plan.dt), B, plan.windows, plan.every, M=min(STRIP, constants["P"]), PRECISION=PRECISION,
                     **flags, **constants, num_warps=WARPS, num_stages=1, maxnreg=REGISTERS)


def forward(h0: Tensor, a0: Tensor, plan: KernelPlan, weights: KernelWeights) -> tuple[Tensor, SavedForBackward]:
    """Return h after each event, (N, H), and the saved values, from h0 (B, H) and with attention a0 (B, H, H)."""
    from acenode.accelerate.gru_ode_bayes import kernels

    (B, H), P = h0.shape, block_size(h0.shape[1])
    saved = SavedForBackward(*(h0.new_empty(shape) for shape in _saved_shapes(plan, B, H)))
    if plan.attention:
        saved.a[0] = a0
    post, (a, *others) = torch.empty_like(saved.pre), saved
    soft = h0.new_empty(B * plan.attention, P, P)
    _launch(kernels.forward, (h0.contiguous(),), plan, weights, (a, soft, *others, post), B, SAVE=plan.save)
    return post, saved


def backward(grad_pre: Tensor, grad_post: Tensor, plan: KernelPlan, weights: KernelWeights, saved: SavedForBackward,
             needed: Sequence[bool]) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """Return the gradients of h(0), of a(0) and of the weights that are `needed`."""
    from acenode.accelerate.gru_ode_bayes import kernels

    B, H = saved.states.shape[1:]
    P, grad_a = block_size(H), plan.attention and not plan.detach
    of_f, of_g = any(needed[OF_F]), grad_a and any(needed[OF_JUMP.stop:])
    new, none = grad_pre.new_empty, grad_pre.new_empty(0)
    d_post = torch.zeros_like(saved.pre)  # ∂h after each jump
    d_start, d_a = new(B, H), grad_pre.new_zeros(B * plan.attention, P, P)
    d_gates = torch.empty_like(saved.gates) if of_f else none
    d_mean_terms = torch.empty_like(saved.mean_terms) if of_g else none
    scratch, sums = (new(B, 5, P, P), grad_pre.new_zeros(B, 3, P, P)) if of_g else (none, none)
    soft, d_s = (new(B, P, P), new(B, plan.every + 1, P)) if plan.attention else (none, none)
    attended = saved.attended if plan.attention else saved.states
    _launch(kernels.backward, (grad_pre.contiguous(), grad_post.contiguous()), plan, weights,
            (saved.a, saved.states, attended, saved.gates, saved.mean_terms, saved.taus, saved.pre, d_post, soft, d_s,
             d_a, d_gates, d_mean_terms, scratch, sums, d_start), B, GRAD_A=grad_a, F_TRAINED=of_f, G_TRAINED=of_g)
    found: list[Tensor | None] = [None, None]
    if of_f:
        s, d = attended.view(-1, H), d_gates.view(-1, 3 * H)
        found = [s.t() @ d[:, :2 * H], (s * saved.gates.view(-1, 3 * H)[:, :H]).t() @ d[:, 2 * H:]]
    found += jump_gradients(saved.pre, plan.events, weights, d_post, needed[OF_JUMP])
    if of_g:
        (r, z, u), means, d = sums.sum(0)[:, :H, :H], saved.means.view(-1, H), d_mean_terms.view(-1, 3 * H)
        found += [torch.cat((r, z), 1), u, means.t() @ d[:, :2 * H], means.t() @ d[:, 2 * H:]]
    else:
        found += [torch.zeros_like(w) if w is not None and wanted else None
                  for w, wanted in zip(weights[OF_JUMP.stop:], needed[OF_JUMP.stop:], strict=True)]
    return d_start, d_a[:, :H, :H] if plan.attention else None, found


def jump(h: Tensor, events: KernelEvents, w: KernelWeights) -> Tensor:
    """Return h (N, H) after the update at every event."""
    hidden = torch.relu(torch.addmm(w.b_1, h, w.W_1))
    p = torch.addmm(w.b_2, hidden if events.dropout is None else hidden * events.dropout, w.W_2)
    mean, logvar = p.chunk(2, 1)
    features = torch.stack((events.x, mean, logvar, (events.x - mean) * torch.exp(-0.5 * logvar)), -1)  # (N, D, 4)
    q = torch.relu(torch.addmm(w.b.flatten(), features.flatten(1), torch.block_diag(*w.M)))
    q = q * events.m.repeat_interleave(w.b.shape[1], 1)
    of_q, of_h = torch.addmm(w.b_input, q, w.W_input), torch.addmm(w.b_hidden, h, w.W_hidden)
    (r, z, n), (r_h, z_h, n_h) = of_q.chunk(3, 1), of_h.chunk(3, 1)
    r, z = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    return torch.lerp(torch.tanh(n + r * n_h), h, z)


def jump_gradients(pre: Tensor, events: KernelEvents, weights: KernelWeights, d_post: Tensor,
                   needed: Sequence[bool]) -> list[Tensor | None]:
    """Return the gradients of p's and the update's weights, all observations at once, from ∂h after each."""
    if not any(needed):
        return [None] * len(needed)
    with torch.enable_grad():
        given: Any = weights
        own = [w.detach().requires_grad_(wanted) for w, wanted in zip(given[OF_JUMP], needed, strict=True)]
        after = jump(pre.detach(), events, KernelWeights(*given[OF_F], *own))
        found = iter(torch.autograd.grad(after, [w for w in own if w.requires_grad], d_post))
    return [next(found) if wanted else None for wanted in needed]


class KernelPass(torch.autograd.Function):
    """`KernelPass.apply(plan, h0, a0, *weights)`: h before and after each event."""

    @staticmethod
    def forward(ctx: Any, plan: KernelPlan, h0: Tensor, a0: Tensor, *weights: Tensor | None) -> tuple[Tensor, Tensor]:
        post, saved = forward(h0, a0, plan, KernelWeights(*weights))  # type: ignore[arg-type]
        ctx.plan = plan
        ctx.save_for_backward(*saved, *weights)
        return saved.pre, post

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        count, tensors = len(SavedForBackward._fields), ctx.saved_tensors
        saved, weights = SavedForBackward(*tensors[:count]), KernelWeights(*tensors[count:])
        d_h0, d_a0, found = backward(grads[0], grads[1], ctx.plan, weights, saved, ctx.needs_input_grad[3:])
        return None, d_h0, d_a0, *found
