"""Only the lab's own pages reach the server: hosts, origins, token and headers, on all routes and the socket."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from acenode_app import access, server
from acenode_app.access import Access, Guard
from app_routes import get
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from acenode import cli
from acenode.bench.browser import free_port, launch
from acenode.bench.browser import server as serve
from acenode.cli.parser import make_parser
from acenode.errors import UserError

WATCHED = Path(__file__).parent / "watched_server.py"
SOCKET = "/_stcore/stream"
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
REQUESTS = [*(("GET", path) for path in (
    "/", "/mnist", "/no-such-page", "/lab/active", "/lab/live?runs=x", "/lab/plotly.js", "/lab/assets/x/page.css",
    "/lab/film/x", "/lab/study/x", "/lab/playground/x", "/_stcore/health", "/_stcore/host-config", "/_stcore/metrics",
    "/_stcore/agent/openapi.json", "/media/x.png", "/component/x/y.js", "/_stcore/bidi-components/x/y.js",
    "/static/js/x.js", "/favicon.png", "/app/static/x", SOCKET)),
    ("PUT", "/_stcore/upload_file/x/y"), ("DELETE", "/_stcore/upload_file/x/y"), ("POST", "/lab/playground/x"),
    ("POST", "/_stcore/agent/interact"), ("OPTIONS", "/_stcore/upload_file/x/y")]
OPEN_ROUTES = ["/", "/lab/active", "/lab/plotly.js", "/_stcore/health", "/_stcore/host-config", "/favicon.png"]
FETCH = """async ([url, mode]) => {
  try { const answer = await fetch(url, {mode}); return [answer.status, answer.type]; }
  catch (error) { return [0, "failed"]; }
}"""
CONNECT = """(url) => new Promise((done) => {
  const socket = new WebSocket(url, ["streamlit"]);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
})"""
ONE_LOOPBACK = pytest.mark.skipif(sys.platform == "darwin", reason="127.0.0.1 is the only loopback address")


@dataclass
class Reply:
    """The response to a request."""

    status: int
    headers: dict[str, str]
    text: str

    def check_refused(self) -> None:
        """Check that this is status 403 with one line of text."""
        assert self.status == 403
        assert self.headers["content-type"].startswith("text/plain")
        assert self.text.count("\n") == 1
        assert self.text.endswith(".\n")
        self.check_headers()

    def check_headers(self) -> None:
        assert self.headers["content-security-policy"] == "frame-ancestors 'self'"
        assert self.headers["x-content-type-options"] == "nosniff"


@dataclass
class Lab:
    """A server that listens on all addresses, with the files that it writes."""

    port: int
    folder: Path

    def read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    @property
    def token(self) -> str:
        return re.findall(r"\?token=(\S+)", self.read("output"))[0]

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"acenode-token-{self.port}={self.token}"}

    def ask(self, path: str, method: str = "GET", host: str = "127.0.0.1", to: str = "127.0.0.1",
            **headers: str) -> Reply:
        """Send a request to the address `to` under the name `host`; open a socket if the path is the socket's."""
        connection = http.client.HTTPConnection(to, self.port, timeout=30)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", f"{host}:{self.port}")
        for key, value in {**(UPGRADE if path.startswith(SOCKET) else {}), **headers}.items():
            connection.putheader(key.replace("_", "-"), value)
        connection.endheaders()
        found = connection.getresponse()
        text = found.read().decode("utf-8", "replace")
        connection.close()
        return Reply(found.status, {key.lower(): value for key, value in found.getheaders()}, text)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start the lab as on a server with a GPU, with the network blocked and a program in place of the browser."""
    folder = tmp_path_factory.mktemp("lab")
    found = Lab(free_port(), folder)
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {folder}/part && mv {folder}/part {folder}/opened\n')
    browser.chmod(0o755)
    command = [sys.executable, str(WATCHED), str(folder / "asked"), "--address", "0.0.0.0", "--allow-host",
               "Lab.Example", "--port", str(found.port), "--runs", str(folder / "runs")]
    environment = {**os.environ, "BROWSER": f"{browser} %s", "DISPLAY": ":0"}
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            end = time.monotonic() + 60
            while not (folder / "opened").exists():
                assert process.poll() is None, found.read("output")
                assert time.monotonic() < end, found.read("output")
                time.sleep(0.05)
            yield found
        finally:
            process.terminate()
            process.wait(60)


def test_the_lab_answers_with_its_token(lab: Lab) -> None:
    for path in ("/", "/mnist", "/lab/active", "/_stcore/health", "/favicon.png"):
        reply = lab.ask(path, **lab.cookie)
        assert reply.status == 200, path
        reply.check_headers()
    assert lab.ask(SOCKET, **lab.cookie, Origin=f"http://127.0.0.1:{lab.port}").status == 101


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_other_hosts_and_origins_are_refused_and_every_request_needs_the_token(lab: Lab, method: str,
                                                                               path: str) -> None:
    evil = f"http://evil.example:{lab.port}"
    reply = lab.ask(path, method, host="evil.example", **lab.cookie)
    reply.check_refused()
    assert "acenode app --allow-host evil.example" in reply.text
    for origin in ("http://evil.example", evil, "null", f"http://127.0.0.1:{lab.port + 1}"):
        lab.ask(path, method, Origin=origin, **lab.cookie).check_refused()
    lab.ask(path, method, host="evil.example", Origin=evil, **lab.cookie).check_refused()
    lab.ask(path, method).check_refused()
    lab.ask(path, method, Cookie=f"acenode-token-{lab.port}=wrong").check_refused()
    separator = "&" if "?" in path else "?"
    lab.ask(f"{path}{separator}token=wrong", method).check_refused()
    if method == "GET":  # Streamlit refuses uploads that no session waits for
        assert lab.ask(f"{path}{separator}token={lab.token}").status != 403


def test_a_page_without_the_token_has_a_field_for_it(lab: Lab) -> None:
    for path, words in (("/mnist?runs=%22%3Ea", "Paste the token"), ("/mnist?token=wrong", "not valid")):
        reply = lab.ask(path, Accept="text/html,*/*")
        assert reply.status == 403
        assert reply.headers["content-type"].startswith("text/html")
        assert words in reply.text
        assert 'name="token"' in reply.text
        reply.check_headers()
    assert '<input type="hidden" name="runs" value="&quot;&gt;a">' in lab.ask("/?runs=%22%3Ea", Accept="text/html").text


def test_the_token_moves_from_the_address_to_a_cookie(lab: Lab) -> None:
    printed = f"http://127.0.0.1:{lab.port}/?token={lab.token}"
    for given in (lab.token, printed.replace("?", "%3F")):  # the whole address may be pasted
        reply = lab.ask(f"/mnist?runs=a%26b&token={given}", Accept="text/html")
        assert (reply.status, reply.headers["location"]) == (303, "/mnist?runs=a%26b")
        cookie = reply.headers["set-cookie"]
        assert cookie.startswith(f"acenode-token-{lab.port}={lab.token};")
        assert "httponly" in cookie.lower()
        assert "samesite=lax" in cookie.lower()
    assert lab.ask(f"//evil.example/x?token={lab.token}", Accept="text/html").headers["location"] == "/evil.example/x"


def test_the_address_is_printed_with_the_token_and_opened_with_another_that_works_once(lab: Lab) -> None:
    printed = re.findall(r"https?://\S+", lab.read("output"))
    assert printed == [f"http://127.0.0.1:{lab.port}/?token={lab.token}"]
    assert len(lab.token) > 40
    address, _, once = lab.read("opened").strip().partition("?token=")
    assert address == f"http://127.0.0.1:{lab.port}/"
    assert once != lab.token  # other users see the command line of the browser
    first, second = (lab.ask(f"/?token={once}", Accept="text/html") for _ in range(2))
    assert first.status == 303
    assert lab.token in first.headers["set-cookie"]
    assert second.status == 403


@pytest.mark.parametrize(("host", "to"), [
    ("localhost", "127.0.0.1"), ("LOCALHOST.", "127.0.0.1"), ("[::1]", "127.0.0.1"), ("lab.example", "127.0.0.1"),
    pytest.param("127.0.0.2", "127.0.0.2", marks=ONE_LOOPBACK)])
def test_own_names_and_addresses_are_answered(lab: Lab, host: str, to: str) -> None:
    own = {"Origin": f"http://{host}:{lab.port}", **lab.cookie}
    assert lab.ask("/lab/active", host=host, to=to, **own).status == 200
    assert lab.ask(SOCKET, host=host, to=to, **own).status == 101
    if host == "127.0.0.2":  # an address of this machine, but the request came in by another one
        assert lab.ask("/lab/active", host=host, **lab.cookie).status == 403


def test_nothing_asks_an_outside_address(lab: Lab) -> None:
    """Streamlit asks for this machine's own address when it refuses an Origin, and for its own banner."""
    for origin in ("http://evil.example", f"http://localhost:{lab.port}", f"http://[::1]:{lab.port}",
                   "https://lab.example", "null"):
        lab.ask(SOCKET, Origin=origin, **lab.cookie)
    assert lab.ask(SOCKET, Origin="https://lab.example", **lab.cookie).status == 101  # behind a proxy
    time.sleep(0.2)
    assert lab.read("asked") == ""
    assert "Traceback" not in lab.read("output")


