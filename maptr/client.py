"""``Client``: the object that discovers, with its servers, table, cache and policy; and the functions that make one."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Literal, Self, TypedDict, TypeVar, Unpack

from maptr import paths
from maptr.ark import Ark, Profile, check_naan
from maptr.cache import DNS_FIRST, DNS_ONLY, MAX_NAMES, PATIENCE, STALE_LIMIT, Policy
from maptr.discovery import Discovery
from maptr.errors import ConfigError
from maptr.protocol.names import ARK_ARPA
from maptr.resolver.call import NO_OPTIONS, Call, Options, StepHook, as_item, checked, log_discovery, logs, prefer
from maptr.resolver.resolver import Resolver, checked_count
from maptr.resolver.servers import FailedServers
from maptr.walk import Settings

if TYPE_CHECKING:
    import dns.name
    import dns.resolver

    from maptr.cache.disk import Disk
    from maptr.cache.policy import SourcePolicy
    from maptr.cache.sources import Sources
    from maptr.choose import Chooser
    from maptr.nma.describe import Description
    from maptr.reconcile.verdict import Drift, PastVerdict
    from maptr.registry.followed_file import TableSource
    from maptr.registry.found import FoundTable
    from maptr.registry.pull import Pull
    from maptr.registry.table import Table
    from maptr.resolver.validation.validator import TrustAnchors

AUTO = "auto"  # as ``table``: the table of this machine; "builtin": the built-in one
MEMORY = ":memory:"  # as ``cache``: keep answers in memory, without a file

T = TypeVar("T")
Token = TypeVar("Token")


class Default(enum.Enum):
    """The type of a ``table`` that is not given: the table of this machine, but none with ``nameservers``."""

    TABLE = "the table of this machine, or none with nameservers"

    def __repr__(self) -> str:
        return f"<{self.value}>"


DEFAULT = Default.TABLE


class CallOptions(TypedDict, total=False):
    """The options of one call, which ``help(maptr.Client.discover)`` explains, for programs that pass them on."""

    lifetime: float | None
    chooser: Chooser | str | None
    on_step: StepHook | None
    raise_on_none: bool
    profile: Profile


class StreamOptions(TypedDict, total=False):
    """The options of one stream, which ``help(maptr.Client.discover_many)`` explains."""

    lifetime: float | None
    ordered: bool
    profile: Profile


class ClientOptions(TypedDict, total=False):
    """A client's options except ``lifetime``, which ``help(maptr.Client)`` explains. The functions also take them."""

    nameservers: Iterable[str] | dns.resolver.BaseResolver | None
    origin: str | dns.name.Name | None
    settings: Settings | None
    trust_ad: bool
    trust_anchors: TrustAnchors | None
    require: Literal["secure"] | None
    table: str | os.PathLike[str] | Table | TableSource | Default | None
    cache: str | os.PathLike[str] | Disk | None
    policy: Policy | SourcePolicy
    patience: float
    stale_limit: float
    table_limit: float | None
    history: str | os.PathLike[str] | Disk | None
    size: int
    concurrency: int | None
    rate: float | None
    max_connections: int | None


