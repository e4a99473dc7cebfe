"""dnspython's resolvers for the walk: their answers and errors, read as answers to the walk's questions.

A resolver's cache, TLS, HTTPS and choice of servers are its own. Imported only if a dnspython resolver is used.
"""

from __future__ import annotations

import asyncio
import copy
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import dns.asyncquery
import dns.asyncresolver
import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.nameserver
import dns.query
import dns.rcode
import dns.rdatatype
import dns.resolver

from maptr import url
from maptr.discovery import NoServer, Outcome
from maptr.errors import MissingExtra, reason_of
from maptr.protocol import names
from maptr.protocol.extended_error import ExtendedError
from maptr.protocol.numbers import UDP_PAYLOAD
from maptr.resolver.call import TimedWalk
from maptr.resolver.connections import refused_certificate
from maptr.resolver.exchange import MAX_ALIASES, MAX_EXTENDED, NOTE_LENGTH
from maptr.resolver.message import EDE_BOGUS, SentQuery, read_response
from maptr.resolver.servers import HTTPS, TCP, TLS, find_servers
from maptr.walk import Answer, Question
from maptr.web.proxy import Proxy, proxy_for

if TYPE_CHECKING:
    from maptr.resolver.validation.chain import Resolved
    from maptr.resolver.validation.validator import Validator

TRUNCATED = "the response is truncated over TCP"  # dnspython reads it as if it were complete

Resolving = TypeVar("Resolving", dns.resolver.Resolver, dns.asyncresolver.Resolver)


class DnspythonLookups:
    """The lookups of one walk at a dnspython ``resolver``. A failure is also an answer.

    Either kind of resolver serves both: a copy of the other kind has its servers and settings.
    """

    def __init__(
        self,
        resolver: dns.resolver.BaseResolver,
        run: TimedWalk,
        validator: Validator | None,
        *,
        trust_ad: bool,
        side_by_side: bool,
    ) -> None:
        self._resolver = resolver
        self._side_by_side = side_by_side
        self._start = partial(_Lookup, run=run, validator=validator, trust_ad=trust_ad)
        self._with_bits = partial(_with_bits, trust_ad=trust_ad, validate=validator is not None)

    async def ask(self, questions: list[Question]) -> list[Answer]:
        """Return the answers to questions: asked in parallel in an event loop, else one after the other."""
        if not self._side_by_side:
            resolver = self._with_bits(of_kind(self._resolver, dns.resolver.Resolver))
            return [await _ask(partial(_resolve, resolver), self._start(question)) for question in questions]
        waiting = self._with_bits(of_kind(self._resolver, dns.asyncresolver.Resolver))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_ask(waiting.resolve, self._start(question))) for question in questions]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def close(self) -> None:
        """Do nothing: the resolver belongs to the client."""


async def _resolve(resolver: dns.resolver.Resolver, **arguments: Any) -> dns.resolver.Answer:
    """``resolve`` in a coroutine that has no event loop."""
    return resolver.resolve(**arguments)


async def _ask(resolve: Callable[..., Awaitable[Any]], lookup: _Lookup) -> Answer:
    while lookup.answer is None:
        try:
            found: Any = await resolve(**lookup.arguments())
        except Exception as error:
            found = error
        lookup.tell(found)
    return lookup.answer


class Alias(NamedTuple):
    """The target of CNAMEs that the resolver left to its client."""

    target: dns.name.Name
    ttl: int | None
    is_authentic: bool


