"""A static site of several reports: an index, a page for each study, and a report for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from acenode.compare.metrics import read_records
from acenode.compare.study_answer import StudyReport
from acenode.errors import UserError
from acenode.export import report, run_summary, study_page
from acenode.export.html_parts import asset
from acenode.files import write_atomic
from acenode.runs.store import Run

FOLDER = "runs"  # of the reports of runs, below the index


@dataclass(frozen=True)
class SiteLink:
    """A line of the index: where it leads, its title, and what it says."""

    address: str
    title: str
    about: str


def write(studies: Sequence[StudyReport], runs: Sequence[Run], out: Path) -> Path:
    """Write a site into the folder `out` and return its index. The runs of a study are part of it once they finish."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is not a folder: choose another place with --out")
    entries = [e for found in studies for row in found.grid.rows for e in row.entries if e.state == "finished"]
    chosen = {run.id: run for run in (*runs, *(entry.run for entry in entries)) if read_records(run)}
    if not chosen:
        raise UserError("there is nothing to export: no run has metrics yet")
    links = {name: f"{FOLDER}/{name}.html" for name in chosen}
    for run in chosen.values():
        report.write(run, out / links[run.id])
    for found in studies:
        study_page.write(found, out / f"{found.grid.study.name}.html", links)
    index = out / "index.html"
    write_atomic(index, render_index(studies, list(chosen.values())).encode("utf-8", "replace"))
    return index


def render_index(studies: Sequence[StudyReport], runs: Sequence[Run]) -> str:
    """Return the page that links to all others."""
    pages = [SiteLink(f"{found.grid.study.name}.html", found.grid.study.question or found.grid.study.name,
                      found.answer.text) for found in studies]
    reports = []
    for run in runs:
        about = run_summary.read(run, read_records(run))
        tiles = [f"{label} {value}" for label, value in about.tiles if label.startswith("Test ") or label == "Seed"]
        reports.append(SiteLink(f"{FOLDER}/{run.id}.html", about.title, ", ".join([about.state, *tiles])))
    return Template(asset("index.html")).substitute(
        style=asset("style.css"), studies=_section("Studies", pages), runs=_section("Runs", reports))


def _section(title: str, links: Sequence[SiteLink]) -> str:
    if not links:
        return ""
    items = "".join(f'<li><a href="{escape(link.address)}">{escape(link.title)}</a><p class="note">{escape(link.about)}'
                    "</p></li>" for link in links)
    return f"<section><h2>{escape(title)}</h2><ul>{items}</ul></section>"
