"""What a study shows: the answer in words, fairness, the table with trivial references, and figures."""

from __future__ import annotations

from html import escape

import streamlit as st

from acenode.compare.fairness import equal_study, fairness
from acenode.compare.figures import plain_figure
from acenode.compare.study_answer import StudyReport, report, study_references, study_table
from acenode.compare.study_figures import study_figures
from acenode.compare.study_grid import StudyGrid
from acenode.runs.questions import Study, StudyStore

from .. import components, messages
from ..services import services
from . import study_draft, study_links

COLOURS = {"helps": "green", "hurts": "red", "unknown": "gray"}
WORDS = {"helps": "helps", "hurts": "hurts", "unknown": "undecided"}


def show(grid: StudyGrid) -> StudyReport | None:
    """Show the answer so far; return the evaluated study, None before a run has finished."""
    st.header("Answer", anchor=False)
    if not grid.finished:
        st.caption("No run is finished yet. The answer appears here with the first seeds.")
        return None
    with st.spinner("Computing trivial references"):
        found = report(grid, study_references(grid, services().data_root))
    if found.answer.warning:
        messages.warning(found.answer.warning)
    for compared in found.answer.findings:
        text = messages.escape(f"{compared.text[:1].upper()}{compared.text[1:]}")
        st.markdown(f":{COLOURS[compared.effect]}-badge[{WORDS[compared.effect]}] {text}")
    for note in found.answer.notes:
        st.caption(messages.escape(note))
    repeats = "folds" if grid.study.folds else "seeds"
    st.caption(f"95% intervals by Student's t on differences paired by {repeats}, each for one comparison",
               help="A group helps or hurts if there are at least three pairs and the interval excludes zero. With "
               "many groups, one interval in twenty excludes zero by chance.")
    return found


def show_fairness(grid: StudyGrid) -> None:
    """Say in what the groups differ besides what varies, and offer the equal study."""
    notes = fairness(grid)
    if not notes:
        st.caption(":material/balance: The groups differ in nothing but what varies")
        return
    lines = "\n".join(f"- {messages.escape(note.text[:1].upper() + note.text[1:])}" for note in notes)
    st.warning(f"The groups differ in more than what varies:\n{lines}", icon=":material/balance:")
    equal = equal_study(grid) if any(note.offer for note in notes) else None
    if equal is not None:
        changes = "; ".join(note.offer.change for note in notes if note.offer)
        st.button("Make the equal study", key="study/make-equal", icon=":material/balance:", on_click=_make,
                  args=(equal,), help=messages.escape(f"A new study with {changes}. It is not started yet."))


def _make(study: Study) -> None:
    """Store a study and open it."""
    store = StudyStore(services().store)
    study = study_draft.stored_as(study, store)
    if not store.exists(study.name):
        store.write(study)
    study_links.go_to(study.name)


def show_table(found: StudyReport) -> None:
    """Show the table, with trivial references."""
    table = study_table(found, cells=False)
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in table.heads)
    rows = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in table.rows)
    st.html(f'<div class="study-table" tabindex="0" role="region" aria-label="Results of the study"><table><thead><tr>'
            f"{heads}</tr></thead><tbody>{rows}</tbody></table></div>")


def show_figures(found: StudyReport) -> None:
    """Show the figures, to be saved as SVG or PNG."""
    drawn = [{"name": f"{found.grid.study.name}-{figure.name}", "title": figure.title,
              "figure": plain_figure(figure.figure)} for figure in study_figures(found)]
    if drawn:
        st.header("Figures", anchor=False)
        components.study_figures("study-figures", drawn)
