"""Results of finished runs: a row of numbers for each, and tabs with charts of all, which reports share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from acenode import experiments
from acenode.compare import figures, result_charts
from acenode.compare.cells import paper_value_note
from acenode.compare.figures import ChartedRun
from acenode.compare.metrics import metric_format
from acenode.compare.result_charts import ResultCharts, caption, time_note
from acenode.data.variables import subject_name
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.entry import Entry

from .. import labels, messages, navigation
from ..services import services
from . import CONFIG, what_if

MAX_RUNS = 12
MANY = 10  # epochs, of which the first is seldom the best
NAMED = 3  # runs that a line lists
COLUMNS = 3  # charts of classifications in a row
ALL = "all records"
ONE, OWN = "One scale", "Own scales"
REPRESENTATIONS = {"features": "Features", "logits": "Logits", "tsne": "t-SNE"}

Tab = tuple[str, Callable[[], None]]  # title, function that draws it
Results = list[tuple[Entry, ResultCharts]]


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
    metric = experiment and experiment.metric
    if not metric or not (metric.selection or metric.tie_breaker):
        return None
    rule = f"The epoch with the best validation {metric_format(metric.selection or metric.name).title}"
    if metric.tie_breaker:
        rule += f"; of equal ones, that with the lowest {metric_format(metric.tie_breaker).title}"
    return messages.escape(rule)


def show(entries: list[Entry], key: str, groups: dict[str, str] | None = None) -> None:
    """Show a tab for every chart that any finished run has data for; runs of one group, by their id, share a colour."""
    finished = [e for e in entries if e.state == "finished" and not e.search]  # a trial has no results
    if not finished:
        return
    if len(finished) > MAX_RUNS:
        st.caption(f"The first {MAX_RUNS} of {len(finished)} finished runs.")
    found = [(e, _read(e)) for e in finished[:MAX_RUNS]]
    runs = charted_runs(entries, found, groups)
    tabs: list[Tab] = [(title, partial(draw, runs, f"{key}/{part}")) for part, title, draw in SERIES
                       if any(getattr(run.charts, part) for run in runs)]
    images = not tabs
    named = [run for run in runs if run.charts.records and run.charts.coupling and run.charts.coupling.influence]
    if named:  # forecasts of named variables
        tabs.append(("What if", partial(what_if.show, named, f"{key}/what-if")))
    tabs += [(title, partial(draw, found, f"{key}/{part}")) for part, title, draw in CLASSES
             if images or any(getattr(result, part) for _, result in found)]  # images say why a tab is empty
    _show_tabs(tabs, f"{key}/tab")


@st.fragment
def _show_tabs(tabs: list[Tab], key: str) -> None:
    # only the open one is drawn: hidden charts would delay the player above them
    places = st.tabs([title for title, _ in tabs], key=key, on_change="rerun")
    for place, (_, draw) in zip(places, tabs, strict=True):
        if place.open:
            with place:
                draw()


def _read(entry: Entry) -> ResultCharts:
    try:
        return result_charts.read(services().store.open(entry.id).result(), entry.state)
    except UserError:  # deleted or damaged since it was listed
        return result_charts.read(None, "gone")


def charted_runs(chosen: list[Entry], found: Results,
                 groups: dict[str, str] | None = None) -> list[ChartedRun]:
    """Name and colour runs with results, as all chosen ones decide; equal names end with the last of the run's id."""
    names = {e.id: f"{groups[e.id] if groups else labels.group(e)} · seed {e.seed}" for e, _ in found}
    uses = Counter(names.values())
    kinds = {e.id: groups[e.id] if groups else labels.label(e) for e in chosen}
    colour = labels.colours(kinds.values())
    return [ChartedRun(e.id, names[e.id] + (f" · {e.id[-4:]}" if uses[names[e.id]] > 1 else ""), colour[kinds[e.id]],
                       labels.measure_of(e), e.experiment, result) for e, result in found]


def draw(figure: go.Figure, key: str, caption: str, without: list[ChartedRun]) -> None:
    """Show a figure under its caption, and name the runs that are not in it."""
    st.caption(caption)
    st.plotly_chart(figure, key=key, config=CONFIG)
    note_missing(without)


