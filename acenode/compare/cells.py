"""Measure the cells of the paper's tables with the runs there are, list the runs that are missing, and write both.

A run counts for a cell if it was trained on the full data with the lab's default settings for that method, apart from
the settings that define the cell, its seed and fold, its number of epochs, its device and what it records. `measure`
takes the runs of one length: see `_choose`.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from acenode import experiments
from acenode.compare.groups import EITHER, experiment_title, fits, fold_of, replaced_settings, stored_settings
from acenode.compare.paper import CELLS, PaperCell, Value, target
from acenode.config import Config
from acenode.config.vocabulary import CHOSEN, PRINTED
from acenode.data.splits import FOLDS
from acenode.errors import UserError
from acenode.files import Stamp, stamp
from acenode.runs.catalogue import Entry
from acenode.runs.store import Run

Mark = Literal["within", "better", "worse", "single", "partial", "missing"]
SEEDS = 3  # repetitions of a cell without folds, unless others are asked for
PAPER_SEEDS = 5
CAMPAIGN_EPOCHS = {"mnist": 40, "svhn": 40, "cifar10": 40}  # a quarter of the paper's; the decays keep their shares
REPRESENTATION = "features"  # whose silhouette is compared: the paper does not say which layer it takes
VARIANT = ("attention", "initial", "size", "task")  # settings that define cells of one method


@dataclass(frozen=True)
class Measured:
    """What the runs of a cell measured, in the unit of the printed value."""

    entries: tuple[Entry, ...] = ()
    values: tuple[float, ...] = ()  # of the entries
    mean: float | None = None
    std: float | None = None  # sample standard deviation; None for fewer than two runs
    seeds: tuple[int, ...] = ()
    folds: tuple[int, ...] = ()  # empty if the experiment has none
    epochs: int | None = None
    difference: float | None = None  # mean less printed mean; None if they are not comparable
    mark: Mark = "missing"
    note: str = ""
    paper_epochs: int | None = None  # the paper's number of epochs

    @property
    def shorter(self) -> bool:
        """True if the runs have fewer epochs than the paper's."""
        return self.epochs is not None and self.paper_epochs is not None and self.epochs < self.paper_epochs

    @property
    def n(self) -> int:
        """The number of runs."""
        return len(self.entries)


def repetitions(cell: PaperCell, seeds: int | None = None) -> int:
    """Return how many runs a cell needs: all folds where there are folds, else `seeds` (3 if None)."""
    return FOLDS if cell.folds else seeds or SEEDS


def counts(cell: PaperCell, entry: Entry, preset: str = CHOSEN) -> bool:
    """Return True if a run, finished or not, has the settings of a cell and trains long enough."""
    if entry.search or (entry.experiment, entry.method, entry.data) != (cell.experiment, cell.method, "full"):
        return False  # the trial of a search is never tested
    return fits(cell, stored_settings(entry, target(cell, preset)), preset)


def with_other_settings(cell: PaperCell, entries: Iterable[Entry]) -> list[Entry]:
    """Return the tested runs of a cell's method and variant on its data that do not count for it."""
    return [e for e in entries if e.data == "full" and _has_variant(cell, e) and not counts(cell, e)
            and _value(cell, e) is not None]


def _has_variant(cell: PaperCell, entry: Entry) -> bool:
    return (entry.experiment, entry.method) == (cell.experiment, cell.method) and all(
        entry.config.get(k) == target(cell).get(k) for k in VARIANT)


def usual_epochs(cell: PaperCell, preset: str = CHOSEN) -> int:
    """Return the epochs of new runs: a quarter of the paper's for images, else the experiment's default."""
    return CAMPAIGN_EPOCHS.get(cell.experiment) or int(target(cell, preset).get("epochs"))


def measure(cell: PaperCell, entries: Iterable[Entry], seeds: int | None = None, preset: str = CHOSEN) -> Measured:
    """Measure a cell with the runs that count for it.

    Runs on a part of the full data are used only if there are no others, and are not compared with the paper.
    """
    found = [(entry, value) for entry in entries if counts(cell, entry, preset)
             and (value := _value(cell, entry)) is not None]
    if not found:
        return Measured(note="not measured")
    partial = all(entry.partial for entry, _ in found)
    chosen = _choose([(e, v) for e, v in found if e.partial == partial], repetitions(cell, seeds))
    runs, values = zip(*chosen, strict=True)
    mean, std = statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None
    return Measured(
        entries=runs, values=values, mean=mean, std=std, seeds=tuple(sorted({e.seed for e in runs})),
        folds=tuple(sorted({fold_of(e) for e in runs})) if cell.folds else (),
        epochs=int(runs[0].config["epochs"]), difference=None if partial else mean - cell.printed.mean,
        mark="partial" if partial else mark(cell, mean, std, len(values)), note=_note(cell, runs, partial),
        paper_epochs=int(target(cell, PRINTED).get("epochs")))


