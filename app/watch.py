"""The lower half of an experiment's page: chosen runs live, their states over time, their results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from acenode.config import Config
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.results import metric_format
from acenode.runs.catalogue import Entry
from acenode.runs.store import Run

from . import components, labels, navigation, outcome, say
from .lab import lab

MOST = 8  # runs on one page


def start(experiment: Experiment, configs: list[Config]) -> None:
    """Queue runs and show them; what began stays in view, even if a later one could not."""
    begun: list[str] = []
    try:
        for config in configs:
            begun.append(lab().launcher.start(config).id)
    except (UserError, OSError) as error:
        say.trouble(error)
        if begun:
            say.late(f"{len(begun)} of {len(configs)} runs were queued before that")
            look_at(experiment, begun)
        return
    look_at(experiment, begun)
    st.rerun()


def look_at(experiment: Experiment, ids: list[str]) -> None:
    """Show these runs at the next run of the page, and bring them into view."""
    count = f"asked/{experiment.name}"
    st.session_state[count] = st.session_state.get(count, 0) + 1
    st.session_state[_key(experiment)] = ids[-MOST:]
    st.session_state["scroll"] = ",".join(ids)


def _key(experiment: Experiment) -> str:
    """Of the choice of runs. A new one where the page chooses, so that what a browser still says of the old one, on its
    way meanwhile, does not undo that."""
    asked = st.session_state.get(f"asked/{experiment.name}", 0)
    return f"shown/{experiment.name}" + (f"/{asked}" if asked else "")


def show(experiment: Experiment) -> None:
    entries = {e.id: e for e in lab().catalogue.entries() if e.experiment == experiment.name}
    if not entries:
        st.info("No run of this experiment yet. Press **Train**: the sample needs no download and takes a minute "
                "or two, and its curves and attention appear here while it trains.", icon=":material/play_arrow:")
        return
    chosen = [entries[name] for name in _choose(entries, _key(experiment))]
    if not chosen:
        st.info("Choose a run above to see its curves, its attention and its results.", icon=":material/touch_app:")
        return
    for entry in chosen:
        _controls(experiment, entry)
    drawn = traces(chosen)
    unit = metric_format.of(experiment.metric.name, experiment.name)
    components.curves("curves", drawn, unit, scroll=st.session_state.pop("scroll", None))
    st.subheader("h(t) and its attention")
    components.player("player", drawn)
    outcome.tiles(chosen)
    outcome.tabs(chosen, "watch")


def traces(entries: list[Entry], groups: dict[str, str] | None = None) -> list[dict[str, object]]:
    """The runs as the charts want them, a colour a run, or a group where runs' ids are given one."""
    names = [groups[e.id] if groups else labels.label(e) for e in entries]
    colour = labels.colours(names)
    return [{"id": e.id, "label": labels.label(e), "group": name, "colour": colour[name],
             "live": e.busy} for e, name in zip(entries, names, strict=True)]


def _choose(entries: dict[str, Entry], key: str) -> list[str]:
    """Which runs, kept in the URL; to begin with what trains, or the latest."""
    if key not in st.session_state:
        wanted = list(dict.fromkeys(n for n in st.query_params.get("runs", "").split(",") if n))[:MOST]
        busy = [e.id for e in entries.values() if e.busy]
        st.session_state[key] = wanted or busy[:MOST] or list(entries)[:1]
    gone = [n for n in st.session_state[key] if n not in entries]
    if gone:
        st.session_state[key] = [n for n in st.session_state[key] if n in entries]
        st.caption(f"Not there any more: {say.plain(', '.join(gone))[:300]}")
    shown = st.multiselect("Runs shown", list(entries), key=key, max_selections=MOST,
                           format_func=lambda n: labels.label(entries[n]))  # never the state: a choice is known by it
    if st.query_params.get("runs", "") != ",".join(shown):
        st.query_params["runs"] = ",".join(shown)
    return shown


def _controls(experiment: Experiment, entry: Entry) -> None:
    """What can be done with a run in its state."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"{labels.ICONS[entry.state]} {say.plain(labels.label(entry))}", width="content")
        st.caption(entry.state, width="content")
        if entry.busy:
            _button("Stop", "stop", entry, lab().launcher.stop, "writes a checkpoint after this iteration")
        if entry.state in ("stopped", "failed", "interrupted"):
            _button("Resume", "play_arrow", entry, lab().launcher.resume, "goes on from the last good checkpoint")
        if entry.state in ("failed", "finished"):
            _button("Once more", "replay", entry, partial(_again, experiment),
                    "the same configuration from the beginning")
        if not entry.busy and st.button(
                "Repeat with changes", key=f"Repeat/{entry.id}", icon=":material/edit:", help="fills the form above"):
            st.switch_page(navigation.experiment(entry.experiment), query_params={"from": entry.id})
    if entry.error and entry.state in ("failed", "interrupted"):
        if entry.state == "failed":
            st.error(f"{say.plain(entry.error)}. Its curves up to there are below; Resume goes on from the last "
                     "good checkpoint.", icon=":material/error:")
        else:
            st.warning("The process that trained this run is gone. Its curves up to there are below; Resume goes on "
                       "from its last checkpoint.", icon=":material/bolt:")


def _again(experiment: Experiment, run: Run) -> None:
    look_at(experiment, [*st.session_state.get(_key(experiment), []), lab().launcher.retry(run).id])


def _button(title: str, icon: str, entry: Entry, act: Callable[[Run], None], help: str) -> None:
    def pressed() -> None:
        try:
            act(lab().store.open(entry.id))
        except (UserError, OSError) as error:  # somebody else was faster
            say.late(error)

    st.button(title, key=f"{title}/{entry.id}", icon=f":material/{icon}:", help=help, on_click=pressed)
