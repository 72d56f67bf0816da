"""Read a text file line by line and report progress."""

from collections.abc import Iterator
from pathlib import Path

from acenode.data.data_source import Progress
from acenode.errors import UserError

REPORT_LINES = 5000  # between two calls of progress


def lines_of(path: Path, progress: Progress | None = None) -> Iterator[str]:
    """Iterate over the lines that are not blank, stripped of surrounding white space."""
    done = count = 0
    try:
        size = path.stat().st_size
        with open(path, "rb") as handle:
            for raw in handle:
                done += len(raw)
                if progress is not None and count % REPORT_LINES == 0:
                    progress(done, size, f"reading {path.name}")
                if line := raw.decode("utf-8", errors="replace").strip():
                    count += 1
                    yield line
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from error