class Client:
    """Finds the mapping authorities of ARKs. Threads and tasks may share a client, and processes its cache file.

    It reconciles DNS, cached answers and a table. Without ``table`` and ``cache`` it asks DNS each time.

    ``nameservers``: DNS servers to ask, recursive or authoritative, in order: addresses or names, each with ``#port``
    if that is not 53 (``"ns.example#5300"``); over TCP (``"tcp://192.0.2.1"``), TLS (``"tls://192.0.2.1"``) or HTTPS
    (``"https://dns.example/dns-query"``); one text is one server. Or a dnspython resolver. By default the system's
    servers. ``origin``: the DNS suffix of the NAANs, by default the one in ``settings``, which is ark.arpa.
    ``lifetime``: seconds for a discovery (default 5). ``settings``: the limits of a walk, and the scheme of URLs.

    ``trust_ad``: take ``security`` from the servers' AD bit; safe only with a resolver you run, over a secure channel.
    ``trust_anchors``: validate every answer here, from the anchors of a ``Validator`` (which keeps keys), a file or a
    mapping; bogus data never becomes a candidate. ``require="secure"``: refuse discoveries that are not secure
    throughout; the table, which has no signatures, is then not used.

    ``table``: a Table, or a file of any registry format, which is reread when it changes; None for no table. ``"auto"``
    is this machine's table: the one of ``maptr table pull``, else ``/etc/natab`` or ``/etc/maptr/naans``, else the
    built-in registry, if ``origin`` is ark.arpa. ``"builtin"`` is the built-in registry, ``"./builtin"`` a file. The
    default is ``"auto"``, but no table with ``nameservers``, which then answer alone.
    ``cache``: the SQLite file that keeps answers, or ``":memory:"`` to keep them in memory only. ``policy``: which
    source answers: a ``Policy`` ("dns-first", "natab-first", "dns-only", "natab-only"), or your own object.
    ``patience``: seconds to wait for DNS when a stale answer or the table could answer instead. ``stale_limit``:
    seconds past its TTL for which an answer may be given while DNS does not answer (RFC 8767). ``table_limit``: seconds
    after which a table that its source has not confirmed is stale; None for never.
    ``history``: the SQLite file of drift verdicts, by default ``cache``'s. ``size``: names kept in memory.

    ``concurrency``: questions outstanding in ``discover_many`` (default 256). ``rate``: packets per second to one
    server in ``discover_many`` and ``drift_many``; None for no limit. ``max_connections``: TCP connections that they
    may have open at once (default 8; fewer if the server or the process does not allow that many). Raises ConfigError,
    and TypeError for a wrong type. A client that was closed raises RuntimeError.

    >>> with Client([server], cache=":memory:") as client:
    ...     [client.discover(f"ark:12345/x{i}").source for i in range(3)]
    ['dns', 'memory', 'memory']

    Use ``async with`` if ``discover_async`` is used with a table or a cache.
    """

    _make_resolver: Callable[..., Resolver] = Resolver

    def __init__(
        self,
        nameservers: Iterable[str] | dns.resolver.BaseResolver | None = None,
        *,
        origin: str | dns.name.Name | None = None,
        lifetime: float | None = None,
        settings: Settings | None = None,
        trust_ad: bool = False,
        trust_anchors: TrustAnchors | None = None,
        require: Literal["secure"] | None = None,
        table: str | os.PathLike[str] | Table | TableSource | Default | None = DEFAULT,
        cache: str | os.PathLike[str] | Disk | None = None,
        policy: Policy | SourcePolicy = DNS_FIRST,
        patience: float = PATIENCE,
        stale_limit: float = STALE_LIMIT,
        table_limit: float | None = None,
        history: str | os.PathLike[str] | Disk | None = None,
        size: int = MAX_NAMES,
        concurrency: int | None = None,
        rate: float | None = None,
        max_connections: int | None = None,
    ) -> None:
        if require not in (None, "secure"):
            raise ConfigError(f"{require!r} cannot be required, only 'secure'", key="require")
        self.resolver = self._make_resolver(
            nameservers,
            origin=origin,
            lifetime=lifetime,
            settings=settings,
            trust_ad=trust_ad,
            trust_anchors=trust_anchors,
            concurrency=concurrency,
            rate=rate,
            max_connections=max_connections,
        )
        self._require = require
        if isinstance(table, Default):
            table = AUTO if nameservers is None and policy != DNS_ONLY and not require else None
        self._table = self._found() if isinstance(table, str) and table == AUTO else table
        self._policy = policy
        self._patience = checked(patience, "patience")
        self._stale_limit = checked(stale_limit, "stale_limit")
        self._table_limit = None if table_limit is None else checked(table_limit, "table_limit")
        self._size = checked_count(size, "size")
        self._disk = _disk(None if cache == MEMORY else cache)
        self.history: Disk | None = self._disk if history is None else _disk(history)
        self._made: Sources | None = None
        self._choosers: dict[str, Chooser] = {}
        self._closed = False
        is_plain = self._table is None and cache is None and policy == DNS_FIRST
        self._sources = None if is_plain else self.sources
        if is_plain:  # otherwise the engine of the sources remembers failures
            self.resolver.failed = FailedServers(self.resolver.clock)

    def _found(self) -> FoundTable:
        """Return the table of this machine."""
        from maptr.registry.found import FoundTable  # a client of given servers starts without it

        settings = self.resolver.settings
        return FoundTable(clock=time.monotonic, scheme=settings.scheme, built_in=settings.origin == ARK_ARPA)

    @property
    def reconciles(self) -> bool:
        """Whether cached answers or a table may answer, not only DNS."""
        return self._sources is not None

    @property
    def sources(self) -> Sources:
        """Cached answers, DNS, the table and the policy. A plain client has these for ``drift`` only."""
        self._check_open()
        if self._made is None:
            from maptr.cache.engine import Engine  # a plain client starts without these
            from maptr.cache.policy import named
            from maptr.cache.sources import Sources, view_of
            from maptr.cache.store import Store
            from maptr.registry.followed_file import table_source

            settings, view = self.resolver.settings, view_of(self.resolver)
            store = Store(settings, self._disk, view=view, size=self._size, stale_limit=self._stale_limit)
            policy = named(DNS_ONLY if self._require else self._policy)  # the table has no signatures
            table = table_source(self._table, time.monotonic, settings.scheme)
            engine = Engine(store, policy, table, patience=self._patience, table_limit=self._table_limit)
            self._made = Sources(self.resolver, engine, require=self._require)
        return self._made

    @property
    def table(self) -> TableSource:
        """The source of the table; ``table.current().table`` is the Table now, or None."""
        return self.sources.engine.table

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed")

    def _options(
        self,
        lifetime: float | None,
        chooser: Chooser | str | None,
        on_step: StepHook | None,
        raise_on_none: bool,
        profile: Profile,
    ) -> Options:
        """Return the options of a call, in the time that a hit in memory allows."""
        self._check_open()
        if (lifetime, chooser, on_step, raise_on_none, profile) == NO_OPTIONS:
            return NO_OPTIONS
        return Options(lifetime, self._chooser(chooser), on_step, raise_on_none, profile)

    def _chooser(self, chooser: Chooser | str | None) -> Chooser | None:
        """Return a chooser by its name. One serves all calls, because it may remember which servers answer."""
        if not isinstance(chooser, str):
            return chooser
        if chooser not in self._choosers:
            from maptr.nma.reachable import named  # a discovery does not need HTTP

            allow_private = self.resolver.settings.allow_private
            self._choosers[chooser] = named(chooser, allow_private=allow_private, require=self._require)
        return self._choosers[chooser]

    def discover(
        self,
        ark: Ark | str | bytes,
        *,
        lifetime: float | None = None,
        chooser: Chooser | str | None = None,
        on_step: StepHook | None = None,
        raise_on_none: bool = True,
        profile: Profile = "current",
    ) -> Discovery:
        """Find the mapping authorities of an ARK (draft-kunze-ark appendix B), or of a bare NAAN (``ark:12345``).

        ``lifetime``: seconds for this discovery instead of the client's. ``chooser`` puts its choice first: a function,
        or a name (``"random"``, ``"reachable"``, ``"own"``, or of an installed package). ``on_step`` is called with
        each step of the trace; as it happens if only DNS is queried. ``raise_on_none=False``: an ARK without mapping
        authority gives an empty discovery. ``profile``: as for ``Ark.parse``.

        The discovery has its ``source`` (dns, memory, disk, natab), its ``age``, ``stale`` and ``reason``. Raises
        ArkSyntaxError; NoMappingAuthority if a source entitled to say so reports that there is none; DiscoveryFailed if
        no source answers (DiscoveryTimeout if nothing came back in time); ConfigError and TypeError for wrong options.

        >>> Client([server]).discover("ark:12345/x6np1wh8k").url()
        'https://ark.example.org/ark:12345/x6np1wh8k'
        """
        options = self._options(lifetime, chooser, on_step, raise_on_none, profile)
        if self._sources is not None:
            return self._sources.discover(ark, options)
        call = Call(ark, options, self.resolver.lifetime, self.resolver.clock)
        found = self.resolver.discover(call.ark, call.deadline, on_step)
        call.raise_for(found, self._require)
        return prefer(found, options.chooser)

    async def discover_async(
        self,
        ark: Ark | str | bytes,
        *,
        lifetime: float | None = None,
        chooser: Chooser | str | None = None,
        on_step: StepHook | None = None,
        raise_on_none: bool = True,
        profile: Profile = "current",
    ) -> Discovery:
        """``discover``, awaited: same options, same discovery, same errors.

        Cancelling it cancels its queries, unless other callers may wait for them. A chooser with a true attribute
        ``waits``, such as ``Reachable``, is called in a thread.
        """
        options = self._options(lifetime, chooser, on_step, raise_on_none, profile)
        if self._sources is not None:
            return await self._sources.discover_async(ark, options)
        call = Call(ark, options, self.resolver.lifetime, self.resolver.clock)
        from maptr.resolver.aio import prefer_async  # asyncio doubles the start time of a program

        found = await self.resolver.discover_async(call.ark, call.deadline, on_step)
        call.raise_for(found, self._require)
        return await prefer_async(found, options.chooser)

    def discover_many(
        self,
        arks: Iterable[Ark | str | bytes],
        *,
        lifetime: float | None = None,
        ordered: bool = True,
        profile: Profile = "current",
    ) -> Generator[Discovery, None, None]:
        """Find the mapping authorities of many ARKs: a discovery for each, with each name asked once.

        ``lifetime``: seconds for each ARK, from the first packet of its first question; time that your code spends
        between ARKs does not count. ``ordered=False``: discoveries come as soon as they are ready, not in the order of
        the ARKs. ``profile``: as for ``discover``.

        A discovery is empty if there is no candidate, and not ``complete`` if no source said so. One for an item that
        is not an ARK (or not text) has its ``error`` and ``position``, and does not end the stream. Memory use does not
        grow with the stream. A dnspython resolver gets one question at a time. Closing the generator ends it.

        Raises TypeError for a single ARK; while it runs, DiscoveryFailed for a server without address.

        >>> [found.url() for found in Client([server]).discover_many(["ark:12345/x1", "ark:12345/x2"])]
        ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
        """
        _refuse_one(arks)
        pairs = ((None, ark) for ark in arks)
        return _discoveries(self.discover_pairs(pairs, lifetime=lifetime, ordered=ordered, profile=profile))

    def discover_pairs(
        self,
        pairs: Iterable[tuple[Token, Ark | str | bytes]],
        *,
        lifetime: float | None = None,
        ordered: bool = True,
        profile: Profile = "current",
    ) -> Generator[tuple[Token, Discovery], None, None]:
        """``discover_many`` for pairs of a token, such as a line number, and an ARK; yields token and discovery."""
        self._check_open()
        seconds = self.resolver.lifetime if lifetime is None else checked(lifetime, "lifetime")
        items = ((token, as_item(ark, position, profile)) for position, (token, ark) in enumerate(pairs))
        found = (self._sources or self.resolver).discover_many(items, seconds, ordered=ordered)
        return _logged(found) if logs() else found

    def discover_many_async(
        self,
        arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes],
        *,
        lifetime: float | None = None,
        ordered: bool = True,
        profile: Profile = "current",
    ) -> AsyncGenerator[Discovery, None]:
        """``discover_many``, awaited. ``arks`` may be an async iterable.

        Closing it (``contextlib.aclosing``) closes every socket.
        """
        _refuse_one(arks)
        pairs = _with_none(arks)
        return _discoveries_async(self.discover_pairs_async(pairs, lifetime=lifetime, ordered=ordered, profile=profile))

    def discover_pairs_async(
        self,
        pairs: Iterable[tuple[Token, Ark | str | bytes]] | AsyncIterable[tuple[Token, Ark | str | bytes]],
        *,
        lifetime: float | None = None,
        ordered: bool = True,
        profile: Profile = "current",
    ) -> AsyncGenerator[tuple[Token, Discovery], None]:
        """``discover_pairs``, awaited. ``pairs`` may be an async iterable."""
        self._check_open()
        seconds = self.resolver.lifetime if lifetime is None else checked(lifetime, "lifetime")
        items = _items(pairs, profile)
        return _logged_async((self._sources or self.resolver).discover_many_async(items, seconds, ordered=ordered))

    def describe(
        self,
        ark: Ark | str | bytes,
        *,
        inflections: Iterable[str] = ("?info",),
        lifetime: float | None = None,
        chooser: Chooser | str | None = None,
        on_step: StepHook | None = None,
        profile: Profile = "current",
    ) -> Description:
        """Ask an ARK's chosen mapping authority to describe it, or the next ones if that cannot be reached.

        ``inflections`` are tried in turn until one is understood: ``?info``, and ``?`` and ``??`` for older
        authorities. ``lifetime``: seconds for the discovery, and again for the requests (default: the client's, and
        10). The other options are those of ``discover``. Raises its errors, and NmaError if no authority could be
        asked.
        """
        ask = self._describer(inflections, lifetime, chooser)
        return ask(self.discover(ark, lifetime=lifetime, on_step=on_step, profile=profile))

    async def describe_async(
        self,
        ark: Ark | str | bytes,
        *,
        inflections: Iterable[str] = ("?info",),
        lifetime: float | None = None,
        chooser: Chooser | str | None = None,
        on_step: StepHook | None = None,
        profile: Profile = "current",
    ) -> Description:
        """``describe``, awaited: same options, same errors.

        The requests are made in a thread, which continues for at most ``lifetime`` if it is cancelled.
        """
        import asyncio  # it doubles the start time of a program

        ask = self._describer(inflections, lifetime, chooser)
        found = await self.discover_async(ark, lifetime=lifetime, on_step=on_step, profile=profile)
        return await asyncio.to_thread(ask, found)

    def _describer(
        self, inflections: Iterable[str], lifetime: float | None, chooser: Chooser | str | None
    ) -> Callable[[Discovery], Description]:
        """Return the function that asks a discovery's authorities."""
        from maptr.nma.describe import SECONDS, describe  # a discovery does not need HTTP

        return partial(
            describe,
            chooser=self._chooser(chooser),
            inflections=inflections,
            seconds=SECONDS if lifetime is None else lifetime,
            allow_private=self.resolver.settings.allow_private,
        )

    def drift(self, naan: str) -> list[Drift]:
        """Compare the table with DNS for a NAAN and its shoulders. DNS is queried only for answers that are not cached.

        The verdicts are added to the history, which distinguishes a stale side from one that differs.
        """
        (verdicts,) = self.drift_many([naan])
        return verdicts

    def drift_many(self, naans: Iterable[str] | None = None) -> Iterator[list[Drift]]:
        """``drift`` for many NAANs, in order, with hundreds of queries in flight.

        None: every NAAN of the table and of the history, so that records removed from the table are also compared.
        Raises ArkSyntaxError for text that is not a NAAN, and DiscoveryFailed if a server's name has no address.
        """
        if isinstance(naans, str):
            raise TypeError("expected several NAANs, got one: use drift(naan), or a list: [naan]")
        from maptr.reconcile.drift import VerdictLog, verdicts  # a discovery does not need it

        log = None if self.history is None else VerdictLog(self.history)
        return verdicts(self.sources, log, None if naans is None else map(_checked_naan, naans))

    def drift_history(self) -> dict[str, list[PastVerdict]]:
        """Return the verdicts of earlier comparisons by record, the latest first."""
        self._check_open()
        from maptr.reconcile.drift import VerdictLog  # as above

        return {} if self.history is None else VerdictLog(self.history).changes(self.sources.view)

    def pull(self, *sources: str | os.PathLike[str], force: bool = False) -> Pull:
        """Replace the file of the table by the registry of the first source that has one, and return what changed.

        Sources are URLs or files, by default the public registry. The first pull is compared with the table in use.
        Raises UnsafePlan if too many records would be lost, or if the data are older, unless ``force``; PullFailed if
        no source has a registry; OSError; ConfigError if the table is not a file.
        """
        from pathlib import Path

        from maptr.registry.followed_file import WatchedTable, table_source  # a discovery does not need these
        from maptr.registry.found import FoundTable
        from maptr.registry.pull import OFFICIAL, PullSources, pull_table

        table = self.table
        if not isinstance(table, WatchedTable | FoundTable):
            raise ConfigError("the client has no table in a file", key="table")
        in_use = table if isinstance(table, FoundTable) else None
        path = table.path if isinstance(table, WatchedTable) else Path(paths.table_file(os.environ))
        paths.make_parent(str(path))
        places = tuple(os.fspath(source) for source in sources) or (OFFICIAL,)
        pulled = pull_table(path, PullSources(places), force=force, in_use=in_use).checked()
        scheme = self.resolver.settings.scheme
        is_found = isinstance(table, FoundTable)  # the rule for older data holds then, as at the next start
        found = FoundTable(clock=time.monotonic, scheme=scheme) if is_found else None
        self.sources.follow(found or table_source(path, time.monotonic, scheme))
        return pulled

    def forget(self, naan: str | None = None) -> None:
        """Drop DNS's cached answer for a NAAN, for example because its record has changed; None: all answers.

        DNS is then asked again, even where it has just failed. Raises ArkSyntaxError for text that is not a NAAN.
        """
        self._check_open()
        if self.resolver.failed is not None:
            self.resolver.failed.clear()
        if self._made is not None:
            self._made.forget(None if naan is None else _checked_naan(naan))

    def close(self) -> None:
        """Close the files and shared connections. Lookups in flight end by themselves; others raise RuntimeError."""
        self._closed = True
        self.resolver.close()
        for disk in (self._disk, self.history):
            if disk is not None:
                disk.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def aclose(self) -> None:
        """``close``, awaited; it also cancels the lookups in flight in the current event loop."""
        if self._made is None or not self._made.is_awaited:  # perhaps because asyncio does not run
            self.close()
            return
        self._closed = True
        await self._made.stop()
        self.resolver.close()
        import asyncio  # late, because it doubles the start time of a program that does not await

        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        if self._sources is None:
            return f"<Client of {self.resolver}>"
        engine = self._sources.engine
        return f"<Client of {self.resolver}, {engine.policy.name}, {engine.table}, {self._disk or 'no disk'}>"


