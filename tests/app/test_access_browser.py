"""A real browser: pages of other sites cannot reach the lab, and the printed address opens it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from acenode_app.services import UNGUARDED

from acenode.bench.browser import Served, free_port, launch, server

ROOT = Path(__file__).parents[2]
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
QUIET = "() => document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"


@pytest.fixture(scope="module")
def mapped(chrome: Any) -> Iterator[Any]:
    """Start a browser in which evil.example is this machine, as after DNS rebinding."""
    found = launch(chrome.browser_type, "--host-resolver-rules=MAP evil.example 127.0.0.1")
    yield found
    found.close()


@pytest.fixture(scope="module")
def served(mapped: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start the lab without a token, so that nothing but the checks of Host and Origin protects it."""
    with server(tmp_path_factory.mktemp("access") / "runs") as found:
        yield found


@pytest.fixture(scope="module")
def other_site() -> Iterator[int]:
    """Serve an empty page on another port, and return the port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><title>other</title>")

        def log_message(self, *_: Any) -> None:
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield site.server_address[1]
    site.shutdown()


def test_the_lab_itself_works(mapped: Any, served: Served) -> None:
    page = mapped.new_page()
    page.goto(served.url)
    for route in ROUTES:
        assert page.evaluate(FETCH, [route, "cors"]) == [200, "basic"]
    assert page.evaluate(CONNECT, f"ws://127.0.0.1:{served.port}/_stcore/stream") == "open"
    page.close()


def test_dns_rebinding_is_refused_on_page_routes_and_socket(mapped: Any, served: Served) -> None:
    page = mapped.new_page()
    answer = page.goto(f"http://evil.example:{served.port}/")
    assert answer.status == 403
    assert "--allow-host evil.example" in page.inner_text("body")
    for route in ROUTES:  # of the page's own origin, so that it may read them
        assert page.evaluate(FETCH, [route, "cors"]) == [403, "basic"]
    assert page.evaluate(CONNECT, f"ws://evil.example:{served.port}/_stcore/stream") == "refused"
    page.close()


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1"])
def test_a_page_on_another_port_can_neither_call_nor_frame_the_lab(mapped: Any, served: Served, other_site: int,
                                                                  host: str) -> None:
    page = mapped.new_page()
    statuses: list[int] = []
    page.on("response", lambda answer: f":{served.port}/" in answer.url and statuses.append(answer.status))
    page.goto(f"http://{host}:{other_site}/")
    for route in ROUTES:
        assert page.evaluate(FETCH, [served.url + route, "cors"]) == [0, "failed"]
    page.evaluate(FETCH, [f"{served.url}/lab/active", "no-cors"])
    assert set(statuses) <= {403}
    assert page.evaluate(CONNECT, f"ws://127.0.0.1:{served.port}/_stcore/stream") == "refused"
    page.evaluate(f"""() => new Promise((done) => {{ const frame = document.createElement("iframe");
        frame.onload = done; frame.src = "{served.url}/"; document.body.append(frame); }})""")
    assert not any(frame.url.startswith(served.url) for frame in page.frames[1:])
    page.close()


@pytest.fixture(scope="module")
def printed(mapped: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the lab as a newcomer does, and return the address that it prints."""
    folder = tmp_path_factory.mktemp("token")
    command = [sys.executable, "-m", "acenode.cli", "app", "--headless", "--runs", str(folder / "runs")]
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield _printed_address(folder / "output", process)
        finally:
            process.terminate()
            process.wait(60)


def _printed_address(output: Path, process: subprocess.Popen) -> str:
    for _ in range(1200):
        found = re.search(r"http://\S+\?token=\S+", output.read_text())
        if found:
            return found[0]
        assert process.poll() is None, output.read_text()
        time.sleep(0.05)
    raise AssertionError("no address was printed")


def test_the_printed_address_opens_the_lab_and_a_reload_keeps_it_open(mapped: Any, printed: str) -> None:
    page = mapped.new_context().new_page()
    failed: list[str] = []
    page.on("response", lambda answer: answer.status >= 400 and failed.append(answer.url))
    page.goto(printed)
    for _ in range(2):
        page.locator("h1").first.wait_for(timeout=60_000)
        page.wait_for_function(QUIET, timeout=60_000)
        assert "token" not in page.url
        page.reload()
    assert failed == []
    page.context.close()


def test_the_token_page_opens_the_page_that_was_asked_for(mapped: Any, printed: str) -> None:
    address, _, token = printed.partition("?token=")
    page = mapped.new_context().new_page()
    assert page.goto(f"{address}compare?group=seed").status == 403
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Open the lab").click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Token").fill(f" {token} ")
    page.get_by_role("button", name="Open the lab").click()
    page.locator("h1", has_text="Compare").wait_for(timeout=60_000)
    assert page.url.startswith(f"{address}compare")
    assert "token" not in page.url
    page.context.close()


@pytest.mark.parametrize("script", ["app/main.py", "pages/runs.py"])
def test_a_server_without_the_checks_shows_nothing(mapped: Any, tmp_path: Path, script: str) -> None:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "streamlit", "run", str(ROOT / script), "--server.headless=true",
                                f"--server.port={port}"], cwd=ROOT, stdout=subprocess.DEVNULL,
                               env={**os.environ, "ACENODE_RUNS": str(tmp_path)})
    page = mapped.new_page()
    try:
        for _ in range(1200):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 5).close()
                break
            time.sleep(0.05)
        page.goto(f"http://127.0.0.1:{port}/")
        if script == "app/main.py":
            page.get_by_text(UNGUARDED.partition("`")[0].strip()).first.wait_for(timeout=60_000)
            assert page.locator("h1, .stSidebar a").count() == 0
        else:
            page.locator("h1").wait_for(timeout=60_000)
        page.wait_for_function(QUIET, timeout=60_000)
        assert page.locator(".stDataFrame, .stNumberInput, .stButton").count() == 0
    finally:
        page.close()
        process.terminate()
        process.wait(60)
