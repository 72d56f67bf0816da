"""What training on an imported set has shown: the answer in words, errors, the coupling, and predictions."""

from __future__ import annotations

import shlex
from html import escape

import numpy as np
import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.data.named_set import NamedSet
from acenode.results.set_study import FoundCoupling, coupling_text, found_coupling, is_uniform, own_unit_errors
from acenode.results.study_grid import StudyGrid
from acenode.results.study_references import study_references
from acenode.results.study_table import report, study_table
from acenode.runs.studies import StudyStore

from . import commands, messages, navigation, study_links, your_data_forecast
from .charts import CONFIG, NEUTRAL
from .services import services

WRITTEN = 10  # variables up to which cells have numbers
SCALE = [[0.0, "rgba(43,98,217,0.03)"], [1.0, "rgba(43,98,217,1)"]]


def show(found: NamedSet, grid: StudyGrid) -> None:
    """Show the answer of the study so far."""
    st.header("Answer", anchor=False)
    with st.spinner("Computing last value, mean and regression"):
        evaluated = report(grid, study_references(grid, services().data_root))
    if evaluated.answer.warning:
        messages.warning(evaluated.answer.warning)
    for comparison in evaluated.answer.findings:
        st.markdown(messages.escape(f"{comparison.text[:1].upper()}{comparison.text[1:]}."))
    for note in evaluated.answer.notes:
        st.markdown(messages.escape(note))
    table = study_table(evaluated, cells=False)
    st.dataframe([dict(zip(table.heads, row, strict=True)) for row in table.rows], hide_index=True, placeholder="",
                 key="your-data/table")
    st.caption(messages.escape(f"{table.caption}. Errors are of standardised values; below, they are in own units."
                               if found.task != "classify" else f"{table.caption}."))
    if errors := own_unit_errors(grid.rows):
        st.markdown("**Typical error of each variable, in its own unit** (root mean squared error on the test part)")
        st.dataframe(errors, hide_index=True, placeholder="", key="your-data/errors")
    if grid.running:  # reading models takes time that training needs
        st.caption("The coupling and predictions appear when training has finished or was stopped.")
        return
    if (coupling := found_coupling(grid.rows[0])) is not None:
        _show_coupling(coupling)
    your_data_forecast.show(found, grid)
    _show_links(grid)


def _show_coupling(found: FoundCoupling) -> None:
    st.header("Coupling found", anchor=False)
    runs = f"{found.runs} run{'s' * (found.runs != 1)}"
    st.markdown(messages.escape(f"Strongest influences: {coupling_text(found) or 'none'}. Averaged over test series, "
                                f"time and {runs} of ACE."))
    if found.attention is not None and is_uniform(found.attention):
        st.caption(":material/info: All rows of the attention are nearly equal: it averages the variables and tells no "
                   "pairs apart")
    st.plotly_chart(coupling_figure(found), key="your-data/coupling", config=CONFIG)
    st.caption("Row i, column j: how much variable i draws on variable j. Attention: softmax(a(t)), rows sum to one. "
               "Influence: |∂ḣᵢ/∂hⱼ| as a share of the row. This is what the model uses, not what causes what: "
               "variables that move together can stand in for each other.")


def coupling_figure(found: FoundCoupling) -> go.Figure:
    """Draw attention and influence side by side."""
    sides = [(title, z) for title, z in (("Attention", found.attention), ("Influence", found.influence))
             if z is not None]
    names = [escape(name) for name in found.names]
    drawn = make_subplots(1, len(sides), subplot_titles=[title for title, _ in sides], horizontal_spacing=0.08)
    for i, (_, z) in enumerate(sides, 1):
        drawn.add_heatmap(z=np.round(z, 4), x=names, y=names, zmin=0, zmax=float(z.max()) or 1.0, colorscale=SCALE,
                          xgap=1, ygap=1, showscale=False, hovertemplate="%{y} ← %{x}: %{z:.1%}<extra></extra>", row=1,
                          col=i)
        for (row, column), share in np.ndenumerate(z if len(names) <= WRITTEN else np.zeros((0, 0))):
            colour = "white" if share > 0.4 * z.max() else NEUTRAL  # readable on light and dark pages
            drawn.add_annotation(x=column, y=row, text=f"{share:.0%}", showarrow=False,
                                 font={"color": colour, "size": 12}, row=1, col=i)
    drawn.update_layout(height=min(220 + 30 * len(names), 640), margin={"l": 10, "r": 10, "t": 34, "b": 10})
    drawn.update_xaxes(type="category", showgrid=False, zeroline=False)
    drawn.update_yaxes(type="category", showgrid=False, zeroline=False, autorange="reversed")
    if len(sides) > 1:
        drawn.update_yaxes(showticklabels=False, ticks="", col=2)
    return drawn


def _show_links(grid: StudyGrid) -> None:
    """Show how to go on from here: the study, the set's experiment with players, and new rows."""
    with st.container(horizontal=True, gap="medium"):
        if StudyStore(services().store).exists(grid.study.name):
            study_links.show_study(grid.study.name, "The study, with every run and its figures")
        st.page_link(navigation.experiment(grid.study.experiment), label="Players, curves and all settings",
                     icon=":material/science:")
    best = next((cell.entry.id for cell in grid.rows[0].cells if cell.value is not None and cell.entry), None)
    if best is not None:
        where = shlex.quote(str(services().store.root))
        command = f"{commands.program()} predict {best} FILE --out predicted.csv --runs {where}"
        st.caption(f"Apply a model to new rows with `{command}`")
