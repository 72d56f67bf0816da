"""Attention in the kernels of `attention_cuda`: a at the ends of its windows, and back.

Every row of a is a GRU's state of its own, so a window's end takes M rows of a at a time, from the row `top` on: few
enough for registers. A series has σ(a), ∂a and the sums of g's weights' gradients in places of its own, (P, P) each
with zeros around, which stay in a cache close by. g's matrices, those of the rows of a before those of the mean, lie
one after another: r, z and u, (P, P) each; `turned` has them transposed.
"""

import triton
import triton.language as tl

from acenode.accelerate.encoder.kernels import matrix

TOGETHER = tl.constexpr(16)  # rows of a window at a time


@triton.jit
def tile(x, P: tl.constexpr):
    """A whole matrix that is padded where it lies, (P, P)."""
    return tl.load(x + tl.arange(0, P)[:, None] * P + tl.arange(0, P)[None, :])


@triton.jit
def strip(x, top, M: tl.constexpr, P: tl.constexpr):
    """M of its rows."""
    return tl.load(x + (top + tl.arange(0, M))[:, None] * P + tl.arange(0, P)[None, :])


@triton.jit
def put_strip(to, x, top, M: tl.constexpr, P: tl.constexpr):
    tl.store(to + (top + tl.arange(0, M))[:, None] * P + tl.arange(0, P)[None, :], x)


@triton.jit
def put_turned(to, x, top, M: tl.constexpr, P: tl.constexpr):
    """Those rows as columns."""
    tl.store(to + tl.arange(0, P)[:, None] * P + (top + tl.arange(0, M))[None, :], tl.trans(x))


@triton.jit
def softmax(a, top, H: tl.constexpr, M: tl.constexpr, P: tl.constexpr):
    i, j = (top + tl.arange(0, M))[:, None], tl.arange(0, P)[None, :]
    power = tl.where(j < H, tl.exp(a - tl.max(tl.where(j < H, a, float("-inf")), axis=1)[:, None]), 0.0)
    return tl.where(i < H, power / tl.sum(power, axis=1)[:, None], 0.0)


@triton.jit
def times(x, W, EXACT: tl.constexpr):
    """x Wᵀ."""
    return tl.dot(x, tl.trans(W), input_precision=EXACT)


@triton.jit
def gates(a, turned, in_r, in_z, in_u, P: tl.constexpr, EXACT: tl.constexpr):
    """g's r, z and u of some rows of a, with the mean's shares in them."""
    r = tl.sigmoid(times(a, tile(turned, P), EXACT) + in_r[None, :])
    z = tl.sigmoid(times(a, tile(turned + P * P, P), EXACT) + in_z[None, :])
    u = 2 * tl.sigmoid(2 * (times(r * a, tile(turned + 2 * P * P, P), EXACT) + in_u[None, :])) - 1
    return r, z, u


@triton.jit
def turn(a, after, soft, turned, in_r, in_z, in_u, tau, H: tl.constexpr, M: tl.constexpr, P: tl.constexpr,
         EXACT: tl.constexpr):
    """a after its step of length τ, and σ of that, its columns as rows."""
    for top in range(0, P, M):
        now = matrix(a + top * H, H, H - top, H, M, P)
        _, z, u = gates(now, turned, in_r, in_z, in_u, P, EXACT)
        now = now + (1 - tl.exp(tau * (z - 1))) * (u - now)
        i, j = (top + tl.arange(0, M))[:, None], tl.arange(0, P)[None, :]
        tl.store(after + i * H + j, now, mask=(i < H) & (j < H))
        put_turned(soft, softmax(now, top, H, M, P), top, M, P)


@triton.jit
def read_back(d_a, soft, d_s, states, lo, hi, stride, top, H: tl.constexpr, M: tl.constexpr, P: tl.constexpr,
              EXACT: tl.constexpr):
    """∂ of some rows of a, with what the rows of a window that read σ(a) add to it."""
    d = tl.zeros((M, P), tl.float32)
    i, j = top + tl.arange(0, M), tl.arange(0, P)
    for at in range(0, hi - lo, TOGETHER):
        k = at + tl.arange(0, TOGETHER)
        back = tl.load(d_s + k[None, :] * P + i[:, None], mask=k[None, :] < hi - lo, other=0.0)
        h = tl.load(states + (lo + k)[:, None] * stride + j[None, :], mask=(k[:, None] < hi - lo) & (j[None, :] < H),
                    other=0.0)
        d = tl.dot(back, h, d, input_precision=EXACT)
    S = strip(soft, top, M, P)
    return strip(d_a, top, M, P) + S * (d - tl.sum(S * d, axis=1)[:, None])


@triton.jit
def turn_back(a, d, square, turned, in_r, in_z, in_u, tau, work, top, M: tl.constexpr, P: tl.constexpr,
              TRAINED: tl.constexpr, EXACT: tl.constexpr):
    """∂ of some rows of a before their step from d, that after it, and ∂ of the mean's shares in r, z and u.

    For the gradient of g's weights, a, r ⊙ a and ∂ of what r, z and u are made of are left in `work`, transposed.
    """
    r, z, u = gates(a, turned, in_r, in_z, in_u, P, EXACT)
    kept = d * tl.exp(tau * (z - 1))
    d_z = kept * tau * (a - u) * z * (1 - z)
    d_u = (d - kept) * (1 - u * u)
    d = kept
    d_ra = times(d_u, tile(square + 2 * P * P, P), EXACT)
    d_r = d_ra * a * r * (1 - r)
    d += d_ra * r
    if TRAINED:
        put_turned(work, a, top, M, P)
        put_turned(work + P * P, r * a, top, M, P)
        put_turned(work + 2 * P * P, d_r, top, M, P)
        put_turned(work + 3 * P * P, d_z, top, M, P)
        put_turned(work + 4 * P * P, d_u, top, M, P)
    d += times(d_r, tile(square, P), EXACT) + times(d_z, tile(square + P * P, P), EXACT)
    return d, tl.sum(d_r, axis=0), tl.sum(d_z, axis=0), tl.sum(d_u, axis=0)


@triton.jit
def add_products(sums, work, P: tl.constexpr, EXACT: tl.constexpr):
    """The gradients of g's weights on the rows of a, from what `turn_back` left of all of them."""
    at = tl.arange(0, P)[:, None] * P + tl.arange(0, P)[None, :]
    for k in tl.static_range(3):
        found = times(tile(work + k // 2 * P * P, P), tile(work + (2 + k) * P * P, P), EXACT)
        tl.store(sums + k * P * P + at, tl.load(sums + k * P * P + at) + found)
