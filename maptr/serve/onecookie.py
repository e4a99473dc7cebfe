"""One cookie at a time: what ``jar.py`` does for a batch, for a query that came alone."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

from maptr.cookies import CLIENT_COOKIE, check_cookie, fresh_part, packed_address
from maptr.serve.clients import MAX_CLIENTS
from maptr.serve.hashing import HEAD, make_hash, make_hasher
from maptr.serve.jar import WHOLE_COOKIE
from maptr.serve.slots import COOKIE


class OneCookie:
    """Answers cookies of 8 or 24 octets, in one thread. What is hashed lies where the hash replaces its end."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, COOKIE)
        self._anchor = ctypes.c_char.from_buffer(self._memory)
        self._hasher = make_hasher(self._memory, ctypes.addressof(self._anchor), (0,))
        self._siphash = make_hash()
        self._addresses: dict[str, bytes] = {}
        self._seconds = -1
        self._fresh = b""

    def answer(self, option: bytes, client: str, *, secrets: Sequence[bytes], now: float) -> tuple[bytes, bool]:
        """What ``cookies.answer_cookie`` has, as a plain tuple, which is cheaper.

        Raises ValueError for a secret that is none.
        """
        memory = self._memory
        address = self._addresses.get(client)
        if address is None:
            if len(self._addresses) >= MAX_CLIENTS:
                self._addresses.clear()
            address = self._addresses[client] = packed_address(client)
        if len(option) == CLIENT_COOKIE:
            if int(now) != self._seconds:
                self._seconds, self._fresh = int(now), fresh_part(now)
            head = option + self._fresh
        else:
            head = option[:HEAD]
        size = HEAD + len(address)
        memory[:size] = head + address
        self._hasher(secrets[0], size, (0,))
        made = memory[:WHOLE_COOKIE]
        if len(option) == CLIENT_COOKIE:
            return made, False
        return check_cookie(option, made, address, secrets=secrets, now=now, siphash=self._siphash)
