"""TSIG: messages compared with dnspython's, each error of RFC 8945 5.2, and signed responses (RFC 8945 5.3)."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from unittest import mock

import dns.message
import dns.rcode
import dns.tsig
import dns.zone
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.answer.context import Context, ReceivedQuery, Transport
from maptr.protocol.names import Labels
from maptr.server.counters import Counters
from maptr.server.responder import Responder, ServerState
from maptr.transfer import tsig
from maptr.transfer.acl import TsigKey
from maptr.transfer.session import Access
from tests.support.transfers import HERE, answered, keyring
from tests.support.zones import snapshot_of_zones

SECRET = b"a secret of thirty-two octets..."
NOW = 1_800_000_000
ALGORITHMS = ("hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512")
CUT_ALGORITHMS = ("hmac-sha256-128", "hmac-sha384-192", "hmac-sha512-256")
ZONE = "@ 60 SOA ns h 7 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n"
SOA_QUERY = dns.message.make_query("example.", "SOA").to_wire()
SNAPSHOT = snapshot_of_zones(dns.zone.from_text(ZONE, "example.", relativize=False))


def key(algorithm: str = "hmac-sha256", name: Labels = (b"xfr",)) -> TsigKey:
    return TsigKey(name, algorithm, SECRET)


def dnspython_key(algorithm: str = "hmac-sha256", name: str = "xfr.", secret: bytes = SECRET) -> dns.tsig.Key:
    return dns.tsig.Key(name, secret, algorithm)


def found(message: bytes) -> tsig.TsigRecord:
    """Return the TSIG record of a message, which must have one."""
    record = tsig.find(message)
    assert record is not None
    return record


def signed(shared: dns.tsig.Key, *, at: int = NOW) -> tuple[bytes, bytes]:
    """Return an SOA query that dnspython has signed, and its MAC."""
    query = dns.message.make_query("example.", "SOA")
    query.use_tsig(shared)
    with mock.patch("time.time", return_value=at):
        return query.to_wire(), query.mac or b""


def ask(query: bytes, keys: list[TsigKey], transport: Transport = Transport.TCP, now: int = NOW) -> list[bytes]:
    access = Access(keys=keyring(keys))
    return list(answered(query, SNAPSHOT, access, transport=transport, now=now))


def error_of(reply: bytes) -> tuple[int, int, bytes, bytes]:
    """Return the rcode, TSIG error, MAC and other data of a response."""
    rdata = found(reply).rdata
    return reply[3] & 15, rdata.error, rdata.mac, rdata.other


def verify(reply: bytes, shared: dns.tsig.Key, request_mac: bytes, at: int = NOW) -> None:
    """Check the MAC of a response with dnspython, and its time."""
    record = found(reply)
    # dnspython's own check would raise an exception for a TSIG error before it checks the MAC.
    wire = reply[:10] + struct.pack("!H", int.from_bytes(reply[10:12], "big") - 1) + reply[12 : record.start]
    context = dns.tsig._digest(wire, shared, record.rdata, None, request_mac)  # type: ignore[no-untyped-call]
    assert context.sign()[: len(record.rdata.mac)] == record.rdata.mac
    assert abs(record.rdata.time_signed - at) <= record.rdata.fudge


@pytest.mark.parametrize("algorithm", ALGORITHMS + CUT_ALGORITHMS)
def test_rfc8945_6_a_signed_query_gets_a_signed_response(algorithm: str) -> None:
    shared = dnspython_key(algorithm)
    query, mac = signed(shared)
    (reply,) = ask(query, [key(algorithm)])
    verify(reply, shared, mac)
    assert error_of(reply)[:2] == (0, 0)
    reserved = tsig.check_query(ReceivedQuery(query), keyring([key(algorithm)]), NOW).size
    assert len(reply) - found(reply).start == reserved
    assert dns.message.from_wire(reply, keyring=False).answer


def test_rfc8945_4_2_error_and_other_data_of_a_query_are_not_those_of_the_response() -> None:
    _, signer = tsig.sign_query(SOA_QUERY, key(), NOW)
    odd = tsig.Signer(key(), signer.rdata.replace(mac=b"", error=5, other=b"x"), 32)
    (reply,) = ask(odd.sign(SOA_QUERY), [key()])
    assert error_of(reply)[1] == 0
    assert error_of(reply)[3] == b""


def test_rfc8945_6_a_mac_of_a_length_without_a_name_is_sent_under_that_of_its_hash() -> None:
    wire, signer = tsig.sign_query(SOA_QUERY, key("hmac-sha512-264"), NOW)
    assert found(wire).rdata.algorithm == dns.tsig.HMAC_SHA512
    assert len(found(wire).rdata.mac) == 33
    assert tsig.check_reply(ask(wire, [key("hmac-sha512-264")])[0], signer, NOW)


def test_rfc8945_5_3_a_signed_response_fits_the_udp_limit() -> None:
    for size in range(200):
        text = f'@ 60 SOA ns h 7 2 3 4 5\n@ 60 NS ns\nt 60 TXT "{"x" * 200}" "{"x" * size}"\n'
        snapshot = snapshot_of_zones(dns.zone.from_text(text, "example.", relativize=False))
        question = dns.message.make_query("t.example.", "TXT").to_wire()
        wire, signer = tsig.sign_query(question, key(), NOW)
        access = Access(keys=keyring([key()]))
        (reply,) = answered(wire, snapshot, access, transport=Transport.UDP, now=NOW)
        assert len(reply) <= 512
        assert tsig.check_reply(reply, signer, NOW)


def test_rfc8945_key_and_algorithm_names_are_case_insensitive() -> None:
    query, mac = signed(dnspython_key("HMAC-SHA256", "XfR."))
    verify(ask(query, [key()])[0], dnspython_key(), mac)


@pytest.mark.parametrize(
    ("shared", "keys", "error"),
    [
        (dnspython_key(name="other."), [], tsig.BADKEY),
        (dnspython_key(name="other."), [key()], tsig.BADKEY),
        (dnspython_key("hmac-sha512"), [key()], tsig.BADKEY),
        (dnspython_key("hmac-sha256-128"), [key()], tsig.BADKEY),
        (dnspython_key(secret=b"another secret"), [key()], tsig.BADSIG),
    ],
    ids=["no key", "another key", "another algorithm", "a truncated algorithm", "another secret"],
)
def test_rfc8945_5_2_1_and_5_2_2_an_error_for_a_wrong_key_or_mac_is_unsigned(
    shared: dns.tsig.Key, keys: list[TsigKey], error: int
) -> None:
    (reply,) = ask(b"\x12\x34" + signed(shared)[0][2:], keys)
    assert error_of(reply) == (9, error, b"", b"")
    assert found(reply).rdata.original_id == 0x1234
    assert not dns.message.from_wire(reply, keyring=False).answer


def test_rfc8945_5_2_2_a_change_of_any_bit_is_detected() -> None:
    """Exceptions are the ID, because the record has the original ID, and the case of names."""
    query, _ = signed(dnspython_key())
    start = len(dns.message.make_query("example.", "SOA").to_wire())
    for place in range(2, len(query)):
        for bit in range(8):
            changed = bytearray(query)
            changed[place] ^= 1 << bit
            if bytes(changed[2:]).lower() == query[2:].lower():
                continue
            for reply in ask(bytes(changed), [key()]):
                record = tsig.find(reply)
                assert record is None or record.rdata.error, f"octet {place} bit {bit}"
                hidden = place in (10, 11, start + 5, start + 6)  # ARCOUNT and type: the query then has no TSIG
                assert hidden or not int.from_bytes(reply[6:8], "big"), f"octet {place} bit {bit}"


def test_invalid_signatures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    context = Context(clock=lambda: float(NOW))
    responder = Responder(context, clock=lambda: 0.0)
    responder.swap(ServerState(SNAPSHOT, Access(keys=keyring([key()])), context))
    good, _ = signed(dnspython_key())
    for query in (
        signed(dnspython_key(name="other\n."))[0],
        signed(dnspython_key(secret=b"another secret"))[0],
        signed(dnspython_key(), at=NOW - 1000)[0],
        cut(good, 16),
        cut(good, 12),  # malformed
        good,
        SOA_QUERY,
    ):
        assert responder.answer(ReceivedQuery(query, Transport.TCP, HERE), Counters())
    by = "query from 127.0.0.1 with an invalid signature: key"
    assert caplog.messages == [
        rf"{by} other\010. BADKEY",
        f"{by} xfr. BADSIG",
        f"{by} xfr. BADTIME",
        f"{by} xfr. BADTRUNC",
    ]


@pytest.mark.parametrize("skew", [-1000, 1000, -301, 301, -300, 300])
def test_rfc8945_5_2_3_badtime_is_signed_and_has_both_times(skew: int) -> None:
    query, mac = signed(dnspython_key(), at=NOW + skew)
    (reply,) = ask(query, [key()])
    rcode, error, _, other = error_of(reply)
    if abs(skew) <= 300:
        assert (rcode, error, other) == (0, 0, b"")
        assert found(reply).rdata.time_signed == NOW
        verify(reply, dnspython_key(), mac)
    else:
        assert (rcode, error, other) == (9, tsig.BADTIME, NOW.to_bytes(6, "big"))
        assert found(reply).rdata.time_signed == NOW + skew
        verify(reply, dnspython_key(), mac, NOW + skew)


def cut(query: bytes, length: int) -> bytes:
    """Return the query with its MAC truncated to a length."""
    record = found(query)
    stripped = query[:10] + b"\0\0" + query[12 : record.start]
    return tsig.attach(stripped, record.key, record.rdata.replace(mac=record.rdata.mac[:length]))


@pytest.mark.parametrize(
    ("algorithm", "length", "rcode", "error", "size"),
    [
        *(("hmac-sha256-128", length, 0, 0, length) for length in (16, 20, 32)),
        *(("hmac-sha256", length, 9, tsig.BADTRUNC, 32) for length in (16, 31)),
    ],
)
def test_rfc8945_5_2_4_a_truncated_mac_is_accepted_or_gets_signed_badtrunc(
    algorithm: str, length: int, rcode: int, error: int, size: int
) -> None:
    """The response to an accepted query has a MAC of the same size."""
    query, mac = signed(dnspython_key())
    (reply,) = ask(cut(query, length), [key(algorithm)])
    assert error_of(reply)[:2] == (rcode, error)
    assert len(error_of(reply)[2]) == size
    verify(reply, dnspython_key(), mac[:length])


def test_rfc8945_5_2_checks_are_in_the_order_key_mac_time_truncation() -> None:
    late = {"at": NOW - 1000}
    assert error_of(ask(signed(dnspython_key(name="no."), **late)[0], [key()])[0])[1] == tsig.BADKEY
    assert error_of(ask(signed(dnspython_key(secret=b"no"), **late)[0], [key()])[0])[1] == tsig.BADSIG
    assert error_of(ask(cut(signed(dnspython_key(), **late)[0], 16), [key()])[0])[1] == tsig.BADTIME


def _with_more(query: bytes, extra: bytes) -> bytes:
    """Return the query with one more record."""
    return query[:10] + b"\0\2" + query[12:] + extra


@pytest.mark.parametrize(
    "change",
    [
        *(lambda query, length=length: cut(query, length) for length in (1, 9, 15)),  # RFC 8945 5.2.2.1
        lambda query: query + b"x",
        lambda query: query[:-1],
        lambda query: query[:10] + b"\0\2" + query[12:],
        lambda query: query[:6] + b"\0\1" + query[8:10] + b"\0\0" + query[12:],
        lambda query: _with_more(query, query[found(query).start :]),
        lambda query: _with_more(query, dns.message.make_query("example.", "SOA", use_edns=0).to_wire()[-11:]),
    ],
    ids=[
        "MAC of 1 byte",
        "MAC of 9 bytes",
        "MAC of 15 bytes",
        "bytes after it",
        "cut short",
        "a record is missing",
        "in the answer section",
        "twice",
        "OPT after it",
    ],
)
def test_rfc8945_5_2_a_malformed_or_misplaced_tsig_is_formerr(change: Callable[[bytes], bytes]) -> None:
    (reply,) = ask(change(signed(dnspython_key())[0]), [key()])
    assert (reply[3] & 15, tsig.find(reply)) == (dns.rcode.FORMERR, None)


def test_rfc8945_error_responses_to_a_validly_signed_query_are_signed() -> None:
    """The errors are an unknown opcode, an unknown EDNS version, and a zone that is not served."""
    for wire in (
        b"\x12\x34\x28\0\0\0\0\0\0\0\0\0",
        dns.message.make_query("example.", "SOA", use_edns=1).to_wire(),
        dns.message.make_query("other.", "SOA").to_wire(),
        dns.message.make_query("example.", "AXFR").to_wire(),
        dns.message.make_query("other.", "IXFR").to_wire(),
    ):
        query, signer = tsig.sign_query(wire, key(), NOW)
        (reply,) = ask(query, [key()])
        assert not int.from_bytes(reply[6:8], "big")
        assert tsig.check_reply(reply, signer, NOW)


def test_check_reply_accepts_only_the_response_to_its_query() -> None:
    query, signer = tsig.sign_query(SOA_QUERY, key(), NOW)
    (reply,) = ask(query, [key()])
    assert tsig.check_reply(reply, signer, NOW)
    assert not tsig.check_reply(reply, signer, NOW + 301)
    assert not tsig.check_reply(reply[:-1], signer, NOW)
    assert not tsig.check_reply(reply[:30] + bytes((reply[30] ^ 1,)) + reply[31:], signer, NOW)
    (unsigned,) = ask(SOA_QUERY, [key()])
    assert tsig.find(unsigned) is None
    assert not tsig.check_reply(unsigned, signer, NOW)
    _, other = tsig.sign_query(dns.message.make_query("example.", "SOA").to_wire(), key(), NOW)
    assert not tsig.check_reply(reply, other, NOW)
    weaker = tsig.Signer(signer.key, signer.rdata.replace(algorithm=dns.tsig.HMAC_SHA1), 20)
    assert not tsig.check_reply(weaker.sign(unsigned), signer, NOW)
    assert tsig.refusal(reply, signer) == tsig.refusal(reply[:11], signer) == ""
    refused = tsig.Signer(signer.key, signer.rdata.replace(error=tsig.BADTIME), 32)
    assert not tsig.check_reply(refused.sign(unsigned), signer, NOW)
    long = tsig.Signer(signer.key, signer.rdata.replace(algorithm=dns.tsig.HMAC_SHA512), 32)
    assert not tsig.check_reply(long.sign(unsigned), signer, NOW)


@given(st.binary(max_size=120), st.integers(0, 200), st.integers(0, 255))
def test_hostile_bytes_after_the_question_raise_nothing(tail: bytes, place: int, octet: int) -> None:
    query, _ = signed(dnspython_key())
    start = found(query).start
    torn = bytearray(query)
    torn[place % len(torn)] = octet
    for wire in (query[:start] + tail, bytes(torn), bytes(torn)[:start] + tail):
        for reply in ask(wire, [key()]):
            assert len(reply) >= 12
            assert reply[2] & 0x80
