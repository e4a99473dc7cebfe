"""The settings as text: the tables of docs/configuration.md, and the help texts of the options that set one."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any

from maptr.config.model import all_keys, duration_text, is_required
from maptr.protocol.names import to_text

HEAD = "| key | default | values | meaning |\n|---|---|---|---|\n"


def table(prefix: str) -> str:
    """Return the table of the settings whose keys begin with ``prefix``, in Markdown."""
    return HEAD + "".join(_row(key, one) for key, one in all_keys().items() if key.startswith(prefix))


def _row(key: str, one: dataclasses.Field[Any]) -> str:
    value = default_value(one)
    default = one.metadata["missing"] or ("" if value is None else f"`{json.dumps(value)}`")
    meaning = [f"{'required: ' if is_required(one) else ''}{one.metadata['help']}"]
    if empty := one.metadata["empty"]:
        meaning.append(f"{'default' if value is None else 'empty'}: {empty}")
    if needs := [need if "." in need else f"{key.rpartition('.')[0]}.{need}" for need in one.metadata["needs"]]:
        meaning.append(f"needs {' and '.join(f'`{need}`' for need in needs)}")
    return f"| `{key}` | {default} | {one.metadata['type'].values} | {'; '.join(meaning)} |\n".replace("|  |", "| |")


def option_help(key: str, *, also: str = "", shows_values: bool = True) -> str:
    """Return the help text of an option that sets a key. ``also`` is a sentence about the option only."""
    one = all_keys()[key]
    kind, text = one.metadata["type"], plain(one.metadata["help"])
    repeated = "The option can be repeated." if kind.is_list else ""
    sentences = filter(None, (f"{text[0].upper()}{text[1:]}.", also, repeated))
    value = default_value(one)
    default = plain(one.metadata["empty"]) or (", ".join(value) if isinstance(value, list) else value)
    is_shown = not (kind.words or kind.is_list or kind.values == f"a {kind.metavar.lower()}")
    facts = [plain(kind.values)] if shows_values and is_shown else []
    facts.append(f"default: {'none' if default in ('', None) else default}, or configured")
    return f"{' '.join(sentences)}  [{'; '.join(facts)}]"


def plain(text: str) -> str:
    """Return a text without its Markdown: links as their text, code without marks, and a word in it without quotes."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r'`("(?P<word>[^"\s]+)"|(?P<code>[^`]*))`', lambda match: match["word"] or match["code"], text)


def default_value(one: dataclasses.Field[Any]) -> Any:
    """Return the TOML value that reads as a setting's default; None if there is none."""
    if is_required(one):
        return None
    default = one.default if one.default_factory is MISSING else one.default_factory()
    for value in _written(default):
        try:
            if one.metadata["type"].read(value) == default:
                return value
        except ValueError:
            pass
    return None


def _written(default: Any) -> Iterator[object]:
    """Yield the ways to write a default as a TOML value, best first."""
    if isinstance(default, int) and default >= 60:
        yield duration_text(default)
    yield default
    yield str(default)
    if isinstance(default, float):
        yield int(default)
    if isinstance(default, tuple):
        yield [str(each).removesuffix("/128") for each in default]  # an address is its own network
        if all(isinstance(each, bytes) for each in default):
            yield to_text(default).removesuffix(".")
    yield ""
