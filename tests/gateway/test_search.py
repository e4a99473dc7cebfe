"""The search for own objects: a store's index, what it finds, and what visitors see."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.config.model import LANGUAGES
from maptr.gateway.message import Unreadable
from maptr.gateway.objects import UnreadObjects
from maptr.gateway.redirects import store as stores
from maptr.gateway.redirects import words
from maptr.gateway.redirects.changes import forget, restore, set_object, withdraw
from maptr.gateway.redirects.following import KeptStores, follow
from maptr.gateway.redirects.importing import Terms
from maptr.gateway.redirects.store import MAX_FOUND, OTHER_COLUMNS, ObjectStore
from maptr.gateway.redirects.words import NO_INDEX, find
from maptr.registry.table import Entry, Nma, Table, Who
from tests.support import command_line
from tests.support.caching import Clock
from tests.support.gateway import Gateway
from tests.support.own_objects import csv_file, imported, put, store_of

HEAD = "ark,url,status,who,what,when,shelf,note\n"
ROWS = HEAD + "".join(
    f"ark:{row}\n"
    for row in (
        "12345/a1,https://h.example/1,302,Victor Hugo,Les Misérables,1862,upper shelf,secret one",
        "12345/a2,https://h.example/2,302,,A report on les oiseaux,1900,,",
        "12345/b3,,410,Hugo,Les Misérables (draft),1861,,",
        "12345/b4,https://h.example/4,302,紫式部,源氏物語 第一帖,1008,,",
        "12345/c5,https://h.example/5,302,A. Author,L'arbre: a study of reports,2001-05,,",
        "54321/a1,https://h.example/6,302,Другой,Война и мир,1869,,",
        "12345/d6,https://h.example/7,302,Weiß,L’Œuvre au noir,1968,,",
    )
)
TABLE = Table(
    [
        Entry("12345", "", (Nma("https://main.example/${content}"),), Who("Hugo Library", acronym="HL")),
        Entry("67890", "", (Nma("https://other.example/${content}"),), Who("Hugo Archive")),
        Entry("67891", "", (Nma("https://other.example/${content}"),), Who("Musée")),
    ]
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return imported(tmp_path / "own.sqlite", ROWS)


def names(store: ObjectStore, text: str) -> list[str]:
    found = store.search(text)
    assert found.is_whole
    return [one.ark.removeprefix("ark:") for one in found.objects]


def gateway(store: Any, **values: Any) -> Gateway:
    return Gateway(TABLE, objects=store, **values)


# ---- what is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("miserables", ["12345/a1", "12345/b3"]),
        ("LES MISÉRABLES", ["12345/a1", "12345/b3"]),
        ("les", ["12345/a1", "12345/a2", "12345/b3"]),
        ("Hugo 1862", ["12345/a1"]),
        ("oeuvre", ["12345/d6"]),
        ("l’œuvre weiss", ["12345/d6"]),
        ("hug", ["12345/a1", "12345/b3"]),
        ("hug miserables", []),
        ("miserables, hug", ["12345/a1", "12345/b3"]),
        ("oiseaux les", ["12345/a2"]),
        ("report", ["12345/a2", "12345/c5"]),
        ("l'arbre", ["12345/c5"]),
        ("L’ARBRE", ["12345/c5"]),
        ("2001-05", ["12345/c5"]),
        ("源氏", ["12345/b4"]),
        ("源", ["12345/b4"]),
        ("物語", []),
        ("война", ["54321/a1"]),
        ("a1", []),
        ("12345/a", ["12345/a1", "12345/a2"]),
        ("ark:/12345/a-1", ["12345/a1"]),
        ("shelf", []),
        ("secret", []),
        ("https", []),
        ("", []),
        (" — ", []),
    ],
)
def test_words_and_beginnings_of_arks_find_objects(text: str, found: list[str], path: Path) -> None:
    """Those whose title begins with the text come first, those that are gone last."""
    assert names(store_of(path), text) == found


def test_a_name_alone_finds_arks_of_every_naan(tmp_path: Path) -> None:
    rows = [f"ark:{naan}/k{n}x,https://h.example/\n" for naan in ("12345", "54321") for n in (1, 2)]
    store = store_of(imported(tmp_path / "own.sqlite", "ark,url\n" + "".join(rows)))
    assert names(store, "k1x") == ["12345/k1x", "54321/k1x"]
    assert names(store, "k1") == [], "two letters are the beginning of too much"


def test_a_title_that_begins_with_the_text_is_found_before_one_that_has_it(tmp_path: Path) -> None:
    titles = ("On sea birds", "Birds of the sea", "Sea birds", "A sea", "Sea birds and others")
    text = "ark,url,who,what\n" + "".join(f"ark:12345/t{n},https://h.example/,,{t}\n" for n, t in enumerate(titles))
    store = store_of(imported(tmp_path / "own.sqlite", f"{text}ark:12345/t9,https://h.example/,Sea,Birds\n"))
    assert names(store, "sea birds") == ["12345/t2", "12345/t4", "12345/t0", "12345/t1", "12345/t9"]


def test_a_change_is_found_at_once(path: Path) -> None:
    store = store_of(path)
    set_object(path, "ark:12345/new", {"url": "https://h.example/", "what": "Fleurs"})
    set_object(path, "ark:12345/a1", {"what": "Notre-Dame"})
    withdraw(path, "ark:12345/a2", reason="a duplicate")
    store.prepare()
    assert names(store, "fleurs") == ["12345/new"]
    assert names(store, "notre dame") == ["12345/a1"]
    assert names(store, "miserables") == ["12345/b3"]
    assert names(store, "report") == ["12345/c5", "12345/a2"]
    restore(path, "ark:12345/a2")
    store.prepare()
    assert names(store, "report") == ["12345/a2", "12345/c5"]


def test_an_import_indexes_what_it_kept_and_what_it_took(path: Path) -> None:
    set_object(path, "ark:12345/a1", {"what": "Kept by a command"})
    put(csv_file(path.with_name("next.csv"), ROWS.replace("oiseaux", "poissons")), path)
    assert names(store_of(path), "kept") == ["12345/a1"]
    assert names(store_of(path), "poissons") == ["12345/a2"]
    assert names(store_of(path), "oiseaux") == []


def test_what_is_forgotten_is_not_left_in_the_index(path: Path) -> None:
    """FTS5 only marks what is taken out of it."""
    set_object(path, "ark:12345/a1", {"what": "Quetzalcoatlus"})
    set_object(path, "ark:12345/a1", {"what": "Other"})
    assert b"uetzalcoatlus" in path.read_bytes().replace(b"Quetzalcoatlus", b"")
    forget(path, 2e10)
    assert b"uetzalcoatlus" not in path.read_bytes()
    assert names(store_of(path), "other") == ["12345/a1"]
    assert names(store_of(path), "hugo") == ["12345/a1", "12345/b3"]


# ---- public columns


def test_a_column_is_searched_while_it_is_public(path: Path) -> None:
    def again(**terms: tuple[str, ...]) -> ObjectStore:
        put(csv_file(path.with_name("again.csv"), ROWS), path, Terms(**terms))  # type: ignore[arg-type]
        return store_of(path)

    assert names(again(public=("shelf",)), "upper") == ["12345/a1"]
    set_object(path, "ark:12345/a2", {"shelf": "Lower", "note": "secret two"})
    set_object(path, "ark:12345/a1", {"shelf": "Cellar"})
    store = store_of(path)
    assert [names(store, text) for text in ("lower", "upper", "cellar", "secret")] == [
        ["12345/a2"],
        [],
        ["12345/a1"],
        [],
    ]
    assert names(again(private=("shelf",)), "cellar") == []


def test_a_csv_is_indexed_again_when_other_columns_are_public(tmp_path: Path) -> None:
    file, kept = csv_file(tmp_path / "own.csv", ROWS), KeptStores(tmp_path)

    def read(*public: str) -> Any:
        return follow(file, allow_private=False, clock=Clock(), kept=kept, public=public).value.objects

    assert names(read("shelf"), "upper") == ["12345/a1"]
    assert names(read("shelf", "note"), "secret") == ["12345/a1"]
    assert names(read("note"), "upper") == []
    assert names(read(), "secret") == []


def test_an_index_with_a_column_that_is_private_now_is_not_used(path: Path) -> None:
    """As after a reload, while the CSV of the store cannot be read."""
    put(csv_file(path.with_name("again.csv"), ROWS), path, Terms(public=("shelf",)))
    store = stores.open_store(path, public=())
    assert (store.unindexed, names(store, "upper")) == (OTHER_COLUMNS, [])
    assert names(store, "12345/a1") == ["12345/a1"]


# ---- without an index


@pytest.fixture
def without_fts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A SQLite that does not have the module of the index."""
    with monkeypatch.context() as patched:
        patched.setattr(words, "_INDEX", words._INDEX.replace("fts5", "fts99"))
        yield


