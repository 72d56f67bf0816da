"""Passes of Algorithm 1 recorded as CUDA graphs, and their Triton kernels."""
