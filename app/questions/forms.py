"""The forms of a new study and of a new search, each with the line that starts it above the fields."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import streamlit as st

from acenode import experiments
from acenode.compare.fairness import parameter_counts
from acenode.compare.paper import HOSTS
from acenode.compare.study_grid import StudyGrid, group_names, make_grid, with_device
from acenode.config import SETTINGS, check
from acenode.config.groups import Training
from acenode.config.ranges import SearchRange, read_range
from acenode.errors import UserError
from acenode.execution.study_run import check_data
from acenode.experiments import Experiment
from acenode.runs.questions import MAX_TRIALS, SAMPLERS, Search, SearchStore, Study, StudyStore
from acenode.search.plan import base_config, check_search, defaults_outside

from .. import estimates, form, labels, messages, navigation
from ..services import services
from . import drafts
from . import page as links
from .page import OWN, show_fairness, start_study

OTHER = "Other"  # length of the runs of a study
PRUNING = {"median": "Median", "halving": "Halving", "hyperband": "Hyperband", "none": "None"}
SCALES = {"log": "Logarithmic", "linear": "Linear", "list": "List"}
TIMED = 200  # trials whose time is added up
NO_DATA = "The full data is not on this machine yet"
T = TypeVar("T")


def _show_line(sentence: Callable[[], None], *buttons: Callable[[], bool]) -> list[bool]:
    """Show a sentence beside buttons, and return which of these were pressed."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="study-line"):
        with st.container(width="stretch", key="study-sentence"):
            sentence()
        return [button() for button in buttons]


def _choose_experiment(noun: str, experiment: Experiment, changed: Callable[[], None]) -> None:
    st.session_state[f"{noun}/experiment"] = experiment.name
    st.selectbox("Experiment", navigation.experiment_names(), key=f"{noun}/experiment", on_change=changed, width=220,
                 format_func=lambda name: experiments.get(name).title)


# A study ------------------------------------------------------------------------------------------------------------


def show_study() -> None:
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
            presets = drafts.starts(experiment.name, data)
            if kind not in (*presets, OWN):
                raise UserError(f"{experiment.name} has no study {kind!r}: choose one of {', '.join((*presets, OWN))}")
            start = presets[kind] if kind in presets else _ask_own(experiment, data)
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
    """Ask for experiment and question, which the URL keeps."""
    kinds = [*drafts.starts(experiment.name, "sample"), OWN]
    st.session_state["study/kind"] = kind

    def changed() -> None:
        name, chosen = st.session_state["study/experiment"], st.session_state["study/kind"]
        has = chosen in (*drafts.starts(name, "sample"), OWN)
        st.query_params.from_dict({"experiment": name, "preset": chosen if has else "attention"})

    _choose_experiment("study", experiment, changed)
    st.selectbox("Question", kinds if kind in kinds else [*kinds, kind], key="study/kind", width=320,
                 on_change=changed, format_func=lambda name: links.TITLES.get(name, name))


