"""Forward and backward kernels of `cuda`: one program integrates one series through all rows of the schedule.

Sizes are padded to powers of two: H to P, p's hidden layer Q to PQ, the features D·F to PK. The weights w of the jump
are flat, one after another, as `cuda.kernel_weights` has them from W₁ on, and loaded again at every event. The other
matrices lie one after another, (P, P) each: r, z and u of f, then with attention of the rows of a and of the mean;
`transposed` has them transposed.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.triton_math import across, down, matrix, put, put3, vector
from acenode.accelerate.triton_support import Serialised

CHUNK = tl.constexpr(16)  # rows of a window that are handled at a time
MIN_WINDOW = tl.constexpr(1e-12)

# Observations and read points ----------------------------------------------------------------------------------------
# Feature k = d·F + j of a jump is the j-th of variable d, so a value of variable d is loaded for each of its features.


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


# Attention ------------------------------------------------------------------------------------------------------------
# Every row of a is the state of its own GRU, so the step at the end of a window handles M rows of a at a time, from row
# `top` on: few enough for registers. Each series has its own memory for σ(a), ∂a and the sums of the gradients of g's
# weights, padded with zeros to (P, P), small enough to stay in the cache.


@triton.jit
def tile(x, P: tl.constexpr):
    """Load a padded matrix, (P, P)."""
    return tl.load(x + tl.arange(0, P)[:, None] * P + tl.arange(0, P)[None, :])


@triton.jit
def strip(x, top, M: tl.constexpr, P: tl.constexpr):
    """Load M rows of a padded matrix, from row `top` on."""
    return tl.load(x + (top + tl.arange(0, M))[:, None] * P + tl.arange(0, P)[None, :])


@triton.jit
def put_strip(to, x, top, M: tl.constexpr, P: tl.constexpr):
    """Store M rows of a padded matrix, from row `top` on."""
    tl.store(to + (top + tl.arange(0, M))[:, None] * P + tl.arange(0, P)[None, :], x)


@triton.jit
def put_transposed(to, x, top, M: tl.constexpr, P: tl.constexpr):
    """Store M rows as columns."""
    tl.store(to + tl.arange(0, P)[:, None] * P + (top + tl.arange(0, M))[None, :], tl.trans(x))


@triton.jit
def softmax(a, top, H: tl.constexpr, M: tl.constexpr, P: tl.constexpr):
    """Return σ(a) of M rows, zero in the padding."""
    i, j = (top + tl.arange(0, M))[:, None], tl.arange(0, P)[None, :]
    power = tl.where(j < H, tl.exp(a - tl.max(tl.where(j < H, a, float("-inf")), axis=1)[:, None]), 0.0)
    return tl.where(i < H, power / tl.sum(power, axis=1)[:, None], 0.0)


@triton.jit
def times_transposed(x, W, PRECISION: tl.constexpr):
    """Return x Wᵀ."""
    return tl.dot(x, tl.trans(W), input_precision=PRECISION)


@triton.jit
def gates(a, transposed, in_r, in_z, in_u, P: tl.constexpr, PRECISION: tl.constexpr):
    """Return g's r, z and u of some rows of a; in_r, in_z and in_u are the mean's terms."""
    r = tl.sigmoid(times_transposed(a, tile(transposed, P), PRECISION) + in_r[None, :])
    z = tl.sigmoid(times_transposed(a, tile(transposed + P * P, P), PRECISION) + in_z[None, :])
    u = 2 * tl.sigmoid(2 * (times_transposed(r * a, tile(transposed + 2 * P * P, P), PRECISION) + in_u[None, :])) - 1
    return r, z, u


@triton.jit
def attention_step(a, after, soft, transposed, in_r, in_z, in_u, tau, H: tl.constexpr, M: tl.constexpr,
                   P: tl.constexpr, PRECISION: tl.constexpr):
    """Store a after its step of length τ, and σ(a) transposed."""
    for top in range(0, P, M):
        now = matrix(a + top * H, H, H - top, H, M, P)
        _, z, u = gates(now, transposed, in_r, in_z, in_u, P, PRECISION)
        now = now + (1 - tl.exp(tau * (z - 1))) * (u - now)
        i, j = (top + tl.arange(0, M))[:, None], tl.arange(0, P)[None, :]
        tl.store(after + i * H + j, now, mask=(i < H) & (j < H))
        put_transposed(soft, softmax(now, top, H, M, P), top, M, P)


@triton.jit
def add_window_gradient(d_a, soft, d_s, states, lo, hi, stride, top, H: tl.constexpr, M: tl.constexpr,
                        P: tl.constexpr, PRECISION: tl.constexpr):
    """Return ∂ of some rows of a, plus the gradient through σ(a) of the window's rows lo to hi."""
    d = tl.zeros((M, P), tl.float32)
    i, j = top + tl.arange(0, M), tl.arange(0, P)
    for at in range(0, hi - lo, CHUNK):
        k = at + tl.arange(0, CHUNK)
        back = tl.load(d_s + k[None, :] * P + i[:, None], mask=k[None, :] < hi - lo, other=0.0)
        h = tl.load(states + (lo + k)[:, None] * stride + j[None, :], mask=(k[:, None] < hi - lo) & (j[None, :] < H),
                    other=0.0)
        d = tl.dot(back, h, d, input_precision=PRECISION)
    S = strip(soft, top, M, P)
    return strip(d_a, top, M, P) + S * (d - tl.sum(S * d, axis=1)[:, None])


