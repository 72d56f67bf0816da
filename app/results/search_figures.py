"""The charts of a search: best so far, importance, parallel coordinates, and a slice for each setting.

Colours such as `var(--accent)` are those of the page, which the browser fills in. Hover texts are sent once for all
charts: a trace with the text "words" shows those of its trials, whose numbers are its customdata.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go

from acenode.compare.colours import NEUTRAL
from acenode.compare.figures import plain_figure
from acenode.config.ranges import SearchRange
from acenode.search.journal import TrialRecord
from acenode.search.results import SearchReport, value_text

from .. import labels, messages

MOST = 500  # trials in one chart; more would be slow to draw, and cover each other
KEPT = 100  # of the best ones, which are always drawn
BEST_SHARE = 0.1
ACCENT, WARM, INK = "var(--accent)", "var(--warm)", "var(--ink)"
PRUNED = {"symbol": "x-thin-open", "size": 6, "color": NEUTRAL, "line": {"width": 1.2, "color": NEUTRAL}}
DONE = {"size": 6, "color": ACCENT, "opacity": 0.75}
BEST = {"symbol": "circle-open", "size": 13, "color": WARM, "line": {"width": 2}}


class SearchFigures:
    def __init__(self, report: SearchReport) -> None:
        self.ranges, self.measure = report.search.ranges, report.measure
        self.metric_title = f"Validation {self.measure.heading}"
        self.ranked = [trial.number for trial in report.ranked()]
        valued = [t for t in report.trials if t.value is not None and math.isfinite(t.value)]
        self.finished = [t for t in valued if t.state == "finished"]
        self.drawn = sampled(valued, self.ranked)

    def words(self) -> dict[int, str]:
        def lines(trial: TrialRecord) -> list[str]:
            params = [f"{labels.plain(one.key)}: {value_text(trial.params.get(one.key, '–'))}" for one in self.ranges]
            return [f"trial {trial.number}: {self.value(trial):.4g}", *map(escape, params)]

        return {trial.number: "<br>".join(lines(trial)) for trial in self.drawn}

    def value(self, trial: TrialRecord) -> float:
        return (trial.value or 0.0) * self.measure.scale

    def best(self) -> go.Figure:
        values = np.array([self.value(t) for t in self.finished])
        best = (np.maximum if self.measure.higher_is_better else np.minimum).accumulate(values)
        kept = np.flatnonzero(np.diff(best, prepend=np.nan, append=np.nan)[:-1] != 0)
        kept = np.unique([*kept, len(best) - 1])
        figure = go.Figure([*self._points(self.drawn, [t.number for t in self.drawn]), go.Scatter(
            x=[self.finished[i].number for i in kept], y=best[kept].tolist(), mode="lines", hoverinfo="skip",
            line={"color": WARM, "width": 2, "shape": "hv"})])
        few = {"dtick": 1} if len(self.drawn) <= 5 else {}
        return figure.update_xaxes(title="Trial", rangemode="tozero", **few).update_yaxes(title=self.metric_title)

    def importance(self, shares: Mapping[str, float]) -> go.Figure:
        found = {_lines(title_of(key), 22): 100 * share for key, share in reversed(list(shares.items()))}
        figure = go.Figure(go.Bar(
            orientation="h", x=list(found.values()), y=list(found), marker={"color": ACCENT}, hoverinfo="skip",
            text=[f"{share:.0f}%" for share in found.values()], textposition="auto", width=0.6))
        figure.update_xaxes(title="Share of the importance (%)", range=[0, 100])
        return figure.update_yaxes(type="category")

    def slice(self, one: SearchRange) -> go.Figure:
        drawn = [t for t in self.drawn if one.key in t.params]
        ticks = whole_ticks(one)
        x = [one.values.index(t.params[one.key]) if one.values else t.params[one.key] for t in drawn]
        if one.values or (ticks and not one.log):  # trials of one value must not cover each other
            x = [at + 0.5 * (t.number * 0.618034 % 1 - 0.5) for at, t in zip(x, drawn, strict=True)]
        figure, place = go.Figure(self._points(drawn, x)), {number: i for i, number in enumerate(self.ranked)}
        best = min((t for t in drawn if t.state == "finished"), key=lambda t: place[t.number], default=None)
        if best is not None:
            figure.add_scatter(x=[x[drawn.index(best)]], y=[self.value(best)], mode="markers", hoverinfo="skip",
                               marker=BEST)
        if one.values:
            figure.update_xaxes(tickvals=list(range(len(one.values))), range=[-0.5, len(one.values) - 0.5],
                                ticktext=[_lines(value_text(value), 12) for value in one.values])
        else:
            figure.update_xaxes(type="log" if one.log else "linear", exponentformat="e", minorloglabels="complete",
                                nticks=5, **({"tickvals": ticks, "ticktext": list(map(str, ticks))} if ticks else {}))
        figure.update_xaxes(title=escape(title_of(one.key)))
        return figure.update_yaxes(title=self.metric_title)

    def parallel(self) -> go.Figure:
        done, end = [t for t in self.drawn if t.state == "finished"], len(self.ranges)
        values = [self.value(t) for t in done]
        low, high = min(values), max(values)
        height = {t.number: (self.value(t) - low) / (high - low) if high > low else 0.5 for t in done}
        rank = {number: i for i, number in enumerate(n for n in self.ranked if n in height)}
        top, half = max(1, math.ceil(BEST_SHARE * len(done))), math.ceil(len(done) / 2)
        figure = go.Figure()
        for first, last, colour, width, opacity in ((half, len(done), NEUTRAL, 1, 0.45), (top, half, ACCENT, 1, 0.55),
                                                    (0, top, WARM, 2, 1)):
            own = [t for t in done if first <= rank[t.number] < last]
            figure.add_scatter(
                x=[i for _ in own for i in (*range(end + 1), None)], mode="lines", hoverinfo="skip",
                y=[y for t in own for y in (*(_share(one, t) for one in self.ranges), height[t.number], None)],
                opacity=opacity, line={"color": colour, "width": width}, connectgaps=False)
        figure.add_scatter(x=[end] * len(done), y=list(height.values()), mode="markers", text="words",
                           customdata=list(height), hovertemplate="%{text}<extra></extra>",
                           marker={"size": 5, "color": INK, "opacity": 0.5})
        ends: list[tuple[int, float | None, str]] = []
        for i, one in enumerate(self.ranges):
            ends += [(i, n / (len(one.values) - 1) if len(one.values) > 1 else 0.5, value_text(value))
                     for n, value in enumerate(one.values)]
            ends += [] if one.values else [(i, y, f"{value:.4g}") for y, value in ((0, one.low), (1, one.high))]
        ends += [(end, 0, f"{low:.4g}"), *([(end, 1, f"{high:.4g}")] if high > low else [])]
        for x, y, text in ends:
            figure.add_annotation(x=x, y=y, text=escape(text), showarrow=False, xanchor="left", xshift=4, opacity=0.9,
                                  font={"size": 11, "color": INK}, bgcolor="var(--panel)")
        for i in range(end + 1):
            figure.add_shape(type="line", x0=i, x1=i, y0=0, y1=1, line={"color": INK, "width": 1}, layer="below")
        titles = [*(title_of(one.key) for one in self.ranges), self.metric_title]
        figure.update_xaxes(tickvals=list(range(end + 1)), ticktext=[_lines(title, 16) for title in titles],
                            range=[-0.08 * end, end * 1.12], showgrid=False, fixedrange=True, tickangle=0)
        figure.update_yaxes(visible=False, range=[-0.07, 1.07], fixedrange=True)
        return figure.update_layout(margin={"l": 16, "r": 16, "t": 8, "b": 40})

    def all(self, shares: Mapping[str, float], few: int, nothing: str) -> list[dict[str, Any]]:
        """Return the charts for the browser, each with its figure or the reason why there is none."""
        done = bool(self.finished)
        found = [("Best so far", "orange: best so far · ×: pruned", self.best() if done else None, nothing),
                 ("Importance of each setting", "", self.importance(shares) if shares else None,
                  f"Shown from {few} finished trials on"),
                 ("Parallel coordinates", "orange: best tenth · blue: better half", self.parallel() if done else None,
                  nothing),
                 *((title_of(one.key), "", self.slice(one) if done else None, nothing)
                   for one in self.ranges)]
        return [{"title": title, "hint": hint, "empty": empty,
                 "figure": plain_figure(figure.update_layout(showlegend=False)) if figure else None}
                for title, hint, figure, empty in found]

    def _points(self, trials: list[TrialRecord], x: Sequence[float]) -> list[go.Scatter]:
        traces = []
        for state, marker in (("pruned", PRUNED), ("finished", DONE)):
            own = [(t, at) for t, at in zip(trials, x, strict=True) if t.state == state]
            traces.append(go.Scatter(
                x=[at for _, at in own], y=[self.value(t) for t, _ in own], mode="markers", text="words",
                customdata=[t.number for t, _ in own], marker=marker, hovertemplate="%{text}<extra></extra>"))
        return traces


def sampled(trials: Sequence[TrialRecord], ranked: Sequence[int]) -> list[TrialRecord]:
    """Return at most MOST trials: the best ones, and of the others evenly spaced ones."""
    if len(trials) <= MOST:
        return list(trials)
    kept = set(ranked[:KEPT])
    rest = [t.number for t in trials if t.number not in kept]
    count = MOST - (len(trials) - len(rest))
    kept |= {rest[i * len(rest) // count] for i in range(count)}
    return [t for t in trials if t.number in kept]


def whole_ticks(one: SearchRange) -> list[int]:
    """Return the whole numbers of a range of few, which are the only ticks of its axis; empty for other ranges."""
    low, high = int(one.low or 0), int(one.high or 0)
    return [] if one.values or not one.whole or high - low > (9 if one.log else 5) else list(range(low, high + 1))


def _share(one: SearchRange, trial: TrialRecord) -> float | None:
    """Return where a trial's setting lies in its range, from 0 to 1; None if it does not apply to the trial."""
    if one.key not in trial.params:
        return None
    low, high = (0.0, len(one.values) - 1.0) if one.values else (float(one.low or 0), float(one.high or 0))
    if low == high:
        return 0.5
    place = one.values.index(trial.params[one.key]) if one.values else trial.params[one.key]
    low, high, value = ((math.log(v) if one.log else v) for v in (low, high, place))
    return (value - low) / (high - low)


def title_of(key: str) -> str:
    return messages.capital(labels.plain(key))


def _lines(text: str, width: int) -> str:
    return "<br>".join(map(escape, wrap(text, width, break_long_words=False)))
