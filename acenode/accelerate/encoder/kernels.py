"""The rows of `torch_scan` as two kernels: a program takes one series through all of its rows.

μ and s, or their gradients, stay in registers from row to row; a weight is read again at every row, from a cache close
by. A row that reads nothing leaves what it would have stored as it was, zero. Vectors and matrices are padded to P, a
power of two.

The weights are flat, one after another: Gᵀ, G', b, Nᵀ, N', b', then W and b of each of f's L maps, every second W
transposed, the first one too. So the products of a chain go across the rows of a matrix and down its columns in turn,
and what one leaves with a thread is what the next one wants there.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.triton_support import Serialised


@triton.jit
def matrix(w, stride, rows, columns, P: tl.constexpr, Q: tl.constexpr):
    """The first rows and columns of a matrix, zero around them, (P, Q)."""
    i, j = tl.arange(0, P)[:, None], tl.arange(0, Q)[None, :]
    return tl.load(w + i * stride + j, mask=(i < rows) & (j < columns), other=0.0)


@triton.jit
def down(x, W):
    """x W."""
    return tl.sum(x[:, None] * W, axis=0)


@triton.jit
def across(x, W):
    """x Wᵀ."""
    return tl.sum(x[None, :] * W, axis=1)


@triton.jit
def vector(x, size, P: tl.constexpr):
    j = tl.arange(0, P)
    return tl.load(x + j, mask=j < size, other=0.0)


@triton.jit
def put(to, x, size, P: tl.constexpr):
    j = tl.arange(0, P)
    tl.store(to + j, x, mask=j < size)


@triton.jit
def sign(x):
    return tl.where(x > 0, 1.0, 0.0) - tl.where(x < 0, 1.0, 0.0)


@triton.jit
def through(x, w, inputs: tl.constexpr, outputs: tl.constexpr, TURNED: tl.constexpr, P: tl.constexpr):
    """x W + b of one of f's maps."""
    if TURNED:
        y = across(x, matrix(w, inputs, outputs, inputs, P, P))
    else:
        y = down(x, matrix(w, outputs, inputs, outputs, P, P))
    return y + vector(w + inputs * outputs, outputs, P)


@triton.jit
def back_through(d, w, inputs: tl.constexpr, outputs: tl.constexpr, TURNED: tl.constexpr, P: tl.constexpr):
    """d Wᵀ."""
    if TURNED:
        y = down(d, matrix(w, inputs, outputs, inputs, P, P))
    else:
        y = across(d, matrix(w, outputs, inputs, outputs, P, P))
    return y


@Serialised
@triton.jit(do_not_specialize=["S", "B"])
def forward(given, dt, read, w, starts, ys, gates, opened, made, said, mixed, inner, outs, S, B,
            R: tl.constexpr, U: tl.constexpr, H: tl.constexpr, L: tl.constexpr, P: tl.constexpr):
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
        put(starts + at * 2 * R, mu, R, P)
        put(starts + at * 2 * R + R, s, R, P)
        a = mu
        for n in tl.static_range(L - 1):
            if n == 0:
                a = through(a, f, R, H, True, P)
            else:
                a = through(a, f + R * H + H + (n - 1) * (H * H + H), H, H, n % 2 == 0, P)
            a = libdevice.tanh(a)
            put(inner + ((n * S + i) * B + b) * H, a, H, P)
        mu = mu + tl.load(dt + at) * through(a, last, H, R, L % 2 == 1, P)
        put(ys + at * 2 * R, mu, R, P)
        put(ys + at * 2 * R + R, s, R, P)
        if tl.load(read + at) != 0:
            x = given + at * 3 * U
            g1 = libdevice.tanh(vector(x, U, P) + across(mu, matrix(G, 2 * R, U, R, P, P))
                                + across(s, matrix(G + R, 2 * R, U, R, P, P)))
            g2 = libdevice.tanh(vector(x + U, U, P) + across(mu, matrix(G + U * 2 * R, 2 * R, U, R, P, P))
                                + across(s, matrix(G + U * 2 * R + R, 2 * R, U, R, P, P)))
            put(gates + at * 2 * U, g1, U, P)
            put(gates + at * 2 * U + U, g2, U, P)
            u = tl.sigmoid(vector(gb, R, P) + down(g1, matrix(G2, 2 * R, U, R, P, P))
                           + down(g2, matrix(G2 + U * 2 * R, 2 * R, U, R, P, P)))
            r = tl.sigmoid(vector(gb + R, R, P) + down(g1, matrix(G2 + R, 2 * R, U, R, P, P))
                           + down(g2, matrix(G2 + U * 2 * R + R, 2 * R, U, R, P, P)))
            put(opened + at * 2 * R, u, R, P)
            put(opened + at * 2 * R + R, r, R, P)
            v = libdevice.tanh(vector(x + 2 * U, U, P) + across(mu * r, matrix(N, 2 * R, U, R, P, P))
                               + across(s * r, matrix(N + R, 2 * R, U, R, P, P)))
            put(made + at * U, v, U, P)
            m = vector(nb, R, P) + down(v, matrix(N2, 2 * R, U, R, P, P))
            c = vector(nb + R, R, P) + down(v, matrix(N2 + R, 2 * R, U, R, P, P))
            put(said + at * 2 * R, m, R, P)
            put(said + at * 2 * R + R, c, R, P)
            mu = m + u * (mu - m)
            s = tl.abs(c) + u * (s - tl.abs(c))
            put(mixed + at * 2 * R, mu, R, P)
            put(mixed + at * 2 * R + R, s, R, P)
            s = tl.abs(s)
        put(outs + at * 2 * R, mu, R, P)
        put(outs + at * 2 * R + R, s, R, P)


