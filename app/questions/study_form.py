"""The form of a new study: a ready-made question or one of your own, its time and its fairness before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from acenode import experiments
from acenode.compare.fairness import equal_study, fairness, parameter_counts
from acenode.compare.paper import HOSTS
from acenode.compare.study_grid import StudyGrid, group_names, make_grid, with_device
from acenode.config import KEYS, SETTINGS, check
from acenode.errors import UserError
from acenode.execution.devices import device_choices
from acenode.experiments import Experiment
from acenode.runs.questions import Study, StudyStore

from .. import estimates, full_data, labels, messages
from ..services import services
from . import study_actions, study_draft, study_links
from .study_draft import OWN, StudyDraft, Varied

TITLES = {**study_links.SHORT, OWN: "A question of your own"}
OTHER = "Other"


@dataclass(frozen=True)
class AskedStudy:
    """The study that the form describes, with the runs that exist already, and the device to train on."""

    grid: StudyGrid
    device: str


def show(experiment_name: str, kind: str) -> None:
    """Show the form, with the line that starts the study above it."""
    study_links.show_all()
    experiment = experiments.find(experiment_name)
    if experiment is None:
        messages.invalid(f"There is no experiment {experiment_name[:40]!r}: choose a question from all studies")
        return
    heading, line = st.container(gap="xsmall"), st.container()
    try:
        asked, ready = _ask(experiment, kind)
    except UserError as error:
        with heading:
            st.title("New study", anchor=False)
        messages.invalid(error)
        return
    with heading:
        study = asked.grid.study
        st.title(messages.escape(study.question or study.name), anchor=False)
        sample = experiment.sample_title if experiment.source is None else f"sample: {experiment.sample_title}"
        data = sample if study.data == "sample" else "full data"
        st.caption(messages.escape(f"A study on {experiment.title} ({data}): {study_draft.summary(study)}"))
    with line:
        _show_start(asked, ready)


# The fields ---------------------------------------------------------------------------------------------------------


def _ask(experiment: Experiment, kind: str) -> tuple[AskedStudy, bool]:
    """Show the fields; return the study, and whether its data is there."""
    with st.container(border=True):
        with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
            _choose_question(experiment, kind)
            data = "sample"
            if experiment.source is not None:
                data = st.segmented_control("Data", ["sample", "full"], default="sample", required=True,
                                            key="study/data", help=KEYS["data"].help) or "sample"
        ready = data == "sample" or full_data.show(experiment, key="study/download")
        presets = study_draft.starts(experiment.name, data)
        if kind not in (*presets, OWN):
            raise UserError(f"{experiment.name} has no study {kind!r}: choose one of {', '.join((*presets, OWN))}")
        start = presets[kind] if kind in presets else study_draft.own_start(experiment, data, _ask_varied(experiment))
        study, device = _ask_rest(experiment, start, f"study/{experiment.name}/{kind}/{data}")
    return _show_fairness(study, device), ready


def _choose_question(experiment: Experiment, kind: str) -> None:
    """Ask for experiment and question, which the URL keeps."""
    kinds_here = [*study_draft.starts(experiment.name, "sample"), OWN]
    st.session_state["study/experiment"], st.session_state["study/kind"] = experiment.name, kind

    def changed() -> None:
        name, chosen = st.session_state["study/experiment"], st.session_state["study/kind"]
        st.query_params.from_dict({study_links.EXPERIMENT: name, study_links.PRESET: chosen if chosen in (
            *study_draft.starts(name, "sample"), OWN) else "attention"})

    st.selectbox("Experiment", study_links.experiment_names(), key="study/experiment", on_change=changed, width=220,
                 format_func=lambda name: experiments.get(name).title)
    st.selectbox("Question", kinds_here if kind in kinds_here else [*kinds_here, kind], key="study/kind", width=320,
                 on_change=changed, format_func=lambda name: TITLES.get(name, name))


def _ask_varied(experiment: Experiment) -> Varied:
    """Ask what is compared: methods, and values of settings."""
    key = f"study/{experiment.name}"
    usual = ["ace", HOSTS.get(experiment.name, next(iter(experiment.methods)))]
    methods = st.multiselect("Methods", list(experiment.methods), usual, key=f"{key}/methods",
                             format_func=lambda m: labels.method_title(experiment.name, m))
    names = st.multiselect("Settings that vary", study_draft.settings_that_vary(experiment), key=f"{key}/settings",
                           format_func=labels.setting, help="Every combination of methods and values is one group")
    varied = Varied(methods)
    for name in names:
        choices = experiment.choices(name) if SETTINGS[name].choices else None
        if choices:
            varied.values[name] = st.multiselect(labels.setting(name), list(choices), list(choices),
                                                 key=f"{key}/values/{name}", help=SETTINGS[name].help)
        elif SETTINGS[name].type is bool:
            varied.values[name] = [False, True]
        else:
            text = st.text_input(labels.setting(name), key=f"{key}/values/{name}", help=SETTINGS[name].help,
                                 placeholder="Values, such as 0.01 0.001")
            varied.values[name] = study_draft.read_values(name, text)
    return varied


def _ask_rest(experiment: Experiment, start: Study, key: str) -> tuple[Study, str]:
    """Ask for length, seeds, what is held equal, baseline and name."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        length = _ask_length(start, key)
        seeds, folds = study_draft.repeats_texts(start)
        seeds = st.text_input("Seeds", seeds, key=f"{key}/seeds", width=140,
                              help="Each group is trained once with each seed: 0 1 2, or 0-4")
        if start.folds:
            folds = st.text_input("Folds", folds, key=f"{key}/folds", width=140,
                                  help="Each group is trained once on each fold, with all seeds")
        device = "auto"
        if len(known := device_choices()) > 1:
            device = st.selectbox("Device", known, key="study/device", width=120,
                                  help=KEYS["device"].help)
    with st.expander("Baseline, settings held equal, name", icon=":material/tune:"):
        names = group_names(start)
        baseline = st.selectbox("Baseline", range(len(names)), start.baseline, key=f"{key}/baseline/{len(names)}",
                                format_func=lambda i: names[i], help="The group that the others are compared with")
        held = st.text_input("Held equal in all groups", study_draft.settings_line(start.held), key=f"{key}/held",
                             placeholder="rtol=0.01 batch_size=64",
                             help="Settings with one value in every group to which they apply")
        question = st.text_input("Question in words", start.question, key=f"{key}/question")
        name = st.text_input("Name", start.name, key=f"{key}/name", help="Of the study's file in runs/studies/")
    draft = StudyDraft(start, seeds, folds, length, held, baseline, name.strip(), question.strip())
    return draft.study(), device