def test_a_request_that_fails_gets_the_headers_too() -> None:
    def fail(request: Any) -> None:
        raise ZeroDivisionError

    async def logged(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ZeroDivisionError):  # for the server's log
            await Starlette(routes=[Route("/", fail)], middleware=[Middleware(Guard, access=Access())])(
                scope, receive, send)

    answer = get("/", app=logged, host="127.0.0.1:8501")
    assert answer.status == 500
    Reply(500, answer.headers, "").check_headers()
    assert b"division" not in answer.body


def guarded(chosen: Access, path: str = "/", server: tuple[str, int] = ("127.0.0.1", 8501), **headers: str) -> int:
    """Return the status of a request through the middleware, without a server."""
    app = Guard(PlainTextResponse("passed"), chosen)
    return get(path, app=app, server=server, **{"host": "127.0.0.1:8501", **headers}).status


@pytest.mark.parametrize(("host", "expected"), [
    ("127.0.0.1:8501", 200), ("localhost", 200), ("[::1]:9", 200), ("[0:0:0:0:0:0:0:1]", 200), ("10.1.2.3:8501", 200),
    ("lab.example", 200), ("[fe80::2]:8501", 200), ("", 403), ("localhost:x", 403), ("localhost@evil.example", 403),
    ("localhost.evil.example", 403), ("evil.example:8501", 403), ("127.0.0.1.evil.example", 403), ("10.1.2.4", 403),
    ("0.0.0.0:8501", 403), ("2130706433", 403), ("localhost, evil.example", 403), ("http://localhost", 403)])
