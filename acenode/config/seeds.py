"""Read a list of seeds as people write it."""

from __future__ import annotations

import re

from acenode.config.vocabulary import check
from acenode.errors import UserError

MOST_SEEDS = 50  # at a time


def read_seeds(text: str) -> list[int]:
    """Read `0`, `0, 1, 5`, `0 1 5` or `0-4`."""
    found: list[int] = []
    parts = re.sub(r"\s*-\s*", "-", text.strip()).replace(";", ",")
    for part in re.split(r"\s*,\s*|\s+", parts):
        first, dash, last = (p.strip() for p in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError(f"seeds are whole numbers, such as 0 or 0, 1, 2 or 0-4, not {part.strip()!r}")
        end = int(last) if dash else int(first)
        if not 0 <= end - int(first) < MOST_SEEDS:
            raise UserError(f"a range of seeds goes upwards and has at most {MOST_SEEDS} of them, not {part.strip()!r}")
        found += [check("seed", n) for n in range(int(first), end + 1)]
    if len(found) > MOST_SEEDS:
        raise UserError(f"at most {MOST_SEEDS} seeds at a time, not {len(found)}")
    return list(dict.fromkeys(found))
