"""Extended DNS errors (RFC 8914): why a server does not answer, in addition to its RCODE."""

from __future__ import annotations

from typing import NamedTuple

from maptr.errors import printable

MAX_TEXT = 200  # characters of a server's text

# The names of the codes, as IANA registers them.
NAMES = (
    "Other Error",
    "Unsupported DNSKEY Algorithm",
    "Unsupported DS Digest Type",
    "Stale Answer",
    "Forged Answer",
    "DNSSEC Indeterminate",
    "DNSSEC Bogus",
    "Signature Expired",
    "Signature Not Yet Valid",
    "DNSKEY Missing",
    "RRSIGs Missing",
    "No Zone Key Bit Set",
    "NSEC Missing",
    "Cached Error",
    "Not Ready",
    "Blocked",
    "Censored",
    "Filtered",
    "Prohibited",
    "Stale NXDomain Answer",
    "Not Authoritative",
    "Not Supported",
    "No Reachable Authority",
    "Network Error",
    "Invalid Data",
    "Signature Expired before Valid",
    "Too Early",
    "Unsupported NSEC3 Iterations Value",
    "Unable to conform to policy",
    "Synthesized",
    "Invalid Query Type",
)


class ExtendedError(NamedTuple):
    """An extended error of a response. ``text`` is the server's, cut to MAX_TEXT."""

    code: int
    text: str = ""

    @classmethod
    def read(cls, option: bytes) -> ExtendedError:
        """Read the data of an option of at least two bytes (RFC 8914 2)."""
        text = option[2:].rstrip(b"\0").decode("utf-8", "replace")  # a NUL may end it
        return cls(int.from_bytes(option[:2], "big"), text[:MAX_TEXT])

    @property
    def name(self) -> str:
        return NAMES[self.code] if 0 <= self.code < len(NAMES) else ""

    def __str__(self) -> str:
        """Return one printable line."""
        name = f" ({self.name})" if self.name else ""
        return printable(f"EDE {self.code}{name}" + (f": {self.text}" if self.text else ""))

    def to_dict(self) -> dict[str, object]:
        return {"code": self.code, "name": self.name, "text": self.text}
