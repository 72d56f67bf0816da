"""Steps of attention inside the kernels of `attention_cuda` if g maps h' to the whole matrix, and their gradient.

g's drift v is a GRU-ODE of the window's mean m of h', and a ← a + τ (Σ_k v_k W_k + b). `out` has the matrices W_k, then
b; `out_rows` has the same weights by the row of a: the i-th matrix maps row i's gradient to that of v. All are padded
with zeros to (P, P). A program reads all of them at the end of every window, from the cache.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from acenode.accelerate.encoder.kernels import down, matrix, put, vector
from acenode.accelerate.gru_ode_bayes.attention_kernels import put_transposed, softmax, strip, tile


@triton.jit
def drift(mean, V, P: tl.constexpr):
    """Return r, z, u and v = (1 − z)(u − m) of g's GRU-ODE; V has its matrices for r, z and u."""
    r, z = tl.sigmoid(down(mean, tile(V, P))), tl.sigmoid(down(mean, tile(V + P * P, P)))
    u = libdevice.tanh(down(r * mean, tile(V + 2 * P * P, P)))
    return r, z, u, (1 - z) * (u - mean)


@triton.jit
def matrix_step(a, after, soft, v, out, tau, H: tl.constexpr, M: tl.constexpr, P: tl.constexpr):
    """Store a after its step of length τ, and σ(a) transposed; v points at the drift."""
    for top in range(0, P, M):
        rate = strip(out + H * P * P, top, M, P)
        for k in range(H):
            rate += tl.load(v + k) * strip(out + k * P * P, top, M, P)
        now = matrix(a + top * H, H, H - top, H, M, P) + tau * rate
        i, j = (top + tl.arange(0, M))[:, None], tl.arange(0, P)[None, :]
        tl.store(after + i * H + j, now, mask=(i < H) & (j < H))
        put_transposed(soft, softmax(now, top, H, M, P), top, M, P)


@triton.jit
def drift_gradient(d_a, out_rows, tau, H: tl.constexpr, P: tl.constexpr):
    """Return ∂v from ∂a after the step."""
    sums = tl.zeros((P, P), tl.float32)
    for i in range(H):
        sums += vector(d_a + i * P, P, P)[:, None] * tile(out_rows + i * P * P, P)
    return tau * tl.sum(sums, axis=0)


@triton.jit
def drift_back(d_v, mean, r, z, u, V, d_terms, H: tl.constexpr, P: tl.constexpr, TRAINED: tl.constexpr):
    """Return ∂m from ∂v; V has the transposed matrices. Store ∂ of the pre-activations of r, z and u."""
    d_z = d_v * (mean - u) * z * (1 - z)
    d_u = d_v * (1 - z) * (1 - u * u)
    d_read = down(d_u, tile(V + 2 * P * P, P))
    d_r = d_read * mean * r * (1 - r)
    if TRAINED:
        put(d_terms, d_r, H, P)
        put(d_terms + H, d_z, H, P)
        put(d_terms + 2 * H, d_u, H, P)
    return d_read * r - d_v * (1 - z) + down(d_r, tile(V, P)) + down(d_z, tile(V + P * P, P))
