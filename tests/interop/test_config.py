"""``maptr config``: Unbound, BIND and systemd-resolved, with the printed settings, find the sample's ARKs.

``arpa`` is signed and denies ``ark.arpa``, as on the Internet, and the resolvers validate: without the exception for an
unsigned zone, its answers are bogus.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import dns.message
import dns.rdata
import pytest

from maptr.discovery import Discovery
from tests.support.command_line import run
from tests.support.drivers import by_discover
from tests.support.namespaces import environment
from tests.support.peers import SEARCH, Maptr, Nsd, Peer, Unbound, bind_lock_file, require
from tests.support.peers import run as run_program
from tests.support.signers import signed_zone

ARKS = {
    "ark:12345/x6np1wh8k?info": "https://x6.example.net:8443/p/ark:/12345/x6np1wh8k?info",
    "ark:12345/x60%2Fa": "https://x60.example.net/item/%2Fa",
    "ark:12025/c3.pdf": "https://ark.nlm.example.org/ark:/12025/c3.pdf",
}


class Arpa(NamedTuple):
    """A server of the signed zone ``arpa``, and its key."""

    server: Nsd
    key: dns.rdata.Rdata


@pytest.fixture(scope="module")
def arpa(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arpa]:
    zone, key = signed_zone("arpa.", "in-addr TXT text\n")
    path = tmp_path_factory.mktemp("arpa") / "arpa.zone"
    zone.to_file(str(path), relativize=False)
    with Nsd({"arpa.": path}) as server:
        yield Arpa(server, key)


class UnboundWith(Unbound):
    """Unbound that validates below ``arpa``, with the settings at the end of its configuration."""

    kind: ClassVar[str] = "unbound"
    exception: ClassVar[str] = "domain-insecure:.*"

    def __init__(self, arpa: Arpa, printed: str) -> None:
        settings = "    do-not-query-localhost: yes\n    aggressive-nsec: yes\n"
        super().__init__({"arpa.": arpa.server}, [f"arpa. IN DNSKEY {arpa.key}"], settings)
        self.printed = printed

    def statements(self) -> str:
        return super().statements() + self.printed


class BindWith(Peer):
    """BIND as a resolver that validates below ``arpa``, with the settings that a comment shows in its options."""

    name = "bind"
    commands = ("named",)
    arguments = "-g -4 -n 1 -p $port -c $directory/resolver.conf"
    files = ("resolver.conf",)
    kind: ClassVar[str] = "bind"
    exception: ClassVar[str] = "validate-except.*"

    def __init__(self, arpa: Arpa, printed: str) -> None:
        super().__init__({})
        self.settings = bind_lock_file() + "".join(f"{line}\n" for line in re.findall("^#     (.*)$", printed, re.M))
        flags, protocol, algorithm, key = str(arpa.key).split(maxsplit=3)
        self.sections = (
            f'trust-anchors {{ "arpa." static-key {flags} {protocol} {algorithm} "{key}"; }};\n'
            f'zone "arpa" {{ type forward; forward only; forwarders {{ {self.host} port {arpa.server.port}; }}; }};\n'
        ) + printed

    def questions(self) -> list[dns.message.Message]:
        return [dns.message.make_query("arpa.", "SOA")]


Resolving = type[UnboundWith] | type[BindWith]


@pytest.fixture(params=[UnboundWith, BindWith], ids=lambda kind: kind.kind)
def kind(request: pytest.FixtureRequest) -> Resolving:
    found: Resolving = request.param
    return found


def printed(kind: str, server: Peer, *options: object) -> str:
    return run("config", kind, f"@{server.host}#{server.port}", *options, code=0).stdout


def found(resolver: Peer, **options: object) -> list[Discovery]:
    return [by_discover(ark, resolver, **options) for ark in ARKS]


def test_an_unsigned_zone_is_resolved(kind: Resolving, arpa: Arpa, sample: Path) -> None:
    with Maptr({"ark.arpa.": sample.with_name("ark.arpa.zone")}) as server:
        settings = printed(kind.kind, server)
        with kind(arpa, settings) as resolver:
            assert not by_discover("ark:1/x", resolver, origin="x.arpa.")  # a denial that covers ark.arpa
            assert [discovery.url() for discovery in found(resolver)] == list(ARKS.values())
            none = by_discover("ark:00000/x", resolver)
            assert (none.complete, list(none)) == (True, [])
        validating = re.sub(kind.exception, "", settings)
        assert validating != settings
        with kind(arpa, validating) as resolver:
            assert not any(found(resolver))


def test_signed_zone_is_validated_from_its_anchor(kind: Resolving, arpa: Arpa, sample: Path, tmp_path: Path) -> None:
    run("zone", "keys", "add", tmp_path / "keys", code=0)
    run("zone", "sign", sample.with_name("ark.arpa.zone"), tmp_path / "keys", "-o", tmp_path / "signed", code=0)
    (tmp_path / "anchor").write_text(run("zone", "keys", "ds", tmp_path / "keys", "ark.arpa.", code=0).stdout)
    with Maptr({"ark.arpa.": tmp_path / "signed"}) as server:
        settings = printed(kind.kind, server, "--trust-anchor", tmp_path / "anchor")
        with kind(arpa, settings) as resolver:
            discoveries = found(resolver, trust_ad=True, require="secure")
            assert [discovery.url() for discovery in discoveries] == list(ARKS.values())
            assert {discovery.security for discovery in discoveries} == {"secure"}
            own: dict[str, Any] = {"trust_anchors": tmp_path / "anchor", "require": "secure"}
            assert found(resolver, **own) == found(server, **own) == discoveries


def test_an_origin_below_a_local_zone_is_resolved(kind: Resolving, arpa: Arpa, sample: Path, tmp_path: Path) -> None:
    """``home.arpa`` (RFC 8375) is a local zone of Unbound and an empty zone of BIND."""
    run("zone", "build", sample, "--origin", "ark.home.arpa", "-o", tmp_path / "zone", code=0)
    with Maptr({"ark.home.arpa.": tmp_path / "zone"}) as server:
        settings = printed(kind.kind, server, "--origin", "ark.home.arpa")
        with kind(arpa, settings) as resolver:
            discoveries = found(resolver, origin="ark.home.arpa")
            assert [discovery.url() for discovery in discoveries] == list(ARKS.values())


def test_bind_asks_servers_on_port_53_without_recursion() -> None:
    text = run("config", "bind", "@192.0.2.7", "@2001:db8::1", code=0).stdout
    assert "type static-stub;\n    server-addresses { 192.0.2.7; 2001:db8::1; };" in text


def test_the_checkers_of_the_resolvers_accept_every_form(tmp_path: Path) -> None:
    """With several servers, and both kinds of trust anchors."""
    _, key = signed_zone("ark.arpa.", "")
    anchors = f"ark.arpa. IN DNSKEY {key}\nark.arpa. IN DS 1 13 2 {'ab' * 32}\n. IN DS 2 13 2 {'cd' * 32}\n"
    (tmp_path / "anchor").write_text(anchors)
    for words in ((), ("@192.0.2.7", "@2001:db8::1"), ("@::1#5300", "@127.0.0.1", "@192.0.2.7#5353")):
        for signed in ((), ("--trust-anchor", tmp_path / "anchor")):
            for kind, checker in (("bind", "named-checkconf"), ("unbound", "unbound-checkconf")):
                (tmp_path / kind).write_text(run("config", kind, *words, *signed, code=0).stdout)
                checked = run_program(checker, tmp_path / kind)
                assert checked.accepted, checked.output


# The arguments: the settings, the zone, and the ARKs. A network that is only a loopback is none for systemd-resolved.
RESOLVED = """\
set -e
maptr() { "$PYTHON" -m maptr "$@"; }
ip link set lo up
ip link add va type veth peer name vb
ip address add 198.51.100.1/24 dev va
ip link set va up
ip link set vb up
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/resolve /run/systemd/resolved.conf.d
cp "$1" /run/systemd/resolved.conf.d/maptr.conf
"$PYTHON" -m maptr serve --zone "ark.arpa=$2" --listen 127.0.0.1:5300 >&2 &
serve=$!
systemd-resolved >&2 &
resolved=$!
trap 'kill $serve $resolved' EXIT
shift 2
for attempt in $(seq 60); do
    if maptr url "$@" @127.0.0.53 >urls; then
        cat urls
        exit
    fi
    sleep 0.2
done
exit 1
"""


def test_systemd_resolved_finds_the_arks(sample: Path, tmp_path: Path) -> None:
    """It runs without systemd, in namespaces in which it has the capabilities that systemd gives it."""
    require("unshare", "ip", "systemd-resolved")
    (tmp_path / "maptr.conf").write_text(run("config", "systemd-resolved", code=0).stdout)
    enter = ("unshare", "--user", "--map-user=1", "--map-group=1", "--keep-caps", "--net", "--mount")
    if refused := subprocess.run([*enter, "true"], capture_output=True, text=True, check=False).stderr:
        pytest.skip(f"no namespaces: {refused.strip()}")
    done = subprocess.run(
        [*enter, "sh", "-c", RESOLVED, "sh", tmp_path / "maptr.conf", sample.with_name("ark.arpa.zone"), *ARKS],
        cwd=tmp_path,
        env={**environment(), "PATH": SEARCH, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(ARKS.values())
