"""``maptr table pull``: the registry from its source, planned first, applied whole or not at all."""

from __future__ import annotations

import os
import random
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from maptr import places
from maptr.cli import output, shared
from maptr.cli.completion import files
from maptr.cli.duration import Duration
from maptr.cli.target import overwrite_option, refuse_foreign
from maptr.errors import MaptrError, MissingExtra, PullFailed, SignatureError, TableError, UnsafePlan
from maptr.registry.pull import jittered

if TYPE_CHECKING:
    from maptr.registry.pull import Demands, Pull


@click.command(short_help="Get the registry from its source, safely.")
@click.argument("sources", nargs=-1, metavar="[URL|FILE]...", shell_complete=files)
@click.option(
    "--table",
    "target",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The table to compare with and, with --apply, to replace.  [default: as configured, or where discover looks]",
)
@click.option("--apply", "act", is_flag=True, help="Do it; without, only the plan is shown.")
@overwrite_option("Replace FILE even if it is not a registry and was not pulled before.")
@click.option(
    "--force",
    is_flag=True,
    help="Take the source as it is: more than 30 % may go or change, nothing is kept of what cannot be read.",
)
@click.option("--sha256", metavar="HEX", help="What the content must hash to.")
@click.option(
    "--public-key",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take only what is signed with this key (minisign).",
)
@click.option(
    "--signature",
    metavar="URL|FILE",
    shell_complete=files,
    help="Where the signature is.  [default: the source's with .minisig]",
)
@click.option(
    "--cafile", metavar="FILE", shell_complete=files, help="Trust the certificates in FILE instead of the system's."
)
@shared.timeout_option(60.0, "For each source, all in all.")
@shared.CONFIG_OPTION
@click.option(
    "--every", type=Duration(1), metavar="TIME", help="Go on for ever, pulling every 1h or 15m; needs --apply."
)
@click.option("--json", "form", flag_value="json", help="The plan as one JSON document.")
@click.option("--markdown", "form", flag_value="markdown", help="The plan as a Markdown table.")
def pull(
    sources: tuple[str, ...],
    target: Path | None,
    act: bool,
    overwrite: bool,
    force: bool,
    sha256: str | None,
    public_key: Path | None,
    signature: str | None,
    cafile: str | None,
    timeout: float,
    config: str | None,
    every: int | None,
    form: str | None,
) -> None:
    """Get the registry from the first source that has one: a URL (http, https) or a file, in any format.

    Shows what would change, one record a line ("+" added, "~" changed, "-" removed). With --apply it replaces
    FILE, whole or not at all, and keeps the last three states as FILE.1 to FILE.3. A source that is down, sends a
    web page, half a file or a third of the registry less is passed over, and FILE stays as it is. A record that was
    usable and cannot be read any more is kept as it was ("!").

    Without a source, those of [table] in the configuration are tried, with what it says of checksum, key and
    certificates; without these, the public NAAN registry. Without --table, FILE is that of [table], or the one where
    maptr discover looks for a table.

    \b
    Examples:
      maptr table pull --apply
      maptr table pull https://registry.example/naans.json --apply
      maptr table pull https://one.example/naans https://two.example/naans \\
          --table natab --apply --every 1h
      maptr table pull https://one.example/naans --public-key registry.pub

    \b
    Exit codes:
      0  nothing to do, or done
      1  the plan is not empty and was not applied; or it was refused, being
         too much
      2  bad usage
      8  no source had a registry; or FILE or the key cannot be read, or FILE
         not written
    """
    if every is not None and not act:
        raise click.UsageError("--every needs --apply")
    if sha256 is not None and not re.fullmatch("[0-9A-Fa-f]{64}", sha256):
        raise click.UsageError("--sha256 wants 64 hexadecimal digits")
    if signature is not None and public_key is None:
        raise click.UsageError("--signature needs --public-key")
    configured = None if sources and target else shared.configured(config)
    known = configured.table if configured is not None else None
    if not sources and known is not None and known.sources:
        sources = known.sources
        sha256, public_key, cafile = (
            sha256 or known.sha256,
            public_key or known.public_key,
            cafile or _text(known.cafile),
        )
    official = not sources
    if not sources:
        from maptr.registry.pull import OFFICIAL

        sources = (OFFICIAL,)
    if cafile is not None and not any("://" in where for where in (*sources, signature or "")):
        raise click.UsageError("--cafile: nothing uses it: all sources are files")
    into = target or (known.file if known is not None and known.file else _default(act))
    if act and not into.with_name(f"{into.name}.pull").exists():  # a table that was pulled and is damaged is replaced
        refuse_foreign(into, _is_registry, overwrite=overwrite)
    job = _Job(sources, into, act, force, _demands(sha256, public_key, signature), cafile, timeout, form, official)
    try:
        if every is None:
            sys.exit(_once(job))
        while True:
            _once(job)
            time.sleep(jittered(every, random.uniform))
    except KeyboardInterrupt:
        output.interrupted(f"{into} is as it was last pulled; run it again")


