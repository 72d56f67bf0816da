"""The table of Compare as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io

import pytest
from catalogue_entries import entry

from acenode.compare.groups import grouped_frame
from acenode.compare.verdict import ComparedGroups, compare_groups
from acenode.export.tables import COMPARISON as FORMATS


@pytest.fixture
def found() -> ComparedGroups:
    values = {"odenet": (0.90, 0.91, 0.92), "ace": (0.92, 0.93, 0.942)}
    runs = [entry(method, value, seed=n) for method, own in values.items() for n, value in enumerate(own)]
    return compare_groups(grouped_frame([*runs, entry(value=0.5, data="full")]), "ODE-Net (sample)")


def test_csv_has_plain_numbers(found: ComparedGroups) -> None:
    host, ace, other = csv.DictReader(io.StringIO(FORMATS["csv"](found)))
    assert (host["effect"], ace["effect"], other["effect"]) == ("baseline", "helps", "not comparable")
    assert float(ace["difference"]) == pytest.approx(0.0620 / 3)
    assert float(ace["low"]) < float(ace["difference"]) < float(ace["high"])
    assert (host["difference"], other["low"], ace["runs"], ace["pairs"]) == ("", "", "3", "3")


def test_markdown_and_latex_have_the_table_and_the_answer(found: ComparedGroups) -> None:
    markdown, latex = FORMATS["md"](found), FORMATS["tex"](found)
    assert "| ODE-Net (sample) (baseline) | 3 | 91.00 ± 1.00% |" in markdown
    assert "ACE-ODE-Net (sample) helps: accuracy +2.07 points" in markdown
    assert r"ODE-Net (sample) (baseline) & 3 & 91.00 $\pm$ 1.00\% &" in latex
    assert "% ACE-ODE-Net (sample) helps" in latex
    assert latex.count(r"\begin{tabular}") == 1
