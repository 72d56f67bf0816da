"""Which runs are trained as one computation: seeds of one configuration on a processor, where the model allows it."""

from __future__ import annotations

import dataclasses

from acenode import experiments
from acenode.config import Config
from acenode.config.groups import ImageNetwork, SolverSettings
from acenode.execution.seed_group import NO_LAYER, NOT_PIECEWISE, ON_A_GPU, OTHER_STEPS, RUNNING_AVERAGES

MAX_SEEDS = 8  # in one computation; their models and optimisers are in memory at the same time


def without_seed(config: Config) -> Config:
    """Return what seeds of one configuration have in common."""
    return dataclasses.replace(config, seed=0)


def seeds_at_a_time(config: Config, device: str) -> int:
    """Return how many seeds are trained at a time: one on a processor where they cannot be one computation."""
    return 1 if device == "cpu" and separate_reason(config, device) is not None else MAX_SEEDS


def separate_reason(config: Config, device: str) -> str | None:
    """Return why seeds of a configuration are trained as ordinary runs, or None if they can be one computation.

    Reads the settings only. `many_seeds.group.unstackable_reason` decides by the model, once there is one.

    Args:
        config: of one of the seeds.
        device: cpu, or a GPU such as cuda:0.
    """
    groups = experiments.get(config.experiment).method(config.method).groups
    if device.partition(":")[0] != "cpu":
        return ON_A_GPU
    if ImageNetwork not in groups:
        return NOT_PIECEWISE
    if SolverSettings not in groups:
        return NO_LAYER
    solver = config.part(SolverSettings).to_solver()
    if not solver.native or solver.gradient != "backprop":
        return OTHER_STEPS
    if config.get("attention") == "fixed" or config.get("initial") == "correlation":
        return RUNNING_AVERAGES
    return None
