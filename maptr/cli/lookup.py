"""ARK look-up in commands: servers and cache from options and configuration, and output of the results.

``maptr url`` starts here (see ``start``), so modules that only a configuration or a cache needs are imported late.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from maptr import paths
from maptr.ark import Ark, Profile
from maptr.cache import DNS_FIRST, NATAB_ONLY
from maptr.cli import output
from maptr.cli.output import Painted
from maptr.client import AUTO, MEMORY, Client
from maptr.discovery import BUILT_IN, Discovery, DiscoveryError, NoMappingAuthority, NoServer, Step
from maptr.errors import ArkSyntaxError, ConfigError, MaptrError, NmaError, error_fields
from maptr.protocol.numbers import PORT
from maptr.resolver.call import LIFETIME, as_ark
from maptr.resolver.servers import HTTPS, TCP, TLS, check_server, find_servers, is_address, system_servers
from maptr.states import Dns
from maptr.walk import Settings

if TYPE_CHECKING:
    from maptr.choose import Chooser
    from maptr.config import Config
    from maptr.registry.found import FoundTable, TableLocation

log = logging.getLogger("maptr.cache")

ORIGIN = "ark.arpa."
OLD = 365 * 86_400  # seconds: a built-in registry older than a year needs a warning
SECTIONS = ("client", "cache", "table", "gateway")  # of a client's configuration
SOURCES = {
    "dns": "DNS",
    "memory": "memory",
    "disk": "the cache on disk",
    "natab": "the table",
    "redirects": "own objects",
}

CLIENT_OPTIONS: Mapping[str, Any] = MappingProxyType(Client.__init__.__kwdefaults__ or {})  # with their defaults


class LookupOptions(NamedTuple):
    """The options that all look-up commands share, with their defaults.

    ``client`` has the options of ``maptr.Client``, by their names there. If one of these, ``scheme`` or ``choose`` is
    None, the configuration decides. ``ipv4``, ``ipv6``, ``port`` and ``tcp`` apply to servers that are not URLs.
    ``verbose`` shows the trace on stderr, ``quiet`` only errors.
    """

    client: Mapping[str, Any] = MappingProxyType({})
    allow_private: bool = False
    scheme: str | None = None
    no_cache: bool = False
    config: str | None = None
    as_json: bool = False
    profile: Profile = "current"
    choose: str | None = None
    ipv4: bool = False
    ipv6: bool = False
    port: int | None = None
    tcp: bool = False
    verbose: bool = False
    quiet: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the options that a command got."""
        client = {name: value for name, value in given.items() if name in CLIENT_OPTIONS and value is not None}
        return cls(client, **{name: value for name, value in given.items() if name not in CLIENT_OPTIONS})

    def inform(self, text: str) -> None:
        """Print a message that is not an error."""
        if not self.quiet:
            output.inform(Painted("maptr:", output.MINOR), f" {text}")


DEFAULTS = LookupOptions()

Argument: TypeAlias = Ark | str
"""An ARK, or a word that is not an ARK among others that are."""


class Prepared(NamedTuple):
    """The ARKs that a command looks up, its options, client and chooser; ``own`` finds own objects first."""

    arks: Sequence[Argument]
    options: LookupOptions
    client: Client
    chooser: Chooser | None = None
    own: Callable[[Ark], Discovery | None] | None = None


def with_plus(words: Sequence[str], options: LookupOptions) -> tuple[list[str], LookupOptions]:
    """Return the arguments without dig's ``+tcp``, and the options with it. Raises ConfigError for another ``+``."""
    others = [word for word in words if word != "+tcp"]
    if unknown := next((word for word in others if word.startswith("+")), ""):
        raise ConfigError(f"{unknown}: +tcp is the only option in dig's form; --help has the others")
    return others, options if len(others) == len(words) else options._replace(tcp=True)


