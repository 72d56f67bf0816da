"""The tour: five steps, each some sentences beside a picture that follows t. The URL has the step."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from acenode.compare.against_host import compared_cells, contests
from acenode.compare.cells import mean_text, measure_all, repeats_text
from acenode.compare.colours import class_colour
from acenode.compare.groups import method_title
from acenode.compare.paper import CELLS
from acenode.compare.verdict import MIN_RUNS, Contest, judge
from acenode.data.variables import SUBJECTS
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS
from acenode.player import attention, snapshots
from acenode.runs.entry import Entry

from . import components, home, labels, messages, navigation
from .components import PLAYER_START
from .services import services

PAPER = "https://doi.org/10.1145/3447548.3467419"
FLOWS = Path(__file__).parent / "assets" / "tour_flows.json"  # made by docs/make_tour.py
MIXING = 0.8  # largest weight of a row that mixes several coordinates
PREFERRED = ("physionet", "ushcn")  # experiments with pairwise attention; others follow
WORDS: dict[str, Any] = messages.words()["tour"]
STEPS: list[dict[str, str]] = WORDS["steps"]
SWAPS = {"line": "Single coordinate", "augmented": "One more coordinate"}


def show() -> None:
    number = {str(n): n for n in range(1, len(STEPS) + 1)}.get(st.query_params.get("step", ""), 1)
    step, entries = STEPS[number - 1], services().catalogue.entries()
    st.title("What is ACE-NODE?")
    with st.container(horizontal=True, gap="small", key="tour-steps"):
        for n, one in enumerate(STEPS, 1):
            st.button(one["name"], icon=f":material/counter_{n}:", key=f"tour/{n}", on_click=go, args=(n,),
                      type="primary" if n == number else "tertiary")
    with st.container(key="tour-body"):
        words, picture = st.columns([3, 7], gap="large")
        with words:
            st.header(f"{number}. {step['heading']}", anchor=False)
            text = step["text"]
            if "{subject}" in text:
                text = text.replace("{subject}", subject(pairwise_run(entries)))
            st.markdown(text)
            st.code(step["formula"], language=None, wrap_lines=True)
            st.caption(f"{step['equation']} of [the paper]({PAPER}) · “{step['section']}” in `docs/concepts.md`")
            with st.container(horizontal=True, gap="medium", key="tour-turn"):
                if number > 1:
                    st.button("Back", icon=":material/arrow_back:", key="tour/back", on_click=go, args=(number - 1,))
                if number < len(STEPS):
                    st.button(f"Next: {STEPS[number]['name']}", icon=":material/arrow_forward:", key="tour/next",
                              on_click=go, args=(number + 1,), type="primary")
                elif st.button("Train one yourself", icon=":material/play_arrow:", key="tour/train", type="primary"):
                    st.switch_page(navigation.page("mnist"))
        with picture, st.container(key=f"tour-step-{number}"):
            if not PICTURES[number - 1](entries):
                st.info(WORDS["no_run"], icon=":material/info:")
    components.show("page_top", "tour-top", {"shown": number})


def go(number: int) -> None:
    st.query_params.from_dict({"step": str(number)})


def _show_picture(kind: str, start_at: float, data: dict[str, Any]) -> None:
    components.show("tour", f"tour-{kind}", {"kind": kind, "startAt": start_at, **data})


def _show_flow(entries: list[Entry]) -> bool:
    _show_picture("flow", 0.35, {"flow": {k: v for k, v in flows()["moons"].items() if k != "parameters"}})
    return True


def _show_swap(entries: list[Entry]) -> bool:
    swaps = [{"name": title, "h": flows()[name]["h"], "error": flows()[name]["error"]} for name, title in SWAPS.items()]
    _show_picture("swap", 0.2, {"swaps": swaps})
    st.page_link(navigation.page("playground"), label=navigation.PLAYGROUND, icon=":material/toys:")
    return True


def _show_attended(entries: list[Entry]) -> bool:
    entry = pairwise_run(entries)
    found = attended(entry, PLAYER_START) if entry else None
    if entry is None or found is None:
        return False
    _show_picture("attend", PLAYER_START, found)
    _show_source(entry)
    return True


def _show_evolving(entries: list[Entry]) -> bool:
    entry = pairwise_run(entries) or next((kinds["evolving"] for kinds in home.examples(entries).values()), None)
    if entry is None:
        return False
    with st.container(key="tour-player"):
        components.player("tour-player-runs", labels.for_charts([entry]), start_at=PLAYER_START)
    _show_source(entry)
    return True


def _show_kinds(entries: list[Entry]) -> bool:
    examples = home.examples(entries)
    if examples:
        scored = st.container(key="tour-scores")
        experiment = home.show_player(examples)
        for metric, rows, finding in scores(experiment, entries):
            card = home.card_html(EXPERIMENTS[experiment].title, metric, (
                "Attention", "Mean ± standard deviation", "Runs"), [[escape(text) for text in row] for row in rows],
                finding, "finding")
            scored.html(f'<div class="ace-results">{card}</div>')
    return bool(examples)


PICTURES = (_show_flow, _show_swap, _show_attended, _show_evolving, _show_kinds)


def _show_source(entry: Entry) -> None:
    st.caption(messages.escape(
        f"{method_title(entry.experiment, entry.method)} on {EXPERIMENTS[entry.experiment].title}, seed {entry.seed}, "
        f"recorded: {labels.provenance(entry)}. {WORDS['about'].get(entry.experiment, '')}"))


@cache
def flows() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FLOWS.read_text(encoding="utf-8"))
    return found


def pairwise_run(entries: list[Entry]) -> Entry | None:
    """Return a recorded run of ACE with evolving pairwise attention and snapshots, the preferred experiment first, and
    in it the run that `home.rank` puts first."""
    found = [e for e in entries if e.recorded and e.method == "ace" and e.config.get("attention") == "evolving"]
    found.sort(key=lambda e: (PREFERRED.index(e.experiment) if e.experiment in PREFERRED else len(PREFERRED),
                              home.rank(e)))
    return next((e for e in found if _last(e) is not None), None)


def subject(entry: Entry | None) -> str:
    """Return what the samples of a run are, as in the player: patient, station, or sample if that is not known."""
    return SUBJECTS.get(entry.experiment, "sample") if entry else "sample"


def _last(entry: Entry) -> dict[str, np.ndarray] | None:
    """Return the arrays of a run's last snapshot, or None if it has no pairwise attention."""
    paths = entry.run.snapshots()
    found = snapshots.load(entry.run, paths[-1]) if paths else None
    if not isinstance(found, snapshots.Snapshot):
        return None
    return found.arrays if attention.kind_of(found.arrays) is attention.PAIRWISE else None


