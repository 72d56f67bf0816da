"""The answer of a study in words: how every group differs from the baseline, seed by seed, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal, Protocol

from acenode import experiments
from acenode.compare.intervals import MIN_RUNS, Interval, paired_interval, pairs_needed
from acenode.compare.metric_format import MetricFormat
from acenode.compare.study_grid import GridRow, StudyGrid, repeats_word
from acenode.compare.study_references import LAST, MAJORITY, MEAN, TrivialReference
from acenode.data.splits import FOLDS
from acenode.runs.studies import Repeat

Effect = Literal["helps", "hurts", "unknown"]
MANY = 50  # further pairs above which their number is not given: the estimate is rough, and nobody trains as many
DECIMALS = 12  # of differences: smaller ones are rounding errors
# References that use no input but the last value: a model that does not beat them has learned nothing, or too little.
WITHOUT_LEARNING = {MAJORITY: "always answering the most frequent class", MEAN: "always answering the mean",
                    LAST: "repeating the last value"}


class MeasuredGroup(Protocol):
    """A group with its measured values, such as a row of a study's grid."""

    @property
    def name(self) -> str:
        """The group's name."""

    @property
    def values(self) -> Mapping[Repeat, float]:
        """The measured values by seed and fold."""


@dataclass(frozen=True)
class Comparison:
    """A group against the baseline, by the seeds and folds that both have."""

    name: str
    effect: Effect
    pairs: int
    difference: float | None = None  # mean of the group's values less the baseline's; None without pairs
    interval: Interval | None = None  # 95%, by Student's t; None for fewer than two pairs
    more: int | None = None  # pairs that are still needed at this difference and spread; None if unknown or not needed
    text: str = ""

    @property
    def sentence(self) -> str:
        """The text with a capital and a full stop."""
        return f"{self.text[:1].upper()}{self.text[1:]}."


@dataclass(frozen=True)
class StudyAnswer:
    """What a study shows so far."""

    comparisons: tuple[Comparison, ...]  # of all groups but the baseline, in order
    between: Comparison | None  # of the other two groups with each other, in a study of three
    best: str | None  # the group that is better than every other one; None if that cannot be told
    notes: tuple[str, ...]  # groups that are no better than a trivial reference, runs that are missing
    warning: str = ""  # if no group has learned enough for its differences to mean something, or runs are short

    @property
    def findings(self) -> tuple[Comparison, ...]:
        """All comparisons: those with the baseline first."""
        return self.comparisons if self.between is None else (*self.comparisons, self.between)

    @property
    def sentences(self) -> tuple[str, ...]:
        """All of it: the warning first, then a sentence for each comparison, then the notes."""
        return (*([self.warning] if self.warning else []), *(found.sentence for found in self.findings), *self.notes)

    @property
    def text(self) -> str:
        """All sentences in one line."""
        return " ".join(self.sentences)

    def comparison(self, name: str) -> Comparison | None:
        """Return the comparison of a group with the baseline, None for the baseline."""
        return next((found for found in self.comparisons if found.name == name), None)


def answer(grid: StudyGrid, references: Sequence[TrivialReference] = ()) -> StudyAnswer:
    """Answer the question of a study with the runs that are finished."""
    others = [row for row in grid.rows if row is not grid.baseline]
    comparisons = tuple(compare(grid, row, grid.baseline) for row in others)
    between = compare(grid, *others) if len(others) == 2 and all(row.values for row in others) else None
    nothing_learned = _nothing_learned(grid, references)
    notes = [*([] if nothing_learned else _against_references(grid, references)), *_missing(grid)]
    return StudyAnswer(comparisons, between, best_group(grid), tuple(notes), nothing_learned or _too_short(grid))


def compare(grid: StudyGrid, row: GridRow, other: GridRow) -> Comparison:
    """Compare two groups by the seeds and folds that both have."""
    return compare_values(row, other, grid.measure, grid.study.repeats,
                          lambda n: repeats_word(grid.study, n), folds=bool(grid.study.folds))


def compare_values(group: MeasuredGroup, baseline: MeasuredGroup, measure: MetricFormat, repeats: Sequence[Repeat],
                   word: Callable[[int], str], *, folds: bool = False) -> Comparison:
    """Compare two groups by the repeats that both have.

    Args:
        group: the group that is compared.
        baseline: the group that it is compared with.
        measure: the metric of the values.
        repeats: the seeds and folds that count.
        word: what a number of repeats is called, such as `seeds`.
        folds: whether the repeats are the folds of a data set, of which there are only a few.
    """
    own, other, name = group.values, baseline.values, group.name
    shared = [repeat for repeat in repeats if repeat in own and repeat in other]
    n = len(shared)
    seeds = f"{n} {word(n)}"
    if not n:
        same = f" with the same {word(1)}" if other else ""
        return Comparison(name, "unknown", 0, text=f"{name}: not measured yet" if not own else
                          f"{name}: no run of {baseline.name}{same} has finished yet")
    differences = [round(own[repeat] - other[repeat], DECIMALS) for repeat in shared]
    difference = mean(differences)
    size = measure_change(measure, difference)
    unknown = f"{against(name, baseline.name)}: cannot be told with {seeds}"
    if n == 1:
        text = f"{unknown}: at least {MIN_RUNS - 1} more are needed ({size})"
        return Comparison(name, "unknown", 1, difference, more=MIN_RUNS - 1, text=text)
    interval = paired_interval(differences)
    range_text = f"95% interval {change(measure, interval[0])} to {change(measure, interval[1])}"
    if n >= MIN_RUNS and (interval[0] > 0 or interval[1] < 0):
        effect: Effect = "helps" if (difference > 0) == measure.higher_is_better else "hurts"
        text = f"{name} {effect}: {size} against {baseline.name}, {range_text}, {seeds}"
        return Comparison(name, effect, n, difference, interval, text=text)
    if not any(differences):
        return Comparison(name, "unknown", n, difference, interval,
                          text=f"{name} makes no difference: equal to {baseline.name} in {seeds}")
    if n < MIN_RUNS and (interval[0] > 0 or interval[1] < 0):
        text = f"{unknown}: at least {MIN_RUNS} are required, whatever the interval ({size}, {range_text})"
        return Comparison(name, "unknown", n, difference, interval, MIN_RUNS - n, text)
    needed = pairs_needed(difference, stdev(differences))
    more = None if needed is None else needed - n
    only = f", with other seeds on the {FOLDS} folds" if folds and (needed or FOLDS + 1) > FOLDS else ""
    many = more is None or more > MANY
    words = f"more than {MANY} more" if many else f"about {more} more"
    if only:  # there are no more folds
        words += f" run{'s' * (more != 1)} of each"
    elif many:
        words += f" {word(MANY)}"
    text = f"{unknown}: {words} would be needed{only} ({size}, {range_text})"
    return Comparison(name, "unknown", n, difference, interval, more, text)


