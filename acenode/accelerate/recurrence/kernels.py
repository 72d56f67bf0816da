"""The passes of `scan` as Triton kernels: a program runs all rows of one series.

The state, or its gradient, and all matrices stay in registers from row to row. Vectors and matrices are padded to P, a
power of two. The equations are with the cells; `each` and the other factors of a backward pass come from their
`factors`.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.triton_math import across, down, matrix, put, put2, put4, vector
from acenode.accelerate.triton_support import Serialised


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def gru_forward(mask, start, projected, decay, U, bias, rz, new, own, states, T, B, H: tl.constexpr,
                P: tl.constexpr):
    b = tl.program_id(0)
    U_r, U_z = matrix(U, H, H, H, P, P), matrix(U + H * H, H, H, H, P, P)
    U_n = matrix(U + 2 * H * H, H, H, H, P, P)
    b_r, b_z, b_n = vector(bias, H, P), vector(bias + H, H, P), vector(bias + 2 * H, H, P)
    h = vector(start + b * H, H, P)
    for i in range(T):
        at = i * B + b
        g = h * vector(decay + at * H, H, P)
        x = projected + at * 3 * H
        r = tl.sigmoid(vector(x, H, P) + b_r + across(g, U_r))
        z = tl.sigmoid(vector(x + H, H, P) + b_z + across(g, U_z))
        v = b_n + across(g, U_n)
        n = libdevice.tanh(vector(x + 2 * H, H, P) + r * v)
        put2(rz + at * 2 * H, r, z, H, P)
        put(new + at * H, n, H, P)
        put(own + at * H, v, H, P)
        h = tl.where(tl.load(mask + at) != 0, n + z * (g - n), h)
        put(states + at * H, h, H, P)


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def gru_backward(grad, each, keep, decay, stay, U, bias, d_sums, d_decayed, d_start, T, B, H: tl.constexpr,
                 P: tl.constexpr):
    b = tl.program_id(0)
    U_r, U_z = matrix(U, H, H, H, P, P), matrix(U + H * H, H, H, H, P, P)
    U_n = matrix(U + 2 * H * H, H, H, H, P, P)
    d = vector(d_start + b * H, 0, P)  # zeros
    for step in range(T):
        at = (T - 1 - step) * B + b
        d += vector(grad + at * H, H, P)
        a = each + at * 4 * H
        out = d_sums + at * 4 * H
        d_r, d_z = d * vector(a, H, P), d * vector(a + H, H, P)
        d_own = d * vector(a + 2 * H, H, P)
        put4(out, d_r, d_z, d_own, d * vector(a + 3 * H, H, P), H, P)
        d_g = d * vector(keep + at * H, H, P) + down(d_r, U_r) + down(d_z, U_z) + down(d_own, U_n)
        put(d_decayed + at * H, d_g, H, P)
        d = d_g * vector(decay + at * H, H, P) + tl.load(stay + at) * d
    put(d_start + b * H, d, H, P)


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def lstm_forward(mask, start, projected, lost, U, bias, W, bias_short, gates, short, states, T, B, H: tl.constexpr,
                 P: tl.constexpr):
    b = tl.program_id(0)
    U_i, U_f = matrix(U, H, H, H, P, P), matrix(U + H * H, H, H, H, P, P)
    U_o, U_c = matrix(U + 2 * H * H, H, H, H, P, P), matrix(U + 3 * H * H, H, H, H, P, P)
    W_s = matrix(W, H, H, H, P, P)
    b_i, b_f = vector(bias, H, P), vector(bias + H, H, P)
    b_o, b_c, b_s = vector(bias + 2 * H, H, P), vector(bias + 3 * H, H, P), vector(bias_short, H, P)
    h, C = vector(start + b * 2 * H, H, P), vector(start + b * 2 * H + H, H, P)
    for row in range(T):
        at = row * B + b
        x = projected + at * 4 * H
        S = libdevice.tanh(b_s + across(C, W_s))
        i = tl.sigmoid(vector(x, H, P) + b_i + across(h, U_i))
        f = tl.sigmoid(vector(x + H, H, P) + b_f + across(h, U_f))
        o = tl.sigmoid(vector(x + 2 * H, H, P) + b_o + across(h, U_o))
        c = libdevice.tanh(vector(x + 3 * H, H, P) + b_c + across(h, U_c))
        put(short + at * H, S, H, P)
        out = gates + at * 4 * H
        put4(out, i, f, o, c, H, P)
        new = f * (C + tl.load(lost + at) * S) + i * c
        read = tl.load(mask + at) != 0
        C = tl.where(read, new, C)
        h = tl.where(read, o * libdevice.tanh(new), h)
        put2(states + at * 2 * H, h, C, H, P)


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def lstm_backward(grad, each, out, keep, slope, stay, U, bias, W, bias_short, d_sums, d_short, d_start, T, B,
                  H: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    U_i, U_f = matrix(U, H, H, H, P, P), matrix(U + H * H, H, H, H, P, P)
    U_o, U_c = matrix(U + 2 * H * H, H, H, H, P, P), matrix(U + 3 * H * H, H, H, H, P, P)
    W_s = matrix(W, H, H, H, P, P)
    d_h, d_C = vector(d_start + b * H, 0, P), vector(d_start + b * H, 0, P)  # zeros
    for step in range(T):
        at = (T - 1 - step) * B + b
        d_h += vector(grad + at * 2 * H, H, P)
        d_C += vector(grad + at * 2 * H + H, H, P)
        a = each + at * 4 * H
        d = d_C + d_h * vector(out + at * H, H, P)
        d_i, d_f = d * vector(a, H, P), d * vector(a + H, H, P)
        d_o, d_c = d_h * vector(a + 2 * H, H, P), d * vector(a + 3 * H, H, P)
        sums = d_sums + at * 4 * H
        put4(sums, d_i, d_f, d_o, d_c, H, P)
        d_kept = d * vector(keep + at * H, H, P)
        d_s = d_kept * vector(slope + at * H, H, P)
        put(d_short + at * H, d_s, H, P)
        same = tl.load(stay + at)
        d_C = same * d_C + d_kept + down(d_s, W_s)
        d_h = same * d_h + down(d_i, U_i) + down(d_f, U_f) + down(d_o, U_o) + down(d_c, U_c)
    put2(d_start + b * 2 * H, d_h, d_C, H, P)


# The ODE-RNN: weights are read again at every row, from the cache. They lie in one row: Gᵀ, G', b, Nᵀ, N', b', then W
# and b of each of f's L layers, every second W transposed, the first one too. So the products of a chain sum over the
# columns and over the rows of a matrix in turn, and each leaves its result in the threads where the next one reads it.
# A row that reads no point stores nothing for its update: those buffers are zero before.


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
@triton.jit(do_not_specialize=["T", "B"])
def ode_rnn_forward(read, start, projected, dt, w, y_moved, gates_hidden, gates, new_hidden, new, mixed, f_hidden,
                    states, T, B, R: tl.constexpr, U: tl.constexpr, H: tl.constexpr, L: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    G = w
    G2 = G + 4 * R * U
    gb = G2 + 4 * R * U
    N = gb + 2 * R
    N2 = N + 2 * R * U
    nb = N2 + 2 * R * U
    f = nb + 2 * R
    last = f + R * H + H + (L - 2) * (H * H + H)
    mu, s = vector(start + b * 2 * R, R, P), vector(start + b * 2 * R + R, R, P)
    for i in range(T):
        at = i * B + b
        a = mu
        for n in tl.static_range(L - 1):
            if n == 0:
                a = linear(a, f, R, H, True, P)
            else:
                a = linear(a, f + R * H + H + (n - 1) * (H * H + H), H, H, n % 2 == 0, P)
            a = libdevice.tanh(a)
            put(f_hidden + (at * (L - 1) + n) * H, a, H, P)
        mu = mu + tl.load(dt + at) * linear(a, last, H, R, L % 2 == 1, P)
        put2(y_moved + at * 2 * R, mu, s, R, P)
        if tl.load(read + at) != 0:
            x = projected + at * 3 * U
            g1 = libdevice.tanh(vector(x, U, P) + across(mu, matrix(G, 2 * R, U, R, P, P))
                                + across(s, matrix(G + R, 2 * R, U, R, P, P)))
            g2 = libdevice.tanh(vector(x + U, U, P) + across(mu, matrix(G + U * 2 * R, 2 * R, U, R, P, P))
                                + across(s, matrix(G + U * 2 * R + R, 2 * R, U, R, P, P)))
            put2(gates_hidden + at * 2 * U, g1, g2, U, P)
            u = tl.sigmoid(vector(gb, R, P) + down(g1, matrix(G2, 2 * R, U, R, P, P))
                           + down(g2, matrix(G2 + U * 2 * R, 2 * R, U, R, P, P)))
            r = tl.sigmoid(vector(gb + R, R, P) + down(g1, matrix(G2 + R, 2 * R, U, R, P, P))
                           + down(g2, matrix(G2 + U * 2 * R + R, 2 * R, U, R, P, P)))
            put2(gates + at * 2 * R, u, r, R, P)
            v = libdevice.tanh(vector(x + 2 * U, U, P) + across(mu * r, matrix(N, 2 * R, U, R, P, P))
                               + across(s * r, matrix(N + R, 2 * R, U, R, P, P)))
            put(new_hidden + at * U, v, U, P)
            m = vector(nb, R, P) + down(v, matrix(N2, 2 * R, U, R, P, P))
            c = vector(nb + R, R, P) + down(v, matrix(N2 + R, 2 * R, U, R, P, P))
            put2(new + at * 2 * R, m, c, R, P)
            mu = m + u * (mu - m)
            s = tl.abs(c) + u * (s - tl.abs(c))
            put2(mixed + at * 2 * R, mu, s, R, P)
            s = tl.abs(s)
        put2(states + at * 2 * R, mu, s, R, P)


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def ode_rnn_backward(grad, read, dt, y_moved, gates_hidden, gates, new_hidden, new, mixed, f_hidden, w, d_projected,
                     d_gates, d_new, d_rate, d_f_hidden, d_start, T, B, R: tl.constexpr, U: tl.constexpr,
                     H: tl.constexpr, L: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    G = w
    G2 = G + 4 * R * U
    N = G2 + 4 * R * U + 2 * R
    N2 = N + 2 * R * U
    f = N2 + 2 * R * U + 2 * R
    last = f + R * H + H + (L - 2) * (H * H + H)
    dmu = tl.zeros((P,), tl.float32)
    ds = tl.zeros((P,), tl.float32)
    for step in range(T):
        at = (T - 1 - step) * B + b
        dmu += vector(grad + at * 2 * R, R, P)
        ds += vector(grad + at * 2 * R + R, R, P)
        if tl.load(read + at) != 0:
            mu, s = vector(y_moved + at * 2 * R, R, P), vector(y_moved + at * 2 * R + R, R, P)
            u, r = vector(gates + at * 2 * R, R, P), vector(gates + at * 2 * R + R, R, P)
            m, c = vector(new + at * 2 * R, R, P), vector(new + at * 2 * R + R, R, P)
            ds = ds * sign(vector(mixed + at * 2 * R + R, R, P))
            d_u = (dmu * (mu - m) + ds * (s - tl.abs(c))) * u * (1 - u)
            d_m, d_c = dmu * (1 - u), ds * (1 - u) * sign(c)
            put2(d_new + at * 2 * R, d_m, d_c, R, P)
            v = vector(new_hidden + at * U, U, P)
            d_v = (across(d_m, matrix(N2, 2 * R, U, R, P, P))
                   + across(d_c, matrix(N2 + R, 2 * R, U, R, P, P))) * (1 - v * v)
            put(d_projected + at * 3 * U + 2 * U, d_v, U, P)
            d_reset_mu = down(d_v, matrix(N, 2 * R, U, R, P, P))
            d_reset_s = down(d_v, matrix(N + R, 2 * R, U, R, P, P))
            d_r = (d_reset_mu * mu + d_reset_s * s) * r * (1 - r)
            put2(d_gates + at * 2 * R, d_u, d_r, R, P)
            g1, g2 = vector(gates_hidden + at * 2 * U, U, P), vector(gates_hidden + at * 2 * U + U, U, P)
            d_g1 = (across(d_u, matrix(G2, 2 * R, U, R, P, P))
                    + across(d_r, matrix(G2 + R, 2 * R, U, R, P, P))) * (1 - g1 * g1)
            d_g2 = (across(d_u, matrix(G2 + U * 2 * R, 2 * R, U, R, P, P))
                    + across(d_r, matrix(G2 + U * 2 * R + R, 2 * R, U, R, P, P))) * (1 - g2 * g2)
            put2(d_projected + at * 3 * U, d_g1, d_g2, U, P)
            dmu = dmu * u + d_reset_mu * r + down(d_g1, matrix(G, 2 * R, U, R, P, P)) \
                + down(d_g2, matrix(G + U * 2 * R, 2 * R, U, R, P, P))
            ds = ds * u + d_reset_s * r + down(d_g1, matrix(G + R, 2 * R, U, R, P, P)) \
                + down(d_g2, matrix(G + U * 2 * R + R, 2 * R, U, R, P, P))
        d = tl.load(dt + at) * dmu
        put(d_rate + at * R, d, R, P)
        d = linear_backward(d, last, H, R, L % 2 == 1, P)
        for n in tl.static_range(L - 2, -1, -1):
            a = vector(f_hidden + (at * (L - 1) + n) * H, H, P)
            d = d * (1 - a * a)
            put(d_f_hidden + (at * (L - 1) + n) * H, d, H, P)
            if n == 0:
                d = linear_backward(d, f, R, H, True, P)
            else:
                d = linear_backward(d, f + R * H + H + (n - 1) * (H * H + H), H, H, n % 2 == 0, P)
        dmu += d
    put2(d_start + b * 2 * R, dmu, ds, R, P)
