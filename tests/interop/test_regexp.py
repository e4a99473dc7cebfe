"""maptr refuses the regexps that BIND refuses, and accepts those that BIND accepts."""

from __future__ import annotations

import random
import re
from pathlib import Path

from maptr.naptr.record import Naptr
from maptr.naptr.regexp import RegexpError, Substitution
from tests.support.peers import CHECKERS

COUNT = 8000
SAMPLE = 200  # about 10 ms each
HEAD = "$ORIGIN ark.arpa.\n$TTL 60\n@ SOA ns.example. h.example. 1 1 1 1 1\n@ NS ns.example.\n"
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
    path.write_text(HEAD + "".join(records))
    return path


def test_bind_accepts_the_fields_that_maptr_does_not_refuse(tmp_path: Path) -> None:
    corpus = [field for field in fields(random.Random(35), COUNT) if verdict(field) != "refused"]
    assert len(corpus) > COUNT / 20
    assert {verdict(field) for field in corpus} == {"taken", "not understood"}
    accepted, output = CHECKERS["named-checkzone"]("ark.arpa.", write(tmp_path / "zone", corpus))
    assert accepted, [(line, corpus[int(line) - HEAD.count("\n") - 1]) for line in re.findall(r":(\d+): ", output)]


def test_bind_refuses_the_fields_that_maptr_refuses(tmp_path: Path) -> None:
    """One zone for each field: BIND does not report all errors of a zone."""
    corpus = [field for field in fields(random.Random(36), SAMPLE) if verdict(field) == "refused"]
    assert len(corpus) > SAMPLE / 3
    check = CHECKERS["named-checkzone"]
    assert [field for field in corpus if check("ark.arpa.", write(tmp_path / "zone", [field])).accepted] == []
