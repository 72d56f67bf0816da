"""The answer that README.md and docs/results.md give is the one that the recorded runs give."""

from __future__ import annotations

from pathlib import Path

from acenode.compare import against_host, verdict
from acenode.compare.against_host import contests
from acenode.compare.cells import measure_all
from acenode.runs.catalogue import Catalogue
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore

ROOT = Path(__file__).parent.parent


def findings() -> list[verdict.Finding]:
    folder = recorded_runs()
    assert folder is not None
    entries = Catalogue(RunStore(folder, folder)).entries()
    return [verdict.judge(contest) for contest in contests(measure_all(entries))]


def test_readme_and_results_give_the_answer_of_the_recorded_runs() -> None:
    found = findings()
    answer = f"{against_host.summary(found)} {against_host.prediction_note(found)}".strip()
    for name in ("README.md", "docs/results.md"):
        text = (ROOT / name).read_text(encoding="utf-8").replace("**", "")
        assert answer in " ".join(text.split()), f"{name} should say: {answer}"


def test_results_have_the_table_of_comparisons() -> None:
    rows = against_host.table(findings())
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    assert table in (ROOT / "docs" / "results.md").read_text(encoding="utf-8"), f"docs/results.md should have\n{table}"
