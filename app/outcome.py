"""Results of finished runs: tiles, and tabs with what there is to see of them, side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from acenode import experiments
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.results import metric_format, result_charts
from acenode.results.result_charts import ResultCharts
from acenode.runs.catalogue import Entry

from . import bands, coupling, labels, say, series, vitals
from .lab import lab

COLUMNS, MOST = 3, 12  # beside each other, and in all


def tiles(entries: list[Entry]) -> None:
    """Each finished run's numbers in a row."""
    for entry in entries:
        if entry.state != "finished":
            continue
        with st.container(border=True):
            if len(entries) > 1:
                st.caption(say.plain(labels.label(entry)))
            with st.container(horizontal=True, gap="large"):
                unit = labels.measure_of(entry)
                st.metric(say.plain(f"test {unit.title}"), unit.text(entry.value))
                known = experiments.EXPERIMENTS.get(entry.experiment)
                for name in known.also if known else ():
                    other = metric_format.of(name, entry.experiment)
                    st.metric(say.plain(f"test {other.title}"), other.text(entry.test.get(name)))
                st.metric(say.plain(f"validation {unit.title}, best epoch"), unit.text(entry.best), help=_judged(known))
                if entry.test.get("nfe"):
                    st.metric("NFE", f"{entry.test['nfe']:.0f}")
                st.metric("parameters", f"{entry.params:,}")
                st.metric("training time", labels.duration(entry.seconds))


def _judged(experiment: Experiment | None) -> str | None:
    """By what the best epoch was found, where it is not by the number beside it."""
    if experiment is None or experiment.metric.selection is None:
        return None
    selection = metric_format.of(experiment.metric.selection, experiment.name)
    return say.plain(f"the epoch with the best validation {selection.title}")


def tabs(entries: list[Entry], key: str, groups: dict[str, str] | None = None) -> None:
    """What the test set says of every finished run, a tab for all that any of them has. Runs are coloured as the curves
    are: each alone, or by the groups given."""
    done = [e for e in entries if e.state == "finished"]
    if not done:
        return
    if len(done) > MOST:
        st.caption(f"The first {MOST} of {len(done)} finished runs.")
    found = [(e, _read(e)) for e in done[:MOST]]
    shown = [*_series(series.lines(entries, found, groups), key), *_classic(found, key)]
    for place, (_, draw) in zip(st.tabs([title for title, _ in shown]), shown, strict=True):
        with place:
            draw()


Tab = tuple[str, Callable[[], None]]  # its title, and what draws it


def _series(runs: list[series.Line], key: str) -> list[Tab]:
    """The tabs of time series that there is something to draw in."""
    def any_has(part: str) -> bool:
        return any(getattr(run.series, part) for run in runs)

    every: list[tuple[str, str, Callable[[list[series.Line], str], None]]] = [
        ("roc", "ROC", series.show_roc), ("calibration", "Calibration", series.show_calibration),
        ("records", "Records", vitals.show), ("over_time", "Error over time", series.show_over_time),
        ("bands", "Classes over time", bands.show), ("coupling", "Coupling", coupling.show)]
    return [(title, partial(draw, runs, f"{key}/{part}")) for part, title, draw in every if any_has(part)]


def _classic(found: list[tuple[Entry, ResultCharts]], key: str) -> list[Tab]:
    """Who is taken for whom, and where the features lie; of time series only what they have."""
    results = [o for _, o in found]
    bare = not any(o.series for o in results)
    every: list[tuple[bool, Tab]] = [
        (any(o.confusion for o in results), ("Confusion matrices", lambda: _beside(
            found, lambda o: (_confusion(o), o.no_confusion), f"{key}/confusion"))),
        (any(o.tsne for o in results), ("t-SNE", lambda: _beside(
            found, lambda o: (_tsne(o), o.no_tsne), f"{key}/tsne"))),
        (any(o.silhouettes for o in results), ("Silhouettes", lambda: _silhouettes(found)))]
    return [tab for there, tab in every if there or bare]