def note_missing(runs: list[ChartedRun]) -> None:
    """Name the runs whose results lack what a chart shows, the first few in the line and all of them in its help."""
    if not runs:
        return
    names = [messages.escape(run.name) for run in runs]
    more = len(names) - NAMED
    st.caption(f"Not available for {', '.join(names)}" if more < 1 else
               f"Not available for {', '.join(names[:NAMED])} and {more} more run{'s' * (more > 1)}",
               help="; ".join(names) if more > 0 else None)


def pick_record(runs: list[ChartedRun], key: str, known: list[str], everything: str = "") -> str | None:
    """Ask for a patient, station or recording by its id, or for `everything`; the URL keeps the choice. An id that no
    run has, such as of runs that were shown before, is replaced by the first known one."""
    subjects = {run.subject for run in runs}
    subject = subjects.pop() if len(subjects) == 1 else ""
    names = {id: subject_name(subject, id) for id in known}
    names = {everything: everything, **names} if everything else names
    # the URL has names, the session ids
    found = [subject_name(subject, value) for value in navigation.current_values(key)]
    if missing := [name for name in found if name not in names.values()]:
        st.session_state[key] = next(iter(names))
        st.caption(f"None of these runs kept {messages.escape(missing[0][:100])}, so another one is shown.")
    return st.selectbox((subject or "record").capitalize(), list(names), key=key, bind="query-params", width=260,
                        format_func=lambda id: names.get(id, id))


def show_confusion(found: Results, key: str) -> None:
    ink = "#f4f6fb" if st.context.theme.type == "dark" else None
    _side_by_side(found, lambda result: figures.confusion(result, ink), lambda result: result.no_confusion, key)


