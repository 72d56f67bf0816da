"""`python -m acenode_app`: the server, as `acenode app` starts it."""

from __future__ import annotations

import argparse
import os
import sys

from acenode.errors import UserError
from acenode.execution.devices import own_cores


def main() -> int:
    parser = argparse.ArgumentParser(prog="acenode app", description="the lab in the browser")
    parser.add_argument("--port", type=int)
    parser.add_argument("--runs")
    parser.add_argument("--headless", action="store_true")
    options = parser.parse_args()
    try:
        # training takes all cores but one, which the page and the browser are left with
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(own_cores()) - 1)))
        sys.setswitchinterval(0.001)  # a thread that trains, or imports torch, lets the page have its turn sooner
        from .server import serve

        serve(options.port, options.runs, options.headless)
    except UserError as error:
        print(f"acenode: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
