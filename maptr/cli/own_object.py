"""``maptr redirects set``, ``withdraw``, ``restore``, ``show`` and ``history``: single own objects in a store."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

from maptr.ark import Ark
from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.errors import ArkSyntaxError, ConfigError, json_text, printable, time_text
from maptr.gateway.objects import OwnObject, match, to_row
from maptr.gateway.redirects import changes
from maptr.gateway.redirects.changes import Changed, RefusedError
from maptr.gateway.redirects.store import open_store

EXITS = {0: "done", 1: "refused: nothing is changed", 8: "the store cannot be used"}

_ARK = click.argument("ark")
_ALLOW_PRIVATE = click.option("--allow-private", is_flag=True, help="Also allow hosts that are not public.")
_BY = click.option("--by", metavar="NAME", help="Name this editor in the history.  [default: the user]")


def _with_store(made: Callable[..., None]) -> Callable[..., None]:
    store = click.option(
        "--store", type=options.FILE_PATH, help="Use this store.  [default: gateway.redirects of the configuration]"
    )
    return store(options.CONFIG_OPTION(made))


@command("set", exits=EXITS)
@_ARK
@click.argument("url", required=False)
@_with_store
@click.option("--status", type=click.Choice(["302", "303", "307"]), help="Redirect with this status.")
@click.option("--who", help="Who made the object.")
@click.option("--what", help="What it is called.")
@click.option("--when", help="When it was made.")
@click.option("--suffix/--no-suffix", default=None, help="Pass longer ARKs on, or do not.")
@click.option("--column", "columns", multiple=True, metavar="NAME=TEXT", help="Set another column of the store.")
@_BY
@_ALLOW_PRIVATE
def set_(
    ark: str,
    url: str | None,
    store: Path | None,
    config: str | None,
    suffix: bool | None,
    columns: tuple[str, ...],
    by: str | None,
    allow_private: bool,
    **cells: str | None,
) -> None:
    """Register ARK with its URL, or change the given cells of its row. An empty text empties a cell.

    A gateway uses the change within a second.

    \b
    Examples:
      maptr redirects set ark:12345/k1 https://o.example.org/1 --what Report
      maptr redirects set ark:12345/k1 --who "A. Author" --store own.sqlite
    """
    given = {name: text for name, text in {"url": url, **cells}.items() if text is not None}
    if suffix is not None:
        given["suffix"] = "yes" if suffix else "no"
    for column in columns:
        name, mark, text = column.partition("=")
        if not mark:
            raise click.UsageError(f"--column {column}: write NAME=TEXT")
        given[name] = text
    with _reported():
        path = store_of(store, config)
        _tell(changes.set_object(path, ark, given, by=editor(by), allow_private=allow_private))


@command(exits=EXITS)
@_ARK
@click.option("--reason", required=True, metavar="TEXT", help="Why it is gone, for all to read.")
@click.option("--replaced-by", default="", metavar="ARK|URL", help="What replaces it.")
@click.option("--authority", default="", metavar="TEXT", help="Who decided that.")
@_with_store
@_BY
@_ALLOW_PRIVATE
def withdraw(
    ark: str,
    reason: str,
    replaced_by: str,
    authority: str,
    store: Path | None,
    config: str | None,
    by: str | None,
    allow_private: bool,
) -> None:
    """Mark the object of ARK as gone: its page says so, with the reason (410).

    \b
    Example:
      maptr redirects withdraw ark:12345/k1 --reason "see ark:12345/k2"
    """
    with _reported():
        changed = changes.withdraw(
            store_of(store, config),
            ark,
            reason=reason,
            replaced_by=replaced_by,
            authority=authority,
            by=editor(by),
            allow_private=allow_private,
        )
        _tell(changed)


@command(exits=EXITS)
@_ARK
@click.option("--url", default="", help="Redirect it to this URL.  [default: its previous URL]")
@_with_store
@_BY
@_ALLOW_PRIVATE
def restore(ark: str, url: str, store: Path | None, config: str | None, by: str | None, allow_private: bool) -> None:
    """Let a withdrawn ARK redirect again.

    \b
    Example:
      maptr redirects restore ark:12345/k1
    """
    with _reported():
        path = store_of(store, config)
        _tell(changes.restore(path, ark, where=url, by=editor(by), allow_private=allow_private))


@command(exits={0: "shown", 1: "not registered", 8: "the store cannot be used"})
@_ARK
@_with_store
@options.JSON_OPTION
def show(ark: str, store: Path | None, config: str | None, as_json: bool) -> None:
    """Show the row of ARK, with the number of its last change.

    \b
    Example:
      maptr redirects show ark:12345/k1
    """
    with _reported():
        path = store_of(store, config)
        found = changes.shown(path, ark)
        if found is None:
            output.fail(f"{ark} is not in {path}{_served_by(path, ark)}", output.EXIT_NONE)
    row = {**_filled(found[0]), "change": str(found[1])}
    if as_json:
        output.json_data({**row, "change": found[1]})
        return
    for name, text in row.items():
        output.data(output.Painted(f"{name}:", output.MINOR), f" {printable(text)}")


@command(exits={0: "shown, or deleted", 8: "the store cannot be used"})
@click.argument("ark", required=False)
@_with_store
@click.option("--forget-before", metavar="DATE", help="Delete the history before this day, such as 2025-01-01, in UTC.")
@options.JSON_OPTION
def history(ark: str | None, store: Path | None, config: str | None, forget_before: str | None, as_json: bool) -> None:
    """Show the changes to ARK, or to the whole store: their numbers, when, by whom, and from what to what.

    \b
    Examples:
      maptr redirects history ark:12345/k1
      maptr redirects history --forget-before 2025-01-01
    """
    with _reported():
        path = store_of(store, config)
        if forget_before is not None:
            if ark is not None:
                raise click.UsageError("--forget-before is for the whole store")
            deleted = changes.forget(path, _day(forget_before))
            output.inform(f"{path}: {output.counted(deleted, 'entry').replace('entrys', 'entries')} deleted")
            return
        for entry in changes.history(path, ark or ""):
            if as_json:
                output.data(json_text({**entry._asdict(), "old": dict(entry.old), "new": dict(entry.new)}))
            else:
                what = entry.note or _difference(entry.old, entry.new)
                words = [str(entry.change), time_text(entry.at), entry.who, entry.action, entry.ark, what]
                output.data(printable(" ".join(filter(None, words))))


def editor(named: str | None) -> str:
    """Return the name of the editor: the given one, else the system's user, even behind sudo."""
    if named is not None:
        return named
    behind = os.environ.get("SUDO_USER", "")
    if behind and os.getuid() == 0:
        return behind
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user of a container may have no name
        return str(os.getuid())


