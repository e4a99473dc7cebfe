"""Request: what of a query its ready reply depends on, and the shortest query that asks for the same."""

from __future__ import annotations

from typing import NamedTuple

from maptr.context import OPTION_HEADER
from maptr.cookies import CLIENT_COOKIE
from maptr.ready import (
    CLIENT_OPTION,
    HEADER,
    NO_EDNS,
    NO_RECORDS,
    ONE,
    ONE_RECORD,
    RD,
    WHOLE_OPTION,
)

# Flags that resolvers set, of a query (RFC 4035 3.1.6, 3.2.2) and of its OPT (RFC 6891 6.1.4, RFC 9824 3.5).
AD_CD, DO_CO = 0x30, 0xC0


class Request(NamedTuple):
    """A query whose question ends at ``end``, and its name's labels start at ``offsets``, the root last.

    ``opt`` is its OPT up to the options (RFC 6891 6.1.2), empty where there is none, and ``form`` what that asks for.
    """

    offsets: list[int]
    end: int
    form: int = NO_EDNS
    opt: bytes = b""
    cookie: bytes | None = None

    def plain(self, query: bytes) -> bytes:
        """The query without what changes no reply and hardly anybody sends; itself, where there is nothing of that.

        That are octets behind it, records but the OPT, options but the cookie, and flags but RD, AD, CD, DO and CO.
        """
        _, end, _, opt, cookie = self
        flags, more = query[2], query[3]
        size = end + (len(opt) + 2 if opt else 0) + (0 if cookie is None else OPTION_HEADER + len(cookie))
        odd = flags & ~RD or more & ~AD_CD or (opt and (opt[5] or opt[7] & ~DO_CO or opt[8]))
        if not odd and len(query) == size and query[6:HEADER] in (NO_RECORDS, ONE_RECORD):
            return query
        head, question = query[:2] + bytes((flags & RD, more & AD_CD)) + ONE, query[HEADER:end]
        if not opt:
            return head + NO_RECORDS + question
        opt = b"%b%c%c%c%c" % (opt[:5], 0, opt[6], opt[7] & DO_CO, 0)
        if cookie is None:
            return head + ONE_RECORD + question + opt + b"\0\0"
        option = (CLIENT_OPTION if len(cookie) == CLIENT_COOKIE else WHOLE_OPTION) + cookie
        return b"".join((head, ONE_RECORD, question, opt, bytes((0, len(option))), option))
