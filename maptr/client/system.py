"""resolv.conf(5): whom the system asks. Light to import."""

from __future__ import annotations

PATH = "/etc/resolv.conf"


def nameservers(path: str = PATH) -> list[str]:
    """What stands behind each ``nameserver``, whatever it is, in order. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib costs 2 ms to import
        lines = [line.split() for line in file.read().splitlines()]
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
