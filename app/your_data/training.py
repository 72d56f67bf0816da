"""An imported set: training in one click, and the answer: errors, the coupling found, and predictions."""

from __future__ import annotations

import shlex
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from acenode import experiments
from acenode.compare import study_answer
from acenode.compare.colours import NEUTRAL, PALETTE
from acenode.compare.fairness import parameter_counts
from acenode.compare.influence import FoundCoupling, coupling_text, found_coupling, is_uniform
from acenode.compare.study_grid import ACE, StudyGrid, make_grid, set_study
from acenode.data.named_set import NamedSet
from acenode.errors import UserError
from acenode.execution.predict import PredictedSeries, Predictor
from acenode.execution.study_run import queue_study
from acenode.runs.entry import Entry
from acenode.runs.questions import StudyStore

from .. import estimates, messages, navigation, run_tables
from ..questions import page as links
from ..results import CONFIG
from ..services import services
from . import sets

REFRESH = "2s"
FAIR = ("ACE and the same model without attention are trained with the same data, split, epochs and three seeds, and "
        "compared seed by seed. Of each run, the epoch with the best validation result is tested.")
PRESS = {"forecast": "Train to forecast", "fill": "Train to fill in", "classify": "Train to classify"}
HEADINGS = {"forecast": "Forecasts", "fill": "Filled in", "classify": "Classes"}
SEEN = {"forecast": "Dots are given, circles are what happened afterwards. Lines are forecasts.",
        "fill": "Dots are given, circles were held out. Lines are what the models fill in."}
PARTS = {"test": "test", "validation": "validation", "train": "training"}
DRAWN, ROW = 12, 130  # variables in the plot of predictions, and the pixels of each
MAP = 480  # pixels, the width of a coupling map
WRITTEN = 10  # variables up to which cells have numbers
BLUE, FAINTEST = (43, 98, 217), 0.03  # the colour of the largest share, and the opacity of the smallest
SCALE = [[opacity, f"rgba{(*BLUE, opacity or FAINTEST)}"] for opacity in (0.0, 1.0)]
EVEN = 0.179  # the luminance on which black and white are equally readable
PAGES = {False: (255, 255, 255), True: (15, 20, 29)}  # the backgrounds of light and dark pages, as in config.toml


def show(name: str) -> None:
    st.button("All sets", key="your-data/back", icon=":material/arrow_back:", type="tertiary",
              on_click=st.query_params.pop, args=(sets.SET, None))  # type: ignore[arg-type]
    try:
        found = sets.load(name)
    except UserError as error:
        st.title(messages.escape(name))
        sets.show_error(error)
        return
    st.title(messages.escape(found.title or name))
    st.caption(messages.escape(f"{sets.TASKS[found.task]}. {found.note}"))
    grid = _show_training(name, found.task)
    answered = grid is not None and grid.finished > 0
    if grid is not None and answered:
        _show_answer(found, grid)
    with st.expander("The data", icon=":material/table_chart:", expanded=not answered):
        sets.show_counts(found, sets.window_of(name))
        sets.show_variables(found, f"your-data/{name}/preview")


def _show_training(name: str, task: str) -> StudyGrid | None:
    try:
        entries = services().catalogue.entries()
        # at first the epochs of the newest run on the set, so that its answer is shown again
        newest = next((entry.epochs for entry in entries if entry.experiment == name and entry.epochs), 0)
        usual = newest or int(experiments.get(name).configure(ACE).get("epochs"))
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            button = st.container(width="content")
            epochs = int(st.number_input("Epochs", 1, 10_000, usual, key=f"your-data/{name}/epochs", width=140))
        study = set_study(name, task, epochs)
        grid = make_grid(study, entries)
        todo = [cell.config for cell in grid.wanted]
        about = f"{len(todo)} of {len(grid.cells)} runs are missing" if todo else "All runs are there"
        with button:
            pressed = st.button(PRESS[task], type="primary", icon=":material/play_arrow:", disabled=not todo,
                                key=f"your-data/{name}/train", help=about)
        if todo:
            estimates.show(f"**{messages.count(len(todo), 'run')}**, {{time}}{{order}}", todo)
        beside = "Majority class and" if task == "classify" else "Last value, mean and"
        sizes = " and ".join(f"{count:,} in {row.name}" for row, count in zip(grid.rows, parameter_counts(grid),
                                                                              strict=True))
        st.caption(messages.escape(f"{FAIR} {beside} regression are computed on the same test part. Parameters: "
                                   f"{sizes}."))
        if pressed:
            store = StudyStore(services().store)
            if not store.exists(study.name):
                store.write(study)
            queue_study(grid, services().launcher, entries)
            st.rerun()
    except (UserError, OSError) as error:
        sets.show_error(error)
        return None
    for reason in {cell.entry.error for cell in grid.cells if cell.entry is not None and cell.entry.state == "failed"}:
        if reason:
            messages.error(reason)
    if grid.running:
        _show_progress(name, task, epochs, grid.finished)
    return grid