def discover(
    ark: Ark | str | bytes,
    *,
    lifetime: float | None = None,
    chooser: Chooser | str | None = None,
    on_step: StepHook | None = None,
    raise_on_none: bool = True,
    profile: Profile = "current",
    **client: Unpack[ClientOptions],
) -> Discovery:
    """Find the mapping authorities of an ARK: ``Client.discover``, which explains the options and has the errors.

    ``client``: the options of ``Client``. Each call makes one. For many calls make one yourself: it remembers which
    servers do not answer.

    >>> discover("ark:12345/x6np1wh8k", nameservers=[server]).url()
    'https://ark.example.org/ark:12345/x6np1wh8k'
    """
    with Client(**client) as made:
        return made.discover(
            ark, lifetime=lifetime, chooser=chooser, on_step=on_step, raise_on_none=raise_on_none, profile=profile
        )


async def discover_async(
    ark: Ark | str | bytes,
    *,
    lifetime: float | None = None,
    chooser: Chooser | str | None = None,
    on_step: StepHook | None = None,
    raise_on_none: bool = True,
    profile: Profile = "current",
    **client: Unpack[ClientOptions],
) -> Discovery:
    """``discover``, awaited: same options, same errors.

    >>> asyncio.run(discover_async("ark:12345/x6np1wh8k", nameservers=[server])).url()
    'https://ark.example.org/ark:12345/x6np1wh8k'
    """
    async with Client(**client) as made:
        return await made.discover_async(
            ark, lifetime=lifetime, chooser=chooser, on_step=on_step, raise_on_none=raise_on_none, profile=profile
        )


