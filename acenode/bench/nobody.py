"""Who listens to a trainer while it is measured."""

from __future__ import annotations

from typing import Any


class Nobody:
    """Hears nothing and never asks to stop."""

    def stop_asked(self) -> bool:
        return False

    def checkpoint_due(self) -> bool:
        return False

    def steps(self, records: list[dict[str, Any]]) -> None: ...
    def epoch(self, record: dict[str, Any]) -> None: ...
    def checkpoint(self, state: dict[str, Any]) -> None: ...
