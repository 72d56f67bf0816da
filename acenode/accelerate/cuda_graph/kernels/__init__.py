"""Triton kernels for the steps of image models."""