def show_tsne(found: Results, key: str) -> None:
    most = max(figures.MAX_POINTS // len(found), 1)
    if any(result.tsne and len(result.tsne["label"]) > most for _, result in found):
        st.caption(f"At most {most:,} points of each run.")
    _side_by_side(found, lambda result: figures.tsne(result, most), lambda result: result.no_tsne, key)


def show_silhouettes(found: Results, key: str) -> None:
    st.caption("Silhouette of k-means clusters of each representation, with as many clusters as classes. "
               "1: well separated. 0: overlapping.")
    rows = [{"Run": labels.label(e), **{k: v for k, v in o.silhouettes.items() if v is not None}} for e, o in found]
    st.dataframe(pd.DataFrame(rows).rename(columns=REPRESENTATIONS), hide_index=True, placeholder="",
                 key=key)


def _side_by_side(found: Results, draw: Callable[[ResultCharts], go.Figure | None],
                  reason: Callable[[ResultCharts], str | None], key: str) -> None:
    columns = st.columns(min(COLUMNS, len(found)))
    for i, (entry, result) in enumerate(found):
        with columns[i % len(columns)]:
            st.caption(messages.escape(labels.label(entry)))
            figure = draw(result)
            if figure is None:
                st.caption(reason(result) or "")
            else:
                st.plotly_chart(figure, key=f"{key}/{entry.id}", config=CONFIG)


def show_roc(runs: list[ChartedRun], key: str) -> None:
    draw(figures.roc(runs), key, "True positive rate against false positive rate at every threshold. The dotted "
         "diagonal is chance.", [r for r in runs if not r.charts.roc])


def show_calibration(runs: list[ChartedRun], key: str) -> None:
    draw(figures.calibration(runs), key, "How often the event occurred among cases with a similar predicted "
         "probability. A well calibrated model lies on the diagonal. Larger markers stand for more cases.",
         [r for r in runs if not r.charts.calibration])


def show_over_time(runs: list[ChartedRun], key: str) -> None:
    found = [r.charts.over_time for r in runs if r.charts.over_time]
    which = "mse"
    if any(over_time.negll for over_time in found):
        which = st.segmented_control("Error", list(figures.ERRORS), default="mse",
                                     format_func=lambda e: figures.ERRORS[e][1], key=f"{key}/error", required=True,
                                     label_visibility="collapsed") or "mse"
    note = next((over_time.unit_note for over_time in found if over_time.unit_note), "")
    is_forecast = any(over_time.cut is not None for over_time in found)
    forecast = "The test metric uses only the first few points of a forecast. " * is_forecast
    draw(figures.over_time(runs, which), f"{key}/{which}",
         f"{figures.ERRORS[which][0]} by the time of the predicted value, over all predicted points. {forecast}"
         f"{messages.escape(time_note(note))}",
         [r for r in runs if not (r.charts.over_time and getattr(r.charts.over_time, which))])


def show_records(runs: list[ChartedRun], key: str) -> None:
    chosen = pick_record(runs, "record", list(dict.fromkeys(r.id for run in runs for r in run.charts.records)))
    found = {run.id: record for run in runs for record in run.charts.records if record.id == chosen}
    draw(figures.records([(run, found[run.id]) for run in runs if run.id in found]), key,
         messages.escape(caption(list(found.values()))), [run for run in runs if run.id not in found])


def show_bands(runs: list[ChartedRun], key: str) -> None:
    known = list(dict.fromkeys(b.id for run in runs for b in run.charts.bands))
    chosen = pick_record(runs, "window", known, ALL)
    found = [(run, band) for run in runs for band in run.charts.bands if chosen in (ALL, band.id)]
    without = [run for run in runs if run.id not in {r.id for r, _ in found}]
    draw(figures.bands(found), key, "Upper band: true classes. Bands below: the predictions of each run. Unlabelled "
         "stretches are blank.", without)


def show_coupling(runs: list[ChartedRun], key: str) -> None:
    """Show the matrices of each run with its score, all on one scale unless asked otherwise."""
    found = [(run, run.charts.coupling) for run in runs if run.charts.coupling is not None]
    st.caption("Row i, column j: the share of variable j in what flows into variable i from the other variables, less "
               "the share in a uniform flow. Orange: more than uniform. Blue: less. Links recovered: how many known "
               "links are among as many of the strongest learned ones. AUROC: the probability that a known link is "
               "ranked above a pair without one. Influence, where there is one: how strongly the state of variable j "
               "changes the derivative of variable i, |∂ḣ_i/∂h_j|. Learned matrices are those of the epoch that was "
               "tested, averaged over test series and time. The player shows single series, and the epoch it names.")
    scale = st.segmented_control("Scale", [ONE, OWN], default=ONE, key=f"{key}/scale", required=True,
                                 label_visibility="collapsed", help="With one scale, equal colours are equal values in "
                                 "all matrices; with own scales, weak patterns are visible")
    largest = max((v for _, coupling in found for v in figures.largest_shares(coupling).values()), default=1.0)
    for run, coupling in found:
        st.markdown(f"**{messages.escape(run.name)}**")
        for text in coupling.words():
            st.markdown(messages.escape(text))
        st.plotly_chart(figures.coupling(coupling, None if scale == OWN else largest), key=f"{key}/{run.id}",
                        config=CONFIG)
        if coupling.how:
            st.caption(f"Learned: {messages.escape(coupling.how)}")
    note_missing([run for run in runs if run.charts.coupling is None])


def show_errors(runs: list[ChartedRun], key: str) -> None:
    st.caption("Test targets. Winsorised: squared errors are cut off at their 99th percentile. Largest 1%: share of "
               "the squared error in the 1% of targets with the largest one. A few extreme targets can decide the mean "
               "squared error (MSE); the median and the winsorised mean hardly depend on them.")
    for run in runs:
        found = run.charts.errors
        if found is None:
            continue
        st.markdown(f"**{messages.escape(run.name)}**")
        if found.low is not None and found.high is not None:
            st.caption(f"95% interval of the MSE, drawing series: {found.low:.3f} to {found.high:.3f}")
        st.dataframe(found.table, hide_index=True, key=f"{key}/{run.id}", placeholder="")
    note_missing([run for run in runs if run.charts.errors is None])


SERIES = (("roc", "ROC", show_roc), ("calibration", "Calibration", show_calibration),
          ("records", "Records", show_records), ("over_time", "Error over time", show_over_time),
          ("bands", "Classes over time", show_bands), ("coupling", "Coupling", show_coupling),
          ("errors", "Errors by variable", show_errors))
CLASSES = (("confusion", "Confusion matrices", show_confusion), ("tsne", "t-SNE", show_tsne),
           ("silhouettes", "Silhouettes", show_silhouettes))
