"""One call of discover(): what its sync and async drivers share.

The walk, its deadline on a monotonic clock, and dnspython's answers and errors read as the walk's. A driver
only has to wait.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import dns.exception
import dns.flags
import dns.inet
import dns.message
import dns.name
import dns.nameserver
import dns.rcode
import dns.rdatatype
import dns.resolver

from maptr import names
from maptr.ark import Ark
from maptr.choose import Chooser
from maptr.discovery import Discovery, Outcome, Step
from maptr.errors import ConfigError, DiscoveryFailed
from maptr.naptr import Naptr
from maptr.walk import Answer, Question, Settings, Walk

LIFETIME = 5.0  # seconds for a whole walk; dnspython's default for one resolution
EDNS_PAYLOAD = 1232  # octets; DNS flag day 2020: no path fragments it

StepHook = Callable[[Step], None]
Clock = Callable[[], float]


class Call:
    """A walk under way, with its deadline and its hook."""

    def __init__(
        self,
        ark: Ark | str | bytes,
        *,
        origin: str | dns.name.Name,
        lifetime: float | None,
        settings: Settings | None,
        on_step: StepHook | None,
        clock: Clock = time.monotonic,
    ) -> None:
        parsed = ark if isinstance(ark, Ark) else Ark.parse(ark)
        labels = origin_labels(origin)
        try:
            self.walk = Walk(parsed, dataclasses.replace(settings or Settings(), origin=labels))
        except ValueError as error:
            raise ConfigError(f"{parsed.naan}.{origin} is no domain name: {error}", key="origin") from None
        self.clock = clock
        lifetime = LIFETIME if lifetime is None else lifetime
        if not lifetime >= 0:  # NaN is neither, and would make a deadline that never comes
            raise ConfigError(f"{lifetime} is no time in seconds", key="lifetime")
        self._deadline = clock() + lifetime
        self._on_step = on_step
        self._shown = 0

    def time_left(self) -> float:
        """Seconds until the deadline; dns.exception.Timeout where there are none, as of a resolver."""
        left = self._deadline - self.clock()
        if left <= 0:
            raise dns.exception.Timeout(timeout=0)  # type: ignore[no-untyped-call]
        return left

    def tell(self, question: Question, answer: Answer) -> None:
        self.walk.tell(question, answer)
        steps = self.walk.steps
        if self._on_step is not None:
            for step in steps[self._shown :]:
                self._on_step(step)
        self._shown = len(steps)

    def finish(self, *, raise_on_none: bool, chooser: Chooser | None, now: float | None = None) -> Discovery:
        """The discovery, the chooser's choice first. Raises as ``discover`` says."""
        discovery = self.walk.result().expiring(time.time() if now is None else now)
        if raise_on_none or not discovery.complete:
            discovery.raise_for_none()
        return discovery.preferring(chooser) if chooser is not None and discovery.candidates else discovery


def origin_labels(origin: str | dns.name.Name) -> names.Labels:
    """An origin as the walk wants it; ConfigError for a text that is no domain name."""
    try:
        if isinstance(origin, dns.name.Name):
            return names.check(tuple(label for label in origin.labels if label))
        return names.parse(origin)
    except ValueError as error:
        raise ConfigError(f"{origin} is no domain name: {error}", key="origin") from None


def qname(question: Question) -> dns.name.Name:
    """The question's name, absolute, so that no search list ever applies."""
    return dns.name.Name((*question.name, b""))


def read_answer(answer: dns.resolver.Answer, elapsed: float) -> Answer:
    """A resolver's answer as the walk's. A referral is no answer: its server does not serve the name."""
    server = f"{answer.nameserver}#{answer.port}" if answer.nameserver else ""
    response = answer.response
    canonical = answer.canonical_name
    note = f"through CNAME {canonical}" if canonical != answer.qname else ""
    if answer.rrset is None:
        if _is_referral(response, aliased=bool(note)):
            why = f"{note}, without recursion" if note else "asked without recursion"
            return Answer(Outcome.REFERRAL, note=why, server=server, elapsed=elapsed)
        return Answer(Outcome.NODATA, ttl=_negative_ttl(response), note=note, server=server, elapsed=elapsed)
    records = [
        Naptr(rdata.order, rdata.preference, rdata.flags, rdata.service, rdata.regexp, rdata.replacement.labels[:-1])
        for rdata in answer.rrset
    ]
    ttl = answer.chaining_result.minimum_ttl
    return Answer(Outcome.ANSWER, records, ttl, note=note, server=server, elapsed=elapsed)


