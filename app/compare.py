"""The page that compares runs: choose and group them; answer, table, curves, settings, players and results."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import streamlit as st

from acenode import experiments
from acenode.compare import groups
from acenode.compare.groups import REPEATED, data_title, differing, experiment_title, group_settings, question_of
from acenode.compare.paper import HOSTS
from acenode.compare.verdict import DIFFERENCE, EFFECT, NFE, ComparedGroups, compare_groups, comparison_table
from acenode.export.tables import COMPARISON
from acenode.runs.entry import Entry

from . import components, labels, messages, navigation, run_tables
from .results import FORMATS
from .results import tabs as result_tabs
from .services import services

MAX_RUNS = 15  # that Compare opens with
MAX_PLAYERS = 4  # side by side
MAX_CURVES = 40
TABLE_HEIGHT = 320  # pixels
COLUMNS = ["Method", "Seed", "Created", "Experiment", "Test result", "Settings", "Best validation", "Data", "State",
           "Device", "Code", "Tags", "Id"]
WANTED = "base/wanted"  # session key of a chosen baseline that is not among the groups at present
STATES = ("finished", "running", "stopped", "failed", "interrupted")
BASELINES = ("ODE-Net", "Latent-ODE", "GRU-ODE-Bayes", "No attention")  # the hosts of ACE, one of each family

Repeats = dict[tuple[object, ...], Entry]  # the runs of a group by seed and fold


def show() -> None:
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
    played = [e.id for e in one_of_each(chosen, group_of)[:MAX_PLAYERS]]
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
    ids = {e.id for e in entries}
    key = f"compare/first/{hash(frozenset(ids))}"  # chosen anew only when the filters leave other runs
    if key not in st.session_state:
        linked = [n for n in navigation.linked_runs() if n in ids]
        usual = first_choice(entries)
        is_usual = not linked or set(linked) == {e.id for e in usual}  # the URL of a reloaded page has its runs
        st.session_state[key] = (linked or [e.id for e in usual], reason(usual) if is_usual else "")
    first, about = st.session_state[key]
    place = {run_id: i for i, run_id in enumerate(first)}
    ordered = sorted(entries, key=lambda e: place.get(e.id, len(first)))  # what is selected at first stands at the top
    chosen = run_tables.select("chosen", ordered, COLUMNS, list(range(len(first))), TABLE_HEIGHT)
    why = f". {messages.escape(about)}" if about and {e.id for e in chosen} == set(first) else ""
    st.caption(f"{len(chosen)} of {len(entries)} runs selected{why}")
    if chosen:
        navigation.keep_in_url([e.id for e in chosen])
    return chosen


def _group(chosen: list[Entry]) -> tuple[pd.DataFrame, str, str]:
    """Ask how to group the runs; return them with their groups, the baseline's name, and `best` or `last` epoch."""
    with st.container(horizontal=True, gap="medium"):
        by = st.selectbox("Group by", navigation.options("by", groups.group_keys(chosen)), key="by",
                          bind="query-params", width=260, format_func=lambda key: (
                "All settings but the seed" if key == groups.BY_SETTINGS else labels.setting(key)))
        runs = groups.grouped_frame(chosen, by or groups.BY_SETTINGS)
        names = runs["group"].unique().tolist()
        default = 0 if _keep_baseline(names) else names.index(_default_baseline(names))  # not beside a value of its own
        baseline = st.selectbox("Baseline", names, default, key="base",
                                bind="query-params", width=320, on_change=st.session_state.pop, args=(WANTED, None))
        epoch = st.segmented_control("Parameters of", ["best", "last"], default="best", key="which", required=True,
                                     bind="query-params", format_func=lambda w: f"{w} epoch",
                                     help="Best epoch: the one with the best validation result")
    return runs, baseline or _default_baseline(names), epoch or "best"


