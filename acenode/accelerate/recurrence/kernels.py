"""The passes of `scan` as Triton kernels: a program runs all rows of one series.

The state, or its gradient, and all matrices stay in registers from row to row. Vectors and matrices are padded to P, a
power of two. The equations are in the files of the cells; `each` and the other factors of a backward pass come from
their `factors`.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.triton_math import across, down, matrix, put, vector
from acenode.accelerate.triton_support import Serialised


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def gru_forward(mask, start, projected, decay, U, bias, rz, new, own, states, T, B, H: tl.constexpr, G: tl.constexpr,
                P: tl.constexpr):
    b = tl.program_id(0)
    U_r, U_z = matrix(U, H, H, H, P, P), matrix(U + H * H, H, H, H, P, P)
    U_n = matrix(U + 2 * H * H, H, H, H, P, P)
    b_r, b_z, b_n = vector(bias, H, P), vector(bias + H, H, P), vector(bias + 2 * H, H, P)
    h = vector(start + b * H, H, P)
    for i in range(T):
        at = i * B + b
        g = h
        if G == 1:
            g = h * tl.load(decay + at)
        if G > 1:
            g = h * vector(decay + at * H, H, P)
        x = projected + at * 3 * H
        r = tl.sigmoid(vector(x, H, P) + b_r + across(g, U_r))
        z = tl.sigmoid(vector(x + H, H, P) + b_z + across(g, U_z))
        v = b_n + across(g, U_n)
        n = libdevice.tanh(vector(x + 2 * H, H, P) + r * v)
        put(rz + at * 2 * H, r, H, P)
        put(rz + at * 2 * H + H, z, H, P)
        put(new + at * H, n, H, P)
        put(own + at * H, v, H, P)
        h = tl.where(tl.load(mask + at) != 0, n + z * (g - n), h)
        put(states + at * H, h, H, P)


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def gru_backward(grad, each, keep, decay, stay, U, d_sums, d_decayed, d_start, T, B, H: tl.constexpr, G: tl.constexpr,
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
        put(out, d_r, H, P)
        put(out + H, d_z, H, P)
        put(out + 2 * H, d_own, H, P)
        put(out + 3 * H, d * vector(a + 3 * H, H, P), H, P)
        d_g = d * vector(keep + at * H, H, P) + down(d_r, U_r) + down(d_z, U_z) + down(d_own, U_n)
        put(d_decayed + at * H, d_g, H, P)
        if G == 1:
            d_g = d_g * tl.load(decay + at)
        if G > 1:
            d_g = d_g * vector(decay + at * H, H, P)
        d = d_g + tl.load(stay + at) * d
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
        put(out, i, H, P)
        put(out + H, f, H, P)
        put(out + 2 * H, o, H, P)
        put(out + 3 * H, c, H, P)
        new = f * (C + tl.load(lost + at) * S) + i * c
        read = tl.load(mask + at) != 0
        C = tl.where(read, new, C)
        h = tl.where(read, o * libdevice.tanh(new), h)
        put(states + at * 2 * H, h, H, P)
        put(states + at * 2 * H + H, C, H, P)


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def lstm_backward(grad, each, out, keep, slope, stay, U, W, d_sums, d_short, d_start, T, B, H: tl.constexpr,
                  P: tl.constexpr):
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
        put(sums, d_i, H, P)
        put(sums + H, d_f, H, P)
        put(sums + 2 * H, d_o, H, P)
        put(sums + 3 * H, d_c, H, P)
        d_kept = d * vector(keep + at * H, H, P)
        d_s = d_kept * vector(slope + at * H, H, P)
        put(d_short + at * H, d_s, H, P)
        same = tl.load(stay + at)
        d_C = same * d_C + d_kept + down(d_s, W_s)
        d_h = same * d_h + down(d_i, U_i) + down(d_f, U_f) + down(d_o, U_o) + down(d_c, U_c)
    put(d_start + b * 2 * H, d_h, H, P)
    put(d_start + b * 2 * H + H, d_C, H, P)


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def posterior_forward(mask, start, later, noise, W, bias, V, bias_out, hidden, spread, states, T, B, H: tl.constexpr,
                      U: tl.constexpr, LEAST: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    W_z, V_m, V_s = matrix(W, H, U, H, P, P), matrix(V, U, H, U, P, P), matrix(V + H * U, U, H, U, P, P)
    b_z, b_m, b_s = vector(bias, U, P), vector(bias_out, H, P), vector(bias_out + H, H, P)
    z = vector(start + b * H, H, P)
    for i in range(T):
        at = i * B + b
        y = libdevice.tanh(b_z + across(z, W_z))
        put(hidden + at * U, y, U, P)
        c = 0.5 * (y + vector(later + at * U, U, P))
        s = b_s + across(c, V_s)
        put(spread + at * H, s, H, P)
        variance = tl.where(s > 20, s, libdevice.log1p(tl.exp(s))) + LEAST
        new = b_m + across(c, V_m) + tl.sqrt(variance) * vector(noise + at * H, H, P)
        z = tl.where(tl.load(mask + at) != 0, new, z)
        put(states + at * H, z, H, P)


@Serialised
@triton.jit(do_not_specialize=["T", "B"])
def posterior_backward(grad, each, slope, stay, W, V, d_sums, d_mean, d_start, T, B, H: tl.constexpr, U: tl.constexpr,
                       LEAST: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    W_z, V_m, V_s = matrix(W, H, U, H, P, P), matrix(V, U, H, U, P, P), matrix(V + H * U, U, H, U, P, P)
    d = vector(d_start + b * H, 0, P)  # zeros
    for step in range(T):
        at = (T - 1 - step) * B + b
        d += vector(grad + at * H, H, P)
        d_m, d_s = d * vector(each + at * 2 * H, H, P), d * vector(each + at * 2 * H + H, H, P)
        put(d_sums + at * 2 * H, d_m, H, P)
        put(d_sums + at * 2 * H + H, d_s, H, P)
        d_c = down(d_m, V_m) + down(d_s, V_s)
        put(d_mean + at * U, d_c, U, P)
        d = tl.load(stay + at) * d + down(d_c * vector(slope + at * U, U, P), W_z)
    put(d_start + b * H, d, H, P)
