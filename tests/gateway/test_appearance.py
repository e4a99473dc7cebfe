"""The appearance of the pages from the operator's files: logo, accent colour, texts, and more languages."""

from __future__ import annotations

import base64
import os
import random
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from maptr.config import Config, load, parse
from maptr.config.colour import DARK, LEAST_CONTRAST, LIGHT, contrast, readable
from maptr.errors import ConfigError
from maptr.gateway.appearance import MAX_LOGO, MAX_NAMED, PNG, SVG, Appearance, read_appearance
from maptr.gateway.language import MAX_TEXT, Language, built_in, catalogue, fault
from tests.support.gateway import Gateway

GERMAN = Path(__file__).resolve().parents[2] / "docs" / "recipes" / "messages"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DRAWING = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 3"><script>alert(1)</script><rect width="9"/></svg>'
STYLE = (files("maptr.gateway") / "templates" / "style.css").read_text("utf-8")


def configured(folder: Path, text: str) -> Config:
    (folder / "maptr.toml").write_text(f"[gateway]\n{text}", "utf-8")
    return load(folder / "maptr.toml")


def appearance(folder: Path, text: str) -> Appearance:
    return read_appearance(configured(folder, text))


def gateway(folder: Path, text: str, **values: Any) -> Gateway:
    config = configured(folder, text)
    return Gateway(settings=config.gateway, appearance=read_appearance(config), **values)


def page(made: Gateway, target: str = "/", language: str = "en") -> str:
    return made.ask(target, accept="text/html", accept_language=language).body.decode()


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        appearance(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def placeholders(text: str) -> set[str]:
    return {*re.findall(r"%\((\w+)\)s", text)}


# ---- the logo


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("logo.png", PIXEL, PNG),
        ("logo.svg", PIXEL, PNG),
        ("logo.jpeg", DRAWING, SVG),
        ("logo", b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- ours -->\n' + DRAWING, SVG),
        ("logo", DRAWING.decode().encode("utf-16"), SVG),
        ("logo", DRAWING.replace(b"svg xmlns=", b"x:svg xmlns:x=").replace(b"/svg>", b"/x:svg>"), SVG),
    ],
)
def test_the_logo_is_served_as_what_its_content_is(name: str, content: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    made = gateway(tmp_path, f'logo = "{name}"\nname = "The <library>"\n')
    (where,) = re.findall(
        '<a class="brand" href="/"><img class="logo" src="(/logo[^"]+)" alt="The &lt;library&gt;"></a>', page(made)
    )
    assert f'<link rel="icon" href="{where}">' in page(made)
    assert made.location("/favicon.ico") == "/logo"
    response = made.ask(where)
    assert (response.status, response.header("Content-Type"), response.body) == (200, kind, content)
    assert "sandbox" in response.header("Content-Security-Policy").split("; ")
    assert "default-src 'none'" in response.header("Content-Security-Policy").split("; ")
    assert response.header("Cache-Control") == made.ask("/style.css").header("Cache-Control")
    assert made.ask(where, if_none_match=response.header("ETag")).status == 304
    assert made.ask(where, "HEAD").status == 200
    assert made.ask("/logo/x").status == 404


def test_another_logo_has_another_url(tmp_path: Path) -> None:
    found = set()
    for content in (PIXEL, DRAWING, DRAWING + b"\n"):
        (tmp_path / "logo").write_bytes(content)
        found |= set(re.findall(r"/logo\?\w+", page(gateway(tmp_path, 'logo = "logo"\n'))))
    assert len(found) == 3


def test_without_a_logo_there_is_the_name() -> None:
    assert '<a class="brand" href="/">maptr</a>' in page(Gateway())
    assert Gateway().ask("/logo").status == 404
    assert Gateway().location("/favicon.ico") == "/icon.svg"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "logo.svg: No such file or directory"),
        (b"", "logo.svg: is neither PNG nor SVG"),
        (b"\xff\xd8\xff\xe0 a JPEG", "logo.svg: is neither PNG nor SVG"),
        (b"\x1f\x8b\x08 an svgz", "logo.svg: is neither PNG nor SVG"),
        (b"<html><body><svg/></body></html>", "logo.svg: is neither PNG nor SVG"),
        (b"<svg/>", "logo.svg: is neither PNG nor SVG"),
        (b'<?xml version="1.0" encoding="klingon"?>' + DRAWING, "logo.svg: is neither PNG nor SVG"),
        (DRAWING[:-6], "logo.svg: is an SVG that no browser shows: no element found: line 1, column "),
        (DRAWING + DRAWING, "logo.svg: is an SVG that no browser shows: junk after document element: line 1"),
        (PIXEL[:-4], "logo.svg: is a PNG without an end"),
        (b" " * (MAX_LOGO + 1), f"logo.svg: Has more than {MAX_LOGO} bytes"),
    ],
)
def test_a_bad_logo_is_an_error_with_its_file(content: bytes | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "logo.svg").write_bytes(content)
    assert refused(tmp_path, 'logo = "logo.svg"\n').startswith(f"maptr.toml:2: gateway.logo: {said}")


