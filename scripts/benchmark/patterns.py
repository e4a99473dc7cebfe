"""Checks that every reader of external text takes linear time, by the CPU time for runs of characters of doubling
length.

A text is a run of one or several characters, with a beginning or an end that its reader accepts. Its length doubles
from 1,000 to 16,000 characters. A reader fails if the CPU time grows by more than a factor of 2.5 at one of these steps
and at the one before or after it, in two of three runs, and again when it is measured without others beside it. Times
below three milliseconds are not compared. A reader protected by a limit is measured through that limit, as its users
see it.

A new reader is a line in READERS.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gc
import hashlib
import itertools
import logging
import multiprocessing
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin

import click
import tomli

from maptr import registry, rewritten, url
from maptr.answer.context import ReceivedQuery, Transport
from maptr.answer.respond import respond
from maptr.ark import Ark, find_arks
from maptr.cli import bulk
from maptr.config import model, reader
from maptr.config.lines import key_lines
from maptr.daemon import kept
from maptr.daemon.certificate import CertificatePeriod
from maptr.daemon.hosts import is_for_operators
from maptr.dnssec import keys
from maptr.errors import ConfigError, MaptrError, cell, json_text, nearest, printable, text_of_cell, visible
from maptr.gateway import language, message, statistics
from maptr.gateway.metrics import kind_of
from maptr.gateway.objects import OwnObject, read_row, target_of
from maptr.gateway.objects import match as match_object
from maptr.gateway.proxies import Proxies, read_proxy_header
from maptr.gateway.redirects.rows import read_rows
from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import Naptr
from maptr.naptr.record import read as read_rule
from maptr.naptr.regexp import Substitution
from maptr.nma import describe
from maptr.protocol import names
from maptr.protocol.address import Address, read_network
from maptr.registry import anvl, export, followed_file, minisign, target
from maptr.registry.search import NaanIndex
from maptr.registry.table import Entry, Nma, Table, parse_key
from maptr.resolver.message import make_query, read_response
from maptr.resolver.servers import ResolverOptions, check_server
from maptr.resolver.validation.validator import read_anchors
from maptr.server import catalog, freeze, requests, state_folder
from maptr.transfer import journal, tsig
from maptr.transfer.acl import AccessRule, NotifyTarget, TsigKey
from maptr.web.http import Page
from maptr.zone import lint, rules
from maptr.zone.check import examine
from maptr.zone.diff import Difference
from maptr.zone.snapshot import Snapshot
from tests.support.gateway import Gateway, objects

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000)
FACTOR = 2.5  # of CPU time, for a text that is twice as long
FLOOR = 0.003  # seconds; shorter times on a busy machine are noise
REPEATS = 9  # of each measurement; the shortest counts
PAUSE = 0.2  # seconds before a seemingly slow step is measured again: a machine's other work comes in waves
RUNS, NEEDED = 3, 2  # measurements of a step that is too slow, and how many of them must agree
ENOUGH = 0.005  # seconds; once a text takes that long, its growth is known, and longer ones are not read
PATIENCE = 2.0  # seconds of CPU time for one text: more is too slow, whatever its length
FRAMES = 3  # for each kind of character; a reader with more uses them in turn
PAIRS, TRIPLES = 30, 10  # random runs of two and of three kinds of characters for each reader
SEED = 1

KINDS = {
    "blank": " ",
    "tab": "\t",
    "newline": "\n",
    "CR": "\r",
    "CR LF": "\r\n",
    "NUL": "\0",
    "vertical tab": "\v",
    "letter": "a",
    "capital": "A",
    "digit": "1",
    "zero": "0",
    "hyphen": "-",
    "underscore": "_",
    "slash": "/",
    "backslash": "\\",
    "colon": ":",
    "percent": "%",
    "pair": "%2F",
    "pair of %": "%25",
    "pair of a blank": "%20",
    "quote": '"',
    "apostrophe": "'",
    "backtick": "`",
    "dot": ".",
    "comma": ",",
    "semicolon": ";",
    "star": "*",
    "(": "(",
    ")": ")",
    "[": "[",
    "]": "]",
    "{": "{",
    "}": "}",
    "<": "<",
    ">": ">",
    "$": "$",
    "${": "${",
    "&": "&",
    "entity": "&#32;",
    "=": "=",
    "?": "?",
    "#": "#",
    "@": "@",
    "!": "!",
    "^": "^",
    "|": "|",
    "+": "+",
    "tilde": "~",
    "no-break space": "\xa0",
    "soft hyphen": "\xad",
    "e acute": "\xe9",
    "hyphen U+2010": "\u2010",
    "zero-width": "\u200b",
    "line separator": "\u2028",
    "combining": "\u0301",
    "astral": "\U0001f600",
    "ark:": "ark:",
    "ark:/": "ark:/",
    "ark%3A": "ark%3A",
    "an ARK": "ark:12345/",
    "https://": "https://",
    "a.": "a.",
    "a/": "a/",
    "x=1&": "x=1&",
    "a, ": "a, ",
    "label:": "a: b\n",
    "escape": "\\046",
    "empty line": "\n\n",
    "indented": "\n ",
    "comment": "\n#",
    "escaped quote": '\\"',
    "${content}": "${content}",
    "NAAN": "12345",
}
COMMON = " \t\n\r-/:%.,;*\"'()[]{}<>&=?#@!^|+~_\\a1\xa0\xad\u2010\u200b\u2028"  # for pairs and triples

Read = Callable[[str], object]
EXPECTED = (
    MaptrError,
    ValueError,
    csv.Error,
    click.ClickException,
    RecursionError,
    BudgetSpent,
    requests.NoResponse,
    OSError,  # of a file that is too large
)  # for a text that cannot be read


class Reader(NamedTuple):
    """A function that reads external text, and what may precede and follow a run, as pairs."""

    read: Read
    frames: Sequence[tuple[str, str]] = ()
    plain: bool = True  # whether a run is also read alone, without a frame


class Slow(NamedTuple):
    """A step that takes too long: the text in words, its length, and the CPU times for half of it and all of it."""

    reader: str
    text: str
    size: int
    half: float
    whole: float

    def __str__(self) -> str:
        factor = f"{self.whole / self.half:.1f} x" if self.half else f"over {PATIENCE:g} s"
        return (
            f"{self.reader}: {self.text}: {factor} from {self.size // 2} to {self.size} characters "
            f"({self.half * 1e3:.1f} to {self.whole * 1e3:.1f} ms)"
        )


class Measured(NamedTuple):
    """A reader's measurements: how many texts, the slowest one at full length, and steps that were too slow."""

    reader: str
    texts: int
    slowest: float
    of: str
    slow: Sequence[Slow]


