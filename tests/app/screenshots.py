"""Take screenshots of every page: python tests/app/screenshots.py [FOLDER] [PAGE ...] [--only 900-dark]

They are taken at three widths, light and dark, and written to build/screenshots/pages unless a folder is given. They
show the recorded runs.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from acenode.bench.browser import browser, server

WIDTHS, SCHEMES = (1400, 900, 390), ("light", "dark")
ROOT = Path(__file__).parents[2]
QUIET = "() => document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"
GROW = """() => { const main = document.querySelector('.stMain');
  return Math.min(main ? main.scrollHeight : 1000, 6000); }"""


def main(folder: Path, wanted: list[str], only: list[str]) -> None:
    """Visit the pages of the sidebar, or those that are wanted, and save each at its full height."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, browser() as chrome, server(Path(home) / "runs") as served:
        for scheme in SCHEMES:
            for width in WIDTHS:
                if only and f"{width}-{scheme}" not in only:
                    continue
                page = chrome.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
                page.set_default_timeout(180_000)
                for path in wanted or _pages(page, served.url):
                    page.set_viewport_size({"width": width, "height": 1000})
                    page.goto(f"{served.url}/{path}")
                    _settle(page)
                    for _ in range(2):  # what comes into view is drawn, and may be higher
                        page.set_viewport_size({"width": width, "height": int(page.evaluate(GROW))})
                        _settle(page)
                    name = "".join(c if c.isalnum() or c == "-" else "_" for c in path) or "home"
                    page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
                page.close()


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
    parser.add_argument("--only", action="append", default=[], metavar="WIDTH-SCHEME")
    given = parser.parse_intermixed_args()
    main(given.folder, given.pages, given.only)
