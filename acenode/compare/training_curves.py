"""Training curves of one or several runs as Plotly figures, for the app, which follows the runs, and for reports.

Colours such as `var(--ink)` are those of the page, which the browser fills in.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from acenode.runs.store import Run

AXES = {"step": ("Step", "step %{x:.0f}"), "epoch": ("Epoch", "epoch %{x:.2~f}"),
        "time": ("Training time (s)", "%{x:.1f} s")}
IN_VIEW, OUTSIDE = 900, 200  # rows above which points in view, or on each side of it, are reduced
INK, WARM, COOL, GRAPE = "var(--ink)", "var(--warm)", "var(--cool)", "var(--grape)"
NAN = float("nan")
Window = Sequence[float] | None  # the x that can be seen
Values = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]


@dataclass(frozen=True)
class Curve:
    """A quantity of a panel. Its dash distinguishes it, the colour a run; a single run uses `tint` instead."""

    key: str
    name: str
    dash: str = "solid"
    tint: str = ""
    phase_two: bool = False  # of the phase in which attention trains, shown if asked for
    limits: tuple[str, str] | None = None  # columns of the lower and upper end of its band
    band: str = ""
    best: bool = False  # marks the best epoch


@dataclass(frozen=True)
class Panel:
    """A chart: its title, the records that it shows (`steps` or `epochs`), and its curves."""

    name: str
    title: str
    of: str
    curves: tuple[Curve, ...]
    hint: str = ""
    axis: str = ""  # title of the vertical axis, if it is not the panel's
    logarithmic: bool = False  # if asked for
    solver: bool = False  # empty for methods that solve no ODE
    zero: bool = True
    exact: bool = False  # neither smoothed nor interpolated


DIAGNOSTICS = (
    Panel("nfe", "Function evaluations (NFE)", "steps", (
        Curve("nfe_forward", "forward"), Curve("nfe_backward", "backward", "dash", WARM),
        Curve("nfe_forward_a", "forward, while attention trains", tint=COOL, phase_two=True),
        Curve("nfe_backward_a", "backward, while attention trains", "dash", GRAPE, phase_two=True)),
        "How often the solver evaluates the derivative of the state (f) in one pass", "Evaluations", solver=True),
    Panel("dt", "Step size of the solver (Δt)", "steps", (
        Curve("dt_mean", "mean", limits=("dt_min", "dt_max"), band="smallest to largest"),),
        "Mean step in the time of the ODE; the band is from the smallest to the largest step", "Step size (Δt)",
        solver=True),
    Panel("gradients", "Gradient norms", "steps", (
        Curve("grad_h", "state (∇L_h)"), Curve("grad_a", "attention (∇L_a)", "dash", WARM)),
        "Norm of the gradient of the loss of the state (∇L_h), and of the loss of attention (∇L_a)", "Norm"),
    Panel("seconds", "Seconds per step", "steps", (Curve("seconds", "seconds"),), "Time of one mini-batch"),
    Panel("lr", "Learning rate", "steps", (Curve("lr", "learning rate"),), "Learning rate of both optimisers",
          exact=True))
LOSS = Panel(
    "losses", "Loss", "steps", (Curve("L_h", "of the state (L_h)"),
                                Curve("L_a", "of attention (L_a)", "dash", WARM)),
    "Loss of the state (L_h): the task's loss, which trains everything but the derivative of attention (g). Loss of "
    "attention (L_a): the task's loss plus the penalty on the parameters of that derivative (θ_g), which it trains.",
    logarithmic=True, zero=False)
KEYS = frozenset(key for panel in (LOSS, *DIAGNOSTICS) for c in panel.curves for key in (c.key, *(c.limits or ()))) | {
    "step", "epoch", "elapsed"}


def panels(metric: str, title: str) -> dict[str, Panel]:
    """Return the charts by name; `metric` is that of the experiment."""
    first = Panel("metric", title[:1].upper() + title[1:], "epochs", (
        Curve(f"train_{metric}", "training", "dot", WARM), Curve(f"validation_{metric}", "validation", best=True)),
        "After every epoch, on the training and the validation data", zero=False)
    return {panel.name: panel for panel in (first, LOSS, *DIAGNOSTICS)}


class RunCurves:
    """The metrics of a run in frames, which `refresh` extends."""

    def __init__(self, run: Run) -> None:
        self.run, self.lock, self.began = run, threading.RLock(), None
        self._clear()

    def _clear(self) -> None:
        self.offset, self.versions = 0, {"steps": 0, "epochs": 0}
        self.read = {"steps": pd.DataFrame(), "epochs": pd.DataFrame()}
        self.frames: dict[str, tuple[int, pd.DataFrame]] = {}

    def refresh(self, began: Any = None) -> None:
        """Read new records, or all of them if the run was started again: it began at another time."""
        with self.lock:
            records, end = self.run.metrics(self.offset)
            if end < self.offset or (not records and self._size() < self.offset) or began != self.began:
                self._clear()
                records, end = self.run.metrics()
            self.offset, self.began = end, began
            for of, kind in (("steps", "step"), ("epochs", "epoch")):
                rows = [{key: float(value) for key, value in record.items()
                         if isinstance(value, int | float) and (of == "epochs" or key in KEYS)}
                        for record in records if record.get("kind") == kind and type(record.get("step")) is int]
                if rows:
                    self.read[of] = pd.concat([self.read[of], pd.DataFrame(rows)], ignore_index=True)
                    self.versions[of] += len(rows)

    def _size(self) -> int:
        try:
            return (self.run.path / "metrics.jsonl").stat().st_size
        except OSError:  # of a recorded run, which does not change
            return self.offset

    def frame(self, of: str) -> pd.DataFrame:
        """Return the records of steps or epochs, with a column `time`; later records replace those of the same step."""
        with self.lock:
            count = self.versions[of]
            if self.frames.get(of, (None,))[0] != count:
                self.frames[of] = count, self._frame(of)
            return self.frames[of][1]

    def _frame(self, of: str) -> pd.DataFrame:
        frame = self.read[of]
        if not len(frame):
            return frame
        after = np.minimum.accumulate(frame["step"].to_numpy()[::-1])[::-1]
        frame = frame[frame["step"].to_numpy() < np.append(after[1:], np.inf)].reset_index(drop=True)
        given = frame["elapsed"] if "elapsed" in frame else pd.Series(NAN, frame.index)
        if of == "steps":
            return frame.assign(time=given.fillna(frame["seconds"].fillna(0).cumsum() if "seconds" in frame else 0.0))
        known = self.frame("steps")
        if len(known):
            row = np.searchsorted(known["step"], frame["step"]) - 1
            given = np.where(row >= 0, known["time"].to_numpy()[row], given)
        return frame.assign(time=given)

    def x(self, of: str, kind: str) -> np.ndarray:
        """Return the x of the records for one of `AXES`; epochs of steps are fractional."""
        frame = self.frame(of)
        if kind not in frame:
            return np.arange(len(frame), dtype=float)
        if kind != "epoch" or of == "epochs":
            return frame[kind].to_numpy()
        epoch, step, ends = frame["epoch"].fillna(0), frame["step"], self.frame("epochs")
        within = step - step.where(epoch != epoch.shift()).ffill()
        most = ends["step"].iloc[0] / max(1, ends["epoch"].iloc[0]) if len(ends) else within.max() + 1
        return (epoch + np.minimum(1, within / max(most, 1))).to_numpy()

    def has(self, of: str, key: str) -> bool:
        """Return True if any record has a value of this key."""
        frame = self.frame(of)
        return key in frame and bool(frame[key].notna().any())

    def solves_ode(self) -> bool:
        """Return True if the method has evaluated the derivative of a state."""
        frame = self.frame("steps")
        return any(bool((frame[key] > 0).any()) for key in ("nfe_forward", "nfe_forward_a") if key in frame)

    def latest(self, of: str, key: str) -> float | None:
        """Return the last value of a key."""
        found = self.read[of].get(key, pd.Series(dtype=float)).dropna()
        return float(found.iloc[-1]) if len(found) else None


@dataclass(frozen=True)
class Series:
    """The runs that one colour stands for: a single run, or those of a group, of which the mean is drawn."""

    label: str
    colour: str
    runs: list[RunCurves]


@dataclass(frozen=True)
class View:
    """What the reader has chosen: the x axis, the weight of the moving average, and so on."""

    x: str = "step"
    smoothing: float = 0.0
    log: bool = False
    phase_two: bool = False


EVERYTHING = View(phase_two=True)


def figure(panel: Panel, series: Sequence[Series], view: View = EVERYTHING, window: Window = None,
           share: bool = False) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a panel's figure, as JSON since it is drawn often, and the key of its curves, which is empty without any.

    More points are drawn in the `window` of x that can be seen. With `share`, values are written as percentages.
    """
    traces, key = list[dict[str, Any]](), dict[str, dict[str, Any]]()
    alone, log, last = len(series) == 1, panel.logarithmic and view.log, 0.0
    weight = 0.0 if panel.of == "epochs" or panel.exact else view.smoothing
    curves = [c for c in panel.curves if not c.phase_two or view.phase_two]
    for s, one in enumerate(series):
        for c in curves:
            if not any(run.has(panel.of, c.key) for run in one.runs):
                continue
            x, y, raw, low, high = _values(one, panel.of, c, view.x, weight, log, alone)
            last = max(last, float(x[-1]))
            colour = c.tint if alone and c.tint else one.colour
            own = {"type": "scatter", "mode": "lines", "legendgroup": str(s), "meta": s}  # meta: whose it is
            under = {**own, "hoverinfo": "skip", "showlegend": False}
            if low is not None and high is not None:
                some = _chosen(x, high, window)
                some = some[low[some] <= high[some]]
                traces.append({**under, "x": _short([*x[some], *x[some][::-1]]), "fill": "toself", "fillcolor": colour,
                               "y": _short([*low[some], *high[some][::-1]]), "opacity": 0.2, "line": {"width": 0}})
                count = len(one.runs)
                text = "mean ± standard deviation" if count > 2 else "smallest to largest" if count == 2 else c.band
                key.setdefault(text, {"name": text, "colour": colour if alone else INK, "band": True})
            if raw is not None:
                traces.append({**under, **_line(x, raw, window), "opacity": 0.3,
                               "line": {"width": 1, "color": colour}})
            few = len(x) == 1 or (panel.of == "epochs" and len(x) * len(series) <= 80)
            solid = c.dash == "solid"
            traces.append({
                **own, **_line(x, y, window), "mode": "lines+markers" if few else "lines", "connectgaps": False,
                "name": c.name if alone else escape(one.label[:40]) + f" {c.name}" * (len(curves) > 1),
                "hovertemplate": "%{y:.2%}" if share else "%{y:.4~g}", "marker": {
                    "size": 5 if solid else 7, "color": colour, "symbol": "circle" if solid else "square-open"},
                "line": {"width": 1.2 if c.phase_two else 2, "color": colour, "dash": c.dash,
                         "shape": "hv" if panel.exact else "linear"}})
            key.setdefault(c.name, {"name": c.name, "colour": colour if alone else INK, "dash": c.dash})
            if c.best and alone and len(one.runs) == 1 and one.runs[0].has("epochs", "best"):
                best = np.flatnonzero(one.runs[0].frame("epochs")["best"] == 1)[-1:]
                traces.append({**under, "mode": "markers", "x": _short(x[best]), "y": _short(y[best]), "marker": {
                    "symbol": "circle-open", "size": 12, "color": INK, "line": {"width": 1.5}}})
                key["best epoch"] = {"name": "best epoch", "colour": INK, "circle": True}
    title, hover = AXES[view.x]
    whole = last <= 5 and (view.x == "step" or (view.x == "epoch" and panel.of == "epochs"))
    return {"data": traces, "layout": {
        "hovermode": "x unified", "hoverdistance": 40, "margin": {"l": 62, "r": 22, "t": 8, "b": 36},
        "xaxis": {"title": {"text": title}, "uirevision": view.x, "exponentformat": "none", "separatethousands": True,
                  "nticks": 7, "unifiedhovertitle": {"text": hover}, **({"dtick": 1} if whole else {})},
        "yaxis": {"title": {"text": panel.axis or panel.title}, "uirevision": str(log), "exponentformat": "e",
                  "type": "log" if log else "linear", "minorloglabels": "complete", "nticks": 4 if log else 6,
                  "rangemode": "tozero" if panel.zero else "normal", **({"tickformat": ".3~%"} if share else {})}},
    }, list(key.values())


