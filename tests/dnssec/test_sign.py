"""Signing: who signs what, what stays unsigned, the digest, serials, key folders that must be refused, the alarm.

That real validators accept what is signed here is held in ``tests/interop/test_signing.py``.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import logging
import os
import re
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import dns.dnssec
import dns.exception
import dns.name
import dns.node
import dns.rdata
import dns.rdataset
import dns.rdatatype
import dns.zone
import pytest
from click.testing import CliRunner, Result
from dns.rdatatype import CDNSKEY, CDS, DNSKEY, MX, NS, NSEC, RRSIG, SOA, TXT, ZONEMD, A
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.cli.group import main
from maptr.dnssec import keys as zonekeys
from maptr.dnssec.expiry import EXPIRING, Signatures, signature_state
from maptr.dnssec.keys import Algorithm, Key, KeySet, Role, State, add_key, ds_rdata, read_keys, remove_key, set_state
from maptr.dnssec.policy import Children, Policy
from maptr.dnssec.sign import is_current
from maptr.errors import SigningError, ZoneError
from maptr.server import status
from maptr.server.state import Served, ZoneSource, ZoneState
from maptr.server.zone_file import read_zone
from maptr.zone import text as zonetext
from maptr.zone.snapshot import view_zone
from tests.support.signing import sign_zone

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519", reason="signing needs maptr[dnssec]")

NOW = 1_800_000_000
TEXT = """\
$ORIGIN example.
$TTL 3600
@       SOA   ns1 hostmaster 7 7200 3600 1209600 300
@       NS    ns1
ns1     A     192.0.2.1
a.b     TXT   "a\\200"
*.w     MX    10 port\\058.example.
del     NS    del
del     DS    12345 13 2 0000000000000000000000000000000000000000000000000000000000000001
del     A     192.0.2.2
ns.del  A     192.0.2.3
dname   DNAME target
x.dname A     192.0.2.4
12345   NAPTR 10 10 "u" "ark" "!^ark:(.*)$!https://h.example:8443/\\\\1!" .
12345   NAPTR 100 10 "h" "ark" "" h.example\\0588443.
"""
ORIGIN = dns.name.from_text("example.")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[Role, Key]:
    """One active key a role: KSK and ZSK of ECDSA, the CSK of Ed25519."""
    folder = tmp_path_factory.mktemp("keys") / "example"
    algorithms = {Role.KSK: Algorithm.ECDSAP256SHA256, Role.ZSK: Algorithm.ECDSAP256SHA256, Role.CSK: Algorithm.ED25519}
    return {role: add_key(folder, role, algorithm, State.ACTIVE).key for role, algorithm in algorithms.items()}


def zone() -> dns.zone.Zone:
    return dns.zone.from_text(TEXT, relativize=False)


def sign(*signers: Key, policy: Policy | None = None, serial: int = 7) -> dns.zone.Zone:
    return sign_zone(zone(), signers, now=NOW, serial=serial, policy=policy)


def text_of(made: dns.zone.Zone) -> str:
    return zonetext.to_text(view_zone(made))


def tags(signed: dns.zone.Zone, owner: str, covered: dns.rdatatype.RdataType) -> set[int]:
    found = signed.get_rdataset(dns.name.from_text(owner, ORIGIN), RRSIG, covered)
    return {rdata.key_tag for rdata in found or ()}


def test_each_key_signs_what_it_is_for(keys: dict[Role, Key]) -> None:
    ksk, zsk = keys[Role.KSK], keys[Role.ZSK]
    signed = sign(ksk, zsk)
    for covered in (DNSKEY, CDS, CDNSKEY):
        assert tags(signed, "@", covered) == {ksk.tag}
    for owner, covered in (("@", SOA), ("@", NS), ("@", ZONEMD), ("ns1", A), ("a.b", TXT), ("*.w", MX), ("del", NSEC)):
        assert tags(signed, owner, covered) == {zsk.tag}, (owner, covered)


@pytest.mark.parametrize("roles", [(Role.KSK, Role.ZSK), (Role.CSK,)], ids=["ksk and zsk", "csk"])
def test_every_signature_verifies(keys: dict[Role, Key], roles: tuple[Role, ...]) -> None:
    signed = sign(*(keys[role] for role in roles))
    dnskeys = {ORIGIN: signed.get_rdataset(ORIGIN, DNSKEY)}
    count = 0
    for name, rdataset in signed.iterate_rdatasets():
        signatures = signed.get_rdataset(name, RRSIG, rdataset.rdtype)
        if rdataset.rdtype != RRSIG and signatures:
            dns.dnssec.validate((name, rdataset), (name, signatures), dnskeys, ORIGIN, NOW)  # type: ignore[arg-type]
            count += 1
    assert count == 19
    soa, signature = ((ORIGIN, signed.find_rdataset(ORIGIN, *kind)) for kind in ((SOA,), (RRSIG, SOA)))
    for late in (NOW - 3601, NOW + 14 * 86400 + 1):
        with pytest.raises(dns.exception.ValidationFailure):
            dns.dnssec.validate(soa, signature, dnskeys, ORIGIN, late)  # type: ignore[arg-type]


def test_what_we_have_no_authority_over_is_not_signed(keys: dict[Role, Key]) -> None:
    """RFC 4035 2.2 and 2.3: glue has neither signature nor NSEC, and is no type of the cut's NSEC."""
    signed = sign(keys[Role.CSK])
    assert tags(signed, "del", NS) == tags(signed, "del", A) == tags(signed, "ns.del", A) == tags(signed, "x.dname", A)
    assert tags(signed, "del", A) == set()
    nsec = signed.find_rdataset("del", NSEC)[0]
    assert nsec.to_text() == "dname.example. NS DS RRSIG NSEC"
    assert signed.find_rdataset("dname", NSEC)[0].to_text().startswith("ns1.example. ")
    assert signed.get_rdataset("ns.del", NSEC) is None
    assert signed.find_rdataset("ns.del", A)[0].to_text() == "192.0.2.3"


