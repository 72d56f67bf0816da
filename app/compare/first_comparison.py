"""Which runs Compare opens with, ACE against its baselines in one experiment, and which of them it plays."""

from __future__ import annotations

from collections.abc import Iterable

from acenode.compare.groups import REPEATED, data_title, experiment_title, group_settings, question_of
from acenode.compare.paper import HOSTS
from acenode.runs.entry import Entry

MAX_RUNS = 15

Repeats = dict[tuple[object, ...], Entry]  # the runs of a group by seed and fold


def choose(entries: list[Entry]) -> list[Entry]:
    """Return the runs to compare at first.

    Your newest finished runs that can be compared with each other, if they form at least two groups; else the recorded
    runs of the experiment in which ACE and its host method share most seeds, or your own if nothing is recorded. If
    there are too many, each group keeps as many seeds as the others. Trials of searches are chosen only if there is
    nothing else.
    """
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
    length = f", {epochs} epoch{'s' * (epochs != 1)} each" if epochs else ""
    return (f"Selected at first: {whose} that can be compared ({experiment_title(chosen[0].experiment)}, "
            f"data: {data_title(chosen[0])}{length}). Only finished runs, no trials of searches")


def _own(entries: list[Entry]) -> list[Repeats]:
    """Return the groups of the newest question that two groups of the same length answer, or else of the newest one.

    Of several lengths the longest is chosen, and a single epoch, which is a first try, only if there is nothing else.
    """
    questions: dict[object, list[Entry]] = {}
    for e in sorted(entries, key=lambda e: -e.created):
        questions.setdefault(question_of(e), []).append(e)
    lengths = [length for runs in questions.values() for length in _lengths(runs)]
    lengths.sort(key=lambda runs: _epochs(runs[0]) == 1)  # stable: otherwise they stay in this order
    found = (_groups(runs) for runs in lengths)
    return next((groups for groups in found if len(groups) > 1), _groups(lengths[0]) if lengths else [])


def _lengths(entries: list[Entry]) -> list[list[Entry]]:
    found: dict[int, list[Entry]] = {}
    for e in entries:
        found.setdefault(_epochs(e), []).append(e)
    return [found[epochs] for epochs in sorted(found, reverse=True)]


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
    """Return one run of each group, if possible all of one seed and with snapshots; evolving attention comes first.

    Args:
        entries: the chosen runs.
        group_of: the group of each run id.
    """
    groups: dict[str, Repeats] = {}
    for e in entries:
        groups.setdefault(group_of[e.id], {}).setdefault(_repeat(e), e)
    playable = {_repeat(e): 0 for e in entries}
    for group in groups.values():
        for repeat, e in group.items():
            playable[repeat] += 1 + bool(e.run.snapshots())
    order = sorted(playable, key=lambda repeat: (-playable[repeat], str(repeat)))
    found = [next(group[repeat] for repeat in order if repeat in group) for group in groups.values()]
    return sorted(found, key=lambda e: e.config.get("attention") != "evolving")


def _repeat(entry: Entry) -> tuple[object, ...]:
    return tuple(entry.config.get(key) for key in sorted(REPEATED))
