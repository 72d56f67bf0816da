"""`python -m acenode_app`: start the server, as `acenode app` does."""

from __future__ import annotations

import argparse
import os
import sys

from acenode.errors import UserError
from acenode.execution.devices import own_cores


def main() -> int:
    parser = argparse.ArgumentParser(prog="acenode app", description="start the app in the browser")
    parser.add_argument("--port", type=int)
    parser.add_argument("--runs")
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--allow-host", action="append", default=[])
    parser.add_argument("--no-token", action="store_true")
    parser.add_argument("--on")
    options = parser.parse_args()
    try:
        # training uses all cores but one, which is left to the page and the browser
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(own_cores()) - 1)))
        sys.setswitchinterval(0.001)  # a training thread releases the interpreter sooner, so that pages stay responsive
        from .access import choose
        from .server import serve

        serve(options.port, options.runs, options.headless,
              choose(options.address, options.allow_host, not options.no_token), options.on)
    except UserError as error:
        print(f"acenode: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