def measure_all(entries: Iterable[Entry]) -> dict[str, Measured]:
    """Measure every cell; the keys are those of the cells."""
    by_experiment = defaultdict(list)
    for entry in entries:
        by_experiment[entry.experiment].append(entry)
    return {key: measure(cell, by_experiment[cell.experiment]) for key, cell in CELLS.items()}


def mark(cell: PaperCell, mean: float, std: float | None, n: int) -> Mark:
    """Compare a measured mean with the printed one.

    The measured mean is "within" if it differs from the printed one by at most the larger of two numbers: the printed
    standard deviation s, and the standard error of the difference, √(s²/5 + ŝ²/n), where ŝ is the standard deviation
    of our n runs (s for a single run). Where the paper prints no deviation, s is the one that it prints for the same
    method without the ablation. Otherwise the mean is "better" or "worse", by the direction of the metric.
    """
    s = printed_std(cell)
    tolerance = max(s, math.sqrt(s**2 / PAPER_SEEDS + (s if std is None else std) ** 2 / n))
    difference = mean - cell.printed.mean
    if abs(difference) <= tolerance * (1 + 1e-9):
        return "within"
    return "better" if (difference > 0) == cell.format.higher_is_better else "worse"


def printed_std(cell: PaperCell) -> float:
    """Return the printed standard deviation, or the one of the same method without the ablation."""
    if cell.printed.std is not None:
        return cell.printed.std
    task = {k: v for k, v in cell.settings.items() if k == "task"}
    base = PaperCell(cell.table, cell.experiment, cell.method, cell.metric, cell.printed, task)
    return CELLS[base.key].printed.std or 0.0


def missing(cell: PaperCell, entries: Iterable[Entry], seeds: int | None = None, *, epochs: int | None = None,
            preset: str = CHOSEN, partial: bool = True) -> list[Config]:
    """Return the configurations that must still be trained for a cell, the first repetition first.

    Runs that are queued or running are not missing. Experiments with folds need all of them, whatever the `seeds`.
    `epochs` are `usual_epochs` by default; with `partial`, runs on a part of the full data count.
    """
    length = epochs or usual_epochs(cell, preset)
    done: dict[int, set[int]] = {}
    for entry in entries:
        if counts(cell, entry, preset) and (partial or not entry.partial) and (
                entry.busy or _value(cell, entry) is not None):
            done.setdefault(int(entry.config["epochs"]), set()).add(fold_of(entry) if cell.folds else entry.seed)
    wanted = range(repetitions(cell, seeds))
    if any(at >= length and len(there) >= len(wanted) for at, there in done.items()):
        return []
    there = done.get(length, set())
    left = len(wanted) - len(there)
    return [cell.config(i, length, preset) for i in wanted if i not in there][:max(0, left)]


def _choose(found: Sequence[tuple[Entry, float]], needed: int) -> list[tuple[Entry, float]]:
    """Return the runs of one length: the greatest with as many repetitions as needed, else that with most of them.

    Of runs that repeat a seed (and fold) the latest counts.
    """
    by_length: dict[int, dict[tuple[int, int], tuple[Entry, float]]] = {}
    for entry, value in sorted(found, key=lambda pair: pair[0].created):
        by_length.setdefault(int(entry.config["epochs"]), {})[entry.seed, fold_of(entry)] = (entry, value)
    length = max(by_length, key=lambda epochs: (min(needed, len(by_length[epochs])), epochs))
    return [by_length[length][at] for at in sorted(by_length[length])]


def _value(cell: PaperCell, entry: Entry) -> float | None:
    found = _silhouette(entry) if cell.metric == "silhouette" else entry.test.get(cell.metric)
    return None if found is None else found * cell.format.scale


def _silhouette(entry: Entry, representation: str = REPRESENTATION) -> float | None:
    found = _read_silhouettes(entry.run, stamp(entry.path / "result.json")) if entry.test else {}
    value = found.get(representation)
    return float(value) if isinstance(value, int | float) else None


