"""AXFR and IXFR: dnspython's secondary (``dns.xfr``) reads the messages of ``answer``."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import logging
import random
from collections.abc import Iterator
from typing import Any

import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.tsig
import dns.xfr
import dns.zone
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.answer.context import PLAIN, ReceivedQuery, Transport
from maptr.errors import ConfigError, ZoneError
from maptr.protocol.names import Folded, fold, parse
from maptr.server.counters import Counters
from maptr.server.responder import Responder, ServerState
from maptr.transfer import session, tsig
from maptr.transfer.acl import Secondaries, TsigKey
from maptr.transfer.catalog import catalog_zone, member_label
from maptr.transfer.journal import Journal
from maptr.transfer.session import MESSAGE_SIZE, Access
from maptr.zone.diff import ZoneRecord, records
from maptr.zone.snapshot import Snapshot, ZoneView
from tests.support.random_zones import ORIGIN, random_zone, zone_text
from tests.support.transfers import HERE, allowing, answered, keyring
from tests.support.zones import view_zone

NOW = 1_800_000_000
EXAMPLE = Folded((b"example",))
KEY = TsigKey((b"xfr",), "hmac-sha256", b"a secret of thirty-two octets...")
OPEN = allowing(HERE)
TRANSFER = dns.message.make_query(ORIGIN, "AXFR")
APEX = "@ 60 SOA ns h {} 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n"


def zone_of(text: str, origin: str = ORIGIN) -> dns.zone.Zone:
    return dns.zone.from_text(text, origin, relativize=False)


def view_of(serial: int, text: str = "") -> ZoneView:
    return view_zone(zone_of(APEX.format(serial) + text))


def large_view(names: int) -> ZoneView:
    return view_of(1, "\n".join(f"n{i} 60 TXT {'x' * 200}" for i in range(names)))


def journal_of(*views: ZoneView) -> Journal:
    journal = Journal.start(views[0])
    for old, new in itertools.pairwise(views):
        journal = journal.extend(old, new)
    return journal


def access_of(journal: Journal | None = None, secondaries: Secondaries = OPEN) -> Access:
    journals = {} if journal is None else {journal.origin: journal}
    return Access(keyring([KEY]), {EXAMPLE: secondaries}, journals)


def ask(
    query: dns.message.Message | bytes,
    view: ZoneView,
    access: Access,
    *,
    transport: Transport = Transport.TCP,
    client: str = HERE,
) -> list[bytes]:
    wire = query if isinstance(query, bytes) else query.to_wire()
    return list(answered(wire, Snapshot.of([view]), access, transport=transport, client=client, now=NOW))


def apply(messages: list[bytes], zone: dns.zone.Zone, serial: int | None) -> None:
    """Apply the messages with dnspython's secondary, which raises an exception for an invalid message."""
    rdtype = dns.rdatatype.AXFR if serial is None else dns.rdatatype.IXFR
    with dns.xfr.Inbound(zone, rdtype, serial) as inbound:
        done = False
        for wire in messages:
            assert not done, "a message after the last"
            done = inbound.process_message(dns.message.from_wire(wire, xfr=True, one_rr_per_rrset=True))
        assert done


def transferred(messages: list[bytes]) -> dns.zone.Zone:
    """Return the zone that a secondary has after AXFR."""
    zone = dns.zone.Zone(ORIGIN, relativize=False)
    apply(messages, zone, None)
    return zone


def ixfr_query(serial: int, **edns: int) -> dns.message.Message:
    query = dns.message.make_query(ORIGIN, "IXFR", **edns)  # type: ignore[arg-type]
    query.authority.append(dns.rrset.from_text(ORIGIN, 0, "IN", "SOA", f". . {serial} 0 0 0 0"))
    return query


def rcode_of(messages: list[bytes]) -> str:
    (wire,) = messages
    reply = dns.message.from_wire(wire)
    assert not reply.answer
    return dns.rcode.to_text(reply.rcode())


