"""``scripts/bench server``: what a query costs maptr and the DNS servers of Debian, in alternating rounds."""

from __future__ import annotations

import sys

from scripts.benchmark.server import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