def discover_many(
    arks: Iterable[Ark | str | bytes],
    *,
    lifetime: float | None = None,
    ordered: bool = True,
    profile: Profile = "current",
    **client: Unpack[ClientOptions],
) -> Generator[Discovery, None, None]:
    """Find the mapping authorities of many ARKs: ``Client.discover_many``, which explains the options and has the
    errors.

    ``client``: the options of ``Client``. Its files are closed at the end of the stream.

    >>> [found.url() for found in discover_many(["ark:12345/x1", "ark:12345/x2"], nameservers=[server])]
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    made = Client(**client)
    return _discoveries_of(made, made.discover_many(arks, lifetime=lifetime, ordered=ordered, profile=profile))


def discover_many_async(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes],
    *,
    lifetime: float | None = None,
    ordered: bool = True,
    profile: Profile = "current",
    **client: Unpack[ClientOptions],
) -> AsyncGenerator[Discovery, None]:
    """``discover_many``, awaited: same options, same errors. ``arks`` may be an async iterable.

    >>> async def urls(arks):
    ...     return [found.url() async for found in discover_many_async(arks, nameservers=[server])]
    >>> asyncio.run(urls(["ark:12345/x1", "ark:12345/x2"]))
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    made = Client(**client)
    stream = made.discover_many_async(arks, lifetime=lifetime, ordered=ordered, profile=profile)
    return _discoveries_of_async(made, stream)


