"""dnspython's resolvers as answerers of the walk's questions: their answers and errors read as the walk's.

Whatever a resolver does (caching, TLS, HTTPS, search of servers) is its own. Imported only where one is used.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

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
from maptr.client.call import Origins
from maptr.client.message import EDE_BOGUS
from maptr.client.stub import find_servers
from maptr.discovery import DiscoveryFailed, Outcome
from maptr.errors import ConfigError, MissingExtra
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.protocol.numbers import UDP_PAYLOAD
from maptr.walk import Answer, Question

if TYPE_CHECKING:
    from maptr.client.validation.chain import Heard

DOT_PORT = 853  # RFC 7858 3.1
TRUNCATED = "the reply is truncated over TCP"  # dnspython takes what is there for all there is

Resolving = TypeVar("Resolving", dns.resolver.Resolver, dns.asyncresolver.Resolver)


_ORIGINS: WeakKeyDictionary[dns.resolver.BaseResolver, Origins] = WeakKeyDictionary()


def origins_of(resolver: dns.resolver.BaseResolver) -> Origins:
    """What this resolver said lately of origins, to walks one after the other and side by side."""
    return _ORIGINS.setdefault(resolver, Origins())


def qname(question: Question) -> dns.name.Name:
    """The question's name, absolute, so that no search list ever applies."""
    return dns.name.Name((*question.name, b""))


def rdtype(question: Question) -> dns.rdatatype.RdataType:
    """The type that is asked for."""
    return dns.rdatatype.RdataType(question.rdtype)


def read_answer(answer: dns.resolver.Answer, elapsed: float, *, trust_ad: bool = False) -> Answer:
    """A resolver's answer as the walk's. A referral is no answer: its server does not serve the name."""
    server = _server(answer)
    response = answer.response
    if response.flags & dns.flags.TC:
        return Answer(Outcome.MALFORMED, note=TRUNCATED, server=server, elapsed=elapsed)
    security = _security(response, trust_ad)
    canonical = answer.canonical_name
    note = f"through CNAME {names.to_text(canonical.labels[:-1])}" if canonical != answer.qname else ""
    if answer.rrset is None:
        if _is_referral(response, aliased=bool(note)):
            why = f"{note}, without recursion" if note else "asked without recursion"
            return Answer(Outcome.REFERRAL, note=why, server=server, elapsed=elapsed)
        return Answer(Outcome.NODATA, (), _negative_ttl(response), note, server, elapsed, security)
    records = [
        Naptr(rdata.order, rdata.preference, rdata.flags, rdata.service, rdata.regexp, rdata.replacement.labels[:-1])
        for rdata in answer.rrset
        if rdata.rdtype == dns.rdatatype.NAPTR
    ]
    return Answer(Outcome.ANSWER, records, answer.chaining_result.minimum_ttl, note, server, elapsed, security)


def read_error(error: Exception, elapsed: float, *, trust_ad: bool = False) -> Answer:
    """What a resolver raised, as the walk's answer; what is no matter of DNS is raised again."""
    if isinstance(error, dns.resolver.NXDOMAIN):
        response = next(iter(error.kwargs.get("responses", {}).values()), None)
        if response is None:
            return Answer(Outcome.NXDOMAIN, elapsed=elapsed)
        if response.flags & dns.flags.TC:
            return Answer(Outcome.MALFORMED, note=TRUNCATED, elapsed=elapsed)
        security = _security(response, trust_ad)
        zone = _denying_zone(response)
        return Answer(Outcome.NXDOMAIN, (), _negative_ttl(response), elapsed=elapsed, security=security, zone=zone)
    if isinstance(error, dns.resolver.YXDOMAIN):
        asked = error.kwargs.get("query")
        zone = asked.question[0].name.labels[:-1] if asked is not None else None  # at or below which the DNAME stands
        return Answer(Outcome.NXDOMAIN, note="a DNAME makes the name too long", elapsed=elapsed, zone=zone)
    if isinstance(error, dns.exception.Timeout):
        return Answer(Outcome.TIMEOUT, note=_failures(error), elapsed=elapsed)
    if isinstance(error, dns.resolver.NoNameservers):
        failures = error.kwargs.get("errors") or []
        outcome = _outcome(failures[-1][3], failures[-1][4]) if failures else Outcome.UNREACHABLE
        bogus = trust_ad and any(_is_bogus(response) for *_, response in failures)
        security = "bogus" if bogus else "indeterminate"
        return Answer(outcome, note=_failures(error), elapsed=elapsed, security=security)
    if isinstance(error, dns.exception.DNSException | OSError):
        return Answer(Outcome.UNREACHABLE, note=str(error), elapsed=elapsed)
    raise error


def _server(answer: dns.resolver.Answer) -> str:
    if not answer.nameserver or "://" in answer.nameserver:
        return answer.nameserver or ""
    return f"{answer.nameserver}#{answer.port}"


def _security(response: dns.message.Message, trust_ad: bool) -> str:
    if not trust_ad:
        return "indeterminate"
    return "secure" if response.flags & dns.flags.AD else "insecure"


def _is_bogus(response: object) -> bool:
    """True where the resolver says that validation failed (RFC 8914)."""
    return isinstance(response, dns.message.Message) and any(
        isinstance(option, dns.edns.EDEOption) and option.code in EDE_BOGUS for option in response.options
    )


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


def _denying_zone(response: dns.message.Message) -> names.Labels | None:
    """The ``zone`` of an Answer."""
    if any(rrset.rdtype == dns.rdatatype.CNAME for rrset in response.answer):
        return response.question[0].name.labels[:-1]
    return next((rrset.name.labels[:-1] for rrset in response.authority if rrset.rdtype == dns.rdatatype.SOA), None)


