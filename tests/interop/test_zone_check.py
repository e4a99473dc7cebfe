"""Zones as other programs read them: what BIND rejects, the draft's records in NSD, and octoDNS."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dns.rdatatype
import dns.zone
import pytest
import yaml

from maptr import discover
from maptr.discovery import NoMappingAuthority
from maptr.errors import ZoneError
from maptr.naptr.record import Naptr
from maptr.naptr.regexp import RegexpError, Substitution
from maptr.protocol.names import fold, parse
from maptr.protocol.numbers import NAPTR, NSEC3, SOA
from maptr.zone.check import examine
from maptr.zone.masterfile import read_master_file
from maptr.zone.rdata import META_TYPES, read_rdata
from maptr.zone.rrset import records_of
from tests.support import command_line
from tests.support.peers import CHECKERS, Nsd, output, run
from tests.support.random_zones import laid_out, zone_of_naans

ORIGIN = "example."
HEAD = "$TTL 60\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n"
OBSOLETE = {3, 4}  # MD and MF (RFC 973), for which BIND alone refuses a zone
TYPES = sorted(
    {*range(1, 70), *range(99, 110), *range(256, 270), 32768, 32769, 65280}
    - META_TYPES
    - {SOA, NSEC3, NAPTR}
    - OBSOLETE
)
PARTS = [
    *(
        b"\0",
        b"\1a\0",
        b"\2ns\7example\0",
        b"\xc0\x0c",
        b"\1a",
        b"\x40a\0",
        b"\0\1",
        b"\0\0",
        b"\0\1\0\3\2h2",
        b"\x041234",
    ),
    *(b"\0\4\0\4\1\1\1\1", b"\0\0\0\2\0\1", b"\0\2\0\0", b"\1", b"\0\1\x40", b"\xff\xff", b"\0\0\0\0\0"),
]
TRIES = 30_000


@pytest.mark.parametrize("seed", range(4))
def test_zones_with_records_of_every_type_are_read_as_bind_reads_them(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    # BIND refuses ``?*``, the rules of the NAAN ``*``.
    records = [record for record in zone_of_naans(rng) if "?*" not in record.rdata]
    source, canonical = tmp_path / "zone", tmp_path / "canonical"
    source.write_text(laid_out(rng, records))
    ignored = [word for option in "iknmMSrTW" for word in (f"-{option}", "none" if option == "i" else "ignore")]
    output("named-compilezone", *ignored, "-s", "full", "-o", canonical, ORIGIN, source)
    ours, bind = (
        {
            (key, *record)
            for key, packed in read_master_file(str(path), path.read_bytes(), fold(parse(ORIGIN))).nodes.table.items()
            for record in records_of(packed)
        }
        for path in (source, canonical)
    )
    assert ours == bind
    assert len(ours) == len({(one.owner.lower(), *one[1:]) for one in records})


def generic_data(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Yield types with random data made of the parts that the data of known types has."""
    for _ in range(TRIES):
        parts = [rng.choice([*PARTS, rng.randbytes(rng.randint(1, 9))]) for _ in range(rng.randint(0, 5))]
        yield rng.choice(TYPES), b"".join(parts)


def is_readable(rdtype: int, octets: bytes) -> bool:
    try:
        read_rdata(rdtype, ["\\#", str(len(octets)), octets.hex()], (b"example",))
    except ZoneError:
        return False
    return True


def test_bind_loads_the_data_that_maptr_reads(tmp_path: Path) -> None:
    corpus = [found for found in generic_data(random.Random(21)) if is_readable(*found)]
    assert len({rdtype for rdtype, _ in corpus}) > 0.9 * len(TYPES)
    lines = [f"n{i} TYPE{rdtype} \\# {len(octets)} {octets.hex()}\n" for i, (rdtype, octets) in enumerate(corpus)]
    text = HEAD + "".join(lines)
    assert [finding for finding in examine(text, origin=ORIGIN).findings if finding.severity == "error"] == []
    path = tmp_path / "zone"
    path.write_text(text)
    accepted, output = run("named-checkzone", "-i", "none", "-k", "ignore", ORIGIN, path)
    assert accepted, [(line, text.splitlines()[int(line) - 1]) for line in re.findall(r":(\d+): ", output)]


NAMES = [
    *("a_b A 192.0.2.1", "a-b A 192.0.2.1", "*.x AAAA ::1", "a_b TXT t", "*.x_y A 192.0.2.1", "x MX 10 a_b"),
    *("x MX 0 .", "a_b MX 10 a", "x NS a_b.test.", "_s SRV 1 2 3 a_b", "_s SRV 1 2 3 .", "x CNAME a_b"),
    *('_s NAPTR 1 1 "" "" "" a_b.', "x DNAME a_b", "x RP a_b a_b", "x- A 192.0.2.1", "-x A 192.0.2.1", "x PTR a_b"),
    *("* NS a.test.", f"* DS 1 13 2 {'00' * 32}", "x MB a_b", "* DNAME a", "\\*x A 192.0.2.1"),
    "x NSEC3 1 0 1 - 2t7b4g4vsa5smi47k61mv5bv1a22bojr A",
]


@pytest.mark.parametrize("line", NAMES)
def test_zone_check_has_a_finding_for_each_name_that_bind_refuses(line: str, tmp_path: Path) -> None:
    """With the check of names of a primary."""
    path = tmp_path / "zone"
    path.write_text(f"{HEAD}{line}\n")
    accepted, output = run("named-checkzone", "-i", "none", "-k", "fail", "-n", "fail", ORIGIN, path)
    assert bool(examine(path.read_text(), origin=ORIGIN).findings) is not accepted, output


