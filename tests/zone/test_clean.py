"""Clean NAPTR records: the checks find nothing in anything that the expressions match."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.ark import BETANUMERIC
from maptr.errors import ZoneError
from maptr.naptr.record import Naptr, quote
from maptr.protocol.names import ARK_ARPA, Folded
from maptr.protocol.numbers import NAPTR
from maptr.zone.check import check_rules
from maptr.zone.clean import FRAGMENTS, HOST_RULE, MAX_CLEAN, MAX_RRSET, URL_RULE, Fragment, is_naan
from maptr.zone.masterfile import ZoneFile, read_zone_file
from maptr.zone.rrset import rdatas_of, split_rrsets
from tests.support.odd_zones import HEAD, HOSTS, PATTERNS, URLS, loadable_zone

EXAMPLE = Folded((b"example",))
ROUNDS = 100  # seeds of random zones


def read(lines: str, origin: Folded = EXAMPLE) -> ZoneFile:
    return read_zone_file("zone", f"{HEAD}{lines}\n".encode(), origin)


def assert_undoubted_names_are_clean(zone: ZoneFile) -> None:
    """Assert that the checks of the doubtful names find what the checks of all names find."""
    assert check_rules(zone.view, names=zone.doubtful) == check_rules(zone.view)


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda fragment: fragment.example)
def test_each_fragment_matches_its_example_only(fragment: Fragment) -> None:
    assert re.fullmatch(fragment.pattern, fragment.example)
    assert not re.fullmatch(fragment.pattern, fragment.counter_example)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([URL_RULE, HOST_RULE]).flatmap(lambda rule: st.from_regex(rule.pattern.encode(), fullmatch=True))
)
def test_what_an_expression_matches_is_clean(rdata: bytes) -> None:
    try:
        zone = read(f"12345 IN NAPTR {rdata.decode()}", ARK_ARPA)
    except ZoneError as error:
        assert re.search("string of|name too long|label too long", error.reason)
        return
    assert not check_rules(zone.view)


def clean_lines() -> Iterator[str]:
    """Yield lines of the two usual forms with every URL, pattern and host, clean or not."""
    for pattern in PATTERNS:
        for made in URLS:
            yield f'NAPTR 10 10 "u" "ark" "!{pattern}!{made}!" .'
    for host in HOSTS:
        yield f'NAPTR 100 10 "h" "ark" "" {host}'


@pytest.mark.parametrize("owner", ["12345", "B5488", "abc", "12-45", "x6.12345", "*", "_1"])
def test_names_without_doubt_are_clean(owner: str) -> None:
    known = set()
    for line in clean_lines():
        try:
            zone = read(f"{owner} IN {line}")
        except ZoneError:
            continue
        assert_undoubted_names_are_clean(zone)
        known.add(bool(zone.doubtful))
    assert known == ({False, True} if is_naan(owner.encode()) else {True})


@pytest.mark.parametrize("start", range(0, ROUNDS, 50))
def test_names_without_doubt_are_clean_in_random_zones(start: int) -> None:
    for seed in range(start, start + 50):
        data = loadable_zone(random.Random(seed))
        assert_undoubted_names_are_clean(read_zone_file("zone", data, EXAMPLE))


def test_the_usual_records_of_a_naan_are_not_doubtful() -> None:
    """Whatever the case, the blanks and a comment. Otherwise a large zone would take minutes to load."""
    for line in (URL_RULE.example, HOST_RULE.example):
        text = f"12345 IN NAPTR {line}"
        for form in (text, text.upper(), text.replace(" ", "\t"), f"{text} ; comment", text.replace(" IN ", " 60 ")):
            assert not read(form, ARK_ARPA).doubtful, form


@pytest.mark.parametrize(
    "lines",
    [
        "\n".join(f'12345 IN NAPTR {n} 1 "h" "ark" "" h.example.' for n in range(MAX_RRSET + 1)),
        "\n".join(f'12345 IN NAPTR {n} 1 "h" "ark" "" {"h" * 60}.example.' for n in range(MAX_CLEAN // 90)),
        '12345 IN NAPTR 1 1 "h" "ark" "" h.example.\n12345 IN NS ns',
        '12345 IN NS ns\nx IN A 192.0.2.1\n12345 IN NAPTR 1 1 "h" "ark" "" h.example.',
        '12345 IN NAPTR 1 1 "h" "ark" "" abc.example.\nabc IN NAPTR 1 1 "h" "ark" "" h.example.',
        '12345 IN NAPTR 1 1 "" "ark" "" .',
    ],
    ids=["many records", "large records", "delegation", "delegation apart", "target in the zone", "no rule"],
)
def test_what_only_the_zone_shows_is_checked(lines: str) -> None:
    zone = read(lines)
    assert zone.doubtful
    assert_undoubted_names_are_clean(zone)


@given(st.text(BETANUMERIC + BETANUMERIC.upper() + "l-é", max_size=8))
def test_a_naan_has_digits_and_consonants(text: str) -> None:
    assert is_naan(text.encode()) is bool(text and set(text.lower()) <= set(BETANUMERIC))


def test_clean_records_are_written_as_they_were_read() -> None:
    zone = read(f"12345 IN NAPTR {URL_RULE.example}")
    (rdata,) = rdatas_of(dict(split_rrsets(zone.view.nodes.table[b"\x0512345\x07example\0"]))[NAPTR])
    regexp = Naptr.from_wire(rdata).regexp
    assert quote(regexp) in URL_RULE.example
