"""The validity of signatures, and the alarm before they expire."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from dns.rdatatype import RRSIG, TXT

from maptr.config import ZoneConfig
from maptr.dnssec.expiry import EXPIRING, Signatures, signature_state
from maptr.dnssec.keys import Role, ZoneKey
from maptr.dnssec.policy import SigningPolicy
from maptr.errors import time_text
from maptr.server.alarm import AlarmLog
from maptr.server.state import ZoneState
from tests.support.signing import NOW, example_zone, sign_example, sign_zone
from tests.support.zones import view_zone


def test_signature_state_and_alarm_at_each_time(keys: dict[Role, ZoneKey], caplog: pytest.LogCaptureFixture) -> None:
    view = view_zone(sign_example(keys[Role.CSK]))
    source = ZoneConfig(view.origin, Path("example.zone"))
    end = NOW + SigningPolicy().lifetime
    states = {
        NOW: Signatures.OK,
        end - EXPIRING: Signatures.OK,
        end - EXPIRING + 1: Signatures.EXPIRING,
        end - 1: Signatures.EXPIRING,
        end: Signatures.EXPIRED,
        NOW - 3600: Signatures.OK,
        NOW - 3601: Signatures.NOT_YET,
    }
    for now, state in states.items():
        found = signature_state(view, now)
        assert (found.state, found.expires) == (state, end)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "maptr"):
            AlarmLog().dated(ZoneState(source).serving(view, now).alarms(now), now)
        levels = {Signatures.EXPIRING: ["WARNING"]}.get(found.state, ["ERROR"] if found.is_alarm else [])
        assert [record.levelname for record in caplog.records] == levels
        assert all("zone example.: signatures" in record.getMessage() for record in caplog.records)
    text = signature_state(view, end - 7200).text(end - 7200)
    assert text == f"signatures expire at {time_text(end)}, in 2 hours; sign the zone again"
    assert signature_state(view_zone(example_zone()), NOW).state is Signatures.UNSIGNED


def test_the_earliest_expiration_counts(keys: dict[Role, ZoneKey]) -> None:
    signed, later = sign_example(keys[Role.CSK]), sign_zone(example_zone(), [keys[Role.CSK]], now=NOW + 86400, serial=7)
    for name, rdataset in later.iterate_rdatasets():
        if rdataset.rdtype == RRSIG and rdataset.covers != TXT:
            signed.find_node(name).replace_rdataset(rdataset)
    assert signature_state(view_zone(signed), NOW).expires == NOW + SigningPolicy().lifetime


def test_rfc4034_3_1_5_times_wrap_in_2106(keys: dict[Role, ZoneKey]) -> None:
    """RFC 4034 3.1.5: the times have 32 bits and are compared in serial number arithmetic."""
    at = 2**32 - 86400
    policy = SigningPolicy(lifetime=14 * 86400)
    signed = sign_zone(example_zone(), [keys[Role.CSK]], now=at, serial=1, policy=policy)
    found = signature_state(view_zone(signed), at + 2 * 86400)
    assert (found.state, found.expires) == (Signatures.OK, at + 14 * 86400)
