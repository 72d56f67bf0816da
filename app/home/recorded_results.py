"""Measured results beside the paper's, one card for each column of its main tables; for the home page."""

from __future__ import annotations

from html import escape
from urllib.parse import urlencode

import streamlit as st

from acenode import experiments
from acenode.compare.cells import Measured, mean_text, measure, printed_text, repeats_text
from acenode.compare.paper import CELLS, HOSTS, PaperCell
from acenode.runs.entry import Entry

ABOUT = {"silhouette": "Silhouette: how far apart clusters of the features are",
         "negll": "Test NegLL: negative log-likelihood of the forecasts"}


def show(entries: list[Entry]) -> bool:
    """Show a card for each experiment and metric that is measured; return False if there is none."""
    cards = [card for ace in CELLS.values() if ace.method == "ace" and not ace.ablation
             if (card := _card(ace, [e for e in entries if e.experiment == ace.experiment]))]
    if cards:
        st.html(f'<div class="ace-results">{"".join(cards)}</div>')
    return bool(cards)


def _card(ace: PaperCell, entries: list[Entry]) -> str:
    """Return the card of a column of a table: host method, augmented and ACE; empty if ACE is not measured."""
    rows = []
    for method in (HOSTS[ace.experiment], "augmented", "ace"):
        cell = next((c for c in CELLS.values() if (c.experiment, c.method, c.metric) == (ace.experiment, method,
                     ace.metric) and c.settings == ace.settings), None)
        if cell is not None:
            rows.append((cell, measure(cell, entries)))
    if rows[-1][1].mean is None:
        return ""
    body = "".join(_row(cell, found) for cell, found in rows)
    arrow = "higher is better" if ace.format.higher_is_better else "lower is better"
    task = f", {ace.settings['task']}" if "task" in ace.settings else ""
    title = escape(f"{experiments.get(ace.experiment).title}{task}")
    about = escape(f"{ABOUT.get(ace.metric, f'Test {ace.format.heading}')}, {arrow}")
    note = escape(_repeats(rows))
    return (f'<section><h3>{title}</h3><p>{about}</p><table><thead><tr><th>Method</th><th>Here</th><th>Paper</th></tr>'
            f'</thead><tbody>{body}</tbody></table><p>{note}</p></section>')


def _repeats(rows: list[tuple[PaperCell, Measured]]) -> str:
    """Say how many seeds or folds and epochs the values have, once if all have the same."""
    found: dict[str, list[str]] = {}
    for cell, measured in rows:
        if measured.n:
            found.setdefault(repeats_text(measured), []).append(cell.title)
    return next(iter(found)) if len(found) == 1 else "; ".join(
        f"{', '.join(titles)}: {repeats}" for repeats, titles in found.items())


def _row(cell: PaperCell, found: Measured) -> str:
    """Return a row: method, our mean ± standard deviation as a link to its runs, the printed value."""
    link = escape(f"paper?{urlencode({'cell': cell.key})}")
    printed = "not compared" if found.mark == "partial" else escape(printed_text(cell))
    ours = escape(mean_text(cell, found))
    ours = f'<a href="{link}" target="_self" title="{escape(repeats_text(found))}">{ours}</a>' if found.n else ours
    partial = " (part of the data)" * (found.mark == "partial")
    return f"<tr><td>{escape(cell.title)}</td><td>{ours}{partial}</td><td>{printed}</td></tr>"