def _is_registry(content: bytes) -> bool:
    from maptr import registry

    try:
        registry.read(content, on_bad=lambda error: None)
    except TableError:
        return False
    return True


def _default(act: bool) -> Path:
    """Where ``maptr discover`` looks for a table; its folder is made if anything is to be written there."""
    path = places.table_file(os.environ)
    if act:
        places.make_parent(path)
    return Path(path)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _demands(sha256: str | None, public_key: Path | None, signature: str | None) -> Demands:
    from maptr.registry.minisign import PublicKey
    from maptr.registry.pull import Demands

    try:
        key = None if public_key is None else PublicKey.parse(public_key.read_text("utf-8", "replace"))
    except OSError as error:
        output.fail(f"{public_key}: {error.strerror or error}", output.EXIT_UNREADABLE)
    except MissingExtra:
        raise
    except SignatureError as error:
        output.fail(f"{public_key}: {error}", output.EXIT_UNREADABLE)
    return Demands(sha256 or None, key, signature)


class _Job(NamedTuple):
    """What each pull is to do."""

    sources: tuple[str, ...]
    target: Path
    act: bool
    force: bool
    demands: Demands
    cafile: str | None
    timeout: float
    form: str | None
    official: bool  # no source was named


def _once(job: _Job) -> int:
    """One pull; the exit code, everything said."""
    from maptr.registry.pull import apply_pull, plan_pull

    target = job.target
    try:
        found = plan_pull(
            target, job.sources, demands=job.demands, cafile=job.cafile, force=job.force, seconds=job.timeout
        )
        _tell(found, job.form)
        if job.act:
            apply_pull(found, wall=time.time)
            output.talk(f"{target}: {'replaced' if found.plan or found.broken else 'up to date'}, from {found.source}")
            return output.EXIT_OK
        return output.EXIT_NONE if found.plan or found.broken else output.EXIT_OK
    except UnsafePlan as error:
        output.talk(f"maptr: {error}; {target} stays as it is (--force overrides)")
        return output.EXIT_NONE
    except PullFailed as error:
        for reason in error.reasons:
            output.talk(f"maptr: {reason}")
        if job.official and not target.exists():
            output.talk("maptr: no registry; maptr table pull URL takes another, maptr up --sample serves an example")
        else:
            output.talk(f"maptr: no source had a registry; {target} stays as it is")
    except MaptrError as error:
        output.talk(f"maptr: {error}")
    except OSError as error:
        output.talk(f"maptr: {error.filename or target}: {error.strerror or error}")
    return output.EXIT_UNREADABLE


def _tell(found: Pull, form: str | None) -> None:
    for reason in found.passed_over:
        output.talk(f"maptr: passed over: {reason}")
    if found.broken:
        output.talk(f"maptr: the table that is there is none, to be replaced: {found.broken}")
    for error in found.bad:
        output.talk(f"left out: {error}")
    if form == "json":
        lines = found.plan.to_text().splitlines()
        output.json_data(
            {"source": found.source, "sha256": found.sha256, "plan": {**found.plan.to_dict(), "text": lines}}
        )
    elif form == "markdown":
        output.data(found.plan.to_markdown().rstrip("\n"))
    elif found.plan or found.plan.kept:
        output.data(found.plan.to_text().rstrip("\n"))
    plan = found.plan
    counts = f"{len(plan.added)} to add, {len(plan.changed)} to change, {len(plan.removed)} to remove of {plan.size}"
    output.talk(counts + (f", {len(plan.kept)} kept for they cannot be read" if plan.kept else ""))
