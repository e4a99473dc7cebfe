"""Zones signed by other people's signers: BIND's dnssec-signzone and ldns-signzone, NSEC and NSEC3.

The keys are made for the occasion, in the directory where the zone is signed. What is done with the zone is the
business of the tests.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.peers import find

COMMANDS = ("dnssec-keygen", "dnssec-signzone", "ldns-signzone", "ldns-keygen")
SIGN_SECONDS = 60.0

# Name of the way -> program and the options that choose it. Salts and iterations are what RFC 9276 advises against:
# zones that have them must be answered all the same.
WAYS: Mapping[str, tuple[str, ...]] = {
    "bind-nsec": ("dnssec-signzone",),
    "bind-nsec3": ("dnssec-signzone", "-3", "-", "-H", "0"),
    "bind-nsec3-opt-out": ("dnssec-signzone", "-3", "aabbccdd", "-H", "3", "-A"),
    "ldns-nsec3": ("ldns-signzone", "-n", "-s", "beef", "-t", "10"),
    "ldns-nsec3-opt-out": ("ldns-signzone", "-n", "-t", "0", "-p"),
}


def sign(text: str, origin: str, directory: Path, way: str) -> Path:
    """Sign a zone's text in one of the WAYS; the file of the signed zone."""
    program, *options = WAYS[way]
    stem = origin.rstrip(".")
    source, target = directory / f"{stem}.zone", directory / f"{stem}.signed"
    source.write_text(text)
    if program == "dnssec-signzone":
        _run(directory, "dnssec-keygen", "-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "-K", ".", origin)
        _run(
            directory,
            program,
            "-q",
            "-S",
            "-z",
            "-P",
            "-K",
            ".",
            *options,
            "-o",
            origin,
            "-f",
            target.name,
            source.name,
        )
    else:
        key = _run(directory, "ldns-keygen", "-a", "ECDSAP256SHA256", "-k", origin).strip()
        _run(directory, program, *options, "-o", origin, "-f", target.name, source.name, key)
    return target


def _run(directory: Path, command: str, *arguments: str) -> str:
    done = subprocess.run(
        [find(command) or command, *arguments],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SIGN_SECONDS,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{command} {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout
