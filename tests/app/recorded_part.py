"""Some of the recorded runs, for tests that need cells with missing runs."""

from __future__ import annotations

from pathlib import Path

from acenode.runs.recorded import recorded_runs


def recorded_part(folder: Path, **counts: int) -> Path:
    """Fill a folder with links to the first recorded runs: recorded_part(folder, mnist_rknet=1) takes one of RKNet."""
    folder.mkdir()
    source = recorded_runs()
    assert source is not None
    for name, count in counts.items():
        for run in sorted(source.glob(f"{name.replace('_', '-')}-2*"))[:count]:
            (folder / run.name).symlink_to(run)
    return folder
