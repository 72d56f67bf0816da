"""The page with the paper's tables and figures, and the opened cell with its runs and those that it still needs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from acenode import experiments
from acenode.compare import cells as values
from acenode.compare import paper, paper_figures, reproduction
from acenode.compare.against_host import compared_cells, contests, prediction_note, summary, table
from acenode.compare.cells import CAMPAIGN_EPOCHS, Measured, counts, measure, measure_all, with_other_settings
from acenode.compare.paper import CELLS, TABLES, PaperCell, PaperTable
from acenode.compare.reproduction import USUAL_SEEDS, PlannedRun, Wanted, cell_plans, partial_data, time_of
from acenode.compare.result_charts import time_note
from acenode.compare.verdict import judge
from acenode.config import Config
from acenode.errors import UserError
from acenode.export.tables import PAPER_TABLES
from acenode.runs.entry import Entry

from . import components, form, labels, messages, navigation
from .results import CONFIG, FORMATS
from .services import services

PAPER = "ACE-NODE: Attentive Co-Evolving Neural Ordinary Differential Equations, KDD 2021"
COMPARED = ["Compared", "Verdict", "Difference", "95% interval", "ACE extends", "Runs"]  # the first four fit on a phone


def show() -> None:
    st.title("Paper")
    entries = services().catalogue.entries()
    measured = measure_all(entries)
    st.caption(f"Every table of results in {PAPER}, with the values measured here beside the printed ones")
    _show_answer(measured)
    st.caption(messages.escape(values.mark_legend()) + " Values are mean ± sample standard deviation. Click one to see "
               "its runs.")
    with st.container(horizontal=True):
        for kind, (title, mime) in FORMATS.items():
            st.download_button(f"Tables as {title}", PAPER_TABLES[kind](measured), f"paper-tables.{kind}", mime,
                               key=f"paper/download/{kind}", icon=":material/download:", on_click="ignore",
                               help="Printed and measured values of all tables")
    box = st.expander(TITLE, icon=":material/playlist_add:", key="paper/all", on_change="rerun")
    if box.open:
        with box:
            name = st.selectbox("Table", ["", *TABLES], key="paper/table", width=320,
                                format_func=lambda n: TABLES[n].title if n else ALL)
            planned = needed(TABLES[name].cells if name else CELLS.values(), entries)
            _offer(planned, entries, "paper-all", TABLE if name else ALL)
    opened: tuple[PaperTable, PaperCell] | None = None  # in the table where it was clicked, or the first that has it
    if (key := st.query_params.get("cell")) is not None:
        if key in CELLS:
            cell, clicked = CELLS[key], TABLES.get(st.query_params.get("table", ""))
            opened = clicked if clicked and cell in clicked.cells else TABLES[cell.table], cell
        else:
            messages.invalid(f"There is no cell {key[:80]!r} in the paper's tables. Choose one below.")
    for section in messages.words()["paper"]:
        names, notes = section["tables"], section["notes"]
        st.header(section["title"])
        _show_tables([TABLES[name] for name in names], f"paper-tables/{names[0]}", measured, entries, opened)
        if notes:
            st.caption("\n".join(f"- {messages.escape(note)}" for note in notes))
        own = (cell for name in names for cell in TABLES[name].cells if cell.table == name and not cell.ablation)
        _show_others(dict.fromkeys(cell.experiment for cell in own), f"paper/elsewhere/{names[0]}")
    st.header("Figures", anchor="figures")
    tabs = st.tabs(["Error over time", "t-SNE", "Attention over time"], key="figure", on_change="rerun",
                   bind="query-params")
    for tab, draw in zip(tabs, (show_errors, show_tsne, show_attention), strict=True):
        if tab.open:
            with tab:
                draw(measured)


def _show_answer(measured: dict[str, Measured]) -> None:
    """Say where ACE is ahead of the method it extends; the comparisons behind it can be unfolded."""
    findings = [judge(contest) for contest in contests(measured)]
    counted = values.count_sentence(map(values.shown_mark, measured.values()))
    rest = [prediction_note(findings), counted, values.length_sentence(measured)]
    st.markdown(f"**{messages.escape(summary(findings))}** {messages.escape(' '.join(filter(None, rest)))}")
    box = st.expander(f"The {len(findings)} comparisons, with their intervals", icon=":material/balance:",
                      key="paper/comparisons", on_change="rerun")
    if not box.open:
        return
    rows = []
    for texts, cells in zip(table(findings), compared_cells(), strict=True):
        row = {head: messages.escape(text) for head, text in texts.items()}
        for head, cell in zip(("Compared", "ACE extends"), cells, strict=True):  # link to the runs
            row[head] = f"[{row[head]}](paper?{urlencode({'cell': cell.key, 'table': cell.table})})"
        rows.append(row)
    with box:
        st.table(pd.DataFrame(rows)[COMPARED], hide_index=True, border="horizontal")
        st.caption("The links open the runs of ACE and of the method that it extends, in a new tab. Difference: ACE "
                   "minus that method, on the test set. Pairs have the same seed and fold, and their differences are "
                   "averaged; rows without pairs have the difference of the two means. A comparison is decided when "
                   "the 95% interval leaves out zero; of twenty intervals one does so by chance. Folds share training "
                   "data, so intervals over folds are somewhat too narrow.")


def _show_tables(tables: list[PaperTable], key: str, measured: dict[str, Measured], entries: list[Entry],
                 opened: tuple[PaperTable, PaperCell] | None) -> None:
    here = opened if opened is not None and opened[0] in tables else None
    end = tables.index(here[0]) + 1 if here is not None else len(tables)
    components.paper_tables(key, view(tables[:end], measured, here))
    if here is not None:
        show_cell(*here, measured[here[1].key], entries)
    if tables[end:]:
        components.paper_tables(f"{key}/rest", view(tables[end:], measured))


def view(tables: Iterable[PaperTable], measured: Mapping[str, Measured],
         opened: tuple[PaperTable, PaperCell] | None = None) -> dict[str, Any]:
    """Describe tables for the component `paper_tables`: texts only, which the browser never interprets as markup."""
    found = []
    for one in tables:
        best = set()  # the best printed value of a column, which the paper prints in bold
        for column in zip(*one.rows.values(), strict=True):
            if cells := [cell for cell in column if cell is not None]:
                choose = max if cells[0].format.higher_is_better else min
                best.add(choose(cells, key=lambda cell: cell.printed.mean).key)
        found.append({
            "name": one.name, "title": one.title, "caption": one.caption, "corner": "Method",
            "opened": opened[1].key if opened and opened[0] == one else None, "columns": list(one.columns),
            "rows": [{"label": label, "cells": [
                None if cell is None else _texts(cell, measured.get(cell.key, Measured()), cell.key in best)
                for cell in row]} for label, row in one.rows.items()]})
    return {"tables": found}


def _texts(cell: PaperCell, found: Measured, best: bool) -> dict[str, Any]:
    details = values.difference_text(cell, found), values.repeats_text(found), values.params_text(cell, found)
    return {"key": cell.key, "printed": values.printed_text(cell), "params": cell.printed.params or "", "best": best,
            "ours": values.mean_text(cell, found), "mark": values.shown_mark(found), "sign": values.mark_text(found),
            "details": " · ".join(filter(None, details)), "hint": found.note or "Show the runs of this cell"}


def _show_others(names: Iterable[str], key: str) -> None:
    found = [result for name in names for result in paper.PUBLISHED if result.experiment == name]
    if not found:
        return
    # the table is made when the expander is opened: its Markdown takes a browser long to draw
    box = st.expander(f"Later and elsewhere: {len(found)} published results", icon=":material/library_books:", key=key,
                      on_change="rerun")
    if not box.open:
        return
    with box:
        st.caption("Protocols differ in splits, preprocessing and choice of the epoch, so these values are not "
                   "comparable with the tables above or with each other across protocols. None was measured here.")
        st.table(pd.DataFrame([{
            "Method": messages.escape(f"{one.method}, {experiments.get(one.experiment).title}"),
            "Result": messages.escape(f"{one.metric} {one.value}"),
            "Protocol and source": f"{messages.escape(one.protocol)}. "
                                   f"[{messages.escape(one.source)}]({one.url})"}
            for one in found]), hide_index=True, border="horizontal")


TABLE_HEIGHT = 320  # pixels
COLUMNS = {
    "Open": st.column_config.LinkColumn("", display_text="Open", width="small"),
    "Epochs": st.column_config.NumberColumn(width="small"),
    "Seed": st.column_config.NumberColumn(width="small"),
    "Fold": st.column_config.NumberColumn(width="small"),
    "Snapshots": st.column_config.NumberColumn(
        width="small", help="Of state h(t) and attention a(t), for the player; some recorded runs have none."),
}
TITLE = "Train more runs"
CELL, TABLE, ALL = "This cell", "This table", "All tables"
COMPLETE = {CELL: "this cell", TABLE: "every cell of this table", ALL: "every cell"}
PLAN = (f"Planned are {USUAL_SEEDS} seeds (on USHCN the five folds). Runs on images have "
        f"{max(CAMPAIGN_EPOCHS.values())} epochs, a quarter of the paper's, others the default of their experiment.")


def show_cell(table: PaperTable, cell: PaperCell, measured: Measured, entries: list[Entry]) -> None:
    """Show the runs of a cell, player and curves of the selected one, and what is missing."""
    def close() -> None:
        for key in ("cell", "table"):
            st.query_params.pop(key, None)

    row, column = next((label, name) for label, cells in table.rows.items()
                       for name, other in zip(table.columns, cells, strict=True) if other == cell)
    title = f"{row}, {column}" if len(table.columns) > 1 else row
    with st.container(border=True, key="paper-cell"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.subheader(messages.escape(f"{table.title}: {title}"), anchor=False)
            st.button("Close", icon=":material/close:", key="paper/close", on_click=close)
        st.markdown(messages.escape(_summary(cell, measured)))
        if busy := sum(entry.busy and counts(cell, entry) for entry in entries):
            st.caption(f"{messages.count(busy, 'run')} of this cell queued or running")
        if measured.entries:
            entry = _choose(cell, measured)
            attends = entry.config.get("attention") not in (None, "none")
            what = "State h(t) and attention a(t)" if attends else "State h(t)"
            st.markdown(f"**{what}** of {messages.escape(labels.label(entry))}")
            components.player("paper-player", labels.for_charts([entry]))
            st.markdown("**Training curves**")
            components.curves("paper-curves", labels.for_charts([entry]), labels.measure_of(entry))
        else:
            others = ""
            if found := with_other_settings(cell, entries):
                runs = f"{messages.count(len(found), 'run')} with other settings or fewer epochs"
                link = f"/{cell.experiment}?runs={','.join(entry.id for entry in found)}"
                others = f"There {'are' if len(found) > 1 else 'is'} [{runs}]({link}). "
            st.info(f"No run counts for this cell yet. {others}Train them below.", icon=":material/flag:")
        st.markdown(f"**{TITLE}**")
        scope = st.segmented_control(f"{TITLE} for", [CELL, TABLE, ALL], default=CELL, required=True,
                                     key="paper/scope", label_visibility="collapsed") or CELL
        cells = {CELL: [cell], TABLE: list(table.cells), ALL: list(CELLS.values())}[scope]
        _offer(needed(cells, entries), entries, "paper", scope)


def _summary(cell: PaperCell, measured: Measured) -> str:
    unit, mark = cell.format.unit, values.mark_text(measured)
    printed = f"Paper {values.printed_text(cell)}{unit}"
    if not measured.n:
        return f"{printed} · {mark}."
    words = (printed, f"ours {values.mean_text(cell, measured)}{unit}", values.difference_text(cell, measured), mark,
             values.repeats_text(measured).partition(",")[0])
    return f"{' · '.join(filter(None, words))}." + f" {messages.capital(measured.note)}." * bool(measured.note)


def _choose(cell: PaperCell, measured: Measured) -> Entry:
    """Show the runs in a table and return the selected one, at first the first."""
    runs = list(measured.entries)
    if cell.folds:
        runs.sort(key=lambda entry: int(entry.config.get("fold") or 0))
    rows, digits, unit = [], values.cell_digits(cell), cell.format.unit
    for entry in runs:
        value = measure(cell, [entry]).mean
        rows.append({
            "Open": f"/{entry.experiment}?runs={entry.id}",
            messages.capital(cell.format.title): "–" if value is None else f"{value:.{digits}f}{unit}",
            "Seed": entry.seed, **({"Fold": entry.config.get("fold")} if cell.folds else {}), "Epochs": entry.epochs,
            "Snapshots": len(entry.run.snapshots()), "Source": "◆ recorded" if entry.recorded else "own",
            "Date": time.strftime("%Y-%m-%d", time.localtime(entry.created)) if entry.created else "",
            "Device": entry.device, "Training time": labels.duration(entry.seconds), "Run": entry.id})
    ids = tuple(entry.id for entry in runs)
    state = st.dataframe(pd.DataFrame(rows), hide_index=True, height=min(38 + 35 * len(runs), TABLE_HEIGHT),
                         on_select="rerun", selection_mode="single-row", key=f"paper/runs/{cell.key}/{hash(ids)}",
                         selection_default={"selection": {"rows": [0]}}, column_config=COLUMNS, placeholder="")
    return runs[next((i for i in state["selection"]["rows"] if i < len(runs)), 0)]


def needed(cells: Iterable[PaperCell], entries: Sequence[Entry]) -> list[PlannedRun]:
    """Return the runs that cells still need, those worth most first, each once: a run may count for several cells."""
    wanted, partial = Wanted(), partial_data(entries, services().data_root)
    return reproduction.queue(cell_plans(cells, entries, wanted, partial), entries, wanted, partial)


def recorded_time(configs: Iterable[Config], entries: Iterable[Entry]) -> str:
    """Say how long runs like these took where recorded runs were trained; empty if there are none."""
    by_device: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.recorded and entry.device:
            by_device.setdefault(entry.device, []).append(entry)
    if not by_device:
        return ""
    device, recorded = max(by_device.items(), key=lambda item: len(item[1]))
    wanted = list(configs)
    found = [time.seconds(config) for config in wanted if (time := time_of(config, recorded)) is not None]
    if not found:
        return ""
    least = "at least " * (len(found) < len(wanted))
    return f"{least}{labels.duration(sum(found))} on {device}, where similar runs were recorded"


def _offer(planned: list[PlannedRun], entries: list[Entry], key: str, scope: str) -> None:
    """Say how many runs are still planned; offer missing data, an estimate of the time, and then the queue."""
    if not planned:
        st.caption(f"Nothing to train: {COMPLETE[scope]} has as many runs as planned, or they are queued. {PLAN}")
        return
    lengths = {int(run.config.get("epochs")) for run in planned}
    each = f"{lengths.pop()} epochs" + " each" * (len(planned) > 1) if len(lengths) == 1 else ""
    runs = f"**{messages.count(len(planned), 'run')}** would give {COMPLETE[scope]} the planned seeds, folds and epochs"
    st.markdown(" · ".join(filter(None, (runs, each, recorded_time([run.config for run in planned], entries)))))
    st.caption(PLAN)
    needs = [(run, experiments.get(run.config.experiment)) for run in planned]
    waiting = [experiment for _, experiment in needs if not form.has_full_data(experiment)]
    for experiment in {e.source: e for e in reversed(waiting)}.values():  # two experiments may share their data
        form.show_full_data(experiment, key=f"{key}/download/{experiment.source}")
    ready = [run for run, experiment in needs if form.has_full_data(experiment)]
    if not ready:
        return
    if waiting:
        st.caption(f"{messages.count(len(waiting), 'run')} of these must wait for data that is not on this machine.")
    asked, title = [run.config for run in ready], f"Queue {messages.count(len(ready), 'run')}"
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.session_state.get(f"{key}/estimate", (None,))[0] != asked:
            if st.button("Estimate time here", key=f"{key}/how_long", icon=":material/timer:"):
                st.session_state[f"{key}/estimate"] = (asked, _estimate(asked))
                st.rerun()
            st.button(title, key=f"{key}/queue", disabled=True, icon=":material/playlist_add:",
                      help="Estimate the time first")
            return
        st.caption(messages.escape(st.session_state[f"{key}/estimate"][1]))
        if st.button(title, key=f"{key}/queue", type="primary", icon=":material/playlist_add:"):
            started, launcher = 0, services().launcher
            try:
                with launcher.queue_together():
                    for run in ready:
                        if run.resumes is None:
                            launcher.start(run.config)
                        else:
                            launcher.resume(services().store.open(run.resumes))
                        started += 1
            except (UserError, OSError) as error:
                messages.notify(error)
            messages.notify(f"{messages.count(started, 'run')} queued")
            st.rerun()
        st.page_link(navigation.page("runs"), label="All runs", icon=":material/list:")


def _estimate(configs: list[Config]) -> str:
    from acenode.execution.estimate import estimate  # loads torch

    with st.spinner("Estimating from earlier runs, or by timing a few iterations"):
        found = estimate(configs, services().catalogue, services().data_root)
    if found.seconds is None:
        return f"Time unknown here: {found.basis}"
    return f"About {labels.duration(found.seconds)} here, one after the other ({found.basis})"


_OBSERVED = ("The table has smaller values: as in the published code, a variable that a patient never has counts there "
             "as one without error. ")
OVER_TIME = {  # cells, and what the table counts instead
    "USHCN": (("ushcn", None, False),
              "The table counts the first three observations after the cut; these curves go on to the end. "),
    "PhysioNet extrapolation": (("physionet-vitals", "extrapolation", False), _OBSERVED),
    "PhysioNet interpolation": (("physionet-vitals", "interpolation", False), _OBSERVED),
    "Types of attention": (("physionet-vitals", "extrapolation", True), _OBSERVED)}


def show_errors(measured: dict[str, Measured]) -> None:
    name = st.segmented_control("Task", list(OVER_TIME), default="USHCN", key="paper/task", required=True,
                                label_visibility="collapsed") or "USHCN"
    task, counted = OVER_TIME[name]
    cells = paper_figures.over_time_cells(*task)
    lines = paper_figures.error_lines(cells, measured)
    if not lines:
        st.info(f"No finished run on the full data has errors over time for {name} yet. Click a cell of its table and "
                "train what is missing.", icon=":material/show_chart:")
        return
    note = next((line.first.unit_note for line in lines if line.first.unit_note), "")
    st.caption("Mean squared error by the time of the predicted value, over all predicted points. Lines: mean over the "
               f"runs. Bands: smallest to largest. {counted}{messages.escape(time_note(note))} "
               f"{messages.escape(paper_figures.smallest_error_sentence(lines))}")
    st.plotly_chart(paper_figures.errors(lines), key=f"paper/errors/{name}", config=CONFIG)
    drawn = {line.cell.key for line in lines}
    _note_missing([cell.title for cell in cells if cell.key not in drawn])


def show_tsne(measured: dict[str, Measured]) -> None:
    experiment, panels = paper_figures.tsne_panels(measured)
    if not panels:
        st.info("No finished image run on the full data has a t-SNE yet. Click a cell of CIFAR10's table and train "
                "what is missing.", icon=":material/scatter_plot:")
        return
    title = experiments.get(experiment).title
    instead = "" if experiment == "cifar10" else (
        f" The paper shows CIFAR10; {title} stands in until CIFAR10 has runs of all three methods.")
    st.caption(f"t-SNE of the features of {title}'s test images, before the last layer, coloured by class. Distances "
               f"between groups have no scale. The silhouettes are those of the features, not of the t-SNE.{instead}")
    with st.container(horizontal=True, gap="small"):
        for panel in panels:
            st.plotly_chart(paper_figures.tsne(panel), key=f"paper/tsne/{panel.entry.method}", width=280,
                            config=CONFIG)
    have = {panel.entry.method for panel in panels}
    _note_missing([labels.method_title(experiment, m) for m in paper_figures.TSNE_METHODS if m not in have])


def show_attention(measured: dict[str, Measured]) -> None:
    runs = paper_figures.attention_runs(measured)
    if not runs:
        st.info("No finished ACE run on the full data has snapshots yet. Click an ACE cell of a table and train what "
                "is missing.", icon=":material/grid_on:")
        return
    titles = {}
    for name in runs:
        experiment, _, task = name.partition("/")
        titles[name] = f"{experiments.get(experiment).title} {task}".strip()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Experiment", list(runs), key="paper/attention", width=280,
                            format_func=titles.__getitem__)
        entry = runs[name]
        first = paper_figures.attention_frames(entry.run)
        if first is None:
            st.info("The attention of this run cannot be drawn as a map.", icon=":material/grid_off:")
            return
        probe = st.selectbox("Sample", range(len(first.probes)), key=f"paper/probe/{name}", width=220,
                             format_func=lambda i: first.probes[i])
    found = paper_figures.attention_frames(entry.run, probe) or first
    low, high = float(found.maps.min()), float(found.maps.max())
    st.caption(f"{messages.escape(found.kind.title)}. From the snapshot after epoch {found.epoch} of "
               f"{messages.escape(labels.label(entry))}. All maps have one scale, from {low:.3g} (pale) to {high:.3g} "
               f"(blue). {messages.escape(found.measure.hint)}")
    with st.container(horizontal=True, gap="small"):
        for place in range(len(found.t)):
            st.plotly_chart(paper_figures.attention_map(found, place), key=f"paper/attention/{name}/{place}",
                            width=paper_figures.MAP_WIDTH, config={**CONFIG, "displayModeBar": False})


def _note_missing(titles: list[str]) -> None:
    if titles:
        st.caption(f"Not measured yet: {messages.escape(', '.join(titles))}")