class _Lookup:
    """One question of a walk to a dnspython resolver, without I/O.

    Call ``resolve`` with ``arguments()`` and ``tell()`` its result or exception, until there is an ``answer``.
    """

    def __init__(self, question: Question, run: TimedWalk, validator: Validator | None, *, trust_ad: bool) -> None:
        self._trust_ad = trust_ad
        self.answer: Answer | None = None
        self._name = dns.name.Name((*question.name, b""))  # absolute, so that no search list applies
        self._asked = question.name
        self._aliases: list[Alias] = []
        self._rdtype = dns.rdatatype.RdataType(question.rdtype)
        self._deadline = run.deadline
        self._started = run.deadline.clock()
        self._validation = None if validator is None else validator.start(question.name, question.rdtype)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the next ``resolve``. Raises dns.exception.Timeout if the walk's time is over."""
        left = self._deadline.left()
        if left <= 0:
            raise dns.exception.Timeout(timeout=0)  # type: ignore[no-untyped-call]
        name, rdtype = self._validation.lookup if self._validation else (self._name, self._rdtype)
        return {
            "qname": name,
            "rdtype": rdtype,
            "raise_on_no_answer": False,
            "lifetime": left,
            "search": False,
        }

    def tell(self, found: dns.resolver.Answer | Exception) -> None:
        """Re-raise an exception that is not about DNS."""
        elapsed = self._deadline.clock() - self._started
        if self._validation is not None:
            self._validation.tell(_resolved(found, elapsed))
            self.answer = self._validation.answer and self._validation.answer.after(elapsed)
        elif isinstance(found, Exception):
            self.answer = self._after_aliases(read_error(found, elapsed, trust_ad=self._trust_ad))
        else:
            answer = read_answer(found, elapsed, trust_ad=self._trust_ad)
            target = _alias_of(found.response) if answer.outcome is Outcome.REFERRAL else None
            if target is not None and len(self._aliases) < MAX_ALIASES:
                is_authentic = bool(found.response.flags & dns.flags.AD)
                self._aliases.append(Alias(target, answer.ttl, is_authentic))
                self._name = target
            else:
                self.answer = self._after_aliases(answer)

    def _after_aliases(self, answer: Answer) -> Answer:
        """Return the answer at the end of the aliases as the answer for the question's name."""
        if not self._aliases:
            return answer
        note = "; ".join(filter(None, (f"through CNAME {self._aliases[-1].target}", answer.note)))
        ttl = answer.ttl
        if ttl is not None:
            ttl = min(ttl, *(alias.ttl for alias in self._aliases if alias.ttl is not None))
        security = answer.security
        if security == "secure" and not all(alias.is_authentic for alias in self._aliases):
            security = "insecure"
        return answer._replace(ttl=ttl, note=note, security=security, zone=self._asked)


def read_answer(answer: dns.resolver.Answer, elapsed: float, *, trust_ad: bool = False) -> Answer:
    """Return a resolver's answer as the walk's. A referral is a failure: its server does not serve the name."""
    return _read(answer.response, elapsed, trust_ad)._replace(server=_server(answer))


def _read(message: dns.message.Message, elapsed: float, trust_ad: bool) -> Answer:
    """Return what a message says, read like those of plain servers."""
    if message.flags & dns.flags.TC:
        return Answer(Outcome.MALFORMED, note=TRUNCATED, elapsed=elapsed)
    try:
        (asked,) = message.question
        name = asked.name.labels[:-1]
        query = SentQuery(name, b"", names.to_wire(name) + bytes(4), asked.rdtype)
        response = read_response(query, message.wire or message.to_wire())
    except ValueError as error:
        return Answer(Outcome.MALFORMED, note=f"the response cannot be read: {error}", elapsed=elapsed)
    note, security = response.note, "indeterminate"
    if response.outcome is Outcome.REFERRAL:
        note = f"{note}, without recursion" if note else "asked without recursion"
    elif trust_ad:
        security = "secure" if response.authentic else "insecure"
    return Answer(response.outcome, response.records, response.ttl, note, "", elapsed, security, zone=response.zone)


def read_error(error: Exception, elapsed: float, *, trust_ad: bool = False) -> Answer:
    """Return a resolver's exception as the walk's answer. Re-raises it if it is not about DNS."""
    if isinstance(error, dns.resolver.NXDOMAIN):
        response = _nxdomain(error)
        return Answer(Outcome.NXDOMAIN, elapsed=elapsed) if response is None else _read(response, elapsed, trust_ad)
    if isinstance(error, dns.resolver.YXDOMAIN):
        return Answer(Outcome.NXDOMAIN, note="a DNAME makes the name too long", elapsed=elapsed)
    if isinstance(error, dns.exception.Timeout):
        return Answer(Outcome.TIMEOUT, note=_failures(error), elapsed=elapsed)
    if isinstance(error, dns.resolver.NoNameservers):
        failures = error.kwargs.get("errors") or []
        outcome = _outcome(failures[-1][3], failures[-1][4]) if failures else Outcome.UNREACHABLE
        bogus = trust_ad and any(_is_bogus(response) for *_, response in failures)
        security = "bogus" if bogus else "indeterminate"
        extended = tuple(dict.fromkeys(each for *_, response in failures for each in _extended(response)))
        note = _failures(error)
        return Answer(outcome, note=note, elapsed=elapsed, security=security, extended=extended[:MAX_EXTENDED])
    if isinstance(error, dns.exception.DNSException | OSError):
        return Answer(Outcome.UNREACHABLE, note=str(error), elapsed=elapsed)
    raise error