def test_entities_of_a_drawing_do_not_become_large(tmp_path: Path) -> None:
    bomb = (
        '<!ENTITY a "'
        + "x" * 1000
        + '">'
        + "".join(f'<!ENTITY {one} "{f"&{before};" * 50}">' for before, one in zip("abcde", "bcdef", strict=True))
    )
    (tmp_path / "logo").write_text(f'<!DOCTYPE svg [{bomb}]><svg xmlns="http://www.w3.org/2000/svg"><g>&f;</g></svg>')
    assert "amplification" in refused(tmp_path, 'logo = "logo"\n')


def test_a_folder_or_a_pipe_is_no_logo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path, 'logo = "pipe"\n').endswith("pipe: Is not a regular file")
    assert refused(tmp_path, 'logo = "."\n').endswith("Is a directory")


# ---- the accent colour


def of_theme(name: str) -> list[str]:
    """The values of a colour of the style sheet in the light and the dark theme."""
    return re.findall(rf"--{name}: (#\w+)", STYLE)


def test_the_backgrounds_are_those_of_the_style_sheet() -> None:
    """A colour that has the contrast to these two has it to all that it is shown on, and that are shown on it."""
    light, dark = zip(*(of_theme(name) for name in ("paper", "card", "on")), strict=True)
    assert min(light, key=lambda one: contrast(one, "#000000")) == LIGHT
    assert min(dark, key=lambda one: contrast(one, "#ffffff")) == DARK


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [
        ("#000000", "#ffffff", 21.0),
        ("#777777", "#ffffff", 4.478),
        ("#767676", "#ffffff", 4.542),
        ("#123456",) * 2 + (1,),
    ],
)
def test_the_contrast_of_two_colours(one: str, other: str, ratio: float) -> None:
    """WCAG 2.2: #767676 is known as the lightest grey for text on white."""
    assert contrast(one, other) == contrast(other, one) == pytest.approx(ratio, abs=0.001)


@pytest.mark.parametrize("colour", ["#000000", "#ffffff", "#ffcc00", "#7a1f3d", "#00ff00", "#0000ff"])
def test_a_readable_shade(colour: str) -> None:
    for background in (LIGHT, DARK):
        shade = readable(colour, background)
        assert contrast(shade, background) >= LEAST_CONTRAST
        assert (shade == colour) is (contrast(colour, background) >= LEAST_CONTRAST)


def test_the_accent_is_in_the_style_sheet_of_both_themes() -> None:
    made = Gateway(accent="#7a1f3d")
    sheet = made.ask("/style.css").body.decode()
    assert sheet.startswith(STYLE)
    light, dark = re.findall(r"--link: (#\w+)", sheet[len(STYLE) :])
    assert light == "#7a1f3d"
    assert contrast(dark, DARK) >= 7
    given = Gateway(accent="#7a1f3d", accent_dark="#f2a7bd")
    assert given.ask("/style.css").body.decode().endswith(":root { --link: #f2a7bd; } }\n")
    assert Gateway().ask("/style.css").body.decode() == STYLE
    urls = [re.findall(r'href="(/style\.css\?\w+)"', page(one)) for one in (made, given, Gateway())]
    assert len({*map(str, urls)}) == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('accent = "teal"', "gateway.accent: 'teal' is not a colour such as #0d5c63"),
        ('accent = "#0d5c63; }"', "gateway.accent: '#0d5c63; }' is not a colour such as #0d5c63"),
        ('accent = "#0d5"', "gateway.accent: '#0d5' is not a colour"),
        ("accent = 7", "gateway.accent: must be a text, not an integer"),
        (
            'accent = "#FFCC00"',
            "gateway.accent: #ffcc00 has a contrast of 1.44:1 in the light theme, 4.5:1 is required; the nearest shade "
            "that has it is #8c7000",
        ),
        (
            'accent = "#000000"\naccent_dark = "#000000"',
            "gateway.accent_dark: #000000 has a contrast of 1.25:1 in the dark theme, 4.5:1 is required; the nearest ",
        ),
        ('accent_dark = "#ffffff"', "gateway.accent_dark: also needs gateway.accent"),
    ],
)
def test_a_colour_that_cannot_be_used_is_an_error(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"[gateway]\n{line}\n", filename="f")
    assert re.match(rf"f:\d: {re.escape(said)}", str(caught.value))


