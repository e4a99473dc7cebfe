"""DNS over TLS (RFC 7858): the certificate, what TLS is spoken, and a new certificate without a restart.

The streams themselves are ``tcp.py``'s.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from maptr.errors import ConfigError
from maptr.protocol.address import Address

log = logging.getLogger("maptr.serve")

ALPN = "dot"  # RFC 7858 as registered with IANA
MINIMUM_VERSION = ssl.TLSVersion.TLSv1_2  # RFC 9325 3.1.1


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Where DNS over TLS is answered, and PEM files: the certificate with its chain, and its private key."""

    listen: tuple[Address, ...]
    certificate: Path
    key: Path


class Certificate:
    """The TLS context for new connections. Raises ConfigError where its files cannot be used."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context = make_context(settings)

    def context(self) -> ssl.SSLContext:
        return self._context

    def reload(self) -> str:
        """Read the files again; bad ones change nothing, and why they are bad is the result, "" for good ones.

        Connections keep what they began with.
        """
        try:
            self._context = make_context(self._settings)
        except ConfigError as error:
            log.error("certificate not reloaded, the old one stays: %s", error)
            return str(error)
        log.info("certificate reloaded from %s", self._settings.certificate)
        return ""


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """TLS 1.2 and 1.3 as a server speaks them. Raises ConfigError naming the file at fault."""
    for path in (settings.certificate, settings.key):
        try:
            path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = MINIMUM_VERSION
    context.set_alpn_protocols([ALPN])
    context.options |= ssl.OP_NO_RENEGOTIATION  # work for us at a client's word, and nobody needs it
    try:
        # A callback, or OpenSSL would ask the terminal for the passphrase of an encrypted key.
        context.load_cert_chain(settings.certificate, settings.key, password=_no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ConfigError(f"{settings.certificate} with {settings.key}: no usable pair: {reason}") from error
    return context


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted")
