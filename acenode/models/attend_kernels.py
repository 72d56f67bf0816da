"""Attention in the kernels of `acenode.models.attend_scan_cuda`: a at the ends of its windows, and back.

Every row of a is a GRU's state of its own, so a window's end takes M rows of a at a time, from the row `top` on: few
enough for registers. A series has σ(a), ∂a and the sums of g's weights' gradients in places of its own, (P, P) each
with zeros around, which stay in a cache close by. g's matrices, those of the rows of a before those of the mean, lie
one after another: r, z and u, (P, P) each; `turned` has them transposed.
"""

import triton
import triton.language as tl

from acenode.models.scan_kernels import matrix, vector


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
def add_to(to, x, P: tl.constexpr):
    at = tl.arange(0, P)[:, None] * P + tl.arange(0, P)[None, :]
    tl.store(to + at, tl.load(to + at) + x)


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
        now = now + tau * (1 - z) * (u - now)
        i, j = (top + tl.arange(0, M))[:, None], tl.arange(0, P)[None, :]
        tl.store(after + i * H + j, now, mask=(i < H) & (j < H))
        put_turned(soft, softmax(now, top, H, M, P), top, M, P)


@triton.jit
def read_back(d_a, soft, d_s, states, lo, hi, stride, top, H: tl.constexpr, M: tl.constexpr, P: tl.constexpr):
    """∂ of some rows of a, with what the rows of a window that read σ(a) add to it."""
    d = tl.zeros((M, P), tl.float32)
    for i in range(lo, hi):
        back = tl.load(d_s + (i - lo) * P + top + tl.arange(0, M))
        d += back[:, None] * vector(states + i * stride, H, P)[None, :]
    S = strip(soft, top, M, P)
    return strip(d_a, top, M, P) + S * (d - tl.sum(S * d, axis=1)[:, None])


@triton.jit
def turn_back(a, d, square, turned, in_r, in_z, in_u, tau, sums, P: tl.constexpr, TRAINED: tl.constexpr,
              EXACT: tl.constexpr):
    """∂ of some rows of a before their step from d, that after it, and ∂ of the mean's shares in r, z and u."""
    r, z, u = gates(a, turned, in_r, in_z, in_u, P, EXACT)
    scaled = d * tau
    d_z = scaled * (a - u) * z * (1 - z)
    d_u = scaled * (1 - z)
    d = d - d_u
    d_u = d_u * (1 - u * u)
    d_ra = times(d_u, tile(square + 2 * P * P, P), EXACT)
    d_r = d_ra * a * r * (1 - r)
    d += d_ra * r
    if TRAINED:
        add_to(sums + 2 * P * P, tl.dot(tl.trans(r * a), d_u, input_precision=EXACT), P)
        add_to(sums, tl.dot(tl.trans(a), d_r, input_precision=EXACT), P)
        add_to(sums + P * P, tl.dot(tl.trans(a), d_z, input_precision=EXACT), P)
    d += times(d_r, tile(square, P), EXACT) + times(d_z, tile(square + P * P, P), EXACT)
    return d, tl.sum(d_r, axis=0), tl.sum(d_z, axis=0), tl.sum(d_u, axis=0)
