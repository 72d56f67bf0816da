"""The HTML report of a run: one self-contained page with figures, player, configuration, plotly.js and the data.

All text passes through `escape` or `embedded`, so that none is taken for markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from acenode import experiments
from acenode.compare import figures, result_charts, training_curves
from acenode.compare.colours import PALETTE
from acenode.compare.figures import ChartedRun, plain_figure
from acenode.compare.metrics import finite, metric_format, read_records
from acenode.compare.training_curves import RunCurves, Series
from acenode.config import KEYS
from acenode.data.variables import subject_name
from acenode.errors import UserError
from acenode.export.tables import flat
from acenode.files import write_atomic
from acenode.player import assets as player_assets
from acenode.player import data as player_data
from acenode.runs.store import Run
from acenode.runs.writer import json_value

CONTROLS = (
    '<div class="controls"><label><input type="checkbox" id="log"> Log scale for losses</label><label>Smoothing <input '
    'type="range" id="smoothing" min="0" max="0.98" step="0.02" value="0.6"> <output id="smoothing-value"></output>'
    "</label></div>")
LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}}


def write(run: Run, out: Path) -> Path:
    """Write the report to `out`, or into it under the run's name if it is a folder."""
    return write_page(render(run), out, run.id)


def write_page(html: str, out: Path, name: str) -> Path:
    """Write a page to `out`, or into it under this name if it is a folder."""
    if out.is_dir() or out.suffix.lower() not in (".html", ".htm"):
        out = out / f"{name}.html"
    write_atomic(out, html.encode("utf-8", "replace"))
    return out


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Raise a UserError if the block cannot write to `place`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{place} cannot be written ({error.strerror or error}): choose another place with --out") \
            from None


def render(run: Run) -> str:
    """Return the report as HTML."""
    about = RunSummary(run)
    snapshots = player_data.embed(run)
    seen = snapshots["description"]
    played = '<div id="player" data-figure="player"></div>' if seen["epochs"] else place(
        "player", "Trajectories", seen["why"], kind="wide") + "".join(_note(note) for note in seen["notes"])
    drawn: dict[str, dict[str, Any]] = {}
    curves, smoothed = _curves(run, about, drawn)
    outcome = _outcome(run, about, drawn)
    player = {"runs": [{"id": run.id, "label": about.title}], "embedded": {run.id: snapshots}, "always": True}
    tables = (table(("Setting", "Value", "Meaning"), about.settings)
              + table(("About the run", "Value"), about.environment))
    return page(f"{about.title} – {run.id}", _header(run, about), {
        "curves": ("Training", f'{CONTROLS}<div class="grid">{curves}</div>'),
        "player": ("Trajectories", played), "outcome": ("Test set", f'<div class="grid">{outcome}</div>'),
        "settings": ("Configuration", f'<div class="tables">{tables}</div>'),
    }, {"figures": drawn, "smoothed": smoothed, "player": player})


def page(title: str, header: str, sections: Mapping[str, tuple[str, str]],
         data: Mapping[str, Any] | None = None) -> str:
    """Return a self-contained page with a title in the browser's tab, HTML at its head, and sections: heading and HTML
    of each by its name. `data` has `figures` and `player`, which a script draws; without it there is none."""
    from plotly.offline import get_plotlyjs

    scripts = [] if data is None else [script(get_plotlyjs()),
                                       script("\n".join((player_assets.script(), asset("page.js"))))]
    embed = "" if data is None else f'<script type="application/json" id="data">{embedded(data)}</script>'
    return Template(asset("page.html")).substitute(
        title=escape(title), style=asset("style.css") + player_assets.style_sheet(), header=header,
        policy=f"script-src {' '.join(map(digest, scripts))};" * bool(scripts),
        sections="".join(f'<section id="section-{name}"><h2>{escape(heading)}</h2>{content}</section>'
                         for name, (heading, content) in sections.items() if content),
        scripts=embed + "".join(f"<script>{code}</script>" for code in scripts))


def asset(name: str) -> str:
    return (files("acenode.export") / "assets" / name).read_text(encoding="utf-8")


