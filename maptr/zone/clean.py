r"""Clean NAPTR records: the two usual records of a NAAN, in which ``check.py`` finds nothing.

    12345 IN NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example/ark:/12345/\\1!" .
    12345 IN NAPTR 100 10 "h" "ark" "" h.example.

``check_rules`` takes most of the time of loading a zone, so the reader of zone files leaves out the names that have
only clean records. It recognises them by this module's expressions, which use the constants of the checks. They may
miss records without a finding, but never match one with a finding. A NAAN is clean if it has at most ``MAX_RRSET``
records, and at most ``MAX_CLEAN`` bytes of them.

Each expression takes linear time: no part of it can match text of more than one label that the next part can match.
"""

from __future__ import annotations

from typing import NamedTuple

from maptr.ark import BETANUMERIC
from maptr.protocol.names import MAX_LABEL, MAX_NAME
from maptr.protocol.numbers import HEADER_SIZE, UDP_PAYLOAD
from maptr.url import SPECIAL_USE

QUESTION_AND_OPT = 4 + 11  # bytes: type and class of the question, and an OPT without options
OVERHEAD = HEADER_SIZE + QUESTION_AND_OPT  # bytes of a response besides the name and the records
MAX_CLEAN = UDP_PAYLOAD - OVERHEAD - MAX_NAME  # bytes of records
MAX_RRSET = 100  # records of one type at one name: BIND's max-records-per-type since 9.18.28

_NAAN = (BETANUMERIC + BETANUMERIC.upper()).encode()


def is_naan(label: bytes) -> bool:
    """Return whether a label can be a NAAN, in any case."""
    return bool(label) and not label.translate(None, _NAAN)


class Fragment(NamedTuple):
    """A part of an expression, with a text that it matches as a whole and one that it does not match as a whole."""

    pattern: str
    example: str
    counter_example: str


BLANK = Fragment("[ \t]+", " \t", "\n")
NUMBER = Fragment(r"\d{1,4}", "100", "65536")  # an order or a preference
LABEL = Fragment(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{MAX_LABEL - 1}}}(?<!-)", "h-1", "h-")
_PORT_SIZE = len(":9999")  # in the last label of an h record
# Written as [Ll][Oo]..., because an alternative of re.IGNORECASE is tried whatever its first letter.
_NOT_PUBLIC = "|".join(
    "".join([f"[{letter.upper()}{letter}]" for letter in name])
    for name in sorted({name.rpartition(".")[2] for name in SPECIAL_USE})
)
TOP_LEVEL = Fragment(rf"(?!(?:{_NOT_PUBLIC})\b)[A-Za-z]{{2,{MAX_LABEL - _PORT_SIZE}}}", "example", "localhost")
HOST = Fragment(rf"(?:{LABEL.pattern}\.){{1,8}}{TOP_LEVEL.pattern}", "h.example", "h.local")
PORT = Fragment(r"[1-9]\d{0,3}", "8443", "0")
PATH = Fragment(r"[A-Za-z0-9_./:?=&~%+-]*", "a/ark:/12345/", "a b")
NAAN = Fragment(f"[{_NAAN.decode()}]{{1,{MAX_LABEL}}}", "12345", "a2345")
MATCHING = Fragment(rf"\^(?i:ark):/\?{NAAN.pattern}/\w*\(\w*\.\*\)\$", "^ark:/?12345/x6(.*)$", "^ark:/?(.*)$")
MADE = Fragment(
    rf"(?i:https?)://{HOST.pattern}(?::{PORT.pattern})?/{PATH.pattern}(?:\\\\1{PATH.pattern})?",
    r"https://h.example/ark:/12345/\\1",
    r"https://h.example\\1",
)

_B = BLANK.pattern
URL_RULE = Fragment(
    rf'({NUMBER.pattern}{_B}{NUMBER.pattern}{_B}"[Uu]"{_B}"(?i:ark)"){_B}"(!{MATCHING.pattern}!{MADE.pattern}!)"{_B}\.',
    r'10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example/ark:/12345/\\1!" .',
    r'10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.local/ark:/12345/\\1!" .',
)
"""A ``u`` record. Its groups are the fields before the regexp, and the regexp, whose backslashes are escaped."""

HOST_RULE = Fragment(
    rf'({NUMBER.pattern}{_B}{NUMBER.pattern}{_B}"[Hh]"{_B}"(?i:ark)"){_B}""{_B}({HOST.pattern}(?:(?:\\058|:){PORT.pattern})?)\.',
    r'100 10 "h" "ark" "" h.example\0588443.',
    r'100 10 "h" "ark" "!a!b!" h.example.',
)
"""An ``h`` record. Its groups are the fields before the regexp, and the host, whose colon may be escaped."""

FRAGMENTS = (BLANK, NUMBER, LABEL, TOP_LEVEL, HOST, PORT, PATH, NAAN, MATCHING, MADE, URL_RULE, HOST_RULE)
