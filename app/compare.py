"""The page that compares runs: choose and group them; table, curves, differing settings, players and results."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from acenode import experiments
from acenode.results import statistics
from acenode.results.metric_format import MetricFormat
from acenode.results.run_groups import differing
from acenode.runs.entry import Entry

from . import components, filters, labels, live_runs, navigation, result_tabs, run_tables
from .services import services
from .url_state import keep_in_url, linked_runs, options, warn_about_missing

MAX_PLAYERS = 4  # side by side
MAX_CURVES = 40
MAX_PRESELECTED = 12
TABLE_HEIGHT = 320  # pixels
COLUMNS = ["Run", "Seed", "Data", "State", "Test result", "Best validation", "Created", "Device", "Code", "Tags",
           "Id"]
NFE = "Evaluations of f (NFE)"
STATES = ("finished", "running", "stopped", "failed", "interrupted")
BASELINES = ("ODE-Net", "Latent-ODE", "GRU-ODE-Bayes")  # methods without attention, one of each family


def show() -> None:
    """Show the page."""
    st.title("Compare")
    entries = [e for e in services().catalogue.entries() if e.state in STATES]
    if not entries:
        st.info("No runs to compare yet. Train a few first, for example with **Train the ablation set** on an "
                "experiment's page.", icon=":material/compare_arrows:")
        st.page_link(navigation.experiment(next(iter(experiments.EXPERIMENTS))), label="Open an experiment",
                     icon=":material/science:")
        return
    warn_about_missing(linked_runs(), {e.id for e in entries})
    chosen = _choose(filters.show(entries))
    if not chosen:
        st.info("Select runs with the checkboxes on the left of the table, or all of them with the one in its header.",
                icon=":material/touch_app:")
        return
    runs, baseline, epoch = _group(chosen)
    _show_table(statistics.compare(runs, baseline, epoch), baseline)
    group_of = dict(zip(runs["run"], runs["group"], strict=True))
    st.subheader("Curves")
    drawn = live_runs.for_charts(chosen[:MAX_CURVES], group_of)
    bands = st.toggle("Average over seeds", True, key="bands", bind="query-params",
                      help="One line for each group, with a band for the spread over its seeds")
    components.curves("compare-curves", drawn, labels.measure_of(chosen[0]), bands=bands)
    _show_differences(chosen)
    st.subheader("State h(t) and attention a(t)")
    if len(chosen) > MAX_PLAYERS:
        st.caption(f"The first {MAX_PLAYERS} of the chosen runs.")
    played = {e.id for e in chosen[:MAX_PLAYERS]}
    components.player("compare-player", [run for run in drawn if run["id"] in played])
    st.subheader("Results")
    if not any(e.state == "finished" for e in chosen):
        st.caption("None of these runs is finished yet.")
    result_tabs.show(chosen, "compare", group_of)


def _choose(entries: list[Entry]) -> list[Entry]:
    """Show the runs in a table and return the selected ones, which the URL keeps."""
    if not entries:
        st.caption("No run matches these filters.")
        return []
    chosen = run_tables.select("chosen", entries, COLUMNS, _preselected(entries), TABLE_HEIGHT)
    if chosen:
        keep_in_url([e.id for e in chosen])
    return chosen


def _preselected(entries: list[Entry]) -> list[int]:
    """Return the rows of the finished runs with the experiment and data of the newest finished run."""
    finished = [e for e in entries if e.state == "finished"] or entries
    kind = (finished[0].experiment, labels.data_title(finished[0]))
    rows = [i for i, e in enumerate(entries) if e in finished and (e.experiment, labels.data_title(e)) == kind]
    return rows[:MAX_PRESELECTED]


def _group(chosen: list[Entry]) -> tuple[pd.DataFrame, str, str]:
    """Ask how to group the runs; return them with their groups, the baseline's name, and `best` or `last` epoch."""
    with st.container(horizontal=True, gap="large", vertical_alignment="bottom"):
        by = st.selectbox("Group by", options("by", statistics.group_keys(chosen)), key="by", bind="query-params",
                          width=220, format_func=lambda k: "all settings but the seed"
                          if k == statistics.BY_SETTINGS else k)
        runs = statistics.grouped_frame(chosen, by or statistics.BY_SETTINGS)
        names = runs["group"].unique().tolist()
        baseline = st.selectbox("Baseline", options("base", names), _default_baseline(names), key="base",
                                bind="query-params", width=320)
        epoch = st.segmented_control("Parameters of", ["best", "last"], default="best", key="which", required=True,
                                     bind="query-params", format_func=lambda w: f"{w} epoch",
                                     help="Best epoch: the one with the best validation result")
    return runs, baseline if baseline in names else names[_default_baseline(names)], epoch or "best"