# ---- regexps


COUNT = 8000
SAMPLE = 200  # about 10 ms each
ARK_HEAD = "$ORIGIN ark.arpa.\n$TTL 60\n@ SOA ns.example. h.example. 1 1 1 1 1\n@ NS ns.example.\n"
PIECES = [
    *"ab.*+?|()[]^$-{},12!i\\",
    *["(a)", "[a-b]", "[b-a]", "[^a]", "[]a]", "[[:alpha:]]", "[[:foo:]]", "[a-[:alpha:]]", "[a-b-c]"],
    *[r"{2}", r"{1,2}", r"{2,1}", r"{256}", r"\1", r"\.", r"(a|b)", r"(|a)", r"()"],
]


def fields(rng: random.Random, count: int) -> list[bytes]:
    """Random fields, most of them nearly good, so that both verdicts are common."""
    made: set[str] = set()
    while len(made) < count:
        ere = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 6)))
        replacement = rng.choice(["x", "", "\\1", "\\2", "x\\!", "\\0", "x!y"])
        made.add(f"!{ere}!{replacement}!{rng.choice(['', '', 'i', 'ii', 'x'])}")
    return sorted(text.encode() for text in made)


def verdict(field: bytes) -> str:
    try:
        Substitution.parse(field)
    except RegexpError as error:
        return "refused" if error.refused else "not understood"
    return "taken"


def write(path: Path, corpus: list[bytes]) -> Path:
    records = [f"n{i} NAPTR {Naptr(0, 0, b'u', b'ark', field, ()).to_text()}\n" for i, field in enumerate(corpus)]
    path.write_text(ARK_HEAD + "".join(records))
    return path


def test_bind_accepts_the_fields_that_maptr_does_not_refuse(tmp_path: Path) -> None:
    corpus = [field for field in fields(random.Random(35), COUNT) if verdict(field) != "refused"]
    assert len(corpus) > COUNT / 20
    assert {verdict(field) for field in corpus} == {"taken", "not understood"}
    accepted, output = CHECKERS["named-checkzone"]("ark.arpa.", write(tmp_path / "zone", corpus))
    assert accepted, [(line, corpus[int(line) - ARK_HEAD.count("\n") - 1]) for line in re.findall(r":(\d+): ", output)]


def test_bind_refuses_the_fields_that_maptr_refuses(tmp_path: Path) -> None:
    """One zone for each field: BIND does not report all errors of a zone."""
    corpus = [field for field in fields(random.Random(36), SAMPLE) if verdict(field) == "refused"]
    assert len(corpus) > SAMPLE / 3
    check = CHECKERS["named-checkzone"]
    assert [field for field in corpus if check("ark.arpa.", write(tmp_path / "zone", [field])).accepted] == []


# ---- the records of the draft


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
    discovery = discover("ark:12026/x1", nameservers=f"{draft_server.host}#{draft_server.port}")
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
    discovery = discover("ark:/12345/x1", nameservers=f"{draft_server.host}#{draft_server.port}")
    assert discovery.urls() == ["https://ark.spct.org/ark:12345/x1", "https://mirror.spct.org:8080/ark:12345/x1"]
    assert [step.depth for step in discovery.trace] == [0, 1]
    with pytest.raises(NoMappingAuthority):
        discover("ark:99999/x1", nameservers=f"{draft_server.host}#{draft_server.port}")


# ---- octoDNS


DOCS = Path(__file__).resolve().parents[2] / "docs"
ZONES = DOCS.parent / "zones"


def test_the_yaml_has_every_rule_of_the_zone(tmp_path: Path) -> None:
    page = (DOCS / "admin.md").read_text()
    (config,) = re.findall(r"^```yaml octodns.yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "octodns.yaml").write_text(config)
    (tmp_path / "octodns").mkdir()
    file = tmp_path / "octodns" / "ark.arpa.zone"
    command_line.run("zone", "build", ZONES / "sample.json", "-o", file, "--ns", "ns1=192.0.2.1", code=0)
    dump = Path(sys.executable).with_name("octodns-dump")
    words = ["--config-file", "octodns.yaml", "--output-dir", "octodns", "--lenient", "ark.arpa.", "zonefile"]
    output(str(dump), *words, cwd=tmp_path)
    found = set()
    for name, records in yaml.safe_load((tmp_path / "octodns" / "ark.arpa.yaml").read_text()).items():
        for record in records if isinstance(records, list) else [records]:
            for value in record.get("values") or [record["value"]] if record["type"] == "NAPTR" else ():
                rank = value["order"], value["preference"], value["flags"].lower(), value["service"]
                found.add((name, *rank, value["regexp"], value["replacement"]))
    zone = dns.zone.from_file(str(file), relativize=True)
    meant = set()
    rdata: Any
    for name, _, rdata in zone.iterate_rdatas(dns.rdatatype.NAPTR):
        rank = rdata.order, rdata.preference, rdata.flags.decode().lower(), rdata.service.decode()
        regexp = rdata.regexp.decode().replace("\\", "\\\\")
        meant.add((name.to_text(), *rank, regexp, rdata.replacement.to_text()))
    assert found == meant
    assert len(found) > 20
