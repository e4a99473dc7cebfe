"""``maptr ark``, and how commands and functions read ARKs: bare NAANs, pasted forms, profiles."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from maptr.cli import is_discover
from tests.support.command_line import run
from tests.support.drivers import STUB_DRIVERS, Driver, by_memory, name_of
from tests.support.hostile import Hostile, hostile, hosts, naptr

ZONE = {
    "12345.ark.arpa.": [naptr("h.example.org.")],
    "67890.ark.arpa.": [naptr(flags=b"u", regexp=b"!^ark:/?67890/(.*)$!https://u.example.org/ark:/67890/\\1!")],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with hostile(hosts(ZONE)) as running:
        yield running


# ---- the command


def test_the_normal_form_and_the_parts_are_printed() -> None:
    run(
        "ark",
        "https://n2t.net/ark:/13030/xf9-3gt2q/c3.v1?info#top",
        code=0,
        out="ark:13030/xf93gt2q/c3.v1\n"
        "  NMA:             https://n2t.net/\n"
        "  NAAN:            13030\n"
        "  name:            xf93gt2q\n"
        "  shoulder:        xf9\n"
        "  blade:           3gt2q\n"
        "  qualifier:       /c3.v1\n"
        "  inflection:      ?info\n"
        "  check character: q, correct over NAAN and name\n"
        "  note:            the fragment '#top' is not part of the ARK\n",
    )


def test_as_json() -> None:
    document = json.loads(run("ark", "--json", "ark:/12345/x6np1wh8k./c3/s5.v7.xsl").stdout)
    assert document["schema"] == "maptr/1"
    assert document["ark"] == "ark:12345/x6np1wh8k/s5.c3.v7.xsl"
    assert (document["naan"], document["name"], document["shoulder"]) == ("12345", "x6np1wh8k", "x6")
    assert (document["check"], document["check_character"]) == (True, "k")
    assert document["resolution"] == "ark:12345/x6np1wh8k./c3/s5.v7.xsl"
    assert document["shared"] == "examples in documentation"
    assert (document["notes"], document["error"]) == ([], None)


def test_a_bare_naan_is_accepted() -> None:
    assert run("ark", "https://n2t.net/ark:/13030").stdout.splitlines()[0] == "ark:13030"
    shown = json.loads(run("ark", "--json", "ark:13030/").stdout)
    assert (shown["ark"], shown["name"], shown["shoulder"], shown["check"]) == ("ark:13030", "", None, False)


def test_an_invalid_ark_does_not_stop_the_others() -> None:
    told = run("ark", "ark:12345/x%zz", "ark:12345/x1", code=2, said="write % as %25")
    assert told.stdout.startswith("ark:12345/x1\n")
    told = run("ark", "--json", "12345/x1", code=2)
    document = json.loads(told.stdout)
    assert document["ark"] is None
    assert "is it ark:12345/x1?" in document["error"]


def test_find_reads_arks_in_prose_and_standard_input() -> None:
    told = run("ark", "--find", "--json", "-", text="See ark:12345/x5-4\n(and https://n2t.net/ark:/12345/x6).\n")
    assert [json.loads(line)["ark"] for line in told.stdout.splitlines()] == ["ark:12345/x54", "ark:12345/x6"]
    run("ark", "--find", "nothing here", code=2, out="", said="maptr: no ARK in the text\n")
    utf_16 = "ark:12345/x1".encode("utf-16")
    run(
        "ark",
        "--find",
        "-",
        text=utf_16,
        code=2,
        out="",
        said="no ARK in the text, which is not UTF-8: save it as UTF-8",
    )
    run("ark", "--find", __file__, code=2, out="", said=f"no ARK in the text: to read the file, write: - < {__file__}")


def test_the_profile_option() -> None:
    assert run("ark", "--profile", "2002", "ark:/12345/x54.v18.fr#1%7D").stdout.startswith(
        "ark:12345/x54.fr#1%7d.v18\n"
    )
    assert run("ark", "--profile", "2019", "ark://12345/x.b.a").stdout.startswith("ark:12345/x.a.b\n")


def test_control_characters_are_escaped() -> None:
    told = run("ark", "ark:12345/x\x1b[31m", "ark:12345/x?\u202e#\x9b31m")
    assert "\x1b" not in told.output
    assert "\x9b" not in told.output


# ---- discovering


@pytest.mark.parametrize("driver", [*STUB_DRIVERS, by_memory], ids=name_of)
@pytest.mark.parametrize(
    ("text", "profile", "ark", "url"),
    [
        ("ark:12345", "current", "ark:12345", "https://h.example.org/ark:12345"),
        ("ark:/12345/", "current", "ark:12345", "https://h.example.org/ark:12345"),
        ("https://n2t.net/ark:12345", "current", "ark:12345", "https://h.example.org/ark:12345"),
        ("(ark%3A12345)", "current", "ark:12345", "https://h.example.org/ark:12345"),
        ("ark:67890", "current", "ark:67890", "https://u.example.org/ark:/67890/"),
        ("ark:/12345/x1#2", "current", "ark:12345/x1", "https://h.example.org/ark:12345/x1"),
        ("ark:/12345/x1#2", "2019", "ark:12345/x1", "https://h.example.org/ark:12345/x1"),
        ("ark:/12345/x1#2", "2002", "ark:12345/x1#2", "https://h.example.org/ark:12345/x1%232"),
        ("ark:/67890/x1#2", "2002", "ark:67890/x1#2", "https://u.example.org/ark:/67890/x1%232"),
    ],
)
def test_every_driver_reads_bare_naans_and_profiles(
    text: str, profile: str, ark: str, url: str, driver: Driver, server: Hostile
) -> None:
    found = driver(text, server, profile=profile)
    assert (str(found.ark), found.url(), found[0].url(found.ark)) == (ark, url, url)


@pytest.mark.parametrize("options", [(), ("--allow-private",)], ids=["plain", "click"])
def test_bare_naans_and_profiles_on_the_command_line(options: tuple[str, ...], server: Hostile) -> None:
    at, text = f"@{server.name}", "ark:/12345/x1#2"
    assert run("url", "ark:12345", text, at, *options).stdout.splitlines() == [
        "https://h.example.org/ark:12345",
        "https://h.example.org/ark:12345/x1",
    ]
    assert run("url", "--profile", "2002", text, at, *options).stdout == "https://h.example.org/ark:12345/x1%232\n"
    rows = run("bulk", "--profile", "2002", at, *options, text=f"ark:12345\n{text}\n").stdout.splitlines()
    assert [row.split(",")[1:3] for row in rows[1:]] == [["found", "ark:12345"], ["found", "ark:12345/x1#2"]]


def test_a_trace_shows_the_text_removed_from_the_ark(server: Hostile) -> None:
    told = run("discover", "--trace", "ark:12345/x1#top", f"@{server.name}")
    assert "ark:12345/x1: the fragment '#top' is not part of the ARK" in told.stderr
    assert "fragment" not in run("discover", "ark:12345/x1#top", f"@{server.name}").output


def test_a_percent_encoded_ark_is_accepted_as_a_command(server: Hostile) -> None:
    for word in ("ark%3A/12345/x", "(ark:12345/x)", "https%3A%2F%2Fn2t.net%2Fark%3A12345%2Fx"):
        assert is_discover(word)
        assert "https://h.example.org/ark:12345/x" in run(word, f"@{server.name}").stdout
