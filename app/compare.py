"""Compare: choose runs, group them, pin a baseline; table, curves, settings that differ, players and results."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from acenode import experiments
from acenode.results import statistics
from acenode.results.metric_format import MetricFormat
from acenode.results.run_groups import differing
from acenode.runs.catalogue import Entry

from . import components, filters, labels, navigation, outcome, watch
from .address import chosen_first, options
from .lab import lab

PLAYED = 4  # players side by side
DRAWN = 40  # curves at a time
COUNTED = ("finished", "running", "stopped", "failed", "interrupted")


def show() -> None:
    st.title("Compare")
    entries = [e for e in lab().catalogue.entries() if e.state in COUNTED]
    if not entries:
        st.info("There is nothing to compare yet: train a few runs first, for example with **Train the ablation set** "
                "on an experiment's page.", icon=":material/compare_arrows:")
        st.page_link(navigation.experiment(next(iter(experiments.EXPERIMENTS))), label="Train some",
                     icon=":material/science:")
        return
    chosen = _choose(filters.show(entries))
    if not chosen:
        st.info("Choose runs in the table above: click its left edge, or the box at its top for all of them.",
                icon=":material/touch_app:")
        return
    runs, baseline, epoch = _arrange(chosen)
    _table(statistics.compare(runs, baseline, epoch), baseline)
    names = dict(zip(runs["run"], runs["group"], strict=True))
    st.subheader("Curves")
    drawn = watch.traces(chosen[:DRAWN], names)
    bands = st.toggle("One line a group, with a band over its seeds", True, key="bands", bind="query-params")
    components.curves("compare-curves", drawn, labels.measure_of(chosen[0]), bands=bands)
    _differences(chosen)
    st.subheader("Players")
    played = chosen[:PLAYED]
    if len(chosen) > PLAYED:
        st.caption(f"The first {PLAYED} of the chosen runs.")
    components.player("compare-player", [t for t in drawn if t["id"] in {e.id for e in played}])
    st.subheader("Results")
    if not any(e.state == "finished" for e in chosen):
        st.caption("None of these runs is finished yet.")
    outcome.tabs(chosen, "compare", names)


def _choose(entries: list[Entry]) -> list[Entry]:
    """Rows of a table, kept in the URL; to begin with the finished runs of the newest one's kind."""
    if not entries:
        st.caption("No run fits these filters.")
        return []
    names = [e.id for e in entries]
    state = st.dataframe(
        [{"run": labels.group(e), "seed": e.seed, "data": labels.data(e), "state": f"{labels.ICONS[e.state]} {e.state}",
          "test": labels.value(e, e.value), "best validation": labels.value(e, e.best),
          "tags": ", ".join(e.tags), "id": e.id} for e in entries],
        hide_index=True, height=min(38 + 35 * len(entries), 320), on_select="rerun", selection_mode="multi-row",
        key=f"chosen/{hash(tuple(names))}", selection_default=chosen_first("chosen", names, _alike(entries)))
    chosen = [entries[i] for i in state["selection"]["rows"] if i < len(entries)]
    text = ",".join(e.id for e in chosen)
    if text and st.query_params.get("runs", "") != text:
        st.query_params["runs"] = text
    return chosen


def _alike(entries: list[Entry]) -> list[int]:
    """The finished runs on the newest finished run's experiment and data."""
    done = [e for e in entries if e.state == "finished"] or entries
    kind = (done[0].experiment, labels.data(done[0]))
    return [i for i, e in enumerate(entries) if e in done and (e.experiment, labels.data(e)) == kind][:12]


def _arrange(chosen: list[Entry]) -> tuple[pd.DataFrame, str, str]:
    """Ask how to group the runs, which group is the baseline and which epoch's parameters count."""
    with st.container(horizontal=True, gap="large", vertical_alignment="bottom"):
        by = st.selectbox("Group by", options("by", statistics.group_keys(chosen)), key="by", bind="query-params",
                          width=220, format_func=lambda k: "all settings but the seed"
                          if k == statistics.BY_SETTINGS else k)
        runs = statistics.grouped_frame(chosen, by or statistics.BY_SETTINGS)
        names = runs["group"].unique().tolist()
        base = st.selectbox("Baseline", options("base", names), _plain(names), key="base",
                            bind="query-params", width=320)
        epoch = st.segmented_control("Parameters of", ["best", "last"], default="best", key="which", required=True,
                                     bind="query-params", format_func=lambda w: f"{w} epoch",
                                     help="the epoch that validation found best, or the last one")
    return runs, base if base in names else names[_plain(names)], epoch or "best"


def _plain(names: list[str]) -> int:
    """ODE-Net, Latent-ODE or GRU-ODE-Bayes, where there is one."""
    plain = ("ODE-Net", "Latent-ODE", "GRU-ODE-Bayes")
    return next((i for i, name in enumerate(names) if name.startswith(plain)), 0)


def _table(groups: pd.DataFrame, baseline: str) -> None:
    """Show the comparison of the groups with the baseline."""
    units = set(groups["measure"])
    in_unit = _said(units)
    rows = []
    for name, group in groups.iterrows():
        unit = group["measure"]
        marks = " — baseline" * (name == baseline) + " — best" * bool(group["best"])
        rows.append({
            "group": f"{name}{marks}", "n": group["n"], "metric": unit.title,
            f"test{in_unit}": _text(unit, group["test"], group["test_std"]),
            f"validation{in_unit}": _text(unit, group["validation"], group["validation_std"]),
            "to baseline": "" if name == baseline else "another question" if not group["comparable"] else
            "–" if pd.isna(group["difference"]) else unit.gap(group["difference"]),
            "paper": group["paper"], "parameters": " / ".join(f"{p:,}" for p in group["params"]),
            "NFE": f"{group['nfe']:.0f}" if group["nfe"] > 0 else "–",
            "time": labels.duration(None if pd.isna(group["seconds"]) else group["seconds"])})
    hidden = ["metric"] * (len(units) == 1) + ["paper"] * (not groups["paper"].any())
    st.dataframe(pd.DataFrame(rows).drop(columns=hidden), hide_index=True)
    if "paper" in hidden:
        st.caption("The paper's numbers stand beside runs on the full data only.")


def _text(unit: MetricFormat, mean: float, std: float) -> str:
    return unit.text(mean, None if pd.isna(std) else std)


def _said(units: set[MetricFormat]) -> str:
    """What the columns hold, where all groups hold the same."""
    if len(units) > 1:
        return ""
    (unit,) = units
    return f" {unit.title}" + ("" if unit.higher_is_better else " (less is better)")


def _differences(chosen: list[Entry]) -> None:
    st.subheader("Settings that differ")
    keys = differing(chosen)
    if not keys:
        st.caption("Only the seed differs")
        return
    columns = {f"{labels.method_title(e.experiment, e.method)} · seed {e.seed} · {e.id[-4:]}": e
               for e in chosen[:DRAWN]}
    st.dataframe([{"setting": k, **{name: str(e.config.get(k, "–")) for name, e in columns.items()}} for k in keys],
                 hide_index=True)
