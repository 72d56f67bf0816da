"""Results of finished runs: a row of numbers for each, and tabs with charts of all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from acenode import experiments
from acenode.compare import result_charts
from acenode.compare.cells import paper_value_note
from acenode.compare.metrics import metric_format
from acenode.compare.result_charts import ResultCharts
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.entry import Entry

from .. import labels, messages
from ..services import services
from . import charts, what_if
from .charts import ChartedRun, charted_runs

MAX_RUNS = 12
MANY = 10  # epochs, of which the first is seldom the best

Tab = tuple[str, Callable[[], None]]  # title, function that draws it


def show_numbers(entry: Entry) -> None:
    """Show the test metrics, size and training time of a run, if it is finished."""
    if entry.state != "finished":
        return
    with st.container(horizontal=True, gap="medium"):
        metric = labels.measure_of(entry)
        experiment = experiments.find(entry.experiment)
        if not entry.search:
            st.metric(messages.escape(f"Test {metric.title}"), metric.text(entry.value))
        for name in experiment.other_metrics if experiment and not entry.search else ():
            other = metric_format(name, entry.experiment)
            st.metric(messages.escape(f"Test {other.title}"), other.text(entry.test.get(name)))
        best = f"best epoch ({entry.best_epoch})" if entry.best_epoch else "best epoch"
        st.metric(messages.escape(f"Validation {metric.title}, {best}"), metric.text(entry.best),
                  help=best_epoch_help(experiment))
        if entry.test.get("nfe"):
            st.metric("Function evaluations (NFE)", f"{entry.test['nfe']:.0f}",
                      help="How often the solver evaluates the derivative of the state (f) in one forward pass")
        st.metric("Parameters", f"{entry.params:,}")
        st.metric("Training time", labels.duration(entry.seconds))
    if entry.search:
        st.caption(messages.escape(f"A trial of the search {entry.search}: it is validated, and never tested"))
        return
    words = [paper_value_note(entry, services().catalogue.entries())]
    if entry.best_epoch:
        words.append(f"The test values are those of epoch {entry.best_epoch} of {entry.epochs}, the best on validation "
                     "data" + "; the player names the epoch that it shows" * bool(entry.run.snapshots()) + ".")
    if entry.best_epoch == 1 and entry.epochs >= MANY:
        words.append("Validation was never better than after the first epoch: training on did not help, so read the "
                     "attention of later epochs with care.")
    if any(words):
        st.caption(messages.escape(" ".join(filter(None, words))))


def best_epoch_help(experiment: Experiment | None) -> str | None:
    """Explain how the best epoch was chosen, if not by the metric shown alone."""
    metric = experiment.metric if experiment else None
    if metric is None or not (metric.selection or metric.tie_breaker):
        return None
    rule = f"The epoch with the best validation {metric_format(metric.selection or metric.name).title}"
    if metric.tie_breaker:
        rule += f"; of equal ones, that with the lowest {metric_format(metric.tie_breaker).title}"
    return messages.escape(rule)


def show(entries: list[Entry], key: str, groups: dict[str, str] | None = None) -> None:
    """Show a tab for every chart that any finished run has data for.

    Args:
        entries: the chosen runs.
        key: prefix of the widgets' keys.
        groups: the group of each run id; runs of one group share a colour.
    """
    finished = [e for e in entries if e.state == "finished" and not e.search]  # a trial has no results
    if not finished:
        return
    if len(finished) > MAX_RUNS:
        st.caption(f"The first {MAX_RUNS} of {len(finished)} finished runs.")
    found = [(e, _read(e)) for e in finished[:MAX_RUNS]]
    tabs = [*_series_tabs(charted_runs(entries, found, groups), key), *_class_tabs(found, key)]
    _show_tabs(tabs, f"{key}/tab")


@st.fragment
def _show_tabs(tabs: list[Tab], key: str) -> None:
    """Show tabs and draw the open one only: hidden charts would delay the player above them."""
    places = st.tabs([title for title, _ in tabs], key=key, on_change="rerun")
    for place, (_, draw) in zip(places, tabs, strict=True):
        if place.open:
            with place:
                draw()


def _series_tabs(runs: list[ChartedRun], key: str) -> list[Tab]:
    """Return the tabs of time series with something to draw."""
    tabs: list[tuple[str, str, Callable[[list[ChartedRun], str], None]]] = [
        ("roc", "ROC", charts.show_roc), ("calibration", "Calibration", charts.show_calibration),
        ("records", "Records", charts.show_records), ("over_time", "Error over time", charts.show_over_time),
        ("bands", "Classes over time", charts.show_bands), ("coupling", "Coupling", charts.show_coupling),
        ("errors", "Errors by variable", charts.show_errors)]
    found: list[Tab] = [(title, partial(draw, runs, f"{key}/{part}")) for part, title, draw in tabs
                        if any(getattr(run.series, part) for run in runs)]
    if named := what_if.offered(runs):
        found.append(("What if", partial(what_if.show, named, f"{key}/what-if")))
    return found


def _class_tabs(found: list[tuple[Entry, ResultCharts]], key: str) -> list[Tab]:
    """Return the tabs of classifications: all of them for images, for time series those with something to draw."""
    results = [result for _, result in found]
    images = not any(result.series for result in results)
    tabs: list[tuple[bool, Tab]] = [
        (any(r.confusion for r in results),
         ("Confusion matrices", partial(charts.show_confusion, found, f"{key}/confusion"))),
        (any(r.tsne for r in results), ("t-SNE", partial(charts.show_tsne, found, f"{key}/tsne"))),
        (any(r.silhouettes for r in results), ("Silhouettes", partial(charts.show_silhouettes, found)))]
    return [tab for has_data, tab in tabs if has_data or images]


def _read(entry: Entry) -> ResultCharts:
    try:
        return result_charts.read(services().store.open(entry.id).result(), entry.state)
    except UserError:  # deleted or damaged since it was listed
        return result_charts.read(None, "gone")
