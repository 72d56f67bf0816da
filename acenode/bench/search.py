"""`acenode bench search`: seconds to list and show 10,000 recorded trials, on the command line and on the page."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

from acenode.bench.browser import browser, server
from acenode.bench.synthetic_search import synthetic_search
from acenode.errors import UserError
from acenode.runs.questions import SearchStore
from acenode.runs.store import RunStore
from acenode.search.journal import SearchJournal

TRIALS, MOST = 10_000, 2.0  # seconds that a listing may take
CHARTS = "page: charts in view drawn as well"  # after the listing
DRAWN = "[...document.querySelectorAll('div')].find(e => e.__search)?.__search"


def run(options: Namespace) -> int:
    """Measure and print; the exit status is 1 if a listing takes more than two seconds."""
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder) / "runs")
    print(json.dumps(result) if options.json else "\n".join(
        f"{name:<44}{seconds:>8.2f} s" for name, seconds in result.items()))
    return int(any(seconds > MOST for name, seconds in result.items() if name != CHARTS))


def measure(root: Path) -> dict[str, float]:
    """Return the seconds of every listing by its name."""
    store = SearchStore(RunStore(root))
    search = synthetic_search(store, "many", TRIALS)
    found = {"read the journal": _seconds(SearchJournal(store.journal("many"), search.ranges).refresh)}
    for words in (["list"], ["show", "many"]):
        command = [sys.executable, "-m", "acenode.cli", "search", *words, "--runs", str(root)]
        whole = partial(subprocess.run, command, check=True, capture_output=True)
        found[f"acenode search {words[0]} (whole command)"] = _seconds(whole)
    try:
        with browser() as chrome, server(root) as served:
            address = f"{served.url}/lab/search/many"
            page = chrome.new_page(viewport={"width": 1400, "height": 1000})
            page.goto(f"{served.url}/searches")
            page.locator("h1").first.wait_for()

            def list_searches() -> None:
                page.goto(f"{served.url}/searches")
                page.get_by_text(f"of {TRIALS} trials finished").wait_for()

            found["page: list of searches opened"] = _seconds(list_searches)
            urllib.request.urlopen(address).read()  # imports
            found["page: data of all trials"] = _seconds(lambda: urllib.request.urlopen(address).read())

            begun = time.perf_counter()
            page.goto(f"{served.url}/searches?search=many")
            page.wait_for_function(f"() => {DRAWN}?.trials() === {TRIALS} && {DRAWN}.listed()", timeout=60_000)
            found["page: search opened, best trials listed"] = time.perf_counter() - begun
            page.wait_for_function(f"() => {DRAWN}.drawn()", timeout=60_000)
            found[CHARTS] = time.perf_counter() - begun
    except UserError as error:  # no browser here
        print(f"the page is not measured: {error}", file=sys.stderr)
    return found


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun
