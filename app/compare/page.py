"""The page that compares runs: choose and group them; answer, table, curves, settings, players and results."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from acenode import experiments
from acenode.compare import groups
from acenode.compare.groups import differing
from acenode.compare.verdict import DIFFERENCE, EFFECT, NFE, ComparedGroups, compare_groups, comparison_table
from acenode.export.tables import COMPARISON
from acenode.runs.entry import Entry

from .. import components, labels, messages, navigation, run_tables
from ..results import tabs as result_tabs
from ..services import services
from . import first_comparison

MAX_PLAYERS = 4  # side by side
MAX_CURVES = 40
TABLE_HEIGHT = 320  # pixels
COLUMNS = ["Method", "Seed", "Created", "Experiment", "Test result", "Settings", "Best validation", "Data", "State",
           "Device", "Code", "Tags", "Id"]
DOWNLOADS = {"csv": ("CSV", "text/csv"), "md": ("Markdown", "text/markdown"), "tex": ("LaTeX", "text/plain")}
WANTED = "base/wanted"  # session key of a chosen baseline that is not among the groups at present
STATES = ("finished", "running", "stopped", "failed", "interrupted")
BASELINES = ("ODE-Net", "Latent-ODE", "GRU-ODE-Bayes", "No attention")  # the hosts of ACE, one of each family


def show() -> None:
    """Show the page."""
    st.title("Compare")
    entries = [e for e in services().catalogue.entries() if e.state in STATES]
    if not entries:
        st.info("No runs to compare yet. Train a few first, for example with **Train the ablation set** on an "
                "experiment's page.", icon=":material/compare_arrows:")
        st.page_link(navigation.page(next(iter(experiments.EXPERIMENTS))), label="Open an experiment",
                     icon=":material/science:")
        return
    navigation.warn_about_missing(navigation.linked_runs(), {e.id for e in entries})
    chosen = _choose(run_tables.filtered(entries))
    if not chosen:
        st.info("Select runs with the checkboxes on the left of the table, or all of them with the one in its header.",
                icon=":material/touch_app:")
        return
    runs, baseline, epoch = _group(chosen)
    found = compare_groups(runs, baseline, epoch)
    _show_answer(found)
    _show_table(found)
    group_of = dict(zip(runs["run"], runs["group"], strict=True))
    st.header("Curves")
    drawn = labels.for_charts(chosen[:MAX_CURVES], group_of)
    bands = st.toggle("Average over seeds", True, key="bands", bind="query-params",
                      help="One line for each group, with a band for the spread over its seeds")
    components.curves("compare-curves", drawn, labels.measure_of(chosen[0]), bands=bands)
    _show_differences(chosen, group_of)
    st.header("State h(t) and attention a(t)")
    played = [e.id for e in first_comparison.one_of_each(chosen, group_of)[:MAX_PLAYERS]]
    if len(chosen) > len(played):
        st.caption("One run of each group, of the same seed where there is one"
                   + f"; the first {MAX_PLAYERS} groups" * (len(set(group_of.values())) > MAX_PLAYERS))
    components.player("compare-player", sorted((run for run in drawn if run["id"] in played),
                                               key=lambda run: played.index(str(run["id"]))))
    st.header("Results")
    if not any(e.state == "finished" for e in chosen):
        st.caption("None of these runs is finished yet.")
    result_tabs.show(chosen, "compare", group_of)


def _choose(entries: list[Entry]) -> list[Entry]:
    """Show the runs in a table and return the selected ones, which the URL keeps."""
    if not entries:
        st.caption("No run matches these filters.")
        return []
    first, reason = _first(entries)
    place = {run_id: i for i, run_id in enumerate(first)}
    ordered = sorted(entries, key=lambda e: place.get(e.id, len(first)))  # what is selected at first stands at the top
    chosen = run_tables.select("chosen", ordered, COLUMNS, list(range(len(first))), TABLE_HEIGHT)
    why = f". {messages.escape(reason)}" if reason and {e.id for e in chosen} == set(first) else ""
    st.caption(f"{len(chosen)} of {len(entries)} runs selected{why}")
    if chosen:
        navigation.keep_in_url([e.id for e in chosen])
    return chosen


def _first(entries: list[Entry]) -> tuple[list[str], str]:
    """Return the runs that are selected at first, those of the URL or the ones that Compare opens with, and why.

    The answer stays the same while the filters leave the same runs, so that the rows keep their places.
    """
    ids = {e.id for e in entries}
    key = f"compare/first/{hash(frozenset(ids))}"
    if key not in st.session_state:
        linked = [n for n in navigation.linked_runs() if n in ids]
        usual = first_comparison.choose(entries)
        is_usual = not linked or set(linked) == {e.id for e in usual}  # the URL of a reloaded page has its runs
        st.session_state[key] = (linked or [e.id for e in usual], first_comparison.reason(usual) if is_usual else "")
    return st.session_state[key]


def _group(chosen: list[Entry]) -> tuple[pd.DataFrame, str, str]:
    """Ask how to group the runs; return them with their groups, the baseline's name, and `best` or `last` epoch."""
    with st.container(horizontal=True, gap="medium"):
        by = st.selectbox("Group by", navigation.options("by", groups.group_keys(chosen)), key="by",
                          bind="query-params", width=260, format_func=_grouping)
        runs = groups.grouped_frame(chosen, by or groups.BY_SETTINGS)
        names = runs["group"].unique().tolist()
        default = 0 if _keep_baseline(names) else names.index(_default_baseline(names))  # not beside a value of its own
        baseline = st.selectbox("Baseline", names, default, key="base",
                                bind="query-params", width=320, on_change=_forget_wanted)
        epoch = st.segmented_control("Parameters of", ["best", "last"], default="best", key="which", required=True,
                                     bind="query-params", format_func=lambda w: f"{w} epoch",
                                     help="Best epoch: the one with the best validation result")
    return runs, baseline or _default_baseline(names), epoch or "best"