def test_nsec_lives_as_long_as_a_negative_answer(keys: dict[Role, Key]) -> None:
    """RFC 9077 3: the lesser of the SOA's TTL and its minimum."""
    low = dns.zone.from_text(TEXT.replace("$TTL 3600", "$TTL 60"), relativize=False)
    signed = sign_zone(low, [keys[Role.CSK]], now=NOW, serial=7)
    assert {rdataset.ttl for _, rdataset in signed.iterate_rdatasets(NSEC)} == {60}
    assert {rdataset.ttl for _, rdataset in sign(keys[Role.CSK]).iterate_rdatasets(NSEC)} == {300}


def test_the_digest_is_of_the_whole_zone(keys: dict[Role, Key]) -> None:
    """RFC 8976, glue included; a change of one octet is found."""
    signed = sign(keys[Role.CSK], serial=99)
    signed.verify_digest()
    assert signed.find_rdataset(ORIGIN, ZONEMD)[0].serial == 99
    signed.find_rdataset("ns.del", A, create=True).add(dns.rdata.from_text("IN", "A", "192.0.2.9"), 3600)
    with pytest.raises(dns.zone.DigestVerificationFailure):
        signed.verify_digest()
    assert sign(keys[Role.CSK], policy=Policy(zonemd=False)).get_rdataset(ORIGIN, ZONEMD) is None


def test_signing_changes_nothing_of_its_input_and_gives_the_same_again(keys: dict[Role, Key]) -> None:
    unsigned = zone()
    texts = {
        text_of(sign_zone(unsigned, [keys[role] for role in roles], now=NOW, serial=8))
        for roles in ((Role.KSK, Role.ZSK), (Role.ZSK, Role.KSK), (Role.KSK, Role.ZSK))
    }
    assert len(texts) == 1
    assert unsigned == zone()
    assert not unsigned.get_rdataset(ORIGIN, DNSKEY)


def test_signing_a_signed_zone_leaves_nothing_of_the_old_keys(keys: dict[Role, Key]) -> None:
    signed = sign(keys[Role.KSK], keys[Role.ZSK])
    again = sign_zone(signed, [keys[Role.CSK]], now=NOW, serial=7)
    assert text_of(again) == text_of(sign(keys[Role.CSK]))