@contextmanager
def _reported() -> Iterator[None]:
    """End the command for a refused change, or a store that cannot be used."""
    try:
        yield
    except RefusedError as error:
        output.fail(str(error), output.EXIT_NONE)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_UNREADABLE)
    except ArkSyntaxError:
        raise
    except ValueError as error:
        output.fail(str(error), output.EXIT_NONE)


def store_of(named: Path | None, config: str | None, option: str = "--store FILE") -> Path:
    """Return the named file of own objects, or the configured one. Raises UsageError without one."""
    known = None if named is not None else lookup.read_config(config)
    path = named or (known.gateway.redirects if known is not None else None)
    if path is None:
        raise click.UsageError(f"the configuration has no gateway.redirects: give {option}")
    return path


def _filled(one: OwnObject) -> Mapping[str, str]:
    return {name: text for name, text in to_row(one).items() if text}


def _served_by(path: Path, ark: str) -> str:
    """Return which shorter ARK serves one that is not registered."""
    found = match(open_store(path, allow_private=True), Ark.parse(ark))
    return f"; {found.object.ark} passes it on" if found is not None else ""


def _tell(changed: Changed) -> None:
    old, new = ({} if one is None else to_row(one) for one in (changed.old, changed.new))
    what = "nothing changed" if changed.old == changed.new else f"change {changed.number}: {_difference(old, new)}"
    output.inform(printable(f"{changed.new.ark}: {what}"))


def _difference(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return which cells differ, from what to what."""
    names = [name for name in {**old, **new} if name != "ark" and old.get(name, "") != new.get(name, "")]
    return "; ".join(f"{name} {old.get(name, '')!r} -> {new.get(name, '')!r}" for name in names)


def _day(text: str) -> float:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise click.UsageError(f"{text} is not a day, such as 2025-01-01") from None
