"""Which URLs and hosts may be followed, by their text alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import url
from maptr.ark import Ark
from maptr.discovery import Outcome
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.registry.table import Entry, Nma, Table
from maptr.registry.target import unusable
from maptr.walk import Answer, Walk
from maptr.zone.lint import publishable
from tests.support.own_objects import read

REFUSED = {
    "not an absolute URL": ["javascript:alert(1)", "http//cams.example"],
    "neither http nor https": ["javascript://h.example/%0aalert(1)", "ftp://h.example/"],
    "no host": ["https:///h.example/"],
    "A-labels": ["https://bücher.example/", "https://８.8.8.8/", "https://127。0。0。1/", "https://ｌocalhost/"],
    "user information": ["https://user@h.example/", "https://h.example:80@evil.example/"],
    "U+005C": ["https://h.example\\@evil.example/"],
    "U+000D": ["https://h.example/\r\nSet-Cookie: x"],
    "U+0000": ["https://h.example/\x00"],
    "not a port (1 to 65535)": ["https://h.example:0/", "https://h.example:99999/"],
    "not a host name": ["https://h..example/", "https://-h.example/"],
    "not a host": ["https://[::1/"],
    "not an IPv4 address": ["https://1.2.3.4.5/", "https://256.1.1.1/", "https://1.2.3.08/"],
    "not an IPv6 address": ["https://[zz]/"],
    "longer than": ["https://h.example/" + "x" * url.MAX_URL],
    "not a public host": [
        *("https://192.168.1.12/flora", "https://169.254.169.254/latest/meta-data", "https://10.0.0.1:8080/"),
        *("https://localhost/", "https://LOCALHOST./", "https://a.localhost/"),
    ],
}
LOCAL_NAMES = """
    intranet museum. ip6-localhost IP6-Loopback xn--bcher-kva repo.local REPO.Local. a.b.internal home.arpa a.home.arpa.
    localhost.localdomain x.test h.invalid abcdef.onion a.alt router.lan files.corp nas.home x.private www.intranet
    _dns.resolver.arpa x.service.arpa
"""
PUBLIC_NAMES = "h.example nlm.nih.gov local.example home.example. mylocal.org notlocalhost.org arpa.example a.ark.arpa"
LOCAL = """
    127.0.0.1 127.0.0.1. 127.1 127.0.1 0x7f.0.0.1 0177.0.0.01 2130706433 0x7f000001 017700000001 0 0x 0.0.0.0
    100.64.0.1 192.0.0.8 192.88.99.1 198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255
    [::] [::1] [::127.0.0.1] [::ffff:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:ffff:127.0.0.1] [::ffff:0:127.0.0.1]
    [64:ff9b::7f00:1] [64:ff9b::10.0.0.1] [64:ff9b:1::1] [fec0::1] [3fff::1] [5f00::1] [fd00::1]
    [fe80::1] [fe80::1%25eth0] [fe80::1%eth0] [2a00:1450:4001:81b::200e%25eth0] [::ffff:127.0.0.1%25lo]
    [2001:0:1:1:1:1:80ff:fffe] [2002:7f00:1::] [2002:808:808::1] [2001:1::1] [2001:20::1] [ff02::1]
