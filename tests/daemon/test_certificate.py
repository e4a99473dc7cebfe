"""The validity of a server's certificate: read without the package cryptography, and the warnings about it."""

from __future__ import annotations

import datetime
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from maptr.daemon.certificate import Certificate, CertificatePeriod
from tests.support.certificates import write_certificate

DAY = 86400.0
NOW = float(int(datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC).timestamp()))

PEM = """-----BEGIN CERTIFICATE-----
MIIBbTCCAROgAwIBAgIUVUkWnEyTAtXcJFFcIbeNyGN4/8MwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBYTAeFw0yNjExMjkxMzA5NTRaFw0yNzAyMjcxMzA5NTRaMAwx
CjAIBgNVBAMMAWEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARfTLHTGddsKb48
FNub2RkZ6vEHPMN0YJ6h1FUF1wek+dcneKOPdQsGHwZN1AgzICjHlBQ7z7PANUKh
+Q7ZCzzlo1MwUTAdBgNVHQ4EFgQUFn3oWUdNptljbcS0q4/EmG1/qcswHwYDVR0j
BBgwFoAUFn3oWUdNptljbcS0q4/EmG1/qcswDwYDVR0TAQH/BAUwAwEB/zAKBggq
hkjOPQQDAgNIADBFAiBQuMH5i70BlA6Hkt6esopH3AjigFgeQ055qFfPGtvV6QIh
AOLbE+pv/i/mc4UY7dny4dLFw5SmHUTEWTG8aOdUeKil
-----END CERTIFICATE-----
"""


def period_of(directory: Path) -> CertificatePeriod | None:
    return CertificatePeriod.of_chain((directory / "tls.crt").read_bytes())


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ((1950, 1, 1), (1999, 12, 31)),  # UTCTime
        ((2026, 2, 28), (2049, 12, 31)),
        ((2049, 12, 31), (2050, 1, 1)),  # GeneralizedTime from 2050 on (RFC 5280 4.1.2.5)
        ((2024, 2, 29), (9999, 12, 31)),  # without an end (RFC 5280 4.1.2.5)
    ],
)
def test_rfc5280_4_1_2_5_the_period_is_that_of_cryptography(
    tmp_path: Path, begins: tuple[int, int, int], ends: tuple[int, int, int]
) -> None:
    times = [datetime.datetime(*date, 23, 59, 58, tzinfo=datetime.UTC).timestamp() for date in (begins, ends)]
    write_certificate(tmp_path, period=(times[0], times[1]))
    assert period_of(tmp_path) == CertificatePeriod(times[0], times[1])
    read = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
    assert (read.not_valid_before_utc.timestamp(), read.not_valid_after_utc.timestamp()) == tuple(times)


def test_a_chain_has_the_period_of_its_first_certificate(tmp_path: Path) -> None:
    """RFC 8446 4.4.2: the first one is the server's own. Text may stand before it, as openssl x509 -text writes it."""
    chain = b"subject=CN = ns1.example\n"
    for end in (90, 1, 3650):
        write_certificate(tmp_path, period=(NOW, NOW + end * DAY))
        chain += (tmp_path / "tls.crt").read_bytes()
    assert CertificatePeriod.of_chain(chain) == CertificatePeriod(NOW, NOW + 90 * DAY)
    assert CertificatePeriod.of_chain(chain.replace(b"\n", b"\r\n")) == CertificatePeriod(NOW, NOW + 90 * DAY)


def test_openssl_s_own_certificates_are_read(tmp_path: Path) -> None:
    """Version 1 has no version field; a trusted certificate has more after it."""

    def run(*words: str) -> str:
        return subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "k", "-subj", "/CN=a", "-out", "csr")
    run("x509", "-req", "-in", "csr", "-signkey", "k", "-days", "90", "-out", "plain")
    run("x509", "-in", "plain", "-trustout", "-addtrust", "serverAuth", "-out", "trusted")
    found = [CertificatePeriod.of_chain((tmp_path / name).read_bytes()) for name in ("plain", "trusted")]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].ends - found[0].begins == 90 * DAY
    shown = run("x509", "-in", "plain", "-noout", "-enddate")
    assert ssl.cert_time_to_seconds(shown.strip().partition("=")[2]) == found[0].ends


@given(st.data())
def test_a_damaged_certificate_has_no_period_and_no_error(data: st.DataObject) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(PEM))
    for _ in range(data.draw(st.integers(1, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(der[: data.draw(st.integers(0, len(der)))])
    found = CertificatePeriod.of_chain(ssl.DER_cert_to_PEM_cert(cut).encode())
    assert found is None or isinstance(found.ends, float)
    assert CertificatePeriod.of_chain(data.draw(st.binary())) is None


@pytest.mark.parametrize(
    ("life", "left", "warn_before", "said"),
    [
        (90, 14.1, 14, ""),
        (90, 13.9, 14, "expires at 2026-12-12T21:36:00Z, in 14 days"),
        (90, 1.5, 14, "expires at 2026-11-30T12:00:00Z, in 36 hours"),
        (90, -0.1, 14, "expired at 2026-11-28T21:36:00Z: clients refuse it"),
        (90, 95, 14, "is not valid before 2026-12-04T00:00:00Z: clients refuse it; is a clock wrong?"),
        (6, 2.1, 14, ""),  # a third of the life of an ACME certificate of 6 days
        (6, 1.9, 14, "expires at 2026-11-30T21:36:00Z, in 46 hours"),
        (365, 29, 30, "expires at 2026-12-28T00:00:00Z, in 29 days"),
        (365, 0.01, 0, ""),
        (365, -0.01, 0, "expired at 2026-11-28T23:45:36Z: clients refuse it"),
    ],
)
def test_an_alarm_comes_in_time_and_never_before_a_third_of_the_life_is_left(
    life: float, left: float, warn_before: float, said: str
) -> None:
    period = CertificatePeriod(NOW + (left - life) * DAY, NOW + left * DAY)
    assert period.trouble(NOW, warn_before * DAY) == said


def test_the_mend_is_a_reload_once_the_file_has_a_later_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    write_certificate(tmp_path, period=(NOW - 80 * DAY, NOW + 10 * DAY))
    certificate = Certificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    said = f"the certificate of {tmp_path}/tls.crt expires at 2026-12-09T00:00:00Z, in 10 days; "
    assert certificate.trouble(NOW) == f"{said}renew it, and load it by maptr reload"
    (tmp_path / "tls.crt").unlink()
    assert certificate.trouble(NOW) == f"{said}renew it, and load it by maptr reload"
    write_certificate(tmp_path, period=(NOW - DAY, NOW + 89 * DAY))
    assert certificate.trouble(NOW) == f"{said}its file has one until 2027-02-26T00:00:00Z: load it by maptr reload"
    for hours in (0, 1, 23, 24, 25):
        certificate.log_trouble(NOW + hours * 3600)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2  # daily
    certificate.reload()
    assert (certificate.trouble(NOW), certificate.expires) == ("", NOW + 89 * DAY)


def test_it_needs_no_optional_package(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    code = (
        "import sys; sys.modules['cryptography'] = None\nfrom pathlib import Path\n"
        "from maptr.daemon.certificate import Certificate\n"
        "print(Certificate(Path('tls.crt'), Path('tls.key')).expires is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
