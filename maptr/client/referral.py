"""Where a referral leads: which of its addresses may be asked, and whose are to be sought where it tells none.

Pure, for ``asking``, which follows it. How one is read from a reply is ``reply.py``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maptr import url
from maptr.client.attempt import Attempt, Server
from maptr.client.reply import Referral
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import AAAA, A

MAX_REFERRALS = 8  # down from the servers given; a domain name below ark.arpa rarely has two zone cuts
MAX_SOUGHT = 3  # servers of one referral whose addresses are sought where none is told with it
MAX_SEARCH_DEPTH = 2  # searches for the sake of a search


class Search(NamedTuple):
    """The addresses of a zone's servers are sought, at the servers first given; ``questions`` are still to ask.

    ``attempt`` is what the referral replied to.
    """

    attempt: Attempt
    cut: Labels
    questions: list[tuple[Labels, int]]


def usable(asked: Server, addresses: Sequence[str]) -> list[Server]:
    """The servers at these addresses that may be asked: local ones only where the one that names them is local."""
    if not _is_local(asked.address):
        addresses = [text for text in addresses if not _is_local(text)]
    return [Server(text, asked.port) for text in addresses]


def sought(referral: Referral, seeking: frozenset[Labels]) -> list[tuple[Labels, int]]:
    """The questions, name and type, that may find an address where none is told.

    None about a server below the very cut, nor about one that is sought already: ``seeking``, folded.
    """
    if referral.addresses or len(seeking) >= MAX_SEARCH_DEPTH:
        return []
    found = [
        server
        for server in referral.servers
        if not names.is_below(server, referral.cut) and names.fold(server) not in seeking
    ]
    return [(server, rdtype) for server in found[:MAX_SOUGHT] for rdtype in (A, AAAA)]


def _is_local(address: str) -> bool:
    return url.parse_host(f"[{address.partition('%')[0]}]" if ":" in address else address).is_local
