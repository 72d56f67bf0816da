"""The table of compared groups as CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from acenode.compare.verdict import ComparedGroups, comparison_table
from acenode.export.csv_tables import to_csv as write_csv
from acenode.export.table_formats import PACKAGES, latex_table, markdown_table


def to_csv(found: ComparedGroups) -> str:
    """Write one line for each group, with plain numbers: an accuracy of 98% is 0.98."""
    rows = []
    for name, group in found.groups.iterrows():
        compared = found.comparisons.get(str(name))
        low, high = compared.interval if compared and compared.interval else (None, None)
        rows.append({
            "group": str(name), "metric": group["measure"].name, "runs": int(group["n"]),
            **{key: _number(group[key]) for key in ("test", "test_std", "validation", "validation_std")},
            "difference": _number(compared.difference if compared else None), "low": _number(low),
            "high": _number(high), "pairs": compared.pairs if compared else "",
            "effect": compared.effect if compared else "baseline" if name == found.baseline else "not comparable",
            "paper": group["paper"], "params": " ".join(map(str, group["params"])), "nfe": _number(group["nfe"]),
            "seconds": _number(group["seconds"])})
    return write_csv(pd.DataFrame(rows, dtype=object))


def _number(value: float | None) -> float | str:
    """Return a number, or an empty text for one that is missing."""
    return "" if value is None or pd.isna(value) else float(value)


def to_markdown(found: ComparedGroups) -> str:
    """Write the table with its caption, and the answer."""
    table = comparison_table(found)
    return "\n\n".join([markdown_table(table.heads, table.rows), table.caption, *found.sentences]) + "\n"


def to_latex(found: ComparedGroups) -> str:
    """Write the table; the answer follows as comments."""
    table = comparison_table(found)
    lines = [PACKAGES, latex_table(table.caption, table.heads, table.rows), *(f"% {text}" for text in found.sentences)]
    return "\n".join(lines) + "\n"


FORMATS: dict[str, Callable[[ComparedGroups], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