def attended(entry: Entry, start_at: float) -> dict[str, Any] | None:
    """Return what the picture of step 3 draws of a run: h, softmax(a) and h′ of all samples over time. At the share
    `start_at` of the time, it marks the row of the first sample that attention changes most, of those that mix several
    coordinates."""
    arrays = _last(entry)
    if arrays is None:
        return None
    h = arrays["h"].astype(np.float32)  # (T, B, d)
    frames, samples, size = h.shape
    weights = attention.weights(arrays["a"], attention.PAIRWISE, widest=size)  # softmax(a): (T, B, d, d)
    mixed = np.asarray((weights @ h[..., None])[..., 0])  # h′ (T, B, d): row i averages h with its weights (Eq. 4)
    top = float(weights.max())
    start = round(start_at * (frames - 1))
    mixes = weights[start, 0].max(-1) < MIXING
    changes = np.abs(mixed - h)[start, 0] * (mixes if mixes.any() else 1)
    try:
        axis = snapshots.time_axis(entry.run.config(), arrays)  # real time, as the player shows it
    except UserError:  # written by another version
        axis = None
    time = None if axis is None else {"ends": [float(arrays["t"][i]) * axis.scale for i in (0, -1)], "unit": axis.unit}
    names, classes = snapshots.names(arrays, samples), EXPERIMENTS[entry.experiment].classes
    kinds, colours = snapshots.labels(arrays, samples), None
    if names is None and kinds is not None and classes:
        names, colours = [f"{i + 1}: {classes[k]}" for i, k in enumerate(kinds)], [class_colour(k) for k in kinds]
    return {"row": int(changes.argmax()), "attend": {
        "frames": frames, "samples": samples, "size": size, "top": top, "subject": subject(entry).capitalize(),
        "time": time, "reach": float(max(np.abs(h).max(), np.abs(mixed).max())),
        "h": snapshots.to_base64(h.astype("<f4")), "attended": snapshots.to_base64(mixed.astype("<f4")),
        "weights": snapshots.to_base64(np.rint(weights * (255 / top)).astype(np.uint8)),
        "names": names or [str(i + 1) for i in range(samples)], "colours": colours}}


Scores = tuple[str, list[tuple[str, str, str]], str]  # the metric, (attention, mean, runs) of each kind, the finding


def scores(experiment: str, entries: list[Entry]) -> list[Scores]:
    """Return the measured results with attention evolving, fixed and off, of each metric of an experiment that has
    measured runs with evolving attention. Without attention, ACE is its host method."""
    measured = measure_all(e for e in entries if e.recorded and e.experiment == experiment)
    found: list[Scores] = []
    for (ace, host), contest in zip(compared_cells(), contests(measured), strict=True):
        if ace.experiment != experiment or not measured[ace.key].n:
            continue
        with_fixed = (experiment, "ace", ace.metric, {**ace.settings, "attention": "fixed"})
        fixed = next((c for c in CELLS.values() if (c.experiment, c.method, c.metric, c.settings) == with_fixed), None)
        rows = [(title, mean_text(cell, measured[cell.key]), repeats_text(measured[cell.key]))
                if cell and measured[cell.key].n else (title, "–", "not recorded")
                for title, cell in (("Evolving", ace), ("Fixed", fixed), ("None", host))]
        better = "higher is better" if ace.format.higher_is_better else "lower is better"
        found.append((f"Test {ace.format.heading}, {better}", rows, words(judge(contest))))
    return found


def words(finding: Contest) -> str:
    """Say whether evolving attention is better than none, as far as the runs can tell."""
    unknown = "Whether evolving attention is better than none cannot be told"
    if finding.interval is None:
        few = finding.reason.startswith("only ")
        return f"{unknown}: {f'at least {MIN_RUNS} runs of each are needed' if few else finding.reason}."
    sign = 1 if finding.higher_is_better else -1
    difference, low, high = (f"{sign * value:+.2g}".replace("-", "−") for value in (
        finding.advantage or 0.0, *finding.interval[::sign]))
    fewest = min(len(finding.ace), len(finding.other))
    count = f"{finding.pairs} pairs of runs" if finding.pairs else f"{fewest} runs each"
    numbers = f"evolving less none is {difference}{finding.unit}, 95% interval {low} to {high}, {count}"
    if finding.verdict == "open":
        return f"{unknown}: {numbers}, which includes zero."
    return f"Evolving attention is {'better' if finding.verdict == 'ahead' else 'worse'} than none: {numbers}."