def _ask_own(experiment: Experiment, data: str) -> Study:
    """Ask what is compared: methods, and values of settings."""
    key = f"study/{experiment.name}"
    usual = ["ace", HOSTS.get(experiment.name, next(iter(experiment.methods)))]
    methods = st.multiselect("Methods", list(experiment.methods), usual, key=f"{key}/methods",
                             format_func=lambda m: labels.method_title(experiment.name, m))
    names = st.multiselect("Settings that vary", drafts.settings_of(
        experiment, list(experiment.methods), frozenset({"fold"})), key=f"{key}/settings", format_func=labels.setting,
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
            values[name] = drafts.read_values(name, st.text_input(placeholder="Values, such as 0.01 0.001", **ask))
    return drafts.own_start(experiment, data, methods, values)


def _ask_study(start: Study, key: str) -> tuple[Study, str]:
    """Ask for length, seeds, what is held equal, baseline and name; return the study and the device."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        lengths = drafts.lengths(start)
        usual = list(lengths)[-1]
        chosen = st.pills("Length of each run", [*lengths, OTHER], default=usual, required=True, wrap=True,
                          key=f"{key}/length/{usual}", help="A trial shows in seconds what a study looks like. Its "
                          "runs are hardly trained: the answer means nothing") or usual
        length = lengths.get(chosen, {})
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
        held = st.text_input("Held equal in all groups", drafts.settings_line(start.held), key=f"{key}/held",
                             placeholder="rtol=0.01 batch_size=64",
                             help="Settings with one value in every group to which they apply")
        question = st.text_input("Question in words", start.question, key=f"{key}/question")
        name = st.text_input("Name", start.name, key=f"{key}/name", help="Of the study's file in runs/studies/")
    return drafts.make_study(start, seeds=seeds, folds=folds, length=length, held=held, baseline=baseline,
                             name=name.strip(), question=question.strip()), device


def _offer_study(grid: StudyGrid, device: str, ready: bool) -> None:
    """Say how many runs there are and how long they take, and offer to start."""
    configs = [with_device(cell.config, device) for cell in grid.cells if cell.value is None]

    def sentence() -> None:
        if not configs:
            st.markdown("All runs of this study are finished already")
        elif not ready:
            st.markdown(NO_DATA)
        else:
            done = f" ({grid.finished} of {len(grid.cells)} exist already)" * bool(grid.finished)
            estimates.show(f"**{messages.count(len(configs), 'run')}**{done}, {{time}}{{order}}", configs)

    save, start = _show_line(
        sentence,
        lambda: st.button("Save only", key="study/save", icon=":material/save:",
                          help="Keeps the study without training"),
        lambda: st.button("Start" if configs else "Show the answer", key="study/start", type="primary",
                          icon=":material/play_arrow:", disabled=bool(configs) and not ready))
    if not (save or start):
        return
    try:
        study = drafts.stored_as(grid.study, StudyStore(services().store))
        if start and configs:
            with st.spinner("Adding runs to the queue"):
                start_study(study, device)
    except (UserError, OSError) as error:
        messages.error(error)
        return
    links.STUDIES.open(study.name)
    st.rerun()


# A search -----------------------------------------------------------------------------------------------------------


def show_search() -> None:
    """Show the form: which settings are tried and in which range, and what the trials share."""
    name = st.query_params["experiment"]
    experiment = experiments.find(name)
    st.title("New search", anchor=False)
    if experiment is None:
        messages.invalid(f"There is no experiment {name[:40]!r}: choose one from all searches")
        return
    line = st.container()
    with st.container(border=True):
        with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
            _choose_experiment("search", experiment, lambda: st.query_params.from_dict(
                {"experiment": st.session_state["search/experiment"]}))
            methods = list(experiment.methods)
            method = st.selectbox("Method", methods, methods.index("ace") if "ace" in methods else 0, width=240,
                                  key=f"search/{experiment.name}/method",
                                  format_func=lambda m: labels.method_title(experiment.name, m))
            data = form.ask_data(experiment, "search/data")
        ready = data == "sample" or form.show_full_data(experiment, key="search/download")
        ranges = _ask_ranges(experiment, method, data)
        how = _ask_how(experiment, method)
    st.subheader("Settings that all trials share", anchor=False)
    st.caption("Those that are searched are ignored here. Epochs and batch size are among the hyperparameters.")
    values = _ask_shared(experiment, method, data)
    search = None
    if ranges and not values.errors:  # otherwise the field says what is wrong
        held = {key: value for key, value in values.changed.items() if key not in {one.key for one in ranges}}
        how["name"] = how["name"] and SearchStore(services().store).free_name(how["name"])
        try:
            search = check_search(Search(experiment=experiment.name, method=method, ranges=ranges, held=held,
                                         data=data, **how))
        except UserError as error:
            messages.invalid(error)
    with line:
        if search is None:
            st.markdown("Correct the settings below to start")
        else:
            _offer_search(search, ready)


def _edited(experiment: Experiment, part: str = "fields") -> dict[str, Any]:
    """Return what the user changed, which is kept where another method or other data is chosen.

    Args:
        part: `fields` of the search, or the `settings` that all trials share.
    """
    found: dict[str, Any] = st.session_state.setdefault(f"search/edited/{experiment.name}/{part}", {})
    return found


def _keep(edited: dict[str, Any], name: str, value: Any, usual: Any) -> None:
    """Remember a value that is not the usual one; forget the name if the user has chosen the usual value again."""
    if value != usual:
        edited[name] = value
    elif edited.get(name) != value:  # what was entered elsewhere may happen to be the usual value here
        edited.pop(name, None)


def _ask(edited: dict[str, Any], name: str, usual: T, show: Callable[[T], T]) -> T:
    """Show a field that starts with the edited value, or the usual one, and remember what it has."""
    value = show(edited.get(name, usual))
    _keep(edited, name, value, usual)
    return value


def _ask_shared(experiment: Experiment, method: str, data: str) -> form.FormValues:
    """Ask for the settings that all trials share, starting with what was entered for other methods and data."""
    edited = _edited(experiment, "settings")
    values = form.show(experiment, method, data, dict(edited), "search", carry=False)
    edited.update(values.changed)
    try:
        config = values.configure(experiment)
    except UserError:  # the form says what is wrong
        return values
    if not values.errors:
        for name in [name for name in edited if config.get(name) not in (None, edited[name])]:
            del edited[name]  # the default again; settings that do not apply here are kept
    return values


def _ask_ranges(experiment: Experiment, method: str, data: str) -> tuple[SearchRange, ...]:
    """Ask which settings are searched, and for the range of each; return none if one is wrong."""
    key, edited = f"search/{experiment.name}/{method}/{data}", _edited(experiment)
    names = drafts.settings_to_search(experiment, method)
    usual = [name for name in drafts.USUAL if name in names]
    start = edited.get("settings", usual)
    chosen = st.multiselect("Settings to search", names, [name for name in start if name in names],
                            key=f"{key}/settings", format_func=labels.setting)
    _keep(edited, "settings", [*chosen, *(name for name in start if name not in names)], usual)
    if not chosen:
        messages.invalid("Choose at least one setting to search")
    base, found = experiment.configure(method, data), list[SearchRange]()
    with st.container(horizontal=True, gap="medium"):
        for name in (name for name in names if name in chosen):
            with st.container(width=300, border=True, gap="xsmall"):
                try:
                    found.append(_ask_range(experiment, name, base.get(name), f"{key}/{name}"))
                except UserError as error:
                    messages.invalid(error)
    return tuple(found) if len(found) == len(chosen) else ()


def _ask_range(experiment: Experiment, name: str, default: Any, key: str) -> SearchRange:
    """Ask for the values of one setting."""
    setting, edited, title = SETTINGS[name], _edited(experiment), labels.setting(name)

    def ask(field: str, usual: Any, show: Callable[..., Any], **more: Any) -> Any:
        return _ask(edited, f"{name}/{field}", usual, lambda start: show(start, key=f"{key}/{field}", **more))

    if setting.choices or setting.type is bool:
        choices = list(experiment.choices(name)) if setting.choices else ["false", "true"]
        values = ask("values", choices, partial(st.multiselect, title, choices), help=setting.help)
        if len(values) < 2:
            raise UserError("choose at least two values")
        return read_range(name, ",".join(values))
    usual = drafts.usual_range(name, default)
    scale = _ask(edited, f"{name}/scale", "log" if usual.log else "linear", lambda start: (
        st.segmented_control(title, list(SCALES), default=start, format_func=lambda kind: SCALES[kind],
                             key=f"{key}/scale", required=True, help=setting.help) or "log"))
    if scale == "list":
        return drafts.listed(name, ask("values", drafts.usual_values(usual, default), partial(
            st.text_input, "Values"), help="Separated by commas: 0, 0.0001, 0.001"))
    with st.container(horizontal=True, gap="small"):
        low = ask("low", f"{usual.low:g}", partial(st.text_input, "From"), width=120)
        high = ask("high", f"{usual.high:g}", partial(st.text_input, "To"), width=120)
    st.caption(f"Default: {messages.escape(labels.setting_value(default))}" if default is not None else
               "Applies to some trials only")
    return drafts.interval(name, low, high, log=scale == "log")


def _ask_how(experiment: Experiment, method: str) -> dict[str, Any]:
    """Ask for the number of trials, the sampler, pruning, seed, device and name."""
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        return {
            "trials": int(st.number_input("Trials", 1, MAX_TRIALS, 30, step=1, key="search/trials", width=120,
                                          help="How many settings are tried in all")),
            "sampler": st.segmented_control(
                "Sampler", list(SAMPLERS), default="tpe", key="search/sampler", required=True,
                format_func=lambda name: {"tpe": "TPE", "random": "Random"}[name],
                help="TPE tries what resembles the best trials so far; Random does not learn") or "tpe",
            "pruner": st.segmented_control(
                "Pruning", list(PRUNING), default="median", key="search/pruner", required=True,
                format_func=lambda name: PRUNING[name],
                help="Stops a trial early if its validation after an epoch is not good enough. Median: worse than the "
                     "median of the earlier trials at that epoch") or "median",
            "seed": int(st.number_input("Seed", 0, 2**31 - 1, 0, step=1, key="search/seed", width=120,
                                        help="Of the sampler and of every trial: the same seed gives the same trials, "
                                             "if one is trained at a time")),
            "device": form.ask_device("search/device"),
            "name": _ask(_edited(experiment), "name", f"{experiment.name}-{method}", lambda start: (
                st.text_input("Name", start, key=f"search/{experiment.name}/{method}/name", width=220,
                              help="Of the search's folder in runs/searches/"))).strip()}


def _offer_search(search: Search, ready: bool) -> None:
    """Say what is tried and how long it takes at most, and offer to start."""
    def sentence() -> None:
        if not ready:
            st.markdown(NO_DATA)
            return
        config, upto = base_config(search), "up to " * (search.pruner != "none")
        length = f" of {messages.count(config.part(Training).epochs, 'epoch')}" * all(
            one.key != "epochs" for one in search.ranges)
        what = f"**{search.trials} trials**{length} over {messages.escape(labels.ranges_words(search.ranges))}"
        if search.trials <= TIMED:
            estimates.show(f"{what}, {{time}}", [config] * search.trials, known=f"{upto}{{time}}, one after the other")
        else:
            estimates.show(f"{what}, {{time}}", [config], known=f"each {upto}{{time}}")

    start, = _show_line(sentence, lambda: st.button("Start", key="search/start", type="primary",
                                                    icon=":material/play_arrow:", disabled=not ready))
    if outside := defaults_outside(search):
        st.caption(messages.escape(f"The first trial is not the default: {', '.join(outside)} is outside its range"))
    else:
        st.caption("The first trial is the default, so the best settings are at least as good on the validation data")
    if not start:
        return
    try:
        check_data(check_search(search), services().data_root)
        services().searches.check()
        SearchStore(services().store).write(search)
        services().searches.start(search)
    except (UserError, OSError) as error:
        messages.error(error)
        return
    for part in ("fields", "settings"):  # the next form of this experiment starts with the defaults
        st.session_state.pop(f"search/edited/{search.experiment}/{part}", None)
    links.SEARCHES.open(search.name)
    st.rerun()