# ---- the readers

_NAAN = Entry("12345", "", (Nma("https://ark.example.org/ark:/${content}"),))
_OWN = OwnObject("ark:12345/k1", "https://objects.example.org/a", suffix=True)
_TABLE = Table([_NAAN, Entry("12345", "x6", (Nma("https://x6.example.org/${suffix}"),))])
_GATEWAY = Gateway(_TABLE, objects=objects(_OWN))
_INDEX = NaanIndex(_TABLE)
_PROXIES = {header: Proxies([read_network("192.0.2.0/24")], header) for header in ("X-Forwarded-For", "Forwarded")}
_COUNTS = statistics.Statistics(wall=lambda: 0.0)
_QUERY = make_query(names.parse("12345.ark.arpa"), bytes, mix=False)
_SNAPSHOT = Snapshot.of(())
_ORIGIN = names.fold(names.parse("ark.arpa."))
_KEYS: dict[names.Labels, TsigKey] = {(b"a",): TsigKey((b"a",), "hmac-sha256", b"secret")}
_KEY = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
_IN_REGISTRY = [
    ("naa:\nwho: ", "\nwhat: 12345\nwhere: https://a.example/\n"),
    ("naa:\nwho: A\nwhat: 12345\nwhere: https://a.example/", "\n"),
    ("erc:\nwho: ", "\n\nnaa:\nwhat: 12345\n"),
    ("# A\n12345: ", "\n    a.example\n"),
    ("# A\n12345:\n    ", "\n"),
    ("# A\n12345:\n    a.example ", "\n#"),
    ("#", "\n12345:\n    a.example\n"),
    ("ark:/12345:\n  name: ", "\n"),
    ('ark:/12345:\n  redirect: "', '"\n'),
    ("ark:/12345", ":\n  name: A\n"),
    ('{"data": [{"what": "12345", "who": "', '"}]}'),
    ('{"data": [{"what": "12345", "where": "https://a.example/', '"}]}'),
    ("", ":\n  name: A\nark:/12345:\n  name: A\n"),
]
_SOA = "$ORIGIN ark.arpa.\n$TTL 60\n@ SOA ns.example. a.example. 1 1 1 1 1\n@ NS ns.example.\n"
_IN_ZONE = [
    (_SOA, "\n"),
    (f"{_SOA}a TXT ", "\n"),
    (f'{_SOA}a TXT "{"a" * 256}', '"\n'),
    (f"{_SOA}a TXT ( ", " )\n"),
    (f'{_SOA}a NAPTR 1 1 "u" "ark" "!^.*$!https://a.example/', '!" .\n'),
    (f"{_SOA}a NAPTR ", '"u" "ark" "" .\n'),
    (f"{_SOA}a", ' NAPTR 1 1 "h" "ark" "" a.example.\n'),
    (f"{_SOA}a SVCB 1 . alpn=", "\n"),
    (f"{_SOA}$GENERATE 1-2 a", " A 192.0.2.1\n"),
    (f"{_SOA}; ", "\n"),
    (f"{_SOA}a TYPE65280 \\# 4 ", "\n"),
    (f'{_SOA}12345 NAPTR 1 1 "u" "ark" "!^ark:/?12345/(', ')$!https://a.example/\\\\1!" .\n'),
    (f'{_SOA}12345 NAPTR 1 1 "h" "ark" "" ', ".\n"),
]
_IN_ERC = [("erc:\nwho: ", "\nwhat: b\n"), ("erc: ", "\n"), ("erc:\n ", "\n"), ("erc:\nwhen: ", "\n"), ("dc:\n ", "\n")]
_IN_TOML = [
    *(("[client]\n", "\n"), ('[gateway]\nroot = "', '"\n'), ("[client]\nnameservers = [\n", "\n]\n"), ("[", "]\n")),
    *(
        ("a = '''", "'''\n"),
        ('a = """', '"""\n'),
        ("a = [\n[\n", "\n]\n]\n"),
        ("a = [\n", "1,\n]\n"),
        ("#", "\na = 1\n"),
    ),
]
_IN_ARK = [
    *(("ark:12345/", ""), ("ark:12345/x", "/y"), ("", "ark:12345/x"), ("https://n2t.net/", "ark:/12345/x"), ("(", ")")),
    *(("ark:", "12345/x"), ("ark:12345", "/x"), ("https://a.example/?id=", "ark:12345/x&b"), ("ark:12345/x?", " y")),
    *(("ark%3A12345/x", ""), ("a", "ark:12345/x.")),
]
_REWRITTEN = [
    *(("ark%253A%252F12345%252F", "&b"), ("https://urldefense.com/v3/__https://n2t.net/ark:/12345/x", "__;!!a!b$")),
    *(("https://urldefense.com/v3/__", "__;Iw!!a$"), ("https://urldefense.com/v3/__a*;", "!!a$")),
    *(("https://urldefense.proofpoint.com/v2/url?u=https-3A__n2t.net_ark-3A_12345_", "&d=a"), ("", "urldefense.com")),
    *(("info:ark/12345/x", ""), ("$uark:/12345/x", "$yTitle"), ("loc.ark+=12345=x", ".zip"), ("", "ark+=12345=x")),
    *(("", "info:ark/12345/x"), ("/item/ark__12345_", "?a"), ("", "ark__12345_x"), ("ark%25253A", "")),
]
_IN_ENCODED_TEXT = [
    *(
        ("https://a.example/?text=%22https%3A%2F%2Fn2t.net%2Fark%3A%2F12345%2Fx", "%22"),
        ("https://a.example/", "ark:1/x"),
    ),
    *(("https://a.example/?a=ark:/12345/x1", "ark:/12345/x2&c=3"), ("mailto:?body=", "ark:/12345/x%20y")),
    *(("ark:/ark:", "/12345/x"), ("ark:/12345/x?r=th\xe9", "^max"), ("n2t.net/ark:/", "ark:/12345/x1")),
]
_IN_TARGET = [("/ark:12345/", ""), ("/", "/ark:12345/x"), ("/ark:12345/k1", ""), ("/?q=", ""), ("/ark:12345/x6?", "")]
_IN_URL = [
    ("https://", "/"),
    ("https://a.example/", ""),
    ("https://a.example", "/"),
    ("https://a.example:", "/"),
    ("", ":"),
]


