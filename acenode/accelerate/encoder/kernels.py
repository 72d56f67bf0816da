"""The passes of `scan` as two Triton kernels: a program runs all rows of one series.

μ and s, or their gradients, stay in registers from row to row; weights are read again at every row, from the cache. A
row that reads no point stores nothing for its update: those buffers are zero before. Vectors and matrices are padded to
P, a power of two.

The weights lie in one row: Gᵀ, G', b, Nᵀ, N', b', then W and b of each of f's L layers, every second W transposed, the
first one too. So the products of a chain sum over the columns and over the rows of a matrix in turn, and each leaves
its result in the threads where the next one reads it.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.triton_math import across, down, matrix, put, vector
from acenode.accelerate.triton_support import Serialised


@triton.jit
def sign(x):
    return tl.where(x > 0, 1.0, 0.0) - tl.where(x < 0, 1.0, 0.0)


@triton.jit
def linear(x, w, inputs: tl.constexpr, outputs: tl.constexpr, TRANSPOSED: tl.constexpr, P: tl.constexpr):
    """Return x W + b of one layer of f."""
    if TRANSPOSED:
        y = across(x, matrix(w, inputs, outputs, inputs, P, P))
    else:
        y = down(x, matrix(w, outputs, inputs, outputs, P, P))
    return y + vector(w + inputs * outputs, outputs, P)


@triton.jit
def linear_backward(d, w, inputs: tl.constexpr, outputs: tl.constexpr, TRANSPOSED: tl.constexpr, P: tl.constexpr):
    """Return d Wᵀ."""
    if TRANSPOSED:
        y = down(d, matrix(w, inputs, outputs, inputs, P, P))
    else:
        y = across(d, matrix(w, outputs, inputs, outputs, P, P))
    return y


@Serialised
@triton.jit(do_not_specialize=["S", "B"])
def forward(projected, dt, read, w, y_start, y_moved, gates_hidden, gates, new_hidden, new, mixed, f_hidden, states,
            S, B, R: tl.constexpr, U: tl.constexpr, H: tl.constexpr, L: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    G = w
    G2 = G + 4 * R * U
    gb = G2 + 4 * R * U
    N = gb + 2 * R
    N2 = N + 2 * R * U
    nb = N2 + 2 * R * U
    f = nb + 2 * R
    last = f + R * H + H + (L - 2) * (H * H + H)
    mu = tl.zeros((P,), tl.float32)
    s = tl.zeros((P,), tl.float32)
    for i in range(S):
        at = i * B + b
        put(y_start + at * 2 * R, mu, R, P)
        put(y_start + at * 2 * R + R, s, R, P)
        a = mu
        for n in tl.static_range(L - 1):
            if n == 0:
                a = linear(a, f, R, H, True, P)
            else:
                a = linear(a, f + R * H + H + (n - 1) * (H * H + H), H, H, n % 2 == 0, P)
            a = libdevice.tanh(a)
            put(f_hidden + ((n * S + i) * B + b) * H, a, H, P)
        mu = mu + tl.load(dt + at) * linear(a, last, H, R, L % 2 == 1, P)
        put(y_moved + at * 2 * R, mu, R, P)
        put(y_moved + at * 2 * R + R, s, R, P)
        if tl.load(read + at) != 0:
            x = projected + at * 3 * U
            g1 = libdevice.tanh(vector(x, U, P) + across(mu, matrix(G, 2 * R, U, R, P, P))
                                + across(s, matrix(G + R, 2 * R, U, R, P, P)))
            g2 = libdevice.tanh(vector(x + U, U, P) + across(mu, matrix(G + U * 2 * R, 2 * R, U, R, P, P))
                                + across(s, matrix(G + U * 2 * R + R, 2 * R, U, R, P, P)))
            put(gates_hidden + at * 2 * U, g1, U, P)
            put(gates_hidden + at * 2 * U + U, g2, U, P)
            u = tl.sigmoid(vector(gb, R, P) + down(g1, matrix(G2, 2 * R, U, R, P, P))
                           + down(g2, matrix(G2 + U * 2 * R, 2 * R, U, R, P, P)))
            r = tl.sigmoid(vector(gb + R, R, P) + down(g1, matrix(G2 + R, 2 * R, U, R, P, P))
                           + down(g2, matrix(G2 + U * 2 * R + R, 2 * R, U, R, P, P)))
            put(gates + at * 2 * R, u, R, P)
            put(gates + at * 2 * R + R, r, R, P)
            v = libdevice.tanh(vector(x + 2 * U, U, P) + across(mu * r, matrix(N, 2 * R, U, R, P, P))
                               + across(s * r, matrix(N + R, 2 * R, U, R, P, P)))
            put(new_hidden + at * U, v, U, P)
            m = vector(nb, R, P) + down(v, matrix(N2, 2 * R, U, R, P, P))
            c = vector(nb + R, R, P) + down(v, matrix(N2 + R, 2 * R, U, R, P, P))
            put(new + at * 2 * R, m, R, P)
            put(new + at * 2 * R + R, c, R, P)
            mu = m + u * (mu - m)
            s = tl.abs(c) + u * (s - tl.abs(c))
            put(mixed + at * 2 * R, mu, R, P)
            put(mixed + at * 2 * R + R, s, R, P)
            s = tl.abs(s)
        put(states + at * 2 * R, mu, R, P)
        put(states + at * 2 * R + R, s, R, P)


@Serialised
@triton.jit(do_not_specialize=["S", "B"])
def backward(grad, dt, read, w, y_moved, gates_hidden, gates, new_hidden, new, mixed, f_hidden, d_projected, d_gates,
             d_new, d_rate, d_f_hidden, S, B, R: tl.constexpr, U: tl.constexpr, H: tl.constexpr, L: tl.constexpr,
             P: tl.constexpr):
    b = tl.program_id(0)
    G = w
    G2 = G + 4 * R * U
    N = G2 + 4 * R * U + 2 * R
    N2 = N + 2 * R * U
    f = N2 + 2 * R * U + 2 * R
    last = f + R * H + H + (L - 2) * (H * H + H)
    dmu = tl.zeros((P,), tl.float32)
    ds = tl.zeros((P,), tl.float32)
    for step in range(S):
        i = S - 1 - step
        at = i * B + b
        dmu += vector(grad + at * 2 * R, R, P)
        ds += vector(grad + at * 2 * R + R, R, P)
        if tl.load(read + at) != 0:
            mu, s = vector(y_moved + at * 2 * R, R, P), vector(y_moved + at * 2 * R + R, R, P)
            u, r = vector(gates + at * 2 * R, R, P), vector(gates + at * 2 * R + R, R, P)
            m, c = vector(new + at * 2 * R, R, P), vector(new + at * 2 * R + R, R, P)
            ds = ds * sign(vector(mixed + at * 2 * R + R, R, P))
            d_u = (dmu * (mu - m) + ds * (s - tl.abs(c))) * u * (1 - u)
            d_m, d_c = dmu * (1 - u), ds * (1 - u) * sign(c)
            put(d_new + at * 2 * R, d_m, R, P)
            put(d_new + at * 2 * R + R, d_c, R, P)
            v = vector(new_hidden + at * U, U, P)
            d_v = (across(d_m, matrix(N2, 2 * R, U, R, P, P))
                   + across(d_c, matrix(N2 + R, 2 * R, U, R, P, P))) * (1 - v * v)
            put(d_projected + at * 3 * U + 2 * U, d_v, U, P)
            d_reset_mu = down(d_v, matrix(N, 2 * R, U, R, P, P))
            d_reset_s = down(d_v, matrix(N + R, 2 * R, U, R, P, P))
            d_r = (d_reset_mu * mu + d_reset_s * s) * r * (1 - r)
            put(d_gates + at * 2 * R, d_u, R, P)
            put(d_gates + at * 2 * R + R, d_r, R, P)
            g1, g2 = vector(gates_hidden + at * 2 * U, U, P), vector(gates_hidden + at * 2 * U + U, U, P)
            d_g1 = (across(d_u, matrix(G2, 2 * R, U, R, P, P))
                    + across(d_r, matrix(G2 + R, 2 * R, U, R, P, P))) * (1 - g1 * g1)
            d_g2 = (across(d_u, matrix(G2 + U * 2 * R, 2 * R, U, R, P, P))
                    + across(d_r, matrix(G2 + U * 2 * R + R, 2 * R, U, R, P, P))) * (1 - g2 * g2)
            put(d_projected + at * 3 * U, d_g1, U, P)
            put(d_projected + at * 3 * U + U, d_g2, U, P)
            dmu = dmu * u + d_reset_mu * r + down(d_g1, matrix(G, 2 * R, U, R, P, P)) \
                + down(d_g2, matrix(G + U * 2 * R, 2 * R, U, R, P, P))
            ds = ds * u + d_reset_s * r + down(d_g1, matrix(G + R, 2 * R, U, R, P, P)) \
                + down(d_g2, matrix(G + U * 2 * R + R, 2 * R, U, R, P, P))
        d = tl.load(dt + at) * dmu
        put(d_rate + at * R, d, R, P)
        d = linear_backward(d, last, H, R, L % 2 == 1, P)
        for n in tl.static_range(L - 2, -1, -1):
            a = vector(f_hidden + ((n * S + i) * B + b) * H, H, P)
            d = d * (1 - a * a)
            put(d_f_hidden + ((n * S + i) * B + b) * H, d, H, P)
            if n == 0:
                d = linear_backward(d, f, R, H, True, P)
            else:
                d = linear_backward(d, f + R * H + H + (n - 1) * (H * H + H), H, H, n % 2 == 0, P)
        dmu += d