def against(name: str, other: str) -> str:
    """Name a comparison: `evolving against fixed attention`, where all but the first word is shared."""
    (first, _, rest), (_, _, other_rest) = name.partition(" "), other.partition(" ")
    return f"{first if rest and rest == other_rest else name} against {other}"


def best_group(grid: StudyGrid) -> str | None:
    """Return the group that is better than every other one, by an interval that excludes zero; None if there is none.

    Only seeds that all groups have count, and fewer than three of them never give a best group.
    """
    return best_of(grid.rows, grid.measure, grid.study.repeats)


def best_of(groups: Sequence[MeasuredGroup], measure: MetricFormat, repeats: Sequence[Repeat]) -> str | None:
    """Return the group that `best_group` describes, of groups with these seeds and folds."""
    shared = [repeat for repeat in repeats if all(repeat in group.values for group in groups)]
    if len(shared) < MIN_RUNS:
        return None
    sign = 1 if measure.higher_is_better else -1
    best = max(groups, key=lambda group: sign * mean(group.values[repeat] for repeat in shared))
    for group in groups:
        differences = [round(sign * (best.values[repeat] - group.values[repeat]), DECIMALS) for repeat in shared]
        if group is not best and paired_interval(differences)[0] <= 0:
            return None
    return best.name


def measure_change(measure: MetricFormat, difference: float) -> str:
    """Write a difference with the metric's name and unit: `accuracy +1.20 points`."""
    unit = f" point{'s' * (change(measure, difference)[1:] != '1.00')}" if measure.unit == "%" else measure.unit
    return f"{measure.title} {change(measure, difference)}{unit}"


def change(measure: MetricFormat, difference: float) -> str:
    """Write a difference with its sign in the metric's unit, with two significant digits if it would be all zeros."""
    text = measure.number(difference, "+")
    if difference and not any(c in "123456789" for c in text):
        text = f"{difference * measure.scale:+.2g}"
    return text.replace("-", "−")


def _nothing_learned(grid: StudyGrid, references: Sequence[TrivialReference]) -> str:
    """Say that no group beats a reference without learning by more than its spread; empty if one does."""
    trivial = [reference for reference in references if reference.name in WITHOUT_LEARNING]
    sign = 1 if grid.measure.higher_is_better else -1
    measured = [(sign * row.mean, row.std or 0.0) for row in grid.rows if row.mean is not None]
    if not trivial or not measured:
        return ""
    trivial.sort(key=lambda reference: sign * reference.value)
    weakest, best = (sign * reference.value for reference in (trivial[0], trivial[-1]))
    reached = max(value - spread for value, spread in measured)
    if reached > best:
        return ""
    clearly = "clearly " * any(value > best for value, _ in measured)
    learned = ("nothing yet, train longer" if reached <= weakest else
               "too little to compare them, train longer if validation still improves")
    return (f"No group {clearly}beats {WITHOUT_LEARNING[trivial[-1].name]} ({grid.measure.text(trivial[-1].value)}): "
            f"the runs learned {learned}.")


def _too_short(grid: StudyGrid) -> str:
    """Say that the shortest runs have less than half of the usual epochs; empty if they have more."""
    configs = [cell.config for cell in grid.cells if cell.value is not None]
    if not configs:
        return ""
    shortest = min(configs, key=lambda config: int(config.get("epochs")))
    epochs = int(shortest.get("epochs"))
    usual = int(experiments.get(shortest.experiment).configure(shortest.method, shortest.data).get("epochs"))
    if 2 * epochs >= usual:
        return ""
    return (f"Trained for {epochs} epoch{'s' * (epochs > 1)}, where the default is {usual}: longer training may change "
            "the answer.")


def _against_references(grid: StudyGrid, references: Sequence[TrivialReference]) -> list[str]:
    """Say which groups are no better than the best trivial reference."""
    if not references:
        return []
    sign = 1 if grid.measure.higher_is_better else -1
    best = max(references, key=lambda reference: sign * reference.value)
    poor = [row.name for row in grid.rows if row.mean is not None and sign * row.mean <= sign * best.value]
    if not poor:
        return []
    reference = f"the {best.name} ({grid.measure.text(best.value)})"
    if len(poor) == len(grid.rows) > 1:
        return [f"No group is better than {reference}."]
    names = "; ".join(poor)
    return [f"{names[:1].upper()}{names[1:]} {'is' if len(poor) == 1 else 'are'} not better than {reference}."]


def _missing(grid: StudyGrid) -> list[str]:
    left = len(grid.cells) - grid.finished
    return [f"{grid.finished} of {len(grid.cells)} runs are finished."] if left else []
