"""Options, arguments and files that several commands share. Mistakes in options are click's UsageError.

An input is never the output, not even through a hard link, a symbolic link or the shell's redirection. A file that
maptr wrote is replaced; any other file only with ``--overwrite``. OSError and TableError end the command with exit code
8.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from maptr import entry_points, paths
from maptr.ark import PROFILES
from maptr.cache import POLICIES
from maptr.choose import CHOOSERS
from maptr.cli import lookup, output
from maptr.cli.lookup import DEFAULTS, ORIGIN
from maptr.client import AUTO
from maptr.errors import TableError, reason_of
from maptr.files import read_up_to, read_whole, write_atomically
from maptr.protocol import names
from maptr.protocol.numbers import PORT
from maptr.resolver.servers import HTTPS, TCP, TLS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from maptr.config import Config
    from maptr.registry.table import Table
    from maptr.resolver.validation.validator import TrustAnchors

Command = TypeVar("Command", bound="Callable[..., Any] | click.Command")
MAX_BYTES = 1 << 28  # 256 MiB, 200 times the 2026 registry: a device without an end must not fill memory
MAX_SECONDS = 86_400  # of a --timeout: the system's timers refuse very long times
STDIN, STDOUT = 0, 1  # descriptors


# ---- options


class FilePath(click.Path):
    """A path that is not empty, because a script's empty variable must not mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value or (value == "-" and not self.allow_dash):
            self.fail(f"{value or 'an empty text'} is not a file name", param, ctx)
        return super().convert(value, param, ctx)


PATH = FilePath(readable=False, allow_dash=True)  # only opening a file shows whether it can be read
PATH.name = "file"  # in --help
FILE_PATH = FilePath(dir_okay=False, path_type=Path)
FILE_OR_STDIN = FilePath(dir_okay=False, allow_dash=True, path_type=Path)
FOLDER = FilePath(path_type=Path)


class Parsed(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    """A click type that parses a value with a function. Its ValueError and OSError become usage errors."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name  # in --help, in upper case
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(str(value))
        except (ValueError, OSError) as error:
            self.fail(reason_of(error), param, ctx)


class NamedIn(click.Choice):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    """A click type for a built-in name, or one that an installed package declares in a group."""

    def __init__(self, group: str, built_in: Sequence[str]) -> None:
        super().__init__(built_in)
        self._group = group

    def _all(self) -> click.Choice:  # type: ignore[type-arg,unused-ignore]
        return click.Choice([*self.choices, *entry_points.names(self._group)])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value in self.choices else self._all().convert(value, param, ctx)

    def get_metavar(self, param: click.Parameter, *args: Any, **kwargs: Any) -> str | None:
        return self._all().get_metavar(param, *args, **kwargs)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return self._all().shell_complete(ctx, param, incomplete)


def time_option(name: str, default: str | None = None, *, help: str, least: int = 0) -> Callable[[Command], Command]:
    """Make an option for a duration of at least ``least`` seconds, such as ``14d``, ``1h30m`` or ``3600``."""

    def parse(text: str) -> int:
        from maptr.config.model import read_duration

        if (seconds := read_duration(text)) < least:
            raise ValueError(f"must be at least {least} s")
        return seconds

    return click.option(name, type=Parsed("time", parse), default=default, help=help)


class OneOf(click.Choice):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    """A click type that shows and completes words, and leaves other values to the reader of the configuration."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value


class SettingOption(click.Option):
    """An option that overrides a setting. Its help text is made when it is shown, because it imports all settings."""

    def __init__(self, *args: Any, key: str, make_help: Callable[[], str], **options: Any) -> None:
        self._make_help = make_help
        super().__init__(*args, **options)
        self.key = key

    @property
    def help(self) -> str | None:
        return self._make_help()

    @help.setter
    def help(self, text: str | None) -> None:
        """click sets it."""


def setting_option(
    key: str, *names: str, type: Any = None, also: str = "", **options: Any
) -> Callable[[Command], Command]:
    """Make an option that overrides the setting with this key, with its type and its help text.

    ``type`` is for commands that look up ARKs, which start without the settings, and for values that a command parses
    itself. ``also`` is a sentence about the option only.
    """
    is_of_setting = type is None

    def make_help() -> str:
        from maptr.config.reference import option_help  # late: only --help needs it

        return option_help(key, also=also, shows_values=is_of_setting)

    if is_of_setting:
        from maptr.config.model import all_keys  # late: ARK look-up does not need it

        kind, content = all_keys()[key].metadata["type"], all_keys()[key].metadata["content"]
        type = OneOf(kind.words) if kind.words else click.Path() if content else click.STRING
        options = {"metavar": None if kind.words else kind.metavar, "multiple": kind.is_list} | options
    return click.option(*names, cls=SettingOption, key=key, make_help=make_help, type=type, **options)


def settings_of(values: Mapping[str, Any]) -> dict[str, tuple[object, str]]:
    """Return the settings among the option values of the running command, for ``config.load``: by key, the TOML value
    and the option of each setting that was given."""
    from maptr.config.model import all_keys  # late: ARK look-up does not need it

    found: dict[str, tuple[object, str]] = {}
    for option in click.get_current_context().command.params:
        if isinstance(option, SettingOption) and values.get(option.name or "") not in (None, ()):
            kind, value = all_keys()[option.key].metadata["type"], values[option.name or ""]
            found[option.key] = ([*value] if kind.is_list else kind.from_text(value), option.opts[0])
    return found


NAME = Parsed("name", names.required)
NAME_TEXT = Parsed("name", lambda text: names.to_text(names.required(text)))
MAILBOX = Parsed("name", lambda text: names.required(names.mailbox(text)))  # an e-mail address, or a name for one


def origin_option(help: str) -> Callable[[Command], Command]:
    """Make ``--origin``, whose value is the text of a valid name."""
    return click.option("--origin", metavar="NAME", type=NAME_TEXT, help=help)


def configured_origin_option(also: str = "") -> Callable[[Command], Command]:
    """Make ``--origin`` that overrides ``client.origin``."""
    return setting_option("client.origin", "--origin", metavar="NAME", type=NAME_TEXT, also=also)


ORIGIN_OPTION = configured_origin_option()
_SCHEMES = click.Choice(["https", "http"])
SCHEME_OPTION = setting_option("client.scheme", "--scheme", type=_SCHEMES)
NATAB_SCHEME_OPTION = click.option(
    "--scheme", type=_SCHEMES, default="https", help="Use this scheme for the hosts in a natab; port 80 means http."
)
PROFILE_OPTION = click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default=DEFAULTS.profile,
    help="Read ARKs by this version of the ARK specification.",
)