def _silhouettes(found: list[tuple[Entry, ResultCharts]]) -> None:
    rows = [{"run": labels.label(e), **{k: v for k, v in o.silhouettes.items() if v is not None}} for e, o in found]
    st.caption("K-means of each representation with as many clusters as classes; 1 is far apart, 0 is mixed.")
    st.dataframe(rows, hide_index=True)


def _read(entry: Entry) -> ResultCharts:
    try:
        return result_charts.read(lab().store.open(entry.id).result(), entry.state)
    except UserError:  # deleted or torn since
        return result_charts.read(None, "gone")


def _beside(found: list[tuple[Entry, ResultCharts]], draw: Callable[[ResultCharts], tuple[Any, str | None]],
            key: str) -> None:
    columns = st.columns(min(COLUMNS, len(found)))
    for i, (entry, result) in enumerate(found):
        with columns[i % len(columns)]:
            st.caption(say.plain(labels.label(entry)))
            figure, why = draw(result)
            if figure is None:
                st.caption(why or "")
            else:
                st.plotly_chart(figure, key=f"{key}/{entry.id}", config={"displaylogo": False})


# None is see-through, so that it looks like nothing on light and on dark; a single mistake is seen.
SHARES = [[0.0, "rgba(43,98,217,0)"], [1e-4, "rgba(43,98,217,0.14)"], [1.0, "rgba(43,98,217,1)"]]


def _confusion(result: ResultCharts) -> go.Figure | None:
    if result.confusion is None:
        return None
    names, counts = [escape(c) for c in result.classes], result.confusion["counts"]
    shares = [[n / (sum(row) or 1) for n in row] for row in counts]
    few = len(names) <= 12
    said = [[str(n) if n else "" for n in row] for row in counts]  # zeros would hide what is none
    ink = "#f4f6fb" if st.context.theme.type == "dark" else None  # plotly would choose as if on white
    figure = go.Figure(go.Heatmap(
        z=shares, x=names, y=names, customdata=counts, colorscale=SHARES, zmin=0, zmax=1, xgap=1, ygap=1,
        text=said if few else None, texttemplate="%{text}" if few else None, textfont={"color": ink}, showscale=False,
        hovertemplate="true %{y}, taken for %{x}: %{customdata} (%{z:.1%})<extra></extra>"))
    figure.update_layout(height=380, margin={"l": 10, "r": 10, "t": 10, "b": 10})
    figure.update_xaxes(title="predicted", type="category", constrain="domain", showgrid=False)
    figure.update_yaxes(title="true", type="category", autorange="reversed", scaleanchor="x", showgrid=False)
    return figure


def _tsne(result: ResultCharts) -> go.Figure | None:
    points = result.tsne
    if points is None:
        return None
    figure = go.Figure()
    for n in sorted(set(points["label"])):
        name = escape(result.classes[n]) if n < len(result.classes) else str(n)
        own = [i for i, label in enumerate(points["label"]) if label == n]
        figure.add_scattergl(x=[points["x"][i] for i in own], y=[points["y"][i] for i in own], mode="markers",
                             marker={"size": 5, "color": labels.PALETTE[n % len(labels.PALETTE)], "opacity": 0.8},
                             name=name,
                             customdata=[points["index"][i] for i in own],
                             hovertemplate=f"{name}, test sample %{{customdata}}<extra></extra>")
    figure.update_layout(height=420, margin={"l": 10, "r": 10, "t": 10, "b": 10},
                         legend={"itemsizing": "constant", "orientation": "h", "y": 0})
    figure.update_xaxes(showticklabels=False, zeroline=False, showgrid=False, constrain="domain")
    figure.update_yaxes(showticklabels=False, zeroline=False, showgrid=False, scaleanchor="x")  # distances as they are
    return figure