@Serialised
@triton.jit(do_not_specialize=["S", "B"])
def backward(grad, dt, read, w, ys, gates, opened, made, said, mixed, inner, d_given, d_open, d_said, d_rate, d_inner,
             S, B, R: tl.constexpr, U: tl.constexpr, H: tl.constexpr, L: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    G = w
    G2 = G + 4 * R * U
    N = G2 + 4 * R * U + 2 * R
    N2 = N + 2 * R * U
    f = N2 + 2 * R * U + 2 * R
    last = f + R * H + H + (L - 2) * (H * H + H)
    dmu = tl.zeros((P,), tl.float32)
    ds = tl.zeros((P,), tl.float32)
    for back in range(S):
        i = S - 1 - back
        at = i * B + b
        dmu += vector(grad + at * 2 * R, R, P)
        ds += vector(grad + at * 2 * R + R, R, P)
        if tl.load(read + at) != 0:
            mu, s = vector(ys + at * 2 * R, R, P), vector(ys + at * 2 * R + R, R, P)
            u, r = vector(opened + at * 2 * R, R, P), vector(opened + at * 2 * R + R, R, P)
            m, c = vector(said + at * 2 * R, R, P), vector(said + at * 2 * R + R, R, P)
            ds = ds * sign(vector(mixed + at * 2 * R + R, R, P))
            d_u = (dmu * (mu - m) + ds * (s - tl.abs(c))) * u * (1 - u)
            d_m, d_c = dmu * (1 - u), ds * (1 - u) * sign(c)
            put(d_said + at * 2 * R, d_m, R, P)
            put(d_said + at * 2 * R + R, d_c, R, P)
            v = vector(made + at * U, U, P)
            d_v = (across(d_m, matrix(N2, 2 * R, U, R, P, P))
                   + across(d_c, matrix(N2 + R, 2 * R, U, R, P, P))) * (1 - v * v)
            put(d_given + at * 3 * U + 2 * U, d_v, U, P)
            let_mu = down(d_v, matrix(N, 2 * R, U, R, P, P))
            let_s = down(d_v, matrix(N + R, 2 * R, U, R, P, P))
            d_r = (let_mu * mu + let_s * s) * r * (1 - r)
            put(d_open + at * 2 * R, d_u, R, P)
            put(d_open + at * 2 * R + R, d_r, R, P)
            g1, g2 = vector(gates + at * 2 * U, U, P), vector(gates + at * 2 * U + U, U, P)
            d_g1 = (across(d_u, matrix(G2, 2 * R, U, R, P, P))
                    + across(d_r, matrix(G2 + R, 2 * R, U, R, P, P))) * (1 - g1 * g1)
            d_g2 = (across(d_u, matrix(G2 + U * 2 * R, 2 * R, U, R, P, P))
                    + across(d_r, matrix(G2 + U * 2 * R + R, 2 * R, U, R, P, P))) * (1 - g2 * g2)
            put(d_given + at * 3 * U, d_g1, U, P)
            put(d_given + at * 3 * U + U, d_g2, U, P)
            dmu = dmu * u + let_mu * r + down(d_g1, matrix(G, 2 * R, U, R, P, P)) \
                + down(d_g2, matrix(G + U * 2 * R, 2 * R, U, R, P, P))
            ds = ds * u + let_s * r + down(d_g1, matrix(G + R, 2 * R, U, R, P, P)) \
                + down(d_g2, matrix(G + U * 2 * R + R, 2 * R, U, R, P, P))
        d = tl.load(dt + at) * dmu
        put(d_rate + at * R, d, R, P)
        d = back_through(d, last, H, R, L % 2 == 1, P)
        for n in tl.static_range(L - 2, -1, -1):
            a = vector(inner + ((n * S + i) * B + b) * H, H, P)
            d = d * (1 - a * a)
            put(d_inner + ((n * S + i) * B + b) * H, d, H, P)
            if n == 0:
                d = back_through(d, f, R, H, True, P)
            else:
                d = back_through(d, f + R * H + H + (n - 1) * (H * H + H), H, H, n % 2 == 0, P)
        dmu += d
