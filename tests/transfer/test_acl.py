"""TSIG keys, access control lists and NOTIFY targets."""

from __future__ import annotations

import pytest

from maptr.transfer.acl import AccessRule, NotifyTarget, Secondaries, TsigKey
from tests.support.transfers import allowing, keyring


@pytest.mark.parametrize(
    ("algorithm", "digest", "size"),
    [
        *((f"hmac-sha{bits}", f"sha{bits}", bits // 8) for bits in (224, 256, 384, 512)),
        ("hmac-sha1", "sha1", 20),
        ("hmac-sha256-128", "sha256", 16),
        ("hmac-sha512-264", "sha512", 33),
        ("hmac-sha1-80", "sha1", 10),
    ],
)
def test_rfc8945_6_digest_and_mac_size_of_each_algorithm(algorithm: str, digest: str, size: int) -> None:
    key = TsigKey((b"Name",), algorithm, b"secret")
    assert (key.digest, key.mac_size, key.secret, key.name) == (digest, size, b"secret", (b"name",))


@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        ("hmac-md5", "is not a known algorithm: hmac-sha1, hmac-sha224"),
        ("hmac-sha3", "not a known algorithm"),
        ("sha256", "not a known algorithm"),
        ("hmac-sha256-120", "128 to 256 bits"),
        ("hmac-sha256-130", "whole bytes"),
        ("hmac-sha256-264", "128 to 256"),
        ("hmac-sha1-72", "80 to 160"),
    ],
)
def test_the_error_for_an_invalid_algorithm_has_a_reason(algorithm: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TsigKey((b"k",), algorithm, b"secret")


def test_string_representations_do_not_contain_the_secret() -> None:
    key = TsigKey((b"k",), "hmac-sha256", b"secret")
    for text in (repr(key), str(key), repr(keyring([key])), repr(Secondaries())):
        assert "secret=" not in text
        assert "b'secret'" not in text


# For each rule: clients with the key of their query, and whether they are allowed.
CLIENTS: dict[str, dict[tuple[str, str | None], bool]] = {
    "key:xfr": {("192.0.2.1", "xfr"): True, ("192.0.2.1", "other"): False, ("192.0.2.1", None): False},
    "key:XFR.": {("", "xfr"): True},
    "192.0.2.1": {("192.0.2.1", None): True, ("192.0.2.1", "other"): True, ("192.0.2.2", "xfr"): False},
    "192.0.2.0/24": {("192.0.2.255", None): True, ("192.0.3.0", None): False},
    "2001:db8::/32": {("2001:db8:1::2", None): True, ("2001:db9::", None): False},
    "::/0": {("192.0.2.1", None): False},
    "0.0.0.0/0": {("::ffff:192.0.2.1", None): True, ("", None): False, ("no address", None): False},
    "fe80::/10": {("fe80::1%eth0", None): True},
    "192.0.2.0/24 key:xfr": {("192.0.2.9", "xfr"): True, ("192.0.3.9", "xfr"): False},
    "key:xfr 192.0.2.0/24": {("192.0.2.9", None): False},
}


@pytest.mark.parametrize("rule", CLIENTS)
def test_clients_that_each_rule_allows(rule: str) -> None:
    for (client, key), allowed in CLIENTS[rule].items():
        name = None if key is None else (key.encode(),)
        assert allowing(rule).allows(client, name) is allowed
        assert allowing("203.0.113.77", rule).allows(client, name) is allowed
        assert not Secondaries().allows(client, name), "without rules no client is allowed"


@pytest.mark.parametrize(
    "rule", ["", " ", "xfr", "key:", "key:a..b", "192.0.2.1/24", "192.0.2.1 192.0.2.2", "key:a key:b", "::1]"]
)
def test_invalid_rules_are_refused(rule: str) -> None:
    with pytest.raises(ValueError):
        AccessRule.from_text(rule)


def test_text_form_of_notify_targets() -> None:
    texts = {"127.0.0.1:5300": "127.0.0.1:5300", "127.0.0.1": "127.0.0.1:53", "::1": "[::1]:53"}
    for text, shown in {**texts, "[::1]:5300 key:Xfr": "[::1]:5300 key:xfr."}.items():
        assert str(NotifyTarget.from_text(text)) == shown


@pytest.mark.parametrize(
    "text", ["", "host:53", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.1 xfr", "::1 key:a key:b", "key:a"]
)
def test_invalid_notify_targets_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        NotifyTarget.from_text(text)