# ---- single texts

NAAN = (
    "In <code>ark:12345/x6np1wh8k</code>, <code>12345</code> is the number of the organisation that assigned the ARK "
    "(NAAN), and <code>x6np1wh8k</code> is the name that it gave to the object."
)
TEXTS = f"""
[gateway.texts.fr]
"Where does an ARK lead?" = "Les liens <b>pérennes</b> & co"
"Find" = "Trouver : 100 %%"
"%(count)s NAAN" = ["un NAAN", "%(count)s numéros"]

[gateway.texts.en]
"Find" = "Go"
"{NAAN}" = "<code>ark:12345/x</code><img src=x>"
"""


def test_texts_of_a_language_are_replaced_key_by_key(tmp_path: Path) -> None:
    made = gateway(tmp_path, TEXTS)
    french, english, spanish = (page(made, language=code) for code in ("fr", "en", "es"))
    assert "<h1>Les liens &lt;b&gt;pérennes&lt;/b&gt; &amp; co</h1>" in french, "a text, and no markup"
    assert "<button>Trouver : 100 %</button>" in french
    assert "Aller au contenu" in french, "the others stay"
    assert "<button>Go</button>" in english
    assert "<p><code>ark:12345/x</code>&lt;img src=x&gt;</p>" in english, "the elements of the message are markup"
    assert page(Gateway(), language="es") == spanish
    assert "0 numéros" not in page(made, "/naan/", "fr")
    assert "<h1>un NAAN</h1>" in page(made, "/naan/", "fr"), "0 is singular in French"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('texts = "x"', "2: gateway.texts: must be a table, not a text"),
        ('[gateway.texts]\nfr = "x"', "3: gateway.texts.fr: must be a table, not a text"),
        ("[gateway.texts.fr]\nFind = 7", "3: gateway.texts.fr.Find: must be a text, not an integer"),
    ],
)
def test_a_table_of_texts_has_tables_of_texts(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^f:{re.escape(said)}$"):
        parse(f"[gateway]\n{text}\n", filename="f")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('Fnd = "x"', 'Fnd: no such text; the nearest is "Find"'),
        ('"Qqqq zzzz" = "x"', "Qqqq zzzz: no such text: its key is the English text of a page"),
        ('Find = ""', "Find: must be a text that is not empty"),
        ('Find = ["a", "b"]', "Find: must be a text"),
        (f'Find = "{"x" * (MAX_TEXT + 1)}"', f"Find: has more than {MAX_TEXT} characters"),
        ('Find = "100 %"', "Find: has a percent sign that does not begin a placeholder: write it as %%"),
        ('Find = "%s"', "Find: has a percent sign that does not begin a placeholder: write it as %%"),
        ('Find = "%(ark)d"', "Find: has a percent sign that does not begin a placeholder: write it as %%"),
        ('"%(ark)s is gone" = "%(a%%rk)s"', "%(ark)s is gone: has a percent sign that does not begin a placeholder: "),
        ('Find = "%(ark)s"', "Find: has the placeholder %(ark)s; the message has none"),
        ('"%(ark)s is gone" = "%(arc)s"', "%(ark)s is gone: has the placeholder %(arc)s; the message has %(ark)s"),
        ('"%(count)s NAAN" = "x"', "%(count)s NAAN: must be an array of two texts: singular and plural"),
        ('"%(count)s NAAN" = ["x"]', "%(count)s NAAN: must be an array of two texts: singular and plural"),
        ('"%(count)s NAAN" = ["x", 1]', "%(count)s NAAN: must be a text that is not empty"),
        (
            '"<b>%(count)s</b> to look at" = "<b>x"',
            "<b>%(count)s</b> to look at: has an element that is not opened or ",
        ),
        ('Find = "</span>x"', "Find: has an element that is not opened or not closed"),
    ],
)
def test_a_text_that_cannot_be_used_is_an_error(line: str, said: str, tmp_path: Path) -> None:
    assert refused(tmp_path, f"[gateway.texts.fr]\n{line}\n").startswith(f"maptr.toml:3: gateway.texts.fr.{said}")


