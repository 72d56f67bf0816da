"""Observations and read points of a series inside the kernels, and their gradient.

Feature k = d·F + j of a jump is the j-th of variable d, so a value of variable d is loaded for each of its F features.
Sizes are padded to powers of two: H to P, p's hidden layer Q to PQ, the features D·F to PK. The weights w are flat, one
after another, in the order of `events.KernelWeights` from W₁ on; they are loaded again at every event.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.encoder.kernels import across, down, matrix, put, vector


@triton.jit
def repeat_columns(w, stride, rows, D, F, PQ: tl.constexpr, PK: tl.constexpr):
    """Load a matrix with every column repeated F times, (PQ, PK): the weights from p's hidden layer to a feature."""
    i, k = tl.arange(0, PQ)[:, None], tl.arange(0, PK)[None, :]
    return tl.load(w + i * stride + k // F, mask=(i < rows) & (k < D * F), other=0.0)


@triton.jit
def by_feature(x, D, F, PK: tl.constexpr):
    """Load the value of every feature's variable."""
    k = tl.arange(0, PK)
    return tl.load(x + k // F, mask=k < D * F, other=0.0)


@triton.jit
def feature_weight(w, which, D, F, PK: tl.constexpr):
    """Load the weight of every feature on x, mean, log-variance or error: index `which` of (D, 4, F)."""
    k = tl.arange(0, PK)
    return tl.load(w + (k // F) * 4 * F + which * F + k % F, mask=k < D * F, other=0.0)


@triton.jit
def gru_offsets(w, H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr):
    """Return where the GRU's weights start, after those of p and of the features."""
    Wi = w + H * Q + Q + Q * 2 * D + 2 * D + D * 4 * F + D * F
    Wh = Wi + D * F * 3 * H + 3 * H
    return Wi, Wh


@triton.jit
def gru_update(h, e, x, m, dropout, w, H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr,
               DROPOUT: tl.constexpr, P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    """Return the GRU's r, z, h's term of n, and n; the derivatives of p's hidden layer and of the features with respect
    to their inputs; the error and 1/σ."""
    b1 = w + H * Q
    W2 = b1 + Q
    b2 = W2 + Q * 2 * D
    M = b2 + 2 * D
    Wi, Wh = gru_offsets(w, H, Q, D, F)
    bi, bh = Wi + D * F * 3 * H, Wh + H * 3 * H
    a = down(h, matrix(w, Q, H, Q, P, PQ)) + vector(b1, Q, PQ)
    d_hidden = tl.where(a > 0, 1.0, 0.0)
    if DROPOUT:
        d_hidden = d_hidden * vector(dropout + e * Q, Q, PQ)
    a = a * d_hidden
    mean = down(a, repeat_columns(W2, 2 * D, Q, D, F, PQ, PK)) + by_feature(b2, D, F, PK)
    logvar = down(a, repeat_columns(W2 + D, 2 * D, Q, D, F, PQ, PK)) + by_feature(b2 + D, D, F, PK)
    value = by_feature(x + e * D, D, F, PK)
    inverse = tl.exp(-0.5 * logvar)
    error = (value - mean) * inverse
    q = feature_weight(M, 0, D, F, PK) * value + feature_weight(M, 1, D, F, PK) * mean \
        + feature_weight(M, 2, D, F, PK) * logvar + feature_weight(M, 3, D, F, PK) * error \
        + vector(M + D * 4 * F, D * F, PK)
    d_features = tl.where(q > 0, by_feature(m + e * D, D, F, PK), 0.0)
    q = q * d_features
    r = tl.sigmoid(down(q, matrix(Wi, 3 * H, D * F, H, PK, P)) + vector(bi, H, P)
                   + down(h, matrix(Wh, 3 * H, H, H, P, P)) + vector(bh, H, P))
    z = tl.sigmoid(down(q, matrix(Wi + H, 3 * H, D * F, H, PK, P)) + vector(bi + H, H, P)
                   + down(h, matrix(Wh + H, 3 * H, H, H, P, P)) + vector(bh + H, H, P))
    own = down(h, matrix(Wh + 2 * H, 3 * H, H, H, P, P)) + vector(bh + 2 * H, H, P)
    n = libdevice.tanh(down(q, matrix(Wi + 2 * H, 3 * H, D * F, H, PK, P)) + vector(bi + 2 * H, H, P) + r * own)
    return r, z, own, n, d_hidden, d_features, error, inverse


@triton.jit
def process_events(h, e, end, i, rows, observed, x, m, dropout, w, pre, post, H: tl.constexpr, Q: tl.constexpr,
                   D: tl.constexpr, F: tl.constexpr, DROPOUT: tl.constexpr, NO_READS: tl.constexpr, P: tl.constexpr,
                   PQ: tl.constexpr, PK: tl.constexpr):
    """Return h after the events of row i, of which e is the first, and the index of the next event."""
    while tl.load(rows + e, mask=e < end, other=-1) == i:
        put(pre + e * H, h, H, P)
        is_observation = True
        if not NO_READS:
            is_observation = tl.load(observed + e) != 0
        if is_observation:
            _, z, _, n, _, _, _, _ = gru_update(h, e, x, m, dropout, w, H, Q, D, F, DROPOUT, P, PQ, PK)
            h = n + z * (h - n)
        put(post + e * H, h, H, P)
        e += 1
    return h, e


@triton.jit
def process_events_back(d, e, first, i, rows, observed, x, m, dropout, w, pre, grad_pre, grad_post, d_post,
                        H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr, DROPOUT: tl.constexpr,
                        NO_READS: tl.constexpr, P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    """Return ∂h before the events of row i, of which e is the last, from d after them, and the previous event."""
    while tl.load(rows + e, mask=e >= first, other=-1) == i:
        d += vector(grad_post + e * H, H, P)
        is_observation = True
        if not NO_READS:
            is_observation = tl.load(observed + e) != 0
        if is_observation:
            put(d_post + e * H, d, H, P)
            W2 = w + H * Q + Q
            M = W2 + Q * 2 * D + 2 * D
            Wi, Wh = gru_offsets(w, H, Q, D, F)
            h = vector(pre + e * H, H, P)
            r, z, own, n, d_hidden, d_features, error, inverse = gru_update(h, e, x, m, dropout, w, H, Q, D, F, DROPOUT,
                                                                        P, PQ, PK)
            of_mean, of_var = feature_weight(M, 1, D, F, PK), feature_weight(M, 2, D, F, PK)
            of_error = feature_weight(M, 3, D, F, PK)
            d_n = d * (1 - z) * (1 - n * n)
            d_z = d * (h - n) * z * (1 - z)
            d_r = d_n * own * r * (1 - r)
            d_q = tl.sum(d_r[None, :] * matrix(Wi, 3 * H, D * F, H, PK, P)
                         + d_z[None, :] * matrix(Wi + H, 3 * H, D * F, H, PK, P)
                         + d_n[None, :] * matrix(Wi + 2 * H, 3 * H, D * F, H, PK, P), axis=1) * d_features
            d_mean, d_var = d_q * (of_mean - of_error * inverse), d_q * (of_var - 0.5 * of_error * error)
            d_a = tl.sum(d_mean[None, :] * repeat_columns(W2, 2 * D, Q, D, F, PQ, PK)
                         + d_var[None, :] * repeat_columns(W2 + D, 2 * D, Q, D, F, PQ, PK), axis=1)
            d = d * z + tl.sum(d_r[None, :] * matrix(Wh, 3 * H, H, H, P, P)
                               + d_z[None, :] * matrix(Wh + H, 3 * H, H, H, P, P)
                               + (d_n * r)[None, :] * matrix(Wh + 2 * H, 3 * H, H, H, P, P), axis=1) \
                + across(d_a * d_hidden, matrix(w, Q, H, Q, P, PQ))
        d += vector(grad_pre + e * H, H, P)
        e -= 1
    return d, e
