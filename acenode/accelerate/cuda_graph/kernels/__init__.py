"""Triton kernels: what a step of an image model spends its time on, in few launches."""
