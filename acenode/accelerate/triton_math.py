"""Vectors and matrices in Triton kernels, padded with zeros to a power of two."""

import triton
import triton.language as tl


@triton.jit
def matrix(w, stride, rows, columns, P: tl.constexpr, Q: tl.constexpr):
    """Load the first rows and columns of a matrix, (P, Q), with zeros around them."""
    i, j = tl.arange(0, P)[:, None], tl.arange(0, Q)[None, :]
    return tl.load(w + i * stride + j, mask=(i < rows) & (j < columns), other=0.0)


@triton.jit
def down(x, W):
    """Return x W."""
    return tl.sum(x[:, None] * W, axis=0)


@triton.jit
def across(x, W):
    """Return x Wᵀ."""
    return tl.sum(x[None, :] * W, axis=1)


@triton.jit
def vector(x, size, P: tl.constexpr):
    j = tl.arange(0, P)
    return tl.load(x + j, mask=j < size, other=0.0)


@triton.jit
def put(target, x, size, P: tl.constexpr):
    j = tl.arange(0, P)
    tl.store(target + j, x, mask=j < size)


@triton.jit
def put2(target, x, y, size, P: tl.constexpr):
    """Store vectors of one size one after another."""
    put(target, x, size, P)
    put(target + size, y, size, P)


@triton.jit
def put3(target, x, y, z, size, P: tl.constexpr):
    put2(target, x, y, size, P)
    put(target + 2 * size, z, size, P)


@triton.jit
def put4(target, x, y, z, w, size, P: tl.constexpr):
    put2(target, x, y, size, P)
    put2(target + 2 * size, z, w, size, P)


@triton.jit
def copy(source, target):
    """Copy one number, to find out whether kernels compile and run here."""
    tl.store(target, tl.load(source))