def _values(one: Series, of: str, curve: Curve, kind: str, weight: float, log: bool, alone: bool) -> Values:
    """Return x, y, and the unsmoothed values and the ends of a band if there are any."""
    frames, xs = [run.frame(of) for run in one.runs], [run.x(of, kind) for run in one.runs]
    raw: list[Any] = [frame.get(curve.key) for frame in frames]
    smooth: list[Any] = [None if values is None else _smooth(values, weight) for values in raw]
    if len(frames) == 1:
        ends = [_smooth(frames[0][key], weight).to_numpy() for key in curve.limits or () if alone and key in frames[0]]
        low, high = ends if len(ends) == 2 else (None, None)
        return xs[0], smooth[0].to_numpy(), raw[0].to_numpy() if weight else None, low, high
    steps = [frame["step"].to_numpy() if len(frame) else np.zeros(0) for frame in frames]
    grid = np.unique(np.concatenate(steps))
    y, low, high = spread([_at(grid, *own) for own in zip(steps, smooth, strict=True)], log)
    x = common_x([_at(grid, *own) for own in zip(steps, xs, strict=True)])
    before = spread([_at(grid, *own) for own in zip(steps, raw, strict=True)])[0] if weight else None
    return x, y, before, low, high


def _smooth(values: pd.Series, weight: float) -> pd.Series:
    """Return the exponential moving average, corrected for its start; gaps stay gaps and are skipped."""
    return values.ewm(alpha=1 - weight, ignore_na=True).mean().where(values.notna()) if weight else values


