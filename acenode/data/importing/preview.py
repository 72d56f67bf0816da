"""A summary of a set for people: counts, gaps, ranges, and some series to draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acenode.data.importing.cells import SECONDS, TimeReader, date_text
from acenode.data.named_set import PARTS, NamedSet, Record

EXAMPLES = 6  # series to draw


@dataclass(frozen=True)
class VariableSummary:
    """One variable: its observed values, in its own unit."""

    name: str
    unit: str
    observed: int
    gaps: float  # share of the times at which it has no value
    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class SetSummary:
    """What a set consists of."""

    series: int
    parts: dict[str, int]  # number of series by part
    times: int  # of all series; overlapping windows count the same time several times
    values: int
    gaps: float  # share of values that are missing
    typical_times: int  # of one series
    typical_length: float  # in units of time
    step: float  # median time between two rows
    variables: tuple[VariableSummary, ...]
    classes: dict[str, int]  # number of series by class
    examples: tuple[int, ...]  # indices of series to draw, of all parts


def summarise(found: NamedSet) -> SetSummary:
    """Summarise a set."""
    x, m = (np.concatenate([getattr(record, part) for record in found.series]) for part in ("x", "m"))
    lengths = [len(record.t) for record in found.series]
    steps = [np.diff(record.t) for record in found.series if len(record.t) > 1]
    variables = tuple(_variable(found, i, x[:, i][m[:, i]], float(1 - m[:, i].mean()))
                      for i in range(len(found.variables)))
    classes = {} if found.labels is None else {
        name: int((found.labels == i).sum()) for i, name in enumerate(found.classes)}
    return SetSummary(
        series=len(found), parts={part: len(found.parts[part]) for part in PARTS}, times=len(x), values=int(m.sum()),
        gaps=float(1 - m.mean()), typical_times=int(np.median(lengths)),
        typical_length=float(np.median([record.t[-1] - record.t[0] for record in found.series])),
        step=float(np.median(np.concatenate(steps))) if steps else 0.0, variables=variables, classes=classes,
        examples=_examples(found))


def summary_text(summary: SetSummary, time_unit: str, *, windows: bool = False) -> str:
    """Say in one line how large a set is: `240 series of about 24 times in 23 hours, 5 variables, 4% gaps`.

    Args:
        windows: the series are windows of longer ones.
    """
    share = 100 * summary.gaps
    gaps = "no gaps" if share == 0 else f"{share:.0f}% gaps" if share >= 1 else f"{share:.1g}% gaps"
    length = f"{summary.typical_length:,.4g} {time_unit}".rstrip()
    what = "windows" if windows else "series"
    return (f"{summary.series:,} {what} of about {summary.typical_times:,} times in {length}, "
            f"{len(summary.variables)} variables, {gaps}")


def windows_text(found: NamedSet, length: float) -> str:
    """Say how the windows of a set overlap, and that they are not as many independent series.

    Args:
        found: a set of windows.
        length: of a window, in the set's unit of time.
    """
    starts = np.array([record.t[0] for record in found.series])
    steps = np.concatenate([np.diff(starts[part]) for part in found.parts.values()])
    steps = steps[steps > 0]
    stride = float(np.median(steps)) if len(steps) else length
    times = round(length / stride)
    long = f"A window is {_amount(length, found.time_unit)} long"
    if times < 2:
        return f"{long}, and windows do not overlap."
    later, count = _amount(stride, found.time_unit), f"{len(found):,}"
    return (f"{long} and the next one starts {later} later, so windows overlap: most rows of the file are in about "
            f"{times} windows, and {count} windows are not {count} independent series.")


def split_text(found: NamedSet, *, windows: bool) -> str:
    """Say how a set is split into training, validation and test.

    Args:
        found: the set.
        windows: its series are windows of longer ones.
    """
    train, test = ([found.series[i] for i in found.parts[part]] for part in ("train", "test"))
    if windows and max(record.t[-1] for record in train) < min(record.t[0] for record in test):
        return ("Split by time: the first 64% of the time is for training, the next 16% for validation, the latest 20% "
                "for test. No window reaches into two parts, so models are tested on times after all that they saw.")
    whole = ": all windows of a series are in the same part" if windows else ""
    classes = ", in proportion to the classes" if found.labels is not None else ""
    return f"Split by series: 64% for training, 16% for validation, 20% for test, at random{classes}{whole}."


def _amount(time: float, unit: str) -> str:
    """Write an amount of time with its unit: `1 hour`, `2 hours`."""
    number = f"{time:.4g}"
    return f"{number} {unit[:-1] if number == '1' and unit in SECONDS else unit}".rstrip()


def plain_times(found: NamedSet, record: Record) -> list[str] | list[float]:
    """Return the times of a record for people: dates if the set has dates, else numbers in its unit."""
    if not found.time_origin or found.time_unit not in SECONDS:
        return [float(t) for t in record.t]
    start = TimeReader("date")(found.time_origin)
    return [date_text(start + t * SECONDS[found.time_unit]) for t in record.t]


def _variable(found: NamedSet, i: int, values: np.ndarray, gaps: float) -> VariableSummary:
    return VariableSummary(found.variables[i], found.units[i], len(values), gaps, float(values.min()),
                           float(values.mean()), float(values.max()))


def _examples(found: NamedSet) -> tuple[int, ...]:
    """Return series spread over the set."""
    count = min(EXAMPLES, len(found))
    return tuple(int(i) for i in np.unique(np.linspace(0, len(found) - 1, count).round().astype(int)))
