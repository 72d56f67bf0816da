"""The player's modules as one script, and the colours that it shares with figures."""

from __future__ import annotations

import re
from pathlib import Path

from acenode.compare.colours import CLASS_COLOURS, class_colour
from acenode.player import assets as player_assets


def test_every_module_is_in_the_script_after_the_modules_it_imports() -> None:
    script = player_assets.script()
    defined = re.findall(r'^modules\["([\w.]+)"\] = ', script, re.MULTILINE)
    assert sorted(defined) == sorted(p.name for p in player_assets.FOLDER.glob("*.js"))
    assert defined[-1] == "player.js"
    for i, part in enumerate(re.split(r'^modules\["[\w.]+"\] = ', script, flags=re.MULTILINE)[1:]):
        used = re.findall(r'^const \{[^}]*\} = modules\["([\w.]+)"\];$', part, re.MULTILINE)
        assert set(used) <= set(defined[:i])

    assert not re.search(r"^\s*(import|export)\b", player_assets.script(), re.MULTILINE)


ROOT = Path(__file__).parents[2]


def test_the_player_has_the_same_list() -> None:
    code = (player_assets.FOLDER / "colours.js").read_text(encoding="utf-8")
    listed = re.search(r"const CLASSES = (\[[^]]*\])", code)
    assert listed
    assert tuple(re.findall(r"#[0-9a-f]{6}", listed[1])) == CLASS_COLOURS
    assert len(set(map(class_colour, range(30)))) == 30


def test_no_chart_uses_webgl_or_other_class_colours() -> None:
    """A browser has few WebGL contexts: the charts of ten runs would take each other's."""
    sources = [*(ROOT / "app").rglob("*.py"), *(ROOT / "app" / "assets").glob("*.js"),
               *(ROOT / "acenode" / "export").rglob("*.*s"), *player_assets.FOLDER.glob("*.js")]
    for path in sources:
        code = path.read_text(encoding="utf-8")
        assert "scattergl" not in code, path
        assert 'getContext("webgl' not in code, path
    assert len(sources) > 40
