"""How well a learned coupling between variables matches the known one of simulated data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

SURE = 1.96  # standard deviations around the mean with 95% of a normal distribution


@dataclass(frozen=True)
class CouplingScore:
    """The links found among the pairs of different variables, and what a random ranking would find.

    The k known links are compared with the k pairs that the model couples most.
    """

    links: int  # k, known links
    pairs: int  # ordered pairs of different variables
    recovered: int  # known links among the k strongest learned ones
    recovered_by_chance: float  # expected of a random ranking: k² / pairs
    auroc: float  # probability that a link is ranked above a pair without one; ties count half
    chance: tuple[float, float]  # 95% of random rankings have an AUROC in this range

    @property
    def better_than_chance(self) -> bool:
        """True if the AUROC is above what 95% of random rankings reach."""
        return self.auroc > self.chance[1]

    @property
    def text(self) -> str:
        """The score in one sentence, with the level of chance."""
        if self.better_than_chance:
            verdict = "better than chance"
        elif self.auroc < self.chance[0]:
            verdict = "worse than chance"
        else:
            verdict = "no better than chance"
        return (f"{self.recovered} of {self.links} known links recovered (by chance {self.recovered_by_chance:.1f}); "
                f"AUROC {self.auroc:.2f}, {verdict} (0.50; 95% of random rankings are between {self.chance[0]:.2f} and "
                f"{self.chance[1]:.2f}).")


def score(known: np.ndarray, learned: np.ndarray, signed: bool = False) -> CouplingScore | None:
    """Compare a learned coupling with the known one.

    The diagonal is left out: how a variable depends on itself is no link. The range of chance is the normal
    approximation of the Mann–Whitney statistic, of which the AUROC is a multiple.

    Args:
        known: coupling (V, V), [i, j] from j to i; a link is where it is not zero.
        learned: coupling (V, V); a larger value is a stronger link. NaN counts as the weakest.
        signed: rank by the absolute value, for a learned coupling whose sign says whether j raises or lowers i.

    Returns:
        The score, or None if it has no meaning: no link, or a link between all pairs.
    """
    known, learned = np.asarray(known, float), np.asarray(learned, float)
    if known.shape != learned.shape or known.ndim != 2 or known.shape[0] != known.shape[1]:
        return None
    apart = ~np.eye(len(known), dtype=bool)
    is_link = np.nan_to_num(known[apart]) != 0
    strength = np.abs(learned[apart]) if signed else learned[apart]
    strength = np.where(np.isfinite(strength), strength, -np.inf)
    links, pairs = int(is_link.sum()), len(is_link)
    if not 0 < links < pairs:
        return None
    above = strength[is_link][:, None] - strength[~is_link][None, :]
    above = np.where(np.isnan(above), 0.0, above)  # both are −∞
    auroc = float(((above > 0) + 0.5 * (above == 0)).mean())
    spread = SURE * math.sqrt((pairs + 1) / (12 * links * (pairs - links)))
    strongest = np.argsort(-strength, kind="stable")[:links]
    return CouplingScore(links, pairs, int(is_link[strongest].sum()), links * links / pairs, auroc,
                         (max(0.0, 0.5 - spread), min(1.0, 0.5 + spread)))


def incoming_shares(flow: np.ndarray) -> np.ndarray:
    """Return the share of each other variable in what flows into a variable, less the share in a uniform flow, (V, V).

    Known and learned coupling are in one unit this way: 0 is uniform, and a row adds up to 0. The diagonal, and rows
    into which nothing flows, are NaN.

    Args:
        flow: [i, j] is how much of variable j flows into variable i; negative values count as 0.
    """
    flow = np.clip(np.nan_to_num(np.asarray(flow, float)), 0.0, None)
    np.fill_diagonal(flow, 0.0)
    total = flow.sum(1, keepdims=True)
    shares = flow / np.where(total > 0, total, np.nan) - 1 / max(len(flow) - 1, 1)
    np.fill_diagonal(shares, np.nan)
    return np.asarray(shares)