@triton.jit
def attention_step_back(a, d, matrices, transposed, in_r, in_z, in_u, tau, scratch, top, M: tl.constexpr,
                        P: tl.constexpr, TRAINED: tl.constexpr, PRECISION: tl.constexpr):
    """Return ∂ of some rows of a before their step from d, that after it, and ∂ of the mean's terms of r, z and u.

    For the gradient of g's weights, store a, r ⊙ a and ∂ of the pre-activations of r, z and u in `scratch`, transposed.
    """
    r, z, u = gates(a, transposed, in_r, in_z, in_u, P, PRECISION)
    left = d * tl.exp(tau * (z - 1))
    d_z = left * tau * (a - u) * z * (1 - z)
    d_u = (d - left) * (1 - u * u)
    d = left
    d_ra = times_transposed(d_u, tile(matrices + 2 * P * P, P), PRECISION)
    d_r = d_ra * a * r * (1 - r)
    d += d_ra * r
    if TRAINED:
        put_transposed(scratch, a, top, M, P)
        put_transposed(scratch + P * P, r * a, top, M, P)
        put_transposed(scratch + 2 * P * P, d_r, top, M, P)
        put_transposed(scratch + 3 * P * P, d_z, top, M, P)
        put_transposed(scratch + 4 * P * P, d_u, top, M, P)
    d += times_transposed(d_r, tile(matrices, P), PRECISION) \
        + times_transposed(d_z, tile(matrices + P * P, P), PRECISION)
    return d, tl.sum(d_r, axis=0), tl.sum(d_z, axis=0), tl.sum(d_u, axis=0)


