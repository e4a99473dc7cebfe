"""Self-signed certificates for tests of TLS."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def write_certificate(
    directory: Path,
    name: str = "ns1.example",
    *,
    passphrase: bytes | None = None,
    hours: int = 1,
    period: tuple[float, float] | None = None,
) -> None:
    """Write ``tls.crt`` and ``tls.key``, valid for the name, for loopback addresses and for fe80::1.

    It expires in that many ``hours``, which may be below 0; or it is valid in the ``period``, in seconds since 1970.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(hours=hours)
    begin = min(now, end) - datetime.timedelta(hours=1)
    if period is not None:
        begin, end = (datetime.datetime.fromtimestamp(at, datetime.UTC) for at in period)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    *(x509.DNSName(host) for host in (name, "localhost")),
                    *(x509.IPAddress(ipaddress.ip_address(host)) for host in ("127.0.0.1", "::1", "fe80::1")),
                ]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    (directory / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    (directory / "tls.key").chmod(0o600)
