"""The cookies of a batch: each laid out where its reply has it, followed by what else is hashed, and hashed there.

So a client's cookie costs one copy, and the hash replaces the address that went into it (RFC 9018 4.4).
"""

from __future__ import annotations

from collections.abc import Sequence

from maptr.cookies import CLIENT_COOKIE, check_cookie, fresh_part
from maptr.serve.hashing import HEAD, make_hash, make_hasher
from maptr.serve.slots import BATCH, Slots


class CookieJar:
    """For the batches that lie in some slots."""

    def __init__(self, slots: Slots) -> None:
        self._memory, self._addresses, self._copy = slots.memory, slots.addresses, slots.copy_to_cookies
        self._fresh = slots.fresh
        starts = [place.start for place in slots.cookies]
        self._cookies = slots.cookies
        self._clients = [slice(start, start + CLIENT_COOKIE) for start in starts]
        self._heads = [slice(start, start + HEAD) for start in starts]
        self._hasher = make_hasher(slots.memory, slots.start, starts)
        self._siphash = make_hash()
        address = slots.addresses[0]
        self._hashed = HEAD + address.stop - address.start
        self._seconds = -1

    def answer(self, asked: Sequence[tuple[int, bytes]], *, secrets: Sequence[bytes], now: float) -> list[int]:
        """Put the answers to cookies where replies have them. Whose were verified.

        ``asked`` are slots and cookies of 8 or 24 octets, ``secrets`` and ``now`` as for ``cookies.answer_cookie``.
        """
        memory, clients, heads = self._memory, self._clients, self._heads
        if int(now) != self._seconds:
            self._seconds = int(now)
            self._fresh_part = memoryview(fresh_part(self._seconds) * BATCH).cast("Q")
        self._fresh[:] = self._fresh_part
        for to, of in self._copy:
            to[:] = of
        whole = []
        for i, option in asked:
            if len(option) == CLIENT_COOKIE:
                memory[clients[i]] = option
            else:
                memory[heads[i]] = option[:HEAD]
                whole.append((i, option))
        self._hasher(secrets[0], self._hashed, [i for i, _ in asked])
        verified = []
        for i, option in whole:
            place = self._cookies[i]
            reply = check_cookie(
                option, memory[place], memory[self._addresses[i]], secrets=secrets, now=now, siphash=self._siphash
            )
            memory[place] = reply.option
            if reply.verified:
                verified.append(i)
        return verified
