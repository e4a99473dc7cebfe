"""A table's candidates are those of its zone's ``u`` rules, in the same order."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from maptr import registry
from maptr.ark import Ark
from maptr.cache.store import replay
from maptr.cache.table import TableReader
from maptr.choose import sticky
from maptr.discovery import Discovery, Limit, Outcome
from maptr.errors import ArkSyntaxError
from maptr.naptr.record import MAX_STRING, Naptr, RuleCache
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.registry.followed_file import TableState
from maptr.registry.table import Entry, Nma, Table
from maptr.registry.target import VARIABLES
from maptr.states import Dns, Natab, States
from maptr.walk import DEFAULTS, Answer, Settings
from maptr.zone import rules
from maptr.zone.lint import publishable
from maptr.zone.rules import records_by_name, regexp
from tests.support.entries import LONG, MAIN, REDIRECTED, entry, hostile_tables

HYPHENS = DEFAULTS._replace(hyphens="keep")


def zone_reader(table: Table) -> Callable[[Ark, Settings], Discovery]:
    """Return a function that discovers ARKs in the zone of a table, without its ``h`` records."""
    usable, _ = publishable(table)
    reader = RuleCache()

    @cache
    def records_of(naan: str) -> dict[Labels, list[Naptr]]:
        found: dict[Labels, list[Naptr]] = {}
        for owner, naptr in records_by_name(usable.get(naan) or Entry(naan), usable.shoulders(naan), ARK_ARPA):
            if naptr.flags != b"h":
                found.setdefault(names.fold(owner), []).append(naptr)
        return found

    def discover(ark: Ark, settings: Settings = DEFAULTS) -> Discovery:
        records = records_of(ark.naan)
        walk = replay(ark, settings, lambda name: Answer(Outcome.ANSWER, records.get(name, []), 60), reader=reader)
        assert walk is not None
        return walk.result()

    return discover


def arks_of(record: Entry) -> Iterator[Ark]:
    """Yield ARKs that the record may serve, the one with hyphens last."""
    for name in ("", "x6/c3.pdf?info", "-0-b"):
        with suppress(ArkSyntaxError):
            yield Ark.parse(f"ark:{record.naan}/{record.shoulder}{name}", bare=True)


def differences(table: Table, keys: Iterator[str] | list[str]) -> Iterator[str]:
    """Yield the ARKs whose candidates differ, except those of records that are not published.

    A kept hyphen inside a shoulder is in the URLs of a table, and not in those of the rule of the shoulder.
    """
    read, from_zone, now = TableReader().read, zone_reader(table), 0.0
    published, _ = publishable(table)
    too_long = any(len(regexp(one, nma)) > MAX_STRING for one in published.values() for nma in one.nmas)
    for key in keys:
        for ark in arks_of(table[key]):
            name = ark.without_hyphens.partition("/")[2]
            serving = [
                one
                for one in (*table.shoulders(ark.naan), table.get(ark.naan))
                if one and name.startswith(one.shoulder)
            ]
            if any(published.get(one.key) != one for one in serving):
                continue
            kept = ark.hyphenated.partition("/")[2]
            after_shoulders = all(kept.startswith(one.shoulder) for one in serving)
            for settings in (DEFAULTS, HYPHENS) if after_shoulders else (DEFAULTS,):
                natab, answer = read(ark, settings, TableState(table), too_old=False)
                made = answer and answer.discovery(now, "", States(Dns.UNASKED, natab), stale=False)
                zone = from_zone(ark, settings)
                urls = made.urls() if made is not None else []
                if urls != zone.urls() or (natab is Natab.HAS) != bool(urls):
                    yield f"{ark} {settings.hyphens}: {natab} {urls} from the table, {zone.urls()} from the zone"
                elif made and any(one.path != ((one.order, one.preference),) for one in made):
                    yield f"{ark}: the path to a candidate is not that of its record"
                elif made and sticky(made).url(ark) != sticky(zone).url(ark) and not too_long:
                    yield f"{ark}: sticky chooses another candidate of the table than of the zone"


@pytest.mark.parametrize("name", ["naan_records.json", "naan_records_2026-07-14.json.gz"])
def test_the_candidates_of_a_registry_are_those_of_its_zone(name: str, real_data: Path) -> None:
    file = real_data / name
    if not file.exists():
        pytest.skip(f"no {name} in {real_data}")
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    table = registry.read(data, on_bad=lambda error: None)
    assert list(differences(table, iter(table))) == []


@given(hostile_tables(shoulders="01bcx.%AB"))
def test_the_candidates_of_any_table_are_those_of_its_zone(table: Table) -> None:
    assert list(differences(table, iter(table))) == []


@given(hostile_tables(shoulders="01bcx.%AB"), st.integers(2, 12))
def test_the_candidates_are_the_same_where_shoulders_have_names_of_their_own(table: Table, room: int) -> None:
    """As if a name could have but a few records: of any shoulders, not of more than a hundred."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "MAX_RECORDS", room)
        usable, _ = publishable(table)
        naans = {one.naan for one in usable.values()}
        layouts = [rules.lay_out(usable.get(naan) or Entry(naan), usable.shoulders(naan), ARK_ARPA) for naan in naans]
        assume(not any(made.left_out for made in layouts))
        assert list(differences(table, iter(table))) == []


@given(
    st.dictionaries(
        st.sampled_from(["", "x", "x6", "x60", "x7", "b"]),
        st.lists(
            st.sampled_from([MAIN, LONG, REDIRECTED, *(f"https://{n}.example/${{{n}}}" for n in VARIABLES)]),
            min_size=1,
            max_size=3,
            unique=True,
        ),
        min_size=1,
    )
)
def test_nested_shoulders(targets: dict[str, list[str]]) -> None:
    table = Table(Entry("12345", shoulder, tuple(map(Nma, found))) for shoulder, found in targets.items())
    assert list(differences(table, iter(table))) == []


def test_a_limit_makes_the_discovery_incomplete() -> None:
    """No later target replaces one whose URL is too long: it is for this ARK too."""
    long = "https://long.example/" + "x" * 4000 + "/${content}"
    short, many = "https://short.example/${content}", [f"https://h{n}.example/${{content}}" for n in range(65)]
    cases: list[tuple[list[str], str, int, Limit]] = [
        ([short, long, MAIN], "a" * 100, 1, Limit.URL_LENGTH),
        (many, "a", DEFAULTS.max_candidates, Limit.CANDIDATES),
    ]
    for targets, name, count, limit in cases:
        state = TableState(Table([entry("12345", *targets)]))
        natab, answer = TableReader().read(Ark.parse(f"ark:12345/{name}"), DEFAULTS, state, too_old=False)
        assert answer is not None
        found = answer.discovery(0.0, "", States(Dns.UNASKED, natab), stale=False)
        assert (len(found), found.complete, found.ttl, found.trace[0].limit) == (count, False, None, limit)
    state = TableState(Table([entry("12345", long)]))
    natab, answer = TableReader().read(Ark.parse("ark:12345/" + "a" * 100), DEFAULTS, state, too_old=False)
    assert natab is Natab.UNCLEAR
    assert answer is not None
    assert (answer.candidates, answer.reason[:13]) == ((), "record 12345:")
    assert not answer.discovery(0.0, "", States(Dns.UNASKED, natab), stale=False).complete
