"""The result that an experiment's page leads with: is ACE better than the method that it extends?"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import urlencode

import streamlit as st

from acenode.compare.against_host import Compared, MethodMean, compared
from acenode.experiments import Experiment
from acenode.runs.entry import Entry

ANSWERS = {"ahead": "Yes", "behind": "No, it is worse", "open": "It cannot be told"}


def show(experiment: Experiment, entries: Sequence[Entry]) -> None:
    """Show the answer for every measure, with both means; nothing if one of the methods was not tested."""
    if lines := compared(experiment, entries):
        st.html(f'<div class="ace-verdict">{html(lines)}</div>')


def html(lines: Sequence[Compared]) -> str:
    """Write the question, and a line for each measure."""
    where = f" {lines[0].where}" if lines[0].where else ""
    question = escape(f"Is {lines[0].ace.title} better than {_lower(lines[0].host.title)}{where}?")
    return f"<strong>{question}</strong>" + "".join(f"<p>{_line(line, lines)}</p>" for line in lines)


def _line(line: Compared, lines: Sequence[Compared]) -> str:
    runs = [run for each in lines for mean in (each.ace, each.host) for run in mean.runs]
    better = f"{'higher' if line.higher_is_better else 'lower'} is better"
    return (f"<b>{ANSWERS[line.verdict]}</b>: test {escape(line.measure)} {_mean(line.ace, runs)} against "
            f"{_mean(line.host, runs)} <span>({better}; {escape(line.repeats)}; {escape(line.numbers)})</span>")


def _mean(mean: MethodMean, runs: list[str]) -> str:
    """Link a mean to its cell of the paper's tables, or to all of the runs side by side."""
    page, query = ("paper", {"cell": mean.cell}) if mean.cell else ("compare", {"runs": ",".join(runs)})
    address = f"{page}?{urlencode(query)}"
    return f'<a href="{escape(address)}" target="_self">{escape(mean.value)}</a>'


def _lower(title: str) -> str:
    """Write a method's title inside a sentence: names such as ODE-Net stay as they are."""
    return title[:1].lower() + title[1:] if title == "No attention" else title
