"""Tests of ``tests.support.peers``, with which other tests run real servers."""

from __future__ import annotations

from pathlib import Path

import dns.message
import dns.query
import dns.zone
import pytest

from tests.support.peers import CHECKERS, Bind, Peer, PeerError, processes, require

ORIGIN = "ark.arpa."


@pytest.fixture(scope="module")
def zone_file(vectors: Path) -> Path:
    return vectors / "peers.zone"


def test_every_checker_accepts_a_good_zone_and_refuses_others(checker: str, zone_file: Path, tmp_path: Path) -> None:
    accepted, output = CHECKERS[checker](ORIGIN, zone_file)
    assert accepted, output
    path = tmp_path / "not a zone"
    path.write_text("12345 is not a record\n")
    accepted, output = CHECKERS[checker](ORIGIN, path)
    assert not accepted
    assert output


def test_every_server_serves_zones_in_a_directory_with_spaces_and_leaves_nothing(
    peer: type[Peer], zone_file: Path, vectors: Path, tmp_path: Path
) -> None:
    """Over UDP and TCP, the RRsets are those that dnspython reads in the files."""
    directory = tmp_path / "a directory with spaces"
    directory.mkdir()
    zones = {ORIGIN: directory / "first.zone", "spct.org.": directory / "second one.zone"}
    zones[ORIGIN].write_bytes(zone_file.read_bytes())
    zones["spct.org."].write_bytes((vectors / "draft-spct.org.zone").read_bytes())
    server = peer(zones).start()
    pid, files = server.process.pid, server.directory
    try:
        for origin, path in zones.items():
            zone = dns.zone.from_file(str(path), origin, relativize=False)
            for name, rdataset in zone.iterate_rdatasets():
                query = dns.message.make_query(name, rdataset.rdtype)
                for ask in (dns.query.udp, dns.query.tcp):
                    reply = ask(query, server.host, port=server.port, timeout=5)
                    assert [rrset.to_rdataset() for rrset in reply.answer] == [rdataset], (peer.name, ask.__name__)
        assert files.is_dir()
        assert pid in processes(pid)  # the group, with the processes that the server forked
    finally:
        server.stop()
    assert not processes(pid)
    assert not files.exists()
    server.stop()


def test_the_error_of_a_server_without_its_zone_has_the_log(
    zone_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "bad.zone"
    bad.write_text(zone_file.read_text() + '12026 IN NAPTR 0 0 "h" "ark" "USLC" h.example.\n')
    monkeypatch.setattr("tests.support.peers.START_SECONDS", 0.5)
    with pytest.raises(PeerError, match=r"SERVFAIL|REFUSED") as caught:
        Bind({ORIGIN: bad}).start()
    assert "syntax error" in str(caught.value)


def test_a_missing_server_skips_a_test_and_fails_it_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAPTR_REQUIRE_PEERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed: no-such-server; run scripts/test as root"):
        require("sh", "no-such-server")
    monkeypatch.setenv("MAPTR_REQUIRE_PEERS", "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-server"):
        require("no-such-server")
    require("sh")
