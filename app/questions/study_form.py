"""The form of a new study: its fields, what they mean, and the line that starts it above them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import streamlit as st

from acenode import experiments
from acenode.compare import study_grid
from acenode.compare.fairness import parameter_counts
from acenode.compare.paper import HOSTS
from acenode.compare.study_grid import StudyGrid, check_study, group_names, kind_of, make_grid, presets
from acenode.config import SETTINGS, check, parse, read_seeds
from acenode.config.groups import Training
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.questions import Study, StudyGroup, StudyStore

from .. import estimates, form, labels, messages
from ..services import services
from . import page as links
from .page import NO_DATA, OWN, action_line, ask_experiment, settings_of, show_fairness, start_study, stored_as

QUICK = 4  # a quick look has a quarter of the epochs
TRIAL = {"epochs": 1, "batch_size": 512, "solver": "rk4", "step_size": 1.0, "analysis": False}  # of images: seconds
OTHER = "Other"  # length of the runs


def show() -> None:
    """Show the form of the study that the URL names: a ready-made question, or one of one's own."""
    name, kind = st.query_params.get("experiment", "mnist"), st.query_params["preset"]
    if (experiment := experiments.find(name)) is None:
        messages.invalid(f"There is no experiment {name[:40]!r}: choose a question from all studies")
        return
    heading, line = st.container(gap="xsmall"), st.container()
    try:
        with st.container(border=True):
            with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
                _choose_question(experiment, kind)
                data = form.ask_data(experiment, "study/data")
            ready = data == "sample" or form.show_full_data(experiment, key="study/download")
            known = {kind_of(study): study for study in presets(experiment.name, data)}
            if kind not in (*known, OWN):
                raise UserError(f"{experiment.name} has no study {kind!r}: choose one of {', '.join((*known, OWN))}")
            start = known[kind] if kind in known else _ask_own(experiment, data)
            study, device = _ask_study(start, f"study/{experiment.name}/{kind}/{data}")
        grid = make_grid(study, services().catalogue.entries())
        offer = show_fairness(grid)
        if offer is not None and st.toggle("Make the groups equal", key=f"study/equal/{study.name}",
                                           help=messages.escape(offer[1])):
            grid = make_grid(offer[0], services().catalogue.entries())
            st.caption(messages.escape(f"Changed: {offer[1]}"))
        counts = zip(grid.rows, parameter_counts(grid), strict=True)
        st.markdown("\n".join(f"- **{messages.escape(row.name)}**: {count:,} parameters"
                              f"{', baseline' * (row is grid.baseline)}" for row, count in counts))
    except UserError as error:
        with heading:
            st.title("New study", anchor=False)
        messages.invalid(error)
        return
    study = grid.study
    with heading:
        st.title(messages.escape(study.question or study.name), anchor=False)
        sample = experiment.sample_title if experiment.source is None else f"sample: {experiment.sample_title}"
        used = sample if study.data == "sample" else "full data"
        st.caption(messages.escape(f"A study on {experiment.title} ({used}): {links.summary(study)}"))
    with line:
        _offer_study(grid, device, ready)


def _choose_question(experiment: Experiment, kind: str) -> None:
    def kinds(name: str) -> list[str]:
        return [*map(kind_of, presets(name)), OWN]

    def changed() -> None:
        name, chosen = st.session_state["study/experiment"], st.session_state["study/kind"]
        st.query_params.from_dict({"experiment": name, "preset": chosen if chosen in kinds(name) else "attention"})

    st.session_state["study/experiment"], st.session_state["study/kind"] = experiment.name, kind
    ask_experiment("study/experiment", on_change=changed, width=220)
    st.selectbox("Question", list(dict.fromkeys([*kinds(experiment.name), kind])), key="study/kind", width=320,
                 on_change=changed, format_func=lambda name: links.TITLES.get(name, name))


def _ask_own(experiment: Experiment, data: str) -> Study:
    key = f"study/{experiment.name}"
    usual = ["ace", HOSTS.get(experiment.name, next(iter(experiment.methods)))]
    methods = st.multiselect("Methods", list(experiment.methods), usual, key=f"{key}/methods",
                             format_func=lambda m: labels.method_title(experiment.name, m))
    names = st.multiselect("Settings that vary", settings_of(experiment, list(experiment.methods)),
                           key=f"{key}/settings", format_func=labels.setting,
                           help="Every combination of methods and values is one group")
    values: dict[str, list[Any]] = {}
    for name in names:
        ask: dict[str, Any] = {"label": labels.setting(name), "key": f"{key}/values/{name}",
                               "help": SETTINGS[name].help}
        if SETTINGS[name].choices and (choices := list(experiment.choices(name))):
            values[name] = st.multiselect(options=choices, default=choices, **ask)
        elif SETTINGS[name].type is bool:
            values[name] = [False, True]
        else:
            text = st.text_input(placeholder="Values, such as 0.01 0.001", **ask)
            values[name] = list(dict.fromkeys(parse(name, part) for part in text.replace(",", " ").split()))
    return own_start(experiment, data, methods, values)