def test_texts_or_a_choice_of_a_language_that_there_is_not(tmp_path: Path) -> None:
    there = "no such language; there are en, fr, es, and gateway.messages adds others"
    assert refused(tmp_path, '[gateway.texts.de]\nFind = "x"\n') == f"maptr.toml:2: gateway.texts.de: {there}"
    assert refused(tmp_path, 'language = "de"\n') == f"maptr.toml:2: gateway.language: {there}"
    with pytest.raises(ConfigError, match="must be browser or a language code, such as en or fr or es"):
        parse('[gateway]\nlanguage = "German"\n')


def test_the_built_in_translations_are_read_by_the_same_rule() -> None:
    for code in ("fr", "es"):
        for key, text in built_in()[code].messages.items():
            assert fault(key, text) == ""


# ---- further languages


def write(folder: Path, text: str, name: str = "de.toml") -> str:
    (folder / "messages").mkdir(exist_ok=True)
    (folder / "messages" / name).write_text(text, "utf-8")
    return 'messages = "messages"\n'


def test_german_is_a_language_everywhere(tmp_path: Path) -> None:
    made = gateway(tmp_path, f'messages = "{GERMAN}"\n[gateway.texts.de]\n"Find" = "Los"\n')
    assert made.site.appearance.remarks == ()
    response = made.ask("/", accept_language="de-AT, fr;q=0.9")
    assert (response.header("Content-Language"), response.header("Vary")) == ("de", "Accept-Language")
    body = response.body.decode()
    assert '<html lang="de">' in body
    assert "<h1>Wohin führt ein ARK?</h1>" in body
    assert "<button>Los</button>" in body, "gateway.texts goes over it"
    assert "<h1>Diese Seite gibt es nicht</h1>" in page(made, "/nothing", "de")
    assert '<html lang="fr">' in page(made, language="fr, de;q=0.5")
    fixed = gateway(tmp_path, f'messages = "{GERMAN}"\nlanguage = "de"\n')
    assert '<html lang="de">' in page(fixed, language="fr")