@st.fragment(run_every=REFRESH)
def _show_progress(name: str, task: str, epochs: int, finished: int) -> None:
    grid = make_grid(set_study(name, task, epochs), services().catalogue.entries())
    st.progress(grid.progress, f"Training: {grid.finished} of {len(grid.cells)} runs are finished")
    st.button("Stop", key=f"your-data/{name}/stop", icon=":material/stop:", on_click=links.stop_study,
              args=(grid,), help="Writes checkpoints; Train continues from them")
    if grid.finished != finished or not grid.running:
        st.rerun(scope="app")


def _show_answer(found: NamedSet, grid: StudyGrid) -> None:
    st.header("Answer", anchor=False)
    with st.spinner("Computing last value, mean and regression"):
        evaluated = study_answer.report(grid, study_answer.study_references(grid, services().data_root))
    if evaluated.answer.warning:
        messages.warning(evaluated.answer.warning)
    for sentence in (*(one.sentence for one in evaluated.answer.findings), *evaluated.answer.notes):
        st.markdown(messages.escape(sentence))
    table = study_answer.study_table(evaluated, cells=False)
    run_tables.show_texts([dict(zip(table.heads, row, strict=True)) for row in table.rows], "Results of all methods")
    about = [table.caption, study_answer.ridge_words(evaluated.references, found.task).capitalize(),
             "Errors are of standardised values; below, they are in own units" * (found.task != "classify")]
    st.caption(messages.escape(" ".join(f"{text}." for text in about if text)))
    if errors := study_answer.own_unit_errors(grid.rows):
        st.markdown("**Typical error of each variable, in its own unit** (root mean squared error on the test part)")
        run_tables.show_texts(errors, "Typical error of each variable")
    if grid.running:  # reading models takes time that training needs
        st.caption("The coupling and predictions appear when training has finished or was stopped.")
        return
    if (coupling := found_coupling(grid.rows[0])) is not None:
        _show_coupling(coupling, study_answer.coupling_caution(
            grid.rows[0], evaluated.references, grid.measure, found.task))
    st.header(HEADINGS[found.task], anchor=False)
    try:
        _show_predictions(found, grid)
    except UserError as error:
        sets.show_error(error)
    with st.container(horizontal=True, gap="medium"):
        if StudyStore(services().store).exists(grid.study.name):
            links.show_link("studies", "The study, with every run and its figures", study=grid.study.name)
        st.page_link(navigation.page(grid.study.experiment), label="Players, curves and all settings",
                     icon=":material/science:")
    best = next((cell.entry.id for cell in grid.rows[0].cells if cell.value is not None and cell.entry), None)
    if best is not None:
        where = shlex.quote(str(services().store.root))
        command = f"{messages.program()} predict {best} FILE --out predicted.csv --runs {where}"
        st.caption(f"Apply a model to new rows with `{command}`")


def _show_coupling(found: FoundCoupling, caution: str) -> None:
    st.header("Coupling found", anchor=False)
    st.markdown(messages.escape(f"Strongest influences: {coupling_text(found) or 'none'}. Averaged over test series, "
                                f"time and {messages.count(found.runs, 'run')} of ACE. {caution}"))
    if found.attention is not None and is_uniform(found.attention):
        st.caption(":material/info: All rows of the attention are nearly equal: it averages the variables and tells no "
                   "pairs apart")
    with st.container(horizontal=True, gap="small"):  # on narrow pages, one below the other
        for title, figure in coupling_figures(found, dark=st.context.theme.type == "dark").items():
            st.plotly_chart(figure, key=f"your-data/coupling/{title}", config=CONFIG, width=MAP)
    st.caption("Row i, column j: how much variable i draws on variable j. Attention: softmax(a(t)), rows sum to one. "
               "Influence: |∂ḣᵢ/∂hⱼ| as a share of the row. This is what the model uses, not what causes what: "
               "variables that move together can stand in for each other.")