def _alias_of(message: dns.message.Message) -> dns.name.Name | None:
    """Return where the CNAMEs of a response lead; None without them."""
    if not isinstance(message, dns.message.QueryMessage):
        return None
    try:
        found = message.canonical_name()
    except dns.exception.DNSException:
        return None
    return None if found == message.question[0].name else found


def _server(answer: dns.resolver.Answer) -> str:
    if not answer.nameserver or "://" in answer.nameserver:
        return answer.nameserver or ""
    return f"{answer.nameserver}#{answer.port}"


def _extended(response: object) -> list[ExtendedError]:
    """Return the extended errors of a response (RFC 8914); none for None, where there was no response."""
    if not isinstance(response, dns.message.Message):
        return []
    found = [option for option in response.options if isinstance(option, dns.edns.EDEOption)]
    return [ExtendedError.read(option.to_wire() or b"") for option in found][:MAX_EXTENDED]


def _said(response: object) -> list[str]:
    return [str(each) for each in _extended(response)]


def _is_bogus(response: object) -> bool:
    """Return whether the resolver says that validation failed (RFC 8914)."""
    return any(each.code in EDE_BOGUS for each in _extended(response))


def _outcome(error: object, response: object) -> Outcome:
    if isinstance(response, dns.message.Message) and not isinstance(error, Exception):
        if response.rcode() == dns.rcode.REFUSED:
            return Outcome.REFUSED
        return Outcome.SERVFAIL if response.rcode() != dns.rcode.NOERROR else Outcome.MALFORMED
    return Outcome.UNREACHABLE if isinstance(error, OSError) else Outcome.MALFORMED


def _failures(error: dns.exception.DNSException) -> str:
    failures = [
        ", ".join([f"{server}: {reason_of(what) if isinstance(what, Exception) else what}", *_said(response)])
        for server, _, _, what, response in (error.kwargs or {}).get("errors") or []
    ]
    return "; ".join(dict.fromkeys(failures))[:NOTE_LENGTH]


def make_resolver(nameservers: Iterable[str], *, lifetime: float | None = None) -> dns.resolver.Resolver:
    """Return a resolver for servers, some of them ``https://HOST[:PORT]/PATH`` or ``tls://HOST[#PORT]``.

    ``check_server`` has accepted each. ``lifetime`` bounds the lookup of each name, in seconds. Certificates are
    verified for the host as written. Raises MissingExtra, and DiscoveryFailed for a name without address.
    """
    made = dns.resolver.Resolver(configure=False)
    made.nameservers = [server for text in nameservers for server in _nameservers(text, lifetime)]
    made.use_edns(0, 0, UDP_PAYLOAD)
    return made


class _HttpsNameserver(dns.nameserver.DoHNameserver):
    """A server queried over HTTPS, whose failure is final: dnspython would try again until the time is over."""

    def query(self, *given: Any, **options: Any) -> dns.message.Message:
        with _http_errors():
            return super().query(*given, **options)

    async def async_query(self, *given: Any, **options: Any) -> dns.message.Message:
        with _http_errors():
            return await super().async_query(*given, **options)


class _ProxiedNameserver(_HttpsNameserver):
    """One that is queried through a proxy, which looks up its name. dnspython uses none."""

    def __init__(self, text: str, proxy: Proxy) -> None:
        super().__init__(text)
        self._proxy = proxy

    def query(
        self, request: dns.message.QueryMessage, timeout: float, *given: Any, **options: Any
    ) -> dns.message.Message:
        import httpx2  # as below

        with _http_errors(self._proxy), httpx2.Client(http2=True, proxy=self._for_httpx()) as session:
            return dns.query.https(request, self.url, timeout, session=session)

    async def async_query(
        self, request: dns.message.QueryMessage, timeout: float, *given: Any, **options: Any
    ) -> dns.message.Message:
        import httpx2  # as below

        with _http_errors(self._proxy):
            async with httpx2.AsyncClient(http2=True, proxy=self._for_httpx(), timeout=timeout) as session:
                return await dns.asyncquery.https(request, self.url, timeout, client=session)

    def _for_httpx(self) -> Any:
        import httpx2  # as below

        return httpx2.Proxy(str(self._proxy), headers=self._proxy.headers)


