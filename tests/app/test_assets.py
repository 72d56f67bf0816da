"""JavaScript that needs no page, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from acenode_app import asset_files

from acenode.results import player_assets


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Return a function that runs a script beside all modules of the app and returns what it prints, from JSON."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for folder in asset_files.FOLDERS:
        for file in folder.glob("*.js"):
            shutil.copy(file, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')

    def ran(script: str) -> Any:
        (tmp_path / "script.js").write_text(script)
        done = subprocess.run(["node", "script.js"], cwd=tmp_path, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ran


def test_the_axis_of_losses_reaches_the_smallest_one(run: Any) -> None:
    found = run("""import { lossRange } from "./playground_loss.js";
        console.log(JSON.stringify([[0.5, 3e-8], [0.9], [250, 0.01], [1, 0], [1, 1e-30]].map(lossRange)));""")
    assert found == [[-8, 0], [-1, 0], [-2, 3], [-1, 0], [-12, 0]]


def test_polling_never_asks_twice_at_once_and_goes_on_after_an_error(run: Any) -> None:
    found = run("""import { poll } from "./poll.js";
        globalThis.document = { hidden: false };
        const wait = (ms) => new Promise((done) => setTimeout(done, ms));
        let calls = 0, at_once = 0, most = 0;
        const polling = poll(async () => {
          calls += 1;
          most = Math.max(most, ++at_once);
          await wait(5);
          at_once -= 1;
          if (calls === 2) throw new Error("the server restarts");
          return 1;
        }, 10);
        polling.now();
        polling.now();
        polling.later(0);
        await wait(120);
        polling.end();
        const before = calls;
        await wait(40);
        console.log(JSON.stringify([before >= 4, most, calls - before]));""")
    assert found == [True, 1, 0]


def test_components_share_one_palette() -> None:
    palette = player_assets.PALETTE
    for name in ("player", "tour", "playground"):
        sheet = asset_files.find(f"{name}.css")
        assert sheet
        assert "--ink:" not in sheet.read_text()
        assert f".ace-{name}" in (asset_files.find(palette) or sheet).read_text()
    assert "--ink:" in player_assets.style_sheet()  # of reports
