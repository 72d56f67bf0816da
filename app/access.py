"""Access to the server: one middleware checks every request, on our routes, on Streamlit's and on its socket.

Every web page can send requests to 127.0.0.1, and a page whose own host name resolves to 127.0.0.1 (DNS rebinding) can
read the responses. A request is therefore answered only with

- a known Host: localhost, the address it arrived at, or a name from `--allow-host`;
- no Origin, or that of the lab: other pages may link to the lab, but cannot call it;
- the token, which is in the address that is printed and opened at the start, and in a cookie from then on.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from acenode.errors import UserError

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
SITE = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?", re.IGNORECASE)
COOKIE_AGE = 30 * 24 * 3600  # seconds
OPENING = 120.0  # seconds in which the browser has to open its first page
NO_STORE = {"Cache-Control": "no-store"}
HEADERS = {"Content-Security-Policy": "frame-ancestors 'self'", "X-Content-Type-Options": "nosniff"}
FAILED = "The lab failed to answer. The terminal has the reason.\n"
ASK = "Paste the token: the part after <code>token=</code> in the address that <code>acenode app</code> printed."
WRONG = "This token is not valid. The lab has a new one after every start."
TOKEN_PAGE = Path(__file__).parent / "assets" / "token.html"
NO_TOKEN = "This lab asks for a token: open the address that `acenode app` printed when it started."


class Site(NamedTuple):
    """Host and port of a Host or Origin header; the port is empty if it is the default of the protocol."""

    host: str
    port: str


def read_site(text: str) -> Site | None:
    """Read `name:port`, `1.2.3.4:port` or `[::1]:port`; None if it is none of them."""
    found = SITE.fullmatch(text)
    return Site(_canonical(found[1].strip("[]")), found[2] or "") if found else None


def _canonical(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower().rstrip(".")
    return str(getattr(address, "ipv4_mapped", None) or address)


class Access:
    """Decides which requests are answered: those that bring the token, if there is one, to the IP address that the
    server listens on or under one of the names by which the lab is reached."""

    def __init__(self, address: str = "127.0.0.1", names: Iterable[str] = (), token: str | None = None) -> None:
        self.address, self.names, self.token = address, frozenset(names), token
        self._opening_token, self._opening_end = "", 0.0

    def new_opening_token(self) -> str:
        """Return a token that is valid once: other users can see the browser's command line, which has the address."""
        self._opening_token, self._opening_end = secrets.token_hex(24), time.monotonic() + OPENING
        return self._opening_token

    def response(self, connection: HTTPConnection) -> Response | None:
        """Return the refusal of a request, or the redirect that moves its token to a cookie; None if it may pass."""
        refusal = self._refusal(connection)
        if refusal is not None:
            return _refused(refusal)
        if self.token is None:
            return None
        scope, query = connection.scope, connection.query_params
        given, others = query.get("token"), [(key, value) for key, value in query.multi_items() if key != "token"]
        # named by the port that the browser sees: cookies of all ports of a host are kept together
        site = read_site(connection.headers["host"])
        cookie = f"acenode-token-{site.port if site else ''}"
        valid = (given is not None and self._accepts(given)) or _equal(connection.cookies.get(cookie, ""), self.token)
        opens_page = (scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
                      and "text/html" in connection.headers.get("accept", ""))
        if not opens_page:
            return None if valid else _refused(NO_TOKEN)
        if not valid:
            text = (f'<p role="alert">{WRONG}</p>\n' if given is not None else "") + f"<p>{ASK}</p>"
            kept = "".join(f'<input type="hidden" name="{escape(key)}" value="{escape(value)}">\n'
                           for key, value in others)
            page = TOKEN_PAGE.read_text(encoding="utf-8").replace("__TEXT__", text).replace("__KEPT__", kept)
            return HTMLResponse(page, 403, headers=NO_STORE)
        if given is None:
            return None
        path = "/" + quote(scope["path"]).lstrip("/")  # // would lead to another host
        answer = RedirectResponse(f"{path}?{urlencode(others)}" if others else path, 303, headers=NO_STORE)
        answer.set_cookie(cookie, self.token, max_age=COOKIE_AGE, httponly=True, samesite="lax",
                          secure=scope["scheme"] == "https")
        return answer

    def _refusal(self, connection: HTTPConnection) -> str | None:
        headers = connection.headers
        site = read_site(headers.get("host", ""))
        if site is None or len(headers.getlist("host")) > 1:
            return "The request has no valid Host: open the address that `acenode app` printed when it started."
        if not self._is_known(site.host, connection):
            return (f"{site.host} is not a name of this lab. If it should be, start the lab with "
                    f"`acenode app --allow-host {site.host}`.")
        for origin in headers.getlist("origin"):
            source = read_site(origin.partition("://")[2])
            if source is None:
                return "Other pages cannot call this lab: open it at its own address."
            if not self._is_known(source.host, connection) or (
                    source.port != site.port and source.host not in self.names):
                return (f"Pages of {source.host} cannot call this lab. If that is a name of the lab, start it with "
                        f"`acenode app --allow-host {source.host}`.")
        # Browsers send no Origin when a page shows an image or follows a link. Other pages may link to the lab's pages.
        if "origin" in headers or headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return None
        if headers.get("sec-fetch-mode") == "navigate" and not connection.scope["path"].startswith("/lab/"):
            return None
        return "Other pages cannot load parts of this lab: open it at its own address."

    def _is_known(self, host: str, connection: HTTPConnection) -> bool:
        arrived_at = connection.scope.get("server") or ("",)
        return host in LOCAL or host in self.names or host == _canonical(arrived_at[0])

    def _accepts(self, given: str) -> bool:
        """Check a token of an address; a whole pasted address will do."""
        given = given.rpartition("token=")[2].strip()
        if self.token is not None and _equal(given, self.token):
            return True
        if self._opening_token and _equal(given, self._opening_token):
            self._opening_token = ""
            return time.monotonic() < self._opening_end
        return False


def choose(address: str, names: Iterable[str], with_token: bool) -> Access:
    """Return the access that the options of `acenode app` ask for; others never reach the lab without a token."""
    address = "127.0.0.1" if address == "localhost" else address
    try:
        local = ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise UserError(f"--address takes an IP address such as 127.0.0.1 or 0.0.0.0, not {address!r}") from None
    if not local and not with_token:
        raise UserError(f"--address {address} lets other machines in and needs the token: leave out --no-token")
    known = []
    for name in names:
        site = read_site(f"[{name}]" if name.count(":") > 1 else name)
        if site is None or site.port:
            raise UserError(f"--allow-host takes a name such as lab.example, without http:// and port, not {name!r}")
        known.append(site.host)
    return Access(address, known, secrets.token_hex(24) if with_token else None)


class Guard:
    """ASGI middleware that answers only what `access` lets pass, and sets headers against framing and sniffing."""

    installed = False  # whether this process answers through one

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access
        Guard.installed = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"].endswith("http.response.start"):
                started = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        response = self._access.response(HTTPConnection(scope))
        if response is None and scope["type"] == "websocket":
            own = MutableHeaders(scope=scope)  # for another Origin, Streamlit may ask an outside server for our address
            if "origin" in own:
                own["origin"] = f"http://{own['host']}"
        try:
            await (response or self._app)(scope, receive, send_with_headers)
        except Exception:
            if scope["type"] == "http" and not started:  # otherwise Starlette answers, without our headers
                await PlainTextResponse(FAILED, 500)(scope, receive, send_with_headers)
            raise  # the server writes the traceback to the terminal


def _refused(reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", 403, headers=NO_STORE)


def _equal(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())
