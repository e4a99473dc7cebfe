"""Choosers that connect, and probes: politeness, and addresses that are not public."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import url
from maptr.ark import Ark
from maptr.choose import CHOOSERS, first
from maptr.errors import NmaError
from maptr.nma.describe import describe
from maptr.nma.reachable import Own, Reachable, named
from tests.support.authority import discovery_at, erc
from tests.support.caching import ARK, Clock, Rig, dns_answer, host
from tests.support.certificates import write_certificate
from tests.support.http_server import pages
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE
from tests.test_choose import THREE, discovery


class Web:
    """A probe of servers that are alive, by scheme and host, and a list of those that were probed."""

    def __init__(self, *alive: str) -> None:
        self.alive = set(alive)
        self.asked: list[str] = []

    def __call__(self, where: url.Url, seconds: float) -> None:
        place = where.server
        self.asked.append(place)
        if place not in self.alive:
            raise NmaError("no answer")


def test_reachable_takes_what_answers_and_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    web, clock = Web("http://b.example"), Clock(0.0)
    chooser = Reachable(probe=web)
    monkeypatch.setattr(chooser, "_clock", clock)
    found = discovery_at("http://a.example/", "http://b.example/")
    chosen = found.preferring(chooser)
    assert chosen.url() == "http://b.example/ark:12345/x1"
    assert [c.host for c in chosen] == ["b.example", "a.example"]
    assert web.asked == ["https://a.example", "http://a.example", "https://b.example", "http://b.example"]
    assert found.preferring(chooser)[0].host == "b.example"
    assert len(web.asked) == 4  # remembered, so no further probe
    web.alive.add("http://a.example")
    clock.now = 61.0  # a failure is remembered for a minute
    assert found.preferring(chooser)[0].host == "a.example"
    chooser.failed(chooser(found), found)
    assert found.preferring(chooser)[0].host == "b.example"
    web.alive.clear()
    clock.now = 1000.0
    assert found.preferring(chooser)[0].host == "a.example"  # none answers, so it is the best one


def test_reachable_over_real_sockets() -> None:
    with pages(lambda path: (503, {}, b"")) as sick, pages(erc) as well:
        both = discovery_at(f"http://127.0.0.1:{free_port()}", sick.url, well.url)
        by_connection = Reachable(schemes=("http",), allow_private=True)
        assert by_connection(both).port == sick.port
        assert Reachable(schemes=("http",))(both) == both[0]  # not public, so none is probed


# A failed handshake leaves its socket to the garbage collector if the server has closed the connection before.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_reachable_verifies_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificate(tmp_path)
    with pages(erc, certificate=tmp_path) as secure, pages(erc) as plain:
        found = discovery_at(f"https://127.0.0.1:{secure.port}", plain.url).replace(scheme="https")
        assert Reachable(allow_private=True, lifetime=PATIENCE)(found).scheme == "http"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
        chosen = Reachable(allow_private=True, lifetime=PATIENCE)(found)
        assert (chosen.port, chosen.scheme) == (secure.port, "https")
        description = describe(found, allow_private=True)
        assert (description.spoken, description.url) == (True, f"https://127.0.0.1:{secure.port}/ark:12345/x1?info")


@given(
    st.permutations(["a.example", "b.example", "c.example"]),
    st.sets(st.sampled_from("abc")),
    st.sets(st.sampled_from("abc")),
)
def test_suspects_are_tried_last_and_never_removed(names: list[str], suspects: set[str], dead: set[str]) -> None:
    web = Web(*(f"https://{name}" for name in names if name[0] not in dead))
    rig = Rig({"12345.ark.arpa.": dns_answer(*(host(f"{name}.", order) for order, name in enumerate(names)))})
    chooser = Reachable(schemes=("https",), probe=web, suspects=lambda where: where.host.text[0] in suspects)
    chosen = chooser(rig.sources.discover(ARK)).host
    order = sorted(names, key=lambda name: name[0] in suspects)
    alive = [name for name in order if name[0] not in dead]
    assert chosen == (alive[0] if alive else names[0]), "the first that answers, suspect or not"
    assert web.asked == [f"https://{name}" for name in order[: order.index(alive[0]) + 1 if alive else 3]]


# ---- Own (draft section 3.4)


@pytest.mark.parametrize(
    ("received", "alive", "chosen"),
    [
        ("https://own.example/", "https://own.example", "https://own.example/ark:12345/x1?info"),
        ("http://own.example/", "http://own.example", "http://own.example/ark:12345/x1?info"),
        ("http://own.example/", "https://own.example", "https://a.example/ark:12345/x1?info"),
        ("own.example/", "http://own.example", "http://own.example/ark:12345/x1?info"),
        ("own.example:8443/", "https://own.example:8443", "https://own.example:8443/ark:12345/x1?info"),
        ("https://own.example/a!b/", "https://own.example", "https://own.example/a!b/ark:12345/x1?info"),
        ("https://B.example/", "https://b.example", "https://b.example/ark:12345/x1?info"),
        ("", "https://a.example", "https://a.example/ark:12345/x1?info"),
    ],
)
def test_own_takes_the_received_authority_if_it_answers(received: str, alive: str, chosen: str) -> None:
    found = discovery(*THREE, ark=f"{received}ark:12345/x1?info")
    assert found.url(Own(probe=Web(alive))) == chosen
    silent = Web()
    assert found.url(Own(probe=silent)) == found.url()
    assert all("a.example" not in place for place in silent.asked), "no other server is probed"


@pytest.mark.parametrize(
    "received",
    [
        *("http://localhost/", "http://127.0.0.1/", "https://u:p@own.example/", "ftp://own.example/"),
        *("https://own.example/?q=/", "https://own.example:0/", "javascript:/", "//own.example/"),
    ],
)
def test_own_does_not_probe_a_host_that_a_rule_may_not_name(received: str) -> None:
    web = Web()
    found = discovery(*THREE, ark=f"{received}ark:12345/x1")
    assert found.choose(Own(probe=web)) == found[0]
    assert web.asked == []


def test_own_comes_first_and_can_be_limited_to_candidates_of_the_discovery() -> None:
    found = discovery(*THREE, ark="https://own.example/p/ark:12345/x1")
    preferred = found.preferring(Own(probe=Web("https://own.example")))
    assert [candidate.source for candidate in preferred] == ["ark", "dns", "dns", "dns"]
    assert preferred.best[1:] == found.best, "it has the order of the best"
    assert preferred.to_dict()["candidates"][0]["url"] == preferred.url() == "https://own.example/p/ark:12345/x1"
    assert preferred[0].url(Ark.parse("ark:12345/y?info")) == "https://own.example/p/ark:12345/y?info"
    assert found.choose(Own(found_only=True, probe=Web("https://own.example"))) == found[0]
    last = discovery(*THREE, ark="https://c.example/ark:12345/x1")
    assert last.choose(Own(found_only=True, probe=Web("https://c.example"))).host == "c.example"


def test_each_name_has_its_chooser() -> None:
    made = [named(name) for name in CHOOSERS]
    assert made[0] is first
    assert made[1](discovery(*THREE)).host in ("a.example", "b.example")
    assert [type(one) for one in made[2:]] == [Reachable, Own]
