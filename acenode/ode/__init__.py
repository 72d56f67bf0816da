"""Solve ordinary differential equations; start reading at `solve.py`."""
