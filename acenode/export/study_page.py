"""A study as one self-contained HTML page: answer, figure, table, players, and the code that repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template

from acenode import experiments
from acenode.compare import study_grid
from acenode.compare.groups import settings_text
from acenode.compare.study_answer import StudyReport, study_table
from acenode.compare.study_grid import MOST_PLAYERS, repeat_title
from acenode.errors import UserError
from acenode.export import study_code
from acenode.export.html_parts import asset, digest, embedded, script, table
from acenode.export.study_figures import figures
from acenode.files import write_atomic
from acenode.player import assets as player_assets
from acenode.player import data as player_data
from acenode.runs.entry import Entry
from acenode.runs.questions import Repeat

SCRIPTS = ("base.js", "player.js")


def write(found: StudyReport, out: Path, links: Mapping[str, str] | None = None) -> Path:
    """Write the page to `out`, or into it under the study's name if it is a folder."""
    if out.is_dir() or out.suffix.lower() not in (".html", ".htm"):
        out = out / f"{found.grid.study.name}.html"
    write_atomic(out, render(found, links).encode("utf-8", "replace"))
    return out


def render(found: StudyReport, links: Mapping[str, str] | None = None) -> str:
    """Return the page as HTML.

    Args:
        found: the study.
        links: addresses of the reports of its runs by run id, where there are any.
    """
    study, shown = found.grid.study, study_table(found)
    apart = study.data == "sample" and experiments.get(study.experiment).source is not None
    repeat, runs = played_runs(found)
    films = {entry.id: player_data.embed(entry.run) for entry in runs.values()}
    player = {"runs": [{"id": entry.id, "label": name} for name, entry in runs.items()], "embedded": films,
              "always": True}
    code = script("\n".join((player_assets.script(), *(asset(name) for name in SCRIPTS))))
    return Template(asset("study.html")).substitute(
        title=escape(study.question or study.name), name=escape(study.name if study.question else study.experiment),
        style=asset("style.css") + player_assets.style_sheet(), scripts=digest(code), code=code,
        data=embedded({"player": player, "classes": []}), caption=escape(f"{shown.caption}."),
        sample=" sample" if apart else "", comparable=" Not comparable with the paper." if apart else "",
        answer=_answer(found), figure=_figures(found), table=table(shown.heads, shown.rows), fairness=_fairness(found),
        player=_player(found, repeat, runs), runs=_runs(found, links or {}),
        python=escape(study_code.to_python(study)), commands=escape(study_code.to_commands(study)))


def played_runs(found: StudyReport) -> tuple[Repeat | None, dict[str, Entry]]:
    """Return the seed with most finished runs, and its runs by group, at most four, evolving attention first."""
    by_repeat = study_grid.playable(found.grid, finished=True)
    best = study_grid.fullest(by_repeat)
    return best, {} if best is None else dict(list(by_repeat[best].items())[:MOST_PLAYERS])


def _answer(found: StudyReport) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in found.answer.sentences)


def _figures(found: StudyReport) -> str:
    return "".join(f'<figure class="study-figure" tabindex="0" aria-label="{escape(figure.title)}"><figcaption>'
                   f'{escape(figure.title)}</figcaption>{figure.svg}</figure>' for figure in figures(found))


def _fairness(found: StudyReport) -> str:
    if not found.notes:
        return "<p>The groups differ in nothing but what varies.</p>"
    lines = [note.text + (f" (equal with {note.offer.change})" if note.offer else "") for note in found.notes]
    return "<ul>" + "".join(f"<li>{escape(line[:1].upper() + line[1:])}.</li>" for line in lines) + "</ul>"


def _player(found: StudyReport, repeat: Repeat | None, runs: Mapping[str, Entry]) -> str:
    if repeat is None:
        return '<p class="empty">No finished run has snapshots.</p>'
    note = f"One run of each group, {repeat_title(found.grid.study, repeat)}: {', '.join(runs)}."
    return f'<p class="note">{escape(note)}</p><div id="player" data-figure="player"></div>'


def _runs(found: StudyReport, links: Mapping[str, str]) -> str:
    rows = []
    for row in found.grid.rows:
        for cell in row.cells:
            name = escape(cell.entry.id) if cell.entry else "–"
            if cell.entry is not None and cell.entry.id in links:
                name = f'<a href="{escape(links[cell.entry.id])}">{name}</a>'
            settings = settings_text({k: v for k, v in cell.config.settings.items() if k in found.grid.study.varied})
            texts = (escape(row.name), escape(repeat_title(found.grid.study, cell.repeat)), escape(cell.state), name,
                     escape(settings))
            rows.append("<tr>" + "".join(f"<td>{text}</td>" for text in texts) + "</tr>")
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Group", "Repeat", "State", "Run", "Settings"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def check_finished(found: StudyReport) -> None:
    """Raise a UserError if no run of the study is finished."""
    if not found.grid.finished:
        name = found.grid.study.name
        raise UserError(f"no run of {name} is finished yet: train it with `acenode study run {name}`")
