"""Read and write the user's notes and tags of a run, in its notes.json."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from acenode.errors import UserError
from acenode.files import read_json, write_json
from acenode.runs.store import Run

MAX_NOTES, MAX_TAGS, MAX_TAG = 10_000, 20, 40  # characters, tags, characters of a tag
FILE = "notes.json"


@dataclass(frozen=True)
class Notes:
    """Notes and tags of a run."""

    notes: str = ""
    tags: tuple[str, ...] = ()


def read_notes(run: Run) -> Notes:
    """Return the run's notes; empty if there are none or the file is damaged."""
    try:
        value = read_json(run.path / FILE)
        return _checked(value.get("notes", ""), value.get("tags", []))
    except (OSError, ValueError, AttributeError, RecursionError, UserError):
        return Notes()


def write_notes(run: Run, notes: str, tags: Iterable[str]) -> Notes:
    """Write notes and tags, and return them as written: tags stripped, each once. Invalid ones raise an error and
    leave the file unchanged."""
    run.refuse_recorded("annotated")
    kept = _checked(notes, tags)
    try:
        write_json(run.path / FILE, {"notes": kept.notes, "tags": list(kept.tags)}, make_folder=False)
    except FileNotFoundError:
        raise UserError(f"{run.id} no longer exists: it was deleted") from None
    except OSError as error:
        raise UserError(f"the notes of {run.id} cannot be written ({error.strerror or error}): fix that, "
                        "then save them again") from None
    return kept


def _checked(notes: object, tags: object) -> Notes:
    if not isinstance(notes, str):
        raise UserError("notes must be text")
    notes = notes.replace("\r\n", "\n")
    if len(notes) > MAX_NOTES:
        raise UserError(f"the notes have {len(notes):,} characters: at most {MAX_NOTES:,} are allowed")
    _refuse_control(notes.replace("\n", "").replace("\t", ""), "the notes")
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UserError("tags must be a list of words")
    tidy = tuple(dict.fromkeys(filter(None, (_tag(tag) for tag in tags))))  # each once, in order
    if len(tidy) > MAX_TAGS:
        raise UserError(f"there are {len(tidy)} tags: at most {MAX_TAGS} are allowed")
    return Notes(notes, tidy)


def _tag(tag: object) -> str:
    if not isinstance(tag, str):
        raise UserError("a tag must be text")
    tag = tag.strip()
    _refuse_control(tag, "a tag")
    if len(tag) > MAX_TAG:
        raise UserError(f"the tag {tag[:MAX_TAG]!r}… has {len(tag)} characters: at most {MAX_TAG} are allowed")
    return tag


def _refuse_control(text: str, what: str) -> None:
    bad = next((c for c in text if unicodedata.category(c) in ("Cc", "Cs")), None)  # Cs: half of a surrogate pair
    if bad is not None:
        raise UserError(f"{what} may not contain the control character U+{ord(bad):04X}: remove it")
