"""What training on an imported set has shown: the answer in words, errors, the coupling, and predictions."""

from __future__ import annotations

import shlex
from html import escape

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from acenode.compare.influence import FoundCoupling, coupling_text, found_coupling, is_uniform
from acenode.compare.study_answer import (
    coupling_caution,
    own_unit_errors,
    report,
    ridge_words,
    study_references,
    study_table,
)
from acenode.compare.study_grid import StudyGrid
from acenode.data.named_set import NamedSet
from acenode.runs.questions import StudyStore

from .. import commands, messages, navigation, text_table
from ..questions import study_links
from ..results.charts import CONFIG
from ..services import services
from . import forecast as your_data_forecast

MAP = 480  # pixels, the width of a coupling map
WRITTEN = 10  # variables up to which cells have numbers
BLUE, FAINTEST = (43, 98, 217), 0.03  # the colour of the largest share, and the opacity of the smallest
SCALE = [[opacity, f"rgba{(*BLUE, opacity or FAINTEST)}"] for opacity in (0.0, 1.0)]
EVEN = 0.179  # the luminance on which black and white are equally readable
PAGES = {False: (255, 255, 255), True: (15, 20, 29)}  # the backgrounds of light and dark pages, as in config.toml


def show(found: NamedSet, grid: StudyGrid) -> None:
    """Show the answer of the study so far."""
    st.header("Answer", anchor=False)
    with st.spinner("Computing last value, mean and regression"):
        evaluated = report(grid, study_references(grid, services().data_root))
    if evaluated.answer.warning:
        messages.warning(evaluated.answer.warning)
    for comparison in evaluated.answer.findings:
        st.markdown(messages.escape(comparison.sentence))
    for note in evaluated.answer.notes:
        st.markdown(messages.escape(note))
    table = study_table(evaluated, cells=False)
    text_table.show([dict(zip(table.heads, row, strict=True)) for row in table.rows], "Results of all methods")
    about = [table.caption, ridge_words(evaluated.references, found.task).capitalize(),
             "Errors are of standardised values; below, they are in own units" * (found.task != "classify")]
    st.caption(messages.escape(" ".join(f"{text}." for text in about if text)))
    if errors := own_unit_errors(grid.rows):
        st.markdown("**Typical error of each variable, in its own unit** (root mean squared error on the test part)")
        text_table.show(errors, "Typical error of each variable")
    if grid.running:  # reading models takes time that training needs
        st.caption("The coupling and predictions appear when training has finished or was stopped.")
        return
    if (coupling := found_coupling(grid.rows[0])) is not None:
        _show_coupling(coupling, coupling_caution(grid.rows[0], evaluated.references, grid.measure, found.task))
    your_data_forecast.show(found, grid)
    _show_links(grid)


def _show_coupling(found: FoundCoupling, caution: str) -> None:
    st.header("Coupling found", anchor=False)
    runs = f"{found.runs} run{'s' * (found.runs != 1)}"
    st.markdown(messages.escape(f"Strongest influences: {coupling_text(found) or 'none'}. Averaged over test series, "
                                f"time and {runs} of ACE. {caution}"))
    if found.attention is not None and is_uniform(found.attention):
        st.caption(":material/info: All rows of the attention are nearly equal: it averages the variables and tells no "
                   "pairs apart")
    with st.container(horizontal=True, gap="small"):  # on narrow pages, one below the other
        for title, figure in coupling_figures(found, dark=st.context.theme.type == "dark").items():
            st.plotly_chart(figure, key=f"your-data/coupling/{title}", config=CONFIG, width=MAP)
    st.caption("Row i, column j: how much variable i draws on variable j. Attention: softmax(a(t)), rows sum to one. "
               "Influence: |∂ḣᵢ/∂hⱼ| as a share of the row. This is what the model uses, not what causes what: "
               "variables that move together can stand in for each other.")


def coupling_figures(found: FoundCoupling, *, dark: bool = False) -> dict[str, go.Figure]:
    """Draw attention and influence, as far as there are, for a dark page or a light one."""
    return {title: _heatmap(title, [escape(name) for name in found.names], z, dark)
            for title, z in (("Attention", found.attention), ("Influence", found.influence)) if z is not None}


def _heatmap(title: str, names: list[str], z: np.ndarray, dark: bool) -> go.Figure:
    largest = float(z.max()) or 1.0
    drawn = go.Figure(go.Heatmap(z=np.round(z, 4), x=names, y=names, zmin=0, zmax=largest, colorscale=SCALE, xgap=1,
                                 ygap=1, showscale=False, hovertemplate="%{y} ← %{x}: %{z:.1%}<extra></extra>"))
    numbers = [{"x": column, "y": row, "text": f"{share:.0%}", "showarrow": False,
                "font": {"color": "white" if _luminance(share / largest, dark) < EVEN else "black", "size": 12}}
               for (row, column), share in np.ndenumerate(z)] if len(names) <= WRITTEN else []
    drawn.update_layout(annotations=numbers, height=min(220 + 30 * len(names), 640),
                        margin={"l": 10, "r": 10, "t": 40, "b": 10}, title={"text": title, "font": {"size": 16}})
    drawn.update_xaxes(type="category", showgrid=False, zeroline=False)
    drawn.update_yaxes(type="category", showgrid=False, zeroline=False, autorange="reversed")
    return drawn


def _luminance(share: float, dark: bool) -> float:
    """Return the relative luminance, as WCAG defines it, of a cell with this share of the largest value."""
    opacity = FAINTEST + (1 - FAINTEST) * share
    mixed = [(opacity * blue + (1 - opacity) * page) / 255 for blue, page in zip(BLUE, PAGES[dark], strict=True)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mixed]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


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
