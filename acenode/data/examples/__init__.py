"""Sets of series with named variables that come with the project, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from acenode.data.examples import measured, simulated
from acenode.data.named_set import NamedSet
from acenode.errors import UserError

BUILDERS: dict[str, Callable[[], NamedSet]] = {
    "oscillators": simulated.oscillators, "predator-prey": simulated.predator_prey,
    "la-speeds": measured.la_speeds, "ny-speeds": measured.ny_speeds, "stocks": measured.stocks,
    "liver": measured.liver, "air-quality": measured.air_quality,
}


@lru_cache(maxsize=4)
def example(name: str) -> NamedSet:
    """Return the example of that name; the error lists the names there are."""
    if name not in BUILDERS:
        raise UserError(f"there is no example {name!r}: choose one of {', '.join(BUILDERS)}")
    return BUILDERS[name]()
