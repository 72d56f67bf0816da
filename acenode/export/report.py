"""The HTML report of a run: one self-contained page with charts, player, configuration, plotly.js and the data."""

from __future__ import annotations

import math
from dataclasses import asdict
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from acenode.compare import result_charts, training_curves
from acenode.compare.metrics import error_title, read_records
from acenode.compare.result_charts import SeriesCharts
from acenode.data.variables import SUBJECTS
from acenode.export import run_summary
from acenode.export.html_parts import asset, digest, embedded, figure, script, table
from acenode.export.run_summary import RunSummary
from acenode.files import write_atomic
from acenode.player import assets as player_assets
from acenode.player import data as player_data
from acenode.runs.store import Run

SCRIPTS = ("base.js", "curves.js", "outcome.js", "series.js", "player.js")


def write(run: Run, out: Path) -> Path:
    """Write the report to `out`, or into it under the run's name if it is a folder."""
    if out.is_dir() or out.suffix.lower() not in (".html", ".htm"):
        out = out / f"{run.id}.html"
    write_atomic(out, render(run).encode("utf-8", "replace"))
    return out


def render(run: Run) -> str:
    """Return the report as HTML."""
    from plotly.offline import get_plotlyjs

    found = read_records(run)
    about = run_summary.read(run, found)
    result = result_charts.read(run.result(), about.state)
    snapshots = player_data.embed(run)
    steps, epochs = training_curves.over_steps(found.steps), training_curves.over_epochs(found.epochs, about.metric)
    epochs["title"] = about.measure.title
    series = asdict(result.series)
    if result.series.coupling:
        series["coupling"] |= result.series.coupling.shares()
    data = embedded({"classes": result.classes, "steps": steps, "epochs": epochs, "confusion": result.confusion,
                     "tsne": result.tsne, "series": series, "scale": about.measure.scale,
                     "subject": SUBJECTS.get(about.experiment, ""),
                     "error": error_title("MSE", {about.experiment}, about.measure.scale),
                     "player": {"runs": [{"id": run.id, "label": about.title}], "embedded": {run.id: snapshots},
                                "always": True}})
    plotly = script(get_plotlyjs())
    code = script("\n".join((player_assets.script(), *(asset(name) for name in SCRIPTS))))
    return Template(asset("page.html")).substitute(
        title=escape(about.title), run=escape(run.id), style=asset("style.css") + player_assets.style_sheet(),
        data=data, plotly=plotly, code=code, scripts=f"{digest(plotly)} {digest(code)}", header=_header(about),
        curves=_curves(steps, epochs, about), player=_player(snapshots), outcome=_outcome(result, about),
        settings=table(("Setting", "Value", "Meaning"), about.settings),
        environment=table(("About the run", "Value"), about.environment),
    )


def _header(about: RunSummary) -> str:
    tiles = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in about.tiles)
    error = f'<p class="error">{escape(about.error)}</p>' if about.error else ""
    state = about.state + " (recorded)" * about.recorded
    return (f'<p class="data{" sample" if about.sample else ""}">{escape(about.data)}</p>{error}'
            f'<dl class="tiles"><div><dt>State</dt><dd>{escape(state)}</dd></div>{tiles}</dl>')


def _curves(steps: dict[str, Any], epochs: dict[str, Any], about: RunSummary) -> str:
    series = steps["series"]
    solved = any(v for key, values in series.items() if key.startswith("nfe_") for v in values)
    no_steps = None if series else "No training step has been recorded yet."
    no_solver = no_steps or (None if solved else "This method solves no ODE.")
    no_sizes = no_solver or (None if any(k.startswith("dt_") for k in series) else "No step sizes were recorded.")
    no_metric = f"The epochs recorded no {about.measure.title}." if epochs["epoch"] else "No epoch has ended yet."
    return "".join((
        figure("losses", "Losses L_h and L_a", no_steps if "L_h" not in series and "L_a" not in series else None,
               note="" if "L_a" in series or no_steps else "No L_a: this run has no separate loss of attention."),
        figure("metric", f"Training and validation {about.measure.title}",
               None if epochs["series"] else no_metric),
        figure("nfe", "Function evaluations per mini-batch (NFE)", no_solver),
        figure("dt", "Solver step sizes", no_sizes),
        figure("gradients", "Gradient norms",
               None if "grad_h" in series or "grad_a" in series else no_steps or "No gradients were recorded."),
        figure("seconds", "Time per iteration",
               None if "seconds" in series else no_steps or "No times were recorded."),
    ))


def _outcome(result: result_charts.ResultCharts, about: RunSummary) -> str:
    """Return the figures of a time series that have data, then those of classes."""
    scores = ", ".join(f"{name} {value:.3f}" if value is not None and math.isfinite(value) else f"{name} none"
                       for name, value in result.silhouettes.items())
    bare = not result.series and about.metric == "accuracy"
    parts = [_series(result.series)]
    if not (result.series or bare or result.confusion or result.tsne):
        parts.append(figure("nothing", "Results on the test set", result.no_confusion))
    if result.confusion or bare:
        parts += [figure("confusion", "Confusion matrix (test set)", result.no_confusion),
                  figure("recall", "Test accuracy by class", result.no_confusion)]
    if result.tsne or bare:
        parts.append(figure("tsne", "t-SNE of the features (test set)", result.no_tsne, kind="last",
                            note=f"Silhouette scores of K-means clusters: {scores}." if scores else ""))
    return "".join(parts)


def _series(found: SeriesCharts) -> str:
    parts = []
    if found.roc:
        parts.append(figure("roc", "ROC curve (test set)", None))
    if found.calibration:
        parts.append(figure("calibration", "Calibration (test set)", None, note="Larger markers: more cases."))
    if found.over_time:
        parts.append(figure("over_time", "Prediction error over time", None, kind="wide",
                            note=result_charts.time_note(found.over_time.unit_note)))
    if found.records:
        parts.append('<div class="controls wide"><label>Record <select id="record"></select></label></div>'
                     + figure("records", "Records of the test set", None, kind="wide",
                              note=result_charts.caption(found.records)))
    if found.bands:
        parts.append(figure("bands", "Classes over time", None, kind="wide"))
    if found.coupling:
        both = [figure(f"coupling-{side}", f"{side.title()} coupling of the variables",
                       None if getattr(found.coupling, side) else f"The result has no {side} coupling.",
                       note=found.coupling.how if side == "learned" else "") for side in ("known", "learned")]
        words = "".join(f'<p class="note">{escape(text)}</p>' for text in found.coupling.words())
        parts.append(f'<div class="grid wide">{"".join(both)}</div><div class="wide">{words}</div>')
    return "".join(parts)


def _player(data: dict[str, Any]) -> str:
    """Return the place for the player, or the reason why there is nothing to play."""
    description = data["description"]
    if description["epochs"]:
        return '<div id="player" data-figure="player"></div>'
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in description["notes"])
    return figure("player", "Trajectories", description["why"], kind="wide") + notes
