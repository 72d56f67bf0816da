"""A short soak, so that the long one (`make soak`) works whenever it is wanted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from acenode.bench.browser import free_port

SOAK = Path(__file__).parent / "soak.py"


@pytest.mark.long
def test_a_short_soak_loses_nothing() -> None:
    command = [sys.executable, str(SOAK), "--minutes", "0.3", "--port", str(free_port())]
    found = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    counts = {name.strip(): int(count) for name, count in re.findall(r"^(\w[\w ]+?) +(\d+)$", found.stdout, re.M)}
    assert found.returncode == 0, found.stdout + found.stderr
    assert counts["runs lost"] == counts["numbers changed"] == counts["unreadable folders"] == 0
    assert counts["runs"] > 0
    assert counts["requests"] > 0
