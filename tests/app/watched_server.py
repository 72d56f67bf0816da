"""Start the app with the network blocked: python tests/app/watched_server.py LOG [options of `acenode app`]

Every attempt to resolve a name or to reach another machine fails and is written to LOG.
"""

from __future__ import annotations

import sys
from typing import Any

LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo")
MESSAGES = ("socket.connect", "socket.sendto", "socket.sendmsg")


def block_network(log: str) -> None:
    """Refuse and record name lookups and connections in this process."""
    file = open(log, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open until the process ends

    def hook(event: str, given: tuple[Any, ...]) -> None:
        outside = event in MESSAGES and isinstance(given[1], tuple) and given[1][0] not in ("127.0.0.1", "::1")
        if outside or event in LOOKUPS:
            file.write(f"{event} {given[:2]}\n")
            raise OSError(f"blocked: {event}")

    sys.addaudithook(hook)


if __name__ == "__main__":
    block_network(sys.argv.pop(1))
    from acenode_app.__main__ import main

    sys.exit(main())
