"""``maptr zone sign`` and ``maptr zone keys``: when a zone is signed, what is written, and errors."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import dns.dnssec
import dns.name
import dns.zone
import pytest
from click.testing import Result

from maptr.dnssec.keys import MARGIN, ZoneKey, read_keys
from maptr.errors import ZoneError
from maptr.protocol.address import Address
from maptr.protocol.names import Folded
from maptr.zone import text as zonetext
from maptr.zone.check import read_zone
from tests.support import command_line
from tests.support.running import answering, daemon_of
from tests.support.signing import NOW, TEXT
from tests.support.waiting import PATIENCE
from tests.support.zones import snapshot_of_zones

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519", reason="signing needs maptr[dnssec]")

run = partial(command_line.run, "zone")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Make a directory with a zone and one key."""
    # The reader of zone files refuses a name below a DNAME, and serve warns of a mail server without an address.
    (tmp_path / "in.zone").write_text(TEXT.replace("x.dname A", r"port\058 A"))
    assert run("keys", "add", tmp_path / "keys").exit_code == 0
    return tmp_path


def serial(path: Path) -> int:
    return int(path.read_text().split(" ", 7)[6])


def rrsigs(path: Path) -> set[str]:
    return {line for line in path.read_text().splitlines() if " IN RRSIG " in line}


