"""Output files of commands (``-o FILE``): what may be replaced, and what is refused because a user would lose it.

An input is never an output, whatever it is called: by another path, a hard link, a symbolic link, or the shell's
redirection. What maptr wrote before is replaced; any other file only with ``--overwrite``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from maptr.cli import output
from maptr.cli.completion import files
from maptr.cli.shared import Command
from maptr.errors import reason_of
from maptr.files import read_whole

STDIN, STDOUT = 0, 1  # descriptors


def _read(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    if value is None or value == "-" or _same(_status(value), _status(STDOUT)):
        return None
    return Path(value)


def output_option(help: str, metavar: str = "FILE") -> Callable[[Command], Command]:
    """``-o FILE`` as a Path; None for standard output, also under the name ``-`` or ``/dev/stdout``."""
    return click.option("-o", "--output", "target", metavar=metavar, shell_complete=files, callback=_read, help=help)


def overwrite_option(help: str) -> Callable[[Command], Command]:
    """``--overwrite``, for a file that maptr did not write."""
    return click.option("--overwrite", is_flag=True, help=help)


def refuse_input(target: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """UsageError where the output, standard output if ``target`` is None, is one of the inputs (``-``: stdin)."""
    there = _status(STDOUT if target is None else target)
    if there is None or not stat.S_ISREG(there.st_mode):
        return  # a terminal, a pipe or a device may be both
    for name in inputs:
        if name is not None and _same(there, _status(STDIN if str(name) == "-" else name)):
            shown = "standard output" if target is None else str(target)
            raise click.UsageError(f"{shown}: input and output are the same file")


def refuse_foreign(target: Path | None, ours: Callable[[bytes], bool], *, overwrite: bool) -> None:
    """UsageError where ``target`` is a file with content that is not ``ours`` and that was not given up."""
    there = None if target is None else _status(target)
    if target is None or there is None or overwrite:
        return
    if stat.S_ISBLK(there.st_mode):
        raise click.UsageError(f"{target}: is a block device")
    if stat.S_ISREG(there.st_mode) and there.st_size and not _ours(target, ours):
        raise click.UsageError(f"{target}: exists, and maptr did not write it: give --overwrite to replace it")


def _ours(path: Path, ours: Callable[[bytes], bool]) -> bool:
    try:
        return ours(read_whole(path))
    except OSError as error:
        output.fail(reason_of(error), output.EXIT_UNREADABLE)


def _status(file: str | Path | int) -> os.stat_result | None:
    try:
        return os.stat(file)  # noqa: PTH116 - also of a descriptor
    except (OSError, ValueError):
        return None


def _same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    return one is not None and other is not None and os.path.samestat(one, other)


def write(target: Path | None, text: str) -> None:
    """Write the file whole or not at all, or standard output; ends the command where that cannot be."""
    if target is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_atomically(target, text)
    except OSError as error:
        output.fail(reason_of(error), output.EXIT_UNREADABLE)


def shown(target: Path | None) -> str:
    """The name of an output as messages give it."""
    return "<stdout>" if target is None else str(target)