def _header(name: str) -> Reader:
    """Read a header of a request to the gateway."""
    frames = [("text/", ";q=0.5"), ("en;q=", ",fr"), ('"', '"'), ("a", "b")]
    return Reader(lambda text: _GATEWAY.ask("/ark:12345/x6", **{name: text}), frames)


def _client(proxies: Proxies, text: str) -> str:
    return proxies.client("192.0.2.1", [text])


def _csv(text: str) -> object:
    path = _FOLDER / f"{multiprocessing.current_process().pid}.csv"
    path.write_text(text, encoding="utf-8", errors="replace", newline="")
    with suppress(ConfigError):
        for row in read_rows(path, unended=True):
            with suppress(ValueError):
                read_row(row.cells)
    return None


def _bulk(text: str, column: str | None = None) -> object:
    lines = bulk.NumberedLines(BytesIO(text.encode("utf-8", "replace")), column)
    return [bulk.ark_text(line, "current") for _, line in lines.read() if not bulk.is_skipped(line)]


def _bulk_find(text: str) -> object:
    lines = bulk.NumberedLines(BytesIO(text.encode("utf-8", "replace")), "ark")
    return list(bulk.FindForm(lines.columns(), as_json=False).places(lines.records(), "current", Counter()))


def _key_lines(text: str) -> object:
    tomli.loads(text)
    return key_lines(text)


def _matched(field: bytes, text: str) -> object:
    return Substitution.parse(field).apply(text.encode("utf-8", "replace"), Budget(40_000))


def _naptr(regexp: str) -> object:
    return read_rule(Naptr(1, 1, b"u", b"ark", regexp.encode("utf-8", "replace"), ()))


def _exported(form: str, where: str) -> object:
    return export.write(Table([Entry("12345", "", (Nma(where),))]), form)


def _request_pattern(text: str) -> object:
    """The pattern of the request in the configuration of nginx."""
    return _NGINX_PATTERN.match(text)


def _erc(text: str) -> object:
    page = Page("https://a.example/", 200, (("content-type", "text/plain"),), text.encode("utf-8", "replace"), False)
    described = describe.read(Ark.parse("ark:12345/x6"), "https://a.example/", page)
    return described.to_text(), described.to_dict()


