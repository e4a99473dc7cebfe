"""The records of the draft with their mistakes, served by NSD: the client finds the intended result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maptr import discover_at
from maptr.discovery import NoMappingAuthority
from tests.support.peers import CHECKERS, Nsd


@pytest.mark.parametrize(("checker", "accepts"), [("named-checkzone", False), ("nsd-checkzone", True)])
def test_the_name_in_the_regexp_field(checker: str, accepts: bool, vectors: Path) -> None:
    """The draft's "USLC": RFC 3403 4.1 wants a substitution expression there, and BIND insists on it."""
    accepted, output = CHECKERS[checker]("ark.arpa.", vectors / "draft-ark.arpa.zone")
    assert accepted is accepts, output
    assert accepted or "syntax error" in output


@pytest.fixture(scope="module")
def draft_server(vectors: Path) -> Iterator[Nsd]:
    """NSD serving the records that the ARK draft prints, its mistakes kept: zones ark.arpa and spct.org."""
    with Nsd({zone: vectors / f"draft-{zone}zone" for zone in ("ark.arpa.", "spct.org.")}) as server:
        yield server


def test_discovery_of_the_three_hosts_of_the_draft(draft_server: Nsd) -> None:
    discovery = discover_at(draft_server.host, "ark:12026/x1", port=draft_server.port)
    found = [(candidate.host, candidate.port) for candidate in discovery]
    assert found == [
        ("lhc.nlm.nih.gov", 8080),
        ("foobar.zaf.org", None),
        ("foobar.zaf.org.ark.arpa", None),
        ("sneezy.dopey.com", None),
        ("sneezy.dopey.com.ark.arpa", None),
    ]
    (step,) = discovery.trace
    reasons = [" ".join(reading.reasons) for reading in step.readings]
    assert all('regexp "USLC"' in reason for reason in reasons)
    assert all("final dot was forgotten" in reason for reason in reasons)


def test_discovery_through_the_redirect_of_the_draft(draft_server: Nsd) -> None:
    discovery = discover_at(draft_server.host, "ark:/12345/x1", port=draft_server.port)
    assert discovery.urls() == ["https://ark.spct.org/ark:12345/x1", "https://mirror.spct.org:8080/ark:12345/x1"]
    assert [step.depth for step in discovery.trace] == [0, 1]
    with pytest.raises(NoMappingAuthority):
        discover_at(draft_server.host, "ark:99999/x1", port=draft_server.port)
