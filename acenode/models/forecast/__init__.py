"""Forecasts from sporadic observations."""
