"""``maptr discover`` and ``maptr url``: ARKs in, mapping authorities or one URL each out."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from maptr.ark import Ark
from maptr.cli import output
from maptr.errors import ArkSyntaxError, ConfigError, DiscoveryError, NoMappingAuthority

if TYPE_CHECKING:
    from maptr.discovery import Discovery, Step
    from maptr.stub import Stub

_COMMON = (
    click.argument("arks", nargs=-1, required=True, metavar="ARK... [@SERVER[#PORT]]..."),
    click.option("--origin", default="ark.arpa.", show_default=True, metavar="NAME", help="DNS suffix below NAANs."),
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
    click.option("--json", "as_json", is_flag=True, help="One JSON document for each ARK, trace included."),
)

_EXIT = """
\b
Exit codes:
  0  found, for every ARK
  1  DNS says that nobody serves one of them
  2  bad usage: an argument that is no ARK among it
  9  DNS did not say, for one of them
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
    @SERVER asks that resolver, or that authoritative server, instead of the system's resolver; of several, the next
    where one does not answer.

    \b
    Examples:
      maptr discover ark:12345/x6np1wh8k @127.0.0.1#5353
      maptr discover --trace https://n2t.net/ark:/12345/x6np1wh8k?info
    """
    from maptr.cli.trace import show_tree

    codes = set()
    tree = trace and not options["as_json"] and sys.stderr.isatty()
    for ark, found, error in _each(arks, trace=trace and not options["as_json"] and not tree, **options):
        if tree and found is not None:
            show_tree(found)
        codes.add(_code(error))
        if options["as_json"]:
            document = found.to_dict() if found is not None else {"ark": str(ark), "candidates": []}
            output.json_data({**document, "error": str(error) if error else None})
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
    for ark, found, error in _each(arks, trace=False, **options):
        codes.add(_code(error))
        made = found.url() if found else None
        if options["as_json"]:
            output.json_data({"ark": str(ark), "url": made, "error": str(error) if error else None})
        else:
            output.data(made or "")
        if error is not None:
            output.talk(f"maptr: {error}")
    sys.exit(_worst(codes))


def _each(
    arks: tuple[str, ...],
    *,
    origin: str,
    timeout: float,
    allow_private: bool,
    trust_ad: bool,
    trace: bool,
    as_json: bool,
) -> Iterable[tuple[Ark, Discovery | None, DiscoveryError | None]]:
    """Each ARK with its discovery and what went wrong. Every argument is checked before the first question."""
    parsed, resolver = parse_words(arks, trust_ad=trust_ad)
    from maptr import call
    from maptr.client import discover as ask
    from maptr.walk import Settings

    settings = Settings(allow_private=allow_private)
    try:
        call.origin_labels(origin)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    on_step = _show if trace else None
    for ark in parsed:
        try:
            found = ask(ark, resolver=resolver, origin=origin, lifetime=timeout, settings=settings, on_step=on_step)
        except DiscoveryError as error:
            yield ark, error.discovery, error
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        else:
            yield ark, found, None


def parse_words(words: tuple[str, ...], *, trust_ad: bool = False) -> tuple[list[Ark], Stub]:
    """The ARKs among the arguments, and who asks the ``@SERVER`` ones, by default the system's.

    UsageError for what is neither; exits where a server has no address.
    """
    servers = [word[1:] for word in words if word.startswith("@")]
    try:
        parsed = [Ark.parse(word) for word in words if not word.startswith("@")]
    except ArkSyntaxError as error:
        raise click.UsageError(str(error)) from None
    if not parsed:
        raise click.UsageError("no ARK given")
    # Only now, and not dnspython: a fresh process waits for what it imports, far longer than for DNS.
    from maptr.stub import Stub

    try:
        return parsed, Stub(servers, trust_ad=trust_ad) if servers else Stub.system(trust_ad=trust_ad)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except DiscoveryError as error:
        output.fail(str(error), output.EXIT_NO_ANSWER)


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