def _default_baseline(names: list[str]) -> int:
    return next((i for i, name in enumerate(names) if name.startswith(BASELINES)), 0)


def _show_table(groups: pd.DataFrame, baseline: str) -> None:
    """Show the means of all groups and their differences to the baseline."""
    metrics = set(groups["measure"])
    metric_title = _title(metrics)
    rows = []
    for name, group in groups.iterrows():
        metric = group["measure"]
        marks = " — baseline" * (name == baseline) + " — best" * bool(group["best"])
        rows.append({
            "Group": f"{name}{marks}", "n": group["n"], "Metric": metric.title,
            f"Test{metric_title}": _text(metric, group["test"], group["test_std"]),
            f"Validation{metric_title}": _text(metric, group["validation"], group["validation_std"]),
            "Difference to baseline": "" if name == baseline else "not comparable" if not group["comparable"] else
            "–" if pd.isna(group["difference"]) else metric.gap(group["difference"]),
            "Paper": group["paper"], "Parameters": " / ".join(f"{p:,}" for p in group["params"]),
            NFE: f"{group['nfe']:.0f}" if group["nfe"] > 0 else "–",
            "Training time": labels.duration(None if pd.isna(group["seconds"]) else group["seconds"])})
    hidden = ["Metric"] * (len(metrics) == 1) + ["Paper"] * (not groups["paper"].any())
    st.dataframe(pd.DataFrame(rows).drop(columns=hidden), hide_index=True, column_config={
        "n": st.column_config.NumberColumn(help="Number of runs with a result"),
        NFE: st.column_config.TextColumn(help="How often the solver evaluates f, the derivative of the state, in one "
                                                "forward pass")}, placeholder="")
    st.caption("Mean ± standard deviation over seeds."
               + " The paper's results are shown beside runs on the full data only." * ("Paper" in hidden))


def _text(metric: MetricFormat, mean: float, std: float) -> str:
    return metric.text(mean, None if pd.isna(std) else std)


def _title(metrics: set[MetricFormat]) -> str:
    """Return the metric's name for the column headers, if all groups have the same one."""
    if len(metrics) > 1:
        return ""
    (metric,) = metrics
    return f" {metric.title}" + ("" if metric.higher_is_better else " (lower is better)")


def _show_differences(chosen: list[Entry]) -> None:
    """Show the settings in which the runs differ, one column for each run."""
    st.subheader("Settings that differ")
    keys = differing(chosen)
    if not keys:
        st.caption(_ignored_differences(chosen))
        return
    columns = {f"{labels.method_title(e.experiment, e.method)} · seed {e.seed} · {e.id[-4:]}": e
               for e in chosen[:MAX_CURVES]}
    rows = [{"Setting": labels.setting(k), **{name: str(e.config.get(k, "–")) for name, e in columns.items()}}
            for k in keys]
    st.dataframe(pd.DataFrame(rows), hide_index=True, placeholder="")


def _ignored_differences(chosen: list[Entry]) -> str:
    """Name the settings that differ between runs of one group: seed, fold, device or recording settings."""
    names = [labels.setting(k).lower() for k in differing(chosen, ignored=frozenset())]
    if not names:
        return "No settings differ"
    if len(names) == 1:
        return f"Only the {names[0]} differs"
    return f"Only {', '.join(names[:-1])} and {names[-1]} differ"
