"""The languages of the pages: their messages, the choice of one, and headers for caches."""

from __future__ import annotations

import re
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import tomli
from jinja2 import Environment

from maptr.config import parse
from maptr.config.model import LANGUAGES, GatewayConfig
from maptr.gateway.appearance import Appearance
from maptr.gateway.language import ENGLISH, SPANS, Language, built_in, preferred
from maptr.gateway.objects import OwnObject
from maptr.gateway.site import DriftReport
from maptr.reconcile.verdict import Drift, Verdict
from maptr.registry.table import Entry, Nma, Table, Who
from tests.support.gateway import Gateway, objects

REPOSITORY = Path(__file__).resolve().parents[2]
FOREIGN = [code for code in LANGUAGES if code != ENGLISH]
GERMAN = Language("de", tomli.loads((REPOSITORY / "docs/recipes/messages/de.toml").read_text("utf-8")))
TRANSLATIONS = [*(built_in()[code] for code in FOREIGN), GERMAN]
TEMPLATES = [
    each
    for each in (files("maptr.gateway") / "templates").iterdir()
    if each.name.endswith(".html") and each.name != "drift_file.html"  # of a command, which speaks English
]
SKIP = {
    "en": "Skip to the content",
    "fr": "Aller au contenu",
    "es": "Ir al contenido",
    "de": "Zum Inhalt springen",
}
TITLES = {
    "en": "There is no such page",
    "fr": "Cette page n’existe pas",
    "es": "Esta página no existe",
    "de": "Diese Seite gibt es nicht",
}
NAMES = {
    "maptr",
    "ARK",
    "NAAN",
    "NAPTR",
    "API",
    "CSV",
    "URL",
    "s",
}  # the same in every language, as the unit of a second
TABLE = Table([Entry("12345", "", (Nma("https://h.example/ark:/${content}"),), Who("Bibliothèque", None, "B"))])


def messages() -> dict[str, tuple[str, ...]]:
    """Every message by its key: one text, or singular and plural."""
    environment: Any = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
    found = dict.fromkeys(map(str, Verdict))
    every: dict[str, tuple[str, ...]] = {text: (text,) for text in found} | {one: (one, more) for _, one, more in SPANS}
    for template in TEMPLATES:
        for _, function, message in environment.extract_translations(template.read_text()):
            texts = tuple(text for text in (message if isinstance(message, tuple) else (message,)) if text)
            if function != "ngettext":
                texts = texts[:1]
            if texts:
                every[texts[0]] = texts
    return every


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"%\(\w+\)s|%%|<\w+(?: class=\"\w+\")?", text)) - {"<span"}


@pytest.mark.parametrize("language", TRANSLATIONS, ids=lambda language: language.code)
def test_every_message_is_translated_and_none_is_superfluous(language: Language) -> None:
    known, wanted = language.messages, messages()
    assert list(known.keys() ^ wanted.keys()) == []
    for key, texts in wanted.items():
        translated = known[key]
        forms = translated if isinstance(translated, list) else [translated]
        assert len(forms) == len(texts), key
        for text, form in zip(texts, forms, strict=True):
            assert placeholders(text) == placeholders(form), key
            assert form.strip(), key


def test_typography() -> None:
    """A narrow no-break space before the high marks of French, and the opening marks of Spanish."""
    wrong_of = {"fr": "[^\u202f](?:[;?!»]|%%|:(?!/|ses|rel))|«[^\u202f]|'", "es": r"^[^¿]*\?|^[^¡]*!|'", "de": "'"}
    for language in TRANSLATIONS:
        wrong = wrong_of[language.code]
        for key, forms in language.messages.items():
            for form in forms if isinstance(forms, list) else [forms]:
                prose = re.sub(r"<code>.*?</code>|<[^>]*>", "", form)
                assert not re.search(wrong, prose), (key, form)


def test_no_text_of_a_template_is_outside_of_a_message() -> None:
    environment = Environment(extensions=["jinja2.ext.i18n"])
    for template in TEMPLATES:
        without = re.sub(r"{%-? *trans.*?endtrans *-?%}", "", template.read_text(), flags=re.DOTALL)
        data = "".join(value for _, kind, value in environment.lex(without) if kind == "data")
        data += " ".join(re.findall(r'(?:aria-label|title|alt|placeholder)="([^"{]+)"', without))
        words = set(re.findall(r"[^\W\d]+", re.sub(r"<[^<>]*>?|[^<>]*\">|&\w+;", " ", data)))
        assert words <= NAMES, template.name


