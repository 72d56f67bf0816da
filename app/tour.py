"""The tour: five steps, each some sentences beside a picture that follows t. The URL has the step.

A step has at most 90 words, and a symbol follows its plain name.
"""

from __future__ import annotations

import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from acenode.compare.against_host import contests
from acenode.compare.cells import mean_text, measure_all, repeats_text
from acenode.compare.colours import class_colour
from acenode.compare.groups import method_title
from acenode.compare.paper import CELLS, HOSTS, PaperCell
from acenode.compare.statistics import MIN_RUNS
from acenode.compare.verdict import Finding, judge
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


class TourStep(NamedTuple):
    """One step: its name in the list, its heading, its sentences, and where to read on."""

    name: str
    heading: str
    text: str  # `{subject}` in it is what the run's samples are, as their buttons say
    formula: str
    equation: str  # of the paper
    section: str  # of docs/concepts.md


STEPS = (
    TourStep("Points move", "A neural ODE moves points",
         "A layered network changes its state in steps. A neural ODE changes it continuously: a small network, the "
         "**rate of change (f)**, says how the **state (h)** moves at each place, and a solver follows it from "
         "**time (t)** 0 to 1.\n\nHere the inputs h(0) are two half moons that no straight line separates. The trained "
         "network moves every point along the arrows, until the classifier's straight line separates the colours. "
         "**Drag t, or press Play.**",
         "dh/dt = f(h, t)", "Equation 1", "A neural ODE moves points"),
    TourStep("No crossing", "Its paths cannot cross",
         "Two solutions of one ODE that meet are the same solution. So on a line, no point can overtake another.\n\n"
         "Both networks here were trained to swap two points. With a **single coordinate**, the best that training "
         "finds is to bring both to the middle. With **one more coordinate**, which starts at zero, the paths go "
         "around each other: an augmented neural ODE. ACE-NODE takes another way to make the state more expressive: "
         "attention. **Switch between the two and drag t.**",
         "h(0) → (h(0), 0)", "Proposition on crossing trajectories", "Trajectories cannot cross"),
    TourStep("Attention", "Attention re-weighs the state",
         "In ACE-NODE the rate of change does not read the state (h) itself, but an **attended state (h′)**. The "
         "**attention (a)** is a square table of scores; softmax turns each row into weights that add up to 100%. "
         "Coordinate i of h′ is the average of all coordinates of h with the weights of row i.\n\nThis is a recorded, "
         "trained run. **Choose a {subject}, point at a row, and drag t** to see which coordinates are mixed.",
         "h′ᵢ = Σⱼ softmax(a)ᵢⱼ hⱼ", "Equation 4", "Attention re-weighs h, and evolves too"),
    TourStep("It evolves", "Attention evolves too",
         "The attention is not computed once: it has an ODE of its own. It starts from the correlation of the first "
         "state (**how attention starts, q**), and a second network, the **rate of change of attention (g)**, moves it "
         "while f moves the state. Both read h′, so each steers the other.\n\n**Drag t** and watch the map of weights "
         "change. **Drag the epoch to 0:** before training, the weights hardly move; training g makes them evolve.",
         "dh/dt = f(h′, t)\nda/dt = g(h′, t)\na(0) = q(h(0))", "Equation 3", "Attention re-weighs h, and evolves too"),
    TourStep("Fixed or off", "What changes when it is fixed or off",
         "Attention can be **evolving**, as in ACE-NODE; **fixed**, computed anew from the state at every time; or "
         "**none**, which is the method that ACE-NODE extends. **Choose one below and see how the paths change.**\n\n"
         "Different paths do not mean better predictions. One run depends on its random seed, so the table has the "
         "mean over all recorded runs, and says what can be told from them.",
         "attention = evolving | fixed | none", "Table of ablations", "Ablations"),
)
SWAPS = {"line": "Single coordinate", "augmented": "One more coordinate"}
ABOUT = {"physionet": "The patients are in intensive care; the model summarises each patient in 20 numbers, the "
                      "coordinates of h.",
         "ushcn": "The stations are weather stations; the state of each station has 50 coordinates."}
NO_RUN = ("This step shows a recorded run of ACE, and there is none here. Set ACENODE_RECORDED to the folder of "
          "recorded runs (runs/paper in the repository), and restart the app.")
KINDS = {"evolving": "Evolving", "fixed": "Fixed", "none": "None"}


def show() -> None:
    """Show the page."""
    number = current()
    step, entries = STEPS[number - 1], services().catalogue.entries()
    st.title("What is ACE-NODE?")
    with st.container(horizontal=True, gap="small", key="tour-steps"):
        for n, one in enumerate(STEPS, 1):
            st.button(one.name, icon=f":material/counter_{n}:", key=f"tour/{n}", on_click=go, args=(n,),
                      type="primary" if n == number else "tertiary")
    with st.container(key="tour-body"):
        words, picture = st.columns([3, 7], gap="large")
        with words:
            st.header(f"{number}. {step.heading}", anchor=False)
            text = step.text
            if "{subject}" in text:
                text = text.replace("{subject}", subject(pairwise_run(entries)))
            st.markdown(text)
            st.code(step.formula, language=None, wrap_lines=True)
            st.caption(f"{step.equation} of [the paper]({PAPER}) · “{step.section}” in `docs/concepts.md`")
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
        st.button(f"Next: {STEPS[number].name}", icon=":material/arrow_forward:", key="tour/next", on_click=go,
                  args=(number + 1,), type="primary")
    elif st.button("Train one yourself", icon=":material/play_arrow:", key="tour/train", type="primary"):
        st.switch_page(navigation.page("mnist"))


# The pictures -------------------------------------------------------------------------------------------------------


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
        st.info(NO_RUN, icon=":material/info:")
        return
    _show_picture("attend", PLAYER_START, found)
    _show_source(entry)


def _show_evolving(entries: list[Entry]) -> None:
    entry = pairwise_run(entries) or next((kinds["evolving"] for kinds in recorded.examples(entries).values()), None)
    if entry is None:
        st.info(NO_RUN, icon=":material/info:")
        return
    with st.container(key="tour-player"):
        components.player("tour-player-runs", labels.for_charts([entry]), start_at=PLAYER_START)
    _show_source(entry)


def _show_kinds(entries: list[Entry]) -> None:
    examples = recorded.examples(entries)
    if not examples:
        st.info(NO_RUN, icon=":material/info:")
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
    st.caption(messages.escape(
        f"{method_title(entry.experiment, entry.method)} on {EXPERIMENTS[entry.experiment].title}, seed {entry.seed}, "
        f"recorded: {labels.provenance(entry)}. {ABOUT.get(entry.experiment, '')}"))


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
