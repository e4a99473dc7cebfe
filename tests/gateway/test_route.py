"""Requests and responses from the vectors, and properties of every request."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maptr import registry, url
from maptr.ark import Ark
from maptr.errors import ArkSyntaxError
from maptr.gateway.message import Response
from maptr.gateway.objects import OwnObject
from maptr.registry.table import Table
from tests.support.answers import load_vectors
from tests.support.caching import ONE_HOST, SILENT, dns_answer, host
from tests.support.gateway import Gateway, objects

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = load_vectors("gateway")
VECTORS: list[dict[str, Any]] = DOCUMENT["request"]
PARTS: list[str] = DOCUMENT["parts"]
ROOT = "https://root.example"


@cache
def sample_table() -> Table:
    return registry.read((REPOSITORY / "zones" / "sample.json").read_bytes())


@pytest.fixture(scope="module")
def gateway() -> Gateway:
    return Gateway(sample_table())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_vectors(vector: dict[str, Any], gateway: Gateway) -> None:
    target = vector["target"] + vector["target"][-1] * vector.get("repeat", 0)
    headers = {name: vector[name] for name in ("accept", "content_type") if name in vector}
    response = gateway.ask(target, vector.get("method", "GET"), body=vector.get("body", ""), **headers)
    assert response.status == vector["status"], response
    expected = {"location": vector.get("location", ""), **vector.get("headers", {})}
    assert {name: response.header(name) for name in expected} == expected
    for text in vector.get("says", ()):
        assert text in response.body.decode()


@cache
def ignored() -> list[str]:
    """Every character that ``Ark.parse`` ignores in a pasted name; those of the other planes have no such property."""
    return [character for character in map(chr, [*range(0xD800), *range(0xE000, 0x10000)]) if _is_ignored(character)]


def _is_ignored(character: str) -> bool:
    try:
        return Ark.parse(f"ark:12345/x{character}y", wrapped=True).resolution == "ark:12345/xy"
    except ArkSyntaxError:
        return False


def test_characters_that_an_ark_ignores_are_ignored_in_the_form_that_browsers_send(gateway: Gateway) -> None:
    characters = ignored()
    assert {"-", " ", "\n", "\u00a0", "\u2010", "\u200b", "\ufeff", "\u3000"} <= set(characters)
    expected = "https://ark.example.org/ark:/12345/b6np"
    for character in characters:
        pairs = quote(character, safe="")
        for sent in (character, "%2D" if character == "-" else pairs, pairs.lower()):
            assert gateway.location(f"/ark:12345/b6{sent}np") == expected, hex(ord(character))
        assert gateway.location(f"/{pairs}ark:12345/b6np".replace("/-", "/%2d")) == expected, hex(ord(character))


def test_other_percent_encoded_bytes_are_unchanged(gateway: Gateway) -> None:
    inert = {"".join(f"%{octet:02X}" for octet in character.encode()) for character in ignored()}
    for octet in range(256):
        pair = f"%{octet:02X}"
        if chr(octet) in "\t\v\f\x1c\x1d\x1e\x1f":  # the white space between two columns
            assert gateway.ask(f"/ark:12345/b6{pair}np").status == 400
        elif pair not in inert:
            assert gateway.location(f"/ark:12345/b6{pair}np").endswith(f"/b6{pair}np")


@pytest.mark.parametrize("length", [255, 256, 1000, 3000])
def test_long_names(length: int, gateway: Gateway) -> None:
    """Draft 2.4: at least 255 octets."""
    name = "b" * length
    assert gateway.location(f"/ark:12345/{name}") == f"https://ark.example.org/ark:/12345/{name}"
    posted = gateway.ask("/", "POST", body=f"ark:12345/{name}")
    assert posted.header("location") == f"https://ark.example.org/ark:/12345/{name}"


# ---- any request

SAFE = re.compile(r"[\x20-\x7e]*\Z")
PIECES = st.lists(
    st.one_of(st.sampled_from([*PARTS, "\udc80"]), st.text(max_size=6)),
    max_size=12,
).map("".join)
METHODS = st.sampled_from(["GET", "GET", "HEAD", "POST", "OPTIONS", "PUT", "\N{SNOWMAN}"])
ACCEPTS = st.one_of(
    st.sampled_from(["", "*/*", "text/html", "application/json", "application/linkset+json", "text/plain;q=x,,;"]),
    st.text(max_size=30),
)
RULES = objects(OwnObject("ark:12345/x6", "https://single.example/?a#b", 303))
GATEWAYS = [
    Gateway(sample_table()),
    Gateway(sample_table(), root=ROOT, objects=RULES, metadata=f"{ROOT}/m/${{pid}}${{inflection}}"),
    Gateway(
        sample_table(), public_url="https://ark.example.org", inflections="describe", root="https://ark.nlm.example.org"
    ),
    Gateway(None, ONE_HOST, policy="dns-first", root=ROOT),
    Gateway(None, {"12345.ark.arpa.": SILENT, "12025.ark.arpa.": dns_answer(host("10.0.0.1"))}, policy="dns-first"),
]


def assert_harmless(response: Response, gateway: Gateway) -> None:
    """What holds for every response."""
    assert response.status < 500 or response.status == 503
    for name, value in response.headers:
        assert SAFE.match(name), (name, value)
        assert SAFE.match(value), (name, value)
    location = response.header("location")
    assert (response.status in (302, 303, 307)) == bool(location)
    assert response.status not in (301, 308)
    if location[:1] == "/" and location[:2] != "//":  # a page of the gateway
        assert location.startswith(("/naan/", "/drift", "/servers", "/stats", "/status")), location
    elif location:
        url.parse_allowed(location)
        site = gateway.site
        assert not (site.settings.public_url and location.startswith(site.settings.public_url))
        evil = url.parse(location).host.text.endswith("evil.example")
        assert not evil, location


@example(GATEWAYS[0], "GET", "naan/12345/?q=ark:12345/x", "", "", "")
@given(st.sampled_from(GATEWAYS), METHODS, PIECES, ACCEPTS, PIECES, PIECES)
def test_any_request(gateway: Gateway, method: str, target: str, accept: str, body: str, host_header: str) -> None:
    body = body.encode("utf-8", "replace").decode()
    for received in (target, f"/{target}", f"/ark:12345/{target}"):
        assert_harmless(gateway.ask(received, method, body=body, accept=accept, host=host_header), gateway)
        if method == "GET":
            again = [gateway.ask(received, each, accept=accept, host=host_header) for each in ("HEAD", "GET")]
            assert again[0] == again[1]
