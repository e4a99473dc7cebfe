"""The cookies of queries by TCP and TLS, hashed as those of batches are: in Python it takes ten times as long."""

from __future__ import annotations

import ctypes
import mmap
import socket
from collections.abc import Sequence

from maptr.cookies import CLIENT_COOKIE, SERVER_COOKIE, CookieReply, answer_cookie, check_cookie, fresh_part
from maptr.serve.hashing import HEAD, make_hasher

WHOLE_COOKIE = CLIENT_COOKIE + SERVER_COOKIE


class StreamCookies:
    """For one thread, and one process."""

    def __init__(self) -> None:
        # Private, for a fork has its own then.
        self._memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._hasher = make_hasher(self._memory, ctypes.addressof(ctypes.c_char.from_buffer(self._memory)), (0,))

    def answer(self, option: bytes, client: str, *, secrets: Sequence[bytes], now: float) -> CookieReply:
        """As ``cookies.answer_cookie`` for a cookie of 8 or 24 octets, as ready replies know them."""
        try:
            family = socket.AF_INET6 if ":" in client else socket.AF_INET
            address = socket.inet_pton(family, client.partition("%")[0])
        except OSError:  # not known
            return answer_cookie(option, client, secrets=secrets, now=now)
        memory = self._memory
        head = option[:HEAD] if len(option) > CLIENT_COOKIE else option + fresh_part(now)
        memory[: HEAD + len(address)] = head + address
        self._hasher(secrets[0], HEAD + len(address), (0,))
        made = memory[:WHOLE_COOKIE]
        if len(option) == CLIENT_COOKIE:
            return CookieReply(made, verified=False)
        return check_cookie(option, made, address, secrets=secrets, now=now)
