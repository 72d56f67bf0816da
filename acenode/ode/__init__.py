"""Solving ordinary differential equations."""
