"""What happens to a series after a row, for the kernels that take it through all of them: jumps and looks, and back.

The feature k = d·F + j of a jump is variable d's j-th, so a weight of variable d is read F times rather than spread.
Sizes are padded: H to P, the hidden layer's Q to PQ, the features' D·F to PK, powers of two. The weights w are flat,
one after another, in the order of `events.Weights` from W₁ on; they are read again at every event.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.encoder.kernels import across, down, matrix, put, vector


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
def cell(w, H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr):
    """Where the weights of the GRU are, after those of the hidden layer, of p and of the features."""
    Wi = w + H * Q + Q + Q * 2 * D + 2 * D + D * 4 * F + D * F
    Wh = Wi + D * F * 3 * H + 3 * H
    return Wi, Wh


@triton.jit
def unit(h, e, x, m, kept, w, H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr, DROPS: tl.constexpr,
         P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    """The GRU's r, z, h's share in n, and n; then what of the hidden layer and of the features a gradient passes
    through, the error and 1/σ."""
    b1 = w + H * Q
    W2 = b1 + Q
    b2 = W2 + Q * 2 * D
    prep = b2 + 2 * D
    Wi, Wh = cell(w, H, Q, D, F)
    bi, bh = Wi + D * F * 3 * H, Wh + H * 3 * H
    a = down(h, matrix(w, Q, H, Q, P, PQ)) + vector(b1, Q, PQ)
    through = tl.where(a > 0, 1.0, 0.0)
    if DROPS:
        through = through * vector(kept + e * Q, Q, PQ)
    a = a * through
    mean = down(a, spread(W2, 2 * D, Q, D, F, PQ, PK)) + of_variable(b2, D, F, PK)
    logvar = down(a, spread(W2 + D, 2 * D, Q, D, F, PQ, PK)) + of_variable(b2 + D, D, F, PK)
    seen = of_variable(x + e * D, D, F, PK)
    precision = tl.exp(-0.5 * logvar)
    error = (seen - mean) * precision
    q = prepared(prep, 0, D, F, PK) * seen + prepared(prep, 1, D, F, PK) * mean \
        + prepared(prep, 2, D, F, PK) * logvar + prepared(prep, 3, D, F, PK) * error \
        + vector(prep + D * 4 * F, D * F, PK)
    there = tl.where(q > 0, of_variable(m + e * D, D, F, PK), 0.0)
    q = q * there
    r = tl.sigmoid(down(q, matrix(Wi, 3 * H, D * F, H, PK, P)) + vector(bi, H, P)
                   + down(h, matrix(Wh, 3 * H, H, H, P, P)) + vector(bh, H, P))
    z = tl.sigmoid(down(q, matrix(Wi + H, 3 * H, D * F, H, PK, P)) + vector(bi + H, H, P)
                   + down(h, matrix(Wh + H, 3 * H, H, H, P, P)) + vector(bh + H, H, P))
    own = down(h, matrix(Wh + 2 * H, 3 * H, H, H, P, P)) + vector(bh + 2 * H, H, P)
    n = libdevice.tanh(down(q, matrix(Wi + 2 * H, 3 * H, D * F, H, PK, P)) + vector(bi + 2 * H, H, P) + r * own)
    return r, z, own, n, through, there, error, precision


@triton.jit
def halt(h, e, end, i, rows, jumps, x, m, kept, w, pre, post, H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr,
         F: tl.constexpr, DROPS: tl.constexpr, ALWAYS: tl.constexpr, P: tl.constexpr, PQ: tl.constexpr,
         PK: tl.constexpr):
    """h after row i's events, of which e is the first, and the event that follows them."""
    while tl.load(rows + e, mask=e < end, other=-1) == i:
        put(pre + e * H, h, H, P)
        jumping = True
        if not ALWAYS:
            jumping = tl.load(jumps + e) != 0
        if jumping:
            _, z, _, n, _, _, _, _ = unit(h, e, x, m, kept, w, H, Q, D, F, DROPS, P, PQ, PK)
            h = n + z * (h - n)
        put(post + e * H, h, H, P)
        e += 1
    return h, e


@triton.jit
def halt_back(d, e, first, i, rows, jumps, x, m, kept, w, pre, grad_pre, grad_post, arrived, H: tl.constexpr,
              Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr, DROPS: tl.constexpr, ALWAYS: tl.constexpr,
              P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    """∂h before row i's events, of which e is the last, from that after them, and the event before them."""
    while tl.load(rows + e, mask=e >= first, other=-1) == i:
        d += vector(grad_post + e * H, H, P)
        jumping = True
        if not ALWAYS:
            jumping = tl.load(jumps + e) != 0
        if jumping:
            put(arrived + e * H, d, H, P)
            W2 = w + H * Q + Q
            prep = W2 + Q * 2 * D + 2 * D
            Wi, Wh = cell(w, H, Q, D, F)
            h = vector(pre + e * H, H, P)
            r, z, own, n, through, there, error, precision = unit(h, e, x, m, kept, w, H, Q, D, F, DROPS, P, PQ, PK)
            of_mean, of_var = prepared(prep, 1, D, F, PK), prepared(prep, 2, D, F, PK)
            of_error = prepared(prep, 3, D, F, PK)
            d_n = d * (1 - z) * (1 - n * n)
            d_z = d * (h - n) * z * (1 - z)
            d_r = d_n * own * r * (1 - r)
            d_q = tl.sum(d_r[None, :] * matrix(Wi, 3 * H, D * F, H, PK, P)
                         + d_z[None, :] * matrix(Wi + H, 3 * H, D * F, H, PK, P)
                         + d_n[None, :] * matrix(Wi + 2 * H, 3 * H, D * F, H, PK, P), axis=1) * there
            d_mean, d_var = d_q * (of_mean - of_error * precision), d_q * (of_var - 0.5 * of_error * error)
            d_a = tl.sum(d_mean[None, :] * spread(W2, 2 * D, Q, D, F, PQ, PK)
                         + d_var[None, :] * spread(W2 + D, 2 * D, Q, D, F, PQ, PK), axis=1)
            d = d * z + tl.sum(d_r[None, :] * matrix(Wh, 3 * H, H, H, P, P)
                               + d_z[None, :] * matrix(Wh + H, 3 * H, H, H, P, P)
                               + (d_n * r)[None, :] * matrix(Wh + 2 * H, 3 * H, H, H, P, P), axis=1) \
                + across(d_a * through, matrix(w, Q, H, Q, P, PQ))
        d += vector(grad_pre + e * H, H, P)
        e -= 1
    return d, e