def _named_table(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the file of a table, None for this machine's table. ``builtin`` and ``auto`` are names."""
    return paths.BUILT_IN_FILE if value == paths.BUILT_IN else None if value == AUTO else value


TABLE_OPTION = click.option(
    "--table",
    "file",
    type=PATH,
    callback=_named_table,
    help="Read this registry, in any format, or the builtin one.  [default: the one that maptr table shows]",
)


def _existing(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Raise OSError if there is no such file, even if it would be read later or never."""
    if value is not None and not ctx.resilient_parsing and stat.S_ISDIR(Path(value).stat().st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), value)
    return value


def _table_or_input(ctx: click.Context, param: click.Parameter, value: str | None) -> str | Table | None:
    """Read the registry from standard input for ``-``, because a cache reads a file again when it changes."""
    return read_table(value)[0] if value == "-" and not ctx.resilient_parsing else _watched_table(ctx, param, value)


def _watched_table(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return value if value in (AUTO, paths.BUILT_IN) else _existing(ctx, param, value)


def _anchors_or_input(ctx: click.Context, param: click.Parameter, value: str | None) -> TrustAnchors | None:
    """Read the trust anchors from standard input for ``-``."""
    if value != "-" or ctx.resilient_parsing:
        return _existing(ctx, param, value)
    from maptr.resolver.validation.validator import read_anchors  # late: only validation needs it

    return read_anchors(read_text(value), input_name(value))


def cache_table_option(callback: Callable[..., Any] = _watched_table) -> Callable[[Command], Command]:
    """Make ``--table`` for a registry that answers where DNS does not."""
    return setting_option("cache.natab", "--table", type=PATH, callback=callback)


POLICY_OPTION = setting_option("cache.policy", "--policy", type=NamedIn(entry_points.POLICIES, POLICIES))
CHOOSE_OPTION = setting_option("client.choose", "--choose", type=NamedIn(entry_points.CHOOSERS, CHOOSERS))
CONFIG_OPTION = click.option(
    "--config",
    type=PATH,
    help="Read this configuration file (TOML).  [default: MAPTR_CONFIG, else ./maptr.toml, else the user's, else that "
    "of a running maptr up]",
)


class Amount(click.FloatRange):
    """A number above 0. NaN is refused: click's range check lets it pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number", param, ctx) if math.isnan(number) else number


RATE_OPTION = click.option(
    "--rate",
    type=Amount(0, min_open=True),
    metavar="N",
    help="Send at most N packets a second to each server.  [default: no limit]",
)
QUIET_OPTION = click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
VERBOSE_OPTION = click.option(
    "-v", "--verbose", "--trace", is_flag=True, help="Show every query, record and reason on stderr."
)


def json_option(help: str = "Print one JSON document.") -> Callable[[Command], Command]:
    return click.option("--json", "as_json", is_flag=True, help=help)


JSON_OPTION = json_option()
JSON_EACH_OPTION = json_option("Print one JSON document for each ARK.")


def port_option(*names: str, help: str) -> Callable[[Command], Command]:
    return click.option(*names, metavar="PORT", type=click.IntRange(1, 65535), help=help)


def zone_name_option(where: str = "") -> Callable[[Command], Command]:
    """Make ``--origin`` for commands that read zone files. ``where`` says which file names the zone."""
    return origin_option(f"Use this as the name of the zone.  [default: owner of the SOA{where}; @ is {ORIGIN}]")


_SECONDS = Amount(0, MAX_SECONDS, min_open=True)


def timeout_option(default: float, help: str) -> Callable[[Command], Command]:
    """Make ``--timeout``, a number of seconds greater than 0."""
    return click.option("--timeout", default=default, type=_SECONDS, metavar="SECONDS", help=help)


def lifetime_option(also: str = "") -> Callable[[Command], Command]:
    """Make ``--timeout`` for the ``lifetime`` of a discovery, which the configuration may also set."""
    return setting_option("client.lifetime", "--timeout", "lifetime", metavar="SECONDS", type=_SECONDS, also=also)


def discovery_options(timeout: str = "") -> Callable[[Command], Command]:
    """Make the options of each look-up command, named as those of ``maptr.Client`` and ``lookup.LookupOptions``.

    ``timeout`` is a sentence about ``--timeout``.
    """
    options = (
        ORIGIN_OPTION,
        lifetime_option(timeout),
        click.option("--trust-ad", is_flag=True, help="Trust the DNSSEC validation of the server (its AD flag)."),
        click.option(
            "--trust-anchor",
            "trust_anchors",
            type=PATH,
            callback=_anchors_or_input,
            help="Validate DNSSEC from the DS or DNSKEY records in FILE, in the format of a zone file.",
        ),
        click.option("--require", type=click.Choice(["secure"]), help="Accept only answers validated by DNSSEC."),
        click.option("--allow-private", is_flag=True, help="Accept candidates on hosts that are not public."),
        cache_table_option(_table_or_input),
        POLICY_OPTION,
        click.option("--no-cache", is_flag=True, help="Use DNS only: no table, no cache."),
        CHOOSE_OPTION,
        SCHEME_OPTION,
        PROFILE_OPTION,
        click.option("-4", "ipv4", is_flag=True, help="Ask DNS servers at IPv4 addresses only; not with -6."),
        click.option("-6", "ipv6", is_flag=True, help="Ask DNS servers at IPv6 addresses only; not with -4."),
        port_option("-p", "--port", help=f"Ask servers without #PORT at this port.  [default: {PORT}]"),
        click.option("--tcp", is_flag=True, help="Ask DNS servers by TCP. The argument +tcp does the same."),
        QUIET_OPTION,
        CONFIG_OPTION,
    )

    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


# ---- values


def parse_naans(words: Iterable[str]) -> list[str]:
    """Parse NAANs and shoulders, and return their NAANs, each once. Raises UsageError for anything else."""
    from maptr.registry.table import parse_key

    naans = []
    for word in words:
        try:
            naans.append(parse_key(word)[0])
        except ValueError as error:
            raise click.UsageError(f"{word!r} is not a NAAN or a shoulder: {error}") from None
    return [*dict.fromkeys(naans)]


def only_servers(words: Sequence[str]) -> list[str]:
    """Return the servers of ``@SERVER`` arguments. Raises UsageError for other arguments."""
    others, servers = lookup.split_servers(words)
    if others:
        raise click.UsageError(f"{others[0]!r} is not @SERVER")
    return servers


def plain_servers(words: Sequence[str], only: str) -> list[str]:
    """Return the servers of ``@SERVER`` arguments that have no scheme. ``only`` begins the error for others."""
    given = lookup.servers_of(only_servers(words), None)
    lookup.refuse_schemes(given, given, None, only, (TCP, TLS, HTTPS))
    return given


def server_config(file: str | None) -> Config:
    """Load the configuration of the server from a file, or from the default file. Raises ConfigError and OSError."""
    from maptr import config as configuration  # late: ARK look-up does not need it

    named = Path(file) if file else configuration.find(os.environ)
    return configuration.load(named, environment=os.environ, secrets=False)


# ---- input


def read_bytes(file: str) -> bytes:
    """Read a file, or standard input for ``-``. Raises OSError."""
    try:
        with nullcontext(output.standard_input()) if file == "-" else Path(file).open("rb") as opened:
            data = read_up_to(opened, MAX_BYTES)
    except OSError as error:
        error.filename = error.filename or input_name(file)
        raise
    if len(data) > MAX_BYTES:
        output.fail(f"{input_name(file)}: longer than {MAX_BYTES} bytes", output.EXIT_UNREADABLE)
    return data


def read_text(file: str) -> str:
    """Read a zone file, which may have bytes that are not UTF-8."""
    from maptr.zone.masterfile import AS_TEXT  # late: ARK look-up does not need it

    return read_bytes(file).decode(*AS_TEXT)


def read_table(file: str, scheme: str = "https") -> tuple[Table, list[TableError]]:
    """Read a registry in any format. Returns the table and the bad records left out of it. ``scheme`` is for a natab.

    Raises TableError if it is not a registry.
    """
    from maptr import registry  # late: ARK look-up does not need it

    bad: list[TableError] = []
    return registry.read(read_bytes(file), filename=input_name(file), on_bad=bad.append, scheme=scheme), bad


def _source(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    if value is not None or ctx.resilient_parsing:  # the shell asks for completions
        return value or ""
    found = lookup.location_of_table(lookup.read_config(None, warn=str))
    output.inform(f"the {found.kind_text} table, {found.path}")
    return found.path


def source_argument(name: str) -> Callable[[Command], Command]:
    """Make the argument for a registry: a file, ``-``, or by default this machine's table."""
    return click.argument(name, type=PATH, required=False, callback=_source)


def input_name(file: str) -> str:
    """Return the name of an input for messages."""
    return "<stdin>" if file == "-" else file


# ---- output


def _target(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    if value is None or value == "-" or _same(_status(value), _status(STDOUT)):
        return None
    return Path(value)


def output_option(help: str, metavar: str = "FILE") -> Callable[[Command], Command]:
    """Make ``-o FILE``, whose value is a Path, or None for standard output (also ``-`` and ``/dev/stdout``)."""
    return click.option("-o", "--output", "target", metavar=metavar, type=PATH, callback=_target, help=help)


def refuse_input(target: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Raise UsageError if the output (standard output if ``target`` is None) is one of the inputs."""
    there = _status(STDOUT if target is None else target)
    if there is None or not stat.S_ISREG(there.st_mode):
        return  # a terminal, a pipe or a device may be both input and output
    for name in inputs:
        if name is not None and _same(there, _status(STDIN if str(name) == "-" else name)):
            shown = "standard output" if target is None else str(target)
            raise click.UsageError(f"{shown}: input and output are the same file")


def refuse_foreign(
    target: Path | None, is_ours: Callable[[bytes], bool] = lambda content: False, *, overwrite: bool
) -> None:
    """Raise UsageError if ``target`` is a file that maptr did not write, unless ``overwrite``. Raises OSError."""
    if target is None or overwrite or (there := _status(target)) is None:
        return
    if stat.S_ISBLK(there.st_mode):
        raise click.UsageError(f"{target}: is a block device")
    if stat.S_ISREG(there.st_mode) and there.st_size and not is_ours(read_whole(target)):
        raise click.UsageError(f"{target}: exists, and maptr may not have written it: give --overwrite to replace it")


def _status(file: str | Path | int) -> os.stat_result | None:
    try:
        return os.stat(file)  # noqa: PTH116 - also of a descriptor
    except (OSError, ValueError):
        return None


def _same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    return one is not None and other is not None and os.path.samestat(one, other)


def write(target: Path | None, text: str) -> None:
    """Write the file atomically, or standard output, which must be able to encode the text. Raises OSError.

    A file that already has this text is not touched, because other programs may watch its modification time.
    """
    if target is not None:
        if not (target.is_file() and target.read_bytes() == text.encode()):
            write_atomically(target, text.encode())
    elif output.can_encode(sys.stdout, text):
        click.echo(text, nl=False)
    else:
        reason = f"standard output: its encoding {sys.stdout.encoding} lacks some characters: give -o FILE"
        output.fail(reason, output.EXIT_UNREADABLE)
