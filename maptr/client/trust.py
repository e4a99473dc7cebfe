"""Validator: trust anchors and what was found from them, for ``discover(trust_anchors=...)``.

Reads the file of anchors and the clock; everything else is ``validation``, which is imported only where somebody
validates.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import dns.name

from maptr.client.asking import Exchange
from maptr.client.attempt import Asked
from maptr.errors import ConfigError, MissingExtra
from maptr.protocol.names import Labels
from maptr.protocol.numbers import NAPTR

if TYPE_CHECKING:
    import dns.rdata

    from maptr.client.validation.chain import Trust
    from maptr.client.validation.inquiry import Inquiry

# By dns.name.Name or str: keys of a Mapping are invariant, and a dict[str, ...] would be none of both.
Anchors: TypeAlias = "Mapping[Any, Iterable[dns.rdata.Rdata]]"
TrustAnchors: TypeAlias = "Validator | Anchors | str | os.PathLike[str]"


class Validator:
    """Validates answers by DNSSEC from trust anchors: of the root, or of any zone below which you trust nobody else.

    ``anchors``: a file with DS or DNSKEY records (as Unbound and ``maptr zone keys ds`` write them) or with BIND's
    ``trust-anchors``; or DS or DNSKEY rdatas by name, as dnspython's keyrings. Keep it: the keys that it
    validated serve the next discovery. Many threads may share one. ``clock`` is Unix time.

    Raises ConfigError for anchors that cannot be read or used, or where the package cryptography is missing or too old.

    >>> validator = Validator({"ark.arpa.": [key]})
    >>> discover("ark:12345/x6np1wh8k", nameservers=[server], trust_anchors=validator).security
    'secure'
    """

    def __init__(self, anchors: Anchors | str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        import dns.dnssecalgs

        if not dns.dnssecalgs.algorithms:  # without cryptography, or one too old for this dnspython
            newer = "a newer" if find_spec("cryptography") else "the"
            raise MissingExtra(f"validation needs {newer} package cryptography: pip install 'maptr[dnssec]'")
        from maptr.client.validation import anchors as reading
        from maptr.client.validation.chain import Trust

        if isinstance(anchors, Mapping):
            found = reading.anchors(anchors)
        else:
            try:
                found = reading.read(Path(anchors).read_text("utf-8"), os.fspath(anchors))
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise ConfigError(f"{os.fspath(anchors)}: {reason}", key="trust_anchors") from None
        self.trust: Trust = Trust(found, clock)

    def __repr__(self) -> str:
        return f"<Validator from {', '.join(map(str, self.trust.anchors))}>"

    @classmethod
    def of(cls, given: TrustAnchors) -> Validator:
        """The same validator, or one with these anchors."""
        return given if isinstance(given, Validator) else cls(given)

    def has_keys(self, name: Labels) -> bool:
        """Whether what begins at a name is known, so that questions below it need no keys from above."""
        return self.trust.recall(dns.name.Name((*name, b""))) is not None

    def exchange(
        self,
        name: Labels,
        start: Callable[[Labels, int], Exchange],
        clock: Callable[[], float] = time.monotonic,
        rdtype: int = NAPTR,
    ) -> Asked:
        """The question of a name, for a driver of ``asking``; ``start`` makes that of a name and type."""
        from maptr.client.validation.exchange import ValidatedExchange

        return ValidatedExchange(name, self.trust, start, clock, rdtype)

    def inquire(self, name: Labels, rdtype: int = NAPTR) -> Inquiry:
        """The same, for who asks in another way."""
        from maptr.client.validation.inquiry import Inquiry

        return Inquiry(self.trust, name, rdtype)