def _ask_length(start: Study, key: str) -> Mapping[str, Any]:
    """Ask for the length of every run; return the settings that give it."""
    offered = {length.title: length.held for length in study_draft.lengths(start)}
    usual = list(offered)[-1]
    chosen = st.pills("Length of each run", [*offered, OTHER], default=usual, required=True, wrap=True,
                      key=f"{key}/length/{usual}", help="A trial shows in seconds what a study looks like. Its runs "
                      "are hardly trained: the answer means nothing") or usual
    if chosen != OTHER:
        return offered[chosen]
    return {"epochs": check("epochs", st.number_input("Epochs", 1, value=5, step=1, key=f"{key}/epochs", width=120))}


# Fairness, time and start -------------------------------------------------------------------------------------------


def _show_fairness(study: Study, device: str) -> AskedStudy:
    """Say in what the groups differ besides what varies, and offer the equal study; return what is asked for."""
    entries = services().catalogue.entries()
    grid = make_grid(study, entries)
    notes = fairness(grid)
    if notes:
        lines = "\n".join(f"- {messages.escape(_capital(note.text))}" for note in notes)
        st.warning(f"The groups differ in more than what varies:\n{lines}", icon=":material/balance:")
    else:
        st.caption(":material/balance: The groups differ in nothing but what varies")
    equal = equal_study(grid) if any(note.offer for note in notes) else None
    changes = [note.offer.change for note in notes if note.offer]
    if equal is not None and st.toggle("Make the groups equal", key=f"study/equal/{study.name}",
                                       help=messages.escape("; ".join(changes))):
        grid = make_grid(equal, entries)
        st.caption(messages.escape(f"Changed: {'; '.join(changes)}"))
    _show_groups(grid)
    return AskedStudy(grid, device)


def _show_groups(grid: StudyGrid) -> None:
    """List the groups with their parameters."""
    counts = parameter_counts(grid)
    lines = [f"- **{messages.escape(row.name)}**: {count:,} parameters{', baseline' * (row is grid.baseline)}"
             for row, count in zip(grid.rows, counts, strict=True)]
    st.markdown("\n".join(lines))


def _show_start(asked: AskedStudy, ready: bool) -> None:
    """Say how many runs there are and how long they take, and offer to start."""
    grid = asked.grid
    configs = [with_device(cell.config, asked.device) for cell in grid.cells if cell.value is None]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="study-line"):
        with st.container(width="stretch", key="study-sentence"):
            if not configs:
                st.markdown("All runs of this study are finished already")
            elif not ready:
                st.markdown("The full data is not on this machine yet")
            else:
                done = f" ({grid.finished} of {len(grid.cells)} exist already)" * bool(grid.finished)
                count = f"**{len(configs)} run{'s' * (len(configs) > 1)}**{done}"
                estimates.show(f"{count}, {{time}}{{order}}", configs)
        save = st.button("Save only", key="study/save", icon=":material/save:", help="Keeps the study without training")
        start = st.button("Start" if configs else "Show the answer", key="study/start", type="primary",
                          icon=":material/play_arrow:", disabled=bool(configs) and not ready)
    if save or start:
        _store(asked, train=start and bool(configs))


def _store(asked: AskedStudy, *, train: bool) -> None:
    """Store the study, start its runs, and open its page."""
    store = StudyStore(services().store)
    try:
        study = study_draft.stored_as(asked.grid.study, store)
        if not store.exists(study.name):
            store.write(study)
        if train:
            with st.spinner("Adding runs to the queue"):
                study_actions.start(study, asked.device)
    except (UserError, OSError) as error:
        messages.error(error)
        return
    study_links.go_to(study.name)
    st.rerun()


def _capital(text: Any) -> str:
    return f"{text[:1].upper()}{text[1:]}"