def answers(messages: list[bytes]) -> list[tuple[str, str, str]]:
    return [
        (str(rrset.name), dns.rdatatype.to_text(rrset.rdtype), rrset[0].to_text())
        for wire in messages
        for rrset in dns.message.from_wire(wire, one_rr_per_rrset=True).answer
    ]


def serials(messages: list[bytes]) -> list[int]:
    return [int(text.split()[2]) for _, rdtype, text in answers(messages) if rdtype == "SOA"]


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_a_secondary_has_the_same_zone_after_ixfr_or_axfr(seed: int, steps: int, start: int) -> None:
    """Random zones are transferred by IXFR from each serial in the journal, and by AXFR."""
    rng = random.Random(seed)
    zones = []
    for number in range(steps + 1):
        text = zone_text(random_zone(rng)).replace(" 1 7200", f" {(start + number) % 2**32} 7200")
        if rng.random() < 0.3:
            text = text.replace(" 3600 IN", f" {rng.choice((60, 3600))} IN")
        zones.append(zone_of(text))
    views = [view_zone(zone) for zone in zones]
    journal = journal_of(*views)
    for number, zone in enumerate(zones):
        serial = (start + number) % 2**32
        apply(ask(ixfr_query(serial), views[-1], access_of(journal)), zone, serial)
        assert zone == zones[-1]
    assert transferred(ask(TRANSFER, views[-1], access_of(journal))) == zones[-1]


def test_rfc1995_4_order_of_records_in_an_ixfr_response() -> None:
    more = "\n".join(f"m{i} 60 TXT x" for i in range(9)) + "\n"
    one = view_of(1, more + "a 60 A 192.0.2.2\nb 60 A 192.0.2.3\n")
    two = view_of(2, more + "b 60 A 192.0.2.3\nc 60 A 192.0.2.4\n")
    three = view_of(3, more + "b 60 A 192.0.2.9\nc 60 A 192.0.2.4\n")
    found = answers(ask(ixfr_query(1), three, access_of(journal_of(one, two, three))))
    assert [text.split()[2] if rdtype == "SOA" else f"{name} {text}" for name, rdtype, text in found] == [
        *("3", "1", "a.example. 192.0.2.2", "2", "c.example. 192.0.2.4"),
        *("2", "b.example. 192.0.2.3", "3", "b.example. 192.0.2.9", "3"),
    ]


@pytest.mark.parametrize("serial", [5, 6, 5 + 2**31 - 1])
def test_rfc1995_2_a_current_secondary_gets_only_the_soa_record(serial: int) -> None:
    view = view_of(5)
    assert serials(ask(ixfr_query(serial), view, access_of(Journal.start(view)))) == [5]


def test_a_small_change_of_a_large_zone_is_sent_without_reading_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(view: ZoneView) -> Iterator[ZoneRecord]:
        yield from itertools.islice(records(view), 10)
        raise AssertionError("more is read")

    monkeypatch.setattr(session, "records", first)
    old = large_view(1000)
    new = view_of(2, "".join(f"n{number} 60 TXT {'x' * 200}\n" for number in range(999)))
    assert serials(ask(ixfr_query(1), new, access_of(journal_of(old, new)))) == [2, 1, 2, 2]


@pytest.mark.parametrize("serial", [0, 4, 2**32 - 1, 5 + 2**31])
def test_rfc1995_4_an_unknown_serial_gets_the_whole_zone(serial: int) -> None:
    view = view_of(5)
    for journal in (None, Journal.start(view), journal_of(view_of(3), view)):
        messages = ask(ixfr_query(serial), view, access_of(journal))
        assert serials(messages) == [5, 5]
        assert len(answers(messages)) == 4