@triton.jit
def add_products(sums, scratch, P: tl.constexpr, PRECISION: tl.constexpr):
    """Add the gradients of g's weights on the rows of a, from the scratch memory of `attention_step_back`."""
    at = tl.arange(0, P)[:, None] * P + tl.arange(0, P)[None, :]
    for k in tl.static_range(3):
        found = times_transposed(tile(scratch + k // 2 * P * P, P), tile(scratch + (2 + k) * P * P, P), PRECISION)
        tl.store(sums + k * P * P + at, tl.load(sums + k * P * P + at) + found)


# All rows -------------------------------------------------------------------------------------------------------------
# Window n has the rows from 1 + n·every on; the first one also has row 0, whose step has length 0. Without attention
# there is one window. h, σ(a) and f's weights, or ∂h and the transposed matrices, stay in registers for the rows of a
# window, and all products of a row run down the columns of a matrix. A window's end passes its results from thread to
# thread through memory, hence the barriers. The rows between two events are an inner loop, so that events do not take
# its registers.


@triton.jit
def window(n, every, S):
    """Return the first row of window n, and the row after its last."""
    lo = tl.where(n == 0, 0, 1 + n * every)
    return lo, tl.minimum(1 + (n + 1) * every, S)


@Serialised
@triton.jit(do_not_specialize=["S", "B", "windows", "every", "row_stride", "series_stride"])
def forward(h0, dt, row_stride, series_stride, offsets, rows, observed, x, m, dropout, w, matrices, transposed, a, soft,
            states, attended, gates, means, mean_terms, taus, pre, post, S, B, windows, every, ATTENTION: tl.constexpr,
            OWN: tl.constexpr, SAVE: tl.constexpr, M: tl.constexpr, PRECISION: tl.constexpr, H: tl.constexpr,
            Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr, DROPOUT: tl.constexpr, NO_READS: tl.constexpr,
            P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    b = tl.program_id(0)
    soft += b * P * P
    a += b * H * H
    g = 3 * P * P
    h = vector(h0 + b * H, H, P)
    e, end = tl.load(offsets + b), tl.load(offsets + b + 1)
    if ATTENTION:
        for top in range(0, P, M):
            put_transposed(soft, softmax(matrix(a + top * H, H, H - top, H, M, P), top, H, M, P), top, M, P)
    for n in range(windows):
        tl.debug_barrier()
        lo, hi = window(n, every, S)
        Wr, Wz, Wu = tile(matrices, P), tile(matrices + P * P, P), tile(matrices + 2 * P * P, P)
        if ATTENTION:
            A = tile(soft, P)
        mean = tl.zeros((P,), tl.float32)
        tau = 0.0
        while lo < hi:
            stop = tl.minimum(tl.load(rows + e, mask=e < end, other=S).to(tl.int32) + 1, hi)
            for i in range(lo, stop):
                at = i * B + b
                step = tl.load(dt + i * row_stride + b * series_stride)
                s = h
                if ATTENTION:
                    s = down(h, A)
                r, z = tl.sigmoid(down(s, Wr)), tl.sigmoid(down(s, Wz))
                u = libdevice.tanh(down(r * s, Wu))
                if SAVE:
                    put(states + at * H, h, H, P)
                    if ATTENTION:
                        put(attended + at * H, s, H, P)
                    put3(gates + at * 3 * H, r, z, u, H, P)
                mean += step * s
                tau += step
                h = h + step * (1 - z) * (u - (h if OWN else s))
            h, e = process_events(h, e, end, stop - 1, rows, observed, x, m, dropout, w, pre, post, H, Q, D, F,
                                  DROPOUT, NO_READS, P, PQ, PK)
            lo = stop
        if ATTENTION and n + 1 < windows:
            mean = mean / tl.maximum(tau, MIN_WINDOW)
            V = matrices + 2 * g
            in_r, in_z = down(mean, tile(V, P)), down(mean, tile(V + P * P, P))
            in_u = down(mean, tile(V + 2 * P * P, P))
            now, after = n % 2, (n + 1) % 2
            if SAVE:
                at = n * B + b
                put(means + at * H, mean, H, P)
                put3(mean_terms + at * 3 * H, in_r, in_z, in_u, H, P)
                tl.store(taus + at, tau)
                now, after = n, n + 1
            attention_step(a + now * B * H * H, a + after * B * H * H, soft, transposed + g, in_r, in_z, in_u, tau,
                           H, M, P, PRECISION)


@triton.jit
def window_end_back(at, a, soft, d_a, d_s, states, start, end, stride, matrices, transposed, mean_terms, taus,
                    d_mean_terms, scratch, sums, H: tl.constexpr, M: tl.constexpr, P: tl.constexpr,
                    TRAINED: tl.constexpr, PRECISION: tl.constexpr):
    """Store ∂a before the step at the end of a window, and return ∂ of the window's mean divided by τ.

    The next window has the rows from `start` to `end`.
    """
    g = 3 * P * P
    tau = tl.load(taus + at)
    d_r, d_z, d_u = tl.zeros((P,), tl.float32), tl.zeros((P,), tl.float32), tl.zeros((P,), tl.float32)
    for top in range(0, P, M):
        da = add_window_gradient(d_a, soft, d_s, states, start, end, stride, top, H, M, P, PRECISION)
        now = matrix(a + top * H, H, H - top, H, M, P)
        in_r, in_z = vector(mean_terms + at * 3 * H, H, P), vector(mean_terms + at * 3 * H + H, H, P)
        in_u = vector(mean_terms + at * 3 * H + 2 * H, H, P)
        da, of_r, of_z, of_u = attention_step_back(now, da, matrices + g, transposed + g, in_r, in_z, in_u, tau,
                                                   scratch, top, M, P, TRAINED, PRECISION)
        d_r += of_r
        d_z += of_z
        d_u += of_u
        tl.debug_barrier()
        put_strip(d_a, da, top, M, P)
    if TRAINED:
        tl.debug_barrier()
        add_products(sums, scratch, P, PRECISION)
        put3(d_mean_terms + at * 3 * H, d_r, d_z, d_u, H, P)
    V = transposed + 2 * g
    d_mean = down(d_r, tile(V, P)) + down(d_z, tile(V + P * P, P)) + down(d_u, tile(V + 2 * P * P, P))
    return d_mean / tl.maximum(tau, MIN_WINDOW)


@Serialised
@triton.jit(do_not_specialize=["S", "B", "windows", "every", "row_stride", "series_stride"])
def backward(grad_pre, grad_post, dt, row_stride, series_stride, offsets, rows, observed, x, m, dropout, w, matrices,
             transposed, a, states, attended, gates, mean_terms, taus, pre, d_post, soft, d_s, d_a, d_gates,
             d_mean_terms, scratch, sums, d_start, S, B, windows, every, ATTENTION: tl.constexpr, OWN: tl.constexpr,
             GRAD_A: tl.constexpr, F_TRAINED: tl.constexpr, G_TRAINED: tl.constexpr, M: tl.constexpr,
             PRECISION: tl.constexpr, H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr,
             DROPOUT: tl.constexpr, NO_READS: tl.constexpr, P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    b = tl.program_id(0)
    soft += b * P * P
    d_a += b * P * P
    scratch += b * 5 * P * P
    sums += b * 3 * P * P
    d_s += b * (every + 1) * P
    a += b * H * H
    first = tl.load(offsets + b)
    e = tl.load(offsets + b + 1) - 1
    d = tl.zeros((P,), tl.float32)
    for back in range(windows):
        n = windows - 1 - back
        lo, hi = window(n, every, S)
        d_mean = tl.zeros((P,), tl.float32)
        if GRAD_A and back > 0:
            tl.debug_barrier()
            start, end = window(n + 1, every, S)
            d_mean = window_end_back(n * B + b, a + n * B * H * H, soft, d_a, d_s, states + b * H, start, end, B * H,
                                     matrices, transposed, mean_terms, taus, d_mean_terms, scratch, sums, H, M, P,
                                     G_TRAINED, PRECISION)
        Wr, Wz, Wu = tile(transposed, P), tile(transposed + P * P, P), tile(transposed + 2 * P * P, P)
        if ATTENTION:
            tl.debug_barrier()
            for top in range(0, P, M):
                now = matrix(a + n * B * H * H + top * H, H, H - top, H, M, P)
                put_strip(soft, softmax(now, top, H, M, P), top, M, P)
            tl.debug_barrier()
            A = tile(soft, P)
        while hi > lo:
            d, e = process_events_back(d, e, first, hi - 1, rows, observed, x, m, dropout, w, pre, grad_pre,
                                       grad_post, d_post, H, Q, D, F, DROPOUT, NO_READS, P, PQ, PK)
            stop = tl.maximum(tl.load(rows + e, mask=e >= first, other=-1).to(tl.int32) + 1, lo)
            for last in range(hi - stop):
                i = hi - 1 - last
                at = i * B + b
                step = tl.load(dt + i * row_stride + b * series_stride)
                s, r = vector(attended + at * H, H, P), vector(gates + at * 3 * H, H, P)
                z, u = vector(gates + at * 3 * H + H, H, P), vector(gates + at * 3 * H + 2 * H, H, P)
                own = s
                if OWN:
                    own = vector(states + at * H, H, P)
                scaled = d * step
                d_new = scaled * (1 - z)
                d_z = scaled * (own - u) * z * (1 - z)
                d_u = d_new * (1 - u * u)
                d_read = down(d_u, Wu)
                d_r = d_read * s * r * (1 - r)
                d_in = d_read * r + step * d_mean + tl.sum(d_r[:, None] * Wr + d_z[:, None] * Wz, axis=0)
                if OWN:
                    d = d - d_new
                else:
                    d_in = d_in - d_new
                if F_TRAINED:
                    put3(d_gates + at * 3 * H, d_r, d_z, d_u, H, P)
                if GRAD_A:
                    put(d_s + (i - lo) * P, d_in, P, P)
                if ATTENTION:
                    d_in = down(d_in, A)
                d = d + d_in
            hi = stop
    put(d_start + b * H, d, H, P)
    if GRAD_A:
        tl.debug_barrier()
        lo, hi = window(0, every, S)
        for top in range(0, P, M):
            da = add_window_gradient(d_a, soft, d_s, states + b * H, lo, hi, B * H, top, H, M, P, PRECISION)
            tl.debug_barrier()
            put_strip(d_a, da, top, M, P)
