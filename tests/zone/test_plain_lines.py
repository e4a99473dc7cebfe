"""Plain lines are read as the tokenizer reads them: the same zone, findings and errors, with file and line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.protocol.names import Folded
from maptr.zone.masterfile import MAX_REFUSED
from maptr.zone.rdata import PLAIN
from tests.support.answers import load_vectors
from tests.support.odd_zones import HEAD, HOSTS, OWNERS, RDATA, URLS, assert_read_alike, loadable_zone, odd_zone

EXAMPLE = Folded((b"example",))
LINES = load_vectors("zone_lines")
ZONES = 50  # random zones in one test


@pytest.mark.parametrize("start", range(0, 200, ZONES))
def test_random_lines(start: int) -> None:
    for seed in range(start, start + ZONES):
        assert_read_alike(odd_zone(random.Random(seed)))


@pytest.mark.parametrize("start", range(0, 100, ZONES))
def test_random_lines_that_can_be_loaded(start: int) -> None:
    for seed in range(start, start + ZONES):
        assert_read_alike(loadable_zone(random.Random(seed)))


@pytest.mark.parametrize("rdata", RDATA)
def test_each_form_of_rdata(rdata: str) -> None:
    for owner in ("a", "12345", "@"):
        assert_read_alike(f"{HEAD}{owner} {rdata}\n".encode("latin-1", "replace"))
        assert_read_alike(f"{HEAD}{owner}\t60\tIN\t{rdata.replace(' ', chr(9))} ; x\n".encode())
        assert_read_alike(f"{HEAD}{owner} IN {rdata}".upper().encode())


@pytest.mark.parametrize("owner", OWNERS)
def test_each_form_of_an_owner(owner: str) -> None:
    for origin in ("", "$ORIGIN b.example.\n", "$ORIGIN .\n", "$ORIGIN test.\n", "$ORIGIN EXAMPLE.\n", f"$ORIGIN {'o' * 63}.{'o' * 63}.{'p' * 60}.example.\n"):  # fmt: skip # noqa: E501
        lines = f'{owner} IN A 192.0.2.1\n IN TXT "x"\n{owner.upper()} 60 IN A 192.0.2.2\n IN TXT "x"\n'
        assert_read_alike(f"{HEAD}{origin}{lines}".encode())


def test_each_host_and_url() -> None:
    lines = [f'12345 IN NAPTR 10 10 "h" "ark" "" {host}' for host in HOSTS]
    lines += [f'12345 IN NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!{url}!" .' for url in URLS]
    for line in lines:
        assert_read_alike(f"{HEAD}{line}\n".encode())
    assert_read_alike((HEAD + "\n".join(lines)).encode())


@pytest.mark.parametrize("line", [*LINES["plain"], *LINES["other"], *LINES["signed"]])
def test_each_line_of_the_vectors(line: str) -> None:
    assert_read_alike(f"{HEAD}{line}\n".encode())


@pytest.mark.parametrize("rdtype", sorted(rdtype.decode() for rdtype in PLAIN))
def test_a_comment_is_no_rdata(rdtype: str) -> None:
    """``NS ;`` is not a host without labels, which would be the origin."""
    for rdata in (";", "; text", "1 ;", ";.", '";" ;', "1 2 ;", "a ; b"):
        assert_read_alike(f"{HEAD}x {rdtype} {rdata}\n".encode())


@pytest.mark.parametrize(
    "text",
    [
        "$ORIGIN .\nexample 60 IN SOA ns. h. 1 2 3 4 5\n IN NS ns.\n$ORIGIN example.\n12345 A 192.0.2.1\n\tTXT \"x\"\n",
        "@ 60 IN SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n",
        "@ IN SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n",
        "@ IN SOA ns h 1 2 3 4 4294967295\n@ NS ns\nns A 192.0.2.1\n",
        "@ IN NS ns\n@ 60 IN SOA ns h 1 2 3 4 5\n",
        "@ 60 IN NS ns\n@ IN SOA ns h 1 2 3 4 5\nns IN A 192.0.2.1\nns 70 IN A 192.0.2.2\nb IN A 192.0.2.1\n",
        f"{HEAD}x 5 A 192.0.2.1\ny A 192.0.2.1\n$TTL 9\ny A 192.0.2.2\nx 7 A 192.0.2.1\n",
        f"{HEAD}x A 192.0.2.1\ny A 192.0.2.1\nX A 192.0.2.2\ny TXT \"a\"\nx CNAME y\nz CNAME y\nz A 192.0.2.1\n",
        f"{HEAD}x\\003ark.example. A 192.0.2.1\n A 192.0.2.2\nx\\007example. TXT \"a\"\n TXT \"b\"\n",
        f"{HEAD}other.test. TXT a\n TXT \"b\"\nc TXT \"c\"\n",
        f"{HEAD};\n\n \n\t;x\nx A 192.0.2.1\n\n;\n TXT \"t\"\n\nx A 192.0.2.1\nx CNAME y",
        f"{HEAD}x A 192.0.2.1\n CNAME y\n\n; c\n\n CNAME z\n",
        f"{HEAD}x 9 A 192.0.2.1\n 5 A 192.0.2.2\n 7 TXT \"a\"\n 8 TXT \"A\"\n 6 TXT \"a\"\n 4 A 192.0.2.3\n",
        HEAD + "x CNAME y\n" * 3 + "x CNAME z\n" * (MAX_REFUSED + 3),
        HEAD + "x CNAME y\n" + "".join(f"\n{'x' if n % 2 else ''} CNAME z{n}\n" for n in range(MAX_REFUSED + 3)),
        HEAD + "x CNAME y\n" + "x CNAME z\n" * MAX_REFUSED + "; end\n\ny A 192.0.2.1\n",
        HEAD + "x CNAME y\n" + "x CNAME z\n" * MAX_REFUSED + "; end\n\n",
    ],
    ids=range(17),
)  # fmt: skip
def test_the_state_between_lines(text: str) -> None:
    assert_read_alike(text.encode())
    assert_read_alike(text.replace("\n", "\r\n").encode())


def test_included_files(tmp_path: Path) -> None:
    (tmp_path / "part").write_text('$TTL 7\n IN TXT "of the owner before"\nb A 192.0.2.1\n$ORIGIN c\nd A 192.0.2.1\n')
    for text in ("$INCLUDE part\ne A 192.0.2.2\n", 'x A 192.0.2.1\n$INCLUDE part sub\n TXT "x"\n'):
        assert_read_alike((HEAD + text).encode(), tmp_path / "zone")


words = st.sampled_from(["a", "12345", "@", " ", "\t", "\n", "\r\n", "IN", "60", "A", "192.0.2.1", "TXT", '"x"', ";", "(", ")", "\\"])  # fmt: skip # noqa: E501


@settings(max_examples=100, deadline=None)
@given(st.lists(words, max_size=30))
def test_any_order_of_words(drawn: list[str]) -> None:
    assert_read_alike((HEAD + " ".join(drawn)).encode())
    assert_read_alike((HEAD + "".join(drawn)).encode())
