"""The form of a new search: which settings are tried and in which range, and what the trials share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import streamlit as st

from acenode import experiments
from acenode.config import SETTINGS, parse
from acenode.config.groups import Training
from acenode.config.ranges import BETWEEN, LOG, MAX_VALUES, SearchRange, read_range
from acenode.errors import UserError
from acenode.execution.study_run import check_data
from acenode.experiments import Experiment
from acenode.runs.questions import MAX_TRIALS, SAMPLERS, Search, SearchStore
from acenode.search.plan import base_config, check_search, defaults_outside
from acenode.search.sampling import load_optuna

from .. import estimates, form, labels, messages
from ..services import services
from .page import NO_DATA, action_line, ask_experiment, settings_of

PRUNING = {"median": "Median", "halving": "Halving", "hyperband": "Hyperband", "none": "None"}
SCALES = {"log": "Logarithmic", "linear": "Linear", "list": "List"}
TIMED = 200  # trials whose time is added up
USUAL = ("learning_rate",)  # searched unless the user chooses otherwise
FACTOR = 10.0  # from a default to the ends of its range
LOGARITHMIC = frozenset({"learning_rate", "penalty_weight", "weight_decay", "rtol", "atol", "step_size"})
T = TypeVar("T")


def show() -> None:
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
            st.session_state["search/experiment"] = name
            ask_experiment("search/experiment", width=220, on_change=lambda: st.query_params.from_dict(
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


def _edited(experiment: Experiment) -> dict[str, Any]:
    """Return what the user changed in the form, which is kept where another method or other data is chosen."""
    found: dict[str, Any] = st.session_state.setdefault(f"search/edited/{experiment.name}", {})
    return found


def _keep(experiment: Experiment, name: str, value: T, usual: T) -> T:
    """Remember a value that is not the usual one; forget the name if the user has chosen the usual value again."""
    edited = _edited(experiment)
    if value != usual:
        edited[name] = value
    elif edited.get(name) != value:  # what was entered elsewhere may happen to be the usual value here
        edited.pop(name, None)
    return value


def _ask_shared(experiment: Experiment, method: str, data: str) -> form.FormValues:
    edited = _edited(experiment).setdefault("shared", {})
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
    key, names = f"search/{experiment.name}/{method}/{data}", settings_of(experiment, [method])
    usual = [name for name in USUAL if name in names]
    start = _edited(experiment).get("settings", usual)
    chosen = st.multiselect("Settings to search", names, [name for name in start if name in names],
                            key=f"{key}/settings", format_func=labels.setting)
    _keep(experiment, "settings", [*chosen, *(name for name in start if name not in names)], usual)
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
    setting, title = SETTINGS[name], labels.setting(name)

    def ask(field: str, usual: Any, show: Callable[..., Any], **more: Any) -> Any:
        start = _edited(experiment).get(f"{name}/{field}", usual)
        return _keep(experiment, f"{name}/{field}", show(start, key=f"{key}/{field}", **more), usual)

    if setting.choices or setting.type is bool:
        choices = list(experiment.choices(name)) if setting.choices else ["false", "true"]
        values = ask("values", choices, partial(st.multiselect, title, choices), help=setting.help)
        if len(values) < 2:
            raise UserError("choose at least two values")
        return read_range(name, ",".join(values))
    usual = usual_range(name, default)
    scale = ask("scale", "log" if usual.log else "linear", lambda start, **more: st.segmented_control(
        title, list(SCALES), default=start, format_func=SCALES.__getitem__, required=True, **more), help=setting.help)
    if scale == "list":
        start = [usual.low, default if default is not None else usual.low, usual.high]
        text = ", ".join(dict.fromkeys(f"{value:g}" for value in start if value is not None))
        return listed(name, ask("values", text, partial(st.text_input, "Values"),
                                help="Separated by commas: 0, 0.0001, 0.001"))
    with st.container(horizontal=True, gap="small"):
        low = ask("low", f"{usual.low:g}", partial(st.text_input, "From"), width=120)
        high = ask("high", f"{usual.high:g}", partial(st.text_input, "To"), width=120)
    st.caption(f"Default: {messages.escape(labels.setting_value(default))}" if default is not None else
               "Applies to some trials only")
    return interval(name, low, high, log=scale == "log")


def _ask_how(experiment: Experiment, method: str) -> dict[str, Any]:
    usual = f"{experiment.name}-{method}"
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
            "name": _keep(experiment, "name", st.text_input(
                "Name", _edited(experiment).get("name", usual), key=f"search/{experiment.name}/{method}/name",
                width=220, help="Of the search's folder in runs/searches/"), usual).strip()}


def _offer_search(search: Search, ready: bool) -> None:
    line, sentence = action_line()
    with sentence:
        if ready:
            config, upto = base_config(search), "up to " * (search.pruner != "none")
            length = f" of {messages.count(config.part(Training).epochs, 'epoch')}" * all(
                one.key != "epochs" for one in search.ranges)
            what = f"**{search.trials} trials**{length} over {messages.escape(labels.ranges_words(search.ranges))}"
            if search.trials <= TIMED:
                estimates.show(f"{what}, {{time}}", [config] * search.trials,
                               known=f"{upto}{{time}}, one after the other")
            else:
                estimates.show(f"{what}, {{time}}", [config], known=f"each {upto}{{time}}")
        else:
            st.markdown(NO_DATA)
    start = line.button("Start", key="search/start", type="primary", icon=":material/play_arrow:", disabled=not ready)
    if outside := defaults_outside(search):
        st.caption(messages.escape(f"The first trial is not the default: {', '.join(outside)} is outside its range"))
    else:
        st.caption("The first trial is the default, so the best settings are at least as good on the validation data")
    if not start:
        return
    try:
        check_data(search, services().data_root)
        load_optuna()
        SearchStore(services().store).write(search)
        services().searches.start(search)
    except (UserError, OSError) as error:
        messages.error(error)
        return
    # the next form of this experiment starts with the defaults
    st.session_state.pop(f"search/edited/{search.experiment}", None)
    st.query_params.from_dict({"search": search.name})
    st.rerun()


def usual_range(key: str, default: Any) -> SearchRange:
    """Return the range that the form offers for a number: around the default, within the bounds of the setting."""
    setting = SETTINGS[key]
    bottom = float(setting.low if setting.low is not None else setting.above or 0.0)
    top = float(setting.high if setting.high is not None else 1.0)
    if setting.type is int:
        whole = int(default) if default is not None else int(bottom)
        low, high = max(int(bottom), whole // 2), min(int(top), max(2 * whole, int(bottom) + 1))
        return SearchRange(key, low, high if high > low else low + 1)
    middle = float(default) if default else 1e-3
    if key in LOGARITHMIC:
        return SearchRange(key, max(middle / FACTOR, bottom), min(middle * FACTOR, top), log=True)
    return SearchRange(key, max(bottom, middle / 2), min(top, 2 * middle))


def interval(name: str, low: str, high: str, *, log: bool) -> SearchRange:
    low, high = low.strip(), high.strip()
    for field, text in (("From", low), ("To", high)):
        if log and _number(text) <= 0:
            raise UserError(f"{field} must be above 0 on a logarithmic scale")
        _check(name, text, field)
    if not _number(low) < _number(high):
        raise UserError("From must be smaller than To")
    return read_range(name, f"{LOG if log else ''}{low}{BETWEEN}{high}")


def listed(name: str, text: str) -> SearchRange:
    values = [value.strip() for value in text.split(",") if value.strip()]
    if any(BETWEEN in value or value.startswith(LOG) for value in values):
        raise UserError("Values are single numbers, separated by commas: for a range, choose Logarithmic or Linear")
    different = {_check(name, value, "Values") for value in values}
    if len(different) < 2:
        raise UserError("Give at least two values, separated by commas, or choose Logarithmic or Linear for a range")
    if len(different) > MAX_VALUES:
        raise UserError(f"Give at most {MAX_VALUES} values, or choose Logarithmic or Linear for a range")
    return read_range(name, ",".join(values))


def _check(name: str, text: str, field: str) -> object:
    """Return the value of a setting; an error names the field and the setting's title."""
    if not text:
        raise UserError(f"{field}: enter {'a whole number' if SETTINGS[name].type is int else 'a number'}")
    try:
        return parse(name, text)
    except UserError as error:
        raise UserError(f"{field}: {str(error).replace(name, labels.setting(name).lower(), 1)}") from None


def _number(text: str) -> float:
    """Return the number that a text is; infinity if it is none, which `_check` reports."""
    try:
        return float(text)
    except ValueError:
        return float("inf")
