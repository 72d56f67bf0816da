"""Generated data files: each is imported, or refused in one line."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import bad_values
import numpy as np
from checks import FaultError, call
from importing_tables import labelled, long, wide

from acenode.data.folder import read_npz, write_npz


class DataFiles:
    """Tables and npz files that are damaged, and cells that hold something else."""

    name = "data files"

    def __init__(self, folder: Path) -> None:
        self.folder, self.before = folder, os.environ.get("ACENODE_DATA")
        os.environ["ACENODE_DATA"] = str(folder / "data")
        self.tables: list[Callable[[], str]] = [wide, long, labelled]
        rng = np.random.default_rng(0)
        write_npz(folder / "good.npz", {"x": rng.normal(size=(20, 3)), "y": np.arange(20)})
        self.imported = 0

    def case(self, rng: random.Random) -> None:
        if rng.random() < 0.25:
            self._npz(rng)
            return
        path = self.folder / rng.choice(["mine.csv", "mine.csv", "mine.parquet", "mine"])
        path.unlink(missing_ok=True)
        data = _changed_cells(rng.choice(self.tables)(), rng).encode("utf-8", "surrogatepass")
        path.write_bytes(data)
        if rng.random() < 0.4:
            bad_values.damage_file(path, rng)
        words = ["data", "import", str(path)]
        if rng.random() < 0.15:
            self.imported += 1
            words += ["--name", f"set-{self.imported}"]
        else:
            words.append("--preview")
        for flag in ("--time", "--id", "--label", "--given", "--window", "--stride", "--time-unit"):
            if rng.random() < 0.08:
                words += [flag, rng.choice([bad_values.text(rng), "time", "id", "1", "24"])]
        call(*words, *rng.choice([(), ("--json",)]))
        if path.is_dir():
            path.rmdir()

    def _npz(self, rng: random.Random) -> None:
        path = self.folder / "bad.npz"
        path.write_bytes(bad_values.change_bytes((self.folder / "good.npz").read_bytes(), rng))
        try:
            found = read_npz(path, ["x", "y"])
        except ValueError as error:
            if not str(error) or "\n" in str(error):
                raise FaultError(f"not explained in one line: {error!r}") from None
        else:
            if any(not isinstance(array, np.ndarray) for array in found.values()):
                raise FaultError("not arrays")

    def close(self) -> None:
        os.environ.pop("ACENODE_DATA")
        if self.before is not None:
            os.environ["ACENODE_DATA"] = self.before


def _changed_cells(table: str, rng: random.Random) -> str:
    """Replace cells, names of columns, separators or line ends."""
    rows = [line.split(",") for line in table.splitlines()]
    for _ in range(rng.choice([0, 1, 1, 2, 10])):
        row = rng.choice([rows[0], rng.choice(rows)])
        if row:
            row[rng.randrange(len(row))] = bad_values.text(rng)
    if rng.random() < 0.1:
        del rows[rng.randrange(len(rows)):]
    if rng.random() < 0.1:
        for row in rng.sample(rows, min(5, len(rows))):
            row.append("1")
    if rng.random() < 0.1:
        rng.shuffle(rows)
    separator = rng.choice([",", ",", ",", ";", "\t", "|", " "])
    end = rng.choice(["\n", "\n", "\r\n", "\r"])
    return rng.choice(["", "", "", "\ufeff"]) + "".join(separator.join(row) + end for row in rows)
