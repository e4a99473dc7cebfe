"""The certificate of a server for TLS 1.2 and 1.3, which a reload reads again."""

from __future__ import annotations

import logging
import ssl
from asyncio.sslproto import SSLProtocol
from pathlib import Path

from maptr.errors import ConfigError
from maptr.files import read_whole, secret_fault

log = logging.getLogger("maptr.serve")

ALPN = "dot"  # registered with IANA by RFC 7858
MINIMUM_VERSION = ssl.TLSVersion.TLSv1_2  # RFC 9325 3.1.1

# Bytes that asyncio reads at once from a TLS connection: a record (RFC 8446 5.1). Each connection keeps a buffer of so
# many while it is open, by default 256 KB, which is most of its memory. asyncio has no other way to set it.
SSLProtocol.max_size = 1 << 14


class Certificate:
    """The certificate chain and its private key, from PEM files.

    ``context`` is for new connections; ``error`` is why the last reload left the old one in use, "" after a success.
    Raises ConfigError, which names the bad file.
    """

    def __init__(self, certificate: Path, key: Path, *, alpn: str = ALPN) -> None:
        self._certificate = certificate
        self._key = key
        self._alpn = alpn
        self.error = ""
        self.context = self._read()

    def reload(self) -> None:
        """Read the files again, for new connections."""
        try:
            self.context, self.error = self._read(), ""
            log.info("certificate reloaded from %s", self._certificate)
        except (ConfigError, OSError) as error:
            self.error = str(error)
            log.error("certificate not reloaded, the old one stays: %s", error)

    def _read(self) -> ssl.SSLContext:
        for path in (self._certificate, self._key):
            try:
                read_whole(path)
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}") from error
        if fault := secret_fault(self._key.stat(), shared=True):
            raise ConfigError(f"{self._key}: {fault}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = MINIMUM_VERSION
        context.set_alpn_protocols([self._alpn])
        context.options |= ssl.OP_NO_RENEGOTIATION  # renegotiation lets clients cause work
        try:
            # The callback keeps OpenSSL from asking on the terminal for the passphrase of an encrypted key.
            context.load_cert_chain(self._certificate, self._key, password=_no_passphrase)
        except (ssl.SSLError, ValueError) as error:
            # OpenSSL gives no reason for a file that it cannot read.
            reason = (
                getattr(error, "reason", str(error)) or "one of them is not PEM or is cut short, or they are swapped"
            )
            raise ConfigError(f"{self._certificate} with {self._key}: no usable pair: {reason}") from error
        return context


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted")