def embedded(value: Any) -> str:
    """Write JSON for a <script type="application/json">: ASCII, without characters that are special in HTML."""
    text = json.dumps(json_value(value), allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def script(code: str) -> str:
    """Escape code so that it cannot end its <script>; in strings and patterns the backslash has no effect."""
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def digest(code: str) -> str:
    """Return the hash by which a content security policy allows a script."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() + "'"


def place(name: str, title: str, empty: str | None = None, *, note: str = "", kind: str = "") -> str:
    """Return a titled place for the figure `name`, or the reason why it is empty."""
    body = f'<p class="empty">{escape(empty)}</p>' if empty else f'<div class="plot" id="{escape(name)}"></div>'
    return (f'<figure class="{escape(kind)}" data-figure="{escape(name)}"><h3>{escape(title)}</h3>{body}'
            f"{_note(note) if note else ''}</figure>")


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of texts."""
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


# The parts of a report ----------------------------------------------------------------------------------------------

def _header(run: Run, about: RunSummary) -> str:
    tiles = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>"
                    for label, value in (("State", about.state + " (recorded)" * about.recorded), *about.tiles))
    error = f'<p class="error">{escape(about.error)}</p>' if about.error else ""
    return (f'<h1>{escape(about.title)}</h1><p class="run-id">{escape(run.id)}</p>'
            f'<p class="data{" sample" * about.sample}">{escape(about.data)}</p>{error}<dl class="tiles">{tiles}</dl>'
            '<noscript><p class="error">The charts need JavaScript. The numbers above and the tables below do not.</p>'
            "</noscript>")


def _curves(run: Run, about: RunSummary, drawn: dict[str, dict[str, Any]]) -> tuple[str, list[str]]:
    """Draw the training curves; return their places, and the names of those over steps."""
    curves, title = RunCurves(run), about.measure.title
    curves.refresh()
    found, series = training_curves.panels(about.metric, title), [Series(about.title, PALETTE[0], [curves])]
    titles = {"losses": "Losses L_h and L_a", "metric": f"Training and validation {title}",
              "nfe": "Function evaluations per mini-batch (NFE)", "dt": "Solver step sizes",
              "gradients": "Gradient norms", "seconds": "Time per iteration"}
    parts = []
    for name, heading in titles.items():
        figure, key = training_curves.figure(found[name], series, share=about.metric == "accuracy" and name == "metric")
        empty = training_curves.empty_reason(found[name], [curves], about.state in ("running", "queued"))
        if key := [one for one in key if not found[name].solver or curves.solves_ode()]:
            for trace in figure["data"]:
                trace["visible"] = "legendonly" if "while attention trains" in trace.get("name", "") else True
            figure["layout"] |= {"showlegend": len(key) > 1, "legend": LEGEND}
            drawn[name] = figure
        lacks = name == "losses" and key and not curves.has("steps", "L_a")
        parts.append(place(name, heading, None if key else empty,
                           note="No L_a: this run has no separate loss of attention." if lacks else ""))
    return "".join(parts), [name for name in drawn if name != "metric"]


def _outcome(run: Run, about: RunSummary, drawn: dict[str, dict[str, Any]]) -> str:
    """Draw the results of a time series that has some, then those of classes; return their places."""
    result = result_charts.read(run.result(), about.state)
    parts = _series(ChartedRun(run.id, about.title, PALETTE[0], about.measure, about.experiment, result), drawn)
    bare = not parts and about.metric == "accuracy"
    if not (parts or bare or result.confusion or result.tsne):
        parts.append(place("nothing", "Results on the test set", result.no_confusion))
    scores = ", ".join(f"{name} {'none' if finite(value) is None else f'{value:.3f}'}"
                       for name, value in result.silhouettes.items())
    classes = [("confusion", "Confusion matrix (test set)", figures.confusion(result), result.no_confusion),
               ("recall", "Test accuracy by class", figures.recall(result), result.no_confusion),
               ("tsne", "t-SNE of the features (test set)", figures.tsne(result), result.no_tsne)]
    for name, title, figure, why in classes:
        if figure is not None:
            drawn[name] = plain_figure(figure)
        if figure is not None or bare:
            tsne = name == "tsne"
            parts.append(place(name, title, None if figure else why, kind="last" * tsne,
                               note=f"Silhouette scores of K-means clusters: {scores}." if tsne and scores else ""))
    return "".join(parts)


