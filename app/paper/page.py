"""The page with the paper's tables: printed and measured values, the runs behind them, figures and other results."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from acenode.compare.cells import Measured, mark_legend, measure_all
from acenode.compare.paper import CELLS, TABLES
from acenode.export.tables import PAPER_TABLES
from acenode.runs.entry import Entry

from .. import components, messages
from ..services import services
from . import answer as paper_answer
from . import cell as paper_cell
from . import elsewhere as paper_elsewhere
from . import figures as paper_figures
from . import queue as paper_queue
from . import tables as paper_tables
from .tables import OpenedCell

PAPER = "ACE-NODE: Attentive Co-Evolving Neural Ordinary Differential Equations, KDD 2021"
DOWNLOADS = {"csv": ("CSV", "text/csv"), "md": ("Markdown", "text/markdown"), "tex": ("LaTeX", "text/plain")}


@dataclass(frozen=True)
class Section:
    """Tables that are shown together, with what a reader should know about them."""

    title: str
    tables: tuple[str, ...]
    notes: tuple[str, ...] = ()


SECTIONS = (
    Section("Image classification", ("mnist", "svhn", "cifar10", "silhouette", "size"), (
        "The paper trains for 160 epochs. Here the same schedule is scaled to fewer, with the learning rate lowered "
        "at the same shares of the training. The number of epochs is printed with each value; values with different "
        "numbers, such as those of the small and the large ACE model on MNIST and CIFAR10, cannot be compared. CIFAR10 "
        "starts from a learning rate of 5e-2 and not the printed 1e-2, which trains too little in so few epochs.",
        "The crops of SVHN are rebuilt from the full street-view images with the published rule.",
        "The silhouette says how far apart k-means clusters are: 1 far apart, 0 overlapping. The paper clusters hidden "
        "representations and does not say of which layer. Here it is the features, the input of the last layer. The "
        "silhouettes of the t-SNE are nearer to the printed ones; a click on a cell shows them.")),
    Section("USHCN climate forecasting", ("ushcn",), (
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
    Section("PhysioNet", ("physionet", "physionet-vitals"), (
        "The published code of RNN-VAE and ODE-RNN has errors: one reverses the order of the patients where it should "
        "reverse time, the other integrates over the wrong interval. Both are corrected here, so the values need not "
        "agree. ODE-RNN is probably below its printed value for other reasons, which docs/results.md gives.",
        "In interpolation the model has seen every point that it is tested on, as in the paper.")),
    Section("Human Activity", ("activity",), (
        "The recorded runs have a part of the set, 10 of 25 recordings, so values are not compared with the paper's.",
        "Windows of 50 time points overlap by half and are split at random, as published, so that most test windows "
        "share time points with training windows. The setting split=recording holds out whole recordings.",
        "ACE and Fixed-ACE have large deviations because one seed of each stays for many epochs at the accuracy that "
        "predicting only the most frequent class gives, 38%. docs/results.md has the value of every seed.",
        "The published row of RNN-VAE is from code with an error.")),
    Section("Type of attention", ("attention", "attention-error"), (
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
    paper_answer.show(measured)
    st.caption(messages.escape(mark_legend()) + " Values are mean ± sample standard deviation. Click one to see "
               "its runs.")
    _show_downloads(measured)
    paper_queue.show_all(entries)
    opened = _opened()
    for section in SECTIONS:
        _show_section(section, measured, entries, opened)
    st.header("Figures", anchor="figures")
    paper_figures.show(measured)


def _show_section(section: Section, measured: dict[str, Measured], entries: list[Entry],
                  opened: OpenedCell | None) -> None:
    """Show the tables of a section, the opened cell below its table, notes, and other papers' results."""
    st.header(section.title)
    tables = [TABLES[name] for name in section.tables]
    here = opened if opened is not None and opened.table in tables else None
    end = tables.index(here.table) + 1 if here is not None else len(tables)
    key = f"paper-tables/{section.tables[0]}"
    components.paper_tables(key, paper_tables.view(tables[:end], measured, here), _choose)
    if here is not None:
        paper_cell.show(here, measured[here.cell.key], entries)
    if tables[end:]:
        components.paper_tables(f"{key}/rest", paper_tables.view(tables[end:], measured), _choose)
    if section.notes:
        st.caption("\n".join(f"- {messages.escape(note)}" for note in section.notes))
    own = (cell for table in tables for cell in table.cells if cell.table == table.name and not cell.ablation)
    paper_elsewhere.show(dict.fromkeys(cell.experiment for cell in own), f"paper/elsewhere/{section.tables[0]}")


def _choose(table: str, cell: str) -> None:
    """Keep the clicked cell and its table in the URL, so that Back returns to the one before."""
    # the other parameters belong to the player of the cell before
    st.query_params.from_dict({paper_cell.CELL: cell, paper_cell.TABLE: table})


def _opened() -> OpenedCell | None:
    """Return the cell in the URL with the table in which it was clicked, or else the first one that has it."""
    key = st.query_params.get(paper_cell.CELL)
    if key is None:
        return None
    if key not in CELLS:
        messages.invalid(f"There is no cell {key[:80]!r} in the paper's tables. Choose one below.")
        return None
    cell, clicked = CELLS[key], TABLES.get(st.query_params.get(paper_cell.TABLE, ""))
    return OpenedCell(clicked if clicked and cell in clicked.cells else TABLES[cell.table], cell)


def _show_downloads(measured: dict[str, Measured]) -> None:
    with st.container(horizontal=True):
        for kind, (title, mime) in DOWNLOADS.items():
            st.download_button(f"Tables as {title}", PAPER_TABLES[kind](measured), f"paper-tables.{kind}", mime,
                               key=f"paper/download/{kind}", icon=":material/download:", on_click="ignore",
                               help="Printed and measured values of all tables")