def _ask_study(start: Study, key: str) -> tuple[Study, str]:
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        known = lengths(start)
        usual = list(known)[-1]
        chosen = st.pills("Length of each run", [*known, OTHER], default=usual, required=True, wrap=True,
                          key=f"{key}/length/{usual}", help="A trial shows in seconds what a study looks like. Its "
                          "runs are hardly trained: the answer means nothing") or usual
        length = known.get(chosen, {})
        if chosen == OTHER:
            epochs = st.number_input("Epochs", 1, value=5, step=1, key=f"{key}/epochs", width=120)
            length = {"epochs": check("epochs", epochs)}
        seeds = st.text_input("Seeds", " ".join(map(str, start.seeds)), key=f"{key}/seeds", width=140,
                              help="Each group is trained once with each seed: 0 1 2, or 0-4")
        folds = " ".join(map(str, start.folds))
        if folds:
            folds = st.text_input("Folds", folds, key=f"{key}/folds", width=140,
                                  help="Each group is trained once on each fold, with all seeds")
        device = form.ask_device("study/device")
    with st.expander("Baseline, settings held equal, name", icon=":material/tune:"):
        names = group_names(start)
        baseline = st.selectbox("Baseline", range(len(names)), start.baseline, key=f"{key}/baseline/{len(names)}",
                                format_func=lambda i: names[i], help="The group that the others are compared with")
        held = st.text_input("Held equal in all groups", settings_line(start.held), key=f"{key}/held",
                             placeholder="rtol=0.01 batch_size=64",
                             help="Settings with one value in every group to which they apply")
        question = st.text_input("Question in words", start.question, key=f"{key}/question")
        name = st.text_input("Name", start.name, key=f"{key}/name", help="Of the study's file in runs/studies/")
    return make_study(start, seeds=seeds, folds=folds, length=length, held=held, baseline=baseline, name=name.strip(),
                      question=question.strip()), device


def _offer_study(grid: StudyGrid, device: str, ready: bool) -> None:
    configs = [replace(cell.config, device=device) for cell in grid.cells if cell.value is None]
    line, sentence = action_line()
    with sentence:
        if not configs:
            st.markdown("All runs of this study are finished already")
        elif not ready:
            st.markdown(NO_DATA)
        else:
            done = f" ({grid.finished} of {len(grid.cells)} exist already)" * bool(grid.finished)
            estimates.show(f"**{messages.count(len(configs), 'run')}**{done}, {{time}}{{order}}", configs)
    save = line.button("Save only", key="study/save", icon=":material/save:", help="Keeps the study without training")
    start = line.button("Start" if configs else "Show the answer", key="study/start", type="primary",
                        icon=":material/play_arrow:", disabled=bool(configs) and not ready)
    if not (save or start):
        return
    try:
        study = stored_as(grid.study, StudyStore(services().store))
        if start and configs:
            with st.spinner("Adding runs to the queue"):
                start_study(study, device)
    except (UserError, OSError) as error:
        messages.error(error)
        return
    st.query_params.from_dict({"study": study.name})
    st.rerun()


def make_study(start: Study, *, seeds: str = "", folds: str = "", length: Mapping[str, Any] | None = None,
               held: str = "", baseline: int | None = None, name: str = "", question: str = "") -> Study:
    """Return the study that the fields of the form describe; empty ones stand for the values of `start`."""
    usual = {key: value for key, value in start.held.items() if key == "epochs"}
    repeats = [start.seeds, start.folds]
    if seeds.strip() or folds.strip():
        repeats = [tuple(read_seeds(text)) if text.strip() else () for text in (seeds, folds)]
    return check_study(replace(
        start, held={**usual, **(length or {}), **read_settings(held)}, seeds=repeats[0], folds=repeats[1],
        name=name or start.name, question=question or start.question,
        baseline=start.baseline if baseline is None else baseline))


def own_start(experiment: Experiment, data: str, methods: list[str], values: Mapping[str, list[Any]]) -> Study:
    """Return a study of all combinations of methods and values; a method leaves out settings that it does not have."""
    axes = {key: some for key, some in values.items() if some}
    groups = tuple(dict.fromkeys(
        StudyGroup(method, {k: v for k, v in zip(axes, chosen, strict=True) if k in experiment.method(method).uses})
        for method, *chosen in product(methods, *axes.values())))
    if len(groups) < 2:
        raise UserError("choose two methods, or two values of a setting: a study compares them")
    return Study(f"{experiment.name}-{OWN}", experiment.name, groups, data=data, baseline=0)


def lengths(study: Study) -> dict[str, Mapping[str, Any]]:
    """Return the lengths of runs that the form offers by their titles, as settings held equal; the default last."""
    configs = [study_grid.group_config(study, group) for group in study.groups]
    usual = {config.part(Training).epochs for config in configs}
    quick = max(1, min(usual) // QUICK)
    found: dict[str, Mapping[str, Any]] = {}
    if all(config.get("size") is not None and "solver" not in study.varied | study.held.keys() for config in configs):
        found["Trial: 1 epoch, coarse solver"] = TRIAL
    if quick < min(usual):
        found[f"Quick look: {messages.count(quick, 'epoch')}"] = {"epochs": quick}
    numbers = " to ".join(str(n) for n in sorted({min(usual), max(usual)}))
    return found | {f"Default: {numbers} epoch{'s' * (numbers != '1')}": {}}


def read_settings(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in text.replace(",", " ").split():
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise UserError(f"settings are written as rtol=0.01 batch_size=64, not {part!r}")
        if key in found:
            raise UserError(f"{key} is given twice: leave one out")
        found[key] = parse(key, value)
    return found


def settings_line(settings: Mapping[str, Any]) -> str:
    """Write settings as `read_settings` reads them; the number of epochs has a field of its own."""
    return " ".join(f"{key}={str(value).lower() if isinstance(value, bool) else value}"
                    for key, value in settings.items() if key != "epochs")