def split_servers(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments that are not ``@SERVER``, and the servers without their mark."""
    others = [word for word in words if not word.startswith("@")]
    return others, [word[1:] for word in words if word.startswith("@")]


def prepare(words: Sequence[str], options: LookupOptions) -> Prepared:
    """Return the ARKs among the arguments, with a client for them.

    Raises ArkSyntaxError if no argument is an ARK or one is a server without ``@``, ConfigError without arguments and
    for conflicting options, DiscoveryFailed if there is no server or one has no address, and OSError if the
    configuration cannot be read.
    """
    words, options = with_plus(words, options)
    texts, servers = split_servers(words)
    if not texts:
        raise ConfigError("no ARK given")
    arks: list[Argument] = []
    errors: list[ArkSyntaxError] = []
    for text in texts:
        try:
            arks.append(as_ark(text, options.profile))
        except ArkSyntaxError as error:
            if is_address(text.partition("#")[0]):  # a missing @: the ARKs would be looked up at another server
                raise ArkSyntaxError(f"{error}: is it '@{text}'?") from None
            arks.append(text)
            errors.append(error)
    if len(errors) == len(arks):
        name = " ".join(texts)
        if errors[0].labelled or errors[0].suggestion or not name.replace(" ", "").isalnum():
            raise errors[0]
        import shlex  # late: only this mistake needs it

        raise ArkSyntaxError(f"{errors[0]}; maptr naan {shlex.quote(name)} finds an organisation")
    config = read_config(options.config)
    client = client_of(servers, options, config)
    own = None if servers else own_objects(config, allow_private=options.allow_private)
    return Prepared(arks, options, client, chooser_of(options, config, client), own)


def own_objects(config: Config | None, *, allow_private: bool) -> Callable[[Ark], Discovery | None] | None:
    """Return a function that finds the configured gateway's own objects. Raises ConfigError if they cannot be read."""
    if config is None or config.gateway.redirects is None:
        return None
    from maptr.gateway import objects  # late: few configurations have any
    from maptr.gateway.redirects.following import follow

    settings = config.gateway
    file = follow(config.gateway.redirects, allow_private=allow_private, clock=time.monotonic)
    known = file.value.objects

    def find(ark: Ark) -> Discovery | None:
        ark = ark.sent(config.client.hyphens)
        own = objects.match(known, ark)
        return None if own is None else objects.discovery_of(own, ark, settings, time.time())

    return find


# ---- the client


def client_of(servers: list[str], given: LookupOptions, config: Config | None, **limits: Any) -> Client:
    """Return a client that reconciles DNS with a cache and a table, or that asks only DNS if a server is named.

    ``limits`` are options of ``Client``. Raises ConfigError, even for conflicting options, and DiscoveryFailed if only
    DNS can answer and no server can be asked.
    """
    wanted = not given.client.keys().isdisjoint(("table", "policy"))
    if given.no_cache and wanted:
        raise ConfigError("--no-cache excludes --table and --policy")
    if wanted or not (given.no_cache or servers):
        return reconciling_client(servers, given, config, **limits)
    options = client_options(given, config) | {"policy": DNS_FIRST, "table": None} | limits
    client = Client(servers_of(servers, config, given) or None, **options)
    client.resolver.opened(client.resolver.lifetime)
    return client


def reconciling_client(
    servers: list[str], given: LookupOptions, config: Config | None, *, is_service: bool = False, **limits: Any
) -> Client:
    """Return a client with a cache and the given table, or this machine's table. Raises ConfigError.

    A service continues without the cache if its file is damaged.
    """
    options = client_options(given, config) | limits
    if options.get("require") and options.get("policy") == NATAB_ONLY:
        raise ConfigError(f"{NATAB_ONLY} and --require exclude each other: a table has no signatures", of_text=True)
    if options.get("table") in (None, AUTO):
        options["table"] = found_table(config, options.get("origin"))
    try:
        servers = servers_of(servers, config, given) or system_servers()
    except DiscoveryError as error:  # the table may still answer
        given.inform(str(error))
        servers = []
    output.show_log()
    file = cache_file(config)
    try:
        return Client(servers or None, **options | {"cache": file or MEMORY})
    except ConfigError as error:
        if config is None or error.filename != file:
            raise
        if not (is_service and Path(file).exists()):
            raise config.error("cache.path", str(error)) from None
        log.warning("%s; going on without the disk cache", error)
        return Client(servers or None, **options | {"cache": MEMORY})


def client_options(given: LookupOptions, config: Config | None) -> dict[str, Any]:
    """Return the options of ``maptr.Client``, from the command line, else the configuration, else the defaults.

    The servers and the cache file are not among them.
    """
    settings = Settings(allow_private=given.allow_private, scheme=scheme_of(given.scheme, config))
    options: dict[str, Any] = {}
    if config is not None:
        settings = settings._replace(hyphens=config.client.hyphens)
        keys = {**vars(config.client), **vars(config.cache)}
        options = {name: value for name, value in keys.items() if name in CLIENT_OPTIONS}
        options |= {"origin": origin_of(None, config), "table_limit": config.cache.table_limit or None}
    return {**options, **given.client, "settings": settings}


# ---- the configuration


def read_config(
    file: str | None = None,
    *,
    running: bool = True,
    flags: Mapping[str, tuple[object, str]] = MappingProxyType({}),
    warn: Callable[[str], object] = output.warning,
) -> Config | None:
    """Read the configuration of the client: ``file``, or the file in MAPTR_CONFIG, or the first of three that has a
    ``[client]``, ``[cache]``, ``[table]`` or ``[gateway]``: ``maptr.toml`` in the current folder, the user's, and (if
    ``running``) the one of a running ``maptr up``. Returns None if there is none.

    ``flags`` are options that override it. ``warn`` gets a text for each removed setting. Raises ConfigError and
    OSError.
    """
    environment = os.environ
    named = file or environment.get("MAPTR_CONFIG")
    files = [named] if named else [*filter(paths.exists, (paths.LOCAL_CONFIG, paths.config_file(environment)))]
    if running and not named and (made := paths.running(environment)) is not None:
        files.append(made)
    variables = tuple(f"MAPTR_{name.upper()}_" for name in SECTIONS)
    if not (files or flags or any(name.startswith(variables) for name in environment)):
        return None
    from pathlib import Path

    from maptr import config as configuration  # late: it imports the reader of TOML

    keys = tuple(f"{name}." for name in SECTIONS)
    for each in files:
        config = configuration.load(Path(each), environment=environment, flags=flags, secrets=False)
        if named or any(key.startswith(keys) for key in config.locations):
            break
    else:
        config = configuration.load(None, environment=environment, flags=flags, secrets=False)
    for removed in config.removed:
        warn(str(removed))
    return config


def origin_of(given: str | None, config: Config | None) -> str:
    """Return the origin from the option, else the configuration, else ark.arpa."""
    if given is not None:
        return given
    if config is None:
        return ORIGIN
    from maptr.protocol.names import to_text

    return to_text(config.client.origin)


def servers_of(given: list[str], config: Config | None, options: LookupOptions = DEFAULTS) -> list[str]:
    """Return the servers from the command line, else the configuration. Empty means the system's servers.

    Raises ConfigError for a bad server and for one that the options exclude, and DiscoveryFailed if none is left.
    """
    for text in given:
        try:
            check_server(text)
        except ValueError as error:
            raise ConfigError(str(error), filename="@SERVER", of_text=True) from None
    servers = given or (list(config.client.nameservers) if config is not None else [])
    if options.ipv4 and options.ipv6:
        raise ConfigError("only one of -4 and -6 is allowed")
    if not (options.ipv4 or options.ipv6 or options.port or options.tcp):
        return servers
    refuse_schemes(servers, given, config, "-4, -6, -p and +tcp are for servers", (TLS, HTTPS))
    servers = servers or system_servers()
    seconds = options.client.get("lifetime", LIFETIME if config is None else config.client.lifetime)
    found = [each for text in servers for each in find_servers(text, options.port or PORT, seconds)]
    version = 4 if options.ipv4 else 6 if options.ipv6 else None
    wanted = [each for each in found if version in (None, 6 if ":" in each.address else 4)]
    if not wanted:
        raise NoServer(f"no server has an IPv{version} address: {', '.join(servers)}")
    return [f"{TCP if options.tcp or each.tcp else ''}{each}" for each in wanted]


def refuse_schemes(
    servers: list[str], given: list[str], config: Config | None, only: str, schemes: Sequence[str]
) -> None:
    """Raise ConfigError for a server with one of the schemes. ``only`` begins the reason in the message."""
    for text in servers:
        if text.startswith(tuple(schemes)):
            reason = f"{text}: {only} without {' or '.join(schemes)}"
            raise ConfigError(f"@{reason}") if given or config is None else config.error("client.nameservers", reason)


def chooser_of(given: LookupOptions, config: Config | None, client: Client) -> Chooser | None:
    """Return the chooser from the option, else the configuration; None for the first candidate.

    Servers that did not answer the probes in the client's history come last.
    """
    name = given.choose or (config.client.choose if config is not None else "first")
    if name == "first":
        return None
    from maptr.nma.reachable import named
    from maptr.reconcile.probes import ProbeLog

    suspects = ProbeLog(client.history).is_suspect if client.history is not None else None
    return named(name, allow_private=given.allow_private, require=given.client.get("require"), suspects=suspects)


def scheme_of(given: str | None, config: Config | None) -> str:
    """Return the scheme for hosts that have none: from the option, else the configuration, else https."""
    return given or (config.client.scheme if config is not None else "https")


def found_table(config: Config | None, origin: str | None = None) -> FoundTable:
    """Return this machine's table for an origin, by default the configured one: the configured table, else that of
    ``maptr table pull``, of the system, or the built-in one, which is only for ark.arpa: other origins have other
    data."""
    from maptr.registry.found import FoundTable  # late: a look-up at a named server does not need it

    file = config and (config.cache.natab or config.table.file)
    is_public = origin_of(origin, config).rstrip(".").lower() == ORIGIN.rstrip(".")
    path, scheme = str(file) if file else None, scheme_of(None, config)
    return FoundTable(path, clock=time.monotonic, scheme=scheme, built_in=is_public)


def location_of_table(config: Config | None) -> TableLocation:
    """Return where this machine's table is. Raises ConfigError if there is none."""
    if not (found := found_table(config).location).kind:
        raise ConfigError(
            f"no table is in use: the built-in one is not for {origin_of(None, config).rstrip('.')}; name a file"
        )
    return found


def cache_file(config: Config | None) -> str | None:
    """Return the file of the cache; None if it is disabled or its folder cannot be made."""
    if config is not None and "cache.path" in config.locations:
        return None if config.cache.path is None else str(config.cache.path)
    path = paths.cache_file(os.environ)
    try:
        paths.make_parent(path)
    except OSError:
        return None
    return path


# ---- output


def show_urls(prepared: Prepared) -> int:
    """Print one line for each ARK, empty if it has no URL. Return the exit code."""
    options = prepared.options

    def show(ark: Argument, found: Discovery | None, error: MaptrError | None) -> None:
        made = found.url() if found and error is None else None  # an insecure answer has candidates
        if options.as_json:
            document = {} if found is None else found.to_dict()
            fields = {name: document.get(name) for name in ("source", "table", "table_date", "stale", "reason", "age")}
            output.json_data({"ark": str(ark), "url": made, **fields, **error_fields(error)})
            return
        if made and found and found.table != BUILT_IN and (found.source == "natab" or found.stale):
            options.inform(f"{ark}: {provenance(found)}")
        output.data(made or "")

    return answer(prepared, show)


def show_discoveries(prepared: Prepared, *, short: bool = False) -> int:
    """Print the candidates of each ARK, best first. Return the exit code."""
    options = prepared.options

    def show(ark: Argument, found: Discovery | None, error: MaptrError | None) -> None:
        if options.as_json:
            document: dict[str, Any] = found.to_dict() if found is not None else {"ark": str(ark), "age": None}
            if error is not None:
                document["candidates"] = []  # the trace has the refused ones
            output.json_data({**document, **error_fields(error)})
        elif found and error is None:
            if prepared.client.reconciles and found.table != BUILT_IN:
                options.inform(f"{ark}: {provenance(found)}")
            for url, one in zip(found.urls(), found, strict=True):
                rank = f"{one.order}\t{one.preference}\t{one.owner}"
                output.data(*[url] if short else [Painted(url, output.GOOD), "\t", Painted(rank, output.MINOR)])

    return answer(prepared, show)


def answer(prepared: Prepared, show: Callable[[Argument, Discovery | None, MaptrError | None], int | None]) -> int:
    """Look up each ARK and ``show`` its discovery, or the error and the discovery in it.

    ``show`` may return an exit code, or raise NmaError and DiscoveryError. Return the greatest exit code.
    """
    code, advice, note = output.EXIT_OK, "", ""
    arks, options, client, chooser, own = prepared
    on_step = show_step if options.verbose else None
    with client:
        for answered, ark in enumerate(arks):
            try:
                parsed = as_ark(ark, options.profile)
                for remark in parsed.notes if options.verbose else ():
                    options.inform(f"{ark}: {remark}")
                found = None if own is None else own(parsed)
                if found is None:
                    found = client.discover(parsed, chooser=chooser, on_step=on_step)
                found.raise_for_none()
                if not found.complete and found.source == "dns":
                    options.inform(f"{ark}: there may be more: {found.incomplete_reason()}")
                note = note or built_in_note(found)
                code = max(code, show(ark, found, None) or output.EXIT_OK)
            except KeyboardInterrupt:
                output.interrupted(f"{answered} of {len(arks)} ARKs were answered; run it again for the others")
            except (ArkSyntaxError, DiscoveryError, NmaError) as error:
                discovery = error.discovery if isinstance(error, DiscoveryError) else None
                advice = advice or advice_of(discovery, options)
                show(ark, discovery, error)
                unknown = output.EXIT_USAGE if isinstance(error, ArkSyntaxError) else output.EXIT_NO_ANSWER
                code = max(code, output.EXIT_NONE if isinstance(error, NoMappingAuthority) else unknown)
                output.error(str(error))
    if note or advice:
        options.inform(note or advice)
    return code


def built_in_note(found: Discovery) -> str:
    """Return the note on an answer from the built-in registry; empty for any other answer."""
    if found.table != BUILT_IN or found.table_date is None:
        return ""
    dns = {
        Dns.UNKNOWN: "DNS does not say",
        Dns.NONE: "DNS has no record of it",
        Dns.BOGUS: "the answer of DNS is bogus",
    }.get(found.states.dns if found.states else Dns.UNASKED, "")
    if found.missing_origin:
        dns = f"{found.missing_origin.rstrip('.')} is not delegated in your DNS"
    old = "more than a year old" if time.time() - found.table_date > OLD else ""
    remarks = [f"from the built-in registry of {day_text(found.table_date)}", old, dns]
    return f"{'; '.join(filter(None, remarks))}. maptr table pull --apply gets today's"


def advice_of(found: Discovery | None, options: LookupOptions) -> str:
    """Return advice if the origin does not exist, else "". With ``--require`` the error has the relevant advice."""
    return "" if found is None or found.complete or options.client.get("require") else found.advice()


def provenance(found: Discovery) -> str:
    """Write the source, age and reason of a discovery."""
    if found.source == "redirects":
        return f"from {SOURCES[found.source]}"
    old = "of unknown age" if found.age is None else f"{duration_text(found.age)} old"
    stale = ", stale" if found.stale else ""
    data = "" if found.table_date is None else f"; its data are of {day_text(found.table_date)}"
    return f"from {SOURCES[found.source]}, {old}{stale} ({found.reason}){data}"


def day_text(seconds: float) -> str:
    """Write the day of a Unix time, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def duration_text(seconds: float) -> str:
    """Write a duration in its largest fitting unit: 3 s, 5 min, 2 h, 4 days."""
    for least, size, unit in ((172_800, 86_400, "days"), (7200, 3600, "h"), (120, 60, "min")):
        if seconds >= least:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def show_step(step: Step) -> None:
    """Print a step of the trace: ``? name NAPTR`` with the outcome, ``+`` for a record that is used, ``-`` for one that
    is not, and ``=`` for a link of the chain of trust."""
    indent = "  " * step.depth
    output.inform(indent, Painted("?", output.STRONG), f" {step}")
    for reading in step.readings:
        sign = Painted("+", output.GOOD) if reading.counted else Painted("-", output.BAD)
        output.inform(f"{indent}  ", sign, f" {reading.naptr.to_text()}")
        for reason in reading.reasons:
            output.inform(f"{indent}      {reason}")
    for record in step.table_records:
        output.inform(f"{indent}  ", Painted("+", output.GOOD), f" record {record.key}")
        for place in record.leads_to:
            output.inform(f"{indent}      {place}")
    for link in step.links:
        output.inform(f"{indent}  = {link}")
