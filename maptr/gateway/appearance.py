"""The appearance of the pages, from the operator's files: the logo, and the languages with their texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from maptr.config import Config
from maptr.config.model import BROWSER, LANGUAGE_CODE, LANGUAGES, PageText
from maptr.config.reader import read_document
from maptr.errors import ConfigError, nearest, raise_all, reason_of
from maptr.files import read_whole
from maptr.gateway.language import Language, built_in, catalogue, fault

MAX_LOGO = 256 * 1024  # bytes
MAX_NAMED = 20  # texts in one warning
PNG, SVG = "image/png", "image/svg+xml"
_PNG_BEGINS = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"  # W3C PNG 5.2, and the chunk that must come first
_PNG_ENDS = b"\0\0\0\0IEND\xaeB`\x82"  # the chunk that must come last
_SVG_ROOT = "http://www.w3.org/2000/svg svg"


class Logo(NamedTuple):
    """A picture shown in place of the operator's name, with its media type."""

    kind: str
    content: bytes


@dataclass(frozen=True)
class Appearance:
    """What the pages take from files. ``remarks`` are warnings for the operator."""

    logo: Logo | None = None
    languages: Mapping[str, Language] = field(default_factory=built_in)
    remarks: tuple[str, ...] = ()


def read_appearance(config: Config) -> Appearance:
    """Read the files that ``[gateway]`` names. Raises ConfigError with all mistakes."""
    settings, errors, remarks = config.gateway, list[ConfigError](), list[str]()
    logo, further = None, dict[str, Mapping[str, PageText]]()
    try:
        if settings.logo is not None:
            logo = read_logo(settings.logo)
    except (OSError, ValueError) as error:
        errors.append(config.error("gateway.logo", reason_of(error)))
    codes = [*LANGUAGES]
    try:
        for file in [] if settings.messages is None else _files(settings.messages):
            further[file.stem] = _translation(file, errors, remarks)
        codes += further
        errors += _mistakes(config, codes)
    except (OSError, ValueError) as error:  # a language may be missing only for this reason
        errors.append(config.error("gateway.messages", reason_of(error)))
    raise_all(errors)
    own = {code: {**further.get(code, {}), **settings.texts.get(code, {})} for code in (*further, *settings.texts)}
    languages = {**built_in(), **{code: Language(code, texts) for code, texts in own.items()}}
    return Appearance(logo, languages, tuple(remarks))


def read_logo(path: Path) -> Logo:
    """Read a picture. Its content decides its type. Raises OSError and ValueError."""
    content = read_whole(path, MAX_LOGO)
    if content.startswith(_PNG_BEGINS):
        if _PNG_ENDS not in content:
            raise ValueError(f"{path}: is a PNG without an end")
        return Logo(PNG, content)
    roots: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = lambda name, _: roots.append(name) if not roots else None
    trouble = ""
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: an encoding unknown to Python
        trouble = str(error)
    if roots[:1] != [_SVG_ROOT]:
        raise ValueError(f"{path}: is neither PNG nor SVG")
    if trouble:
        raise ValueError(f"{path}: is an SVG that no browser shows: {trouble}")
    return Logo(SVG, content)


def _files(folder: Path) -> list[Path]:
    """Return the files of additional languages in a folder. Raises OSError and ValueError."""
    found = sorted(each for each in folder.iterdir() if each.suffix == ".toml" and not each.name.startswith("."))
    if not found:
        raise ValueError(f"{folder}: has no file of a language, such as de.toml")
    for each in found:
        if each.stem in LANGUAGES:
            raise ValueError(f"{each}: this language is built in; gateway.texts.{each.stem} changes its texts")
        if not LANGUAGE_CODE.fullmatch(each.stem):
            raise ValueError(f"{each}: its name is not the code of a language, such as de.toml or pt-br.toml")
    return found


def _translation(file: Path, errors: list[ConfigError], remarks: list[str]) -> Mapping[str, PageText]:
    """Read a language's messages; an empty one counts as missing. Appends errors to ``errors``. Raises OSError."""
    try:
        document = read_document(file)
    except ConfigError as error:
        errors.append(error)
        return {}
    found = {key: text for key, text in document.items() if key in catalogue() and text not in ("", ["", ""])}
    for key, text in found.items():
        if reason := fault(key, text):
            errors.append(ConfigError(f'"{key}": {reason}', filename=str(file), key="gateway.messages"))
    for what, keys in {
        "not translated, and shown in English": sorted(catalogue().keys() - found.keys()),
        "not known to this version, and ignored": sorted(document.keys() - catalogue().keys()),
    }.items():
        named = [f'"{key}"' for key in keys[:MAX_NAMED]]
        if len(keys) > MAX_NAMED:
            named.append(f"and {len(keys) - MAX_NAMED} more")
        if named:
            remarks.append(f"{file}: {what}: {', '.join(named)}")
    return found


def _mistakes(config: Config, codes: list[str]) -> Iterator[ConfigError]:
    """Yield an error for each language that does not exist, and for each text that cannot be used."""
    settings = config.gateway
    no_such = f"no such language; there are {', '.join(codes)}, and gateway.messages adds others"
    if settings.language not in (BROWSER, *codes):
        yield config.error("gateway.language", no_such, of_text=settings.messages is None)
    for code, texts in settings.texts.items():
        key = f"gateway.texts.{code}"
        if code not in codes:
            yield config.error(key, no_such, of_text=settings.messages is None)
            continue
        for message, text in texts.items():
            if reason := _unknown(message) or fault(message, text):
                yield config.error(f"{key}.{message}", reason, of_text=True)


def _unknown(message: str) -> str:
    """Return what to write instead of a message that no page has."""
    if message in catalogue():
        return ""
    near = nearest(message, catalogue(), likeness=0.5)
    return f'no such text; the nearest is "{near}"' if near else "no such text: its key is the English text of a page"
