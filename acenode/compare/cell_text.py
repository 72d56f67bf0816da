"""The words and numbers of measured cells, the same on pages, in exports and in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from acenode.compare.cells import Mark, Measured, counts, has_variant, measure, usual_epochs
from acenode.compare.groups import config_settings
from acenode.compare.paper import CELLS, PaperCell, target
from acenode.runs.catalogue import Entry


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


def count_sentence(marks: Iterable[str]) -> str:
    """Say how many cells are measured and how they compare with the printed values."""
    counts = Counter(marks)
    total, missing = sum(counts.values()), counts["missing"]
    words = [f"{counts['within']} within the margin of error", f"{counts['better']} better", f"{counts['worse']} worse"]
    if counts["single"]:
        words.append(f"{counts['single']} from a single run")
    if counts["partial"]:
        words.append(f"{counts['partial']} on partial data")
    cells = f"Of the paper's {total} values {total - missing}"
    if not missing:
        cells = f"All {total} of the paper's values"
    text = f"{cells} are measured: {listed(words)}."
    kinds = ["single runs"] * bool(counts["single"]) + ["values on partial data"] * bool(counts["partial"])
    return text + (f" {listed(kinds).capitalize()} are not compared with the paper's." if kinds else "")


@dataclass(frozen=True)
class CellLength:
    """How long the runs of a measured cell were trained."""

    title: str  # of the experiment
    mark: str
    epochs: int
    paper_epochs: int


def length_sentence(cells: Iterable[CellLength]) -> str:
    """Say how many values were measured with shorter runs than the paper's, and how short; empty if none was."""
    shorter = [cell for cell in cells if cell.epochs < cell.paper_epochs]
    if not shorter:
        return ""
    worse = sum(cell.mark == "worse" for cell in shorter)
    among = f", {worse} of the worse ones among them," if worse else ""
    parts = []
    for paper in dict.fromkeys(cell.paper_epochs for cell in shorter):
        alike = [cell for cell in shorter if cell.paper_epochs == paper]
        titles = listed(dict.fromkeys(cell.title for cell in alike))
        parts.append(f"{titles} {_ends(cell.epochs for cell in alike)} of {paper} epochs")
    values = "value{} comes" if len(shorter) == 1 else "values{} come"
    return f"{len(shorter)} {values.format(among)} from shorter training than the paper's: {'; '.join(parts)}."


def _ends(numbers: Iterable[int]) -> str:
    found = set(numbers)
    return " to ".join(map(str, sorted({min(found), max(found)})))


def listed(words: Iterable[str]) -> str:
    """Join words with commas and a final `and`."""
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def paper_value_note(entry: Entry, entries: Iterable[Entry]) -> str | None:
    """Say if a tested run is one of those whose mean the Paper page shows, or why it is not.

    Args:
        entry: the run.
        entries: all runs.

    Returns:
        A sentence or two; None if no other run counts beside it, or if no cell has its method and data.
    """
    if entry.state != "finished" or entry.search or entry.data != "full":
        return None
    cell = next((cell for cell in CELLS.values() if has_variant(cell, entry)), None)
    if cell is None:
        return None
    if not counts(cell, entry):
        return f"This run counts for no value of the Paper page: it has {' and '.join(_differences(cell, entry))}."
    measured = measure(cell, entries)
    own = entry.config.get("epochs")
    if measured.epochs is None or (measured.n < 2 and measured.epochs == own):
        return None
    value = f"{ours(cell, measured)}{cell.format.unit} ({repeats(measured)})"
    if measured.epochs == own:
        return f"One of the runs whose mean the Paper page shows: {value}."
    return f"The Paper page shows the mean of other runs of this method, {value}. This run has {own} epochs."


def _differences(cell: PaperCell, entry: Entry) -> list[str]:
    """List in what a run differs from those that count for a cell."""
    wanted, usual = target(cell), usual_epochs(cell)
    own = int(entry.config.get("epochs") or 0)
    found = [f"{own} epochs, where {usual} are usual,"] if own < usual else []
    found += [f"{key.replace('_', ' ')} {value} instead of {wanted.get(key)}"
              for key, value in config_settings(entry.config).items()
              if key in wanted.settings and value != wanted.get(key)]
    return found or ["other settings"]
