"""Say how a run is related to the value that the paper's tables show for its method."""

from __future__ import annotations

from collections.abc import Iterable

from acenode.compare import cell_text
from acenode.compare.cells import CELLS, PaperCell, config_settings, counts, has_variant, measure, target, usual_epochs
from acenode.runs.catalogue import Entry


def paper_value_note(entry: Entry, entries: Iterable[Entry]) -> str | None:
    """Say if a tested run is one of those whose mean the Paper page shows, or why it is not.

    Args:
        entry: the run.
        entries: all runs.

    Returns:
        A sentence or two; None if no other run counts beside it, or if no cell has its method and data.
    """
    if entry.state != "finished" or entry.search or entry.data != "full":
        return None
    cell = next((cell for cell in CELLS.values() if has_variant(cell, entry)), None)
    if cell is None:
        return None
    if not counts(cell, entry):
        return f"This run counts for no value of the Paper page: it has {' and '.join(_differences(cell, entry))}."
    measured = measure(cell, entries)
    own = entry.config.get("epochs")
    if measured.epochs is None or (measured.n < 2 and measured.epochs == own):
        return None
    value = f"{cell_text.ours(cell, measured)}{cell.format.unit} ({cell_text.repeats(measured)})"
    if measured.epochs == own:
        return f"One of the runs whose mean the Paper page shows: {value}."
    return f"The Paper page shows the mean of other runs of this method, {value}. This run has {own} epochs."


def _differences(cell: PaperCell, entry: Entry) -> list[str]:
    """List in what a run differs from those that count for a cell."""
    wanted, usual = target(cell), usual_epochs(cell)
    own = int(entry.config.get("epochs") or 0)
    found = [f"{own} epochs, where {usual} are usual,"] if own < usual else []
    found += [f"{key.replace('_', ' ')} {value} instead of {wanted.get(key)}"
              for key, value in config_settings(entry.config).items()
              if key in wanted.settings and value != wanted.get(key)]
    return found or ["other settings"]
