"""Zone files with lines longer than any record needs: an error with its line, at once."""

from __future__ import annotations

import pytest

from maptr.errors import ZoneError
from maptr.protocol.names import fold, parse
from maptr.zone import masterfile
from maptr.zone.masterfile import MAX_WORD, read_master_file

APEX = fold(parse("a.test"))
HEAD = "$TTL 60\n@ SOA ns host 6 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n"
SIZE = 4 * MAX_WORD


@pytest.mark.parametrize(
    "line",
    [
        "x TXT " + "a" * SIZE,
        "x TXT " + "\\065" * SIZE,
        'x TXT "' + "a" * SIZE + '"',
        "x TXT ( " + '"a" ' * SIZE + ")",
        "x." * SIZE + " TXT a",
        "\0" * SIZE,
        "x " + "1" * SIZE + " TXT a",
        "x TYPE65280 \\# 2 " + "a" * SIZE,
    ],
    ids=["word", "escapes", "quoted", "words", "owner", "nul", "ttl", "generic"],
)
def test_a_word_or_record_that_is_too_long_is_refused_before_it_is_read(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One regular expression over the whole line would hold all threads."""
    lengths = []
    pattern = masterfile._PART

    class Watched:
        def match(self, *arguments: object) -> object:
            found = pattern.match(*arguments)  # type: ignore[call-overload]
            lengths.append(len(found[0]) if found else 0)
            return found

    monkeypatch.setattr(masterfile, "_PART", Watched())
    with pytest.raises(ZoneError, match=r"^z:5: a record has more than 262144 words, or a word of more than"):
        read_master_file("z", f"{HEAD}{line}\n".encode(), APEX)
    assert max(lengths) <= MAX_WORD


@pytest.mark.parametrize("mark", ["x TXT a ;", "x TXT (a ;", ";"])
def test_a_comment_may_be_as_long_as_it_likes(mark: str) -> None:
    end = "\n)" if "(" in mark else ""
    text = f"{HEAD}{mark}{'a ( ' * SIZE}{end}\nlast A 192.0.2.9\n"
    assert read_master_file("z", text.encode(), APEX).nodes.get(fold(parse("last.a.test")))


def test_the_longest_rdata_is_read() -> None:
    strings = "\n".join(['"' + "\\065" * 255 + '"'] * 255)
    text = f"{HEAD}x TYPE65280 \\# 65535 {'ab' * 65535}\ny TXT ( {strings} )\n"
    view = read_master_file("z", text.encode(), APEX)
    assert [
        len(view.nodes[fold(parse(f"{name}.a.test"))][kind].rdatas[0]) for name, kind in (("x", 65280), ("y", 16))
    ] == [
        65535,
        65280,
    ]
