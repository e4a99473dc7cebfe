"""``--check-config`` of ``maptr serve`` and ``maptr gateway``, and the mistakes that end their start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from maptr.cli import output
from maptr.config import Config
from maptr.errors import ConfigError, MaptrError, MissingExtra
from maptr.zone.finding import text_of

Mistake = MaptrError | OSError


def check_options(command: Any) -> Any:
    """Add ``--check-config``, and ``--json`` for its result."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print the result of --check-config as JSON.")
    check = click.option(
        "--check-config",
        is_flag=True,
        is_eager=True,
        help="Read and check everything, print what would be served, and exit.",
    )
    return check(as_json(command))


def warn_of(config: Config, log: Callable[[str], object]) -> None:
    """Warn of each setting that was removed, and of each file with a secret that all users can read."""
    for each in (*config.removed, *config.open_secrets()):
        log(str(each))


@contextmanager
def mistakes_reported(nothing: Mapping[str, Any], *, check: bool, as_json: bool) -> Iterator[None]:
    """End the command if the configuration or a file has mistakes. ``nothing`` has the other members of the JSON."""
    if as_json and not check:
        raise click.UsageError("--json needs --check-config")
    try:
        yield
    except (ConfigError, OSError) as error:
        mistakes = error.all if isinstance(error, ConfigError) else (error,)
        if not as_json and all(_is_usage(each, check=check) for each in mistakes):
            raise click.UsageError(str(error)) from None
        report(mistakes, nothing, as_json=as_json, check=check)


def _is_usage(mistake: Mistake, *, check: bool) -> bool:
    """Return whether an option is wrong; at a start, only if no change to the machine can make it right."""
    is_option = isinstance(mistake, ConfigError) and mistake.filename.startswith(("--", "@"))
    return is_option and (check or start_code([mistake]) == output.EXIT_USAGE)


def report(mistakes: Sequence[Mistake], served: Mapping[str, Any], *, as_json: bool, check: bool = True) -> None:
    """Print the mistakes, as JSON together with what is ``served``. Exits if there are any."""
    if as_json:
        output.json_data({"errors": [*map(_as_dict, mistakes)], **served})
    else:
        for each in mistakes:
            output.error(text_of(each))
    if mistakes:
        sys.exit(max(map(code_of, mistakes)) if check else start_code(mistakes))


def start_code(mistakes: Sequence[Mistake]) -> int:
    """Return the exit code of a start: 2 if the configuration's text alone shows the mistakes, so that systemd does not
    try again; another code if the machine must change."""
    if all(isinstance(each, ConfigError) and each.of_text for each in mistakes):
        return output.EXIT_USAGE
    return max(map(code_of, mistakes))


def code_of(mistake: Mistake) -> int:
    if isinstance(mistake.__cause__ or mistake, OSError):
        return output.EXIT_UNREADABLE
    return output.EXIT_USAGE if isinstance(mistake, MissingExtra) else output.EXIT_NONE


def _as_dict(mistake: Mistake) -> dict[str, object]:
    return {
        "file": getattr(mistake, "filename", None) or "",
        "line": getattr(mistake, "line", None) or 0,
        "key": getattr(mistake, "key", None) or "",
        "reason": getattr(mistake, "reason", None) or getattr(mistake, "strerror", None) or str(mistake),
    }
