"""Searches for good settings with Optuna."""