def _at(grid: np.ndarray, steps: np.ndarray, values: Any) -> np.ndarray:
    """Return values at the steps of `grid`, linear between two of a run's own, because recorded runs keep only some;
    NaN before its first step and after its last."""
    if values is None or not len(steps):
        return np.full(len(grid), NAN)
    found = np.interp(grid, steps, values, left=NAN, right=NAN)
    found[np.searchsorted(grid, steps)] = values
    return found


def spread(runs: list[np.ndarray], positive: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean over runs, and a band of mean ± sample standard deviation, or of both values if there are two. If
    the axis is `positive`, the band starts at the smallest value where it would reach zero."""
    frame = pd.DataFrame(runs)
    mean, std, count, least, most = (frame.agg(how).to_numpy() for how in ("mean", "std", "count", "min", "max"))
    lower = np.where(positive & (mean - std <= 0), least, mean - std)
    low = np.where(count > 2, lower, np.where(count == 2, least, NAN))
    return mean, low, np.where(count > 2, mean + std, np.where(count == 2, most, NAN))


def common_x(runs: list[np.ndarray]) -> np.ndarray:
    """Return the x of a group: sums of the runs' mean increments, which never decrease when one run ends early."""
    steps = pd.DataFrame(np.diff(np.array(runs), axis=1, prepend=0.0))
    return np.asarray(steps.mean().fillna(0.0).cumsum().to_numpy())


def _line(x: np.ndarray, y: np.ndarray, window: Window) -> dict[str, list[float | None]]:
    some = _chosen(x, y, window)
    return {"x": _short(x[some]), "y": _short(y[some])}


def _short(values: Any) -> list[float | None]:
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in np.asarray(values, dtype=float).tolist()]