def test_a_missing_text_is_english_and_a_warning_and_so_is_an_unknown_one(tmp_path: Path) -> None:
    text = (GERMAN / "de.toml").read_text("utf-8").replace('"Find" = "Suchen"', '"Find" = ""\n"Fund" = "Fund"')
    made = gateway(tmp_path, write(tmp_path, text.replace('"Search" = "Suche"\n', "")))
    assert made.site.appearance.remarks == (
        f'{tmp_path}/messages/de.toml: not translated, and shown in English: "Find", "Search"',
        f'{tmp_path}/messages/de.toml: not known to this version, and ignored: "Fund"',
    )
    assert "<button>Find</button>" in page(made, language="de")
    assert "Zum Inhalt springen" in page(made, language="de")
    (remark,) = gateway(tmp_path, write(tmp_path, "")).site.appearance.remarks
    assert remark.endswith(f", and {len(catalogue()) - MAX_NAMED} more")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("de.toml", "Find = ", "messages/de.toml:1: Invalid value"),
        ("de.toml", '\nFind = "a"\nFind = "b"\n', "messages/de.toml:3: Cannot overwrite a value"),
        ("de.toml", "Find = 7\n", 'messages/de.toml: gateway.messages: "Find": must be a text that is not empty'),
        (
            "de.toml",
            'Find = "100 %"\n',
            'messages/de.toml: gateway.messages: "Find": has a percent sign that does not begin ',
        ),
        (
            "fr.toml",
            "",
            "maptr.toml:2: gateway.messages: messages/fr.toml: this language is built in; gateway.",
        ),
        (
            "en.toml",
            "",
            "maptr.toml:2: gateway.messages: messages/en.toml: this language is built in; gateway.",
        ),
        ("german.toml", "", "maptr.toml:2: gateway.messages: messages/german.toml: its name is not the code of a "),
        ("De.toml", "", "maptr.toml:2: gateway.messages: messages/De.toml: its name is not the code of a language, "),
        ("README", "", "maptr.toml:2: gateway.messages: messages: has no file of a language, such as de.toml"),
        (".de.toml", "", "maptr.toml:2: gateway.messages: messages: has no file of a language, such as de.toml"),
    ],
)
def test_a_bad_file_of_a_language_is_an_error(name: str, text: str, said: str, tmp_path: Path) -> None:
    assert refused(tmp_path, write(tmp_path, text, name)).startswith(said)


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    said = "maptr.toml:2: gateway.messages: none: No such file or directory"
    assert refused(tmp_path, 'messages = "none"\n') == said
    (tmp_path / "messages").write_text("")
    assert refused(tmp_path, 'messages = "messages"\n').endswith("messages: Not a directory")
    (tmp_path / "messages").unlink()
    line = write(tmp_path, "")
    (tmp_path / "messages" / "de.toml").write_bytes(b'Find = "S\xfcche"\n')
    assert refused(tmp_path, line) == "messages/de.toml:1: is not UTF-8"
    (tmp_path / "messages" / "de.toml").unlink()
    (tmp_path / "messages" / "de.toml").mkdir()
    assert refused(tmp_path, line).endswith("messages/de.toml: Is a directory")


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    said = refused(tmp_path, write(tmp_path, "x = ", "de.toml") + 'logo = "none"\nlanguage = "it"\n')
    assert "gateway.logo: none: No such file" in said
    assert "gateway.language: no such language; there are en, fr, es, de" in said
    assert "messages/de.toml:1: " in said
    said = refused(tmp_path, '[gateway.texts.fr]\nFnd = "x"\nFind = ""\n[gateway.texts.xx]\nFind = "x"\n')
    assert re.findall(r"maptr\.toml:(\d)", said) == ["3", "4", "5"]


def test_a_language_with_a_region_or_a_script_is_chosen_by_lookup(tmp_path: Path) -> None:
    """RFC 4647 3.4."""
    for code in ("pt", "pt-br", "zh-hant"):
        write(tmp_path, f'"Find" = "{code}"\n', f"{code}.toml")
    made = gateway(tmp_path, 'messages = "messages"\n')
    for header, code in {
        "pt-BR": "pt-br",
        "pt-PT": "pt",
        "zh-Hant-TW": "zh-hant",
        "zh-CN": "en",
        "zh-CN, fr;q=0.5": "fr",
        "*": "en",
    }.items():
        assert made.ask("/", accept_language=header).header("Content-Language") == code


def test_any_text_without_a_fault_can_be_shown() -> None:
    """And it has no element that the message does not have."""
    chance = random.Random(1)
    pieces = [
        "%",
        "%%",
        "%(ark)s",
        "%(naan)s",
        "(ark)s",
        "s",
        "<code>",
        "</code>",
        "<b>",
        "<script>",
        "&lt;",
        '"',
        "\x00",
    ]
    pieces += ['<span lang="en">', "</span>", '<time datetime="%(iso)s">', "x", "\u202e"]
    values = dict.fromkeys(("ark", "naan", "key", "iso", "time", "version", "status", "phrase"), "<v>")
    keys = [key for key, text in catalogue().items() if isinstance(text, str) and set(values) >= placeholders(key)]
    shown = 0
    for _ in range(20_000):
        key, text = chance.choice(keys), "".join(chance.choices(pieces, k=chance.randint(1, 5)))
        if not fault(key, text):
            shown += 1
            made = Language("de", {key: text}).gettext(key, **values)
            elements = set(re.findall("<[^>]*>", made)) - {'<span lang="en">', "</span>", '<code lang="en">'}
            assert elements <= set(re.findall("<[^>]*>", key % values)), (key, text)
    assert shown > 1_000


def test_every_text_of_the_catalogue_may_be_its_own_english() -> None:
    own = {key: [key, key] if isinstance(text, list) else key for key, text in catalogue().items()}
    assert {key: why for key, text in own.items() if (why := fault(key, text))} == {}
    assert {str(key) for key in Language("de", own).messages} == {*catalogue()}