@lru_cache(maxsize=512)
def _read_silhouettes(run: Run, at: Stamp | None) -> Mapping[str, Any]:
    found = result_of(run).get("silhouette")
    return found if isinstance(found, dict) else {}


def result_of(run: Run) -> dict[str, Any]:
    """Return the result of a run; empty if it was deleted or damaged since it was listed."""
    try:
        return run.result() or {}
    except UserError:
        return {}


def _note(cell: PaperCell, runs: Sequence[Entry], partial: bool) -> str:
    notes = list(dict.fromkeys(run.data_note for run in runs if run.data_note))
    if partial:
        notes.append("trained on a part of the data: not comparable with the paper")
    epochs, in_paper = int(runs[0].config["epochs"]), int(target(cell, PRINTED).get("epochs"))
    if epochs != in_paper:
        notes.append(f"{epochs} epochs, {in_paper} in the paper")
    notes += [f"{key.replace('_', ' ')} {default:g}, {printed:g} in the paper"
              for key, (default, printed) in replaced_settings(experiments.get(cell.experiment), cell.method).items()
              if key != "epochs"]
    folds = {fold_of(run) for run in runs} if cell.folds else set()
    if folds and len(folds) < FOLDS:
        notes.append(f"{len(folds)} of {FOLDS} folds")
    if cell.printed.std is None:
        notes.append("the paper prints no deviation")
    if cell.metric == "silhouette":
        tsne = [value for run in runs if (value := _silhouette(run, "tsne")) is not None]
        mean = f", that of their t-SNE is {statistics.mean(tsne):.4f}" if len(tsne) == len(runs) else ""
        notes.append(f"silhouette of the {REPRESENTATION}{mean}; the paper does not say which it takes")
    return "; ".join(note.rstrip(".") for note in notes)


# Words and numbers, the same on pages, in exports and in the terminal -----------------------------------------------


@dataclass(frozen=True)
class MarkText:
    """How a mark is written. The symbol and the word say the same, so that neither needs a colour."""

    symbol: str
    word: str
    meaning: str


MARKS: dict[Mark, MarkText] = {
    "within": MarkText("≈", "within", "our mean differs from the paper's by at most the larger of two numbers: the "
                       "paper's standard deviation, and the standard error of the difference, which includes the "
                       "spread of our own runs"),  # as `mark` computes it
    "better": MarkText("▲", "better", "differs by more, on the better side"),
    "worse": MarkText("▼", "worse", "differs by more, on the worse side"),
    "single": MarkText("◇", "one run", "a single run has no spread: the difference is shown and not judged"),
    "partial": MarkText("◐", "partial data", "from a part of the data, not compared"),
    "missing": MarkText("○", "not measured", "no run yet"),
}


def shown_mark(measured: Measured) -> Mark:
    """Return the mark that tables show: a single run is neither better nor worse than a mean of several."""
    return "single" if measured.n == 1 and measured.mark in ("within", "better", "worse") else measured.mark


def mark_text(measured: Measured) -> str:
    """Return the mark as a symbol and a word."""
    found = MARKS[shown_mark(measured)]
    return f"{found.symbol} {found.word}"


def mark_legend() -> str:
    """Explain all marks in one line, with symbols and words as in tables."""
    return "Marks: " + "; ".join(f"{m.symbol} {m.word}: {m.meaning}" for m in MARKS.values()) + "."


def terminal_legend() -> str:
    """Explain all marks in one line, by the names that lists in the terminal have."""
    return "marks: " + "; ".join(f"{name}: {m.meaning}" for name, m in MARKS.items())


def printed_text(cell: PaperCell) -> str:
    """Return the printed value without its unit, which the column has."""
    return str(replace(cell.printed, unit=""))


def mean_text(cell: PaperCell, measured: Measured) -> str:
    """Return our mean and standard deviation, or a dash."""
    return "–" if measured.mean is None else str(Value(measured.mean, measured.std, digits=cell_digits(cell)))


def difference_text(cell: PaperCell, measured: Measured) -> str:
    """Return our mean less the printed one with its sign; empty if they are not comparable."""
    if measured.difference is None:
        return ""
    text = f"{measured.difference:+.{cell_digits(cell)}f}".replace("-", "−")
    return text if any(c in "123456789" for c in text) else text.lstrip("+−")