def default_resolver() -> dns.resolver.Resolver:
    """The system's resolver; DiscoveryFailed where the system has none configured."""
    try:
        return dns.resolver.get_default_resolver()
    except dns.resolver.NoResolverConfiguration as error:
        raise DiscoveryFailed(f"no resolver is configured on this system: {error}") from None


def is_url(text: str) -> bool:
    """Whether a server is written as one that is asked by HTTPS or TLS."""
    return text.startswith(("https://", "tls://"))


def make_resolver(nameservers: Iterable[str], *, lifetime: float | None = None) -> dns.resolver.Resolver:
    """A resolver for servers of which some are ``https://HOST[:PORT]/PATH`` or ``tls://HOST[#PORT]``.

    ``lifetime`` bounds the look-up of each name, in seconds. Certificates are verified, for the host as it is written.
    Raises ConfigError, for lack of a package too, and DiscoveryFailed for a name without address.
    """
    made = dns.resolver.Resolver(configure=False)
    made.nameservers = [server for text in nameservers for server in _nameservers(text, lifetime)]
    made.use_edns(0, 0, UDP_PAYLOAD)
    return made


def _nameservers(text: str, lifetime: float | None) -> list[dns.nameserver.Nameserver]:
    scheme, _, rest = text.partition("://")
    if "://" in text and not is_url(text):
        raise ConfigError(f"{text!r} is no server: write HOST, tls://HOST or https://HOST/PATH", key="nameservers")
    try:
        if not is_url(text):
            return [dns.nameserver.Do53Nameserver(*server) for server in find_servers(text, seconds=lifetime)]
        if scheme == "tls":
            host = rest.partition("#")[0]
            found = find_servers(rest, DOT_PORT, lifetime)
            name = None if found[0].address == host else host
            return [dns.nameserver.DoTNameserver(server.address, server.port, hostname=name) for server in found]
        host = url.parse(text).host.text
        found = find_servers(host, seconds=lifetime)
    except ValueError as error:
        raise ConfigError(f"{text}: {error}", key="nameservers") from None
    if not dns.query.have_doh:  # by packages that change with dnspython's version
        raise MissingExtra("DNS over HTTPS needs more packages: pip install 'maptr[doh]'", key="nameservers")
    # Addresses from the system, as for every server given by name: dnspython would ask DNS alone.
    bootstraps = [None] if found[0].address == host else [server.address for server in found]
    return [dns.nameserver.DoHNameserver(text, bootstrap_address=address) for address in bootstraps]


def checking_ad(resolver: Resolving) -> Resolving:
    """The same resolver, asking for the AD bit (RFC 6840 5.7); the caller's own is left as it is."""
    twin = copy.copy(resolver)
    twin.flags = (dns.flags.RD if resolver.flags is None else resolver.flags) | dns.flags.AD
    return twin


def validating(resolver: Resolving) -> Resolving:
    """The same resolver for whoever validates: DO and CD set, and without its cache, whose answers lack signatures."""
    twin = copy.copy(resolver)
    twin.flags = (dns.flags.RD if resolver.flags is None else resolver.flags) | dns.flags.CD
    edns = max(resolver.edns, 0)
    twin.use_edns(edns, resolver.ednsflags | dns.flags.DO, resolver.payload or UDP_PAYLOAD)
    twin.cache = None
    return twin


def heard(answer: dns.resolver.Answer, elapsed: float) -> Heard:
    """A resolver's answer as validation wants it."""
    from maptr.client.validation.chain import Heard  # needs the optional package cryptography

    if answer.response.flags & dns.flags.TC:
        return Heard(Outcome.MALFORMED, None, TRUNCATED, _server(answer), elapsed)
    if answer.rrset is None and _is_referral(answer.response, aliased=False):
        return Heard(Outcome.REFERRAL, None, "asked without recursion", _server(answer), elapsed)
    outcome = Outcome.NODATA if answer.rrset is None else Outcome.ANSWER
    return Heard(outcome, answer.response, "", _server(answer), elapsed)


def heard_error(error: Exception, elapsed: float) -> Heard:
    """What a resolver raised, likewise; what is no matter of DNS is raised again."""
    from maptr.client.validation.chain import Heard  # needs the optional package cryptography

    if isinstance(error, dns.resolver.NXDOMAIN):
        response = next(iter(error.kwargs.get("responses", {}).values()), None)
        if response is not None and not response.flags & dns.flags.TC:
            return Heard(Outcome.NXDOMAIN, response, elapsed=elapsed)
    answer = read_error(error, elapsed)
    return Heard(answer.outcome, None, answer.note, elapsed=elapsed)


def as_async(resolver: dns.resolver.Resolver) -> dns.asyncresolver.Resolver:
    """The same servers and settings for the async twin."""
    twin = dns.asyncresolver.Resolver(configure=False)
    twin.nameservers = list(resolver.nameservers)
    twin.nameserver_ports = dict(resolver.nameserver_ports)
    twin.port, twin.timeout, twin.lifetime = resolver.port, resolver.timeout, resolver.lifetime
    twin.use_edns(resolver.edns, resolver.ednsflags, resolver.payload)
    twin.cache = resolver.cache
    twin.flags, twin.keyring, twin.keyname = resolver.flags, resolver.keyring, resolver.keyname
    twin.keyalgorithm, twin.rotate, twin.retry_servfail = (
        resolver.keyalgorithm,
        resolver.rotate,
        resolver.retry_servfail,
    )
    return twin
