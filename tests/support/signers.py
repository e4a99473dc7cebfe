"""Zones signed with new keys by other programs: dnssec-signzone of BIND, ldns-signzone and kzonesign of Knot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.peers import run

COMMANDS = ("dnssec-keygen", "dnssec-signzone", "ldns-signzone", "ldns-keygen")

# Name -> program and options. RFC 9276 advises against salts and iterations, but zones with them must be answered.
WAYS: Mapping[str, tuple[str, ...]] = {
    "bind-nsec": ("dnssec-signzone",),
    "bind-nsec3": ("dnssec-signzone", "-3", "-", "-H", "0"),
    "bind-nsec3-opt-out": ("dnssec-signzone", "-3", "aabbccdd", "-H", "3", "-A"),
    "ldns-nsec3": ("ldns-signzone", "-n", "-s", "beef", "-t", "10"),
    "ldns-nsec3-opt-out": ("ldns-signzone", "-n", "-t", "0", "-p"),
}
# Name -> lines of a Knot policy.
KNOT_WAYS: Mapping[str, tuple[str, ...]] = {
    "knot-nsec": ("nsec3: off",),
    "knot-nsec3-opt-out": ("nsec3: on", "nsec3-iterations: 0", "nsec3-opt-out: on"),
}
KNOT_COMMANDS = ("keymgr", "kzonesign")


def sign(text: str, origin: str, directory: Path, way: str) -> Path:
    """Sign a zone in one of the WAYS or KNOT_WAYS. Returns the file of the signed zone."""
    if way in KNOT_WAYS:
        return _sign_with_knot(text, origin, directory, KNOT_WAYS[way])
    program, *options = WAYS[way]
    stem = origin.rstrip(".")
    source, target = directory / f"{stem}.zone", directory / f"{stem}.signed"
    source.write_text(text)
    if program == "dnssec-signzone":
        _run(directory, "dnssec-keygen", "-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "-K", ".", origin)
        names = ("-o", origin, "-f", target.name, source.name)
        _run(directory, program, "-q", "-S", "-z", "-P", "-K", ".", *options, *names)
    else:
        key = _run(directory, "ldns-keygen", "-a", "ECDSAP256SHA256", "-k", origin).split()[-1]
        _run(directory, program, *options, "-o", origin, "-f", target.name, source.name, key)
    return target


def _sign_with_knot(text: str, origin: str, directory: Path, policy: tuple[str, ...]) -> Path:
    name = origin.rstrip(".")
    (directory / "source.zone").write_text(text)
    (directory / "db").mkdir()
    (directory / "out").mkdir()
    lines = "".join(f"    {line}\n" for line in ("algorithm: ecdsap256sha256", "single-type-signing: on", *policy))
    (directory / "knot.conf").write_text(
        f"""\
server:
    rundir: "{directory}"
database:
    storage: "{directory}/db"
policy:
  - id: way
{lines}zone:
  - domain: "{origin}"
    storage: "{directory}"
    file: source.zone
    dnssec-signing: on
    dnssec-policy: way
"""
    )
    _run(directory, "keymgr", "-c", "knot.conf", name, "generate", "algorithm=ecdsap256sha256", "ksk=yes", "zsk=yes")
    _run(directory, "kzonesign", "-c", "knot.conf", "-o", "out", name)
    (signed,) = (directory / "out").iterdir()
    return signed


def _run(directory: Path, command: str, *arguments: str) -> str:
    done = run(command, *arguments, cwd=directory)
    assert done.accepted, f"{command} {' '.join(arguments)}: {done.output}"
    return done.output
