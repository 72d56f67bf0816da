"""Recurrences over the points of irregular series, with hand-derived gradients: in torch, and as Triton kernels."""
