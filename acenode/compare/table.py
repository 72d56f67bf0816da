"""The table of an experiment: measured means over seeds beside the paper's values.

Only runs on the whole of the full data are listed beside a value of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pandas as pd

from acenode import experiments
from acenode.compare import fairness
from acenode.compare.groups import (
    IGNORED,
    changed_settings,
    printed_beside,
    replaced_settings,
    runs_frame,
    settings_text,
)
from acenode.compare.metrics import MetricFormat, metric_format
from acenode.compare.paper import CELLS
from acenode.compare.verdict import over_seeds
from acenode.config import KEYS, Config
from acenode.config.vocabulary import PRINTED
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.catalogue import Entry

KEY = ["data", "partial", "method", "settings"]


def measured(experiment: Experiment, entries: Iterable[Entry], metric: str | None = None) -> pd.DataFrame:
    """Return the rows of the table: one for every method, every row of the paper and every setting with a result.

    Its columns are `method`, `title`, `data`, `changed` (settings that are not defaults), `params`, `seeds`, `mean` and
    `std` in the metric's unit (NaN where there is none), `paper` and `paper_params` as printed, `unit`, `metric`,
    `partial` (trained on a part of the full data) and `n`. `metric` is the experiment's if None.
    """
    metric = metric or experiment.metric.name
    unit = metric_format(metric, experiment.name)
    found = [e for e in entries if e.experiment == experiment.name and e.method in experiment.methods
             and e.test.get(metric) is not None]
    runs = runs_frame(found).assign(value=[e.test[metric] * unit.scale for e in found])  # type: ignore[operator]
    summary = over_seeds(runs, "value", KEY)
    configs = {entry.id: entry.config for entry in found}
    rows = {}

    def add(key: Any, config: Config, changed: dict[str, Any], partial: bool, values: dict[str, Any]) -> None:
        printed = printed_beside(config, partial, metric)
        rows[key] = {"method": config.method, "title": experiment.methods[config.method].title, "data": config.data,
                     "changed": changed, "paper": str(printed) if printed else None,
                     "paper_params": printed.params if printed else None, "unit": unit.unit.strip(), "metric": metric,
                     "partial": partial, **values}

    for key, own in runs.sort_values("created", kind="stable").groupby(KEY, sort=False):
        first = own.iloc[0]
        add(key, Config.from_dict(configs[first["run"]]), first["changed"], bool(first["partial"]),
            {"params": int(first["params"]), **summary.loc[key].to_dict()})
    of_paper = [cell for cell in CELLS.values() if cell.experiment == experiment.name and "size" not in cell.settings]
    for method, given in [*((m, {}) for m in experiment.methods), *((cell.method, cell.settings) for cell in of_paper)]:
        with suppress(UserError):  # a method or setting that this version does not have
            config = experiment.configure(method, "full", **given)
            changed = {k: v for k, v in changed_settings(experiment, config).items() if k not in IGNORED}
            key = ("full", False, method, settings_text(changed))
            if key not in rows:
                add(key, config, changed, False,
                    {"params": fairness.count(config), "n": 0, "mean": None, "std": None, "seeds": []})
    order = list(experiment.methods)
    ordered = sorted(rows.values(), key=lambda row: (
        row["data"] != "full", row["partial"], *(str(row["changed"].get(k, "")) for k in ("task", "sample")),
        order.index(row["method"]), len(row["changed"]), str(tuple(sorted(row["changed"].items())))))
    frame = pd.DataFrame(ordered, columns=["method", "title", "data", "changed", "params", "seeds", "mean", "std",
                                           "paper", "paper_params", "unit", "metric", "partial", "n"])
    return frame.astype({"mean": float, "std": float, "n": int})


def to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dictionaries for JSON, with None for what is missing."""
    return [{k: None if isinstance(v, float) and pd.isna(v) else v for k, v in row.items()}
            for row in table.to_dict("records")]


