"""The words and numbers of a measured cell, the same on the page and in exports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from acenode.compare.cells import Mark, Measured
from acenode.compare.paper_tables import PaperCell


@dataclass(frozen=True)
class MarkText:
    """How a mark is written. The symbol and the word say the same, so that neither needs a colour."""

    symbol: str
    word: str
    meaning: str


# The rule of `cells.mark`
MARGIN = ("our mean differs from the paper's by at most the larger of two numbers: the paper's standard deviation, and "
          "the standard error of the difference, which includes the spread of our own runs")
ShownMark = Mark | Literal["single"]
MARKS: dict[ShownMark, MarkText] = {
    "within": MarkText("≈", "within", MARGIN),
    "better": MarkText("▲", "better", "differs by more, on the better side"),
    "worse": MarkText("▼", "worse", "differs by more, on the worse side"),
    "single": MarkText("◇", "one run", "a single run has no spread: the difference is shown and not judged"),
    "partial": MarkText("◐", "partial data", "from a part of the data, not compared"),
    "missing": MarkText("○", "not measured", "no run yet"),
}


def shown_mark(measured: Measured) -> ShownMark:
    """Return the mark that tables show: a single run is neither better nor worse than a mean of several."""
    return "single" if measured.n == 1 and measured.mark in ("within", "better", "worse") else measured.mark


def mark(measured: Measured) -> str:
    """Return the mark as a symbol and a word."""
    found = MARKS[shown_mark(measured)]
    return f"{found.symbol} {found.word}"


def legend() -> str:
    """Explain all marks in one line, with symbols and words as in tables."""
    return "Marks: " + "; ".join(f"{m.symbol} {m.word}: {m.meaning}" for m in MARKS.values()) + "."


def terminal_legend() -> str:
    """Explain all marks in one line, by the names that lists in the terminal have."""
    return "marks: " + "; ".join(f"{name}: {m.meaning}" for name, m in MARKS.items())


def printed(cell: PaperCell) -> str:
    """Return the printed value without its unit, which the column has."""
    return _spread(cell.printed.mean, cell.printed.std, cell.printed.digits)


def ours(cell: PaperCell, measured: Measured) -> str:
    """Return our mean and standard deviation, or a dash."""
    return "–" if measured.mean is None else _spread(measured.mean, measured.std, digits(cell))


def difference(cell: PaperCell, measured: Measured) -> str:
    """Return our mean less the printed one with its sign; empty if they are not comparable."""
    if measured.difference is None:
        return ""
    text = f"{measured.difference:+.{digits(cell)}f}".replace("-", "−")
    return text if any(c in "123456789" for c in text) else text.lstrip("+−")


def repeats(measured: Measured) -> str:
    """Return the number of seeds or folds and of epochs, and the paper's number of epochs if that is larger."""
    if not measured.n:
        return ""
    kind = "fold" if measured.folds else "seed"
    n = len(measured.folds or measured.seeds)
    epochs = f"{measured.epochs} of {measured.paper_epochs}" if measured.shorter else str(measured.epochs)
    return f"{n} {kind}{'s' * (n > 1)}, {epochs} epochs"


def params(cell: PaperCell, measured: Measured) -> str:
    """Return the number of parameters of our model, if the paper prints one, in its form: `0.28M`."""
    if cell.printed.params is None or not measured.n:
        return ""
    return f"{measured.entries[0].params / 1e6:.2f}M"


def digits(cell: PaperCell) -> int:
    """Return the decimals of measured values: those of the metric, at least those printed."""
    return max(cell.printed.digits, cell.format.digits or 0)


def _spread(mean: float, std: float | None, decimals: int) -> str:
    return f"{mean:.{decimals}f}" + ("" if std is None else f" ± {std:.{decimals}f}")