@pytest.mark.usefixtures("without_fts")
def test_without_fts5_arks_are_found_by_their_beginning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = imported(tmp_path / "own.sqlite", ROWS)
    reason = f"SQLite {sqlite3.sqlite_version}: no such module: fts99"
    assert words.lacking() == reason
    set_object(path, "ark:12345/a9", {"url": "https://h.example/9", "what": "Fleurs"})
    store = follow(path, allow_private=False, clock=Clock()).value.objects
    assert store.unindexed
    assert isinstance(store, ObjectStore)
    assert [names(store, text) for text in ("fleurs", "12345/a")] == [[], ["12345/a1", "12345/a2", "12345/a9"]]
    assert [line.message for line in caplog.records if "beginning" in line.message] == [
        f"{path}: a search finds its objects by the beginning of their ARK only: {store.unindexed}"
    ]
    page = gateway(store).ask("/?q=fleurs", accept="text/html")
    assert page.status == 200


def test_a_store_that_was_changed_without_fts5_is_indexed_by_the_next_import(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(words, "lacking", lambda: "no FTS5")
        set_object(path, "ark:12345/a1", {"what": "Fleurs"})
    store = store_of(path)
    assert (store.unindexed, names(store, "miserables")) == (NO_INDEX, [])
    set_object(path, "ark:12345/a2", {"what": "Fleurs"})
    assert store_of(path).unindexed == NO_INDEX
    exported = csv_file(path.with_name("out.csv"), command_line.run("redirects", "export", path).stdout)
    put(exported, path)
    assert names(store_of(path), "fleurs") == ["12345/a1", "12345/a2"]


def test_a_store_of_an_earlier_version_is_read_and_changed(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript("DROP TABLE words; DROP TABLE numbers; DELETE FROM meta WHERE name = 'words'")
    set_object(path, "ark:12345/a1", {"what": "Fleurs"})
    store = store_of(path)
    assert (store.unindexed, names(store, "fleurs")) == (NO_INDEX, [])
    assert names(store, "12345/a") == ["12345/a1", "12345/a2"]
    assert forget(path, 2e10) == 2
    checked = command_line.run("redirects", "check", path)
    assert f"a search finds them by the beginning of their ARK only: {NO_INDEX}" in checked.stderr
    assert json.loads(command_line.run("redirects", "check", path, "--json").stdout)["unindexed"] == NO_INDEX


# ---- hostile texts, damage, and time


HOSTILE = [
    '"',
    '""',
    "a* OR b",
    "what: x",
    "NEAR(a b, 2)",
    "^a",
    "a AND",
    "NOT",
    "a\0b",
    "{a}",
    "-a",
    "\ud800x",
    "ⅷ",
    "a" * 9000,
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    return store_of(imported(tmp_path_factory.mktemp("store") / "own.sqlite", ROWS))


@given(text=st.text() | st.text('"*^:(){}+- \0aORNT\u0301\u0e33\u00b2漢') | st.sampled_from(HOSTILE))
def test_no_text_is_an_expression(text: str, store: ObjectStore) -> None:
    """Whatever is typed, it is looked for."""
    list(find(store._connection, text, ["12345"], has_index=True, most=5))


@given(data=st.data())
def test_an_object_is_found_by_any_of_its_words(data: st.DataObject, store: ObjectStore) -> None:
    ark, _, _, who, what, when, *_ = data.draw(st.sampled_from(ROWS.splitlines()[1:])).split(",")
    some = data.draw(st.lists(st.sampled_from(f"{who} {what} {when}".split()), min_size=1))
    assert ark.removeprefix("ark:") in names(store, " ".join(some))


def test_a_damaged_index_stops_no_redirect(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE words_data SET block = x'00ff' WHERE id > 10")
    store = store_of(path)
    for _ in "it is logged once":
        assert not store.search("hugo").is_whole
    assert [line.message for line in caplog.records if line.levelno >= logging.ERROR] == [
        f"{path}: a search failed: database disk image is malformed"
    ]
    assert store.get("ark:12345/a1") is not None
    assert gateway(store).ask("/?q=hugo").header("location") == "/naan/?q=hugo"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE redirects SET status = 'x' WHERE ark = 'ark:12345/a1'",
        "UPDATE redirects SET url = 'javascript:alert(1)' WHERE ark = 'ark:12345/a1'",
        "UPDATE redirects SET more = '[' WHERE ark = 'ark:12345/a1'",
        "DELETE FROM redirects WHERE ark = 'ark:12345/a1'",
        "DELETE FROM numbers WHERE ark = 'ark:12345/a1'",
        "UPDATE numbers SET ark = '//evil.example' WHERE ark = 'ark:12345/a1'",
    ],
)
def test_a_row_that_another_program_changed_is_left_out(change: str, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(change)
    assert names(store_of(path), "hugo") == ["12345/b3"]


def test_a_table_that_is_another_index_is_not_used(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.executescript("DROP TABLE words; CREATE VIRTUAL TABLE words USING fts5(what, other)")
    assert store_of(path).unindexed == NO_INDEX


def test_a_search_ends_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has found until then is shown."""
    rows = "".join(f"ark:12345/t{n},https://h.example/,302,,Common {n},,,\n" for n in range(3000))
    store = store_of(imported(path.with_name("long.sqlite"), HEAD + rows))
    found = store.search("common")
    assert (len(found.objects), found.is_whole) == (MAX_FOUND, False)
    monkeypatch.setattr(stores, "SEARCH", -1.0)
    found = store.search("common")
    assert (len(found.objects) < MAX_FOUND, found.is_whole) == (True, False)
    assert store.get("ark:12345/t1") is not None


def test_no_look_up_waits_for_a_search(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(path)
    begun, gate = threading.Event(), threading.Event()

    def slow(*given: Any, **options: Any) -> Iterator[Any]:
        begun.set()
        gate.wait(60)
        yield from find(*given, **options)

    monkeypatch.setattr(words, "find", slow)
    searching = threading.Thread(target=store.search, args=("hugo",))
    searching.start()
    assert begun.wait(60)
    assert store.within(0).get("ark:12345/a1") is not None, "the event loop itself finds it"
    monkeypatch.setattr(stores, "LOCKED", 0.0)
    assert not store.search("hugo").is_whole, "the next search does not wait for long"
    gate.set()
    searching.join(60)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


def test_a_locked_store_hides_no_organisation(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(path)
    store._searching.execute("PRAGMA busy_timeout = 0")
    with locked(path):
        assert gateway(store).location("/?q=musee") == "/naan/67891"
        with pytest.raises(Unreadable):
            gateway(store).ask("/?q=nothing")
    with pytest.raises(Unreadable):
        gateway(UnreadObjects()).ask("/?q=nothing")


# ---- what visitors see


@pytest.mark.parametrize("code", LANGUAGES)
def test_objects_come_before_organisations(code: str, path: Path) -> None:
    page = gateway(store_of(path)).ask("/?q=hugo", accept_language=code)
    text = page.body.decode()
    order = ["/ark:12345/a1", "Les Misérables", "Victor Hugo, 1862", "/ark:12345/b3", "/naan/12345", "/naan/67890"]
    assert sorted(order, key=text.index) == order
    assert (page.status, page.header("content-language")) == (200, code)
    assert "secret" not in text


def test_organisations_alone_are_shown_as_without_objects(path: Path) -> None:
    found = gateway(store_of(path))
    assert found.location("/?q=musee") == "/naan/67891"
    assert "No object and no organisation" in found.ask("/?q=nothing").body.decode()
    assert "neither an ARK nor an organisation" in Gateway(TABLE).ask("/?q=nothing").body.decode()
    assert found.location("/?q=archive") == "/naan/67890"


def test_the_page_of_an_ark_without_an_object_leads_to_those_that_begin_like_it(path: Path) -> None:
    found = Gateway(Table(), objects=store_of(path))
    page = found.ask("/?q=ark:12345/a").body.decode()
    assert '<a href="/?q=12345/a">' in page
    assert "/ark:12345/a2" in found.ask("/?q=12345/a").body.decode()
    assert "begin like" not in found.ask("/?q=ark:12345/a1").body.decode()


def test_a_gateway_for_its_own_naans_finds_no_others(path: Path) -> None:
    found = gateway(store_of(path), naans=("54321",))
    assert "/ark:54321/a1" in found.ask("/?q=мир").body.decode()
    assert "/ark:12345" not in found.ask("/?q=hugo").body.decode()
    document = json.loads(found.ask("/api/v1/search?q=hugo").body)
    assert (document["objects"], document["records"]) == ([], [])


def test_hostile_texts_are_escaped_and_long_lists_are_in_parts(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>&\"'"
    quoted = bad.replace('"', '""')
    rows = "".join(
        f'ark:12345/t{n},https://h.example/,302,"{quoted}","{quoted} {"&" * 2000} {n}",,,\n' for n in range(90)
    )
    found = gateway(store_of(imported(tmp_path / "own.sqlite", HEAD + rows)))
    seen: set[str] = set()
    for number in range(1, 60):
        page = found.ask(f"/?q=script+%3Calert%3E&page={number}").body.decode()
        assert len(page) < 50_000
        assert "<script" not in page
        assert "<alert" not in page
        seen |= {f"t{n}" for n in range(90) if f'href="/ark:12345/t{n}"' in page}
        if 'rel="next"' not in page:
            break
    assert len(seen) == 90


def test_the_api_returns_objects_and_records(path: Path) -> None:
    put(csv_file(path.with_name("again.csv"), ROWS), path, Terms(public=("shelf",)))
    found = gateway(store_of(path), name="The Library")
    document = json.loads(found.ask("/api/v1/search?q=miserables").body)
    first, gone = document["objects"]
    assert first == {
        "ark": "ark:12345/a1",
        "url": "https://h.example/1",
        "status": 302,
        "who": "Victor Hugo",
        "what": "Les Misérables",
        "when": "1862",
        "more": {"shelf": "upper shelf"},
    }
    assert (gone["ark"], gone["status"], gone["url"], document["complete"]) == ("ark:12345/b3", 410, "", True)
    limited = json.loads(found.ask("/api/v1/search?q=hugo&limit=1").body)
    assert [len(limited["objects"]), len(limited["records"]), limited["complete"]] == [1, 1, False]
    assert [record["what"] for record in json.loads(found.ask("/api/v1/search?q=hugo").body)["records"]] == [
        "12345",
        "67890",
    ]
    for query in ("", "q=a&limit=0", "q=a&limit=101", "q=a&q=b", "q=a&after=x"):
        assert found.ask(f"/api/v1/search?{query}").status == 400, query
    empty = json.loads(found.ask("/api/v1/search?q=").body)
    assert (empty["objects"], empty["records"], empty["complete"]) == ([], [], True)
