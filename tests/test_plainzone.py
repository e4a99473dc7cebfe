"""The reader of plain zone files: what dnspython reads, or None."""

from __future__ import annotations

import random
from pathlib import Path

import dns.zone
import pytest

from maptr.errors import ZoneError
from maptr.packed import PackedNodes
from maptr.plainzone import read_plain
from maptr.serve.zones import ZoneSource, read_zone
from maptr.snapshot import ZoneView, view_zone
from tests.test_answer_oracle import ORIGIN, random_zone, zone_text

EXAMPLE = (b"example",)
HEAD = "$TTL 60\n@ IN SOA ns host 1 7200 3600 1209600 300\n@ IN NS ns\nns IN A 192.0.2.1\n"


def same(plain: ZoneView | None, text: str, origin: str = ORIGIN) -> None:
    """The view is the one that dnspython's reader gives."""
    assert plain is not None
    other = view_zone(dns.zone.from_text(text, origin, relativize=False))
    assert isinstance(plain.nodes, PackedNodes)
    assert {name: dict(node) for name, node in plain.nodes.items()} == {
        n: dict(node) for n, node in other.nodes.items()
    }
    assert (plain.origin, plain.serial, plain.soa, plain.negative_soa) == (
        other.origin,
        other.serial,
        other.soa,
        other.negative_soa,
    )
    assert plain.cuts == other.cuts


@pytest.mark.parametrize("seed", range(60))
def test_random_zones(seed: int) -> None:
    records = [record for record in random_zone(random.Random(seed)) if record.rdtype != "DS"]
    text = zone_text(records)
    plain = read_plain(text.encode(), EXAMPLE)
    if plain is not None:
        same(plain, text)
    else:
        assert len({(r.owner, r.rdtype) for r in records if r.rdtype in ("DNAME", "CNAME")}) < len(records)


@pytest.mark.parametrize(
    "line",
    [
        'x IN NAPTR 10 10 "u" "ark" "!^ark:/?1/(.*)$!https://H.example/p/ark:/1/\\\\1!" .',
        'x IN NAPTR 100 10 "h" "ark" "" H.example\\0588080.',
        'x 7 NAPTR 100 10 "h" "ark" "" relative',
        'x 7 NAPTR 100 10 "h" "a\\"k" "\\065" @',
        'x IN TXT "who=US; not this"',
        'x IN TXT "one" "two"',
        "a.b.c.d IN A 192.0.2.1",
        "*.w IN AAAA 2001:db8::1",
        "x IN MX 10 mail",
        "_s._tcp IN SRV 1 2 3 Target.test.",
        'x IN A 192.0.2.1\nx IN TXT "t"\nx IN A 192.0.2.2',
        "$ORIGIN sub.example.\n@ IN NS ns\nns IN A 192.0.2.3\n$ORIGIN example.\ny 0 IN A 192.0.2.9",
        "sub IN NS ns.sub\nns.sub IN A 192.0.2.1",
        "sub IN A 192.0.2.1\nsub IN NS ns",
        "full.example. IN A 192.0.2.1",
    ],
)
def test_plain_lines(line: str) -> None:
    plain = read_plain((HEAD + line + "\n").encode(), EXAMPLE)
    if ";" in line:
        assert plain is None  # a comment or not is for a tokenizer to say
    else:
        same(plain, HEAD + line + "\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x IN A 192.0.2.1\n",
        HEAD + "@ IN SOA ns host 2 7200 3600 1209600 300\n",
        HEAD + "ns IN CNAME x\n",
        HEAD + "other.test. IN A 192.0.2.1\n",
        HEAD + "$ORIGIN test.\nx IN A 192.0.2.1\n",
        HEAD + "notexample. IN A 192.0.2.1\n",
        HEAD + "x IN A 192.0.2\n",
        HEAD + "x IN A 192.0.2.1 trailing\n",
        HEAD + "x 1h IN A 192.0.2.1\n",
        HEAD + " IN A 192.0.2.1\n",
        HEAD + "x IN A 192.0.2.1\nx IN A 192.0.2.1\n",
        HEAD + "x 1 IN A 192.0.2.1\nx 2 IN A 192.0.2.2\n",
        HEAD + "X IN A 192.0.2.1\n",
        HEAD + "x IN DS 1 13 2 00\n",
        HEAD + f"{'x' * 64} IN A 192.0.2.1\n",
        HEAD + "a..b IN A 192.0.2.1\n",
        HEAD + 'x IN TXT ( "a" )\n',
        HEAD + "$INCLUDE x\n",
        HEAD + "$ORIGIN Example.\nx IN A 192.0.2.1\n",
        HEAD + "x\tIN A 192.0.2.1\n",
        HEAD + 'x IN NAPTR 65536 1 "" "" "" .\n',
        HEAD + f'x IN NAPTR 1 1 "" "" "{"x" * 256}" .\n',
        HEAD + 'x IN NAPTR 1 1 "" "" "" .;\n',
        HEAD + 'x IN NAPTR 1 1 "" "" "" . ; comment\n',
        HEAD.replace("$TTL 60\n", ""),
    ],
)
def test_what_is_not_plain_is_left_to_dnspython(text: str) -> None:
    assert read_plain(text.encode(), EXAMPLE) is None


def test_the_server_reads_plain_files_so_and_others_by_dnspython(tmp_path: Path) -> None:
    path = tmp_path / "z"
    for text, packed in ((HEAD, True), (HEAD + "x IN A 192.0.2.1 ; a comment\n", False)):
        path.write_text(text)
        view = read_zone(ZoneSource(EXAMPLE, path))
        assert isinstance(view.nodes, PackedNodes) is packed
    path.write_text(HEAD + "x IN A nonsense\n")
    with pytest.raises(ZoneError, match="z:5: "):
        read_zone(ZoneSource(EXAMPLE, path))