@contextmanager
def _http_errors(proxy: Proxy | None = None) -> Iterator[None]:
    """Raise HTTP errors as errors that dnspython knows: of a socket, a time-out, or a response."""
    import httpx2  # of the extra that dnspython needs for DNS over HTTPS

    try:
        yield
    except httpx2.TimeoutException:
        raise dns.exception.Timeout from None
    except httpx2.TransportError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
            cause = cause.__context__  # below the errors of httpx2 and httpcore2
        if cause is not None:
            raise refused_certificate(cause) from None
        by = "" if proxy is None else f"by the proxy {proxy}: "
        raise OSError(f"{by}{error}" if str(error) else f"{by}no connection") from None
    except ValueError as error:  # the HTTP status; the response's body follows
        reason = str(error).partition("\n")[0]
        raise dns.exception.FormError(reason) from None  # type: ignore[no-untyped-call]


class _TcpNameserver(dns.nameserver.Do53Nameserver):
    def is_always_max_size(self) -> bool:
        """Return True, so that dnspython uses TCP."""
        return True


def need_https() -> None:
    """Raise MissingExtra unless servers can be queried over HTTPS."""
    if not dns.query.have_doh:  # which packages this needs depends on dnspython's version
        raise MissingExtra("DNS over HTTPS needs more packages: pip install 'maptr[doh]'", key="nameservers")


def _nameservers(text: str, lifetime: float | None) -> list[dns.nameserver.Nameserver]:
    host = ""
    if text.startswith(HTTPS):
        where = url.parse(text)
        host = where.host.text
        try:
            proxy = proxy_for(where)
        except ValueError as error:
            raise NoServer(f"{text}: {error}") from None
        if proxy is not None:
            return [_ProxiedNameserver(text, proxy)]
    found = find_servers(host or text, seconds=lifetime)
    if text.startswith(TLS):
        return [dns.nameserver.DoTNameserver(server.address, server.port, hostname=server.tls) for server in found]
    if not host:
        kind = _TcpNameserver if text.startswith(TCP) else dns.nameserver.Do53Nameserver
        return [kind(server.address, server.port) for server in found]
    # Addresses from the system's resolver, as for every server given by name: dnspython would ask DNS only.
    bootstraps = [None] if found[0].address == host else [server.address for server in found]
    return [_HttpsNameserver(text, bootstrap_address=address) for address in bootstraps]


def _with_bits(resolver: Resolving, trust_ad: bool, *, validate: bool) -> Resolving:
    """Return the resolver, or a copy that asks for the AD bit (RFC 6840 5.7), or one for validation.

    The latter sets DO and CD, and has no cache, because cached answers lack signatures.
    """
    if not (trust_ad or validate):
        return resolver
    changed = copy.copy(resolver)
    changed.flags = dns.flags.RD if resolver.flags is None else resolver.flags
    changed.flags |= dns.flags.CD if validate else dns.flags.AD
    if validate:
        changed.use_edns(max(resolver.edns, 0), resolver.ednsflags | dns.flags.DO, resolver.payload or UDP_PAYLOAD)
        changed.cache = None
    return changed


def _resolved(found: dns.resolver.Answer | Exception, elapsed: float) -> Resolved:
    """Return a resolver's answer or exception for validation. Re-raises an exception that is not about DNS."""
    from maptr.resolver.validation.chain import Resolved  # needs the optional package cryptography

    if isinstance(found, Exception):
        answer = read_error(found, elapsed)
        response = _nxdomain(found) if answer.outcome is Outcome.NXDOMAIN else None
        return Resolved(answer.outcome, response, answer.note, elapsed=elapsed)
    answer = read_answer(found, elapsed)
    if answer.outcome is Outcome.MALFORMED or (answer.outcome is Outcome.REFERRAL and not found.response.answer):
        return Resolved(answer.outcome, None, answer.note, answer.server, elapsed)
    return Resolved(answer.outcome, found.response, "", answer.server, elapsed)


def _nxdomain(error: Exception) -> dns.message.Message | None:
    if not isinstance(error, dns.resolver.NXDOMAIN):
        return None
    return next(iter(error.kwargs.get("responses", {}).values()), None)


def of_kind(resolver: dns.resolver.BaseResolver, kind: type[Resolving]) -> Resolving:
    """Return the resolver, or one of this kind, synchronous or async, with the same servers and settings."""
    if isinstance(resolver, kind):
        return resolver
    converted = kind(configure=False)
    vars(converted).update(vars(resolver))
    return converted
