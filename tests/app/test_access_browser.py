"""A real browser: pages of other sites cannot reach the lab, and the printed address opens it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acenode.bench.browser import launch, server

pytestmark = pytest.mark.long
ROUTES = ["/", "/lab/active", "/lab/plotly.js", "/_stcore/health", "/_stcore/host-config", "/favicon.png"]
FETCH = """async ([url, mode]) => {
  try { const answer = await fetch(url, {mode}); return [answer.status, answer.type]; }
  catch (error) { return [0, "failed"]; }
}"""
CONNECT = """(url) => new Promise((done) => {
  const socket = new WebSocket(url, ["streamlit"]);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
})"""


@pytest.fixture(scope="module")
def mapped(chrome: Any) -> Iterator[Any]:
    """Start a browser in which evil.example is this machine, as after DNS rebinding."""
    found = launch(chrome.browser_type, "--host-resolver-rules=MAP evil.example 127.0.0.1")
    yield found
    found.close()


def test_neither_dns_rebinding_nor_another_port_reaches_the_lab(mapped: Any, tmp_path: Path) -> None:
    page = mapped.new_page()
    with server(tmp_path / "runs") as served, server(tmp_path / "others") as other:  # without a token
        page.goto(served.url)
        for route in ROUTES:
            assert page.evaluate(FETCH, [route, "cors"]) == [200, "basic"]
        assert page.evaluate(CONNECT, f"ws://127.0.0.1:{served.port}/_stcore/stream") == "open"
        answer = page.goto(f"http://evil.example:{served.port}/")
        assert answer.status == 403
        assert "--allow-host evil.example" in page.inner_text("body")
        for route in ROUTES:  # of the page's own origin, so that it may read them
            assert page.evaluate(FETCH, [route, "cors"]) == [403, "basic"]
        assert page.evaluate(CONNECT, f"ws://evil.example:{served.port}/_stcore/stream") == "refused"
        page.goto(other.url)
        for route in ROUTES:
            assert page.evaluate(FETCH, [served.url + route, "cors"]) == [0, "failed"]
        assert page.evaluate(CONNECT, f"ws://127.0.0.1:{served.port}/_stcore/stream") == "refused"
    page.close()


def test_the_printed_address_and_the_token_page_open_the_lab(mapped: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "acenode.cli", "app", "--headless", "--runs", str(tmp_path / "runs")]
    with open(tmp_path / "output", "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    page = mapped.new_context().new_page()
    try:
        end, printed = time.monotonic() + 60, None
        while printed is None:
            assert time.monotonic() < end
            printed = re.search(r"http://\S+\?token=\S+", (tmp_path / "output").read_text())
            time.sleep(0.05)
        address, _, token = printed[0].partition("?token=")
        assert page.goto(f"{address}compare?group=seed").status == 403
        for given in ("wrong", f" {token} "):
            page.get_by_label("Token").fill(given)
            page.get_by_role("button", name="Open the lab").click()
        page.locator("h1", has_text="Compare").wait_for(timeout=60_000)
        assert page.url.startswith(f"{address}compare")
        page.goto(printed[0])
        page.locator("h1").first.wait_for(timeout=60_000)
        assert "token" not in page.url
    finally:
        page.context.close()
        process.terminate()
        process.wait(60)