def test_translations_are_escaped_as_other_texts_are() -> None:
    french = built_in()["fr"]
    assert french.gettext("Mapping authorities of %(ark)s", ark="<b>\x1b") == "Autorités d’adressage de &lt;b&gt; "
    assert french.ngettext("%(count)s record", "", 0, count=0) == "0 notice"
    assert french.ngettext("%(count)s record", "", 1234, count=1234) == "1\u202f234 notices"
    assert built_in()["es"].ngettext("%(count)s record", "", 0, count=0) == "0 registros"
    assert [built_in()["es"].number(number) for number in (1234, 12_345, 0.5)] == ["1234", "12\u202f345", "0,5"]
    assert (french.number(0.5), built_in()["en"].number(0.5)) == ("0,5", "0.5")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 seconds"), (1, "1 second"), (90, "90 seconds"), (120, "2 minutes"), (3600, "1 hour"), (86_400, "1 day")],
)
def test_a_span_of_time_has_its_largest_unit(seconds: float, text: str) -> None:
    assert built_in()["en"].span(seconds) == text


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "en"),
        ("fr", "fr"),
        ("fr-CA", "fr"),
        ("FR-ca, en;q=0.5", "fr"),
        ("en;q=0.5, es-419;q=0.9, fr;q=0.1", "es"),
        ("de, it;q=0.9", "en"),
        ("de, fr;q=0.2", "fr"),
        ("*", "en"),
        ("*;q=0.1, es;q=0.2", "es"),
        ("fr;q=0, es;q=0.1", "es"),
        ("fr;q=0", "en"),
        ("fry", "en"),
        ("\x00;q=nonsense,,;;=", "en"),
        (", " * 10_000 + "fr", "en"),
        ("fr" + "-" * 1_000_000, "fr"),
    ],
)
def test_the_browser_chooses(header: str, code: str) -> None:
    """RFC 9110 12.5.4, RFC 4647 3.4."""
    assert preferred(header) == code


@pytest.mark.parametrize(
    ("header", "code"),
    [("pt-BR", "pt-br"), ("pt-BR-x-a", "pt-br"), ("pt", "pt"), ("pt-PT", "pt"), ("pt-B", "pt"), ("zh", "en")],
)
def test_the_browser_gets_the_nearest_language(header: str, code: str) -> None:
    """RFC 4647 3.4."""
    assert preferred(header, ("en", "pt", "pt-br", "zh-hant")) == code


@pytest.mark.parametrize("code", [*LANGUAGES, "de"])
def test_every_page_is_in_the_language_of_the_browser(code: str) -> None:
    """German is one that the operator has added."""
    verdicts = [Drift("12345", Verdict.MISSING, "ark:12345/x"), Drift("12345/x", Verdict.SAME, "ark:12345/x")]
    gone = objects(OwnObject("ark:12345/gone", status=410))
    gateway = Gateway(
        TABLE,
        drift=DriftReport(verdicts, 1_699_999_950.0),
        compares=True,
        objects=gone,
        appearance=Appearance(languages={**built_in(), "de": GERMAN}),
    )
    titles: set[str] = set()
    for target, status in {
        "/": 200,
        "/?q=hello": 200,
        "/?q=ark:12345/x": 200,
        "/naan/": 200,
        "/naan/12345": 200,
        "/naan/1": 404,
        "/ark:12345": 200,
        "/ark:12345/x?maptr=list": 200,
        "/ark:12345/gone": 410,
        "/ark:!": 400,
        "/ark:12345/" + "x" * 9000: 414,
        "/nothing": 404,
        "/drift": 200,
        "/drift?verdict=same": 200,
        "/status": 200,
        "/servers": 200,
        "/api": 200,
    }.items():
        response = gateway.ask(target, accept="text/html", accept_language=f"{code}-XX, nl")
        assert response.status == status, target
        assert response.header("Content-Language") == code
        asked_by_type = target.startswith(("/ark:", "/api")) or status == 404  # the others are pages for any client
        assert response.header("Vary") == "Accept, Accept-Language"[0 if asked_by_type else 8 :]
        body = response.body.decode()
        assert f'<html lang="{code}">' in body
        assert [known for known, text in SKIP.items() if text in body] == [code]
        ours = re.sub(r'<(\w+)[^>]* lang="en".*?</\1>', "", body, flags=re.DOTALL)
        prose = " ".join([re.sub("<[^>]*>", " ", ours), *re.findall('aria-label="(.*?)"', ours)])
        assert code != "fr" or not re.search(r"\w[:;?!»](?!\S)", unescape(prose)), target
        titles |= set(re.findall("<title>(.*) – maptr</title>", body))
    assert TITLES[code] in titles
    assert "Not Found" not in titles


def test_validators_tell_the_languages_apart() -> None:
    gateway = Gateway(TABLE, drift=DriftReport((), 1_699_999_950.0))
    for target in ("/", "/drift", "/naan/12345"):
        tags = {code: gateway.ask(target, accept_language=code).header("ETag") for code in LANGUAGES}
        assert len(set(tags.values())) == len(LANGUAGES)
        assert gateway.ask(target, accept_language="fr", if_none_match=tags["fr"]).status == 304
        assert gateway.ask(target, accept_language="fr", if_none_match=tags["en"]).status == 200


def test_the_operator_may_fix_the_language() -> None:
    gateway = Gateway(TABLE, settings=GatewayConfig(language="es", name="Biblioteca"))
    for target in ("/", "/nothing"):
        page = gateway.ask(target, accept="text/html", accept_language="fr")
        assert '<html lang="es">' in page.body.decode()
        assert "– Biblioteca</title>" in page.body.decode()
        assert "Accept-Language" not in page.header("Vary")
    assert parse('[gateway]\nlanguage = "fr"\n').gateway.language == "fr"
