"""Generated addresses: every route answers, and every page shows something."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import bad_values
from checks import AppOver, get, page

from acenode.experiments import EXPERIMENTS
from acenode.runs.recorded import recorded_runs

PAGE_SHARE = 0.04
PAGES = ["", "paper", "runs", "compare", "studies", "your-data", "tour", "playground", *EXPERIMENTS]
QUERIES = ["runs", "experiment", "methods", "states", "tags", "search", "from", "study", "baseline", "epoch", "by",
           "set", "cell", "table", "name", "preset", "data", "step", "new", "task", "method"]
ROUTES = ["assets", "live", "active", "film", "epoch", "study", "playground", "command", "any", "plotly"]
COMMAND = {"speed": 1, "play": True}


class Addresses:
    """Random addresses of the app's own routes and pages, over a folder with two runs."""

    name = "addresses"

    def __init__(self, folder: Path) -> None:
        found = recorded_runs()
        assert found is not None
        chosen = [p for p in sorted(found.iterdir()) if (p / "snapshots").is_dir()]
        for path in (chosen[0], chosen[-1]):
            shutil.copytree(path, folder / "runs" / path.name)
        self.runs = [chosen[0].name, chosen[-1].name]
        self.app = AppOver(folder)

    def case(self, rng: random.Random) -> None:
        if rng.random() < PAGE_SHARE:
            query = {rng.choice(QUERIES): self._word(rng) for _ in range(rng.choice([1, 1, 2, 3]))}
            page(rng.choice(PAGES), query)
            return
        kind = rng.choice(ROUTES)
        word = self._word(rng).replace("/", "%2F")
        if kind == "live":
            runs = ",".join(f"{self._word(rng)}{rng.choice(['', '@', '@0', '@17', '@-1', '@' + '9' * 30, '@٣'])}"
                            for _ in range(rng.choice([1, 2, 80])))
            get(f"/lab/live?runs={runs}").json()
        elif kind == "active":
            get(f"/lab/active?{word}").json()
        elif kind == "epoch":
            get(f"/lab/film/{rng.choice(self.runs)}/{word}")
        elif kind == "playground":
            get(f"/lab/playground/{word}?after={self._word(rng)}", headers=((b"sec-fetch-site", b"cross-site"),))
        elif kind == "command":
            body = rng.choice([json.dumps(bad_values.change_json(COMMAND, rng)).encode(), b"[" * 9999, b"\xff", b""])
            get(f"/lab/playground/{word}", "POST", body, ((b"content-type", b"application/json"),))
        elif kind == "any":
            get(f"/lab/{word}/{self._word(rng)}?{self._word(rng)}={self._word(rng)}")
        elif kind == "plotly":
            get(rng.choice(["/lab/plotly.js", "/lab/active", "/lab/live"]))
        else:
            get(f"/lab/{kind}/{word}")

    def _word(self, rng: random.Random) -> str:
        found = rng.choice([*self.runs, *EXPERIMENTS, "player.js"]) if rng.random() < 0.3 else bad_values.text(rng)
        return found.encode("utf-8", "replace").decode()

    def close(self) -> None:
        self.app.close()