def test_axfr_instead_of_differences_that_are_too_large_or_end_at_another_serial() -> None:
    one, two, three = view_of(1), view_of(2, "\n".join(f"n{i} 60 A 192.0.2.2" for i in range(50))), view_of(3)
    for journal in (journal_of(one, two, three), journal_of(one, view_of(2))):
        assert serials(ask(ixfr_query(1), three, access_of(journal))) == [3, 3]


def test_rfc1995_2_ixfr_over_udp_gets_only_the_soa_record() -> None:
    access = access_of(journal_of(view_of(1), view_of(2)))
    for serial in (0, 1, 2):
        assert serials(ask(ixfr_query(serial), view_of(2), access, transport=Transport.UDP)) == [2]


@pytest.mark.parametrize(
    ("query", "transport", "rcode"),
    [
        (TRANSFER, Transport.UDP, "REFUSED"),  # RFC 5936 4.2
        (dns.message.make_query(ORIGIN, "AXFR", "CH"), Transport.TCP, "REFUSED"),
        *((dns.message.make_query(name, "AXFR"), Transport.TCP, "NOTAUTH") for name in ("other.", "sub.example.", ".")),
        (dns.message.make_query(ORIGIN, "AXFR", use_edns=1), Transport.TCP, "BADVERS"),
        (dns.message.from_wire(b"\0\0\x08" + TRANSFER.to_wire()[3:]), Transport.TCP, "NOTIMP"),
    ],
    ids=["over UDP", "class CH", "rfc5936 2.2.1 another zone", "a name in the zone", "the root", "EDNS 1", "opcode 1"],
)
def test_rcode_of_each_refused_transfer(query: dns.message.Message, transport: Transport, rcode: str) -> None:
    assert rcode_of(ask(query, view_of(1), access_of(), transport=transport)) == rcode


@pytest.mark.parametrize("rules", [None, [], ["::1"]])
@pytest.mark.parametrize("transport", Transport)
def test_a_client_without_access_is_refused(rules: list[str] | None, transport: Transport) -> None:
    access = Access() if rules is None else access_of(secondaries=allowing(*rules))
    for query in (TRANSFER, ixfr_query(1)):
        assert rcode_of(ask(query, view_of(1), access, transport=transport)) == "REFUSED"


@pytest.mark.parametrize("authority", [[], ["other. 0 IN SOA . . 1 0 0 0 0"], ["example. 0 IN A 192.0.2.1"]])
def test_rfc1995_3_ixfr_without_the_zones_soa_is_formerr(authority: list[str]) -> None:
    query = dns.message.make_query(ORIGIN, "IXFR")
    for text in authority:
        name, ttl, rdclass, rdtype, rdata = text.split(" ", 4)
        query.authority.append(dns.rrset.from_text(name, int(ttl), rdclass, rdtype, rdata))
    assert rcode_of(ask(query, view_of(1), access_of())) == "FORMERR"


def test_rfc5936_2_2_5_edns_of_a_transfer() -> None:
    """Each message has an OPT record if the query has one."""
    for edns in (0, -1):
        messages = ask(dns.message.make_query(ORIGIN, "AXFR", use_edns=edns), large_view(200), access_of())
        assert {dns.message.from_wire(wire).edns for wire in messages} == {edns}


@pytest.mark.parametrize("algorithm", ["hmac-sha256", "hmac-sha256-128"])
def test_transfer_by_key_and_rfc8945_5_3_1_signatures_of_its_messages(algorithm: str) -> None:
    """RFC 8945 5.3.1: the MAC of each message covers the previous MAC, as it was sent. dnspython checks them."""
    key = dns.tsig.Key("xfr.", KEY.secret, algorithm)
    zone = dns.zone.Zone(ORIGIN, relativize=False)
    query, _ = dns.xfr.make_query(zone, None, keyring=key)
    wire = query.to_wire()
    at = tsig.find(wire)
    assert at is not None
    keys = keyring([TsigKey((b"xfr",), algorithm, KEY.secret)])
    view, access = large_view(400), Access(keys, {EXAMPLE: allowing("key:XFR.")})
    assert rcode_of(ask(TRANSFER, view, access)) == "REFUSED"
    found = [
        *answered(
            wire, Snapshot.of([view]), access, transport=Transport.TLS, client="2001:db8::9", now=at.rdata.time_signed
        )
    ]
    assert len(found) > 4
    assert all(len(wire) <= MESSAGE_SIZE for wire in found)
    context = None
    with dns.xfr.Inbound(zone) as inbound:
        for reply in found:
            chained: dict[str, Any] = {"request_mac": query.mac, "tsig_ctx": context, "multi": True}
            message = dns.message.from_wire(reply, key, xfr=True, one_rr_per_rrset=True, **chained)
            context = message.tsig_ctx
            done = inbound.process_message(message)
    assert done
    assert len(zone.nodes) == 402


