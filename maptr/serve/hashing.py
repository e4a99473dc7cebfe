"""SipHash of the cookies of a batch, where they lie: by libsodium or libcrypto if they are here, or in Python.

Nearly all that a hash costs through ctypes is the calls: libsodium takes one, libcrypto three. So arguments are made
once, as the objects that ctypes passes on as they are, and no octets object is made for what is hashed. In Python it
takes ten microseconds, or less where many are made together (``maptr/siphash.py``).

Why no function that is cheaper from Python: CPython's own keyed hash of octets is SipHash-1-3, fewer rounds than RFC
9018 has, under a secret that guards all dicts of the process too and that its environment may fix. AES takes one call
for a whole batch, but would be another version of cookie (RFC 9018 4.1) beside the one that servers can share. One
function for all cookies is easier to trust.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import mmap
import threading
from collections.abc import Callable, Iterable, Sequence

from maptr.cookies import Hash
from maptr.siphash import HASH_SIZE, KEY_SIZE, siphash24, siphash24_each

HEAD = 16  # octets of a cookie before its hash: the hash replaces what follows them

# Of libsodium 1.0.19 and later, and of those before, all with the same function.
SODIUM = ("libsodium.so.26", "libsodium.so.23")

# Hash so many octets at each of these of the places, with that key.
Hasher = Callable[[bytes, int, Iterable[int]], None]

_TRIAL_KEY, _TRIAL_SIZE, _TRIAL_PLACE = bytes(range(KEY_SIZE)), 20, 32


def make_hasher(memory: mmap.mmap, start: int, places: Sequence[int]) -> Hasher:
    """For one thread. ``start`` is the memory's address, at each of the ``places`` lie 32 octets of one message.

    A library proves itself on a trial first.
    """
    for library in (Libsodium, Libcrypto):
        try:
            trial = mmap.mmap(-1, 2 * _TRIAL_PLACE)
            trial[:] = bytes(range(2 * _TRIAL_PLACE))
            message = trial[_TRIAL_PLACE : _TRIAL_PLACE + _TRIAL_SIZE]
            hasher = library(ctypes.addressof(ctypes.c_char.from_buffer(trial)), (0, _TRIAL_PLACE))
            hasher(_TRIAL_KEY, _TRIAL_SIZE, (1,))
            at = _TRIAL_PLACE + HEAD
            if trial[at : at + HASH_SIZE] == siphash24(_TRIAL_KEY, message):
                return library(start, places)
        except (AttributeError, ImportError, OSError):
            pass  # not here, another version, or one that cannot be called
    return InPython(memory, places)


def make_hash() -> Hash:
    """A ``siphash24`` for up to 32 octets, for one thread at a time: by the quickest way there is, one by one."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    hasher = make_hasher(memory, ctypes.addressof(ctypes.c_char.from_buffer(memory)), (0,))

    def siphash(key: bytes, data: bytes) -> bytes:
        memory[: len(data)] = data
        hasher(key, len(data), (0,))
        return memory[HEAD : HEAD + HASH_SIZE]

    return siphash


def make_shared_hash() -> Hash:
    """The same for any thread."""
    siphash, lock = make_hash(), threading.Lock()

    def locked(key: bytes, data: bytes) -> bytes:
        with lock:
            return siphash(key, data)

    return locked


class InPython:
    """By ``siphash24_each``."""

    def __init__(self, memory: mmap.mmap, places: Sequence[int]) -> None:
        self._memory, self._places = memory, places

    def __call__(self, key: bytes, size: int, which: Iterable[int]) -> None:
        """Raises ValueError for a key that is none."""
        memory = self._memory
        places = [self._places[i] for i in which]
        hashes = siphash24_each(key, [memory[place : place + size] for place in places])
        for place, hash_ in zip(places, hashes, strict=True):
            memory[place + HEAD : place + HEAD + HASH_SIZE] = hash_


class Libsodium:
    """Its ``crypto_shorthash_siphash24``. Raises OSError or AttributeError where there is none."""

    def __init__(self, start: int, places: Sequence[int]) -> None:
        self._hash = _load_first(SODIUM).crypto_shorthash_siphash24
        self._sizes: dict[int, object] = {}
        self._messages = [ctypes.c_void_p.from_param(start + place) for place in places]
        self._hashes = [ctypes.c_void_p.from_param(start + place + HEAD) for place in places]

    def __call__(self, key: bytes, size: int, which: Iterable[int]) -> None:
        """Raises ValueError for a key that is none."""
        if len(key) != KEY_SIZE:
            raise ValueError(f"a SipHash key has {KEY_SIZE} octets, not {len(key)}")
        hash_, hashes, messages = self._hash, self._hashes, self._messages
        octets = self._sizes.get(size) or self._sizes.setdefault(size, ctypes.c_ulonglong.from_param(size))
        for i in which:
            hash_(hashes[i], messages[i], octets, key)


def _load_first(names: Iterable[str]) -> ctypes.PyDLL:
    """The first of some libraries that is there. Raises OSError."""
    for name in names:
        with contextlib.suppress(OSError):
            return ctypes.PyDLL(name)
    raise OSError("no such library")


class Libcrypto:
    """EVP_MAC-SIPHASH(7) of OpenSSL 3, as Python's own ``_hashlib`` links it.

    Raises ImportError, OSError or AttributeError where there is none.
    """

    def __init__(self, start: int, places: Sequence[int]) -> None:
        # Names are looked up in what the extension depends on, too, so that no library need be found by its name.
        library = ctypes.PyDLL(importlib.import_module("_hashlib").__file__)
        library.EVP_MAC_fetch.restype = library.EVP_MAC_CTX_new.restype = ctypes.c_void_p
        self._init, self._update, self._final = library.EVP_MAC_init, library.EVP_MAC_update, library.EVP_MAC_final
        mac = library.EVP_MAC_fetch(None, b"SIPHASH", None)
        context = library.EVP_MAC_CTX_new(ctypes.c_void_p(mac)) if mac else None
        if not context:
            raise OSError("no SipHash in this libcrypto")
        library.EVP_MAC_free(ctypes.c_void_p(mac))
        self._context = ctypes.c_void_p.from_param(context)  # kept for life: there is one a listener
        self._size = ctypes.c_uint(HASH_SIZE)
        self._parameters = (_Parameter * 2)(
            _Parameter(b"size", _UNSIGNED, ctypes.addressof(self._size), ctypes.sizeof(self._size)), _Parameter()
        )
        self._key_size, self._hash_size = ctypes.c_size_t.from_param(KEY_SIZE), ctypes.c_size_t.from_param(HASH_SIZE)
        self._sizes: dict[int, object] = {}
        self._messages = [ctypes.c_void_p.from_param(start + place) for place in places]
        self._hashes = [ctypes.c_void_p.from_param(start + place + HEAD) for place in places]

    def __call__(self, key: bytes, size: int, which: Iterable[int]) -> None:
        """Raises ValueError where libcrypto refuses the key."""
        context, key_size, hash_size, messages, hashes = (
            *(self._context, self._key_size, self._hash_size),
            *(self._messages, self._hashes),
        )
        init, update, final = self._init, self._update, self._final
        if len(key) != KEY_SIZE or not init(context, key, key_size, self._parameters):
            raise ValueError(f"a SipHash key has {KEY_SIZE} octets, not {len(key)}")
        octets = self._sizes.get(size) or self._sizes.setdefault(size, ctypes.c_size_t.from_param(size))
        for i in which:
            init(context, key, key_size, None)
            update(context, messages[i], octets)
            final(context, hashes[i], None, hash_size)


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
