"""SipHash of many messages for DNS cookies: by OpenSSL's libcrypto where Python has it loaded, else in Python.

A hash takes libcrypto three quarters of a microsecond through ctypes, and ten in Python, or less where many are made
together (``maptr/siphash.py``).
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence

from maptr.siphash import HASH_SIZE, KEY_SIZE, siphash24, siphash24_each

Hashes = Callable[[bytes, Sequence[bytes]], list[bytes]]

_TRIAL_KEY, _TRIAL = bytes(range(KEY_SIZE)), (bytes(range(20)), bytes(32))


def each_hash() -> Hashes:
    """A function like ``siphash24_each``, for one thread. It proves itself on a trial first."""
    try:
        hashes = Libcrypto()
        if hashes(_TRIAL_KEY, _TRIAL) == [siphash24(_TRIAL_KEY, message) for message in _TRIAL]:
            return hashes
    except (AttributeError, ImportError, OSError):
        pass  # another libcrypto than of OpenSSL 3, one without SipHash, or none that can be called
    return siphash24_each


class Libcrypto:
    """EVP_MAC-SIPHASH(7) of OpenSSL 3, as Python's own ``_hashlib`` links it.

    Raises ImportError, OSError or AttributeError where there is none.
    """

    def __init__(self) -> None:
        # Names are looked up in what the extension depends on, too, so that no library need be found by its name.
        library = ctypes.PyDLL(importlib.import_module("_hashlib").__file__)
        library.EVP_MAC_fetch.restype = library.EVP_MAC_CTX_new.restype = ctypes.c_void_p
        self._init, self._update, self._final = library.EVP_MAC_init, library.EVP_MAC_update, library.EVP_MAC_final
        mac = library.EVP_MAC_fetch(None, b"SIPHASH", None)
        context = library.EVP_MAC_CTX_new(ctypes.c_void_p(mac)) if mac else None
        if not context:
            raise OSError("no SipHash in this libcrypto")
        self._context = ctypes.c_void_p(context)  # kept for life: there is one a listener
        library.EVP_MAC_free(ctypes.c_void_p(mac))
        self._size = ctypes.c_uint(HASH_SIZE)
        self._parameters = (_Parameter * 2)(
            _Parameter(b"size", _UNSIGNED, ctypes.addressof(self._size), ctypes.sizeof(self._size)), _Parameter()
        )
        self._hash = (ctypes.c_char * HASH_SIZE)()
        self._written = ctypes.c_size_t()

    def __call__(self, key: bytes, messages: Sequence[bytes]) -> list[bytes]:
        """Raises ValueError where libcrypto refuses the key."""
        context, hash_, written = self._context, self._hash, ctypes.byref(self._written)
        key_size, hash_size = ctypes.c_size_t(len(key)), ctypes.c_size_t(HASH_SIZE)
        sizes = {size: ctypes.c_size_t(size) for size in set(map(len, messages))}
        init, update, final = self._init, self._update, self._final
        if len(key) != KEY_SIZE or not init(context, key, key_size, self._parameters):
            raise ValueError(f"a SipHash key has {KEY_SIZE} octets, not {len(key)}")
        hashes = []
        for message in messages:
            init(context, key, key_size, None)
            update(context, message, sizes[len(message)])
            final(context, hash_, written, hash_size)
            hashes.append(hash_.raw)
        return hashes


class _Parameter(ctypes.Structure):
    """OSSL_PARAM(3)."""

    _fields_ = (
        ("key", ctypes.c_char_p),
        ("type", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("returned", ctypes.c_size_t),
    )


_UNSIGNED = 2  # OSSL_PARAM_UNSIGNED_INTEGER
