"""The player's modules as one script, and the colours that it shares with figures."""

from __future__ import annotations

import re

from acenode.compare.colours import CLASS_COLOURS, class_colour
from acenode.player import assets as player_assets


def test_every_module_is_in_the_script_after_the_modules_it_imports() -> None:
    script = player_assets.script()
    _, *parts = re.split(r'^modules\["([\w.]+)"\] = ', script, flags=re.MULTILINE)
    defined = parts[::2]
    assert sorted(defined) == sorted(p.name for p in player_assets.FOLDER.glob("*.js"))
    for i, part in enumerate(parts[1::2]):
        used = re.findall(r'^const \{[^}]*\} = modules\["([\w.]+)"\];$', part, re.MULTILINE)
        assert set(used) <= set(defined[:i])
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)


def test_the_player_has_the_same_list() -> None:
    code = (player_assets.FOLDER / "colours.js").read_text(encoding="utf-8")
    listed = re.search(r"const CLASSES = (\[[^]]*\])", code)
    assert listed
    assert tuple(re.findall(r"#[0-9a-f]{6}", listed[1])) == CLASS_COLOURS
    assert len(set(map(class_colour, range(30)))) == 30