def render(experiment: Experiment, table: pd.DataFrame) -> str:
    """Write the table as text: the full data, the sample, parts of the data; the full data last if it has no run."""
    metric = table["metric"].iloc[0] if len(table) else experiment.metric.name
    unit = metric_format(metric, experiment.name)
    lower = "" if unit.higher_is_better else ", lower is better"
    heading = f"{experiment.title}: test {unit.heading}{lower}, mean ± sample standard deviation over n runs"
    shown = table[["data", "partial", "method", "paper", "params"]].itertuples(index=False, name=None)
    keys = pd.Series(list(shown), index=table.index, dtype=object)  # rows beside the same value of the paper
    table = table[(table["n"] > 0) | ~keys.isin(keys[(table["n"] > 0) & table["paper"].notna()])]
    on_full, partial = table["data"] == "full", table["partial"].astype(bool)
    full = table[on_full & ~partial]
    sample = (f"On your data ({experiment.about_sample})" if experiments.is_imported(experiment.name) else
              f"On the bundled sample ({experiment.about_sample}); not comparable with the paper")
    apart = ((sample, table[~on_full]),
             ("On a part of the full data; not comparable with the paper", table[on_full & partial]))
    blocks = [[f"{title}:", *_block(experiment, some, unit, with_paper=False)] for title, some in apart if len(some)]
    if len(full) or not blocks:
        lines = [*_block(experiment, full, unit, with_paper=True), *_other_lengths(experiment, full),
                 *_not_as_printed(experiment, [m for m in experiment.methods if m in set(full["method"])])]
        if full["n"].any() or not blocks:
            blocks.insert(0, lines)
        else:
            blocks.append(["On the full data: no run yet", *lines])
    return f"{heading}\n" + "\n\n".join("\n".join(block) for block in blocks)


def _not_as_printed(experiment: Experiment, methods: list[str]) -> list[str]:
    found: dict[str, list[str]] = {}
    for method in methods:
        for key, (default, printed) in replaced_settings(experiment, method).items():
            found.setdefault(f"the default is {key}={default:g}, the paper prints {printed:g}", []).append(method)
    return [(f"{', '.join(of)}: " if of != methods else "") + f"{text}; `acenode settings {experiment.name}` says why"
            for text, of in found.items()]


def _other_lengths(experiment: Experiment, rows: pd.DataFrame) -> list[str]:
    """Say which rows with a value of the paper were trained for more or fewer epochs than the paper's models."""
    found: dict[int, set[int]] = {}
    for row in to_records(rows[rows["paper"].notna()]):
        own = row["changed"].get("epochs")
        printed = experiment.configure(row["method"], "full", preset=PRINTED).get("epochs")
        if own not in (None, printed):
            found.setdefault(printed, set()).add(own)
    return [f"rows with {' or '.join(f'epochs={n}' for n in sorted(own))}: the paper trains for {printed} epochs"
            for printed, own in found.items()]


def _block(experiment: Experiment, rows: pd.DataFrame, unit: MetricFormat, *, with_paper: bool) -> list[str]:
    """Write rows in columns; a setting that all of the paper's values have, such as the task, has a column of its own.

    Rows are labelled as in `acenode reproduce --list`: an ablation of the paper is named.
    """
    of_paper = [cell for cell in CELLS.values() if cell.experiment == experiment.name]
    defining = [k for k in KEYS if of_paper and all(k in cell.settings for cell in of_paper)]
    printed_heads = ("paper", "parameters (paper)") if with_paper else ()
    heads = ("method", *defining, "parameters", "measured", "n", *printed_heads, "settings changed")
    form = ".4g" if unit.digits is None else f".{unit.digits}f"
    cells = [heads]
    for r in sorted(to_records(rows), key=lambda r: (r["mean"] is None, r["paper"] is None)):
        defaults = experiment.configure(r["method"], r["data"])
        settings = {k: defaults.get(k) for k in defining} | {k: v for k, v in r["changed"].items() if k != "epochs"}
        title = next((c.title for c in of_paper if (c.method, c.settings) == (r["method"], settings)), r["title"])
        if r["mean"] is not None and unit.digits is not None:  # three significant digits if those would all be zero
            form = ".3g" if abs(r["mean"]) < 0.01 else f".{unit.digits}f"
        value = " ± ".join(f"{number:{form}}" for number in (r["mean"], r["std"]) if number is not None) or "-"
        middle = ((r["paper"] or "-").removesuffix(unit.unit), r["paper_params"] or "-") if with_paper else ()
        changed = settings_text({k: v for k, v in r["changed"].items() if k not in defining})
        cells.append((title, *(str(settings[k]) for k in defining), f"{r['params']:,}", value, str(r["n"]), *middle,
                      changed or "-"))
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
