"""What happens in the steps of a soak: faults that end within their step, and the steps of a key rollover."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.soak.site import Site, until

DISCOVER = "discover"  # from the secondaries, which it validates
BY_RESOLVER = "by resolver"  # the same from the resolver, which it trusts
COMMAND = "maptr url"
HTTP = "HTTP"
BEHIND_RESOLVER = frozenset({BY_RESOLVER, COMMAND})
VALIDATING = BEHIND_RESOLVER | {DISCOVER}
OFF = 1200.0  # seconds by which a wrong clock differs; TSIG allows 300 (RFC 8945 10)


def nothing() -> None:
    """For what a happening does not do."""


@dataclass(frozen=True, slots=True)
class Happening:
    """``begin`` comes before the registry changes, ``amid`` just after that, and ``end`` after clients have asked.

    ``silent`` are the clients that may get no answer meanwhile; all others must get one. ``lags`` is whether the zone
    may stay as it was, ``holds`` whether the registry's change comes only at the end. A rollover has no change.
    """

    name: str
    row: str
    begin: Callable[[], object] = nothing
    amid: Callable[[], object] = nothing
    end: Callable[[], object] = nothing
    silent: frozenset[str] = frozenset()
    lags: bool = True
    holds: bool = False
    is_rollover: bool = False


def faults(site: Site) -> list[Happening]:
    """All faults. Those of the network and of the state folder need namespaces."""

    def start(*names: str) -> Callable[[], object]:
        return lambda: [site.servers[name].launch() for name in names]

    def kill(*names: str) -> Callable[[], object]:
        return lambda: [site.servers[name].kill() for name in names]

    def truncate() -> None:
        site.write_source(site.source[: len(site.source) * 2 // 3])
        site.reload()
        until(lambda: any("not pulled" in alarm for alarm in site.alarms()), "an alarm about the truncated registry")

    def alarm_or_publish() -> None:
        until(
            lambda: site.version_at(site.primary) == site.version or site.alarms(),
            "the new version, or an alarm about the state folder",
        )

    found = [
        Happening("NSD killed", "nsd", kill("nsd"), end=start("nsd")),
        Happening("Knot stopped", "knot", lambda: site.knot.kill(signal.SIGTERM), end=start("knot")),
        Happening("killed -9", "primary", kill("primary"), end=site.start_primary),
        Happening("killed -9 while it publishes", "primary", amid=kill("primary"), end=site.start_primary),
        Happening("truncated registry", "primary", truncate, end=lambda: site.publish(site.source), holds=True),
        Happening("restarted", "resolver", amid=kill("resolver"), end=start("resolver"), silent=BEHIND_RESOLVER),
        Happening("restarted", "gateway", amid=kill("gateway"), end=start("gateway"), silent=frozenset({HTTP})),
        Happening("both secondaries killed", "nsd", kill("nsd", "knot"), end=start("nsd", "knot"), silent=VALIDATING),
        Happening(
            "clock 20 min slow",
            "nsd",
            lambda: site.skew(site.at_nsd, -OFF),
            end=lambda: site.skew(site.at_nsd, 0.0),
        ),
    ]
    if site.namespaces:
        found += [
            Happening("network cut", "primary", cut(site, "primary", True), end=cut(site, "primary", False)),
            Happening("network cut", "nsd", cut(site, "nsd", True), end=cut(site, "nsd", False)),
            Happening(
                "no route to the primary",
                "knot",
                lambda: site.at_knot.lose(site.at_primary, lost=True),
                end=lambda: site.at_knot.lose(site.at_primary, lost=False),
            ),
            Happening("state folder full", "primary", site.fill_state, alarm_or_publish, site.empty_state),
            Happening(
                "state folder read-only",
                "primary",
                lambda: site.protect_state(protected=True),
                alarm_or_publish,
                lambda: site.protect_state(protected=False),
            ),
        ]
    return found


def cut(site: Site, name: str, off: bool) -> Callable[[], None]:
    machine = next(machine for machine in site.machines if machine.name == name)
    return lambda: machine.cut(off=off)


def rollover(site: Site) -> list[Happening]:
    """The steps of docs/admin.md for a CSK. The DS goes to the resolver's and the clients' trust anchors."""

    def activate() -> None:
        (old,), (new,) = site.key_tags("active"), site.key_tags("published")
        site.keys("set", "keys", new, "active", "--force")  # the months of the soak are simulated
        site.keys("set", "keys", old, "retired")

    def new_ds() -> None:
        site.follow_keys()
        site.restart(site.resolver)
        site.wait_for_resolver()

    def change_keys(name: str, change: Callable[[], object], end: Callable[[], object] = nothing) -> Happening:
        return Happening(name, "primary", lambda: site.signs_anew(change), end=end, lags=False, is_rollover=True)

    return [
        change_keys("new key added", lambda: site.keys("add", "keys")),
        change_keys("new key active, new DS", activate, new_ds),
        change_keys("old key removed", lambda: site.keys("remove", "keys", *site.key_tags("retired"), "--force")),
    ]
