"""The paper's tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import dataclasses
import io
import re

from catalogue_entries import entry

from acenode.compare.cells import Measured, measure_all
from acenode.compare.paper import CELLS, TABLES
from acenode.export.tables import PAPER_TABLES as FORMATS
from acenode.export.tables import paper_csv as to_csv
from acenode.export.tables import paper_latex as to_latex
from acenode.export.tables import paper_markdown as to_markdown

RUNS = [dataclasses.replace(entry("ace", value, data="full", seed=seed, epochs=40), metric="accuracy")
        for seed, value in enumerate((0.9950, 0.9960))]


def test_csv_has_every_cell_with_its_runs() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(measure_all(RUNS)))))
    assert len(rows) == sum(len(table.cells) for table in TABLES.values())
    assert len({(r["experiment"], r["method"], r["metric"], r["settings"]) for r in rows}) == len(CELLS)
    (ours,) = [r for r in rows if (r["table"], r["method"]) == ("mnist", "ace")]
    assert (ours["paper_mean"], ours["paper_std"], ours["runs"], ours["seeds"]) == ("99.68", "0.03", "2", "0 1")
    assert float(ours["mean"]) == 99.55
    assert (ours["epochs"], ours["mark"], ours["unit"]) == ("40", "worse", "%")
    assert ours["run_ids"].split() == [run.id for run in RUNS]
    other = next(r for r in rows if r["method"] == "resnet")
    assert (other["mean"], other["mark"]) == ("", "missing")


def test_markdown_has_one_row_a_method() -> None:
    text = to_markdown(measure_all(RUNS), [TABLES["mnist"]])
    assert "| Method | Accuracy, paper | Accuracy, ours |" in text
    assert "| ACE-ODE-Net | 99.68 ± 0.03 | 99.55 ± 0.07 (2 seeds, 40 of 160 epochs, −0.13, ▼ worse) |" in text
    assert "| ResNet | 99.65 ± 0.03 | ○ not measured |" in text
    assert text.count("\n| ") == 2 + len(TABLES["mnist"].rows)


def test_a_cell_that_the_paper_does_not_print_is_empty() -> None:
    line = next(x for x in to_markdown({}, [TABLES["attention-error"]]).splitlines() if x.startswith("| Fixed"))
    assert line.startswith("| Fixed-ACE |  |  | 2.113 |")


def test_latex_is_balanced_and_escaped() -> None:
    text = to_latex(measure_all(RUNS))
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == len(TABLES)
    assert r"99.55 $\pm$ 0.07 (2 seeds, 40 of 160 epochs, $-$0.13, $\blacktriangledown$ worse) \\" in text
    assert r"$\times 10^{-3}$" in text
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert not re.search(r"(?<!\\)[%#_]", body)
    assert body.isascii(), sorted({c for c in body if not c.isascii()})
    for table in TABLES.values():
        assert len(table.columns) * 2 + 1 in {len(m) for m in re.findall(r"\\begin\{tabular\}\{(l+)\}", body)}


def test_all_formats_work_without_runs() -> None:
    for write in FORMATS.values():
        assert "99.68" in write({key: Measured() for key in CELLS})
