"""Export a study: tables, figure, page and code by the name of the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from acenode.compare.study_answer import StudyReport
from acenode.errors import UserError
from acenode.export import study_code, study_page, study_tables
from acenode.export.study_figure import to_svg
from acenode.export.study_figures import figures
from acenode.files import write_atomic

TEXTS: dict[str, Callable[[StudyReport], str]] = {
    "csv": study_tables.to_csv, "md": study_tables.to_markdown, "tex": study_tables.to_latex, "svg": to_svg,
    "html": study_page.render, "py": lambda found: study_code.to_python(found.grid.study),
    "sh": lambda found: study_code.to_commands(found.grid.study)}
NEED_NO_RUN = frozenset({"py", "sh"})


def export_study(found: StudyReport, to: str, out: Path | None = None) -> Path:
    """Write a study in a format of TEXTS to `out`, by default NAME.FORMAT in the current folder; return the file.

    Further figures are written beside the first: NAME-differences.svg and NAME-curves.svg.
    """
    if to not in TEXTS:
        raise UserError(f"there is no export {to!r} of a study: choose one of {', '.join((*TEXTS, 'site'))}")
    if to not in NEED_NO_RUN:
        study_page.check_finished(found)
    name = f"{found.grid.study.name}.{to}"
    place = Path(name) if out is None else out / name if out.is_dir() or not out.suffix else out
    others = figures(found)[1:] if to == "svg" else []
    try:
        write_atomic(place, TEXTS[to](found).encode("utf-8", "replace"))
        for figure in others:
            write_atomic(place.with_name(f"{place.stem}-{figure.name}.svg"), figure.svg.encode("utf-8", "replace"))
    except OSError as error:
        raise UserError(f"{place} cannot be written ({error.strerror or error}): choose another place with --out") \
            from None
    return place