def test_a_record_larger_than_the_message_size_gets_its_own_message() -> None:
    strings = " ".join(["x" * 250] * 240)
    view = view_of(1, f"a 60 TXT x\nhuge 60 TXT {strings}\nz 60 TXT x\n")
    messages = ask(TRANSFER, view, access_of())
    assert max(map(len, messages)) > 60000
    assert view_zone(transferred(messages)).nodes.keys() == view.nodes.keys()


def test_a_record_too_large_for_a_message_ends_the_transfer_with_a_reason() -> None:
    """The OPT record of a query and a signature count, too."""
    strings = " ".join(["x" * 250] * 261)
    view = view_of(1, f"huge 60 TXT {strings}\n")
    with pytest.raises(ZoneError, match=r"huge\.example\. type 16: 65511 bytes of rdata are too many for a message"):
        ask(TRANSFER, view, access_of())
    signed, _ = tsig.sign_query(TRANSFER.to_wire(), KEY, NOW)

    def message_of(query: Any, size: int) -> int:
        """The longest message of a transfer with a record of this size; 0 if that is too long."""
        view = view_of(1, f"a 60 TXT {strings[:-251]} {'x' * size}\n")
        with contextlib.suppress(ZoneError):
            return max(map(len, ask(query, view, access_of())))
        return 0

    for query in (TRANSFER, dns.message.make_query(ORIGIN, "AXFR", use_edns=0), signed):
        first = bisect.bisect(range(140, 250), 0, key=lambda size: not message_of(query, size))
        assert 0 < first < 110
        assert message_of(query, 139 + first) == 65_535


def test_names_are_compressed_with_no_pointer_beyond_16383() -> None:
    view = view_of(1, "\n".join(f"host-with-a-long-name-{i:04d} 60 MX 10 mail.of.{i % 7}" for i in range(2000)))
    messages = ask(TRANSFER, view, access_of())
    assert sum(map(len, messages)) < 2003 * 48
    assert len(transferred(messages).nodes) == 2002


