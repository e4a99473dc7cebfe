"""``maptr.testing``: a client and a fixture whose DNS is a dictionary or a table."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any

import pytest

import maptr
from maptr import (
    Ark,
    Client,
    ConfigError,
    DiscoveryError,
    DiscoveryFailed,
    DiscoveryTimeout,
    Entry,
    NoMappingAuthority,
    Table,
)
from maptr.registry import builtin
from maptr.testing import FAULTS, Answers, Reply, Slow, offline_client
from tests.support.drivers import collect

URL = "https://ark.example.org/ark:${content}"
REPLIES: dict[str, Reply] = {"12345": URL, "12345/x6": ["https://x6.example/${suffix}", "https://b.example/${pid}"]}
REPLIES |= dict(zip(("99991", "99992", "99993", "99994", "99995"), FAULTS, strict=True))
OUTCOMES = {"none": "NXDOMAIN", "silent": "TIMEOUT", "servfail": "SERVFAIL", "slow": "NXDOMAIN", "bogus": "BOGUS"}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a test without a network opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "sendto", refuse)


def test_urls_of_naans_and_shoulders() -> None:
    client = offline_client(REPLIES)
    assert client.discover("ark:12345/x1?info").urls() == ["https://ark.example.org/ark:12345/x1?info"]
    x6 = ["https://x6.example/a", "https://b.example/ark:12345/x6a", "https://ark.example.org/ark:12345/x6a"]
    assert client.discover("ark:12345/x6a").urls() == x6
    assert client.discover("ark:12345/x6a").source == "dns"


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault: str) -> None:
    naan = f"9999{FAULTS.index(fault) + 1}"
    client = offline_client(REPLIES)
    wanted: dict[str, type[DiscoveryError]] = {"none": NoMappingAuthority, "slow": NoMappingAuthority}
    with pytest.raises(wanted.get(fault, DiscoveryFailed)) as caught:
        client.discover(f"ark:{naan}/x1")
    found = caught.value.discovery
    assert found.trace[0].outcome.name == OUTCOMES[fault]
    assert found.complete == (fault in wanted)
    assert (found.security == "bogus") == (fault == "bogus")
    (many,) = client.discover_many([f"ark:{naan}/x1"])
    assert many == found
    assert asyncio.run(collect(client.discover_many_async([f"ark:{naan}/x1"]))) == [found]


def test_silence_takes_no_time() -> None:
    started = time.monotonic()
    with pytest.raises(DiscoveryTimeout):
        offline_client({"12345": "silent"}, lifetime=60.0).discover("ark:12345/x1")
    assert time.monotonic() - started < 30


def test_a_slow_answer_comes_late_or_not_at_all() -> None:
    client = offline_client({"12345": Slow(URL, seconds=0.05)})
    assert client.discover("ark:12345/x1").urls() == asyncio.run(client.discover_async("ark:12345/x1")).urls()
    with pytest.raises(DiscoveryTimeout):
        client.discover("ark:12345/x1", lifetime=0.01)


def test_a_kept_answer_and_a_table_answer_while_dns_is_silent() -> None:
    answers = Answers({"12345": URL})
    with offline_client(answers, cache=":memory:", table=Table([Entry("99991")])) as client:
        assert client.discover("ark:12345/x1").source == "dns"
        answers["12345"] = "silent"
        assert client.discover("ark:12345/x2").source == "memory"
        assert answers.asked == ["12345.ark.arpa."]


def test_a_table_answers_as_its_zone() -> None:
    table = builtin.state().table
    assert table is not None
    client = offline_client(table)
    assert client.discover("ark:12148/btv1b8449691v").url() == "https://ark.bnf.fr/ark:/12148/btv1b8449691v"
    assert client.discover("ark:12148/btv1b8449691v").source == "dns"


def test_security_and_other_origins() -> None:
    answers = Answers({"12345": URL}, security="secure")
    client = offline_client(answers, origin="ark.example", require="secure")
    assert client.discover("ark:12345/x1").security == "secure"
    assert answers.asked == ["12345.ark.example."]
    with pytest.raises(ConfigError, match="'safe' is not one of secure, "):
        Answers(security="safe")
    answers.security = "insecure"
    with pytest.raises(DiscoveryFailed):
        client.discover("ark:12345/x1")


@pytest.mark.parametrize(
    ("key", "reply", "said"),
    [
        ("x y", "none", "'x y' is not a NAAN"),
        (12345, "none", "a NAAN is a str, not int: 12345"),
        ("12345", "nonsense", "'nonsense' is neither a URL nor one of none, silent"),
        ("12345", 5, "5 is neither"),
        ("12345", b"https://ark.example.org/", "is neither"),
        ("12345/x6", "silent", "only a whole NAAN is 'silent'"),
        ("12345", "https://ark.example.org/${nothing}", "unknown variable"),
        ("12345", f"https://ark.example.org/{'x' * 300}${{content}}", "its rule has"),
        ("12345", Slow("nonsense"), "'nonsense' is neither"),
    ],
)
def test_a_wrong_answer_is_an_error(key: Any, reply: Any, said: str) -> None:
    with pytest.raises((ConfigError, TypeError), match=said.replace("(", r"\(")):
        offline_client({key: reply})
    answers = Answers()
    with pytest.raises((ConfigError, TypeError)):
        answers[key] = reply


def test_a_run_asks_each_name_once_and_again_after_a_timeout() -> None:
    answers = Answers({"12345": URL, "12025": "silent", "12148": Slow(URL, seconds=0.01)})
    arks = [f"ark:{naan}/x{i}" for i in range(3) for naan in ("12345", "12025", "12148", "99999")]
    with offline_client(answers) as client:
        for found in (list(client.discover_many(arks)), asyncio.run(collect(client.discover_many_async(arks)))):
            assert [bool(each) for each in found] == [True, False, True, False] * 3
    twice = {"12345": 2, "12025": 6, "12148": 2, "99999": 2}
    assert {naan: answers.asked.count(f"{naan}.ark.arpa.") for naan in twice} == twice


def test_options_are_those_of_a_client() -> None:
    steps: list[object] = []
    with offline_client({"12345": URL}, lifetime=1.0, cache=":memory:") as client:
        assert isinstance(client, Client)
        assert client.discover("ark:12345/x1", on_step=steps.append)
    assert len(steps) == 1
    with pytest.raises(TypeError, match="lifetimes"):
        offline_client({}, lifetimes=1.0)  # type: ignore[call-arg]


def test_the_fixture_serves_functions_and_clients(maptr_dns: Answers) -> None:
    maptr_dns["ark:12345"] = URL
    assert maptr.discover("ark:12345/x1").url() == "https://ark.example.org/ark:12345/x1"
    assert maptr.discover("ark:12345/x1", nameservers="192.0.2.1").url() == "https://ark.example.org/ark:12345/x1"
    assert asyncio.run(maptr.discover_async("ark:12345/x1")).url() == "https://ark.example.org/ark:12345/x1"
    assert [found.url() for found in maptr.discover_many([Ark.parse("ark:12345/x1")])] == [
        "https://ark.example.org/ark:12345/x1"
    ]
    assert Client(["tls://192.0.2.1"]).discover("ark:12345/x1")
    assert maptr_dns.asked == ["12345.ark.arpa."] * 5


EARLIER = [Client(["192.0.2.1"], lifetime=1), Client(["192.0.2.1"], cache=":memory:"), Client()]


@pytest.mark.parametrize("reply", ["https://one.example/${content}", "silent", "https://two.example/${content}"])
def test_the_fixture_serves_clients_that_the_program_has_made_before(reply: str, maptr_dns: Answers) -> None:
    maptr_dns["12345"] = reply
    for client in EARLIER:
        client.forget()
        alone = client.discover_many(["ark:12345/x1"])
        awaited = asyncio.run(collect(client.discover_many_async(["ark:12345/x2"])))
        wanted = [] if reply == "silent" else [reply.replace("${content}", "12345/x1")]
        assert [found.urls() for found in alone] == [wanted]
        assert [bool(found) for found in awaited] == [bool(wanted)]
        with suppress(DiscoveryError):
            assert client.discover("ark:12345/x1").urls() == asyncio.run(client.discover_async("ark:12345/x1")).urls()
        with pytest.raises(NoMappingAuthority):
            client.discover("ark:12148/btv1b8449691v")
    assert set(maptr_dns.asked) == {"12345.ark.arpa.", "12148.ark.arpa."}


def test_the_fixture_does_not_use_the_tables_of_the_machine(maptr_dns: Answers) -> None:
    with pytest.raises(NoMappingAuthority):
        maptr.discover("ark:12148/btv1b8449691v")
    assert maptr_dns.asked == ["12148.ark.arpa."]


def test_pytest_finds_the_fixture_by_itself() -> None:
    assert [point.value for point in entry_points(group="pytest11", name="maptr")] == ["maptr.pytest_plugin"]
