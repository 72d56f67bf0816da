"""Export a study: tables, figures, a self-contained HTML page, code that repeats it, and a site of several studies."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from acenode import experiments
from acenode.compare import study_grid
from acenode.compare.figures import plain_figure
from acenode.compare.groups import settings_text
from acenode.compare.metrics import read_records
from acenode.compare.study_answer import StudyReport, study_table
from acenode.compare.study_figures import study_figures
from acenode.compare.study_grid import MOST_PLAYERS, repeat_title
from acenode.errors import UserError
from acenode.export import report, tables
from acenode.export.report import RunSummary, page, place, table, write_page, writing
from acenode.files import write_atomic
from acenode.player import data as player_data
from acenode.runs.questions import Study
from acenode.runs.store import Run

INTERVALS = "95% intervals by Student's t on differences paired by seed, each for one comparison."
NO_KALEIDO = ("SVG needs Kaleido and a Chrome browser, which are not installed (run `pip install 'acenode[figures]'`): "
              "the page has the same figures")


def export_study(found: StudyReport, to: str, out: Path | None = None, say: Callable[[str], object] = print) -> Path:
    """Write a study in a format of TEXTS, or as `svg`, to `out`, by default NAME.FORMAT in the current folder.

    Figures beside the first are NAME-differences.svg and NAME-curves.svg. Where figures cannot be written as SVG, `say`
    is told why, and the page is written instead. Returns the file.
    """
    study = found.grid.study
    if to not in FORMATS:
        raise UserError(f"there is no export {to!r} of a study: choose one of {', '.join((*FORMATS, 'site'))}")
    if to not in NEED_NO_RUN and not found.grid.finished:
        raise UserError(f"no run of {study.name} is finished yet: train it with `acenode study run {study.name}`")

    target = out or Path()
    if target.is_dir() or not target.suffix:
        target = target / f"{study.name}.{to}"
    pictures = _pictures(found) if to == "svg" else {}
    if to == "svg" and not pictures:
        say(NO_KALEIDO)
        to, target = "html", target.with_suffix(".html")
    contents = {target.with_name(f"{target.stem}{end}.svg"): content for end, content in pictures.items()} \
        or {target: TEXTS[to](found).encode("utf-8", "replace")}
    with writing(target):
        for path, content in contents.items():
            write_atomic(path, content)
    return target


def _pictures(found: StudyReport) -> dict[str, bytes]:
    """Return the figures as SVG by the end of their names; none if Kaleido or its browser is missing."""
    try:
        import kaleido  # noqa: F401

        return {f"-{one.name}" * (one.name != "results"): one.figure.to_image("svg") for one in study_figures(found)}
    except (ImportError, RuntimeError, ValueError, OSError):
        return {}


# The page -----------------------------------------------------------------------------------------------------------

def render(found: StudyReport, links: Mapping[str, str] | None = None) -> str:
    """Return the page as HTML; `links` has the addresses of the reports of its runs, where there are any."""
    study, shown = found.grid.study, study_table(found)
    apart = study.data == "sample" and experiments.get(study.experiment).source is not None
    by_repeat = study_grid.playable(found.grid, finished=True)
    repeat = study_grid.fullest(by_repeat)  # the seed with most finished runs
    runs = {} if repeat is None else dict(list(by_repeat[repeat].items())[:MOST_PLAYERS])  # evolving attention first
    if repeat is None:
        played = '<p class="empty">No finished run has snapshots.</p>'
    else:
        note = f"One run of each group, {repeat_title(study, repeat)}: {', '.join(runs)}."
        played = f'<p class="note">{escape(note)}</p><div id="player" data-figure="player"></div>'
    player = {"runs": [{"id": entry.id, "label": name} for name, entry in runs.items()], "always": True,
              "embedded": {entry.id: player_data.embed(entry.run) for entry in runs.values()}}
    drawn, sample = study_figures(found), " Not comparable with the paper." * apart
    header = (f'<h1>{escape(study.question or study.name)}</h1><p class="run-id">'
              f'{escape(study.name if study.question else study.experiment)}</p>'
              f'<p class="data{" sample" * apart}">{escape(shown.caption)}.{sample}</p>')
    answer = "".join(f"<p>{escape(text)}</p>" for text in found.answer.sentences)
    notes = [note.text + f" (equal with {note.change})" * bool(note.change) for note in found.notes]
    fairness = "<ul>" + "".join(f"<li>{escape(text[:1].upper() + text[1:])}.</li>" for text in notes) + "</ul>" \
        if notes else "<p>The groups differ in nothing but what varies.</p>"
    places = "".join(place(one.name, one.title, kind="study-figure") for one in drawn)
    return page(f"{study.question or study.name} – {study.name}", header, {
        "answer": ("Answer", f'{answer}<p class="note">{INTERVALS}</p>{places}'),
        "table": ("Results", _scroll("Results", table(shown.heads, shown.rows))),
        "fairness": ("Fairness", fairness), "player": ("Trajectories", played),
        "code": ("Repeat it", f'<pre id="commands">{escape(to_commands(study))}</pre>'
                              f'<pre id="python">{escape(to_python(study))}</pre>'),
        "runs": ("Runs", _scroll("Runs", _runs(found, links or {}))),
    }, {"player": player, "figures": {one.name: plain_figure(one.figure) for one in drawn}})


def _scroll(label: str, content: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{content}</div>'


def _runs(found: StudyReport, links: Mapping[str, str]) -> str:
    """Return the table of runs, whose names are links where there are reports."""
    study = found.grid.study
    made = table(("Group", "Repeat", "State", "Run", "Settings"), [
        (row.name, repeat_title(study, cell.repeat), cell.state, cell.entry.id if cell.entry else "–",
         settings_text({k: v for k, v in cell.config.settings.items() if k in study.varied}))
        for row in found.grid.rows for cell in row.cells])
    for run, address in links.items():
        name = escape(run)
        made = made.replace(f"<td>{name}</td>", f'<td><a href="{escape(address)}">{name}</a></td>')
    return made


# A site -------------------------------------------------------------------------------------------------------------

def write_site(studies: Sequence[StudyReport], runs: Sequence[Run], out: Path) -> Path:
    """Write an index, a page for each study and a report for each run into the folder `out`; return the index.

    The runs of a study are part of it once they finish.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is not a folder: choose another place with --out")
    entries = [e for found in studies for row in found.grid.rows for e in row.entries if e.state == "finished"]
    chosen = {run.id: run for run in (*runs, *(entry.run for entry in entries)) if read_records(run)}
    if not chosen:
        raise UserError("there is nothing to export: no run has metrics yet")
    links = {name: f"runs/{name}.html" for name in chosen}
    reports, pages = [], []
    with writing(out):
        for name, run in chosen.items():
            report.write(run, out / links[name])
            about = RunSummary(run)
            tiles = [f"{label} {value}" for label, value in about.tiles if label.startswith("Test ") or label == "Seed"]
            reports.append((links[name], about.title, ", ".join([about.state, *tiles])))
        for found in studies:
            study = found.grid.study
            write_page(render(found, links), out / f"{study.name}.html", study.name)
            pages.append((f"{study.name}.html", study.question or study.name, found.answer.text))
        index = page("ACE-NODE Lab: reports", "<h1>ACE-NODE Lab: reports</h1>",
                     {"studies": ("Studies", _links(pages)), "runs": ("Runs", _links(reports))})
        return write_page(index, out / "index.html", "index")


