"""Forward and backward kernels of `attention_cuda`: one program integrates one series through all of its windows.

Window n has the rows from 1 + n·every on; the first one also has row 0, whose step has length 0. h, σ(a) and f's
weights, or ∂h and the transposed matrices, stay in registers for the rows of a window, and all products of a row run
down the columns of a matrix. A window's end passes its results from thread to thread through memory, hence the
barriers. The rows between two events are an inner loop, so that events do not take its registers. Sizes are padded as
in `event_kernels`.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.encoder.kernels import down, matrix, put, vector
from acenode.accelerate.gru_ode_bayes.attention_kernels import (
    add_products,
    add_window_gradient,
    attention_step,
    attention_step_back,
    put_strip,
    put_transposed,
    softmax,
    tile,
)
from acenode.accelerate.gru_ode_bayes.event_kernels import process_events, process_events_back
from acenode.accelerate.gru_ode_bayes.matrix_attention_kernels import drift, drift_back, drift_gradient, matrix_step
from acenode.accelerate.triton_support import Serialised

MIN_WINDOW = tl.constexpr(1e-12)


@triton.jit
def window(n, every, S):
    """Return the first row of window n, and the row after its last."""
    lo = tl.where(n == 0, 0, 1 + n * every)
    return lo, tl.minimum(1 + (n + 1) * every, S)


@Serialised
@triton.jit(do_not_specialize=["S", "B", "windows", "every", "row_stride", "series_stride"])
def forward(h0, dt, row_stride, series_stride, offsets, rows, observed, x, m, dropout, w, matrices, transposed, out, a,
            soft, states, attended, gates, means, mean_terms, taus, drifts, pre, post, S, B, windows, every,
            OWN: tl.constexpr, MATRIX: tl.constexpr, SAVE: tl.constexpr, M: tl.constexpr, PRECISION: tl.constexpr,
            H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, F: tl.constexpr, DROPOUT: tl.constexpr,
            NO_READS: tl.constexpr, P: tl.constexpr, PQ: tl.constexpr, PK: tl.constexpr):
    b = tl.program_id(0)
    soft += b * P * P
    a += b * H * H
    g = 3 * P * P
    h = vector(h0 + b * H, H, P)
    e, end = tl.load(offsets + b), tl.load(offsets + b + 1)
    for top in range(0, P, M):
        put_transposed(soft, softmax(matrix(a + top * H, H, H - top, H, M, P), top, H, M, P), top, M, P)
    for n in range(windows):
        tl.debug_barrier()
        lo, hi = window(n, every, S)
        A, Wr, Wz, Wu = tile(soft, P), tile(matrices, P), tile(matrices + P * P, P), tile(matrices + 2 * P * P, P)
        mean = tl.zeros((P,), tl.float32)
        tau = 0.0
        while lo < hi:
            stop = tl.minimum(tl.load(rows + e, mask=e < end, other=S).to(tl.int32) + 1, hi)
            for i in range(lo, stop):
                at = i * B + b
                step = tl.load(dt + i * row_stride + b * series_stride)
                s = down(h, A)
                r, z = tl.sigmoid(down(s, Wr)), tl.sigmoid(down(s, Wz))
                u = libdevice.tanh(down(r * s, Wu))
                if SAVE:
                    put(states + at * H, h, H, P)
                    put(attended + at * H, s, H, P)
                    put(gates + at * 3 * H, r, H, P)
                    put(gates + at * 3 * H + H, z, H, P)
                    put(gates + at * 3 * H + 2 * H, u, H, P)
                mean += step * s
                tau += step
                h = h + step * (1 - z) * (u - (h if OWN else s))
            h, e = process_events(h, e, end, stop - 1, rows, observed, x, m, dropout, w, pre, post, H, Q, D, F,
                                  DROPOUT, NO_READS, P, PQ, PK)
            lo = stop
        if n + 1 < windows:
            mean = mean / tl.maximum(tau, MIN_WINDOW)
            V = matrices + 2 * g
            v = drifts + b * H
            if MATRIX:
                in_r, in_z, in_u, found = drift(mean, V, P)
                if SAVE:
                    v += n * B * H
                put(v, found, H, P)
                tl.debug_barrier()
            else:
                in_r, in_z = down(mean, tile(V, P)), down(mean, tile(V + P * P, P))
                in_u = down(mean, tile(V + 2 * P * P, P))
            now, after = n % 2, (n + 1) % 2
            if SAVE:
                at = n * B + b
                put(means + at * H, mean, H, P)
                put(mean_terms + at * 3 * H, in_r, H, P)
                put(mean_terms + at * 3 * H + H, in_z, H, P)
                put(mean_terms + at * 3 * H + 2 * H, in_u, H, P)
                tl.store(taus + at, tau)
                now, after = n, n + 1
            if MATRIX:
                matrix_step(a + now * B * H * H, a + after * B * H * H, soft, v, out, tau, H, M, P)
            else:
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
        put(d_mean_terms + at * 3 * H, d_r, H, P)
        put(d_mean_terms + at * 3 * H + H, d_z, H, P)
        put(d_mean_terms + at * 3 * H + 2 * H, d_u, H, P)
    V = transposed + 2 * g
    d_mean = down(d_r, tile(V, P)) + down(d_z, tile(V + P * P, P)) + down(d_u, tile(V + 2 * P * P, P))
    return d_mean / tl.maximum(tau, MIN_WINDOW)


@triton.jit
def matrix_window_end_back(at, soft, d_a, d_s, states, start, end, stride, transposed, out_rows, means, mean_terms,
                           taus, d_mean_terms, d_steps, H: tl.constexpr, M: tl.constexpr, P: tl.constexpr,
                           TRAINED: tl.constexpr, PRECISION: tl.constexpr):
    """Do what `window_end_back` does if g gives the whole matrix. `d_steps` collects ∂a at the end of every window."""
    tau = tl.load(taus + at)
    for top in range(0, P, M):
        da = add_window_gradient(d_a, soft, d_s, states, start, end, stride, top, H, M, P, PRECISION)
        tl.debug_barrier()
        put_strip(d_a, da, top, M, P)
        if TRAINED:
            i, j = (top + tl.arange(0, M))[:, None], tl.arange(0, P)[None, :]
            tl.store(d_steps + at * H * H + i * H + j, da, mask=(i < H) & (j < H))
    tl.debug_barrier()
    mean, r = vector(means + at * H, H, P), vector(mean_terms + at * 3 * H, H, P)
    z, u = vector(mean_terms + at * 3 * H + H, H, P), vector(mean_terms + at * 3 * H + 2 * H, H, P)
    d_mean = drift_back(drift_gradient(d_a, out_rows, tau, H, P), mean, r, z, u, transposed + 6 * P * P,
                        d_mean_terms + at * 3 * H, H, P, TRAINED)
    return d_mean / tl.maximum(tau, MIN_WINDOW)


@Serialised
@triton.jit(do_not_specialize=["S", "B", "windows", "every", "row_stride", "series_stride"])
def backward(grad_pre, grad_post, dt, row_stride, series_stride, offsets, rows, observed, x, m, dropout, w, matrices,
             transposed, out_rows, a, states, attended, gates, means, mean_terms, taus, pre, d_post, soft, d_s, d_a,
             d_gates, d_mean_terms, d_steps, scratch, sums, d_start, S, B, windows, every,
             OWN: tl.constexpr, MATRIX: tl.constexpr, GRAD_A: tl.constexpr, F_TRAINED: tl.constexpr,
             G_TRAINED: tl.constexpr, M: tl.constexpr, PRECISION: tl.constexpr, H: tl.constexpr, Q: tl.constexpr,
             D: tl.constexpr, F: tl.constexpr, DROPOUT: tl.constexpr, NO_READS: tl.constexpr, P: tl.constexpr,
             PQ: tl.constexpr, PK: tl.constexpr):
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
            if MATRIX:
                d_mean = matrix_window_end_back(n * B + b, soft, d_a, d_s, states + b * H, start, end, B * H,
                                                transposed, out_rows, means, mean_terms, taus, d_mean_terms, d_steps,
                                                H, M, P, G_TRAINED, PRECISION)
            else:
                d_mean = window_end_back(n * B + b, a + n * B * H * H, soft, d_a, d_s, states + b * H, start, end,
                                         B * H, matrices, transposed, mean_terms, taus, d_mean_terms, scratch, sums, H,
                                         M, P, G_TRAINED, PRECISION)
        tl.debug_barrier()
        for top in range(0, P, M):
            now = matrix(a + n * B * H * H + top * H, H, H - top, H, M, P)
            put_strip(soft, softmax(now, top, H, M, P), top, M, P)
        tl.debug_barrier()
        A, Wr = tile(soft, P), tile(transposed, P)
        Wz, Wu = tile(transposed + P * P, P), tile(transposed + 2 * P * P, P)
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
                    put(d_gates + at * 3 * H, d_r, H, P)
                    put(d_gates + at * 3 * H + H, d_z, H, P)
                    put(d_gates + at * 3 * H + 2 * H, d_u, H, P)
                if GRAD_A:
                    put(d_s + (i - lo) * P, d_in, P, P)
                d = d + down(d_in, A)
            hi = stop
    put(d_start + b * H, d, H, P)
    if GRAD_A:
        tl.debug_barrier()
        lo, hi = window(0, every, S)
        for top in range(0, P, M):
            da = add_window_gradient(d_a, soft, d_s, states + b * H, lo, hi, B * H, top, H, M, P, PRECISION)
            tl.debug_barrier()
            put_strip(d_a, da, top, M, P)