def _content_type(text: str) -> object:
    return describe.read(Ark.parse("ark:12345/x6"), "", Page("", 200, (("content-type", text),), b"", False))


def _table(where: str) -> object:
    table = Table([Entry("12345", "", (Nma(target.where_to_target(where), where),))])
    return lint.lint(table), lint.publishable(table)


def _rule(where: str) -> object:
    return rules.regexp(_NAAN, Nma(where)), rules.host_labels(Nma(where))


def _minisign(text: str) -> object:
    return minisign.verify(minisign.PublicKey.parse(_KEY), b"", text)


def _response(text: str) -> object:
    head = b"\0\0\x84\0\0\1\0\7\0\0\0\0"
    return read_response(_QUERY, head + _QUERY.question + text.encode("latin-1", "replace"))


def _query(text: str) -> object:
    return respond(b"\0\1\0\0\0\1\0\1\0\0\0\1" + text.encode("latin-1", "replace"), _SNAPSHOT)


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _own_folder() -> Path:
    """Return a folder of this process, without access for others."""
    folder = _FOLDER / f"{multiprocessing.current_process().pid}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _file_of(name: str, content: bytes) -> Path:
    """Write a file, and return its folder."""
    folder = _own_folder()
    (folder / name).write_bytes(content)
    return folder


def _proxy_header(text: str) -> object:
    sent = BytesIO(_octets(text))

    async def read(size: int) -> bytes:
        return sent.read(size)

    return asyncio.run(read_proxy_header(read))


def _journal(text: str) -> object:
    """Read a journal with these differences and the right checksum."""
    many = (Difference(1, 2, 1, b""),) * 1000
    empty, full = (
        journal.encode(journal.Journal(_ORIGIN, 1, bytes(32), each))[: -hashlib.sha256().digest_size]
        for each in ((), many)
    )
    body = full[: len(empty)] + _octets(text)
    return journal.decode(body + hashlib.sha256(body).digest())


def _kept(text: str) -> object:
    """Read a kept version with the right checksum."""
    body = kept.FORMAT + _octets(text)
    return kept.read(_file_of("ark.arpa.kept", body + hashlib.sha256(body).digest()), _ORIGIN)


def _signed_version(text: str) -> object:
    state_folder.write_signed(_own_folder(), _ORIGIN, text, 1)
    return state_folder.read_signed(_own_folder(), _ORIGIN)


def _kept_catalog(text: str) -> object:
    content = hashlib.sha256(_octets(text)).hexdigest().encode() + b"\n" + _octets(text)
    return catalog.Catalog().read(_file_of(catalog.path_of(Path(), _ORIGIN).name, content), _ORIGIN)


def _signing_key(text: str) -> object:
    folder = _own_folder() / "keys"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "csk-ecdsap256sha256-00001.active.pem"
    path.touch(mode=0o600)
    path.write_bytes(_octets(text))
    return keys.read_keys(folder)


def _secret_file(text: str) -> object:
    path = _own_folder() / "secret"
    path.touch(mode=0o600)
    path.write_bytes(_octets(text))
    config, errors = reader.examine(None)
    one = model.KeyConfig((b"a",), "hmac-sha256", secret_file=path)
    return reader.with_secrets(replace(config, keys=(one,)), errors)


def _tsig(text: str) -> object:
    """Read a query whose additional record may be a TSIG."""
    wire = b"\0\1\0\0\0\1\0\0\0\0\0\1\1a\0\0\1\0\1" + text.encode("latin-1", "replace")
    return tsig.check_query(ReceivedQuery(wire, Transport.TCP, "192.0.2.1"), _KEYS, 0)


def _secondary(text: str) -> object:
    request = requests.make_request(_ORIGIN)
    packet = request[:2] + b"\x84\0\0\1\0\1\0\0\0\0" + request[12:] + text.encode("latin-1", "replace")
    return requests.read_response(request, packet), requests.read_serial(packet)


