"""Steps of attention inside the kernels of `attention_cuda`, and their gradient.

Every row of a is the state of its own GRU, so the step at the end of a window handles M rows of a at a time, from row
`top` on: few enough for registers. Each series has its own memory for σ(a), ∂a and the sums of the gradients of g's
weights, padded with zeros to (P, P), small enough to stay in the cache. g's matrices lie one after another: r, z and u
of the rows of a, then of the mean, (P, P) each; `transposed` has them transposed.
"""

import triton
import triton.language as tl

from acenode.accelerate.encoder.kernels import matrix

CHUNK = tl.constexpr(16)  # rows of a window that are handled at a time


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