def at(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_a_zone_is_signed_once_until_something_changes(work: Path) -> None:
    source, target = work / "in.zone", work / "out.zone"
    arguments = ("sign", source, work / "keys", "-o", target)
    assert run(*arguments, "--at", 2**32).exit_code == 2  # more than a signature can hold
    assert run(*arguments, "--at", NOW).exit_code == 0
    first = target.read_text()
    assert serial(target) == 7
    run(*arguments, "--at", NOW + 6 * 86400, code=0, said="unchanged")
    assert target.read_text() == first
    assert run(*arguments, "--at", NOW + 8 * 86400).exit_code == 0  # closer to their end than --refresh
    assert serial(target) == 8
    source.write_text(source.read_text().replace("192.0.2.1", "192.0.2.9"))  # the same serial, so signing increments it
    assert run(*arguments, "--at", NOW + 8 * 86400).exit_code == 0
    assert serial(target) == 9
    source.write_text(source.read_text().replace(" 7 ", " 2026010100 ", 1).replace("192.0.2.9", "192.0.2.1"))
    assert "unchanged" not in run(*arguments, "--at", NOW + 8 * 86400).output
    assert serial(target) == 2026010100
    assert run(*arguments, "--at", NOW + 8 * 86400, "--force").exit_code == 0
    assert serial(target) == 2026010101


def test_if_only_the_serial_changes_recent_signatures_are_kept(work: Path) -> None:
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


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text + "*.example. 60 IN NS ns.test.\n", "wildcard-delegation"),
        (lambda text: text.replace("192.0.2.1", "192.0.2.999"), "bad IPv4 address"),
        (lambda text: text + 'more.example. 60 IN TXT "x"\n', ""),
        (lambda text: text.replace("\nns1.example. ", "\nNS1.example. "), ""),
    ],
    ids=["an error", "not readable", "other records", "another spelling"],
)
def test_what_was_signed_is_read_back_before_it_is_written(
    spoil: Callable[[str], str], said: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No known zone makes the writer fail, so the fault is injected."""
    write = zonetext.to_text
    monkeypatch.setattr(zonetext, "to_text", lambda view: spoil(write(view)))
    done = run("sign", work / "in.zone", work / "keys", "-o", work / "out.zone", "--at", NOW)
    assert (done.exit_code, "was not signed" in done.output, said in done.output) == (1, True, True)
    assert not (work / "out.zone").exists()


def test_output_never_replaces_an_input(work: Path) -> None:
    path, part = work / "in.zone", work / "part"
    part.write_text("included A 192.0.2.7\n")
    with path.open("a") as file:
        file.write(f"$INCLUDE {part}\n")
    (key,) = (work / "keys").iterdir()
    for out in (path, part, key):
        before = out.read_bytes()
        run("sign", path, work / "keys", "-o", out, "--overwrite", code=2, said="input and output are the same file")
        assert out.read_bytes() == before
    assert "included.example. " in run("sign", path, work / "keys").output


def test_only_an_earlier_version_of_the_zone_is_replaced(work: Path) -> None:
    out = work / "out"
    out.write_text("my notes")
    arguments = ("sign", work / "in.zone", work / "keys", "-o", out)
    run(*arguments, code=2)
    assert out.read_text() == "my notes"
    assert json.loads(run(*arguments, "--overwrite", "--json", code=0).stdout)["written"] is True
    assert json.loads(run(*arguments, "--json", code=0).stdout)["written"] is False
    before = out.read_text()
    (work / "in.zone").write_text("example. 60 IN SOA a. b. 9999 2 3 4 5\nexample. 60 IN NS a.\n")
    run(*arguments, code=1, said="is not replaced: it lost")
    assert out.read_text() == before


@pytest.mark.parametrize("pem", [None, "fullchain.pem"])
def test_the_error_for_a_folder_without_keys_does_not_advise_chmod(pem: str | None, work: Path) -> None:
    folder = work / "etc"
    folder.mkdir(mode=0o755)
    if pem is not None:
        (folder / pem).write_text("a certificate")
    adds = [["keys", "add", folder]] if pem is not None else []
    for words in (["sign", work / "in.zone", folder], ["keys", "list", folder], *adds):
        refused = run(*words, code=1, said=f"{folder}: is not a key folder").output
        assert "chmod" not in refused
        assert "makes a new one" in refused, "keys add must not advise itself for this folder"
    folder.chmod(0o700)
    assert "chmod" not in run("sign", work / "in.zone", folder).output


def test_an_empty_folder_becomes_a_key_folder(work: Path) -> None:
    folder = work / "made by mkdir"
    folder.mkdir(mode=0o755)
    run("keys", "add", folder, code=0)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_check_and_serve_report_expired_signatures(work: Path) -> None:
    path = work / "over.zone"
    assert run("sign", work / "in.zone", work / "keys", "-o", path, "--at", 1700000000).exit_code == 0
    over = "signatures expired at 2023-11-28T22:13:20Z: validators answer SERVFAIL; sign the zone again"
    run("check", path, code=0, said=f"{path}: warning: example.: signatures: {over}\n")
    assert run("check", "--strict", path).exit_code == 1
    serve = ["serve", "--zone", f"example={path}", "--listen", "127.0.0.1:5300", "--check-config"]
    started = command_line.run(*serve)
    assert (started.exit_code, started.stderr) == (0, f"maptr: zone example.: {over}\n")
    assert run("sign", work / "in.zone", work / "keys", "-o", path).exit_code == 0
    assert "signatures" not in run("check", path, code=0).output
    assert command_line.run(*serve).stderr == ""


@pytest.mark.parametrize(
    "words",
    [
        ["zone", "sign", "in.zone", "keys"],
        ["zone", "keys", "add", "keys"],
        ["zone", "keys", "list", "keys"],
        ["table", "pull", "registry", "--table", "natab", "--public-key", "registry.pub"],
        ["serve", "--config", "maptr.toml", "--check-config"],
        ["serve", "--config", "maptr.toml"],
    ],
    ids=" ".join,
)
def test_commands_name_the_missing_package(work: Path, words: list[str]) -> None:
    (work / "registry.pub").write_text("")
    (work / "maptr.toml").write_text(
        '[serve]\nlisten = ["127.0.0.1:0"]\nstate = "state"\n'
        '[[zone]]\nname = "example"\nfile = "in.zone"\nkeys = "keys"\n'
    )
    program = "import sys; sys.modules['cryptography'] = None; from maptr.cli.start import run; run()"
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "need" in done.stderr
    assert "the package cryptography: pip install 'maptr[dnssec]'\n" in done.stderr


@pytest.mark.parametrize(
    ("words", "mode", "code", "said"),
    [
        ("bad.zone keys -o out.zone", 0o700, 1, "bad.zone was not signed: it has errors"),
        ("none.zone keys -o out.zone", 0o700, 8, "none.zone: No such file"),
        ("in.zone nokeys -o out.zone", 0o700, 8, "restore it, or for a zone without a DS: maptr zone keys add nokeys"),
        ("in.zone keys -o none/out.zone", 0o700, 8, "none/out.zone: No such file"),
        ("in.zone keys -o out.zone --overwrite", 0o755, 1, "chmod 700"),
        ("in.zone keys --lifetime soon", 0o700, 2, "'soon' is not a duration"),
        ("in.zone keys --lifetime 7d", 0o700, 1, "cannot be renewed"),
    ],
)
def test_an_error_leaves_the_old_zone_and_says_what_to_do(
    words: str, mode: int, code: int, said: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    Path("out.zone").write_text("kept")
    Path("bad.zone").write_text(TEXT + "x A nonsense\n")
    Path("keys").chmod(mode)
    done = run("sign", *words.split())
    assert (done.exit_code, said in done.output, Path("out.zone").read_text()) == (code, True, "kept"), done.output


def test_a_zone_as_bind_writes_it_is_signed(work: Path) -> None:
    """BIND and dig do not escape the port of an ``h`` record, and Knot refuses that."""
    source, target = work / "in.zone", work / "out.zone"
    source.write_text(source.read_text() + '12345 NAPTR 0 0 "h" "ark" "" ark.example.net:8080.\n')
    run("sign", source, work / "keys", "-o", target, code=0)
    assert "ark.example.net\\0588080." in target.read_text()
    assert run("check", target).exit_code == 0


def test_a_damaged_signed_zone_is_signed_from_scratch(work: Path) -> None:
    """Its ZONEMD does not verify, so no signature in it is kept."""
    source, target = work / "in.zone", work / "out.zone"
    arguments = ("sign", source, work / "keys", "-o", target)
    assert run(*arguments, "--at", NOW).exit_code == 0
    whole = target.read_text()
    (line,) = [line for line in whole.splitlines() if line.startswith("a.b.") and " RRSIG TXT " in line]
    for damaged in (whole.replace(f"{line}\n", ""), whole.replace(line[-10:], line[-10:].swapcase())):
        assert damaged != whole
        target.write_text(damaged)
        done = run(*arguments, "--at", NOW, code=0, said=f"{target}: its ZONEMD does not verify")
        assert ("unchanged" in done.output, "no signature in it is kept" in done.output) == (False, True)
        assert serial(target) == 8
        assert line in target.read_text()


@pytest.mark.parametrize("name", ["in.zone", "other.zone"], ids=["the file", "a file it includes"])
def test_a_byte_order_mark_is_refused_with_its_file(work: Path, name: str) -> None:
    """BIND, NSD and Knot also refuse it, as a part of the first name."""
    (work / "other.zone").write_text("included A 192.0.2.7\n")
    with (work / "in.zone").open("a") as file:
        file.write(f"$INCLUDE {work / 'other.zone'}\n" if name == "other.zone" else "")
    (work / name).write_bytes(codecs.BOM_UTF8 + (work / name).read_bytes())
    reason = "begins with a byte order mark, which name servers read as part of the first name: save it without"
    if name == "in.zone":
        said = f"{work / name}:1: error: the file: byte-order-mark: {reason}"
        run("sign", work / name, work / "keys", code=1, out="", said=said)
        assert "byte-order-mark" in run("check", work / name).output
    with pytest.raises(ZoneError, match=re.escape(f"{work / name}:1: {reason}")):
        read_zone((work / "in.zone").read_bytes(), Folded((b"example",)), work / "in.zone")


def test_a_rollover_in_the_order_of_the_page_waits_for_caches(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, now, hour = work / "keys", time.time(), 3600
    monkeypatch.setattr("maptr.cli.sign.time.time", lambda: now)

    def written(key: dict[str, Any], hours_ago: float) -> None:
        os.utime(key["file"], (now - hours_ago * hour,) * 2)

    def keys() -> dict[str, dict[str, Any]]:
        return {key["state"]: key for key in json.loads(run("keys", "list", folder, "--json").stdout)["keys"]}

    old = keys()["active"]
    assert (old["next"], old["at"]) == ("", None)
    said = "is the only active one: activate its successor first"
    for state in ("retired", "published"):
        assert said in run("keys", "set", folder, old["tag"], state).stderr
    run("keys", "add", folder)
    new = keys()["published"]
    assert (new["next"], new["at"] - math.ceil(new["since"])) == ("activate", 25 * hour)
    written(new, 24.9)
    refused = run("keys", "set", folder, new["tag"], "active")
    assert (refused.exit_code, "must not become active before " in refused.stderr) == (1, True)
    assert "published" in keys()
    assert run("keys", "set", folder, new["tag"], "active", "--ttl", 3600).exit_code == 0, "the zone has shorter TTLs"
    run("keys", "set", folder, new["tag"], "published")
    written(keys()["published"], 25.1)
    assert run("keys", "set", folder, new["tag"], "active").exit_code == 0
    both = {key["tag"]: key for key in json.loads(run("keys", "list", folder, "--json").stdout)["keys"]}
    assert (both[old["tag"]]["next"], both[new["tag"]]["next"]) == ("retire", "")
    listed = run("keys", "list", folder).stderr
    assert "next: retire, not before " in listed
    assert "once the parent has the DS of the other key" in listed
    assert run("keys", "set", folder, old["tag"], "retired").exit_code == 0
    assert keys()["retired"]["next"] == "remove"
    refused = run("keys", "remove", folder, old["tag"])
    assert (refused.exit_code, "must not be removed before " in refused.stderr) == (1, True)
    written(keys()["retired"], 25.1)
    assert "next: remove, not before" in run("keys", "list", folder).stderr
    assert run("keys", "remove", folder, old["tag"]).exit_code == 0
    assert list(keys()) == ["active"]


NAME = dns.name.from_text("example.")


def asked(*arguments: object, keys: Iterable[tuple[ZoneKey, str]] = (), more: str = "", ttl: int = 60) -> Result:
    """Run ``keys`` with the server of a parent zone that has the DS of some keys, each with a digest."""
    text = "$ORIGIN .\n@ 60 SOA a. b. 1 2 3 4 5\n@ 60 NS a.\na. A 127.0.0.1\nexample. NS a.\nx. TXT x\n"
    text += "".join(f"example. {ttl} DS {dns.dnssec.make_ds(NAME, key.dnskey, how)}\n" for key, how in keys)
    daemon = daemon_of(
        snapshot_of_zones(dns.zone.from_text(text + more, ".", relativize=False)), Address("127.0.0.1", 0)
    )
    with answering(daemon):
        return run("keys", *arguments, f"@127.0.0.1#{daemon.bound[0].port}")


def test_ds_of_the_parent_are_compared_with_those_of_the_keys(work: Path) -> None:
    """The parent may use another digest than SHA-256. A server that does not answer is not one without DS."""
    folder = work / "keys"
    assert run("keys", "add", folder, "--state", "active").exit_code == 0
    first, second = (file.key for file in read_keys(folder))
    both = ((first, "SHA256"), (second, "SHA384"))

    def ask(more: str = "", keys: Iterable[tuple[ZoneKey, str]] = both) -> tuple[int, str]:
        done = asked("ds", folder, "example", keys=keys, more=more)
        assert done.stdout.count(" IN DS ") == 2
        return done.exit_code, done.stderr

    code, said = ask(keys=())
    assert (code, said.count("has no DS of CSK ")) == (1, 2)
    assert ask() == (0, "")
    code, said = ask("example. 60 DS 7 13 2 " + "00" * 32 + "\n")
    assert (code, "has a DS of key 00007, which is not an active one" in said) == (1, True)
    wrong = f"example. 60 DS {first.tag} 13 2 {'00' * 32}\n"
    assert ask(wrong)[0] == 1, "the tag is right, but not the digest"
    assert run("keys", "ds", folder, "example", "@127.0.0.1#9").exit_code == 9
    assert run("keys", "ds", folder, "example", "here").exit_code == 2
    for bad in ("@127.0.0.1#99999", "@[x", "@tcp://127.0.0.1", "@tls://127.0.0.1", "@https://dns.example/q"):
        done = run("keys", "ds", folder, "example", bad)
        assert (done.exit_code, "@" in done.stderr) == (2, True), "asked by UDP only, and each is written as elsewhere"


def test_the_steps_of_a_rollover_know_the_zone_and_ask_the_parent(work: Path) -> None:
    """The longest TTL of the zone is an hour: a published key waits two hours, with those for the secondaries."""
    folder, zone = work / "keys", ("--zone", work / "in.zone")
    (old,) = (file.key for file in read_keys(folder))
    run("keys", "add", folder)
    new = next(file.key for file in read_keys(folder) if file.key.tag != old.tag)

    def age(hours: float) -> None:
        for path in folder.iterdir():
            os.utime(path, (time.time() - hours * 3600,) * 2)

    def listed(*words: object) -> dict[int, float]:
        found = json.loads(run("keys", "list", folder, "--json", *words).stdout)["keys"]
        return {key["tag"]: key["at"] - math.ceil(key["since"]) for key in found if key["at"] is not None}

    assert listed(*zone) == {new.tag: 3600 + MARGIN}
    age(1.9)
    assert run("keys", "set", folder, new.tag, "active", *zone).exit_code == 1
    age(2.1)
    assert "must not become active before " in run("keys", "set", folder, new.tag, "active").stderr
    assert run("keys", "set", folder, new.tag, "active", *zone).exit_code == 0
    retire = ("set", folder, old.tag, "retired", *zone)
    lacking = asked(*retire, keys=[(old, "SHA256")])
    assert (lacking.exit_code, f"has no DS of CSK {new.tag} " in lacking.stderr) == (1, True)
    assert run("keys", *retire, "@127.0.0.1#9").exit_code == 9
    assert asked(*retire, keys=[(new, "SHA256"), (old, "SHA256")]).exit_code == 0
    assert listed(*zone) == {old.tag: 86_400 + MARGIN}, "the DS may have a TTL of a day"
    remove = ("remove", folder, old.tag, *zone)
    age(2.1)
    early = asked(*remove, keys=[(new, "SHA256")], ttl=7200)
    assert (early.exit_code, "must not be removed before " in early.stderr) == (1, True)
    kept = asked(*remove, keys=[(new, "SHA256"), (old, "SHA256")])
    assert (kept.exit_code, f"still has the DS of CSK {old.tag} " in kept.stderr) == (1, True)
    assert asked(*remove, keys=[(new, "SHA256")]).exit_code == 0, "the DS has a TTL of a minute"
    assert [file.key.tag for file in read_keys(folder)] == [new.tag]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("@127.0.0.1#9", 2, "@SERVER needs --zone"),
        ("--zone in.zone --ttl 60", 2, "--zone and --ttl exclude each other"),
        ("--zone none.zone", 8, "none.zone: No such file"),
        ("--zone bad.zone", 1, "the TTLs of bad.zone are not known: it has errors"),
    ],
)
def test_what_the_wait_for_a_key_depends_on_must_be_known(
    words: str, code: int, said: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    Path("bad.zone").write_text(TEXT + "x A nonsense\n")
    (file,) = read_keys(Path("keys"))
    done = run("keys", "remove", "keys", file.key.tag, *words.split())
    assert (done.exit_code, said in done.stderr) == (code, True)
    assert len(read_keys(Path("keys"))) == 1


def test_keys_are_listed_renamed_removed_and_written_as_ds(work: Path) -> None:
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
    assert run("keys", "set", folder, active, "retired", "--force").exit_code == 0
    assert run("keys", "ds", folder, "example").exit_code == 1
    assert run("keys", "remove", folder, active, "--force").exit_code == 0
    assert '"state": "published"' in run("keys", "list", folder, "--json").stdout
    assert run("keys", "set", folder, active, "active").exit_code == 1