def _refuse_one(arks: object) -> None:
    """Raise TypeError for text, which type checkers accept as an iterable of characters."""
    if isinstance(arks, Ark | str | bytes):
        raise TypeError("expected several ARKs, got one: use discover(ark), or a list: [ark]")


def _checked_naan(naan: str) -> str:
    if not isinstance(naan, str):
        raise TypeError(f"a NAAN is a str, not {type(naan).__name__}")
    return check_naan(naan.lower())


def _logged(pairs: Generator[tuple[Token, Discovery], None, None]) -> Generator[tuple[Token, Discovery], None, None]:
    with closing(pairs):
        for token, found in pairs:
            log_discovery(found)
            yield token, found


def _discoveries(pairs: Generator[tuple[None, Discovery], None, None]) -> Generator[Discovery, None, None]:
    with closing(pairs):
        for _, found in pairs:
            yield found


def _discoveries_of(client: Client, stream: Generator[Discovery, None, None]) -> Generator[Discovery, None, None]:
    with client, closing(stream):
        yield from stream


async def _discoveries_of_async(
    client: Client, stream: AsyncGenerator[Discovery, None]
) -> AsyncGenerator[Discovery, None]:
    from contextlib import aclosing  # imported with asyncio

    async with client, aclosing(stream):
        async for found in stream:
            yield found


