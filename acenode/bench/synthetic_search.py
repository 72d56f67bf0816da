"""Write the journal of a search with many trials, as Optuna writes it, without training and without Optuna."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

from acenode.config.ranges import SearchRange, read_ranges
from acenode.runs.questions import Search, SearchStore
from acenode.search.journal import CREATE, DEFAULT, PARAM, REASON, RUN, STATE, USER_ATTR

OVER = "learning_rate=log:1e-3..1, penalty_weight=0,1e-4,1e-3,1e-2, f_layers=1..2"
EPOCHS = 12
WORKER = "5f0f8bd2-9c0e-4d4a-8f3a-0f6f3c1f6a01-140042"
TIME = "2026-01-01T00:00:00.000000+00:00"
CREATE_STUDY, REPORT = 0, 7
FINISHED, PRUNED = 1, 2


def synthetic_search(store: SearchStore, name: str, trials: int, *, running: int = 0) -> Search:
    """Write a finished search with so many trials, a third of them pruned, and return it.

    Args:
        store: where it is written.
        name: its name.
        trials: in all.
        running: so many of the last ones have not ended.
    """
    search = Search(name, "mnist", "ace", read_ranges([OVER]), trials)
    store.write(search)
    numbers = random.Random(0)
    lines = [_line(CREATE_STUDY, study_name="search", directions=[2])]
    for number in range(trials):
        lines += _trial(search.ranges, number, numbers, ended=number < trials - running)
    store.journal(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    store.write_status(name, "running" if running else "finished")
    return search


def _trial(ranges: tuple[SearchRange, ...], number: int, numbers: random.Random, *, ended: bool) -> Iterator[str]:
    yield _line(CREATE, study_id=0, datetime_start=TIME, **({"user_attrs": {DEFAULT: True}} if number == 0 else {}))
    rate = 0.0
    for one in ranges:
        value, kind = _value(one, numbers)
        rate = value if one.key == "learning_rate" else rate
        yield _line(PARAM, trial_id=number, param_name=one.key, param_value_internal=value, distribution=kind)
    yield _line(USER_ATTR, trial_id=number, user_attr={RUN: f"mnist-ace-20260101-000000-{number:04x}"})
    best = 0.97 - 0.05 * (math.log10(rate) + 0.8) ** 2 + numbers.gauss(0, 0.004)
    pruned = ended and number > 5 and number % 3 == 0
    last = 3 if pruned else EPOCHS if ended else 2
    for epoch in range(1, last + 1):
        yield _line(REPORT, trial_id=number, step=epoch, intermediate_value=best - 0.3 / epoch)
    if pruned:
        yield _line(USER_ATTR, trial_id=number, user_attr={REASON: "pruned after epoch 3"})
    if ended:
        yield _line(STATE, trial_id=number, state=PRUNED if pruned else FINISHED,
                    values=[best - 0.1 if pruned else best], datetime_complete=TIME)


def _value(one: SearchRange, numbers: random.Random) -> tuple[float, str]:
    """Return a random value as Optuna stores it, and the description of its range."""
    if one.values:
        return numbers.randrange(len(one.values)), json.dumps(
            {"name": "CategoricalDistribution", "attributes": {"choices": list(one.values)}})
    assert one.low is not None
    assert one.high is not None
    name = "IntDistribution" if one.whole else "FloatDistribution"
    kind = json.dumps({"name": name, "attributes": {"log": one.log, "step": 1 if one.whole else None,
                                                    "low": one.low, "high": one.high}})
    if one.whole:
        return float(numbers.randint(int(one.low), int(one.high))), kind
    low, high = (math.log(one.low), math.log(one.high)) if one.log else (one.low, one.high)
    found = numbers.uniform(low, high)
    return (math.exp(found) if one.log else found), kind


def _line(operation: int, **values: Any) -> str:
    return json.dumps({"op_code": operation, "worker_id": WORKER, **values}, separators=(",", ":"))
