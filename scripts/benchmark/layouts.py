"""One zone of NAANs in the layouts of several servers and authors."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from scripts.benchmark.loads import FIRST_NAAN, ORIGIN
from tests.support.peers import output

_OUTSIDE_QUOTES = re.compile(r' (?=(?:[^"]*"[^"]*")*[^"]*$)')
_FIELDS = 4  # of a line: owner, class, type, rdata


def own(names: int, origin: str = ORIGIN) -> str:
    """Return a zone as ``maptr zone build`` writes it: two records for each NAAN.

    No host has a port, because Knot rejects the form that named-compilezone writes.
    """
    lines = [
        f"$ORIGIN {origin}",
        "$TTL 3600",
        "@ IN SOA ns1 hostmaster 1 7200 3600 1209600 300",
        "@ IN NS ns1",
        "ns1 IN A 192.0.2.1",
    ]
    for naan in range(FIRST_NAAN, FIRST_NAAN + names):
        made = rf"https://resolver{naan}.example.org/ark:/{naan}/\\1"
        lines.append(f'{naan} IN NAPTR 10 10 "u" "ark" "!^ark:/?{naan}/(.*)$!{made}!" .')
        lines.append(f'{naan} IN NAPTR 100 10 "h" "ark" "" resolver{naan}.example.org.')
    return "\n".join(lines) + "\n"


def with_tabs(text: str) -> str:
    """Write tabs between the fields, a comment after each record, and one between NAANs."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("$"):
            *head, rdata = line.split(" ", _FIELDS - 1)
            line = "\t".join([*head, _OUTSIDE_QUOTES.sub("\t", rdata)]) + "\t; a comment"
        lines += ["; the next record", line]
    return "\n".join(lines) + "\n"


def with_ttls(text: str) -> str:
    """Write the TTL in each line."""
    return text.replace(" IN ", " 3600 IN ").replace("$TTL 3600\n", "")


LAYOUTS: dict[str, Callable[[str], str] | str] = {
    "as maptr zone build": str,
    "named-compilezone full": "full",
    "named-compilezone relative": "relative",
    "tabs and comments": with_tabs,
    "a TTL in each line": with_ttls,
    "upper case": str.upper,
}
"""How each layout is made from the text of ``own``: a function, or a style of named-compilezone."""


def write(layout: str, names: int, path: Path) -> None:
    """Write a zone in one layout. A layout of named-compilezone needs BIND."""
    text, make = own(names), LAYOUTS[layout]
    if isinstance(make, str):
        plain = path.with_suffix(".own")
        plain.write_text(text)
        output("named-compilezone", "-i", "none", "-s", make, "-o", path, ORIGIN, plain)
        plain.unlink()
    else:
        path.write_text(make(text))