def repeats_text(measured: Measured) -> str:
    """Return the number of seeds or folds and of epochs, and the paper's number of epochs if that is larger."""
    if not measured.n:
        return ""
    n = len(measured.folds or measured.seeds)
    epochs = f"{measured.epochs} of {measured.paper_epochs}" if measured.shorter else str(measured.epochs)
    return f"{n} {'fold' if measured.folds else 'seed'}{'s' * (n > 1)}, {epochs} epochs"


def params_text(cell: PaperCell, measured: Measured) -> str:
    """Return the number of parameters of our model, if the paper prints one, in its form: `0.28M`."""
    return f"{measured.entries[0].params / 1e6:.2f}M" if measured.n and cell.printed.params is not None else ""


def cell_digits(cell: PaperCell) -> int:
    """Return the decimals of measured values: those of the metric, at least those printed."""
    return max(cell.printed.digits, cell.format.digits or 0)


def count_sentence(marks: Iterable[str]) -> str:
    """Say how many cells are measured and how they compare with the printed values."""
    found = Counter(marks)
    words = [f"{found['within']} within the margin of error", f"{found['better']} better", f"{found['worse']} worse"]
    if found["single"]:
        words.append(f"{found['single']} from a single run")
    if found["partial"]:
        words.append(f"{found['partial']} on partial data")
    total, without = found.total(), found["missing"]
    cells = f"Of the paper's {total} values {total - without}" if without else f"All {total} of the paper's values"
    kinds = ["single runs"] * bool(found["single"]) + ["values on partial data"] * bool(found["partial"])
    return f"{cells} are measured: {listed(words)}." + (
        f" {listed(kinds).capitalize()} are not compared with the paper's." if kinds else "")


def length_sentence(measured: Mapping[str, Measured]) -> str:
    """Say how many cells, by their keys, were measured with shorter runs than the paper's, and how short; empty if
    none was."""
    shorter = {key: found for key, found in measured.items() if found.shorter}
    if not shorter:
        return ""
    worse = sum(shown_mark(found) == "worse" for found in shorter.values())
    among = f", {worse} of the worse ones among them," if worse else ""
    parts = []
    for printed in dict.fromkeys(found.paper_epochs for found in shorter.values()):
        alike = {key: found.epochs or 0 for key, found in shorter.items() if found.paper_epochs == printed}
        titles = listed(dict.fromkeys(experiment_title(CELLS[key].experiment) for key in alike))
        ends = " to ".join(map(str, sorted({min(alike.values()), max(alike.values())})))
        parts.append(f"{titles} {ends} of {printed} epochs")
    values = "value{} comes" if len(shorter) == 1 else "values{} come"
    return f"{len(shorter)} {values.format(among)} from shorter training than the paper's: {'; '.join(parts)}."


def listed(words: Iterable[str]) -> str:
    """Join words with commas and a final `and`."""
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def paper_value_note(entry: Entry, entries: Iterable[Entry]) -> str | None:
    """Say if a tested run is one of those (of all `entries`) whose mean the Paper page shows, or why it is not; None if
    no other run counts beside it, or if no cell has its method and data."""
    if entry.state != "finished" or entry.search or entry.data != "full":
        return None
    cell = next((cell for cell in CELLS.values() if _has_variant(cell, entry)), None)
    if cell is None:
        return None
    if not counts(cell, entry):
        wanted, usual, own = target(cell), usual_epochs(cell), int(entry.config.get("epochs") or 0)
        found = [f"{own} epochs, where {usual} are usual,"] if own < usual else []
        found += [f"{key.replace('_', ' ')} {value} instead of {wanted.get(key)}"
                  for key, value in stored_settings(entry, wanted).items()
                  if key in entry.config and key in wanted.settings and key not in EITHER and value != wanted.get(key)]
        return f"This run counts for no value of the Paper page: it has {' and '.join(found) or 'other settings'}."
    measured, epochs = measure(cell, entries), entry.config.get("epochs")
    if measured.epochs is None or (measured.n < 2 and measured.epochs == epochs):
        return None
    value = f"{mean_text(cell, measured)}{cell.format.unit} ({repeats_text(measured)})"
    if measured.epochs == epochs:
        return f"One of the runs whose mean the Paper page shows: {value}."
    return f"The Paper page shows the mean of other runs of this method, {value}. This run has {epochs} epochs."
