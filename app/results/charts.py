"""The charts of finished runs on a page: what is asked, captions, and runs that lack what a chart shows.

The figures are those of acenode/compare/figures.py, which reports share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from acenode.compare import figures
from acenode.compare.figures import ChartedRun
from acenode.compare.result_charts import ResultCharts, caption, time_note
from acenode.data.variables import subject_name
from acenode.runs.entry import Entry

from .. import labels, messages, navigation

CONFIG = {"displaylogo": False}
NAMED = 3  # runs that a line lists
COLUMNS = 3  # charts of classifications in a row
ALL = "all records"
ONE, OWN = "One scale", "Own scales"
REPRESENTATIONS = {"features": "Features", "logits": "Logits", "tsne": "t-SNE"}

Results = list[tuple[Entry, ResultCharts]]


def charted_runs(chosen: list[Entry], found: list[tuple[Entry, ResultCharts]],
                 groups: dict[str, str] | None = None) -> list[ChartedRun]:
    """Name and colour the runs with results.

    Args:
        chosen: all runs on the page, which decide the colours.
        found: the finished ones among them, with their results.
        groups: the group of each run id; its runs share a colour. Without it every run has its own.

    Returns:
        One item for each of `found`; equal names end with the last characters of the run's id.
    """
    names = {e.id: f"{groups[e.id] if groups else labels.group(e)} · seed {e.seed}" for e, _ in found}
    uses = Counter(names.values())
    kinds = {e.id: groups[e.id] if groups else labels.label(e) for e in chosen}
    colour = labels.colours(kinds.values())
    return [ChartedRun(e.id, names[e.id] + (f" · {e.id[-4:]}" if uses[names[e.id]] > 1 else ""), colour[kinds[e.id]],
                       labels.measure_of(e), e.experiment, result.classes, result.series) for e, result in found]


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
    """Ask for a patient, station or recording by its id; the URL keeps the choice.

    An id that no run has, such as of the runs that the page showed before, is replaced by the first known one.

    Args:
        everything: an option that stands for all of them.
    """
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


# Classifications ----------------------------------------------------------------------------------------------------

def show_confusion(found: Results, key: str) -> None:
    """Show a confusion matrix for each run, or why it has none."""
    ink = "#f4f6fb" if st.context.theme.type == "dark" else None
    _side_by_side(found, lambda result: figures.confusion(result, ink), lambda result: result.no_confusion, key)


def show_tsne(found: Results, key: str) -> None:
    """Show the t-SNE of each run's features, or why it has none."""
    most = max(figures.MAX_POINTS // len(found), 1)
    if any(result.tsne and len(result.tsne["label"]) > most for _, result in found):
        st.caption(f"At most {most:,} points of each run.")
    _side_by_side(found, lambda result: figures.tsne(result, most), lambda result: result.no_tsne, key)


def show_silhouettes(found: Results) -> None:
    """Show the silhouettes of all runs in one table."""
    st.caption("Silhouette of k-means clusters of each representation, with as many clusters as classes. "
               "1: well separated. 0: overlapping.")
    rows = [{"Run": labels.label(e), **{k: v for k, v in o.silhouettes.items() if v is not None}} for e, o in found]
    st.dataframe(pd.DataFrame(rows).rename(columns=REPRESENTATIONS), hide_index=True, placeholder="")


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


# Time series --------------------------------------------------------------------------------------------------------

def show_roc(runs: list[ChartedRun], key: str) -> None:
    """Show the ROC curves."""
    draw(figures.roc(runs), key, "True positive rate against false positive rate at every threshold. The dotted "
         "diagonal is chance.", [r for r in runs if not r.series.roc])


def show_calibration(runs: list[ChartedRun], key: str) -> None:
    """Show observed frequencies against predicted probabilities."""
    draw(figures.calibration(runs), key, "How often the event occurred among cases with a similar predicted "
         "probability. A well calibrated model lies on the diagonal. Larger markers stand for more cases.",
         [r for r in runs if not r.series.calibration])


def show_over_time(runs: list[ChartedRun], key: str) -> None:
    """Show the error against the time of the predicted value, with a choice of the error."""
    found = [r.series.over_time for r in runs if r.series.over_time]
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
         [r for r in runs if not (r.series.over_time and getattr(r.series.over_time, which))])


def show_records(runs: list[ChartedRun], key: str) -> None:
    """Ask for a record and show it for all runs that kept it."""
    chosen = pick_record(runs, "record", list(dict.fromkeys(r.id for run in runs for r in run.series.records)))
    found = {run.id: record for run in runs for record in run.series.records if record.id == chosen}
    draw(figures.records([(run, found[run.id]) for run in runs if run.id in found]), key,
         messages.escape(caption(list(found.values()))), [run for run in runs if run.id not in found])


def show_bands(runs: list[ChartedRun], key: str) -> None:
    """Ask for a record, or all of them, and show its bands."""
    known = list(dict.fromkeys(b.id for run in runs for b in run.series.bands))
    chosen = pick_record(runs, "window", known, ALL)
    found = [(run, band) for run in runs for band in run.series.bands if chosen in (ALL, band.id)]
    without = [run for run in runs if run.id not in {r.id for r, _ in found}]
    draw(figures.bands(found), key, "Upper band: true classes. Bands below: the predictions of each run. Unlabelled "
         "stretches are blank.", without)


def show_coupling(runs: list[ChartedRun], key: str) -> None:
    """Show the matrices of each run with its score, all on one scale unless asked otherwise."""
    found = [(run, run.series.coupling) for run in runs if run.series.coupling is not None]
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
    note_missing([run for run in runs if run.series.coupling is None])


def show_errors(runs: list[ChartedRun], key: str) -> None:
    """Show a table for each run."""
    st.caption("Test targets. Winsorised: squared errors are cut off at their 99th percentile. Largest 1%: share of "
               "the squared error in the 1% of targets with the largest one. A few extreme targets can decide the mean "
               "squared error (MSE); the median and the winsorised mean hardly depend on them.")
    for run in runs:
        found = run.series.errors
        if found is None:
            continue
        st.markdown(f"**{messages.escape(run.name)}**")
        if found.low is not None and found.high is not None:
            st.caption(f"95% interval of the MSE, drawing series: {found.low:.3f} to {found.high:.3f}")
        st.dataframe(found.table, hide_index=True, key=f"{key}/{run.id}", placeholder="")
    note_missing([run for run in runs if run.series.errors is None])
