"""The rows of `acenode.models.jump_scan_cuda` as two kernels: a program takes one series through all of its rows.

h, or its gradient, and the ODE's weights stay in registers from row to row, and so does the sum of the ODE's weights'
gradients; the jump's weights are read again at every event. The feature k = d·F + j of a jump is variable d's j-th, so
a weight of variable d is read F times rather than spread. Sizes are padded: H to P, the hidden layer's Q to PQ, the
features' D·F to PK, powers of two. The weights are flat, one after another, in the order of `Weights`.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.models.scan_kernels import across, down, matrix, put, vector


@triton.jit
def spread(w, stride, rows, D, F, PQ: tl.constexpr, PK: tl.constexpr):
    """The columns of a matrix repeated F times each: what a hidden layer says of a feature's variable, (PQ, PK)."""
    i, k = tl.arange(0, PQ)[:, None], tl.arange(0, PK)[None, :]
    return tl.load(w + i * stride + k // F, mask=(i < rows) & (k < D * F), other=0.0)


@triton.jit
def of_variable(x, D, F, PK: tl.constexpr):
    k = tl.arange(0, PK)
    return tl.load(x + k // F, mask=k < D * F, other=0.0)


@triton.jit
def prepared(w, which, D, F, PK: tl.constexpr):
    """The weight of a feature for x, mean, log-variance or error: `which` of (D, 4, F)."""
    k = tl.arange(0, PK)
    return tl.load(w + (k // F) * 4 * F + which * F + k % F, mask=k < D * F, other=0.0)


@triton.jit
def hidden_layer(h, kept, e, W1, b1, H: tl.constexpr, Q: tl.constexpr, DROPS: tl.constexpr, P: tl.constexpr,
                 PQ: tl.constexpr):
    """ReLU(h W₁ + b₁), dropped as told, and what of h W₁ + b₁ a gradient passes through."""
    a = down(h, matrix(W1, Q, H, Q, P, PQ)) + vector(b1, Q, PQ)
    through = tl.where(a > 0, 1.0, 0.0)
    if DROPS:
        through = through * vector(kept + e * Q, Q, PQ)
    return a * through, through


@triton.jit(do_not_specialize=["S", "B", "row_stride", "series_stride"])
def forward(h0, dt, row_stride, series_stride, offsets, rows, jumps, x, m, kept, w, states, pre, post, S, B,
            H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr, DROPS: tl.constexpr,
            ALWAYS: tl.constexpr, P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    b = tl.program_id(0)
    W1 = w + 3 * H * H
    b1 = W1 + H * Q
    W2 = b1 + Q
    b2 = W2 + Q * 2 * D
    prep = b2 + 2 * D
    prep_b = prep + D * 4 * F
    Wi = prep_b + D * F
    bi = Wi + D * F * 3 * H
    Wh = bi + 3 * H
    bh = Wh + H * 3 * H
    Wr, Wz = matrix(w, 2 * H, H, H, P, P), matrix(w + H, 2 * H, H, H, P, P)
    Wu = matrix(w + 2 * H * H, H, H, H, P, P)
    h = vector(h0 + b * H, H, P)
    e, end = tl.load(offsets + b), tl.load(offsets + b + 1)
    for i in range(S):
        put(states + (i * B + b) * H, h, H, P)
        r, z = tl.sigmoid(down(h, Wr)), tl.sigmoid(down(h, Wz))
        u = libdevice.tanh(down(r * h, Wu))
        h = h + tl.load(dt + i * row_stride + b * series_stride) * (1 - z) * (u - h)
        if tl.load(rows + e, mask=e < end, other=-1) == i:
            put(pre + e * H, h, H, P)
            jumping = True
            if not ALWAYS:
                jumping = tl.load(jumps + e) != 0
            if jumping:
                a, _ = hidden_layer(h, kept, e, W1, b1, H, Q, DROPS, P, PQ)
                mean = down(a, spread(W2, 2 * D, Q, D, F, PQ, PK)) + of_variable(b2, D, F, PK)
                logvar = down(a, spread(W2 + D, 2 * D, Q, D, F, PQ, PK)) + of_variable(b2 + D, D, F, PK)
                seen = of_variable(x + e * D, D, F, PK)
                error = (seen - mean) * tl.exp(-0.5 * logvar)
                q = prepared(prep, 0, D, F, PK) * seen + prepared(prep, 1, D, F, PK) * mean \
                    + prepared(prep, 2, D, F, PK) * logvar + prepared(prep, 3, D, F, PK) * error \
                    + vector(prep_b, D * F, PK)
                q = tl.maximum(q, 0.0) * of_variable(m + e * D, D, F, PK)
                r = tl.sigmoid(down(q, matrix(Wi, 3 * H, D * F, H, PK, P)) + vector(bi, H, P)
                               + down(h, matrix(Wh, 3 * H, H, H, P, P)) + vector(bh, H, P))
                z = tl.sigmoid(down(q, matrix(Wi + H, 3 * H, D * F, H, PK, P)) + vector(bi + H, H, P)
                               + down(h, matrix(Wh + H, 3 * H, H, H, P, P)) + vector(bh + H, H, P))
                own = down(h, matrix(Wh + 2 * H, 3 * H, H, H, P, P)) + vector(bh + 2 * H, H, P)
                n = libdevice.tanh(down(q, matrix(Wi + 2 * H, 3 * H, D * F, H, PK, P)) + vector(bi + 2 * H, H, P)
                                   + r * own)
                h = n + z * (h - n)
            put(post + e * H, h, H, P)
            e += 1


@triton.jit(do_not_specialize=["S", "B", "row_stride", "series_stride"])
def backward(grad_pre, grad_post, dt, row_stride, series_stride, offsets, rows, jumps, x, m, kept, w, states, pre,
             arrived, d_start, d_weights, S, B,
             H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr, DROPS: tl.constexpr,
             ALWAYS: tl.constexpr, P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    b = tl.program_id(0)
    W1 = w + 3 * H * H
    b1 = W1 + H * Q
    W2 = b1 + Q
    b2 = W2 + Q * 2 * D
    prep = b2 + 2 * D
    prep_b = prep + D * 4 * F
    Wi = prep_b + D * F
    bi = Wi + D * F * 3 * H
    Wh = bi + 3 * H
    bh = Wh + H * 3 * H
    Wr, Wz = matrix(w, 2 * H, H, H, P, P), matrix(w + H, 2 * H, H, H, P, P)
    Wu = matrix(w + 2 * H * H, H, H, H, P, P)
    sum_r, sum_z = tl.zeros((P, P), tl.float32), tl.zeros((P, P), tl.float32)
    sum_u = tl.zeros((P, P), tl.float32)
    first = tl.load(offsets + b)
    e = tl.load(offsets + b + 1) - 1
    d = tl.zeros((P,), tl.float32)
    for back in range(S):
        i = S - 1 - back
        if tl.load(rows + e, mask=e >= first, other=-1) == i:
            d += vector(grad_post + e * H, H, P)
            jumping = True
            if not ALWAYS:
                jumping = tl.load(jumps + e) != 0
            if jumping:
                put(arrived + e * H, d, H, P)
                h = vector(pre + e * H, H, P)
                a, through = hidden_layer(h, kept, e, W1, b1, H, Q, DROPS, P, PQ)
                mean = down(a, spread(W2, 2 * D, Q, D, F, PQ, PK)) + of_variable(b2, D, F, PK)
                logvar = down(a, spread(W2 + D, 2 * D, Q, D, F, PQ, PK)) + of_variable(b2 + D, D, F, PK)
                seen, there = of_variable(x + e * D, D, F, PK), of_variable(m + e * D, D, F, PK)
                precision = tl.exp(-0.5 * logvar)
                error = (seen - mean) * precision
                of_mean, of_var = prepared(prep, 1, D, F, PK), prepared(prep, 2, D, F, PK)
                of_error = prepared(prep, 3, D, F, PK)
                q = prepared(prep, 0, D, F, PK) * seen + of_mean * mean + of_var * logvar + of_error * error \
                    + vector(prep_b, D * F, PK)
                there = tl.where(q > 0, there, 0.0)
                q = q * there
                r = tl.sigmoid(down(q, matrix(Wi, 3 * H, D * F, H, PK, P)) + vector(bi, H, P)
                               + down(h, matrix(Wh, 3 * H, H, H, P, P)) + vector(bh, H, P))
                z = tl.sigmoid(down(q, matrix(Wi + H, 3 * H, D * F, H, PK, P)) + vector(bi + H, H, P)
                               + down(h, matrix(Wh + H, 3 * H, H, H, P, P)) + vector(bh + H, H, P))
                own = down(h, matrix(Wh + 2 * H, 3 * H, H, H, P, P)) + vector(bh + 2 * H, H, P)
                n = libdevice.tanh(down(q, matrix(Wi + 2 * H, 3 * H, D * F, H, PK, P)) + vector(bi + 2 * H, H, P)
                                   + r * own)
                d_n = d * (1 - z) * (1 - n * n)
                d_z = d * (h - n) * z * (1 - z)
                d_r = d_n * own * r * (1 - r)
                d_q = across(d_r, matrix(Wi, 3 * H, D * F, H, PK, P)) \
                    + across(d_z, matrix(Wi + H, 3 * H, D * F, H, PK, P)) \
                    + across(d_n, matrix(Wi + 2 * H, 3 * H, D * F, H, PK, P))
                d_q = d_q * there
                d_a = across(d_q * (of_mean - of_error * precision), spread(W2, 2 * D, Q, D, F, PQ, PK)) \
                    + across(d_q * (of_var - 0.5 * of_error * error), spread(W2 + D, 2 * D, Q, D, F, PQ, PK))
                d = d * z + across(d_r, matrix(Wh, 3 * H, H, H, P, P)) \
                    + across(d_z, matrix(Wh + H, 3 * H, H, H, P, P)) \
                    + across(d_n * r, matrix(Wh + 2 * H, 3 * H, H, H, P, P)) \
                    + across(d_a * through, matrix(W1, Q, H, Q, P, PQ))
            d += vector(grad_pre + e * H, H, P)
            e -= 1
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
        d = d * (1 - step * (1 - z)) + d_rh * r + across(d_r, Wr) + across(d_z, Wz)
    put(d_start + b * H, d, H, P)
    k, j = tl.arange(0, P)[:, None], tl.arange(0, P)[None, :]
    inside, to = (k < H) & (j < H), d_weights + b * 3 * H * H
    tl.store(to + k * 2 * H + j, sum_r, mask=inside)
    tl.store(to + k * 2 * H + H + j, sum_z, mask=inside)
    tl.store(to + 2 * H * H + k * H + j, sum_u, mask=inside)