@pytest.mark.parametrize(
    ("change", "current"),
    [
        ({}, True),
        ({"text": TEXT.replace(" 7 ", " 8 ", 1)}, True),
        ({"text": TEXT.replace("192.0.2.1", "192.0.2.9")}, False),
        ({"text": TEXT.replace("192.0.2.3", "192.0.2.9")}, False),
        ({"text": TEXT + "new A 192.0.2.1\n"}, False),
        ({"policy": Policy(zonemd=False)}, False),
        ({"policy": Policy(cds=Children.NONE)}, False),
        ({"policy": Policy(dnskey_ttl=60)}, False),
    ],
)
def test_what_is_still_good_is_known(keys: dict[Role, Key], change: dict[str, object], current: bool) -> None:
    ksk, zsk = keys[Role.KSK], keys[Role.ZSK]
    old = dns.zone.from_text(text_of(sign(ksk, zsk)), "example.", relativize=False)
    now = dns.zone.from_text(str(change.get("text", TEXT)), relativize=False)
    policy = change.get("policy", Policy())
    assert isinstance(policy, Policy)
    assert is_current(view_zone(old), view_zone(now), KeySet((ksk, zsk)), policy) is current


def test_a_key_that_is_retired_makes_another_zone(keys: dict[Role, Key]) -> None:
    """It signs and is there as before, but CDS speaks of it no more."""
    old = view_zone(sign(*keys.values()))
    retired = replace(keys[Role.KSK], state=State.RETIRED)
    assert is_current(old, view_zone(zone()), KeySet(tuple(keys.values())), Policy())
    assert not is_current(old, view_zone(zone()), KeySet((retired, keys[Role.ZSK], keys[Role.CSK])), Policy())


def test_other_signers_make_another_zone(keys: dict[Role, Key]) -> None:
    ksk, zsk = keys[Role.KSK], keys[Role.ZSK]
    old, plain = view_zone(sign(ksk, zsk, replace(keys[Role.CSK], role=Role.CSK))), view_zone(zone())
    waiting = replace(keys[Role.CSK], role=Role.CSK, state=State.PUBLISHED)
    assert not is_current(old, plain, KeySet((ksk, zsk, waiting)), Policy())
    assert not is_current(old, plain, KeySet((ksk, zsk)), Policy())


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ([], "no active KSK or CSK"),
        ([Role.ZSK], "no active KSK or CSK"),
        ([Role.KSK], "no active ZSK and no CSK"),
    ],
)
def test_keys_without_a_chain_are_refused(keys: dict[Role, Key], chosen: list[Role], reason: str) -> None:
    with pytest.raises(SigningError, match=reason):
        KeySet(tuple(keys[role] for role in chosen))


def test_an_algorithm_that_signs_only_half_is_refused(keys: dict[Role, Key]) -> None:
    """RFC 4035 2.2: a validator may ask for each algorithm of the DNSKEY RRset in every answer."""
    waiting = replace(keys[Role.ZSK], state=State.PUBLISHED)
    with pytest.raises(SigningError, match=r"ZSK \d+ \(ecdsap256sha256, published\): every algorithm"):
        KeySet((keys[Role.CSK], waiting))
    KeySet((keys[Role.CSK], keys[Role.KSK], keys[Role.ZSK]))


def test_cds_and_ds_speak_of_the_active_keys(keys: dict[Role, Key]) -> None:
    old = replace(keys[Role.KSK], state=State.RETIRED)
    signed = sign(old, keys[Role.ZSK], keys[Role.CSK])
    (entry,) = KeySet((old, keys[Role.ZSK], keys[Role.CSK])).entries
    assert [rdata.to_wire() for rdata in signed.find_rdataset(ORIGIN, CDS)] == [ds_rdata((b"Example",), entry)]
    assert len(signed.find_rdataset(ORIGIN, CDNSKEY)) == 1
    assert tags(signed, "@", DNSKEY) == {old.tag, keys[Role.CSK].tag}
    gone = sign(keys[Role.CSK], policy=Policy(cds=Children.DELETE))
    assert gone.find_rdataset(ORIGIN, CDS)[0].to_text() == "0 0 0 00"
    assert sign(keys[Role.CSK], policy=Policy(cds=Children.NONE)).get_rdataset(ORIGIN, CDS) is None


@pytest.mark.parametrize("times", [{"lifetime": 100, "refresh": 100}, {"refresh": -1}, {"inception_offset": -1}])
def test_a_policy_that_cannot_hold_is_refused(times: dict[str, int]) -> None:
    with pytest.raises(SigningError, match="cannot be renewed"):
        Policy(**times)  # type: ignore[arg-type]


# ---- the text


