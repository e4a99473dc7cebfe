"""Tests of ``tests.support.peers``, with which other tests run real servers."""

from __future__ import annotations

from pathlib import Path

import dns.message
import dns.name
import dns.query
import dns.rdataclass
import dns.rdatatype
import dns.zone
import pytest

from tests.support.peers import (
    CHECKERS,
    HOST,
    Bind,
    Nsd,
    Peer,
    PeerError,
    named_checkzone,
    nsd_checkzone,
    processes,
    require,
)

ORIGIN = "ark.arpa."


@pytest.fixture(scope="module")
def zone_file(vectors: Path) -> Path:
    return vectors / "peers.zone"


def test_every_checker_accepts_the_zone(checker: str, zone_file: Path) -> None:
    accepted, output = CHECKERS[checker](ORIGIN, zone_file)
    assert accepted, output


def test_every_checker_refuses_what_is_no_zone(checker: str, tmp_path: Path) -> None:
    path = tmp_path / "not a zone"
    path.write_text("12345 is not a record\n")
    accepted, output = CHECKERS[checker](ORIGIN, path)
    assert not accepted
    assert output


def test_bind_refuses_the_drafts_name_in_the_regexp_field(vectors: Path) -> None:
    """The ARK draft's "USLC": RFC 3403 4.1 wants a substitution expression there, and BIND insists."""
    require("named-checkzone")
    accepted, output = named_checkzone(ORIGIN, vectors / "draft-ark.arpa.zone")
    assert not accepted
    assert "syntax error" in output


def test_nsd_accepts_the_drafts_name_in_the_regexp_field(vectors: Path) -> None:
    require("nsd-checkzone")
    accepted, output = nsd_checkzone(ORIGIN, vectors / "draft-ark.arpa.zone")
    assert accepted, output


def test_every_server_answers_every_record_of_the_file(peer: type[Peer], zone_file: Path) -> None:
    """Over UDP and over TCP, the RRsets are the ones dnspython reads in the same file."""
    zone = dns.zone.from_file(str(zone_file), origin=ORIGIN, relativize=False)
    with peer({ORIGIN: zone_file}) as server:
        for name, rdataset in zone.iterate_rdatasets():
            query = dns.message.make_query(name, rdataset.rdtype)
            for ask in (dns.query.udp, dns.query.tcp):
                reply = ask(query, server.host, port=server.port, timeout=5)
                assert [rrset.to_rdataset() for rrset in reply.answer] == [rdataset], (
                    peer.name,
                    ask.__name__,
                )


def test_one_server_has_several_zones_in_a_directory_with_spaces(
    peer: type[Peer], zone_file: Path, vectors: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "a directory with spaces"
    directory.mkdir()
    first, second = directory / "first.zone", directory / "second one.zone"
    first.write_bytes(zone_file.read_bytes())
    second.write_bytes((vectors / "draft-spct.org.zone").read_bytes())
    with peer({"ark.arpa": first, "spct.org": second}) as server:
        for name, count in (("12345.ark.arpa.", 2), ("dlc.spct.org.", 2)):
            reply = dns.query.udp(dns.message.make_query(name, "NAPTR"), server.host, port=server.port, timeout=5)
            assert len(reply.answer[0]) == count


def test_a_stopped_server_leaves_no_process_and_no_file(peer: type[Peer], zone_file: Path) -> None:
    server = peer({ORIGIN: zone_file}).start()
    pid, directory = server.pid, server.directory
    assert directory.is_dir()
    assert pid in processes(pid)  # the group, with whatever the server forked
    server.stop()
    assert not processes(pid)
    assert not directory.exists()
    server.stop()


def test_two_servers_run_side_by_side(zone_file: Path) -> None:
    require("nsd", "named")
    with Nsd({ORIGIN: zone_file}) as one, Bind({ORIGIN: zone_file}) as two:
        assert one.port != two.port
        assert one.host == two.host == HOST


def test_a_server_without_its_zone_says_what_its_log_says(
    zone_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("named")
    bad = tmp_path / "bad.zone"
    bad.write_text(zone_file.read_text() + '12026 IN NAPTR 0 0 "h" "ark" "USLC" h.example.\n')
    monkeypatch.setattr("tests.support.peers.START_SECONDS", 1.0)
    with pytest.raises(PeerError, match=r"SERVFAIL|REFUSED") as caught:
        Bind({ORIGIN: bad}).start()
    assert "syntax error" in str(caught.value)


def test_the_drafts_own_records_are_served(draft_server: Nsd) -> None:
    """What a client of the draft meets: relative replacements, ports in labels, a name as regexp."""
    query = dns.message.make_query("12026.ark.arpa.", "NAPTR")
    reply = dns.query.udp(query, draft_server.host, port=draft_server.port, timeout=5)
    answer = reply.find_rrset(reply.answer, query.question[0].name, dns.rdataclass.IN, dns.rdatatype.NAPTR)
    assert {rdata.replacement.labels for rdata in answer} == {
        (b"lhc", b"nlm", b"nih", b"gov:8080", b"ark", b"arpa", b""),
        (b"foobar", b"zaf", b"org", b"ark", b"arpa", b""),
        (b"sneezy", b"dopey", b"com", b"ark", b"arpa", b""),
    }
    assert {rdata.regexp for rdata in answer} == {b"USLC"}


def test_a_missing_server_skips_loudly_and_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAPTR_REQUIRE_PEERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed: no-such-server; run scripts/test as root"):
        require("sh", "no-such-server")
    monkeypatch.setenv("MAPTR_REQUIRE_PEERS", "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-server"):
        require("no-such-server")
    require("sh")
