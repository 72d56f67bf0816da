"""Forecasting sporadic series: GRU-ODE-Bayes, ACE on it, and the baselines."""