def _series(run: ChartedRun, drawn: dict[str, dict[str, Any]]) -> list[str]:
    found, parts = run.charts, list[str]()

    def add(name: str, title: str, figure: Any, note: str = "", kind: str = "") -> None:
        drawn[name] = plain_figure(figure)
        parts.append(place(name, title, note=note, kind=kind))

    if found.roc:
        add("roc", "ROC curve (test set)", figures.roc([run]))
    if found.calibration:
        add("calibration", "Calibration (test set)", figures.calibration([run]), "Larger markers: more cases.")
    if found.over_time:
        add("over_time", "Prediction error over time", figures.over_time([run]),
            result_charts.time_note(found.over_time.unit_note), "wide")
    if found.records:
        drawn |= {f"records/{i}": plain_figure(figures.records([(run, one)])) for i, one in enumerate(found.records)}
        options = "".join(f'<option value="{i}">{escape(subject_name(run.subject, one.id))}</option>'
                          for i, one in enumerate(found.records))
        parts += [f'<div class="controls wide"><label>Record <select id="record">{options}</select></label></div>',
                  place("records", "Records of the test set", note=result_charts.caption(found.records), kind="wide")]
    if found.bands:
        add("bands", "Classes over time", figures.bands([(run, band) for band in found.bands]), kind="wide")
    if found.coupling:
        add("coupling", "Coupling of the variables", figures.coupling(found.coupling), found.coupling.how, "wide")
        parts.append(f'<div class="wide">{"".join(map(_note, found.coupling.words()))}</div>')
    return parts


# What a report says of its run --------------------------------------------------------------------------------------

class RunSummary:
    """The texts of a report, not yet escaped for HTML: title, data, state, main numbers and configuration."""

    def __init__(self, run: Run) -> None:
        self.description, self.status, self.result = run.description(), run.status(), run.result()
        config: dict[str, Any] = self.description["config"]
        self.experiment, self.state = str(config.get("experiment")), str(self.status["state"])
        self.recorded = run.recorded
        title, method, about, words, metric = self.experiment, str(config.get("method")), "", "", None
        try:
            found = experiments.get(title)
            method, title = found.method(method).title, found.title
            about, words, metric = f" ({found.about_sample})", found.sample_title, found.metric.name
        except UserError:
            pass  # this version does not know it: the bare names
        sample, partial = config.get("data") != "full", bool(self.description.get("partial"))
        own = sample and experiments.is_imported(self.experiment)
        kind = words if own or not words else f"sample: {words}"
        self.title = f"{method} on {title}" + f" ({kind})" * (sample and bool(kind))
        note = f", {self.description['data_note']}" if self.description.get("data_note") else ""
        self.data = f"Data: {experiments.YOUR_DATA}{about}." if own else "Data: " + (
            f"the bundled sample{about}. Not comparable with the paper." if sample else
            f"a part of the full {title} set. Not comparable with the paper." if partial else
            f"the full {title} set{note}.")
        self.sample = (sample or partial) and not own  # not comparable with the paper
        self.error = str(self.status["error"]) if self.status.get("error") else None
        keys = (key.removeprefix("validation_") for record in read_records(run).epochs for key in record
                if key.startswith("validation_"))
        self.metric = str((self.result or {}).get("metric") or metric or next(keys, "accuracy"))
        self.measure = metric_format(self.metric, self.experiment)
        self.tiles = list(self._tiles())
        self.settings = [(key, _text(value), KEYS[key].help if key in KEYS else "") for key, value in config.items()
                         if key != "format"]
        self.environment = [(name.removeprefix("environment."), _text(value)) for key, part in self.description.items()
                            if key not in ("config", "format") for name, value in flat(key, _readable(key, part))]

    def _tiles(self) -> Iterator[tuple[str, str]]:
        test = (self.result or {}).get("test")
        if isinstance(test, dict):
            for key, value in sorted(test.items(), key=lambda item: item[0] != self.metric):  # the metric first
                yield f"Test {metric_format(key).title}", metric_text(key, value, self.experiment)
            yield "Best epoch", str((self.result or {}).get("best_epoch", "?"))
        elif self.status.get("best") is not None:
            best = metric_text(self.metric, self.status["best"], self.experiment)
            yield f"Best validation {metric_format(self.metric).title} so far", best
        if self.state != "finished" and self.status.get("progress") is not None:
            yield "Progress", metric_text("accuracy", self.status["progress"])
        if (params := finite(self.description.get("params"))) is not None:
            yield "Parameters", f"{int(params):,}"
        if (seconds := finite((self.result or self.status).get("seconds"))) is not None:
            minutes, rest = divmod(round(seconds), 60)
            yield "Training time", (f"{seconds:.1f} s" if seconds < 100 else f"{minutes} min {rest} s" if minutes < 60
                                    else f"{minutes // 60} h {minutes % 60} min")
        yield "Seed", str(self.description["config"].get("seed", "?"))


def metric_text(key: str, value: Any, experiment: str = "") -> str:
    number = finite(value)
    return "not a number" if number is None else metric_format(key, experiment).text(number)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _readable(key: str, value: Any) -> Any:
    when = finite(value) if key == "created" else None
    if when is None or not 0 <= when < 253_402_300_800:  # the year 10000
        return value
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M UTC")