def test_hosts(host: str, expected: int) -> None:
    chosen = access.choose("0.0.0.0", ["lab.example", "fe80::2"], True)
    chosen.token = None
    for own in ("10.1.2.3", "::ffff:10.1.2.3"):  # at a socket for IPv6, an address of IPv4 has a prefix
        assert guarded(chosen, server=(own, 8501), host=host) == expected


@pytest.mark.parametrize(("site", "mode", "path", "expected"), [
    ("same-origin", "cors", "/lab/active", 200), ("none", "navigate", "/lab/active", 200),
    ("cross-site", "navigate", "/mnist", 200), ("cross-site", "no-cors", "/mnist", 403),
    ("same-site", "no-cors", "/lab/active", 403), ("cross-site", "navigate", "/lab/playground/x", 403)])
def test_other_pages_link_to_pages_and_load_nothing(site: str, mode: str, path: str, expected: int) -> None:
    assert guarded(Access(), path, sec_fetch_site=site, sec_fetch_mode=mode) == expected


@pytest.mark.parametrize(("address", "names", "with_token", "words"), [
    ("0.0.0.0", [], False, "leave out --no-token"), ("::", [], False, "leave out --no-token"),
    ("10.0.0.1", [], False, "leave out --no-token"), ("lab.example", [], True, "IP address"),
    ("", [], True, "IP address"), ("127.0.0.1", ["http://lab.example"], True, "--allow-host takes"),
    ("127.0.0.1", ["a:80"], True, "--allow-host takes"), ("127.0.0.1", ["*"], True, "--allow-host takes"),
    ("127.0.0.1", [""], True, "--allow-host takes")])