def read_error(error: Exception, elapsed: float) -> Answer:
    """What a resolver raised, as the walk's answer; what is no matter of DNS is raised again."""
    if isinstance(error, dns.resolver.NXDOMAIN):
        response = next(iter(error.kwargs.get("responses", {}).values()), None)
        ttl = _negative_ttl(response) if response is not None else None
        return Answer(Outcome.NXDOMAIN, ttl=ttl, elapsed=elapsed)
    if isinstance(error, dns.resolver.YXDOMAIN):
        return Answer(Outcome.NXDOMAIN, note="a DNAME makes the name too long", elapsed=elapsed)
    if isinstance(error, dns.exception.Timeout):
        return Answer(Outcome.TIMEOUT, note=_failures(error), elapsed=elapsed)
    if isinstance(error, dns.resolver.NoNameservers):
        failures = error.kwargs.get("errors") or []
        outcome = _outcome(failures[-1][3], failures[-1][4]) if failures else Outcome.UNREACHABLE
        return Answer(outcome, note=_failures(error), elapsed=elapsed)
    if isinstance(error, dns.exception.DNSException | OSError):
        return Answer(Outcome.UNREACHABLE, note=str(error), elapsed=elapsed)
    raise error


def _outcome(error: object, response: object) -> Outcome:
    """What the last server that was asked did."""
    if isinstance(response, dns.message.Message) and not isinstance(error, Exception):
        if response.rcode() == dns.rcode.REFUSED:
            return Outcome.REFUSED
        return Outcome.SERVFAIL if response.rcode() != dns.rcode.NOERROR else Outcome.MALFORMED
    return Outcome.UNREACHABLE if isinstance(error, OSError) else Outcome.MALFORMED


def _failures(error: dns.exception.DNSException) -> str:
    told = [f"{server}: {what}" for server, _, _, what, _ in (error.kwargs or {}).get("errors") or []]
    return "; ".join(dict.fromkeys(told))[:500]


def _is_referral(response: dns.message.Message, *, aliased: bool) -> bool:
    """True where a server says that others know: by NS at a cut, or by a CNAME that leads out of its zones."""
    kinds = {rrset.rdtype for rrset in response.authority}
    if response.flags & dns.flags.RA or dns.rdatatype.SOA in kinds:
        return False
    return aliased or (dns.rdatatype.NS in kinds and not response.flags & dns.flags.AA)


def _negative_ttl(response: dns.message.Message) -> int | None:
    """Seconds that a negative answer may be kept (RFC 2308 section 5); None where it has no SOA."""
    for rrset in response.authority:
        if rrset.rdtype == dns.rdatatype.SOA:
            return min(int(rrset.ttl), int(rrset[0].minimum))
    return None


def default_resolver() -> dns.resolver.Resolver:
    """The system's resolver; DiscoveryFailed where the system has none configured."""
    try:
        return dns.resolver.get_default_resolver()
    except dns.resolver.NoResolverConfiguration as error:
        raise DiscoveryFailed(f"no resolver is configured on this system: {error}") from None


def resolver_at(where: str, port: int = 53) -> dns.resolver.Resolver:
    """A resolver that asks one server, by address or name; DiscoveryFailed for a name without address."""
    try:
        if dns.inet.is_address(where):
            resolver = dns.resolver.Resolver(configure=False)
            resolver.nameservers = [dns.nameserver.Do53Nameserver(where, port)]
        else:
            resolver = dns.resolver.make_resolver_at(where, port)
    except (dns.exception.DNSException, OSError) as error:
        raise DiscoveryFailed(f"no address for the server {where}: {error}") from None
    resolver.use_edns(0, 0, EDNS_PAYLOAD)
    return resolver
