"""Benchmarks: ratios, both sides in one run."""
