"""The tour: five steps, each some sentences beside a picture that follows t. The URL has the step."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from acenode.compare.against_host import contests
from acenode.compare.cells import mean_text, measure_all, repeats_text
from acenode.compare.colours import class_colour
from acenode.compare.groups import method_title
from acenode.compare.paper import CELLS, HOSTS, PaperCell
from acenode.compare.verdict import MIN_RUNS, Finding, judge
from acenode.data.variables import SUBJECTS
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS
from acenode.player import attention, snapshots
from acenode.runs.entry import Entry

from . import components, labels, messages, navigation, recorded
from .components import PLAYER_START
from .services import services

PAPER = "https://doi.org/10.1145/3447548.3467419"
START = {"flow": 0.35, "swap": 0.2}  # t of the pictures at first
FLOWS = Path(__file__).parent / "assets" / "tour_flows.json"  # made by docs/make_tour.py
MIXING = 0.8  # largest weight of a row that mixes several coordinates
PREFERRED = ("physionet", "ushcn")  # experiments with pairwise attention; others follow


STEPS: list[dict[str, str]] = messages.words()["tour"]["steps"]
SWAPS = {"line": "Single coordinate", "augmented": "One more coordinate"}
KINDS = {"evolving": "Evolving", "fixed": "Fixed", "none": "None"}


def show() -> None:
    """Show the page."""
    number = current()
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
                _show_turns(number)
        with picture, st.container(key=f"tour-step-{number}"):
            PICTURES[number - 1](entries)
    components.show("page_top", "tour-top", {"shown": number})


def current() -> int:
    """Return the number of the step in the URL, from 1 on; 1 if it has none."""
    text = st.query_params.get("step", "")
    return int(text) if text.isdecimal() and text.isascii() and 1 <= int(text[:3]) <= len(STEPS) else 1


def go(number: int) -> None:
    """Write a step to the URL, which adds it to the browser's history."""
    st.query_params.from_dict({"step": str(number)})


def _show_turns(number: int) -> None:
    if number > 1:
        st.button("Back", icon=":material/arrow_back:", key="tour/back", on_click=go, args=(number - 1,))
    if number < len(STEPS):
        st.button(f"Next: {STEPS[number]['name']}", icon=":material/arrow_forward:", key="tour/next", on_click=go,
                  args=(number + 1,), type="primary")
    elif st.button("Train one yourself", icon=":material/play_arrow:", key="tour/train", type="primary"):
        st.switch_page(navigation.page("mnist"))


def _show_picture(kind: str, start_at: float, data: dict[str, Any]) -> None:
    components.show("tour", f"tour-{kind}", {"kind": kind, "startAt": start_at, **data})


def _show_flow(entries: list[Entry]) -> None:
    _show_picture("flow", START["flow"], {"flow": {k: v for k, v in flows()["moons"].items() if k != "parameters"}})


def _show_swap(entries: list[Entry]) -> None:
    swaps = [{"name": title, "h": flows()[name]["h"], "error": flows()[name]["error"]} for name, title in SWAPS.items()]
    _show_picture("swap", START["swap"], {"swaps": swaps})
    st.page_link(navigation.page("playground"), label=navigation.PLAYGROUND, icon=":material/toys:")


def _show_attended(entries: list[Entry]) -> None:
    entry = pairwise_run(entries)
    found = attended(entry, PLAYER_START) if entry else None
    if entry is None or found is None:
        st.info(messages.words()["tour"]["no_run"], icon=":material/info:")
        return
    _show_picture("attend", PLAYER_START, found)
    _show_source(entry)


def _show_evolving(entries: list[Entry]) -> None:
    entry = pairwise_run(entries) or next((kinds["evolving"] for kinds in recorded.examples(entries).values()), None)
    if entry is None:
        st.info(messages.words()["tour"]["no_run"], icon=":material/info:")
        return
    with st.container(key="tour-player"):
        components.player("tour-player-runs", labels.for_charts([entry]), start_at=PLAYER_START)
    _show_source(entry)


def _show_kinds(entries: list[Entry]) -> None:
    examples = recorded.examples(entries)
    if not examples:
        st.info(messages.words()["tour"]["no_run"], icon=":material/info:")
        return
    scored = st.container(key="tour-scores")
    experiment = recorded.show_player(examples)
    for metric, rows, finding in scores(experiment, entries):
        cells = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
        scored.html(
            f'<div class="ace-results"><section><h3>{escape(EXPERIMENTS[experiment].title)}</h3><p>{escape(metric)}'
            "</p><table><thead><tr><th>Attention</th><th>Mean ± standard deviation</th><th>Runs</th></tr></thead>"
            f'<tbody>{cells}</tbody></table><p class="finding">{escape(finding)}</p></section></div>')


PICTURES = (_show_flow, _show_swap, _show_attended, _show_evolving, _show_kinds)


