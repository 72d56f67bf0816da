"""Forward and backward kernels of `cuda`: one program integrates one series.

h, or its gradient, f's weights and the sums of their gradients stay in registers. Sizes are padded as in
`event_kernels`. The weights w are flat, one after another, in the order of `events.KernelWeights`.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.encoder.kernels import across, down, matrix, put, vector
from acenode.accelerate.gru_ode_bayes.event_kernels import process_events, process_events_back
from acenode.accelerate.triton_support import Serialised


@Serialised
@triton.jit(do_not_specialize=["S", "B", "row_stride", "series_stride"])
def forward(h0, dt, row_stride, series_stride, offsets, rows, observed, x, m, dropout, w, states, pre, post, S, B,
            H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr, DROPOUT: tl.constexpr,
            NO_READS: tl.constexpr, P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    b = tl.program_id(0)
    Wr, Wz = matrix(w, 2 * H, H, H, P, P), matrix(w + H, 2 * H, H, H, P, P)
    Wu = matrix(w + 2 * H * H, H, H, H, P, P)
    h = vector(h0 + b * H, H, P)
    e, end = tl.load(offsets + b), tl.load(offsets + b + 1)
    for i in range(S):
        put(states + (i * B + b) * H, h, H, P)
        r, z = tl.sigmoid(down(h, Wr)), tl.sigmoid(down(h, Wz))
        u = libdevice.tanh(down(r * h, Wu))
        h = h + tl.load(dt + i * row_stride + b * series_stride) * (1 - z) * (u - h)
        h, e = process_events(h, e, end, i, rows, observed, x, m, dropout, w + 3 * H * H, pre, post, H, Q, D, F,
                              DROPOUT, NO_READS, P, PQ, PK)


@Serialised
@triton.jit(do_not_specialize=["S", "B", "row_stride", "series_stride"])
def backward(grad_pre, grad_post, dt, row_stride, series_stride, offsets, rows, observed, x, m, dropout, w, states, pre,
             d_post, d_start, d_weights, S, B,
             H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr, DROPOUT: tl.constexpr,
             NO_READS: tl.constexpr, P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    b = tl.program_id(0)
    Wr, Wz = matrix(w, 2 * H, H, H, P, P), matrix(w + H, 2 * H, H, H, P, P)
    Wu = matrix(w + 2 * H * H, H, H, H, P, P)
    sum_r, sum_z = tl.zeros((P, P), tl.float32), tl.zeros((P, P), tl.float32)
    sum_u = tl.zeros((P, P), tl.float32)
    first = tl.load(offsets + b)
    e = tl.load(offsets + b + 1) - 1
    d = tl.zeros((P,), tl.float32)
    for back in range(S):
        i = S - 1 - back
        d, e = process_events_back(d, e, first, i, rows, observed, x, m, dropout, w + 3 * H * H, pre, grad_pre,
                                   grad_post, d_post, H, Q, D, F, DROPOUT, NO_READS, P, PQ, PK)
        h = vector(states + (i * B + b) * H, H, P)
        step = tl.load(dt + i * row_stride + b * series_stride)
        r, z = tl.sigmoid(down(h, Wr)), tl.sigmoid(down(h, Wz))
        u = libdevice.tanh(down(r * h, Wu))
        d_u = d * step * (1 - z) * (1 - u * u)
        d_z = d * step * (h - u) * z * (1 - z)
        d_rh = across(d_u, Wu)
        d_r = d_rh * h * r * (1 - r)
        sum_u += (r * h)[:, None] * d_u[None, :]
        sum_r += h[:, None] * d_r[None, :]
        sum_z += h[:, None] * d_z[None, :]
        d = d * (1 - step * (1 - z)) + d_rh * r + tl.sum(d_r[None, :] * Wr + d_z[None, :] * Wz, axis=1)
    put(d_start + b * H, d, H, P)
    k, j = tl.arange(0, P)[:, None], tl.arange(0, P)[None, :]
    inside, to = (k < H) & (j < H), d_weights + b * 3 * H * H
    tl.store(to + k * 2 * H + j, sum_r, mask=inside)
    tl.store(to + k * 2 * H + H + j, sum_z, mask=inside)
    tl.store(to + 2 * H * H + k * H + j, sum_u, mask=inside)
