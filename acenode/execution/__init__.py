"""Executing runs: one run, the queue of runs, devices, and time estimates."""
