"""Policies: which source of a cache answers, DNS or the table. A policy is a function of values and does no I/O.

Every policy obeys two rules. "None" is reported only if a source that may deny an ARK did so; a source that is silent,
bogus, missing or too old to deny is "not known". An answer that is not fresh is marked as stale.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar, NamedTuple, Protocol

from maptr import entry_points
from maptr.cache import DNS_FIRST, DNS_ONLY, NATAB_FIRST, NATAB_ONLY, POLICIES
from maptr.errors import ConfigError
from maptr.states import Dns, Natab, State


class Take(State):
    """The source whose answer is taken."""

    DNS = "DNS"
    KEPT = "DNS, stale"
    NATAB = "natab"
    NATAB_STALE = "natab, stale"
    NONE = "none"
    UNKNOWN = "not known"


class Choice(NamedTuple):
    """The source that is taken, and the states of DNS and the table that led to it."""

    take: Take
    dns: Dns
    natab: Natab

    @property
    def reason(self) -> str:
        return _reason(self)


@cache
def _reason(choice: Choice) -> str:
    take, dns, natab = choice
    if take is Take.DNS:
        return "DNS answered"
    if take is Take.KEPT:
        return "DNS does not say; its last answer is within the limit for stale ones"
    if take not in (Take.NATAB, Take.NATAB_STALE):
        return f"DNS: {dns.value}; the table: {natab.value}"
    state = "" if dns is Dns.UNASKED else f"DNS: {dns.value}; "
    if take is Take.NATAB:
        return f"{state}the table has it"
    why = "older than allowed" if natab is Natab.STALE_HAS else "not readable now, its last good state is used"
    return f"{state}the table has it, but is {why}"


class SourcePolicy(Protocol):
    """Chooses the source that answers.

    ``takes_dns``: it takes DNS's answer whatever the table says, which is not read while a fresh answer is cached.
    """

    name: ClassVar[str]
    takes_dns: ClassVar[bool] = False

    def asks(self, natab: Natab) -> bool:
        """Return whether DNS must be queried, given what the table says."""
        ...

    def choose(self, dns: Dns, natab: Natab) -> Choice:
        """Return the choice. ``dns`` is UNASKED if ``asks`` returned False."""
        ...


class DnsFirst:
    """DNS; the table if DNS says none or is silent. A stale table does not overrule "none"."""

    name: ClassVar[str] = DNS_FIRST
    takes_dns: ClassVar[bool] = True

    def asks(self, natab: Natab) -> bool:
        return True

    def choose(self, dns: Dns, natab: Natab) -> Choice:
        if dns is Dns.ANSWERS:
            return _from_dns(natab)
        if dns is Dns.KEPT:
            return Choice(Take.KEPT, dns, natab)
        if natab.has and not (dns is Dns.NONE and natab is Natab.STALE_HAS):
            return _from_table(dns, natab)
        return _from_neither(dns, natab, table_may_deny=False)


class NatabFirst(DnsFirst):
    """The table if it is fresh and has the record; else DNS, and the stale table if DNS does not answer."""

    name = NATAB_FIRST
    takes_dns = False

    def asks(self, natab: Natab) -> bool:
        return natab not in (Natab.HAS, Natab.BROKEN_HAS)

    def choose(self, dns: Dns, natab: Natab) -> Choice:
        return super().choose(dns, natab) if self.asks(natab) else _from_table(dns, natab)


class DnsOnly(DnsFirst):
    """DNS, fresh or stale, and never the table."""

    name = DNS_ONLY

    def choose(self, dns: Dns, natab: Natab) -> Choice:
        return super().choose(dns, Natab.UNASKED)


class NatabOnly:
    """The table, and never DNS."""

    name: ClassVar[str] = NATAB_ONLY
    takes_dns: ClassVar[bool] = False

    def asks(self, natab: Natab) -> bool:
        return False

    def choose(self, dns: Dns, natab: Natab) -> Choice:
        if natab.has:
            return _from_table(Dns.UNASKED, natab)
        return _from_neither(Dns.UNASKED, natab, table_may_deny=True)


@cache
def _from_dns(natab: Natab) -> Choice:
    return Choice(Take.DNS, Dns.ANSWERS, natab)


@cache
def _from_table(dns: Dns, natab: Natab) -> Choice:
    return Choice(Take.NATAB if natab is Natab.HAS else Take.NATAB_STALE, dns, natab)


def _from_neither(dns: Dns, natab: Natab, *, table_may_deny: bool) -> Choice:
    """Return None if DNS, or a fresh table that may deny, said so; else not known."""
    denied = dns is Dns.NONE or (table_may_deny and natab in (Natab.HAS_NOT, Natab.UNUSABLE))
    return Choice(Take.NONE if denied else Take.UNKNOWN, dns, natab)


_BUILT_IN: tuple[SourcePolicy, ...] = DnsFirst(), NatabFirst(), DnsOnly(), NatabOnly()
_POLICIES = {policy.name: policy for policy in _BUILT_IN}


def named(policy: str | SourcePolicy) -> SourcePolicy:
    """Return the policy of that name, built in or from an installed package, or the policy itself.

    Raises ConfigError for an unknown name, PluginError, and TypeError.
    """
    if not isinstance(policy, str):
        if not hasattr(policy, "choose"):
            raise TypeError(f"policy: {policy!r} is neither a name nor a policy")
        return policy
    found: SourcePolicy | None = _POLICIES.get(policy) or entry_points.load(entry_points.POLICIES, policy)
    if found is None:
        known = ", ".join([*POLICIES, *entry_points.names(entry_points.POLICIES)])
        raise ConfigError(f"{policy!r} is not one of {known}", key="policy")
    return found
