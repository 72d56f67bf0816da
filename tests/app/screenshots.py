"""Take screenshots of every page: python tests/app/screenshots.py [FOLDER] [PAGE ...] [--training] [--only 900-dark]

They are taken at three widths, light and dark, and written to build/screenshots/pages unless a folder is given. They
show the recorded runs; with --training also a run that trains meanwhile and a queued one, on a page of their own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from acenode import experiments
from acenode.bench.browser import browser, server
from acenode.execution.execute import create
from acenode.runs.store import RunStore

WIDTHS, SCHEMES = (1400, 900, 390), ("light", "dark")
ROOT = Path(__file__).parents[2]
QUIET = "() => document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"
GROW = """() => { const main = document.querySelector('.stMain');
  return Math.min(main ? main.scrollHeight : 1000, 6000); }"""


def main(folder: Path, wanted: list[str], train: bool, only: list[str]) -> None:
    """Visit the pages of the sidebar, or those that are wanted, and save each at its full height."""
    folder.mkdir(parents=True, exist_ok=True)
    with (tempfile.TemporaryDirectory() as home, browser() as chrome, server(Path(home) / "runs") as served,
          _training(Path(home) / "runs") if train else nullcontext([]) as live):
        for scheme in SCHEMES:
            for width in WIDTHS:
                if only and f"{width}-{scheme}" not in only:
                    continue
                page = chrome.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
                page.set_default_timeout(180_000)
                for path in [*(wanted or _pages(page, served.url)), *live]:
                    page.set_viewport_size({"width": width, "height": 1000})
                    page.goto(f"{served.url}/{path}")
                    _settle(page)
                    for _ in range(2):  # what comes into view is drawn, and may be higher
                        page.set_viewport_size({"width": width, "height": int(page.evaluate(GROW))})
                        _settle(page)
                    name = "".join(c if c.isalnum() or c == "-" else "_" for c in path) or "home"
                    page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
                page.close()


@contextmanager
def _training(runs: Path) -> Iterator[list[str]]:
    """Train a run while the block runs, with another one queued; yield the page that shows it."""
    command = [sys.executable, "-m", "acenode.cli", "train", "mnist", "--method", "ace", "--epochs", "10000", "--runs",
               str(runs), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        store = RunStore(runs)
        while not any(run.metrics()[0] for run in store):
            if process.poll() is not None:
                raise RuntimeError("the run did not start")
            time.sleep(0.5)
        live = next(iter(store))
        create(store, experiments.get("mnist").configure("odenet", seed=1))
        yield [f"mnist?runs={live.id}"]
    finally:
        process.terminate()
        process.wait()


def _pages(page: Any, url: str) -> list[str]:
    page.goto(url)
    page.locator("[data-testid=stSidebarNavLink]").first.wait_for(state="attached")
    return page.locator("[data-testid=stSidebarNavLink]").evaluate_all("all => all.map((e) => e.pathname.slice(1))")


def _settle(page: Any) -> None:
    page.locator("h1").first.wait_for()
    page.wait_for_function(QUIET, timeout=60_000)
    page.wait_for_timeout(2500)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "screenshots" / "pages")
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="WIDTH-SCHEME")
    given = parser.parse_intermixed_args()
    main(given.folder, given.pages, given.training, given.only)
