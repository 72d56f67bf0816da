"""NODE, augmented NODE and ACE-NODE on one problem, with the same seed and settings, step by step."""

from __future__ import annotations

from acenode.playground.learner import Learner
from acenode.playground.networks import build
from acenode.playground.problems import PROBLEMS, Problem, drawn
from acenode.playground.settings import PlaygroundSettings


class SideBySide:
    """Three learners that take their steps together. Nothing in it is random but the seed."""

    problem: Problem
    learners: list[Learner]

    def __init__(self, settings: PlaygroundSettings) -> None:
        self.settings = settings
        self.rewind()

    def rewind(self) -> None:
        """Start again from the seed; the same steps then give the same numbers."""
        settings = self.settings
        use_strokes = settings.problem == "drawn" and settings.strokes
        self.problem = drawn(settings.strokes) if use_strokes else PROBLEMS[settings.problem]()
        networks = build(self.problem.d, settings.hidden, settings.tolerance, settings.attention, settings.seed)
        self.learners = [Learner(network, self.problem, settings) for network in networks]
        self.steps = 0

    def step(self) -> None:
        """Train every network one step."""
        for learner in self.learners:
            learner.step()
        self.steps += 1

    def change(self, settings: PlaygroundSettings) -> None:
        """Apply settings: at once where networks can go on with them, from the beginning where they cannot."""
        old, self.settings = self.settings, settings
        if settings.needs_new_networks(old):
            self.rewind()
            return
        for learner in self.learners:
            learner.change(settings)
