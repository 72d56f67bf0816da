"""The tour: five steps, each some sentences beside a picture that follows t. The URL has the step."""

from __future__ import annotations

from html import escape

import streamlit as st

from acenode.compare.groups import method_title
from acenode.experiments import EXPERIMENTS
from acenode.runs.entry import Entry

from .. import components, labels, messages, navigation
from ..home import recorded_player
from ..playground import texts as playground_texts
from ..services import services
from . import data as tour_data
from .scores import AttentionScores, scores
from .texts import ABOUT, NO_RUN, PAPER, STEPS, TITLE, TourStep

START = 0.35  # t of the pictures at first


def show() -> None:
    """Show the page."""
    number = current()
    st.title(TITLE)
    _show_list(number)
    with st.container(key="tour-body"):
        words, picture = st.columns([3, 7], gap="large")
        with words:
            _show_words(number, STEPS[number - 1])
        with picture, st.container(key=f"tour-step-{number}"):
            (_show_flow, _show_swap, _show_attended, _show_player, _show_kinds)[number - 1]()
    components.page_top("tour-top", number)


def current() -> int:
    """Return the number of the step in the URL, from 1 on; 1 if it has none."""
    text = st.query_params.get("step", "")
    return int(text) if text.isdecimal() and text.isascii() and 1 <= int(text[:3]) <= len(STEPS) else 1


def go(number: int) -> None:
    """Write a step to the URL, which adds it to the browser's history."""
    st.query_params.from_dict({"step": str(number)})


def _show_list(current: int) -> None:
    with st.container(horizontal=True, gap="small", key="tour-steps"):
        for number, step in enumerate(STEPS, 1):
            st.button(step.name, icon=f":material/counter_{number}:", key=f"tour/{number}", on_click=go, args=(number,),
                      type="primary" if number == current else "tertiary")


def _show_words(number: int, step: TourStep) -> None:
    st.header(f"{number}. {step.heading}", anchor=False)
    st.markdown(_text(step))
    st.code(step.formula, language=None, wrap_lines=True)
    st.caption(f"{step.equation} of [the paper]({PAPER}) · “{step.section}” in `docs/concepts.md`")
    with st.container(horizontal=True, gap="medium", key="tour-turn"):
        if number > 1:
            st.button("Back", icon=":material/arrow_back:", key="tour/back", on_click=go, args=(number - 1,))
        if number < len(STEPS):
            st.button(f"Next: {STEPS[number].name}", icon=":material/arrow_forward:", key="tour/next", on_click=go,
                      args=(number + 1,), type="primary")
        elif st.button("Train one yourself", icon=":material/play_arrow:", key="tour/train", type="primary"):
            st.switch_page(navigation.experiment("mnist"))


def _text(step: TourStep) -> str:
    """Return the sentences of a step, with the word for what the picture offers to choose from."""
    if "{subject}" not in step.text:
        return step.text
    entry = tour_data.pairwise_run(services().catalogue.entries())
    return step.text.replace("{subject}", tour_data.subject(entry))


def _show_flow() -> None:
    components.tour_picture("tour-flow", "flow", tour_data.flow(), START)


def _show_swap() -> None:
    components.tour_picture("tour-swap", "swap", tour_data.swaps(), 0.2)
    st.page_link(navigation.playground(), label=playground_texts.LINK, icon=":material/toys:")


def _show_attended() -> None:
    entry = tour_data.pairwise_run(services().catalogue.entries())
    found = tour_data.attended(entry, recorded_player.START) if entry else None
    if entry is None or found is None:
        st.info(NO_RUN, icon=":material/info:")
        return
    components.tour_picture("tour-attend", "attend", found, recorded_player.START)
    _show_source(entry)


def _show_player() -> None:
    entries = services().catalogue.entries()
    examples = recorded_player.examples(entries)
    entry = tour_data.pairwise_run(entries) or (examples[0].runs["evolving"] if examples else None)
    if entry is None:
        st.info(NO_RUN, icon=":material/info:")
        return
    with st.container(key="tour-player"):
        components.player("tour-player-runs", labels.for_charts([entry]), start_at=recorded_player.START)
    _show_source(entry)


def _show_kinds() -> None:
    entries = services().catalogue.entries()
    examples = recorded_player.examples(entries)
    if not examples:
        st.info(NO_RUN, icon=":material/info:")
        return
    scored = st.container(key="tour-scores")
    experiment = recorded_player.show(examples).experiment
    with scored:
        for found in scores(experiment, entries):
            _show_scores(found, EXPERIMENTS[experiment].title)


def _show_scores(found: AttentionScores, title: str) -> None:
    """Show a table of kinds of attention, and what can be told from it."""
    rows = "".join(f"<tr><td>{escape(r.kind)}</td><td>{escape(r.value)}</td><td>{escape(r.runs)}</td></tr>"
                   for r in found.rows)
    st.html(f'<div class="ace-results"><section><h3>{escape(title)}</h3><p>{escape(found.metric)}</p><table><thead><tr>'
            "<th>Attention</th><th>Mean ± standard deviation</th><th>Runs</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
            f'<p class="finding">{escape(found.finding)}</p></section></div>')


def _show_source(entry: Entry) -> None:
    """Say which run is shown and what its patients or stations are."""
    st.caption(messages.escape(
        f"{method_title(entry.experiment, entry.method)} on {EXPERIMENTS[entry.experiment].title}, seed {entry.seed}, "
        f"recorded: {labels.provenance(entry)}. {ABOUT.get(entry.experiment, '')}"))
