"""Tables as CSV, Markdown and LaTeX: of a run, of its attention, of Compare, of a study, and of the paper.

CSV is safe to open in a spreadsheet: numbers are written in full, and no text is taken for a formula.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from acenode.compare import cells, result_charts
from acenode.compare.cells import Measured
from acenode.compare.metrics import as_text, name_as_text, read_records
from acenode.compare.paper import TABLES, PaperCell, PaperTable
from acenode.compare.result_charts import SeriesRecord
from acenode.compare.study_answer import StudyReport, study_table
from acenode.compare.verdict import ComparedGroups, comparison_table
from acenode.errors import UserError
from acenode.files import replacing, write_atomic
from acenode.player import attention, snapshots
from acenode.player.snapshots import WORDS
from acenode.runs.store import Run

LONGEST_LIST = 2000  # characters; longer lists, such as points of a curve, are left out of the summary
RECORD_COLUMNS = ["record", "variable", "kind", "t", "value", "low", "high", "time unit", "unit"]
ATTENTION_COLUMNS = ("epoch", "series", "time", "time unit", "variable", "attends to", "weight")
PRIVATE = frozenset({"process", "heartbeat"})  # keys of status.json that are only valid on this machine
PACKAGES = "% needs \\usepackage{booktabs,amssymb}"
LATEX = {"\\": r"\textbackslash{}", "%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{",
         "}": r"\}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "±": r"$\pm$", "×": r"$\times$", "−": "$-$",
         "Δ": r"$\Delta$", "λ": r"$\lambda$", "–": "--", "≈": r"$\approx$", "▲": r"$\blacktriangle$",
         "▼": r"$\blacktriangledown$", "◐": r"$\circ$", "○": r"$\circ$", "\0": r"$\times 10^{-3}$"}

Epoch = int | Literal["all"] | None
Values = Mapping[str, Measured]  # by the key of the paper's cell
PAPER = tuple(TABLES.values())


# Formats ------------------------------------------------------------------------------------------------------------

def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows as CSV, with the columns of the first and nothing for None."""
    rows = list(rows)
    columns = list(rows[0]) if rows else []
    return _csv(columns, (["" if row.get(name) is None else row[name] for name in columns] for row in rows))


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write rows as CSV with every value as `cell` writes it; nothing without columns."""
    file = io.StringIO()
    if columns:
        csv.writer(file, lineterminator="\n").writerows([cell(value) for value in row] for row in (columns, *rows))
    return file.getvalue()


def cell(value: Any) -> str:
    """Write numbers in full, None as `nan`, and texts that look like formulas after an apostrophe."""
    if value is None:
        return "nan"
    if isinstance(value, str):
        return as_text(value.encode("utf-8", "replace").decode())  # without lone surrogates, which pandas refuses
    if type(value) is float or type(value) is int:
        return repr(value)
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()  # true, false, [1, 2]


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def latex_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a LaTeX table; it needs the packages booktabs and amssymb."""
    body = [" & ".join(map(latex_text, line)) + r" \\" for line in (heads, *rows)]
    return "\n".join([r"\begin{table}", r"\centering", rf"\caption{{{latex_text(caption)}}}",
                      rf"\begin{{tabular}}{{{'l' * len(heads)}}}", r"\toprule", body[0], r"\midrule", *body[1:],
                      r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def latex_text(text: str) -> str:
    """Escape characters that LaTeX interprets or does not know."""
    return "".join(LATEX.get(c, c) for c in text.replace("×10⁻³", "\0"))


def _latex_document(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str]) -> str:
    return "\n".join([PACKAGES, latex_table(caption, heads, rows), *(f"% {text}" for text in notes)]) + "\n"


# A run --------------------------------------------------------------------------------------------------------------

def write_run(run: Run, out: Path) -> Path:
    """Write steps.csv, epochs.csv and summary.csv into the folder `out`, and records.csv if the result has records.

    The metrics have a row for each record, with nothing where it lacks a column and `nan` where one is not finite; the
    summary has configuration, state and result as rows of dotted keys and values.
    """
    metrics, contents = read_records(run), {}
    for name, records in (("steps.csv", metrics.steps), ("epochs.csv", metrics.epochs)):
        columns = list(dict.fromkeys(chain.from_iterable(records)))
        contents[name] = _csv(columns, ([record.get(key, "") for key in columns] for record in records))
    status = {k: v for k, v in run.status().items() if k not in PRIVATE}
    parts = {**run.description(), "status": status, "result": run.result() or {}}
    contents["summary.csv"] = _csv(("key", "value"), chain.from_iterable(flat(*part) for part in parts.items()))
    if series := result_charts.read(run.result()).records:
        contents["records.csv"] = _csv(RECORD_COLUMNS, chain.from_iterable(map(_points, series)))
    for name, content in contents.items():  # all made before the first is written
        write_atomic(out / name, content.encode())
    return out


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield nested values under dotted names."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(f"{name}.{key}", inner)
    elif not (isinstance(value, list) and len(json.dumps(value)) > LONGEST_LIST):
        yield name, "" if value is None else value


def _points(record: SeriesRecord) -> Iterator[tuple[Any, ...]]:
    """Yield the points of a time series with their units: jumps, observed and held-out values, mean and band.

    A jump has two rows of the model: before it, then after it.
    """
    time = WORDS.get(record.unit, record.unit)
    yield from ((record.id, "", "jump", t, "", "", "", time, "") for t in record.jumps)
    for v in record.variables:
        for kind, times, values in (("observed", v.t, v.x), ("held out", v.target_t, v.target_x)):
            yield from ((record.id, v.name, kind, t, x, "", "", time, v.unit)
                        for t, x in zip(times, values, strict=True))
        edges = zip(v.low, v.high, strict=True) if v.low else [("", "")] * len(v.grid)
        yield from ((record.id, v.name, "model", t, mean, *edge, time, v.unit)
                    for t, mean, edge in zip(v.grid, v.mean, edges, strict=True))


# The attention of a run ---------------------------------------------------------------------------------------------

def write_attention(run: Run, out: Path, epoch: Epoch = None) -> Path:
    """Write a row for each epoch, series, time and pair to `out`, or into it under the run's name if it is a folder;
    `epoch` is that of the snapshot, "all" for all of them, None for the last one. A UserError is raised if there is no
    such snapshot, or the attention is not between pairs."""
    paths = _chosen(run, epoch)
    first = _weights(run, paths[0])  # raises before anything is written
    if out.is_dir() or out.suffix.lower() != ".csv":
        out = out / f"{run.id}-attention.csv"
    with replacing(out) as file:
        writer = csv.writer(codecs.getwriter("utf-8")(file, "replace"), lineterminator="\n")
        writer.writerow(ATTENTION_COLUMNS)
        writer.writerows(chain(first, chain.from_iterable(_weights(run, path) for path in paths[1:])))
    return out


def _chosen(run: Run, epoch: Epoch) -> list[Path]:
    files = {int(number): path for path in run.snapshots() if (number := path.stem.removeprefix("epoch-")).isdecimal()}
    if not files and run.recorded:
        raise UserError(f"{run.id} was recorded without snapshots: another seed or fold of this method may have them")
    if not files:
        raise UserError(f"{run.id} has no snapshot yet: export its attention once training has begun")
    if epoch == "all":
        return list(files.values())
    if epoch is not None and epoch not in files:
        raise UserError(f"{run.id} has no snapshot of epoch {epoch}: choose one of {', '.join(map(str, files))}, or "
                        "all (--epoch)")
    return [files[max(files) if epoch is None else epoch]]


def _weights(run: Run, path: Path) -> Iterator[tuple[Any, ...]]:
    """Return an iterator over the rows of a snapshot; raise a UserError if its attention is not between pairs."""
    found = snapshots.load(run, path)
    if isinstance(found, str):
        raise UserError(found)
    if "a" not in found.arrays:
        raise UserError("the run has no attention to export")
    if attention.kind_of(found.arrays) is not attention.PAIRWISE:
        raise UserError("the run's attention weighs each entry of h by itself: there are no pairs to export")
    axis = snapshots.time_axis(snapshots.config_of(run), found.arrays)
    scale, unit = (axis.scale, name_as_text(axis.unit)) if axis else (1.0, "")
    _, count, size, _ = found.arrays["a"].shape  # (F, B, V, V)
    series = snapshots.names(found.arrays, count, longest=None) or [str(i + 1) for i in range(count)]
    variables = snapshots.coordinate_names(found.arrays, size, longest=None) or [str(i + 1) for i in range(size)]
    titles = [name_as_text(name) for name in variables]
    return ((found.epoch, name, f"{scale * t:.7g}", unit, titles[i], titles[j], f"{weight:.6g}")
            for b, name in enumerate(map(name_as_text, series))
            for t, a in zip(found.arrays["t"].tolist(), found.arrays["a"][:, b], strict=True)
            for i, row in enumerate(attention.weights(a, attention.PAIRWISE, widest=size).tolist())
            for j, weight in enumerate(row))


# Compare ------------------------------------------------------------------------------------------------------------

def comparison_csv(found: ComparedGroups) -> str:
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
    return csv_text(rows)


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def comparison_markdown(found: ComparedGroups) -> str:
    """Write the table with its caption, and the answer."""
    shown = comparison_table(found)
    return "\n\n".join([markdown_table(shown.heads, shown.rows), shown.caption, *found.sentences]) + "\n"


def comparison_latex(found: ComparedGroups) -> str:
    """Write the table; the answer follows as comments."""
    shown = comparison_table(found)
    return _latex_document(shown.caption, shown.heads, shown.rows, found.sentences)


# A study ------------------------------------------------------------------------------------------------------------

def study_csv(found: StudyReport) -> str:
    """Write one line for each run that the study asks for, and one for each trivial reference."""
    grid, rows = found.grid, list[dict[str, Any]]()
    for row, params in zip(grid.rows, found.params, strict=True):
        compared = found.answer.comparison(row.name)
        low, high = compared.interval if compared and compared.interval else (None, None)
        rows += [{"group": row.name, "kind": "run", "params": params, "seed": one.config.seed,
                  "fold": one.config.get("fold"), "state": one.state, "metric": grid.measure.name, "value": one.value,
                  "run": one.entry.id if one.entry else "", "difference": compared.difference if compared else None,
                  "low": low, "high": high, "effect": compared.effect if compared else "baseline"} for one in row.cells]
    return csv_text([*rows, *({"group": reference.name, "kind": "reference", "metric": grid.measure.name,
                               "value": reference.value} for reference in found.references)])


def study_markdown(found: StudyReport) -> str:
    """Write the question, the table with every seed, the answer, and what is not equal."""
    shown, study = study_table(found), found.grid.study
    parts = [f"## {study.question or study.name}", f"{shown.caption}.", markdown_table(shown.heads, shown.rows)]
    return "\n\n".join([*parts, *_said(found)]) + "\n"


def study_latex(found: StudyReport) -> str:
    """Write the table without single seeds, with the number of seeds in its caption, and the answer as comments."""
    shown, study = study_table(found, cells=False), found.grid.study
    shortest, longest = (choose(len(row.values) for row in found.grid.rows) for choose in (min, max))
    runs = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
    runs += " run" if longest == 1 else " runs"
    caption = f"{study.question + ' ' if study.question else ''}{shown.caption}; {runs} in each group."
    return _latex_document(caption, shown.heads, shown.rows, _said(found))


def _said(found: StudyReport) -> list[str]:
    return [*found.answer.sentences, *(f"Not equal: {note.text}." for note in found.notes)]


# The paper ----------------------------------------------------------------------------------------------------------

def paper_csv(measured: Values, tables: Iterable[PaperTable] = PAPER) -> str:
    """Write one line for each cell of each table, with the ids of its runs."""
    return csv_text(_line(table, label, column, cell, measured.get(cell.key, Measured()))
                    for table in tables for label, row in table.rows.items()
                    for column, cell in zip(table.columns, row, strict=True) if cell is not None)


def _line(table: PaperTable, row: str, column: str, cell: PaperCell, found: Measured) -> dict[str, Any]:
    return {"table": table.name, "row": row, "column": column, "experiment": cell.experiment, "method": cell.method,
            "metric": cell.metric, "settings": " ".join(f"{k}={v}" for k, v in cell.settings.items()),
            "unit": cell.format.unit.strip(), "paper_mean": cell.printed.mean, "paper_std": cell.printed.std,
            "paper_params": cell.printed.params, "params": found.entries[0].params if found.n else None,
            "mean": found.mean, "std": found.std, "runs": found.n, "seeds": " ".join(map(str, found.seeds)),
            "folds": " ".join(map(str, found.folds)), "epochs": found.epochs, "difference": found.difference,
            "mark": found.mark, "note": found.note, "run_ids": " ".join(entry.id for entry in found.entries)}


def paper_markdown(measured: Values, tables: Iterable[PaperTable] = PAPER) -> str:
    """Write each table as a Markdown table under a heading, and explain the marks."""
    parts = ["\n".join([f"## {table.title}", "", table.caption, "", markdown_table(*_grid(table, measured))])
             for table in tables]
    return "\n\n".join([*parts, cells.mark_legend()]) + "\n"


def paper_latex(measured: Values, tables: Iterable[PaperTable] = PAPER) -> str:
    """Write each table as a LaTeX table; needs the packages booktabs and amssymb."""
    parts = [PACKAGES, *(latex_table(table.caption, *_grid(table, measured)) for table in tables)]
    return "\n\n".join([*parts, "% " + cells.mark_legend()]) + "\n"


def _grid(table: PaperTable, measured: Values) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows: for each column of the table the printed and the measured value."""
    heads = ["Method", *(f"{column}, {side}" for column in table.columns for side in ("paper", "ours"))]
    return heads, [[label, *chain.from_iterable(
        ("", "") if cell is None else (cells.printed_text(cell), _ours(cell, measured.get(cell.key, Measured())))
        for cell in row)] for label, row in table.rows.items()]


def _ours(cell: PaperCell, found: Measured) -> str:
    if not found.n:
        return cells.mark_text(found)
    words = [cells.repeats_text(found), cells.difference_text(cell, found), cells.mark_text(found)]
    return f"{cells.mean_text(cell, found)} ({', '.join(filter(None, words))})"


COMPARISON: dict[str, Callable[[ComparedGroups], str]] = {
    "csv": comparison_csv, "md": comparison_markdown, "tex": comparison_latex}
PAPER_TABLES: dict[str, Callable[[Values], str]] = {"csv": paper_csv, "md": paper_markdown, "tex": paper_latex}
