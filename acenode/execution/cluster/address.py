"""Checks of a cluster's address that need no Ray: whether its name is known and whether anything answers there."""

from __future__ import annotations

import socket

from acenode.errors import UserError

CONNECT_SECONDS = 5.0  # longest time for an answer
START_HINT = ("start it with `ray start --head`; with a token, both sides need the same RAY_AUTH_MODE and token: see "
              "docs/cluster.md")


def check_name(address: str | None) -> None:
    """Raise a UserError if `HOST:PORT` has an unknown host or an invalid port; `auto` and None are not checked."""
    if (found := _host_and_port(address)) is None:
        return
    if not 1 <= found[1] <= 65535:
        raise UserError(f"{address} has no port from 1 to 65535: --on takes ray:IP:PORT")
    try:
        socket.getaddrinfo(*found, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # a ValueError for a name that cannot be one
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"there is no machine {found[0]} ({reason}): --on takes ray:IP:PORT, or ray:auto on a machine "
                        "of the cluster") from None


def check_answer(address: str | None) -> None:
    """Raise a UserError if nothing accepts connections at `HOST:PORT`; `auto` and None are not checked."""
    check_name(address)
    if (found := _host_and_port(address)) is None:
        return
    try:
        socket.create_connection(found, timeout=CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"there is no Ray cluster at {address} ({reason}); {START_HINT}") from None


def _host_and_port(address: str | None) -> tuple[str, int] | None:
    """Split `HOST:PORT`; None if the address is not of that form, which Ray reports itself."""
    host, _, port = (address or "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # [::1]:6379
    return (host, int(port)) if host and port.isascii() and port.isdigit() else None
