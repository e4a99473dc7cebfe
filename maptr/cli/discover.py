"""``maptr discover`` and ``maptr url``: ARKs in, mapping authorities or one URL each out."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from maptr.ark import Ark
from maptr.cli import output, shared, through
from maptr.errors import ArkSyntaxError, ConfigError, DiscoveryError, NoMappingAuthority

if TYPE_CHECKING:
    from maptr.discovery import Discovery, Step

_COMMON = (
    click.argument("arks", nargs=-1, required=True, metavar="ARK... [@SERVER[#PORT]]..."),
    shared.ORIGIN_OPTION,
    click.option(
        "--timeout",
        default=5.0,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="For one whole discovery.",
    ),
    click.option("--trust-ad", is_flag=True, help="Take the server's word on DNSSEC: only a validating one of yours."),
    click.option("--allow-private", is_flag=True, help="Take candidates on hosts that are not public."),
    *shared.OPTIONS,
    click.option("--json", "as_json", is_flag=True, help="One JSON document for each ARK, trace included."),
)

_EXIT = """
\b
Exit codes:
  0  found, for every ARK
  1  nobody serves one of them, as DNS says, or a table that may
  2  bad usage: an argument that is no ARK among it
  9  DNS did not say, and no table, for one of them
"""


def _common(command: Any) -> Any:
    for decorate in reversed(_COMMON):
        command = decorate(command)
    return command


@click.command(epilog=_EXIT)
@_common
@click.option("--short", is_flag=True, help="URLs only, best first.")
@click.option("--trace", is_flag=True, help="Every question, record and reason, on stderr.")
def discover(arks: tuple[str, ...], short: bool, trace: bool, **options: Any) -> None:
    """Find the mapping authorities of each ARK.

    Candidates are printed best first, one a line: URL, order, preference, and the name its record was found at.
    @SERVER asks that resolver, or that authoritative server, directly, instead of the system's resolver; of several,
    the next where one does not answer. Without it, where a table was pulled or a cache is configured, that answers
    while DNS does not, and it is told on stderr from where the answer is, how old, and why.

    \b
    Examples:
      maptr discover ark:12345/x6np1wh8k @127.0.0.1#5353
      maptr discover --trace https://n2t.net/ark:/12345/x6np1wh8k?info
      maptr discover ark:12345/x6np1wh8k --natab naans.json --policy natab-first
    """
    from maptr.cli.trace import show_tree

    codes = set()
    tree = trace and not options["as_json"] and sys.stderr.isatty()
    for ark, found, error in _each(arks, trace=trace and not options["as_json"] and not tree, quiet=False, **options):
        if tree and found is not None:
            show_tree(found)
        codes.add(_code(error))
        if options["as_json"]:
            document = found.to_dict() if found is not None else {"ark": str(ark), "candidates": []}
            output.json_data({**document, "age": through.age_of(found), "error": str(error) if error else None})
        elif found:
            output.data("\n".join(found.urls()) if short else found.to_text())
        if error is not None:
            output.talk(f"maptr: {error}")
    sys.exit(_worst(codes))


@click.command(epilog=_EXIT)
@_common
def url(arks: tuple[str, ...], **options: Any) -> None:
    """Print the URL that answers for each ARK, one a line, and nothing else.

    An ARK without one gives an empty line, so that lines of output and arguments stay side by side.

    \b
    Example:
      curl -L "$(maptr url ark:12345/x6np1wh8k)"
    """
    codes = set()
    for ark, found, error in _each(arks, trace=False, quiet=True, **options):
        codes.add(_code(error))
        made = found.url() if found else None
        if options["as_json"]:
            told = {} if found is None else {name: getattr(found, name) for name in ("source", "stale", "reason")}
            told["age"] = through.age_of(found)
            output.json_data({"ark": str(ark), "url": made, **told, "error": str(error) if error else None})
        else:
            output.data(made or "")
        if error is not None:
            output.talk(f"maptr: {error}")
    sys.exit(_worst(codes))


def _each(
    arks: tuple[str, ...],
    *,
    trace: bool,
    quiet: bool,
    as_json: bool,
    **wanted: Any,
) -> Iterable[tuple[Ark, Discovery | None, DiscoveryError | None]]:
    """Each ARK with its discovery and what went wrong. Every argument is checked before the first question.

    What comes through a cache is told from where; ``quiet``, only where that is not DNS as it is now.
    """
    parsed, servers = parse_words(arks)
    asking = shared.way(through.Wanted(servers, **wanted))
    on_step = _show if trace else None
    for ark in parsed:
        try:
            found = asking.ask(ark, on_step=on_step)
        except DiscoveryError as error:
            yield ark, error.discovery, error
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        else:
            if asking.cached and not as_json and not (quiet and found.source != "natab" and not found.stale):
                output.talk(f"maptr: {ark}: {through.provenance(found, time.time())}")
            yield ark, found, None


def parse_words(words: tuple[str, ...]) -> tuple[list[Ark], list[str]]:
    """The ARKs among the arguments, and the ``@SERVER`` ones. UsageError for what is neither."""
    try:
        parsed = [Ark.parse(word) for word in words if not word.startswith("@")]
    except ArkSyntaxError as error:
        raise click.UsageError(str(error)) from None
    if not parsed:
        raise click.UsageError("no ARK given")
    return parsed, [word[1:] for word in words if word.startswith("@")]


def _show(step: Step) -> None:
    from maptr.cli.trace import step_lines

    for line in step_lines(step):
        output.talk(line)


def _code(error: DiscoveryError | None) -> int:
    if error is None:
        return output.EXIT_OK
    return output.EXIT_NONE if isinstance(error, NoMappingAuthority) else output.EXIT_NO_ANSWER


def _worst(codes: set[int]) -> int:
    return max(codes)
