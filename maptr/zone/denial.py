"""Authenticated denial of existence: the NSEC or NSEC3 records that prove absence (RFC 4035 3.1.3, RFC 5155 7.2).

A zone has one chain, made when it is loaded. Each record of a proof then takes one bisection, and for NSEC3 one hash.
``answer/lookup.py`` chooses the proof. All names are folded. If the chain is incomplete, so are the proofs.
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from maptr.errors import ZoneError
from maptr.protocol.names import ROOT, WILDCARD, Folded, Labels, from_wire, next_closer, parent, to_text
from maptr.protocol.numbers import NSEC, NSEC3, NSEC3PARAM
from maptr.zone.rrset import Node, RRset

SHA1 = 1  # RFC 5155 11: the only hash algorithm
HASH_SIZE = 20  # bytes
# Validators treat zones with more as unsigned (RFC 9276 3.2; the limit of BIND, Knot Resolver and Unbound is 150).
MAX_ITERATIONS = 150
MAX_GAPS = 1 << 14  # in a chain whose gaps are numbered


def chain_of(nodes: Mapping[Folded, Node], origin: Folded) -> Denial | None:
    """Return the chain of a zone: NSEC3 if its apex has NSEC3PARAM, else NSEC; None for an unsigned zone.

    Raises ZoneError if no NSEC3 parameters can be used (unknown hash algorithm, more than MAX_ITERATIONS).
    """
    apex = nodes.get(origin, {})
    if NSEC3PARAM in apex:
        return _nsec3_chain(nodes, origin, apex[NSEC3PARAM].rdatas)
    found = sorted((key[::-1], node[NSEC]) for key, node in nodes.items() if NSEC in node)
    if not found:
        return None
    order, rrsets = zip(*found, strict=True)
    return NsecChain(order, rrsets)


@dataclass(frozen=True, slots=True)
class NsecChain:
    """The NSEC records of a zone in canonical order of their owners (RFC 4034 6.1).

    ``order`` has the owners, each with the label next to the root first. In the methods of both chains, names are in
    folded wire format, and ``encloser`` is the longest name at or above ``name`` that exists.
    """

    order: tuple[Labels, ...]
    rrsets: tuple[RRset, ...]

    def name_error(self, name: bytes, encloser: bytes) -> list[RRset]:
        """Prove that neither the name exists nor a wildcard that would match it."""
        return [self._cover(name), self._cover(WILDCARD + encloser)]

    def no_data(self, name: bytes) -> list[RRset]:
        """Prove that the name does not have the type. For a delegation, the type is DS."""
        # An empty non-terminal has no NSEC: the one before it points to a name below the empty non-terminal.
        return [self._cover(name)]

    def wildcard(self, name: bytes, encloser: bytes) -> list[RRset]:
        """Prove that no name is closer than the wildcard that gave the answer."""
        return [self._cover(name)]

    def wildcard_no_data(self, name: bytes, encloser: bytes) -> list[RRset]:
        """Prove that no name is closer than the wildcard, and that the wildcard does not have the type."""
        return [self._cover(WILDCARD + encloser), self._cover(name)]

    def gap(self, encloser: bytes, *, apex: bool) -> Callable[[bytes], int] | None:
        """Return a function from a name directly below ``encloser`` that does not exist to the number of its gap.

        All names in one gap have the same proofs. Returns None if there are more than MAX_GAPS gaps.
        """
        base = from_wire(encloser)[::-1]
        first = bisect_right(self.order, base)
        # In canonical order, the next possible label is the same label with a zero byte appended.
        end = bisect_left(self.order, (*base[:-1], base[-1] + b"\0")) if base else len(self.order)
        labels = tuple(dict.fromkeys(owner[len(base)] for owner in self.order[first:end]))  # directly below
        if len(labels) > MAX_GAPS:
            return None
        return lambda name: bisect_right(labels, name[1 : 1 + name[0]])

    def _cover(self, name: bytes) -> RRset:
        """Return the record of the name, or the one that covers it. Before the first record comes the last."""
        return self.rrsets[bisect_right(self.order, from_wire(name)[::-1]) - 1]


@dataclass(frozen=True, slots=True)
class Nsec3Chain:
    """The NSEC3 records of one set of parameters in the order of their hashes (RFC 5155 3)."""

    salt: bytes
    iterations: int
    order: tuple[bytes, ...]
    rrsets: tuple[RRset, ...]

    def name_error(self, name: bytes, encloser: bytes) -> list[RRset]:
        provable, records = self._closest(name, encloser)
        return [*records, self._cover(WILDCARD + provable)]

    def no_data(self, name: bytes) -> list[RRset]:
        match = self._match(name)
        if match is not None:
            return [match]
        # Opt-out (RFC 5155 7.2.4, 7.2.7): an insecure delegation, or an empty non-terminal above insecure delegations.
        return self._closest(name, parent(name))[1]

    def wildcard(self, name: bytes, encloser: bytes) -> list[RRset]:
        return [self._cover(next_closer(name, encloser))]

    def wildcard_no_data(self, name: bytes, encloser: bytes) -> list[RRset]:
        return [*self._closest(name, encloser)[1], self._cover(WILDCARD + encloser)]

    def gap(self, encloser: bytes, *, apex: bool) -> Callable[[bytes], int] | None:
        # Names below any encloser may lie in any gap. Only the apex has numbered gaps, to bound their number.
        order, salt, iterations = self.order, self.salt, self.iterations
        if not apex or len(order) > MAX_GAPS:
            return None
        return lambda name: bisect_right(order, nsec3_hash(name, salt, iterations))

    def _closest(self, name: bytes, encloser: bytes) -> tuple[bytes, list[RRset]]:
        """Return the closest provable encloser, its record, and the one that covers the next closer name (RFC 5155
        7.2.1). With opt-out, names at and above the encloser may have no record."""
        match = self._match(encloser)
        while match is None and encloser != ROOT:
            encloser = parent(encloser)
            match = self._match(encloser)
        covering = self._cover(next_closer(name, encloser))
        return encloser, [covering] if match is None else [match, covering]

    def _match(self, name: bytes) -> RRset | None:
        digest = nsec3_hash(name, self.salt, self.iterations)
        place = bisect_right(self.order, digest) - 1
        return self.rrsets[place] if self.order[place] == digest else None

    def _cover(self, name: bytes) -> RRset:
        """Return the record of the name, or the one that covers it. Before the first record comes the last."""
        return self.rrsets[bisect_right(self.order, nsec3_hash(name, self.salt, self.iterations)) - 1]


Denial = NsecChain | Nsec3Chain
"""A chain of either kind."""


def nsec3_hash(name: bytes, salt: bytes, iterations: int) -> bytes:
    """Hash a name in folded wire format (RFC 5155 5). ``iterations`` are additional.

    ``dns.dnssec.nsec3_hash`` takes a ``dns.name.Name`` and returns text, which is too slow for each NXDOMAIN.
    """
    digest = hashlib.sha1(name + salt, usedforsecurity=False).digest()
    for _ in range(iterations):
        digest = hashlib.sha1(digest + salt, usedforsecurity=False).digest()
    return digest


def _nsec3_chain(nodes: Mapping[Folded, Node], origin: Folded, parameters: Iterable[bytes]) -> Nsec3Chain | None:
    """Return the chain of the first parameters that have one. A zone may be changing its parameters (RFC 5155 4)."""
    refusal = ""
    for wire in sorted(parameters):
        algorithm, flags, iterations = wire[0], wire[1], int.from_bytes(wire[2:4], "big")
        salt = wire[5 : 5 + wire[4]]
        if algorithm != SHA1 or flags:
            refusal = refusal or f"NSEC3 hash algorithm {algorithm} with flags {flags} is not supported"
            continue
        if iterations > MAX_ITERATIONS:
            refusal = refusal or f"NSEC3 with {iterations} iterations, {MAX_ITERATIONS} at most (RFC 9276 3.2)"
            continue
        found = []
        for key, node in nodes.items():
            if NSEC3 in node and key[1:] == origin:
                rdatas = node[NSEC3].rdatas
                if any(rdata[0] == SHA1 and rdata[2:5] + rdata[5 : 5 + rdata[4]] == wire[2:] for rdata in rdatas):
                    if not (digest := hash_of(key[0])):
                        raise ZoneError(f"{to_text(key)} has an NSEC3 record, and its first label is not a hash")
                    found.append((digest, node[NSEC3]))
        if found:
            order, rrsets = zip(*sorted(found, key=lambda pair: pair[0]), strict=True)
            return Nsec3Chain(salt, iterations, order, rrsets)
    if refusal:
        raise ZoneError(f"zone {to_text(origin)}: {refusal}")
    return None


def hash_of(label: bytes) -> bytes:
    """Return the hash that a label encodes in Base 32 with the extended hex alphabet (RFC 4648 7), or b""."""
    try:
        digest = base64.b32hexdecode(label, casefold=True)
    except ValueError:
        return b""
    return digest if len(digest) == HASH_SIZE else b""