def coupling_figures(found: FoundCoupling, *, dark: bool = False) -> dict[str, go.Figure]:
    """Draw attention and influence, as far as there are, for a dark page or a light one."""
    drawn, names = {}, [escape(name) for name in found.names]
    for title, z in (("Attention", found.attention), ("Influence", found.influence)):
        if z is None:
            continue
        largest = float(z.max()) or 1.0
        opacity = FAINTEST + (1 - FAINTEST) * z[..., None] / largest
        mixed = (opacity * BLUE + (1 - opacity) * PAGES[dark]) / 255
        linear = np.where(mixed <= 0.04045, mixed / 12.92, ((mixed + 0.055) / 1.055) ** 2.4)
        luminance = linear @ (0.2126, 0.7152, 0.0722)  # relative, as WCAG defines it
        numbers = [{"x": column, "y": row, "text": f"{share:.0%}", "showarrow": False,
                    "font": {"color": "white" if luminance[row, column] < EVEN else "black", "size": 12}}
                   for (row, column), share in np.ndenumerate(z)] if len(names) <= WRITTEN else []
        figure = go.Figure(go.Heatmap(z=np.round(z, 4), x=names, y=names, zmin=0, zmax=largest, colorscale=SCALE,
                                      xgap=1, ygap=1, showscale=False,
                                      hovertemplate="%{y} ← %{x}: %{z:.1%}<extra></extra>"))
        figure.update_layout(annotations=numbers, height=min(220 + 30 * len(names), 640),
                             margin={"l": 10, "r": 10, "t": 40, "b": 10}, title={"text": title, "font": {"size": 16}})
        figure.update_xaxes(type="category", showgrid=False, zeroline=False)
        figure.update_yaxes(type="category", showgrid=False, zeroline=False, autorange="reversed")
        drawn[title] = figure
    return drawn


def _show_predictions(found: NamedSet, grid: StudyGrid) -> None:
    """Ask for a series and a seed, and show what the models predict of it, in its own units."""
    runs = {row.name: {cell.repeat[0]: cell.entry for cell in row.cells if cell.value is not None and cell.entry}
            for row in grid.rows}
    seeds = sorted({seed for of_row in runs.values() for seed in of_row})
    part_of = {int(i): title for part, title in PARTS.items() for i in found.parts[part]}
    left, right, _ = st.columns([2, 1, 2])
    index = left.selectbox("Series", list(part_of), format_func=lambda i: f"{found.ids[i]} ({part_of[i]})",
                           key=f"your-data/{found.name}/series")
    seed = right.selectbox("Seed", seeds, key=f"your-data/{found.name}/seed")
    if index is None or seed is None:
        return
    predictors = {name: _predictor(own[seed].id, own[seed]) for name, own in runs.items() if seed in own}
    for words in dict.fromkeys(predictor.changed for predictor in predictors.values() if predictor.changed):
        messages.warning(words)
    if found.labels is not None and found.task == "classify":
        run_tables.show_texts([
            {"Model": name, **{f"Probability of {label}": f"{p:.1%}" for label, p in
                               zip(found.classes, predictor.classes_of(index), strict=True)}}
            for name, predictor in predictors.items()], "Probabilities of the classes")
        st.caption(f"The class of this series is {found.classes[int(found.labels[index])]}")
        return
    courses = {name: predictor.course(index) for name, predictor in predictors.items()}
    hidden = next(iter(predictors.values())).hidden(index) if found.task == "fill" else None
    st.plotly_chart(figure(found, index, courses, hidden), key="your-data/forecast", config=CONFIG)
    st.caption(SEEN[found.task])


@st.cache_resource(max_entries=8, show_spinner="Loading the models")
def _predictor(run: str, _entry: Entry) -> Predictor:
    return Predictor(_entry.run, services().data_root)


def figure(found: NamedSet, index: int, courses: dict[str, PredictedSeries], hidden: Any = None) -> go.Figure:
    """Draw observations and predictions, a row for each variable; times count from the start of the series."""
    record, drawn = found.series[index], sets.variables_figure(found, DRAWN, ROW, 100)
    given = record.seen(found.given)[:, None] & record.m if hidden is None else record.m & ~hidden
    t = record.t - record.t[0]
    for v in range(min(DRAWN, len(found.variables))):
        for title, points, symbol in (("Given", given[:, v], "circle"),
                                      ("Observed", (record.m & ~given)[:, v], "circle-open")):
            sets.add_series(drawn, v, title, t[points], record.x[points, v], mode="markers", legendgroup=title,
                            marker={"size": 6, "color": NEUTRAL, "symbol": symbol})
        for place, (name, course) in enumerate(courses.items()):
            line = {"color": PALETTE[place], "width": 2, "dash": "dot" if place else "solid"}
            sets.add_series(drawn, v, escape(name), course.t - record.t[0], course.x[:, v], mode="lines", line=line,
                            legendgroup=name)
    return drawn
