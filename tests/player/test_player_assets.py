"""The player's modules as one script."""

from __future__ import annotations

import re

from acenode.player import assets as player_assets


def test_every_module_is_in_the_script_after_the_modules_it_imports() -> None:
    script = player_assets.script()
    defined = re.findall(r'^modules\["([\w.]+)"\] = ', script, re.MULTILINE)
    assert sorted(defined) == sorted(p.name for p in player_assets.FOLDER.glob("*.js"))
    assert defined[-1] == "player.js"
    for i, part in enumerate(re.split(r'^modules\["[\w.]+"\] = ', script, flags=re.MULTILINE)[1:]):
        used = re.findall(r'^const \{[^}]*\} = modules\["([\w.]+)"\];$', part, re.MULTILINE)
        assert set(used) <= set(defined[:i])


def test_the_script_has_no_module_syntax_left() -> None:
    assert not re.search(r"^\s*(import|export)\b", player_assets.script(), re.MULTILINE)


def test_every_imported_name_is_exported() -> None:
    for path in player_assets.FOLDER.glob("*.js"):
        for names, other in re.findall(r'^import \{([^}]*)\} from "\./([\w.]+)";', path.read_text(), re.MULTILINE):
            source = (player_assets.FOLDER / other).read_text()
            exported = set(re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", source, re.MULTILINE))
            assert {name.strip() for name in names.split(",")} <= exported, path.name
