"""A server's certificate for TLS 1.2 and 1.3, which a reload rereads, and its validity period.

Python's ``ssl`` does not show the local side's certificate, and the package cryptography is an optional extra. So the
two times are read from the certificate's DER, after OpenSSL has accepted it.
"""

from __future__ import annotations

import calendar
import logging
import re
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from maptr.config.model import WARN_BEFORE
from maptr.daemon.background import Repetitions
from maptr.errors import ConfigError, Time, time_text
from maptr.files import read_whole, secret_fault

log = logging.getLogger("maptr.daemon")

ALPN = "dot"  # registered with IANA by RFC 7858
MINIMUM_VERSION = ssl.TLSVersion.TLSv1_2  # RFC 9325 3.1.1
DAY = 86400.0  # seconds
MOST_OF_LIFETIME = 3  # a third of it: ACME clients renew then, even certificates that last 6 days

# The labels under which OpenSSL reads a certificate. The first one of a chain is the server's own (RFC 8446 4.4.2).
_PEM = re.compile(b"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----([^-]*)-----END")
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18  # tags of DER


@dataclass(frozen=True, slots=True)
class CertificatePeriod:
    """A certificate's validity period."""

    begins: Time
    ends: Time

    @classmethod
    def of_chain(cls, pem: bytes) -> CertificatePeriod | None:
        """Return the period of the first certificate in a PEM file; None if it cannot be read."""
        found = _PEM.search(pem)
        try:
            if found is None:
                return None
            body = found[1].decode("ascii")
            return _read_period(ssl.PEM_cert_to_DER_cert(f"{ssl.PEM_HEADER}\n{body.strip()}\n{ssl.PEM_FOOTER}"))
        except (ValueError, IndexError):
            return None

    def trouble(self, now: float, warn_before: float) -> str:
        """Return a text if it has expired, expires within ``warn_before`` seconds (at most a third of its lifetime), or
        is not valid yet; otherwise ""."""
        left = self.ends - now
        if left < 0:
            return f"expired at {time_text(self.ends)}: clients refuse it"
        if now < self.begins:
            return f"is not valid before {time_text(self.begins)}: clients refuse it; is a clock wrong?"
        if left < min(warn_before, (self.ends - self.begins) / MOST_OF_LIFETIME):
            return f"expires at {time_text(self.ends)}, in {_in_words(left)}"
        return ""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The files' content. ``error`` is why a later reload has not replaced it."""

    context: ssl.SSLContext
    period: CertificatePeriod | None
    error: str = ""


class Certificate:
    """The certificate chain and its private key, from PEM files.

    ``context`` is for new connections; ``error`` is why the last reload kept the old certificate, "" after a success.
    ``reload_by`` is how an operator causes a reload. Raises ConfigError, which names the bad file.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        alpn: str = ALPN,
        warn_before: float = WARN_BEFORE,
        reload_by: str = "maptr reload",
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._alpn = alpn
        self._warn_before = warn_before
        self._reload_by = reload_by
        self._logged = Repetitions()
        self._loaded = self._read()  # one value, because threads read it during a reload

    @property
    def context(self) -> ssl.SSLContext:
        return self._loaded.context

    @property
    def error(self) -> str:
        return self._loaded.error

    @property
    def expires(self) -> Time | None:
        """When the certificate in use expires; None if that cannot be read."""
        period = self._loaded.period
        return None if period is None else period.ends

    def reload(self) -> None:
        """Reread the files, for new connections."""
        try:
            self._loaded = self._read()
            log.info("certificate reloaded from %s", self._certificate)
        except (ConfigError, OSError) as error:
            self._loaded = _Loaded(self._loaded.context, self._loaded.period, str(error))

    def refusal(self) -> str:
        """Say why the last reload kept the old certificate; "" after a success."""
        return f"certificate not reloaded, keeping the old one: {self.error}" if self.error else ""

    def trouble(self, now: float) -> str:
        """Return the alarm about the certificate in use, with the remedy; "" if it is valid for long enough.

        If there is one, rereads the file, where a renewed certificate may wait for a reload.
        """
        period = self._loaded.period
        found = period.trouble(now, self._warn_before) if period is not None else ""
        if period is None or not found:
            return ""
        try:
            waiting = CertificatePeriod.of_chain(read_whole(self._certificate))
        except OSError:
            waiting = None
        if waiting is None or waiting == period or waiting.trouble(now, self._warn_before):
            remedy = f"renew it, and load it by {self._reload_by}"
        else:
            remedy = f"its file has one until {time_text(waiting.ends)}: load it by {self._reload_by}"
        return f"the certificate of {self._certificate} {found}; {remedy}"

    def log_trouble(self, now: float) -> str:
        """Return the ``trouble``, and log it when it begins and then daily."""
        found = self.trouble(now)
        if self._logged.is_new("trouble", found and self.version(now)):
            log.warning("%s", found)
        return found

    def version(self, now: float) -> tuple[object, ...]:
        """Return a value that changes whenever the ``trouble`` must be logged again."""
        return self.expires, now > (self.expires or 0), now // DAY

    def _read(self) -> _Loaded:
        try:
            chain = read_whole(self._certificate)
            read_whole(self._key)
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror}") from error
        if fault := secret_fault(self._key.stat(), shared=True):
            raise ConfigError(f"{self._key}: {fault}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = MINIMUM_VERSION
        context.set_alpn_protocols([self._alpn])
        context.options |= ssl.OP_NO_RENEGOTIATION  # renegotiation lets clients cause work
        try:
            # The callback keeps OpenSSL from asking on the terminal for an encrypted key's passphrase.
            context.load_cert_chain(self._certificate, self._key, password=_no_passphrase)
        except (ssl.SSLError, ValueError) as error:
            # OpenSSL gives no reason if it cannot read a file.
            reason = (
                getattr(error, "reason", str(error)) or "one of them is not PEM or is cut short, or they are swapped"
            )
            raise ConfigError(f"{self._certificate} with {self._key}: no usable pair: {reason}") from error
        return _Loaded(context, CertificatePeriod.of_chain(chain))


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted")


def _in_words(seconds: float) -> str:
    return f"{seconds / DAY:.0f} days" if seconds >= 2 * DAY else f"{seconds / 3600:.0f} hours"


# ---- DER (X.690)


def _read_period(der: bytes) -> CertificatePeriod:
    """Read the validity of a certificate (RFC 5280 4.1). Raises ValueError and IndexError."""
    _, at, _ = _element(der, 0)  # Certificate
    _, at, _ = _element(der, at)  # TBSCertificate
    tag, _, end = _element(der, at)
    if tag == _VERSION:
        at = end
    for _ in ("serialNumber", "signature", "issuer"):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)  # Validity
    _, _, middle = _element(der, at)
    return CertificatePeriod(_read_time(der, at), _read_time(der, middle))


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the element at an offset, and the start and end of its content (X.690 8.1)."""
    tag, size, start = der[at], der[at + 1], at + 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[at + 2 : start], "big")
    if start + size > len(der):
        raise ValueError("cut short")
    return tag, start, start + size


def _read_time(der: bytes, at: int) -> float:
    """Read the time at an offset (RFC 5280 4.1.2.5). Raises ValueError."""
    tag, start, end = _element(der, at)
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        text = f"{'19' if text >= '50' else '20'}{text}"
    elif tag != _GENERALIZED_TIME:
        raise ValueError("not a time")
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))
