"""Compare: choose runs, group them, pin a baseline; table, curves, settings that differ, players and results."""

from __future__ import annotations

import streamlit as st

from acenode import experiments
from acenode.results.metric_format import MetricFormat
from acenode.runs.catalogue import Entry

from . import components, filters, groups, labels, navigation, outcome, watch
from .address import chosen_first, options
from .groups import Group
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
    found, base, which = _arrange(chosen)
    _table(found, base, which)
    st.subheader("Curves")
    drawn = watch.traces(chosen[:DRAWN], {e.id: g.name for g in found for e in g.entries})
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
    outcome.tabs(chosen, "compare", {e.id: g.name for g in found for e in g.entries})


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


def _arrange(chosen: list[Entry]) -> tuple[list[Group], Group, str]:
    """How to group, which group the others are measured against, and which epoch's parameters count."""
    with st.container(horizontal=True, gap="large", vertical_alignment="bottom"):
        by = st.selectbox("Group by", options("by", groups.keys(chosen)), key="by", bind="query-params", width=220,
                          format_func=lambda k: "all settings but the seed" if k == groups.ALL_BUT_SEED else k)
        found = groups.gather(chosen, by or groups.ALL_BUT_SEED)
        names = [g.name for g in found]
        base = st.selectbox("Baseline", options("base", names), _plain(names), key="base",
                            bind="query-params", width=320)
        which = st.segmented_control("Parameters of", ["best", "last"], default="best", key="which", required=True,
                                     bind="query-params", format_func=lambda w: f"{w} epoch",
                                     help="the epoch that validation found best, or the last one")
    return found, next((g for g in found if g.name == base), found[_plain(names)]), which or "best"


def _plain(names: list[str]) -> int:
    """ODE-Net, Latent-ODE or GRU-ODE-Bayes, where there is one."""
    plain = ("ODE-Net", "Latent-ODE", "GRU-ODE-Bayes")
    return next((i for i, name in enumerate(names) if name.startswith(plain)), 0)


def _table(found: list[Group], base: Group, which: str) -> None:
    def validation(entry: Entry) -> float | None:
        return entry.best if which == "best" else entry.last

    def test(entry: Entry) -> float | None:
        return entry.value if which == "best" else entry.last_value

    anchor = test if base.statistic(test).values else validation
    units = {g.measure for g in found}
    said = _said(units)
    best, asked = groups.best(found, anchor), groups.question(base)
    rows = []
    for group in found:
        unit = group.measure
        params = {e.params for e in group.entries}
        nfe = group.statistic(lambda e: e.test.get("nfe")).mean
        seconds = group.statistic(lambda e: e.seconds).mean
        marks = " — baseline" * (group is base) + " — best" * (group in best)
        rows.append({
            "group": group.name + marks, "n": len(group.statistic(anchor).values),
            **({} if len(units) == 1 else {"metric": unit.title}),
            f"test{said}": group.statistic(test).text(unit),
            f"validation{said}": group.statistic(validation).text(unit),
            "to baseline": "" if group is base else "another question" if groups.question(group) != asked else
            groups.difference(group.statistic(anchor), base.statistic(anchor), unit),
            "paper": group.printed or "", "parameters": " / ".join(f"{p:,}" for p in sorted(params)),
            "NFE": f"{nfe:.0f}" if nfe else "–", "time": labels.duration(seconds)})
    if any(g.printed for g in found):
        st.dataframe(rows, hide_index=True)
        return
    st.dataframe([{k: v for k, v in row.items() if k != "paper"} for row in rows], hide_index=True)
    st.caption("The paper's numbers stand beside runs on the full data only.")


def _said(units: set[MetricFormat]) -> str:
    """What the columns hold, where all groups hold the same."""
    if len(units) > 1:
        return ""
    (unit,) = units
    return f" {unit.title}" + ("" if unit.higher_is_better else " (less is better)")


def _differences(chosen: list[Entry]) -> None:
    st.subheader("Settings that differ")
    keys = groups.differing(chosen)
    if not keys:
        st.caption("None that changes a number, but the seed.")
        return
    columns = {f"{labels.method_title(e.experiment, e.method)} · seed {e.seed} · {e.id[-4:]}": e
               for e in chosen[:DRAWN]}
    st.dataframe([{"setting": k, **{name: str(e.config.get(k, "–")) for name, e in columns.items()}} for k in keys],
                 hide_index=True)