def test_names_that_readers_mistake_are_written_for_all(keys: dict[Role, Key]) -> None:
    text = text_of(sign(keys[Role.CSK]))
    assert '"" h.example\\0588443.' in text
    assert "port:" not in text
    again = dns.zone.from_text(text, "example.", relativize=False)
    assert text_of(again) == text
    assert text.splitlines()[0] == "example. 3600 IN SOA ns1.example. hostmaster.example. 7 7200 3600 1209600 300"


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4))
@settings(max_examples=50)
def test_any_name_comes_through_the_text(labels: list[bytes]) -> None:
    made = zone()
    name = dns.name.Name((*labels, b"example", b""))
    for rdata in _pointing(name):
        made.find_rdataset(name, rdata.rdtype, create=True).add(rdata, 60)
    assert dns.zone.from_text(text_of(made), "example.", relativize=False) == made


def _pointing(name: dns.name.Name) -> list[dns.rdata.Rdata]:
    wire = name.to_wire()
    assert wire is not None
    return [
        dns.rdata.from_wire("IN", "PTR", wire, 0, len(wire)),
        dns.rdata.from_wire("IN", "MX", b"\0\1" + wire, 0, len(wire) + 2),
    ]


# ---- the folder


def test_keys_are_files_that_only_their_owner_reads(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    path, key = add_key(folder, Role.CSK, Algorithm.ED25519, State.ACTIVE)
    assert path.name == f"csk-ed25519-{key.tag:05d}.active.pem"
    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    (read,) = read_keys(folder)
    assert (read.path, read.key.rdata) == (path, key.rdata)
    assert set_state(folder, key.tag, State.RETIRED).path.name.endswith(".retired.pem")
    assert not path.exists()
    assert remove_key(folder, key.tag).key.tag == key.tag
    assert read_keys(folder) == []


def test_a_key_that_is_half_written_is_none(tmp_path: Path) -> None:
    """An empty file in its name, left by kill -9, kept the zone from being signed until somebody removed it."""
    program = f"""
import os, signal
from pathlib import Path
from maptr.dnssec.keys import *
os.fdopen = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
add_key(Path({str(tmp_path / "keys")!r}), Role.CSK, Algorithm.ED25519, State.ACTIVE)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == -signal.SIGKILL
    assert read_keys(tmp_path / "keys") == []
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    assert [file.path for file in read_keys(tmp_path / "keys")] == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_active_key_is_not_removed(tmp_path: Path) -> None:
    path, key = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    with pytest.raises(SigningError, match="retire it first"):
        remove_key(path.parent, key.tag)
    assert path.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    path.chmod(mode)
    with pytest.raises(SigningError, match=rf"\.pem: is open to others \(mode {mode:04o}\): chmod 600 it"):
        read_keys(path.parent)


def test_a_file_is_no_folder_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "zone"
    file.touch(0o644)
    with pytest.raises(SigningError, match="zone: is not a directory"):
        read_keys(file)


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    path.parent.chmod(0o750)
    with pytest.raises(SigningError, match="keys: is open to others"):
        read_keys(path.parent)


def _spoil(path: Path, how: str) -> None:
    text = path.read_text()
    if how == "name":
        path.rename(path.with_name("key.pem"))
    elif how == "tag":
        path.rename(path.with_name("csk-ed25519-00001.active.pem"))
    elif how == "algorithm":
        path.rename(path.with_name(path.name.replace("ed25519", "ecdsap256sha256")))
    elif how == "content":
        path.write_text(text.replace("MC4", "XX4"))
    elif how == "empty":
        path.write_text("")
    elif how == "large":
        path.write_text(text + "x" * 5000)
    elif how == "public":
        lines = text.replace("PRIVATE", "PUBLIC")
        path.write_text(lines)


@pytest.mark.parametrize("how", ["name", "tag", "algorithm", "content", "empty", "large", "public"])
def test_a_bad_key_file_is_named_and_its_secret_is_not(tmp_path: Path, how: str) -> None:
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    secret = path.read_text().splitlines()[1]
    _spoil(path, how)
    with pytest.raises(SigningError) as caught:
        read_keys(path.parent)
    assert str(caught.value).startswith(str(path.parent) + "/")
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("algorithm", ["rsasha256", "ecdsap384sha384", "ed448"])
def test_an_algorithm_that_is_not_for_signing_is_named(tmp_path: Path, algorithm: str) -> None:
    path, _ = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    moved = path.rename(path.with_name(path.name.replace("ed25519", algorithm)))
    with pytest.raises(SigningError, match=rf"{moved.name}: maptr signs with .* and ed25519 .*, not with {algorithm}$"):
        read_keys(path.parent)


def test_no_text_of_a_key_has_its_secret(tmp_path: Path) -> None:
    path, key = add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    secret = path.read_text().splitlines()[1]
    for text in (repr(key), str(key), repr(read_keys(path.parent))):
        assert secret not in text
        assert "Private" not in text


def test_without_the_package_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    monkeypatch.setattr(zonekeys, "find_spec", lambda name: None)
    for attempt in (
        lambda: read_keys(tmp_path / "keys"),
        lambda: add_key(tmp_path / "new", Role.CSK, Algorithm.ED25519, State.ACTIVE),
    ):
        with pytest.raises(SigningError, match=r"pip install 'maptr\[dnssec\]'"):
            attempt()
    assert not (tmp_path / "new").exists()


# ---- the command line


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["zone", *map(str, arguments)])


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with a zone and one key."""
    # Names below a DNAME are passed over in signing, and refused in a file.
    (tmp_path / "in.zone").write_text(TEXT.replace("x.dname A     192.0.2.4\n", ""))
    assert run("keys", "add", tmp_path / "keys").exit_code == 0
    return tmp_path


def serial(path: Path) -> int:
    return int(path.read_text().split(" ", 7)[6])


def test_a_zone_is_signed_once_until_something_changes(work: Path) -> None:
    source, target = work / "in.zone", work / "out.zone"
    arguments = ("sign", source, work / "keys", "-o", target)
    assert run(*arguments, "--at", 2**32).exit_code == 2  # more than a signature can say
    assert run(*arguments, "--at", NOW).exit_code == 0
    first = target.read_text()
    assert serial(target) == 7
    done = run(*arguments, "--at", NOW + 6 * 86400)
    assert (done.exit_code, target.read_text()) == (0, first)
    assert "unchanged" in done.output
    assert run(*arguments, "--at", NOW + 8 * 86400).exit_code == 0  # within --refresh of the end
    assert serial(target) == 8
    source.write_text(source.read_text().replace("192.0.2.1", "192.0.2.9"))  # the same serial, so the next one
    assert run(*arguments, "--at", NOW + 8 * 86400).exit_code == 0
    assert serial(target) == 9
    source.write_text(source.read_text().replace(" 7 ", " 2026010100 ", 1).replace("192.0.2.9", "192.0.2.1"))
    assert "unchanged" not in run(*arguments, "--at", NOW + 8 * 86400).output
    assert serial(target) == 2026010100
    assert run(*arguments, "--at", NOW + 8 * 86400, "--force").exit_code == 0
    assert serial(target) == 2026010101


def test_a_serial_that_alone_rose_is_published_and_new_signatures_are_kept(work: Path) -> None:
    source, target = work / "in.zone", work / "out.zone"
    arguments = ("sign", source, work / "keys", "-o", target)
    assert run(*arguments, "--at", NOW).exit_code == 0
    first = rrsigs(target)
    source.write_text(source.read_text().replace(" 7 ", " 12 ", 1))
    done = run(*arguments, "--at", NOW + 60)
    assert (done.exit_code, serial(target)) == (0, 12)
    assert "unchanged" not in done.output
    assert f"signed until {at(NOW + 14 * 86400)}" in done.output, "the first end of any signature"
    assert len(rrsigs(target) - first) == 2, "of SOA and ZONEMD"
    assert run(*arguments, "--at", NOW + 120, "--force").exit_code == 0
    assert not rrsigs(target) & first
    assert serial(target) == 13


def rrsigs(path: Path) -> set[str]:
    return {line for line in path.read_text().splitlines() if " IN RRSIG " in line}


def at(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_a_key_of_the_same_tag_signs_anew(keys: dict[Role, Key], monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 4034 appendix B: tags are no names of keys, so a signature is kept where the key itself was in the zone."""
    old = sign(keys[Role.CSK])
    other = replace(keys[Role.CSK], private=Algorithm.ED25519.private_class(ed25519.Ed25519PrivateKey.generate()))
    monkeypatch.setattr(Key, "tag", keys[Role.CSK].tag)
    signed = sign_zone(zone(), [other], now=NOW + 60, serial=8, old=old)
    before = {rdata for _, rdataset in old.iterate_rdatasets() if rdataset.rdtype == RRSIG for rdata in rdataset}
    after = {rdata for _, rdataset in signed.iterate_rdatasets() if rdataset.rdtype == RRSIG for rdata in rdataset}
    assert not before & after


def test_what_signing_reads_is_never_what_it_writes(work: Path) -> None:
    path, part = work / "in.zone", work / "part"
    part.write_text("included A 192.0.2.7\n")
    with path.open("a") as file:
        file.write(f"$INCLUDE {part}\n")
    (key,) = (work / "keys").iterdir()
    for out in (path, part, key):
        before = out.read_bytes()
        done = run("sign", path, work / "keys", "-o", out, "--overwrite")
        assert (done.exit_code, out.read_bytes()) == (2, before)
        assert "input and output are the same file" in done.output
    assert "included.example. " in run("sign", path, work / "keys").output


def test_signing_replaces_what_is_the_zone_and_has_its_names(work: Path) -> None:
    out = work / "out"
    out.write_text("my notes")
    assert run("sign", work / "in.zone", work / "keys", "-o", out).exit_code == 2
    assert out.read_text() == "my notes"
    done = run("sign", work / "in.zone", work / "keys", "-o", out, "--overwrite", "--json")
    assert (done.exit_code, json.loads(done.stdout)["written"]) == (0, True)
    assert json.loads(run("sign", work / "in.zone", work / "keys", "-o", out, "--json").stdout)["written"] is False
    before = out.read_text()
    (work / "few").write_text("example. 60 IN SOA a. b. 9999 2 3 4 5\nexample. 60 IN NS a.\n")
    done = run("sign", work / "few", work / "keys", "-o", out)
    assert (done.exit_code, out.read_text()) == (1, before)
    assert "stays as it is: it lost" in done.output


@pytest.mark.parametrize("pem", [None, "fullchain.pem"])
def test_a_folder_that_is_not_of_keys_is_not_to_be_closed(pem: str | None, work: Path) -> None:
    folder = work / "etc"
    folder.mkdir(mode=0o755)
    if pem is not None:
        (folder / pem).write_text("a certificate")
    for words in (["sign", work / "in.zone", folder], ["keys", "list", folder], ["keys", "add", folder]):
        done = run(*words)
        assert (done.exit_code, "chmod" in done.output) == (1, False)
        assert f"{folder}: is not a key folder" in done.output
    folder.chmod(0o700)
    assert "chmod" not in run("sign", work / "in.zone", folder).output


def test_what_checks_a_zone_says_that_its_signatures_are_over(work: Path) -> None:
    path = work / "over.zone"
    assert run("sign", work / "in.zone", work / "keys", "-o", path, "--at", 1700000000).exit_code == 0
    over = "signatures expired at 2023-11-28T22:13:20Z: validators answer SERVFAIL; sign the zone again"
    checked = run("check", path)
    assert (checked.exit_code, checked.stdout) == (0, f"{path}: warning: example.: signatures: {over}\n")
    assert run("check", "--strict", path).exit_code == 1
    serve = ["serve", "--zone", f"example={path}", "--listen", "127.0.0.1:5300", "--check-config"]
    started = CliRunner().invoke(main, serve)
    assert (started.exit_code, started.stderr) == (0, f"maptr: zone example.: {over}\n")
    assert run("sign", work / "in.zone", work / "keys", "-o", path).exit_code == 0
    assert run("check", "--strict", path).exit_code == 0
    assert CliRunner().invoke(main, serve).stderr == ""


def test_the_same_time_gives_the_same_zone(work: Path) -> None:
    texts = [run("sign", work / "in.zone", work / "keys", "--at", NOW).stdout for _ in range(2)]
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize(
    "words",
    [
        ["zone", "sign", "in.zone", "keys"],
        ["zone", "keys", "add", "keys"],
        ["zone", "keys", "list", "keys"],
        ["table", "pull", "registry", "--table", "natab", "--public-key", "registry.pub"],
        ["serve", "--config", "maptr.toml", "--check-config"],
    ],
    ids=" ".join,
)
def test_without_the_package_to_sign_with_it_is_named(work: Path, words: list[str]) -> None:
    done = _without_cryptography(work, words)
    assert done.returncode == 2
    assert "need" in done.stderr
    assert "the package cryptography: pip install 'maptr[dnssec]'\n" in done.stderr


def test_without_it_a_server_that_is_to_sign_says_so_and_serves_the_other_zones(work: Path) -> None:
    done = _without_cryptography(work, ["serve", "--config", "maptr.toml"], until="ready")
    refused = "ERROR maptr: zone example. not signed, queries get SERVFAIL, next try in 60 s: signing needs the package"
    assert refused in done.stderr
    assert "ready, serving 1 zone on 127.0.0.1:" in done.stderr


def _without_cryptography(work: Path, words: list[str], *, until: str = "") -> subprocess.CompletedProcess[str]:
    """A command in a process that has not the package; one that goes on is ended when it has said a word."""
    (work / "registry.pub").write_text("")
    (work / "maptr.toml").write_text(
        '[serve]\nlisten = ["127.0.0.1:0"]\nstate = "state"\n'
        '[[zone]]\nname = "example"\nfile = "in.zone"\nkeys = "keys"\n'
        '[[zone]]\nname = "other.example"\nfile = "other.zone"\n'
    )
    (work / "other.zone").write_text((work / "in.zone").read_text().replace("example.", "other.example."))
    program = "import sys; sys.modules['cryptography'] = None; from maptr.cli.start import run; run()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        said = ""
        if until and process.stderr is not None:
            for line in process.stderr:
                said += line
                if until in line:
                    process.terminate()
                    break
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, said + err)


def test_errors_leave_the_old_zone_and_say_what_to_do(work: Path) -> None:
    target = work / "out.zone"
    target.write_text("kept")
    (work / "bad.zone").write_text(TEXT + "x A nonsense\n")
    assert run("sign", work / "bad.zone", work / "keys", "-o", target).exit_code == 1
    assert run("sign", work / "none.zone", work / "keys", "-o", target).exit_code == 8
    done = run("sign", work / "in.zone", work / "nokeys", "-o", target)
    assert (done.exit_code, f"it is made by: maptr zone keys add {work}/nokeys" in done.output) == (8, True)
    done = run("sign", work / "in.zone", work / "keys", "-o", work / "none" / "out.zone")
    assert (done.exit_code, f"{work}/none/out.zone: No such file" in done.output) == (8, True)
    (work / "keys").chmod(0o755)
    done = run("sign", work / "in.zone", work / "keys", "-o", target)
    assert done.exit_code == 1
    assert "chmod 700" in done.output
    assert run("sign", work / "in.zone", work / "keys", "--lifetime", "soon").exit_code == 2
    (work / "keys").chmod(0o700)
    done = run("sign", work / "in.zone", work / "keys", "--lifetime", "7d")
    assert (done.exit_code, "cannot be renewed" in done.output) == (1, True)
    assert target.read_text() == "kept"


def test_a_signed_zone_that_was_damaged_is_signed_anew(work: Path) -> None:
    """Its digest tells, where else only a validator would: all was said to be good until the signatures were due."""
    source, target = work / "in.zone", work / "out.zone"
    arguments = ("sign", source, work / "keys", "-o", target)
    assert run(*arguments, "--at", NOW).exit_code == 0
    whole = target.read_text()
    (line,) = [line for line in whole.splitlines() if line.startswith("a.b.") and " RRSIG TXT " in line]
    for damaged in (whole.replace(f"{line}\n", ""), whole.replace(line[-10:], line[-10:].swapcase())):
        assert damaged != whole
        target.write_text(damaged)
        done = run(*arguments, "--at", NOW)
        assert (done.exit_code, "unchanged" in done.output) == (0, False)
        assert f"{target}: its ZONEMD does not verify" in done.output
        assert "no signature in it is kept" in done.output
        assert serial(target) == 8
        assert line in target.read_text()


@pytest.mark.parametrize("name", ["in.zone", "other.zone"], ids=["the file", "a file it includes"])
def test_a_byte_order_mark_is_refused_where_it_is(work: Path, name: str) -> None:
    """BIND, NSD and Knot refuse it too, as a part of the first name."""
    (work / "other.zone").write_text("included A 192.0.2.7\n")
    with (work / "in.zone").open("a") as file:
        file.write(f"$INCLUDE {work / 'other.zone'}\n" if name == "other.zone" else "")
    (work / name).write_bytes(codecs.BOM_UTF8 + (work / name).read_bytes())
    reason = "begins with a byte order mark, which name servers take for a part of the first name: save it without"
    if name == "in.zone":
        done = run("sign", work / name, work / "keys")
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"{work / name}:1: error: the file: byte-order-mark: {reason}" in done.output
        assert "byte-order-mark" in run("check", work / name).output
    with pytest.raises(ZoneError, match=re.escape(f"{work / name}:1: {reason}")):
        read_zone(ZoneSource((b"example",), work / "in.zone"))


def test_ends_of_lines_are_those_of_any_system(work: Path) -> None:
    made = run("sign", work / "in.zone", work / "keys", "--at", NOW)
    (work / "in.zone").write_bytes((work / "in.zone").read_bytes().replace(b"\n", b"\r\n"))
    assert run("sign", work / "in.zone", work / "keys", "--at", NOW).stdout == made.stdout != ""


def test_a_bar_is_for_terminals_alone(work: Path) -> None:
    shown = run("sign", work / "in.zone", work / "keys", "-o", work / "out.zone").output
    assert "names" not in shown
    assert "\x1b" not in shown
    command = [sys.executable, "-m", "maptr", "zone", "sign", "--force", "in.zone", "keys", "-o", "out.zone"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    ours, theirs = os.openpty()
    told = bytearray()
    with subprocess.Popen(command, cwd=work, env=environment, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # EIO where the other end of a terminal is gone
            while part := os.read(ours, 65536):
                told += part
        os.close(ours)
        assert process.wait() == 0
    seen = told.decode()
    assert "names signed" in seen
    assert "100%" in seen
    assert "signed until" in seen


def test_keys_are_listed_moved_and_shown_to_the_parent(work: Path) -> None:
    folder = work / "keys"
    assert " published " in run("keys", "add", folder).stdout
    assert " zsk ed25519 active " in run("keys", "add", folder, "--role", "zsk", "--algorithm", "ed25519").stdout
    listed = run("keys", "list", folder).stdout.splitlines()
    assert len(listed) == 3
    active = next(line.split()[0] for line in listed if " csk ecdsap256sha256 active " in line)
    shown = run("keys", "ds", folder, "example").stdout
    assert shown.startswith(f"example. IN DS {int(active)} 13 2 ")
    assert run("keys", "ds", folder, "example", "--dnskey").stdout.startswith("example. IN DNSKEY 257 3 13 ")
    assert run("keys", "remove", folder, active).exit_code == 1
    assert run("keys", "set", folder, active, "retired").exit_code == 0
    assert run("keys", "ds", folder, "example").exit_code == 1
    assert run("keys", "remove", folder, active).exit_code == 0
    assert '"state": "published"' in run("keys", "list", folder, "--json").stdout
    assert run("keys", "set", folder, active, "active").exit_code == 1


# ---- the alarm


def test_signatures_have_a_state(keys: dict[Role, Key], caplog: pytest.LogCaptureFixture) -> None:
    view = view_zone(sign(keys[Role.CSK]))
    source = ZoneSource(view.origin, Path("example.zone"))
    end = NOW + Policy().lifetime
    states = {
        NOW: Signatures.OK,
        end - EXPIRING: Signatures.OK,
        end - EXPIRING + 1: Signatures.EXPIRING,
        end - 1: Signatures.EXPIRING,
        end: Signatures.EXPIRED,
        NOW - 3600: Signatures.OK,
        NOW - 3601: Signatures.NOT_YET,
    }
    for now, state in states.items():
        found = signature_state(view, now)
        assert (found.state, found.expires) == (state, end)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "maptr.serve"):
            status.log_alarms(Served({view.origin: ZoneState(source).serving(view, now)}), now)
        assert bool(caplog.records) is found.is_alarm
        assert all("zone example.: signatures" in record.getMessage() for record in caplog.records)
    assert signature_state(view_zone(zone()), NOW).state is Signatures.UNSIGNED


def test_the_earliest_end_counts(keys: dict[Role, Key]) -> None:
    signed, later = sign(keys[Role.CSK]), sign_zone(zone(), [keys[Role.CSK]], now=NOW + 86400, serial=7)
    for name, rdataset in later.iterate_rdatasets():
        if rdataset.rdtype == RRSIG and rdataset.covers != TXT:
            signed.find_node(name).replace_rdataset(rdataset)
    assert signature_state(view_zone(signed), NOW).expires == NOW + Policy().lifetime


def test_times_wrap_in_2106(keys: dict[Role, Key]) -> None:
    """RFC 4034 3.1.5: 32 bits, compared by serial number arithmetic."""
    at = 2**32 - 86400
    view = view_zone(sign_zone(zone(), [keys[Role.CSK]], now=at, serial=1, policy=Policy(lifetime=14 * 86400)))
    found = signature_state(view, at + 2 * 86400)
    assert (found.state, found.expires) == (Signatures.OK, at + 14 * 86400)