"""
PUBLIC = "[64:ff9b::8.8.8.8] [::ffff:8.8.8.8] [2001:200::1] [2a00:1450::1] 134744072 8.8.8.8. xn--bcher-kva.example"
INVALID = "00000000000177.0.0.1 4294967296 %31%32%37.0.0.1 localhost.. [::1]x [v1.a] 1.2.3.256 0.0.0.0.0"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "https://h.example/ark:12345/x",
            "HTTP://H.example:8443/p?q=1#f",
            "https://h.example",
            "https://a_b.example./",
        ),
        *("https://[2a00:1450:4001:81b::200e]:443/", "https://R74n.com/id/?ark:49595/x?info"),
        *(f"https://{host}/" for host in PUBLIC.split()),
    ],
)
def test_allowed(text: str) -> None:
    assert url.refusal(text) is None


@pytest.mark.parametrize(("because", "text"), [(because, text) for because in REFUSED for text in REFUSED[because]])
def test_refused(because: str, text: str) -> None:
    assert because in (url.refusal(text) or "")


@pytest.mark.parametrize("host", LOCAL.split())
def test_no_notation_hides_an_address_that_is_not_public(host: str) -> None:
    assert "not a public host" in (url.refusal(f"https://{host}:8443/x") or "")
    assert url.refusal(f"https://{host}/", allow_private=True) is None


@pytest.mark.parametrize("host", LOCAL_NAMES.split())
def test_single_labels_and_special_use_domains_are_not_public(host: str) -> None:
    assert url.refusal(f"https://{host}/x") == f"{host} is not a public host"
    assert url.refusal(f"https://{host}/", allow_private=True) is None


@pytest.mark.parametrize("host", PUBLIC_NAMES.split())
def test_a_name_that_only_looks_like_a_special_use_domain_is_public(host: str) -> None:
    assert url.refusal(f"https://{host}/") is None


@pytest.mark.parametrize("host", [*LOCAL_NAMES.split(), *PUBLIC_NAMES.split(), *LOCAL.split(), *PUBLIC.split()])
def test_one_rule_says_which_hosts_are_public(host: str, tmp_path: Path) -> None:
    """A redirect, the table, the zone build and the rules of DNS accept and refuse the same hosts."""
    text = f"https://{host}/ark:/${{content}}"
    refused = url.refusal(f"https://{host}/") is not None
    assert (unusable(text) is not None) is refused
    entry = Entry("12345", "", (Nma(text),))
    assert (publishable(Table([entry]))[1].records == ("12345",)) is refused
    file = tmp_path / "redirects"
    file.write_text(f"ark,url\nark:12345/x,https://{host}/\n", "utf-8")
    assert read(file).left_out == refused
    assert read(file, allow_private=True).left_out == 0
    rules = [Naptr(0, 0, b"u", b"ark", f"!^.*$!https://{host}/!".encode(), ())]
    if host[0] != "[":
        rules.append(Naptr(0, 0, b"h", b"ark", b"", names.parse(host)))
    for rule in rules:
        walk = Walk(Ark.parse("ark:12345/x"))
        walk.tell(walk.next()[0], Answer(Outcome.ANSWER, [rule], 60))
        assert (not walk.result()) is refused, rule


@pytest.mark.parametrize("host", INVALID.split())
def test_invalid_hosts(host: str) -> None:
    assert url.refusal(f"https://{host}/", allow_private=True) is not None


@given(st.text() | st.text(alphabet="htps:/.0123456789abx@[]#?%", max_size=40).map(lambda text: f"http://{text}"))
def test_any_text_is_parsed_or_refused_with_a_reason(text: str) -> None:
    if url.refusal(text) is None:
        assert text.isascii()
        assert not url.parse(text).host.is_local


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTPS://H.Example/ark:/1/x", "https://h.example/ark:1/x"),
        ("https://h.example:443/x", "https://h.example/x"),
        ("http://h.example:80/x", "http://h.example/x"),
        ("https://h.example./x", "https://h.example/x"),
        ("https://[2001:DB8::1]:443/x", "https://[2001:db8::1]/x"),
    ],
)
def test_urls_of_one_thing_compare_as_equal(one: str, other: str) -> None:
    """RFC 3986 sections 6.2.2.1 and 6.2.3, and the draft's "ark:" and "ark:/"."""
    assert url.normalized(one) == url.normalized(other) == other
    assert url.server_of(one) == url.server_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://h.example:80/x", "https://h.example/x"),
        ("https://h.example/x", "http://h.example/x"),
        ("https://h.example/X", "https://h.example/x"),
        ("https://h.example:8443/x", "https://h.example/x"),
    ],
)
def test_urls_of_two_things_compare_as_different(one: str, other: str) -> None:
    assert url.normalized(one) != url.normalized(other)


def test_other_text_has_no_server_and_stays() -> None:
    assert url.normalized("h.example/ark:/1") == "h.example/ark:/1"
    assert url.server_of("ftp://h.example/") is None


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("https://h.example", "https://h.example/"),
        ("https://h.example:8443?a", "https://h.example:8443/?a"),
        ("https://h.example#a", "https://h.example/#a"),
        ("https://h.example/a", "https://h.example/a"),
        ("h.example", "h.example"),
    ],
)
def test_a_url_without_a_path_gets_one(text: str, whole: str) -> None:
    assert url.with_path(text) == url.with_path(whole) == whole


@pytest.mark.parametrize(
    "made",
    [
        *(
            "https://h.example.evil.example/",
            "https://h.example@evil.example/",
            "https://h.example:8443/",
            "http://h.example/",
        ),
        *(
            "https://a@h.example/",
            "https://h.example\\@evil.example/",
            "https://evil.example//h.example/",
            "https://h.example\t/",
        ),
    ],
)
def test_a_url_at_another_place_is_not_at_the_base(made: str) -> None:
    assert not url.is_at(made, "https://h.example/")
    assert url.is_at("https://H.example:443/a@b:c//d%2fe", "https://h.example/")
