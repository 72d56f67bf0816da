"""Notes and tags that a person keeps beside a run, in its notes.json."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from acenode.errors import UserError
from acenode.files import read_json, write_json
from acenode.runs.store import Run

LONGEST_NOTES, MOST_TAGS, LONGEST_TAG = 10_000, 20, 40
FILE = "notes.json"


@dataclass(frozen=True)
class Notes:
    """What a person wrote about a run."""

    notes: str = ""
    tags: tuple[str, ...] = ()


def read_notes(run: Run) -> Notes:
    """The run's notes; empty where there are none, or where the file is broken."""
    try:
        value = read_json(run.path / FILE)
        return _checked(value.get("notes", ""), value.get("tags", []))
    except (OSError, ValueError, AttributeError, RecursionError, UserError):
        return Notes()


def write_notes(run: Run, notes: str, tags: Iterable[str]) -> Notes:
    """Keep notes and tags, tidied: what was kept. What is refused leaves the file as it was."""
    kept = _checked(notes, tags)
    if not run.path.is_dir():  # writing would bring a deleted run's folder back
        raise UserError(f"{run.id} is gone: somebody deleted it")
    try:
        write_json(run.path / FILE, {"notes": kept.notes, "tags": list(kept.tags)})
    except OSError as error:
        raise UserError(f"the notes of {run.id} cannot be written ({error.strerror or error}): put that right, "
                        "then save them again") from None
    return kept


def _checked(notes: object, tags: object) -> Notes:
    if not isinstance(notes, str):
        raise UserError("notes must be text")
    notes = notes.replace("\r\n", "\n")
    if len(notes) > LONGEST_NOTES:
        raise UserError(f"the notes have {len(notes):,} characters: {LONGEST_NOTES:,} are the most")
    _refuse_control(notes.replace("\n", "").replace("\t", ""), "the notes")
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UserError("tags must be a list of words")
    tidy = tuple(dict.fromkeys(filter(None, (_tag(tag) for tag in tags))))  # each once, in order
    if len(tidy) > MOST_TAGS:
        raise UserError(f"there are {len(tidy)} tags: {MOST_TAGS} are the most")
    return Notes(notes, tidy)


def _tag(tag: object) -> str:
    if not isinstance(tag, str):
        raise UserError("a tag must be text")
    tag = tag.strip()
    _refuse_control(tag, "a tag")
    if len(tag) > LONGEST_TAG:
        raise UserError(f"the tag {tag[:LONGEST_TAG]!r}… has {len(tag)} characters: {LONGEST_TAG} are the most")
    return tag


def _refuse_control(text: str, what: str) -> None:
    bad = next((c for c in text if unicodedata.category(c) in ("Cc", "Cs")), None)  # Cs: half a character
    if bad is not None:
        raise UserError(f"{what} may not hold the control character U+{ord(bad):04X}: take it out")