READERS: dict[str, Reader] = {
    # ARKs
    "Ark.parse": Reader(Ark.parse, _IN_ARK),
    "Ark.parse, wrapped": Reader(partial(Ark.parse, wrapped=True, bare=True), _IN_ARK),
    "Ark.parse, 2002": Reader(partial(Ark.parse, profile="2002"), _IN_ARK),
    "Ark.parse, bytes": Reader(lambda text: Ark.parse(text.encode("utf-8", "replace"), profile="2019"), _IN_ARK[:3]),
    "Ark.to_dict": Reader(lambda text: Ark.parse(text).to_dict(), _IN_ARK[:2], plain=False),
    "find_arks": Reader(find_arks, _IN_ARK),
    "find_arks, encoded text": Reader(find_arks, _IN_ENCODED_TEXT, plain=False),
    "find_arks, rewritten": Reader(find_arks, _REWRITTEN, plain=False),
    "Ark.parse, encoded text": Reader(Ark.parse, _IN_ENCODED_TEXT, plain=False),
    "Ark.parse, rewritten": Reader(Ark.parse, _REWRITTEN, plain=False),
    "rewritten.restored": Reader(rewritten.restored, _REWRITTEN),
    "rewritten.of_europeana": Reader(rewritten.of_europeana, _REWRITTEN[-4:]),
    # URLs and names
    "url.parse": Reader(url.parse_allowed, _IN_URL),
    "url.parse_host": Reader(url.parse_host, [("a.", ""), ("[", "]"), ("1.", ".1"), ("0x", ""), ("", ".1")]),
    "url.normalized": Reader(url.normalized, _IN_URL),
    "urljoin": Reader(partial(urljoin, "https://a.example/b"), [("/", ""), ("https://", ""), ("?", ""), ("..", "")]),
    "names.parse": Reader(names.parse, [("a.", ""), ("\\", "")]),
    "names.mailbox": Reader(names.mailbox, [("a", "@b"), ("a@", "")]),
    "names.from_wire": Reader(lambda text: names.read_name(text.encode("utf-8", "replace"), 0)),
    # the registry
    "registry.read": Reader(partial(registry.read, on_bad=lambda error: None), _IN_REGISTRY),
    "registry.read, pulled": Reader(partial(registry.read, on_bad=lambda error: None, is_pulled=True), _IN_REGISTRY),
    "anvl.decode": Reader(anvl.decode, [("%{", "%}")]),
    "anvl.code_of": Reader(anvl.code_of, [("(:", ")"), ("[", "](:unkn)"), (" ", "(:unkn")]),
    "anvl.read_who": Reader(anvl.read_who, [("a (=) ", ""), ("(:", "")]),
    "anvl.one_line": Reader(anvl.encode),
    "parse_key": Reader(parse_key, [("ark:/", ""), ("12345/", "")]),
    "where_to_target": Reader(
        target.where_to_target, [*_IN_URL, ("303 ", ""), ("a.example", "$id"), ("https://a.example?", "=")]
    ),
    "redirect_to_target": Reader(target.redirect_to_target, [*_IN_URL, ("https://a.example/$", "")]),
    "target.unusable": Reader(target.unusable, [*_IN_URL, ("https://a.example/${", "}")]),
    "zone rule of a target": Reader(_rule, [*_IN_URL, ("https://a.example/${content}", "")]),
    "table check": Reader(_table, [*_IN_URL, ("https://a.example/${content}", "")]),
    "test_ark": Reader(lambda text: Entry("12345", extra={"test_identifier": text}).test_ark, _IN_ARK[:4]),
    "export nginx": Reader(partial(_exported, "nginx"), _IN_URL[:3]),
    "export apache": Reader(partial(_exported, "apache"), _IN_URL[:3]),
    "export caddy": Reader(partial(_exported, "caddy"), _IN_URL[:3]),
    "export natab": Reader(partial(_exported, "natab"), _IN_URL[:3]),
    "export csv": Reader(partial(_exported, "csv"), _IN_URL[:3]),
    "request in nginx": Reader(_request_pattern, _IN_TARGET),
    "minisign key": Reader(minisign.PublicKey.parse, [("untrusted comment: ", f"\n{_KEY}\n"), ("", _KEY)]),
    "minisign signature": Reader(
        _minisign,
        [("untrusted comment: a\n", "\ntrusted comment: a\nb"), ("untrusted comment: a\n\ntrusted comment: ", "\n")],
    ),
    "NaanIndex.search": Reader(_INDEX.search),
    "NaanIndex of a name": Reader(lambda text: NaanIndex(Table([Entry("12345", who=registry.table.Who(text))]))),
    # zones
    "zone check": Reader(lambda text: examine(text, origin="ark.arpa"), _IN_ZONE),
    # NAPTR records and DNS messages
    "NAPTR rule": Reader(
        _naptr, [("!", "!a!"), ("!^ark:/?", "(.*)$!https://a.example/\\1!"), ("!a!", "!"), ("!a!b!", "")]
    ),
    "NAPTR rdata": Reader(lambda text: Naptr.from_wire(text.encode("utf-8", "replace")), [("\0\1\0\1\1u\3ark", "\0")]),
    "prefix rule of an ARK": Reader(
        partial(_matched, rb"!^ark:/?12345/(.*)$!https://a.example/\1!"), [("ark:12345/", "")]
    ),
    "any rule of an ARK": Reader(
        partial(_matched, rb"!(a|1|-)*(.*)/([^:]*)!https://a.example/\1!"), [("ark:12345/", "")]
    ),
    "DNS query": Reader(_query, [("\0\0#\0\1", "")]),
    "DNS response": Reader(_response, [("\xc0\x0c", "")]),
    # the gateway
    "request target": Reader(_GATEWAY.ask, _IN_TARGET),
    "request target, JSON": Reader(lambda text: _GATEWAY.ask(text, accept="application/json"), _IN_TARGET),
    "request target, page": Reader(lambda text: _GATEWAY.ask(text, accept="text/html"), _IN_TARGET),
    "request for a list": Reader(lambda text: _GATEWAY.ask(text, accept="application/linkset+json"), _IN_TARGET),
    "request to the API": Reader(
        lambda text: _GATEWAY.ask(f"/api/v1/{text}"),
        [("discover?ark=", ""), ("naans/", ""), ("naans?", "=1"), ("", "")],
    ),
    "request for a page": Reader(
        _GATEWAY.ask, [("/naan/", ""), ("/naan/?q=", ""), ("/drift?", "=1"), ("/stats?", "=1")]
    ),
    "DNS over HTTPS": Reader(_GATEWAY.ask, [("/dns-query?dns=", ""), ("/dns-query?", "=1")], plain=False),
    "body of a POST": Reader(
        lambda text: _GATEWAY.ask(
            "/", "POST", body=text.encode("utf-8", "replace").decode(), content_type="text/plain"
        ),
        _IN_ARK[:3],
    ),
    **{f"header {name}": _header(name) for name in ("accept", "accept_language", "host", "if_none_match", "cookie")},
    "Accept": Reader(message.ranges.__wrapped__, [("text/html;q=", ""), ("a;", ",b")]),
    "Accept-Language": Reader(language.preferred.__wrapped__, [("en", ""), ("fr-", ";q=0.1")]),
    **{
        header: Reader(
            partial(_client, proxies),
            [("for=", ""), ('for="', '"'), ('for="', ""), (",", "192.0.2.1")],
        )
        for header, proxies in _PROXIES.items()
    },
    "query parameters": Reader(lambda text: message.Request("GET", f"/?{text}", {}).parameters, [("a=", "&b=1")]),
    "naan_in": Reader(statistics.naan_in, _IN_TARGET),
    "kind_of": Reader(kind_of, _IN_TARGET),
    "Statistics.count": Reader(
        lambda text: _COUNTS.count("12345", text, 302, text, text),
        [("/ark:12345/x?", ""), ("https://", "/"), ("a;", "")],
    ),
    "span_of": Reader(statistics.span_of, [("2025", ""), ("2025-01/", "")]),
    # own objects
    "redirects, CSV": Reader(
        _csv,
        [
            ("ark,url\nark:12345/x,https://a.example/", "\n"),
            ("ark,url\n", "\n"),
            ("ark,url,", "\n"),
            ('ark,url\n"', '"\n'),
        ],
    ),
    "redirects, row": Reader(
        lambda text: read_row({"ark": "ark:12345/x", "url": text, "suffix": text}), [("https://a.example/", "")]
    ),
    "own object of an ARK": Reader(
        lambda text: (
            target_of(found, ark)
            if (found := match_object(_GATEWAY.site.objects, ark := Ark.parse(text, bare=True)))
            else None
        ),
        [("ark:12345/k1", ""), ("ark:12345/k1/", "/x"), ("ark:12345/", "/k1")],
    ),
    # mapping authorities
    "description": Reader(_erc, _IN_ERC),
    "segments": Reader(describe.segments, _IN_ERC),
    "Content-Type": Reader(_content_type, [("text/plain; charset=", ""), ("text/plain; ", "=a")]),
    "normal_date": Reader(describe.normal_date, [("2001", ""), ("", "2001"), ("2001-01", "")]),
    # the configuration
    "configuration": Reader(reader.parse, _IN_TOML),
    "lines of a configuration": Reader(_key_lines, _IN_TOML),
    "duration": Reader(model.read_duration, [("1", "h"), ("1h", "")]),
    "TSIG secret": Reader(model.read_tsig_secret),
    "cookie secrets": Reader(model.read_cookie_secrets),
    "address": Reader(Address.from_text, [("[", "]:53"), ("192.0.2.1:", "")]),
    "network": Reader(read_network, [("192.0.2.0/", ""), ("", "/24")]),
    "access rule": Reader(AccessRule.from_text, [("key:", ""), ("192.0.2.0/24 ", "")]),
    "NOTIFY target": Reader(NotifyTarget.from_text, [("192.0.2.1", " key:a")]),
    "DNS server": Reader(check_server, [("https://", "/"), ("tls://", ""), ("a", "#53"), ("[", "]")]),
    "resolv.conf options": Reader(lambda text: ResolverOptions.read(text.split()), [("timeout:", "")]),
    # what a proxy and a secondary send
    "PROXY header": Reader(_proxy_header, [("PROXY TCP4 ", "\r\n"), ("\r\n\r\n\0\r\nQUIT\n!\x11\2\0", "")]),
    "TSIG record": Reader(_tsig, [("\1a\0\0\xfa\0\xff\0\0\0\0\1\0", ""), ("\1a", "\0\0\xfa\0\xff\0\0\0\0\0\0")]),
    "response of a secondary": Reader(_secondary, [("\xc0\x0c\0\6\0\1\0\0\0\1\1\0", "")]),
    "Host of an operator": Reader(partial(is_for_operators, names=("a",)), [("[", "]"), ("a:", ""), ("1.", "")]),
    # the state folder, keys and certificates
    "journal": Reader(_journal, [("\0" * 15 + "\x7f", ""), ("\0" * 12 + "\0\0\1\0", "")]),
    "kept version": Reader(_kept, [('{"origin": "', '"}\n'), ("{}\n", ""), ('{"warnings": [', "]}\n")]),
    "signed version": Reader(_signed_version, _IN_ZONE[:4]),
    "stored serial": Reader(
        lambda text: state_folder.read_serial(_file_of("ark.arpa.serial", _octets(text)), _ORIGIN),
        [('{"serial": 1, "digest": "', '"}'), ('{"serial": ', "}")],
    ),
    "frozen zones": Reader(
        lambda text: freeze.read(_file_of(freeze.NAME, _octets(text)), 0.0), [('{"', '": 1}'), ('{"a": ', "}")]
    ),
    "kept catalog": Reader(_kept_catalog, [('{"serial": 1, "digest": "", "members": ["', '"]}'), ('{"held": [', "]}")]),
    "note of a pull": Reader(
        lambda text: followed_file.read_pull_file(_file_of("naans.pull", _octets(text)) / "naans"), [('{"a": "', '"}')]
    ),
    "signing key": Reader(_signing_key, [("-----BEGIN PRIVATE KEY-----\n", "\n-----END PRIVATE KEY-----\n")]),
    "secret file": Reader(_secret_file, [("c2Vj", "cmV0")]),
    "certificate": Reader(
        lambda text: CertificatePeriod.of_chain(_octets(text)),
        [("-----BEGIN CERTIFICATE-----\n", "\n-----END CERTIFICATE-----\n")],
    ),
    "trust anchors": Reader(
        read_anchors, [(". DS 1 8 2 ", "\n"), (". 1 DNSKEY 257 3 8 ", "\n"), ("", " DS 1 8 2 00\n")]
    ),
    # files of the command line
    "bulk, lines": Reader(_bulk, _IN_ARK[:6]),
    "bulk, columns": Reader(partial(_bulk, column="ark"), [("ark,b\n", "\n"), ('b,ark\n"', '"\n'), ("ark\tb\n", "\n")]),
    "bulk, find": Reader(
        _bulk_find, [("ark\n", "\n"), ("ark,b\nark:12345/x", "\n"), ('ark\n"', '"\n'), ("ark,", "\n1\n")]
    ),
    "bulk, second column": Reader(partial(_bulk, column="2"), [("a,", "\n"), ('"', '",ark:12345/x\n')]),
    # texts of messages, logs and tables
    "printable": Reader(printable),
    "visible": Reader(visible),
    "cell": Reader(lambda text: (cell(text), text_of_cell(text)), [("'", "=")]),
    "json_text": Reader(json_text),
    "nearest": Reader(
        lambda text: nearest(text, ["listen", "public_url", "table"], likeness=0.5), [("lis", ""), ("", "ten")]
    ),
}