@pytest.mark.parametrize(
    ("query", "kind", "note"),
    [
        (TRANSFER, "AXFR", "serial 2"),
        (ixfr_query(1), "IXFR", "from serial 1 to 2"),
        (ixfr_query(0), "IXFR", "the whole zone, serial 2, because the changes since serial 0"),
    ],
    ids=["AXFR", "IXFR", "IXFR without the changes"],
)
def test_transfers_and_refusals_are_logged(
    query: dns.message.Message, kind: str, note: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = view_of(1), view_of(2)
    what, responder = f"{kind} of zone example. to 127.0.0.1", Responder(PLAIN)
    for secondaries, line in ((OPEN, f"{what}: {note}"), (Secondaries(), f"{what} refused")):
        access = access_of(journal_of(one, two), secondaries)
        assert logged(query, ServerState(Snapshot.of([two]), access, PLAIN), responder, caplog) == [line]
    for snapshot, why in ((Snapshot.of([]), "not served here"), (Snapshot.of([], broken=[EXAMPLE]), "not loaded")):
        state = ServerState(snapshot, access_of(None, OPEN), PLAIN)
        assert logged(query, state, responder, caplog) == [f"{what} refused: {why}"]


def logged(
    query: dns.message.Message, state: ServerState, responder: Responder, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """Return the log lines of a server that answers from a state."""
    caplog.set_level(logging.INFO)
    caplog.clear()
    responder.swap(state)
    assert responder.answer(ReceivedQuery(query.to_wire(), Transport.TCP, HERE), Counters())
    return caplog.messages


def catalog_access(who: str = HERE) -> Access:
    view = catalog_zone(parse("catalog.invalid."), [parse("ark.arpa."), parse("Example.")], 9)
    return Access(keyring([KEY]), {view.origin: allowing(who)}, {}, view)


def test_rfc9432_4_the_catalog_lists_the_zones() -> None:
    found = answers(ask(dns.message.make_query("catalog.invalid.", "AXFR"), view_of(1), catalog_access()))
    labels = {zone: member_label(fold(parse(zone))).decode() for zone in ("ark.arpa.", "example.")}
    assert found[0] == found[-1] == ("catalog.invalid.", "SOA", "invalid. invalid. 9 3600 600 2147483647 0")
    assert set(found[1:-1]) == {
        ("catalog.invalid.", "NS", "invalid."),
        ("version.catalog.invalid.", "TXT", '"2"'),
        *((f"{label}.zones.catalog.invalid.", "PTR", zone) for zone, label in labels.items()),
    }


def test_a_catalog_in_which_a_name_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^catalog x.*: name of 263 bytes, 255 at most"):
        catalog_zone((b"x" * 63,) * 3 + (b"y" * 30,), [parse("ark.arpa.")], 9)


def test_rfc9432_7_only_secondaries_may_query_the_catalog() -> None:
    for rdtype in ("SOA", "AXFR", "TXT"):
        for name in ("catalog.invalid.", "version.catalog.invalid."):
            query = dns.message.make_query(name, rdtype)
            expected = "NOTAUTH" if rdtype == "AXFR" else "REFUSED"
            assert rcode_of(ask(query, view_of(1), catalog_access("::1"))) == expected
    for name in ("CATALOG.invalid.", ORIGIN):
        assert answers(ask(dns.message.make_query(name, "SOA"), view_of(1), catalog_access()))


def test_rfc1996_a_primary_refuses_notify() -> None:
    for name, expected in ((ORIGIN, "REFUSED"), ("sub." + ORIGIN, "NOTAUTH"), ("other.", "NOTAUTH")):
        notify = dns.message.make_query(name, "SOA")
        notify.set_opcode(dns.opcode.NOTIFY)
        for transport in Transport:
            messages = ask(notify, view_of(1), access_of(), transport=transport)
            assert rcode_of(messages) == expected
            reply = dns.message.from_wire(messages[0])
            assert (reply.opcode(), reply.question) == (dns.opcode.NOTIFY, notify.question)


def _hostile(rng: random.Random, wire: bytes) -> Iterator[bytes]:
    for _ in range(40):
        torn = bytearray(wire)
        for _ in range(rng.randint(1, 4)):
            torn[rng.randrange(2, len(torn))] = rng.randrange(256)
        yield bytes(torn[: rng.randint(12, len(torn))]) if rng.random() < 0.5 else bytes(torn)


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_damaged_queries_raise_nothing(seed: int) -> None:
    rng = random.Random(seed)
    one, two = view_of(1), view_of(2, "a 60 A 192.0.2.2\n")
    signed, _ = tsig.sign_query(ixfr_query(1, use_edns=0).to_wire(), KEY, NOW)
    for wire in (ixfr_query(1).to_wire(), signed):
        for torn in _hostile(rng, wire):
            for transport in Transport:
                for reply in ask(torn, two, access_of(journal_of(one, two)), transport=transport):
                    assert reply[2] & 0x80
                    assert len(reply) <= 0xFFFF
