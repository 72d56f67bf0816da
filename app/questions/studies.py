"""The list of studies, and the page of one: its live grid, the answer in words, table and figures, players, and what to
take away."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import streamlit as st

from acenode import experiments
from acenode.compare import study_grid
from acenode.compare.figures import plain_figure
from acenode.compare.study_answer import StudyReport, caption, report, study_references, study_table
from acenode.compare.study_figures import study_figures
from acenode.compare.study_grid import MOST_PLAYERS, StudyGrid, repeat_title
from acenode.errors import UserError
from acenode.export.study import TEXTS, render, to_commands, to_python, write_site
from acenode.runs.questions import Study, StudyStore

from .. import components, form, labels, messages
from ..results import FORMATS
from ..services import services
from . import live
from . import page as links
from .page import QuestionPage, action_line, ask_experiment, show_fairness, start_study, stop_study, stored_as

EFFECTS = {"helps": ("green", "helps"), "hurts": ("red", "hurts"), "unknown": ("gray", "undecided")}
BUTTONS = 8  # seeds that get a button each; more are a list
TABLES = dict(reversed(FORMATS.items()))
CODES = {"Commands": lambda study: messages.commands(to_commands(study)), "Python": to_python}


def list_one(name: str) -> StudyGrid:
    try:
        grid = live.grid_of(name)
    except UserError:
        st.markdown(f"**{messages.escape(name)}**")
        raise
    study, busy = grid.study, len(grid.running)
    links.show_link("studies", messages.escape(study.question or name), study=name)
    training = f", {busy} queued or running" if busy else ""
    experiment = experiments.get(study.experiment)
    data = "" if experiment.source is None else f" ({study.data})"  # it has one data set, which is no sample
    st.caption(messages.escape(
        f"{study.name}: {experiment.title}{data}, {' · '.join(row.name for row in grid.rows)}; "
        f"{grid.finished} of {len(grid.cells)} runs finished{training}"))
    return grid


def offer_site(found: Sequence[StudyGrid]) -> None:
    by_name = {grid.study.name: grid for grid in found if grid.finished}
    if not by_name:
        return
    with st.expander("Static site of several studies", icon=":material/public:"):
        chosen = st.multiselect("Studies", list(by_name), list(by_name), key="studies/site")
        st.caption("An index, a page for each study with players, and a report for each run, as one zip file")
        st.download_button("Download site", lambda: pack([report(
            by_name[name], study_references(by_name[name], services().data_root)) for name in chosen]),
                           "studies.zip", "application/zip", key="studies/site/download", icon=":material/download:",
                           on_click="ignore", disabled=not chosen)


def pack(found: Sequence[StudyReport]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_site(found, [], Path(folder) / "site")
        return Path(shutil.make_archive(f"{folder}/packed", "zip", f"{folder}/site")).read_bytes()


def show_form() -> None:
    from . import study_form  # needs torch, which the list does not wait for

    study_form.show()


def heading(grid: StudyGrid) -> tuple[str, str]:
    study = grid.study
    apart = study.data == "sample" and experiments.get(study.experiment).source is not None
    note = " Not comparable with the paper" if apart else ""
    return study.question or study.name, f"{study.name}: {caption(grid, labels.settings_words)}.{note}"


def show_controls(grid: StudyGrid) -> None:
    from .. import estimates  # here and below: it needs torch, which the list does not wait for

    study, wanted, device = grid.study, grid.wanted, st.session_state.get("study/device", "auto")
    line, sentence = action_line()
    with sentence:
        if wanted:
            configs = [replace(cell.config, device=device) for cell in wanted]
            estimates.show(f"**{messages.count(len(wanted), 'run')}** not trained yet, {{time}}{{order}}", configs)
        else:
            st.markdown("Training. The answer below follows every run that finishes" if grid.running else
                        "All runs are finished")
    with line:
        if wanted:
            device = form.ask_device("study/device", label_visibility="collapsed", help=None)
            begun = any(cell.entry is not None for cell in grid.cells)
            st.button("Resume" if begun else "Start", key="study/resume", type="primary", icon=":material/play_arrow:",
                      on_click=messages.attempt, args=(start_study, study, device),
                      help="Trains what is missing, and continues unfinished runs from their last checkpoint")
        if grid.running:
            st.button("Stop", key="study/stop", icon=":material/stop:", on_click=stop_study, args=(grid,),
                      help="Running runs write a checkpoint, queued ones leave the queue")
        PAGE.offer_deletion(study.name)


def show_answer(grid: StudyGrid) -> None:
    """Show the live grid, the answer so far, players, figures, and what to take away."""
    # the grid follows its runs; the page reruns when one of them starts or ends
    components.show("study_grid", "study-grid", {"name": grid.study.name, "view": live.describe(grid)})
    found = None
    with st.container():
        st.header("Answer", anchor=False)
        if not grid.finished:
            st.caption("No run is finished yet. The answer appears here with the first seeds.")
        else:
            with st.spinner("Computing trivial references"):
                found = report(grid, study_references(grid, services().data_root))
            _show_findings(found)
        if (offer := show_fairness(grid)) is not None:
            store = StudyStore(services().store)
            st.button("Make the equal study", key="study/make-equal", icon=":material/balance:",
                      on_click=lambda: st.query_params.from_dict({"study": stored_as(offer[0], store).name}),
                      help=messages.escape(f"A new study with {offer[1]}. It is not started yet."))
    with st.container():
        _show_players(grid)
    with st.container():
        drawn = [{"name": f"{grid.study.name}-{one.name}", "title": one.title, "figure": plain_figure(one.figure)}
                 for one in (study_figures(found) if found is not None else [])]
        if drawn:
            st.header("Figures", anchor=False)
            components.show("figures", "study-figures", {"figures": drawn})
    with st.container():
        _show_takeaway(grid.study, found)


def _show_findings(found: StudyReport) -> None:
    if found.answer.warning:
        messages.warning(found.answer.warning)
    for compared in found.answer.findings:
        colour, word = EFFECTS[compared.effect]
        st.markdown(f":{colour}-badge[{word}] {messages.escape(messages.capital(compared.text))}")
    for note in found.answer.notes:
        st.caption(messages.escape(note))
    repeats = "folds" if found.grid.study.folds else "seeds"
    st.caption(f"95% intervals by Student's t on differences paired by {repeats}, each for one comparison",
               help="A group helps or hurts if there are at least three pairs and the interval excludes zero. With "
               "many groups, one interval in twenty excludes zero by chance.")
    table = study_table(found, cells=False)
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in table.heads)
    rows = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in table.rows)
    st.html(f'<div class="study-table" tabindex="0" role="region" aria-label="Results of the study"><table><thead><tr>'
            f"{heads}</tr></thead><tbody>{rows}</tbody></table></div>")


def _show_players(grid: StudyGrid) -> None:
    """Show one run of each group, all of the same seed and on one scale, with a choice of the seed and the groups."""
    found = study_grid.playable(grid)
    first = study_grid.fullest(found)
    if first is None:
        return
    st.header("Trajectories", anchor=False)
    titles = {repeat_title(grid.study, repeat): repeat for repeat in found}
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        key = f"study/{grid.study.name}/repeat"
        if st.session_state.get(key) not in titles:
            st.session_state[key] = repeat_title(grid.study, first)
        if len(titles) <= BUTTONS:
            title = st.segmented_control("Runs of", list(titles), key=key, required=True)
        else:
            title = st.selectbox("Runs of", list(titles), key=key)
        runs = found[titles.get(str(title), first)]
        groups = names = list(runs)
        if len(names) > 1:
            groups = st.pills("Groups", names, default=names[:MOST_PLAYERS], selection_mode="multi",
                              key=f"study/{grid.study.name}/groups/{len(names)}",
                              help=f"Evolving attention first; at most {MOST_PLAYERS} are shown") or names[:1]
    shown = [name for name in names if name in groups][:MOST_PLAYERS]
    colours = labels.colours(row.name for row in grid.rows)
    components.player("study-player", [{"id": runs[name].id, "label": name, "group": name, "colour": colours[name],
                                        "live": runs[name].busy} for name in shown], components.PLAYER_START)


def _show_takeaway(study: Study, found: StudyReport | None) -> None:
    """Offer downloads, and show tables and code to copy; before a run has finished, the code alone."""
    st.header("Take away", anchor=False)
    texts: dict[str, Any] = {}
    if found is not None:
        texts = {title: lambda kind=kind: TEXTS[kind](found) for kind, (title, _) in TABLES.items()}
        with st.container(horizontal=True):
            for kind, (title, mime) in TABLES.items():
                st.download_button(f"Table as {title}", texts[title](), f"{study.name}.{kind}", mime,
                                   key=f"study/take/{kind}", icon=":material/table:", on_click="ignore")
            st.download_button("HTML page", lambda: render(found), f"{study.name}.html", "text/html",
                               key="study/take/html", icon=":material/html:", on_click="ignore",
                               help="One self-contained file with answer, figures, table, players and code")
            st.download_button("Static site", lambda: pack([found]), f"{study.name}.zip", "application/zip",
                               key="study/take/site", icon=":material/public:", on_click="ignore",
                               help="An index, the page of the study and a report for each of its runs, as a zip file")
    texts |= {title: lambda write=write: write(study) for title, write in CODES.items()}
    tabs = st.tabs(list(texts), key="study/take", on_change="rerun")
    for tab, text in zip(tabs, texts.values(), strict=True):
        if tab.open:  # coloured syntax would be too faint in dark
            tab.code(text(), language=None, wrap_lines=True)


PAGE = QuestionPage(
    noun="study", plural="studies", store=StudyStore, asks="preset",
    about="A study is a named question: what varies, what is held equal, and which seeds. It trains its runs and "
          "answers in words, with a 95% interval.",
    nothing="No studies yet. Choose a question below, then press **Start**: its runs are trained one after the other, "
            "and the answer appears while they finish.",
    names=lambda: [stored.name for stored in StudyStore(services().store).list()],
    find=live.grid_of, list_one=list_one, list_more=offer_site, form=show_form, heading=heading, controls=show_controls,
    answer=show_answer,
    offer_new=lambda: links.show_presets(experiments.get(ask_experiment("studies/experiment", width=260))))