def _keep_baseline(names: list[str]) -> bool:
    """Set the box to a group that is shown; a baseline that a filter hides returns with its runs. True if it is set."""
    current = next(iter(navigation.current_values("base")), None)
    wanted = st.session_state.get(WANTED)
    if wanted in names:
        st.session_state["base"] = wanted
        del st.session_state[WANTED]
        return True
    if current is not None and current not in names:
        st.session_state[WANTED] = wanted or current
        st.session_state["base"] = _default_baseline(names)
        return True
    return False


def _default_baseline(names: list[str]) -> str:
    """Return the first group of a host method, or else of another method than ACE, or else the first group."""
    others = (name for name in names if not name.startswith("ACE"))
    return next((name for name in names if name.startswith(BASELINES)), next(others, names[0]))


def _show_answer(found: ComparedGroups) -> None:
    if not found.sentences:
        st.caption("Choose runs of at least two groups to compare them.")
        return
    others = list(found.comparisons)
    which = f"Is {others[0]}" if len(others) == 1 else "Which groups are"
    with st.container(border=True, key="compare-answer"):
        st.markdown(f"**{messages.escape(f'{which} better than {found.baseline}?')}**")
        st.markdown("\n".join(f"- {messages.escape(text)}" for text in found.sentences))


def _show_table(found: ComparedGroups) -> None:
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
        for kind, (title, mime) in FORMATS.items():
            st.download_button(title, COMPARISON[kind](found), f"comparison.{kind}", mime, on_click="ignore",
                               key=f"compare/download/{kind}", icon=":material/download:",
                               help=f"The table with its answer as {title}")
        st.caption(messages.escape(table.caption) + " The paper's results are shown beside runs on the full data only."
                   * ("Paper" not in table.heads))


def _show_differences(chosen: list[Entry], group_of: dict[str, str]) -> None:
    st.header("Settings that differ")
    keys = differing(chosen)
    if not keys:  # runs of one group may differ in seed, fold, device or recording settings
        names = [labels.setting(key).lower() for key in differing(chosen, ignored=frozenset())]
        st.caption("No settings differ" if not names else f"Only the {names[0]} differs" if len(names) == 1 else
                   f"Only {', '.join(names[:-1])} and {names[-1]} differ")
        return
    rows = []
    for key in keys:
        values: dict[str, dict[str, None]] = {group: {} for group in group_of.values()}
        for e in chosen:
            values[group_of[e.id]][labels.setting_value(e.config.get(key, "–"))] = None
        rows.append({"Setting": labels.setting(key), **{group: " / ".join(found) for group, found in values.items()}})
    st.dataframe(pd.DataFrame(rows), hide_index=True, placeholder="")


