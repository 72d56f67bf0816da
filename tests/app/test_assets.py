"""JavaScript that needs no page, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from acenode_app import asset_files


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