# ---- the texts


def frames_of(one: Reader) -> list[tuple[str, str]]:
    return [*([("", "")] if one.plain else ()), *one.frames]


def texts(one: Reader, rng: random.Random) -> Iterator[tuple[str, str, str, str]]:
    """Yield each text: its description, the text before the run, the repeated unit, and the text after it."""
    frames = frames_of(one)
    turns = itertools.cycle(frames)
    for name, unit in KINDS.items():
        for before, after in itertools.islice(turns, min(FRAMES, len(frames))):
            yield f"{before!a} {name} {after!a}", before, unit, after
    for length, count in ((2, PAIRS), (3, TRIPLES)):
        for _ in range(count):
            unit = "".join(rng.sample(COMMON, length))
            before, after = rng.choice(frames)
            yield f"{before!a} {unit!a} {after!a}", before, unit, after
    for _ in range(PAIRS):  # one long run, then another
        first, second = rng.sample(COMMON, 2)
        before, after = rng.choice(frames)
        yield f"{before!a} half {first!a}, half {second!a} {after!a}", before, f"{first}\0{second}", after


def of_size(before: str, unit: str, after: str, size: int) -> str:
    """Return a text with a run of that many characters."""
    first, halves, second = unit.partition("\0")
    if halves and first and second:
        return f"{before}{first * (size // 2)}{second * (size // 2)}{after}"
    count = SIZES[0] // len(unit) // 2 * 2  # even, so that quotes come in pairs in each size
    return f"{before}{unit * (count * (size // SIZES[0]))}{after}"