async def _logged_async(
    pairs: AsyncGenerator[tuple[Token, Discovery], None],
) -> AsyncGenerator[tuple[Token, Discovery], None]:
    from contextlib import aclosing  # imported with asyncio

    async with aclosing(pairs):
        async for token, found in pairs:
            log_discovery(found)
            yield token, found


async def _discoveries_async(pairs: AsyncGenerator[tuple[None, Discovery], None]) -> AsyncGenerator[Discovery, None]:
    from contextlib import aclosing  # imported with asyncio

    async with aclosing(pairs):
        async for _, found in pairs:
            yield found


async def _each(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def _with_none(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes],
) -> AsyncIterator[tuple[None, Ark | str | bytes]]:
    async for ark in _each(arks):
        yield None, ark


async def _items(
    pairs: Iterable[tuple[Token, Ark | str | bytes]] | AsyncIterable[tuple[Token, Ark | str | bytes]], profile: Profile
) -> AsyncIterator[tuple[Token, Ark | Discovery]]:
    position = 0
    async for token, ark in _each(pairs):
        yield token, as_item(ark, position, profile)
        position += 1


def _disk(path: str | os.PathLike[str] | Disk | None) -> Disk | None:
    if path is None:
        return None
    from maptr.cache.disk import Disk  # a client without a file starts without SQLite

    if isinstance(path, Disk):
        return path
    return Disk(path, wall=time.time, own=os.fspath(path) == paths.cache_file(os.environ))