def _grouping(key: str) -> str:
    return "All settings but the seed" if key == groups.BY_SETTINGS else labels.setting(key)


def _keep_baseline(names: list[str]) -> bool:
    """Set the box to a group that is shown; a baseline that a filter hides returns with its runs. True if it is set."""
    current = next(iter(navigation.current_values("base")), None)
    wanted = st.session_state.get(WANTED)
    if wanted in names:
        st.session_state["base"] = wanted
        _forget_wanted()
        return True
    if current is not None and current not in names:
        st.session_state[WANTED] = wanted or current
        st.session_state["base"] = _default_baseline(names)
        return True
    return False


def _forget_wanted() -> None:
    st.session_state.pop(WANTED, None)


def _default_baseline(names: list[str]) -> str:
    """Return the first group of a host method, or else of another without attention, or else the first group."""
    others = (name for name in names if not name.startswith("ACE"))
    return next((name for name in names if name.startswith(BASELINES)), next(others, names[0]))


def _show_answer(found: ComparedGroups) -> None:
    sentences = found.sentences
    if not sentences:
        st.caption("Choose runs of at least two groups to compare them.")
        return
    others = list(found.comparisons)
    which = f"Is {others[0]}" if len(others) == 1 else "Which groups are"
    with st.container(border=True, key="compare-answer"):
        st.markdown(f"**{messages.escape(f'{which} better than {found.baseline}?')}**")
        st.markdown("\n".join(f"- {messages.escape(text)}" for text in sentences))


def _show_table(found: ComparedGroups) -> None:
    """Show the means of all groups and their differences to the baseline, and offer the table as a file."""
    table = comparison_table(found)
    frame = pd.DataFrame(table.rows, columns=table.heads)
    differences = pd.Series([DIFFERENCE, *frame.get(DIFFERENCE, [])])
    st.dataframe(frame, hide_index=True, column_config={
        DIFFERENCE: st.column_config.TextColumn(width=run_tables.fitted_width(differences)),
        "Runs": st.column_config.TextColumn(help="Number of runs with a result"),
        EFFECT: st.column_config.TextColumn(help="Compared with the baseline, if the 95% interval of the difference "
                                                 "excludes zero in at least three seeds"),
        NFE: st.column_config.TextColumn(help="How often the solver evaluates the derivative of the state (f) in one "
                                                "forward pass")}, placeholder="")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for kind, (title, mime) in DOWNLOADS.items():
            st.download_button(title, COMPARISON[kind](found), f"comparison.{kind}", mime, on_click="ignore",
                               key=f"compare/download/{kind}", icon=":material/download:",
                               help=f"The table with its answer as {title}")
        st.caption(messages.escape(table.caption) + " The paper's results are shown beside runs on the full data only."
                   * ("Paper" not in table.heads))


def _show_differences(chosen: list[Entry], group_of: dict[str, str]) -> None:
    """Show the settings in which the groups differ, one column for each group."""
    st.header("Settings that differ")
    keys = differing(chosen)
    if not keys:
        st.caption(_ignored_differences(chosen))
        return
    rows = []
    for key in keys:
        values: dict[str, dict[str, None]] = {group: {} for group in group_of.values()}
        for e in chosen:
            values[group_of[e.id]][labels.setting_value(e.config.get(key, "–"))] = None
        rows.append({"Setting": labels.setting(key), **{group: " / ".join(found) for group, found in values.items()}})
    st.dataframe(pd.DataFrame(rows), hide_index=True, placeholder="")


def _ignored_differences(chosen: list[Entry]) -> str:
    """Name the settings that differ between runs of one group: seed, fold, device or recording settings."""
    names = [labels.setting(k).lower() for k in differing(chosen, ignored=frozenset())]
    if not names:
        return "No settings differ"
    if len(names) == 1:
        return f"Only the {names[0]} differs"
    return f"Only {', '.join(names[:-1])} and {names[-1]} differ"
