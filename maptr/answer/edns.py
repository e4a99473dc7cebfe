"""EDNS(0) (RFC 6891): checks the OPT of a query, and makes the options of the response."""

from __future__ import annotations

from typing import NamedTuple

from dnslib import DNSError, DNSRecord
from dnslib.dns import RR, EDNSOption

from maptr.answer.context import MIN_PAYLOAD, Context
from maptr.protocol.cookies import is_well_formed
from maptr.protocol.numbers import COOKIE, EDE, KEEPALIVE, NSID, OPT, PADDING

EDE_NOT_READY = 14  # RFC 8914 4.15
EDE_PROHIBITED = 18  # RFC 8914 4.19
EDE_NOT_AUTHORITATIVE = 20  # RFC 8914 4.21
EDE_NOT_SUPPORTED = 21  # RFC 8914 4.22

PADDING_BLOCK = 468  # bytes; the size of a padded response is a multiple (RFC 8467 4.1)
KEEPALIVE_UNITS = 10  # in a second, RFC 7828 3.1

# In bytes: OPT without options, and what precedes the data of an option (RFC 6891 6.1.2).
OPT_SIZE, OPTION_HEADER = 11, 4


class Asked(NamedTuple):
    """The options of a query to which the server responds. If an option is repeated, the first one counts."""

    nsid: bool = False
    cookie: bytes | None = None
    keepalive: bool = False
    padding: bool = False


NOTHING_ASKED = Asked()


def find_opt(message: DNSRecord) -> RR | None:
    """The OPT of a query, or None. Raises DNSError for two, or for one in a wrong place (RFC 6891 6.1.1)."""
    if any(record.rtype == OPT for record in (*message.rr, *message.auth)):
        raise DNSError("OPT outside the additional section")
    found = [record for record in message.ar if record.rtype == OPT]
    if len(found) > 1:
        raise DNSError("more than one OPT")
    if found and found[0].rname.label:
        raise DNSError("OPT is not at the root")
    return found[0] if found else None


def read_options(opt: RR) -> Asked:
    """Raises DNSError for a cookie of a wrong length (RFC 7873 5.2.2). Ignores unknown options (RFC 6891 6.1.2)."""
    options: dict[int, bytes] = {}
    for option in opt.rdata:
        if option.code == COOKIE and not is_well_formed(option.data):
            raise DNSError("cookie of a wrong length")
        options.setdefault(option.code, option.data)
    # As in BIND, NSD, Knot and PowerDNS, the data of NSID, keepalive and padding are ignored.
    return Asked(NSID in options, options.get(COOKIE), KEEPALIVE in options, PADDING in options)


def udp_limit(opt: RR | None, payload: int) -> int:
    """The most bytes of a UDP response (RFC 6891 6.2.5), where the server sends no more than ``payload``."""
    return MIN_PAYLOAD if opt is None else min(max(opt.edns_len, MIN_PAYLOAD), payload)


def reply_options(
    asked: Asked, context: Context, *, cookie: bytes | None, ede: int | None, stream: bool
) -> list[EDNSOption]:
    """The options of a response without padding: those that were asked for, and EDE.

    The cookie is the last, so that the bytes before it are the same for all clients (``ready.py``).
    """
    options = []
    if asked.nsid and context.identity.nsid:
        options.append(EDNSOption(NSID, context.identity.nsid.encode()))
    if asked.keepalive and stream and context.idle_timeout is not None:
        units = min(int(context.idle_timeout * KEEPALIVE_UNITS), 0xFFFF)
        options.append(EDNSOption(KEEPALIVE, units.to_bytes(2, "big")))
    if ede is not None:
        options.append(EDNSOption(EDE, ede.to_bytes(2, "big")))
    if cookie is not None:
        options.append(EDNSOption(COOKIE, cookie))
    return options


def padding_to_block(size: int, limit: int) -> list[EDNSOption]:
    """The padding option of a response that has ``size`` bytes without it; none if it does not fit the limit."""
    size += OPTION_HEADER
    return [EDNSOption(PADDING, bytes(min(-size % PADDING_BLOCK, limit - size)))] if size <= limit else []
