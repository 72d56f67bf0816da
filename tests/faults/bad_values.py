"""Bad values, texts, bytes and files for generated cases; all randomness comes from the generator that is passed in."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXTS = ["", " ", "-", "--", "0", "-1", "1", "3.5", "1e308", "-1e999", "nan", "inf", "1_0", "٣٣", "true", "None",
         "null", "\n", "\t", "\ud800", "\udcff", "\x7f", "\x1b[31m", "💥", "é", "a" * 5000, "%s%n", "{}", "$(true)",
         "'", '"', "<b>x</b>", "../..", "../../etc/passwd", "/", "/dev/null", ".", "..", "~", "con", "a/b", "a\\b",
         "9" * 400, "last", "all", "recorded", "[x](http://nowhere)", "=1+1", ",", ";", "@", "a@1", "0-",
         "0-99999999999", "5-1", "1,1,1"]
VALUES: list[Any] = [None, True, False, 0, -1, 1, 10**400, -(10**30), 1e308, -1e308, 1e-320, float("nan"),
                     float("inf"), "", "x", "\ud800", "<script>", "a" * 3000, [], [[]], [1, "a", None], {},
                     {"a": {"b": []}}, [0] * 3000]
OTHERS = [b"", b"{", b"[]", b"null", b"\xff" * 50, b"[" * 5000 + b"]" * 5000, b"PK\x03\x04", b"\x1f\x8b\x08"]


def text(rng: random.Random) -> str:
    """Return a bad text, or some random characters."""
    if rng.random() < 0.8:
        return rng.choice(TEXTS)
    ranges = [range(32, 127), range(160, 0x3000)]
    return "".join(chr(rng.choice(rng.choice(ranges))) for _ in range(rng.randrange(1, 12)))


def change_json(value: Any, rng: random.Random) -> Any:
    """Replace, remove or add one value somewhere in a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        what = rng.random()
        if what < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if what < 0.25:
            return {**value, rng.choice(["", "x", "\ud800", "format", key + "2"]): rng.choice(VALUES)}
        return {**value, key: change_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.6:
        i = rng.randrange(len(value))
        return [*value[:i], change_json(value[i], rng), *value[i + 1:]]
    return rng.choice(VALUES)


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat or replace bytes."""
    if not data:
        return rng.choice([b"{", b"\0", b"[]"])
    at = rng.randrange(len(data))
    what = rng.choice(["flip", "flip", "digit", "digit", "cut", "insert", "double", "other"])
    digits = [i for i, byte in enumerate(data[:100_000]) if 48 <= byte <= 57] if what == "digit" else []
    if digits:
        at = rng.choice(digits)
        return data[:at] + b"%d" % rng.randrange(10) + data[at + 1:]
    if what in ("flip", "digit"):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 3, 30])):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)
    inserted = rng.choice([b"\0", b"\xff\xfe", b"\n\n", b'"', b"[" * 2000, b"9" * 500, b"NaN"])
    return {"cut": data[:at], "insert": data[:at] + inserted + data[at:], "double": data + data[:100_000]}.get(
        what, rng.choice(OTHERS))


def _large(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(300_000_000)  # a hole: no disk space is used


OTHER_KINDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None, "pipe": os.mkfifo, "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name), "dangling": lambda path: path.symlink_to("nowhere"),
    "device": lambda path: path.symlink_to("/dev/zero"), "large": _large}


def damage_file(path: Path, rng: random.Random) -> None:
    """Change a file, or put something else in its place."""
    what = rng.random()
    if what < 0.45 and path.suffix == ".json":
        try:
            value = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            value = {}
        for _ in range(rng.choice([1, 1, 2])):
            value = change_json(value, rng)
        path.write_text(json.dumps(value), encoding="utf-8", errors="surrogatepass")
    elif what < 0.85:
        path.write_bytes(change_bytes(path.read_bytes(), rng))
    else:
        path.unlink()
        OTHER_KINDS[rng.choice(list(OTHER_KINDS))](path)


def damage_folder(folder: Path, rng: random.Random) -> None:
    """Damage one to three files of a folder, or a folder in it."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
        if rng.random() < 0.05:
            part = folder / rng.choice(["snapshots", "checkpoints"])
            shutil.rmtree(part, ignore_errors=True)
            if rng.random() < 0.5 and not part.exists():
                part.write_bytes(b"not a folder")
        elif files:
            damage_file(rng.choice(files), rng)
