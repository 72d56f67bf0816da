"""The page with the paper's tables: printed and measured values, the runs behind them, figures and other results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from acenode import experiments
from acenode.compare import paper
from acenode.compare.against_host import compared_cells, contests, prediction_note, summary, table
from acenode.compare.cells import (
    Measured,
    count_sentence,
    difference_text,
    length_sentence,
    mark_legend,
    mark_text,
    mean_text,
    measure_all,
    params_text,
    printed_text,
    repeats_text,
    shown_mark,
)
from acenode.compare.paper import CELLS, TABLES, PaperCell, PaperTable
from acenode.compare.verdict import judge
from acenode.export.tables import PAPER_TABLES
from acenode.runs.entry import Entry

from .. import components, messages
from ..services import services
from . import cell as opened_cell
from . import figures as paper_figures

PAPER = "ACE-NODE: Attentive Co-Evolving Neural Ordinary Differential Equations, KDD 2021"
DOWNLOADS = {"csv": ("CSV", "text/csv"), "md": ("Markdown", "text/markdown"), "tex": ("LaTeX", "text/plain")}
COLUMNS = ["Compared", "Verdict", "Difference", "95% interval", "ACE extends", "Runs"]  # the first four fit on a phone
SECTIONS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (  # title, tables, what a reader should know
    ("Image classification", ("mnist", "svhn", "cifar10", "silhouette", "size"), (
        "The paper trains for 160 epochs. Here the same schedule is scaled to fewer, with the learning rate lowered "
        "at the same shares of the training. The number of epochs is printed with each value; values with different "
        "numbers, such as those of the small and the large ACE model on MNIST and CIFAR10, cannot be compared. CIFAR10 "
        "starts from a learning rate of 5e-2 and not the printed 1e-2, which trains too little in so few epochs.",
        "The crops of SVHN are rebuilt from the full street-view images with the published rule.",
        "The silhouette says how far apart k-means clusters are: 1 far apart, 0 overlapping. The paper clusters hidden "
        "representations and does not say of which layer. Here it is the features, the input of the last layer. The "
        "silhouettes of the t-SNE are nearer to the printed ones; a click on a cell shows them.")),
    ("USHCN climate forecasting", ("ushcn",), (
        "The set is rebuilt from the station files by the published recipe. The original drew its 5% of the "
        "observations without a seed, so the rows differ.",
        "GRU-ODE-Bayes, Augmented and ACE have a learning rate of 1e-3 and not the printed 1e-4, which leaves them far "
        "from trained, and all methods 120 epochs and not 300.",
        "A fold has about 370 test targets, and its MSE depends on a handful of heavy snowfalls among them, so that "
        "the draw moves it more than attention does. The likelihood hardly depends on the draw.",
        "Only the first three observations after the cut count. Those that come later ACE forecasts worse than "
        "GRU-ODE-Bayes on average: it keeps the winter's temperatures (docs/results.md).",
        "Only GRU-ODE-Bayes, Augmented and ACE have an MSE that is larger than printed by more than the margin of "
        "error. T-LSTM forecasts as well as ACE. docs/results.md weighs the reasons.")),
    ("PhysioNet", ("physionet", "physionet-vitals"), (
        "The published code of RNN-VAE and ODE-RNN has errors: one reverses the order of the patients where it should "
        "reverse time, the other integrates over the wrong interval. Both are corrected here, so the values need not "
        "agree. ODE-RNN is probably below its printed value for other reasons, which docs/results.md gives.",
        "In interpolation the model has seen every point that it is tested on, as in the paper.")),
    ("Human Activity", ("activity",), (
        "The recorded runs have a part of the set, 10 of 25 recordings, so values are not compared with the paper's.",
        "Windows of 50 time points overlap by half and are split at random, as published, so that most test windows "
        "share time points with training windows. The setting split=recording holds out whole recordings.",
        "ACE and Fixed-ACE have large deviations because one seed of each stays for many epochs at the accuracy that "
        "predicting only the most frequent class gives, 38%. docs/results.md has the value of every seed.",
        "The published row of RNN-VAE is from code with an error.")),
    ("Type of attention", ("attention", "attention-error"), (
        "Fixed-ACE: a(t) is the correlation matrix of h(t) at every t, and nothing evolves it. FC-ACE: a(0) comes from "
        "fully connected layers, not from correlations. The paper gives no value of Fixed-ACE on USHCN: it found "
        "nonsensical ones.",)),
)


def show() -> None:
    """Show the page."""
    st.title("Paper")
    entries = services().catalogue.entries()
    measured = measure_all(entries)
    st.caption(f"Every table of results in {PAPER}, with the values measured here beside the printed ones")
    _show_answer(measured)
    st.caption(messages.escape(mark_legend()) + " Values are mean ± sample standard deviation. Click one to see "
               "its runs.")
    with st.container(horizontal=True):
        for kind, (title, mime) in DOWNLOADS.items():
            st.download_button(f"Tables as {title}", PAPER_TABLES[kind](measured), f"paper-tables.{kind}", mime,
                               key=f"paper/download/{kind}", icon=":material/download:", on_click="ignore",
                               help="Printed and measured values of all tables")
    opened_cell.offer_all(entries)
    opened = _opened()
    for title, names, notes in SECTIONS:
        st.header(title)
        _show_tables([TABLES[name] for name in names], f"paper-tables/{names[0]}", measured, entries, opened)
        if notes:
            st.caption("\n".join(f"- {messages.escape(note)}" for note in notes))
        own = (cell for name in names for cell in TABLES[name].cells if cell.table == name and not cell.ablation)
        _show_others(dict.fromkeys(cell.experiment for cell in own), f"paper/elsewhere/{names[0]}")
    st.header("Figures", anchor="figures")
    paper_figures.show(measured)


def _show_answer(measured: dict[str, Measured]) -> None:
    """Say where ACE is ahead of the method it extends; the comparisons behind it can be unfolded."""
    findings = [judge(contest) for contest in contests(measured)]
    rest = [prediction_note(findings), count_sentence(map(shown_mark, measured.values())), length_sentence(measured)]
    st.markdown(f"**{messages.escape(summary(findings))}** {messages.escape(' '.join(filter(None, rest)))}")
    box = st.expander(f"The {len(findings)} comparisons, with their intervals", icon=":material/balance:",
                      key="paper/comparisons", on_change="rerun")
    if not box.open:
        return
    rows = []
    for texts, cells in zip(table(findings), compared_cells(), strict=True):
        row = {head: messages.escape(text) for head, text in texts.items()}
        for head, cell in zip(("Compared", "ACE extends"), cells, strict=True):  # link to the runs
            row[head] = f"[{row[head]}](paper?{urlencode({'cell': cell.key, 'table': cell.table})})"
        rows.append(row)
    with box:
        st.table(pd.DataFrame(rows)[COLUMNS], hide_index=True, border="horizontal")
        st.caption("The links open the runs of ACE and of the method that it extends, in a new tab. Difference: ACE "
                   "minus that method, on the test set. Pairs have the same seed and fold, and their differences are "
                   "averaged; rows without pairs have the difference of the two means. A comparison is decided when "
                   "the 95% interval leaves out zero; of twenty intervals one does so by chance. Folds share training "
                   "data, so intervals over folds are somewhat too narrow.")


def _show_tables(tables: list[PaperTable], key: str, measured: dict[str, Measured], entries: list[Entry],
                 opened: tuple[PaperTable, PaperCell] | None) -> None:
    """Show tables of a section, with the opened cell below its table."""
    def choose(table: str, cell: str) -> None:
        # kept in the URL, so that Back returns to the cell before, whose player has the other parameters
        st.query_params.from_dict({"cell": cell, "table": table})

    here = opened if opened is not None and opened[0] in tables else None
    end = tables.index(here[0]) + 1 if here is not None else len(tables)
    components.paper_tables(key, view(tables[:end], measured, here), choose)
    if here is not None:
        opened_cell.show(*here, measured[here[1].key], entries)
    if tables[end:]:
        components.paper_tables(f"{key}/rest", view(tables[end:], measured), choose)


def _opened() -> tuple[PaperTable, PaperCell] | None:
    """Return the cell in the URL with the table in which it was clicked, or else the first one that has it."""
    key = st.query_params.get("cell")
    if key is None:
        return None
    if key not in CELLS:
        messages.invalid(f"There is no cell {key[:80]!r} in the paper's tables. Choose one below.")
        return None
    cell, clicked = CELLS[key], TABLES.get(st.query_params.get("table", ""))
    return clicked if clicked and cell in clicked.cells else TABLES[cell.table], cell


def view(tables: Iterable[PaperTable], measured: Mapping[str, Measured],
         opened: tuple[PaperTable, PaperCell] | None = None) -> dict[str, Any]:
    """Describe tables for the component `paper_tables`: texts only, which the browser never interprets as markup."""
    found = []
    for one in tables:
        best = set()  # the best printed value of a column, which the paper prints in bold
        for column in zip(*(row.cells for row in one.rows), strict=True):
            if cells := [cell for cell in column if cell is not None]:
                choose = max if cells[0].format.higher_is_better else min
                best.add(choose(cells, key=lambda cell: cell.printed.mean).key)
        found.append({
            "name": one.name, "title": one.title, "caption": one.caption, "corner": "Method",
            "opened": opened[1].key if opened and opened[0] == one else None, "columns": list(one.columns),
            "rows": [{"label": row.title, "cells": [
                None if cell is None else _cell(cell, measured.get(cell.key, Measured()), cell.key in best)
                for cell in row.cells]} for row in one.rows]})
    return {"tables": found}


def _cell(cell: PaperCell, found: Measured, best: bool) -> dict[str, Any]:
    details = filter(None, (difference_text(cell, found), repeats_text(found), params_text(cell, found)))
    return {"key": cell.key, "printed": printed_text(cell), "params": cell.printed.params or "", "best": best,
            "ours": mean_text(cell, found), "mark": shown_mark(found), "sign": mark_text(found),
            "details": " · ".join(details), "hint": found.note or "Show the runs of this cell"}


def _show_others(names: Iterable[str], key: str) -> None:
    """Show what others have published on the data of these experiments, in an expander; nothing if there is none.

    The table is made when the expander is opened: its Markdown takes a browser long to draw.
    """
    found = [result for name in names for result in paper.published_results(name)]
    if not found:
        return
    box = st.expander(f"Later and elsewhere: {len(found)} published results", icon=":material/library_books:", key=key,
                      on_change="rerun")
    if not box.open:
        return
    with box:
        st.caption("Protocols differ in splits, preprocessing and choice of the epoch, so these values are not "
                   "comparable with the tables above or with each other across protocols. None was measured here.")
        st.table(pd.DataFrame([{
            "Method": messages.escape(f"{one.method}, {experiments.get(one.experiment).title}"),
            "Result": messages.escape(f"{one.metric} {one.value}"),
            "Protocol and source": f"{messages.escape(one.protocol)}. "
                                   f"[{messages.escape(one.source.text)}]({one.source.url})"}
            for one in found]), hide_index=True, border="horizontal")