def test_wrong_options_are_refused(address: str, names: list[str], with_token: bool, words: str) -> None:
    with pytest.raises(UserError, match=words):
        access.choose(address, names, with_token)


def test_the_token_of_the_browser_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = access.choose("127.0.0.1", [], True)
    once = chosen.new_opening_token()
    monkeypatch.setattr(access, "OPENING", -1.0)
    late = chosen.new_opening_token()
    assert not chosen._accepts(once)
    assert not chosen._accepts(late)


def test_an_address_of_another_machine_is_refused_in_words() -> None:
    with pytest.raises(UserError, match=r"does not have the address 192\.0\.2\.1"):
        server.free_port(None, "192.0.2.1")


def test_the_command_hands_its_options_to_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words: list[str] = []
    monkeypatch.setattr(os, "execv", lambda program, given: words.extend(given))
    options = make_parser().parse_args(["app", "--address", "0.0.0.0", "--allow-host", "a", "--allow-host", "b",
                                        "--runs", str(tmp_path), "--port", "8600", "--headless", "--no-token"])
    cli.app(options)
    assert words[4:] == [f"--runs={tmp_path.resolve()}", "--address=0.0.0.0", "--port=8600", "--allow-host=a",
                         "--allow-host=b", "--headless", "--no-token"]


@pytest.fixture(scope="module")
def mapped(chrome: Any) -> Iterator[Any]:
    """Start a browser in which evil.example is this machine, as after DNS rebinding."""
    found = launch(chrome.browser_type, "--host-resolver-rules=MAP evil.example 127.0.0.1")
    yield found
    found.close()


@pytest.mark.long
def test_neither_dns_rebinding_nor_another_port_reaches_the_lab(mapped: Any, tmp_path: Path) -> None:
    page = mapped.new_page()
    with serve(tmp_path / "runs") as served, serve(tmp_path / "others") as other:  # without a token
        page.goto(served.url)
        for route in OPEN_ROUTES:
            assert page.evaluate(FETCH, [route, "cors"]) == [200, "basic"]
        assert page.evaluate(CONNECT, f"ws://127.0.0.1:{served.port}/_stcore/stream") == "open"
        answer = page.goto(f"http://evil.example:{served.port}/")
        assert answer.status == 403
        assert "--allow-host evil.example" in page.inner_text("body")
        for route in OPEN_ROUTES:  # of the page's own origin, so that it may read them
            assert page.evaluate(FETCH, [route, "cors"]) == [403, "basic"]
        assert page.evaluate(CONNECT, f"ws://evil.example:{served.port}/_stcore/stream") == "refused"
        page.goto(other.url)
        for route in OPEN_ROUTES:
            assert page.evaluate(FETCH, [served.url + route, "cors"]) == [0, "failed"]
        assert page.evaluate(CONNECT, f"ws://127.0.0.1:{served.port}/_stcore/stream") == "refused"
    page.close()


@pytest.mark.long
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