def _chosen(x: np.ndarray, y: np.ndarray, window: Window) -> np.ndarray:
    """Return the rows to draw: those with the smallest and largest y of each bucket of 2^k rows, counted from row 0, so
    that points already drawn do not move. Buckets are coarser outside the window."""
    count = len(x)
    start = max(0, int(np.searchsorted(x, min(window))) - 1) if window else 0
    end = min(count, int(np.searchsorted(x, max(window))) + 1) if window else count
    kept = [np.array([count - 1])] if count else []
    for a, b, most in ((0, start, OUTSIDE), (start, end, IN_VIEW), (end, count, OUTSIDE)):
        if b - a <= most:
            kept.append(np.arange(a, b))
            continue
        size = 2 ** int(np.ceil(np.log2(2 * (b - a) / most)))
        first = a - a % size
        rows = np.pad(y[a:b], (a - first, -(b - first) % size), constant_values=NAN).reshape(-1, size)
        base = first + size * np.arange(len(rows))
        kept += [np.clip(base + place, a, b - 1) for place in (np.where(np.isnan(rows), np.inf, rows).argmin(1),
                                                               np.where(np.isnan(rows), -np.inf, rows).argmax(1))]
    return np.unique(np.concatenate(kept)) if kept else np.zeros(0, int)


def empty_reason(panel: Panel, runs: Sequence[RunCurves], busy: bool) -> str:
    """Say why a panel has no curve."""
    if not any(len(run.frame("steps")) for run in runs):
        return "Waiting for the first step…" if busy else "No step was recorded"
    if panel.of == "epochs" and not any(len(run.frame("epochs")) for run in runs):
        return "Waiting for the end of the first epoch…" if busy else "No epoch was completed"
    if panel.solver and not any(run.solves_ode() for run in runs):
        return "This method solves no ODE"
    return "Not recorded in this run"
