"""The colours of the app have the contrast that WCAG AA asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

APP = Path(__file__).parents[2] / "app"
THEME = tomllib.loads((APP / "config.toml").read_text(encoding="utf-8"))["theme"]
BUTTON = re.search(r"stBaseButton-primary.*color: light-dark\((#\w{6}), (#\w{6})\)",
                   (APP / "assets" / "page.css").read_text(encoding="utf-8"))


def luminance(colour: str) -> float:
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_links_and_primary_buttons_can_be_read(scheme: str) -> None:
    own = THEME[scheme]
    for background in (own["backgroundColor"], own["secondaryBackgroundColor"]):
        assert contrast(own["textColor"], background) >= 7
        assert contrast(own["primaryColor"], background) >= 4.5  # links and the open tab
    assert BUTTON
    assert contrast(BUTTON[1 if scheme == "light" else 2], own["primaryColor"]) >= 4.5


def test_contrast_of_known_colours() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#ffffff", THEME["dark"]["primaryColor"]) < 3  # why its letters are dark