def _show_source(entry: Entry) -> None:
    """Say which run is shown and what its patients or stations are."""
    about = messages.words()["tour"]["about"]
    st.caption(messages.escape(
        f"{method_title(entry.experiment, entry.method)} on {EXPERIMENTS[entry.experiment].title}, seed {entry.seed}, "
        f"recorded: {labels.provenance(entry)}. {about.get(entry.experiment, '')}"))


@cache
def flows() -> dict[str, Any]:
    """Return the trajectories of small trained flows, by name; `t` has their times."""
    found: dict[str, Any] = json.loads(FLOWS.read_text(encoding="utf-8"))
    return found


def pairwise_run(entries: list[Entry]) -> Entry | None:
    """Return a recorded run of ACE with evolving pairwise attention and snapshots, the preferred experiment first, and
    in it the run that `recorded.rank` puts first."""
    found = [e for e in entries if e.recorded and e.method == "ace" and e.config.get("attention") == "evolving"]
    found.sort(key=lambda e: (PREFERRED.index(e.experiment) if e.experiment in PREFERRED else len(PREFERRED),
                              recorded.rank(e)))
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
    """Return what the picture of step 3 draws of a run: h, softmax(a) and h′ of all samples over time.

    Args:
        start_at: the share of the time at which the picture starts. The row that is marked then is one of the first
            sample that mixes several coordinates, and of these the one that attention changes most.
    """
    arrays = _last(entry)
    if arrays is None:
        return None
    h = arrays["h"].astype(np.float32)  # (T, B, d)
    weights = softmax(arrays["a"])  # (T, B, d, d)
    mixed = mix(weights, h)
    top, (frames, samples, size) = float(weights.max()), h.shape
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


def softmax(a: np.ndarray) -> np.ndarray:
    """Return the weights of the attention logits; each row sums to one."""
    return attention.weights(a, attention.PAIRWISE, widest=a.shape[-1])


def mix(weights: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Return h′ (T, B, d): coordinate i is the average of h with the weights of row i (Eq. 4)."""
    return np.asarray((weights @ h[..., None])[..., 0])


# The scores ---------------------------------------------------------------------------------------------------------

Scores = tuple[str, list[tuple[str, str, str]], str]  # the metric, (attention, mean, runs) of each kind, the finding


def scores(experiment: str, entries: list[Entry]) -> list[Scores]:
    """Return the measured results with attention evolving, fixed and off, of each metric of an experiment that has
    measured runs with evolving attention."""
    measured = measure_all(e for e in entries if e.recorded and e.experiment == experiment)
    own = [c for c in CELLS.values() if c.experiment == experiment]

    def cell_of(ace: PaperCell, kind: str) -> PaperCell | None:
        """Return the measured cell of a kind of attention; without attention, ACE is its host method."""
        wanted = {"evolving": ("ace", ace.settings), "none": (HOSTS[experiment], ace.settings)}.get(
            kind, ("ace", {**ace.settings, "attention": kind}))
        found = ace if kind == "evolving" else next(
            (c for c in own if c.metric == ace.metric and (c.method, c.settings) == wanted), None)
        return found if found is not None and measured[found.key].n else None

    findings = [judge(c) for c in contests(measured) if c.ace or c.other]
    aces = [c for c in own if c.method == "ace" and not c.ablation and (measured[c.key].n or cell_of(c, "none"))]
    found: list[Scores] = []
    for ace, finding in zip(aces, findings, strict=True):
        if measured[ace.key].n:
            rows = [(title, "–", "not recorded") if (cell := cell_of(ace, kind)) is None else
                    (title, mean_text(cell, measured[cell.key]), repeats_text(measured[cell.key]))
                    for kind, title in KINDS.items()]
            better = "higher is better" if ace.format.higher_is_better else "lower is better"
            found.append((f"Test {ace.format.heading}, {better}", rows, words(finding)))
    return found


def words(finding: Finding) -> str:
    """Say whether evolving attention is better than none, as far as the runs can tell."""
    contest = finding.contest
    if finding.interval is None:
        few = finding.reason.startswith("only ")
        reason = f"at least {MIN_RUNS} runs of each are needed" if few else finding.reason
        return f"Whether evolving attention is better than none cannot be told: {reason}."
    sign = 1 if contest.higher_is_better else -1
    difference, low, high = (f"{sign * value:+.2g}".replace("-", "−") for value in (
        finding.advantage or 0.0, *finding.interval[::sign]))
    fewest = min(len(contest.ace), len(contest.other))
    count = f"{finding.pairs} pairs of runs" if finding.pairs else f"{fewest} runs each"
    numbers = f"evolving less none is {difference}{contest.unit}, 95% interval {low} to {high}, {count}"
    if finding.verdict == "open":
        return f"Whether evolving attention is better than none cannot be told: {numbers}, which includes zero."
    return f"Evolving attention is {'better' if finding.verdict == 'ahead' else 'worse'} than none: {numbers}."
