"""Generated cases of damaged run folders: lists, commands, routes and pages go on, and good runs are shown."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import bad_values
from checks import AppOver, FaultError, call, get, page

from acenode.runs.catalogue import Catalogue
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore

GOOD, BAD = "good", "bad"
PAGE_SHARE = 0.04  # of the cases: a page takes longer than the rest of a case


class RunFolders:
    """A good run, and one that is damaged anew in each case; both are copies of recorded runs."""

    name = "run folders"

    def __init__(self, folder: Path) -> None:
        self.root, self.out = folder / "runs", folder / "out"
        found = recorded_runs()
        assert found is not None
        self.templates = {p.name.partition("-")[0]: p for p in sorted(found.iterdir()) if (p / "snapshots").is_dir()}
        shutil.copytree(next(iter(self.templates.values())), self.root / GOOD)
        self.app = AppOver(folder)

    def case(self, rng: random.Random) -> None:
        bad = self.root / BAD
        shutil.rmtree(bad, ignore_errors=True)
        experiment = rng.choice(sorted(self.templates))
        shutil.copytree(self.templates[experiment], bad)
        bad_values.damage_folder(bad, rng)
        found = {entry.id: entry for entry in Catalogue(RunStore(self.root)).entries()}
        if set(found) != {GOOD, BAD} or found[GOOD].state != "finished":
            raise FaultError(f"the list has {found}")
        if found[BAD].state == "unreadable" and not found[BAD].error:
            raise FaultError("no reason is given")
        call("list", "--runs", str(self.root))
        call("show", BAD, "--runs", str(self.root), *rng.choice([(), ("--json",)]))
        answer = get(f"/lab/live?runs={GOOD},{BAD}@{rng.choice(['', '0', '17', '99999999'])}")
        if not answer.json()["runs"][GOOD]["points"]:
            raise FaultError("the good run has no curves")
        get(f"/lab/film/{BAD}")
        get(f"/lab/film/{BAD}/{rng.choice([0, 1, 5])}")
        shutil.rmtree(self.out, ignore_errors=True)
        other = rng.random()
        if other < 0.15:
            call("export", BAD, "--to", rng.choice(["csv", "html"]), "--out", str(self.out), "--runs", str(self.root))
        elif other < 0.2:
            call("table", experiment if found[BAD].experiment == experiment else "mnist", "--runs", str(self.root))
        elif other < 0.2 + PAGE_SHARE:
            name = rng.choice(["", "runs", "compare", experiment])
            page(name, {"runs": rng.choice([BAD, f"{GOOD},{BAD}"])})

    def close(self) -> None:
        self.app.close()