# ---- the measurement


class TooSlow(BaseException):
    """A text took more than PATIENCE. No reader catches it."""


def _stop(signum: int, frame: object) -> None:
    raise TooSlow


def seconds(read: Read, text: str) -> float:
    """Return the CPU time of reading a text. Raises TooSlow."""
    previous = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    began = time.thread_time()
    try:
        with suppress(*EXPECTED):
            read(text)
        return time.thread_time() - began
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def _is_slow(half: float, whole: float) -> bool:
    return whole >= FLOOR and whole > FACTOR * half


def slow_step(name: str, read: Read, words: str, make: Callable[[int], str]) -> tuple[Slow | None, float]:
    """Return the step of a text that is too slow in NEEDED of RUNS runs, and the time of the longest text read."""
    last = 0.0
    for size in SIZES:
        try:
            taken = seconds(read, make(size))
        except TooSlow:
            return Slow(name, words, size, 0.0, PATIENCE), PATIENCE
        if size > SIZES[0] and _is_slow(last, taken):
            confirmed = [two for two in (_confirmed(read, make, size) for _ in range(RUNS)) if two is not None]
            if len(confirmed) >= NEEDED:
                return Slow(name, words, size, *min(confirmed, key=lambda pair: pair[1] / (pair[0] or FLOOR))), taken
        last = taken
        if taken > ENOUGH and size > SIZES[0]:
            break
    return None, last