def _links(links: Sequence[tuple[str, str, str]]) -> str:
    items = "".join(f'<li><a href="{escape(address)}">{escape(name)}</a><p class="note">{escape(about)}</p></li>'
                    for address, name, about in links)
    return f"<ul>{items}</ul>" * bool(links)


# Code ---------------------------------------------------------------------------------------------------------------

def to_commands(study: Study) -> str:
    """Write the commands that make, train and show a study."""
    words = ["acenode", "study", "new", study.name, study.experiment, "--data", study.data]
    for group in study.groups:
        words += ["--group", " ".join([group.method, *_assignments(group.settings)])]
    for text in _assignments(study.held):
        words += ["--set", text]
    for flag, values in (("--seeds", study.seeds), ("--folds", study.folds)):
        words += [flag, ",".join(map(str, values))] if values else []
    words += ["--baseline", str(study.baseline + 1)]
    words += ["--metric", study.metric] if study.metric else []
    words += ["--question", study.question] if study.question else []
    return "\n".join([shlex.join(words), f"acenode study run {study.name}", f"acenode study show {study.name}"]) + "\n"


def _assignments(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()]


def to_python(study: Study, runs: str = "runs") -> str:
    """Write a script that trains what is missing of a study in the folder `runs` and prints the answer."""
    groups = "".join(f"    StudyGroup({group.method!r}, {dict(group.settings)!r}),\n" for group in study.groups)
    more = {"data": study.data, "seeds": study.seeds, "baseline": study.baseline, **{
        key: value for key, value in (("folds", study.folds), ("held", dict(study.held)), ("metric", study.metric),
                                      ("question", study.question)) if value}}
    return (f'"""Train what is missing of the study {study.name} and print its answer."""\n'
            "from acenode.execution.study_run import train_study\n"
            "from acenode.compare.study_answer import answer\n"
            "from acenode.runs.questions import Study, StudyGroup\n\n"
            f"groups = (\n{groups})\n"
            f"study = Study({study.name!r}, {study.experiment!r}, groups, "
            f"{', '.join(f'{key}={value!r}' for key, value in more.items())})\n"
            f"print(answer(train_study(study, {runs!r})).text)\n")


TEXTS: dict[str, Callable[[StudyReport], str]] = {
    "csv": tables.study_csv, "md": tables.study_markdown, "tex": tables.study_latex, "html": render,
    "py": lambda found: to_python(found.grid.study), "sh": lambda found: to_commands(found.grid.study)}
FORMATS = ("csv", "md", "tex", "svg", "html", "py", "sh")
NEED_NO_RUN = frozenset({"py", "sh"})
