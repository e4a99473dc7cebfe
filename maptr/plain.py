"""The commonest answers, read by the shortest way: records that all lead to a public authority, nothing odd about one.

``h`` records that name a host by letters, digits and hyphens, and ``u`` records whose regexp is a fixed text and a rest
(see ``prefix``) and whose scheme and host stand in it. A ``Ranking`` is made once for a set of records and then makes
the candidates of each ARK. A shortcut of ``walk``, which goes on with whatever this does not take; property tests hold
the two to the same discovery.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from maptr import names, url
from maptr.ark import Ark
from maptr.candidate import Candidate
from maptr.names import Labels
from maptr.naptr import Fields, Naptr
from maptr.nfa import Budget
from maptr.plainurl import MAX_RECORDS, host_of

if TYPE_CHECKING:
    from maptr.regexp import Substitution

MAX_RANKINGS = 10_000  # remembered
MAX_STEPS = 20_000  # of regexps, that so many records of this kind never need

_BY_HOST = (b"h", b"ark", b"")  # flags, service, regexp

_new = tuple.__new__  # half the time of a NamedTuple's own


class Site(NamedTuple):
    """Where a ``u`` record leads, whatever the ARK. ``refused`` where nobody may go there."""

    substitution: Substitution
    host: str
    port: int | None
    refused: bool


class Ranking(NamedTuple):
    """The records of a walk's root name, ranked. ``fixed`` are their candidates where no record looks at the ARK."""

    fixed: tuple[Candidate, ...] | None
    rules: tuple[Candidate | tuple[Candidate, Site], ...]

    def candidates(self, ark: Ark) -> tuple[Candidate, ...]:
        """What a walk would find for the ARK, ranked, each place once."""
        if self.fixed is not None:
            return self.fixed
        found: dict[tuple[str, int | None, str], Candidate] = {}
        for rule in self.rules:
            candidate = rule if isinstance(rule, Candidate) else _made(*rule, ark)
            if candidate is not None:
                found.setdefault((candidate.host.lower(), candidate.port, candidate.target), candidate)
        return tuple(found.values())


def make_ranking(
    records: Sequence[Fields], root: Labels, ttl: int, *, undotted: Labels | None, allow_private: bool, steps: int
) -> Ranking | None:
    """The records (each a Naptr, or its fields), ranked; None where one of them is not that plain.

    ``ttl`` is that of the records in seconds; ``undotted`` is as in ``naptr.read``; ``steps`` is a walk's budget.
    """
    if not records or len(records) > MAX_RECORDS:
        return None
    owner = names.to_text(root)
    if len(records) == 1 and records[0][2:5] == _BY_HOST:  # by far the commonest, and quicker alone
        order, preference, *_, replacement = records[0]
        host = host_of(replacement, undotted)
        if host is None:
            return None
        path = ((order, preference),)
        return Ranking(
            (_new(Candidate, (host, None, order, preference, owner, ttl, "dns", "", path, "", None, "")),), ()
        )
    rules: list[Candidate | tuple[Candidate, Site]] = []
    hosts: list[Candidate] = []
    for record in records:
        order, preference, flags, service, regexp, replacement = record
        if service != b"ark":
            return None
        path = ((order, preference),)
        if flags == b"h" and not regexp:
            host = host_of(replacement, undotted)
            if host is None:
                return None
            hosts.append(Candidate(host, None, order, preference, owner, ttl, "dns", "", path))
            rules.append(hosts[-1])
        elif flags == b"u" and not replacement and steps >= MAX_STEPS:
            site = _site(regexp, allow_private)
            if site is None:
                return None
            rules.append((Candidate(site.host, site.port, order, preference, owner, ttl, "dns", "", path), site))
        else:
            return None
    if len(rules) > 1:
        # By (order, preference), then by canonical rdata, of which these are the first four octets.
        keys = [Naptr(*record).canonical() for record in records]
        rules = [rules[at] for at in sorted(range(len(rules)), key=keys.__getitem__)]
    made = Ranking(None, tuple(rules))
    return Ranking(made.candidates(_NOBODY), ()) if len(rules) == len(hosts) else made


Ranker = Callable[..., Ranking | None]
"""Takes what ``make_ranking`` takes."""


class Rankings:
    """``make_ranking`` that remembers, for whoever walks over the same records again and again. For threads."""

    def __init__(self) -> None:
        self._rankings: dict[Hashable, Ranking | None] = {}

    def __call__(self, records: tuple[Fields, ...], root: Labels, ttl: int, **options: Any) -> Ranking | None:
        if len(records) == 1 and records[0][2:5] == _BY_HOST:  # made sooner than looked up
            return make_ranking(records, root, ttl, **options)
        key = records, root, ttl, *options.values()
        try:
            return self._rankings[key]
        except KeyError:
            pass
        if len(self._rankings) >= MAX_RANKINGS:
            self._rankings = {}
        made = self._rankings[key] = make_ranking(records, root, ttl, **options)
        return made


_NOBODY = Ark("0", "0")  # what is fixed does not look at it


def _site(regexp: bytes, allow_private: bool) -> Site | None:
    """Where a plain regexp leads: scheme and host stand in its replacement, before anything of the ARK."""
    from maptr.regexp import Substitution

    substitution = Substitution.parse_prefix(regexp)
    if substitution is None:
        return None
    head = b""
    for part in substitution.replacement:
        if not isinstance(part, bytes):
            break
        head += part
    text = head.decode("latin-1")
    if not text.isascii() or text.partition("://")[2].find("/") < 1:
        return None
    try:
        where = url.parse(text)
    except ValueError:
        return None
    return Site(substitution, where.host.in_url, where.port, url.refusal(text, allow_private=allow_private) is not None)


def _made(candidate: Candidate, site: Site, ark: Ark) -> Candidate | None:
    """The candidate of a ``u`` record for an ARK, None where the regexp does not match or makes no URL to follow."""
    if site.refused:
        return None
    try:
        made = site.substitution.apply(ark.resolution.encode(), Budget(MAX_STEPS))
    except ValueError:  # too long
        return None
    if made is None:
        return None
    target = made.decode("ascii", "backslashreplace")
    if not url.is_clean(target):
        return None
    # As it is but for target, made_for and substitution.
    return _new(Candidate, (*candidate[:7], target, candidate.path, ark.resolution, site.substitution, ""))