def _confirmed(read: Read, make: Callable[[int], str], size: int) -> tuple[float, float] | None:
    """Return the times for half of a text and for all of it, if this step is too slow, and so is the one before or
    after: if a text outgrows a processor cache, only one step is slow."""
    quarter, half, whole, double = _best(read, [make(max(size * part // 4, SIZES[0])) for part in (1, 2, 4, 8)])
    twice = double > FACTOR * whole or (size > 2 * SIZES[0] and half > FACTOR * quarter)
    return (half, whole) if twice and _is_slow(half, whole) else None


def _best(read: Read, texts: Sequence[str]) -> list[float]:
    """Return the shortest of several times for each text. The texts are read in turns, so that other work of the
    machine slows down all of them."""
    time.sleep(PAUSE)
    rounds = [[_patient(read, text) for text in texts] for _ in range(REPEATS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def _patient(read: Read, text: str) -> float:
    try:
        return seconds(read, text)
    except TooSlow:
        return PATIENCE


def measure(name: str, one: Reader) -> Measured:
    """Measure a reader with all texts. Errors other than EXPECTED are not caught."""
    count, slowest, of, slow = 0, 0.0, "", []
    for words, before, unit, after in texts(one, random.Random(f"{SEED} {name}")):
        found, taken = slow_step(name, one.read, words, partial(of_size, before, unit, after))
        count += 1
        if found is not None:
            slow.append(found)
            if len(slow) >= 12:
                break
        elif taken > slowest:
            slowest, of = taken, words
    return Measured(name, count, slowest, of, slow)


_FOLDER = Path(tempfile.gettempdir())
_NGINX_PATTERN = re.compile(
    next(
        line.split('"')[1].removeprefix("~*").replace("(?<", "(?P<")
        for line in export.write(_TABLE, "nginx")[0].splitlines()
        if "maptr_tail>" in line
    ),
    re.IGNORECASE,
)


def _measure(name: str) -> Measured:
    logging.disable()
    gc.disable()  # a collection takes long, whatever the text
    return measure(name, READERS[name])


def report_each(measured: Iterable[Measured]) -> list[Measured]:
    """Print a line for each reader as it is measured."""
    print(f"{'reader':26} texts  slowest, ms  of")
    done = []
    for one in measured:
        mark = f"TOO SLOW: {len(one.slow)} texts" if one.slow else one.of
        print(f"{one.reader:26} {one.texts:5}  {one.slowest * 1e3:11.1f}  {mark}", flush=True)
        done.append(one)
    return done


def measure_in_processes(readers: Sequence[str], processes: int | None = None) -> list[Measured]:
    """Measure readers in that many processes, by default one for each core, and print a line for each."""
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        measured = report_each(pool.imap(_measure, readers, chunksize=1))
        pool.close()
        pool.join()
    return measured


def verdict(measured: Sequence[Measured]) -> int:
    """Print what is too slow, and the summary. Return the exit status."""
    slow = [one for one in measured if one.slow]
    for step in itertools.chain.from_iterable(one.slow for one in slow):
        print(step)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    texts = sum(one.texts for one in measured)
    summary = f"{len(slow)} readers take more than linear time" if slow else "all take linear time"
    print(
        f"{len(measured)} readers, {texts} texts of {SIZES[0]} to {SIZES[-1]} characters, "
        f"{used.ru_utime + used.ru_stime:.0f} s of CPU time: {summary}"
    )
    return 1 if slow else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench patterns", description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="READER", help="measure only these readers")
    parser.add_argument("--smoke", action="store_true", help="measure one reader, to see that the measurement works")
    arguments = parser.parse_args()
    chosen = arguments.readers or (["url.parse"] if arguments.smoke else list(READERS))
    if unknown := [name for name in chosen if name not in READERS]:
        parser.error(f"{unknown[0]!r} is not a reader; there are {', '.join(READERS)}")
    global _FOLDER  # noqa: PLW0603 - the processes below have it from here
    with tempfile.TemporaryDirectory(prefix="maptr-patterns-") as folder:
        _FOLDER = Path(folder)
        measured = measure_in_processes(chosen)
        if slow := [one.reader for one in measured if one.slow]:
            print("once more, without other processes:")
            again = {one.reader: one for one in measure_in_processes(slow, 1)}
            measured = [again.get(one.reader, one) for one in measured]
        return verdict(measured)


if __name__ == "__main__":
    sys.exit(main())
