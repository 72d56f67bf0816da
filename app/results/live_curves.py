"""Training curves for the browser, which follow their runs: the status of each in words, and changed figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from acenode.compare.colours import PALETTE
from acenode.compare.metrics import MetricFormat
from acenode.compare.training_curves import AXES, Panel, RunCurves, Series, View, empty_reason, figure, panels
from acenode.errors import UserError
from acenode.runs.process import within_limit

from ..services import services

MAX_RUNS = 60  # in one request
KEPT = 80  # runs whose curves stay in memory

_curves = lru_cache(maxsize=KEPT)(RunCurves)


@dataclass(frozen=True)
class LiveRun:
    """A run of a request: its status, and its curves unless it is gone or cannot be read."""

    status: Mapping[str, Any]
    curves: RunCurves | None = None

    @property
    def busy(self) -> bool:
        return self.status["state"] in ("queued", "running")


def answer(ids: Sequence[str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the runs with these ids, unknown ones as `gone`, and those of the asked panels that have changed.

    Args:
        asked: `series` (label, colour and runs of each), `metric`, `title`, `number` (its scale, digits and unit), `x`,
            `smoothing`, `log`, `two` (phase two as well), and `panels`: for each its `version` and the `window` in x.
    """
    runs = {name: _read(name) for name in ids[:MAX_RUNS] if name}
    found: dict[str, Any] = {"runs": {name: _about(run, asked) for name, run in runs.items()}}
    if isinstance(asked.get("panels"), dict) and asked.get("x") in AXES:
        found["panels"] = _panels(runs, asked)
    return found


def series_of(runs: Sequence[Mapping[str, Any]], groups: bool) -> list[dict[str, Any]]:
    """Return one series for each run, or one for each group: its label, colour and the ids of its runs."""
    found: dict[str, dict[str, Any]] = {}
    for i, run in enumerate(runs):
        label = str((run.get("group") if groups else None) or run.get("label") or run["id"])
        one = found.setdefault(label if groups else str(run["id"]), {
            "label": label, "colour": run.get("colour") or PALETTE[i % len(PALETTE)], "runs": []})
        one["runs"].append(run["id"])
    return [{**one, "label": f"{one['label']} · {len(one['runs'])} runs" if len(one["runs"]) > 1 else one["label"]}
            for one in found.values()]


def _read(name: str) -> LiveRun:
    def read() -> LiveRun:
        run = services().store.find(name)
        if run is None:
            return LiveRun({"state": "deleted"})
        curves, status = _curves(run), run.status()
        curves.refresh(status.get("began"))
        return LiveRun(status, curves)

    try:
        return within_limit(services().store.root / name, read)  # one thread reads all
    except (UserError, TimeoutError) as error:
        reason = str(error) if isinstance(error, UserError) else error.strerror
        return LiveRun({"state": "unreadable", "error": reason})


def _about(run: LiveRun, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a run in words: its stage, the time left, and its latest values."""
    status, state = run.status, str(run.status["state"])
    epoch, epochs = status.get("epoch") or 0, status.get("epochs")
    stage = f"{epoch} of {epochs} epochs"
    if run.busy:
        stage = "testing" if status.get("phase") == "testing" else f"epoch {min(epoch + 1, epochs or 0)} of {epochs}"
    progress = status.get("progress")
    return {"state": state, "busy": run.busy, "gone": state == "deleted", "error": str(status.get("error") or ""),
            "points": len(run.curves.frame("steps")) if run.curves else 0, "stage": stage if epochs else "",
            "left": _time_left(status.get("seconds_left")) if state == "running" else "",
            "values": "   ".join(_values(run.curves, asked)) if run.curves else "",
            "progress": min(max(progress, 0.0), 1.0) if isinstance(progress, int | float) else 0.0}


def _time_left(seconds: Any) -> str:
    """Write a time coarsely, because it is read while it counts down."""
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        return ""
    if seconds < 90:
        return f"about {-(-seconds // 1) if seconds < 10 else 5 * round(seconds / 5):.0f} s left"
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes < 90 else f"about {minutes // 60} h {minutes % 60} min left"


def _values(curves: RunCurves, asked: Mapping[str, Any]) -> list[str]:
    number = asked.get("number") or {}
    measure = MetricFormat(str(asked.get("metric")), True, **number) if number else None
    found = []
    for title, of, key in (("loss of the state (L_h)", "steps", "L_h"), ("of attention (L_a)", "steps", "L_a"),
                           (f"validation {asked.get('title')}", "epochs", f"validation_{asked.get('metric')}")):
        value = curves.latest(of, key)
        if value is not None:
            text = measure.text(value) if measure and of == "epochs" else f"{value:.4g}"
            found.append(f"{title}\u00a0{text}")
    return found


def _panels(runs: Mapping[str, LiveRun], asked: Mapping[str, Any]) -> dict[str, Any]:
    view = View(asked["x"], min(max(float(asked.get("smoothing") or 0), 0.0), 0.99), bool(asked.get("log")),
                bool(asked.get("two")))
    series = [Series(str(one["label"]), str(one["colour"]), [
        curves for name in one["runs"] if name in runs and (curves := runs[name].curves) is not None])
        for one in asked.get("series") or []]
    series = [one for one in series if one.runs]
    metric, drawn = str(asked.get("metric")), {}
    for name, panel in panels(metric, str(asked.get("title"))).items():
        if name in asked["panels"]:
            before = asked["panels"][name] or {}
            version = _version(panel, runs, view, before.get("window"))
            if version != before.get("version"):
                drawn[name] = {"version": version, **_panel(panel, runs, series, view, before.get("window"), metric)}
    return drawn


def _version(panel: Panel, runs: Mapping[str, LiveRun], view: View, window: Any) -> str:
    counts = [(name, run.busy, run.curves and (run.curves.began, run.curves.versions[panel.of],
                                               run.curves.versions["steps"] > 0)) for name, run in runs.items()]
    return f"{counts}/{view}/{window}"


def _panel(panel: Panel, runs: Mapping[str, LiveRun], series: Sequence[Series], view: View, window: Any,
           metric: str) -> dict[str, Any]:
    drawn, key = figure(panel, series, view, window, panel.name == "metric" and metric.startswith("accuracy"))
    curves = [run.curves for run in runs.values() if run.curves is not None]
    reason = "" if key else empty_reason(panel, curves, any(run.busy for run in runs.values()))
    if runs and not curves:
        reason = "The run was deleted" if all(r.status["state"] == "deleted" for r in runs.values()) else "Unreadable"
    return {"title": panel.title, "hint": panel.hint, "key": key, "empty": reason if runs else "No run chosen",
            "two": panel.name == "nfe" and any(one.has("steps", "nfe_forward_a") for one in curves),
            "figure": {**drawn, "layout": {**drawn["layout"], "showlegend": False}} if key else None}