def first_choice(entries: list[Entry]) -> list[Entry]:
    """Return one's newest finished runs that can be compared, if they form two groups; else the recorded runs of the
    experiment in which ACE and its host share most seeds. Each group keeps as many seeds as the others, and
    trials of searches are chosen only if there is nothing else."""
    entries = [e for e in entries if not e.search] or entries
    finished = [e for e in entries if e.state == "finished"] or entries
    own = _own([e for e in finished if not e.recorded])
    recorded = [e for e in finished if e.recorded]
    groups = own if len(own) > 1 or not recorded else _recorded(recorded)
    ordered = sorted(groups, key=_rank)[:MAX_RUNS]
    each = max(1, MAX_RUNS // max(1, len(ordered)))
    return [entry for group in ordered for _, entry in sorted(group.items(), key=lambda item: str(item[0]))[:each]]


def reason(chosen: list[Entry]) -> str:
    """Say in one line why Compare opens with these runs; empty if they cannot be compared with each other."""
    lengths = {_epochs(e) for e in chosen}
    if len({question_of(e) for e in chosen}) != 1 or len(lengths) != 1 or any(
            e.search or e.state != "finished" for e in chosen):
        return ""
    whose = "recorded runs" if chosen[0].recorded else "runs of yours"
    (epochs,) = lengths
    length = f", {messages.count(epochs, 'epoch')} each" if epochs else ""
    return (f"Selected at first: {whose} that can be compared ({experiment_title(chosen[0].experiment)}, "
            f"data: {data_title(chosen[0])}{length}). Only finished runs, no trials of searches")


def _own(entries: list[Entry]) -> list[Repeats]:
    """Return the groups of the newest question that two groups of the same length answer, or else of the newest one. Of
    several lengths the longest is chosen; a single epoch is a first try, and comes last."""
    questions: dict[object, list[Entry]] = {}
    for e in sorted(entries, key=lambda e: -e.created):
        questions.setdefault(question_of(e), []).append(e)
    lengths = [[e for e in runs if _epochs(e) == epochs] for runs in questions.values()
               for epochs in sorted(set(map(_epochs, runs)), reverse=True)]
    lengths.sort(key=lambda runs: _epochs(runs[0]) == 1)  # stable: otherwise they stay in this order
    found = (_groups(runs) for runs in lengths)
    return next((groups for groups in found if len(groups) > 1), _groups(lengths[0]) if lengths else [])


def _epochs(entry: Entry) -> int:
    epochs = entry.config.get("epochs")
    return epochs if isinstance(epochs, int) else 0


def _recorded(entries: list[Entry]) -> list[Repeats]:
    """Return the groups of the recorded comparison of ACE with its host, and with augmented, that has most seeds."""
    kinds: dict[object, list[Entry]] = {}
    for e in entries:
        if e.method in ("ace", "augmented", HOSTS.get(e.experiment)):
            kinds.setdefault((question_of(e), _epochs(e), str(group_settings(e.config))), []).append(e)
    found = [_groups(kind) for kind in kinds.values()]
    return max(found, key=_shared, default=[]) if any(map(_shared, found)) else _groups(entries)


def _shared(groups: list[Repeats]) -> int:
    """Count the seeds and folds that ACE and its host both have."""
    by_method = {next(iter(g.values())).method: set(g) for g in groups}
    host = next((m for m in by_method if m not in ("ace", "augmented")), "")
    return len(by_method.get("ace", set()) & by_method.get(host, set()))


def _groups(entries: Iterable[Entry]) -> list[Repeats]:
    """Sort runs into groups that differ in the seed and fold only; of runs that repeat a seed the newest stays."""
    found: dict[tuple[str, str], Repeats] = {}
    for e in sorted(entries, key=lambda e: e.created):
        repeats = found.setdefault((e.method, str(group_settings(e.config))), {})
        repeats[_repeat(e)] = e
    return list(found.values())


def _rank(group: Repeats) -> tuple[int, float]:
    """Sort ACE with its default settings first, then its host, then augmented, then other groups, newest first."""
    newest = max(group.values(), key=lambda e: e.created)
    order = {"ace": 0, HOSTS.get(newest.experiment): 1, "augmented": 2}.get(newest.method, 3)
    changed = bool(group_settings(newest.config)) and not newest.recorded
    return order + 3 * changed, -newest.created


def one_of_each(entries: list[Entry], group_of: dict[str, str]) -> list[Entry]:
    """Return one run of each group, if possible all of one seed and with snapshots; evolving attention comes first."""
    groups: dict[str, Repeats] = {}
    for e in entries:
        groups.setdefault(group_of[e.id], {}).setdefault(_repeat(e), e)
    playable = {_repeat(e): 0 for e in entries}
    for repeat, e in (item for group in groups.values() for item in group.items()):
        playable[repeat] += 1 + bool(e.run.snapshots())
    order = sorted(playable, key=lambda repeat: (-playable[repeat], str(repeat)))
    found = [next(group[repeat] for repeat in order if repeat in group) for group in groups.values()]
    return sorted(found, key=lambda e: e.config.get("attention") != "evolving")


def _repeat(entry: Entry) -> tuple[object, ...]:
    return tuple(entry.config.get(key) for key in sorted(REPEATED))
