"""Presets: which defaults the given settings override."""

from __future__ import annotations

from acenode.errors import UserError

PRESET = "preset"  # given like a setting; config.json keeps what it resolves to
CHOSEN, PRINTED = "chosen", "printed"  # the lab's defaults; the paper's settings also where they do not work
PRESETS = (CHOSEN, PRINTED)


def check_preset(preset: object) -> str:
    """Return the preset, or raise an error that lists the presets there are."""
    if preset not in PRESETS:
        raise UserError(f"there is no preset {preset!r}: choose {' or '.join(PRESETS)}")
    return str(preset)
