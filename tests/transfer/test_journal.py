"""Journals: chains of differences, their limits, and their files."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.config import ZoneConfig
from maptr.daemon.background import Repetitions
from maptr.errors import JournalError, ZoneError
from maptr.protocol.names import Folded, fold, parse
from maptr.protocol.numbers import SOA
from maptr.server.journals import journal_path, read_journal, write_journal
from maptr.transfer import journal as transfer_journal
from maptr.transfer.journal import Journal, decode, encode
from maptr.zone.diff import Difference, ZoneDiff, digest
from tests.support.random_zones import random_zone, zone_text
from tests.support.zones import view_zone
from tests.transfer.test_session import journal_of, view_of, zone_of


def test_the_order_of_records_makes_no_difference() -> None:
    one, two = view_of(1, "a 60 TXT x\na 60 TXT y\nb 60 TXT z\n"), view_of(1, "b 60 TXT z\na 60 TXT y\na 60 TXT x\n")
    assert Difference.between(one, two) is None
    assert digest(one) == digest(two)
    journal = Journal.start(one)
    assert journal.extend(one, two) is journal


@pytest.mark.parametrize("other", ["a 61 TXT x\n", "A 60 TXT x\n", "a 60 TXT X\n", "a 60 SPF x\n", ""])
def test_every_change_is_a_difference_even_a_new_serial_alone(other: str) -> None:
    for text, removed in (("a 60 TXT x\n", [False]), (other, [])):
        one, two = view_of(1, text), view_of(2, other)
        change = Difference.between(one, two)
        assert change is not None
        assert (change.from_serial, change.to_serial) == (1, 2)
        added = [False] * bool(other and removed)
        assert [record.rdtype == SOA for record in change] == [True, *removed, True, *added]
        assert digest(one) != digest(two)


@pytest.mark.parametrize("serial", [5, 4, 5 + 2**31])
def test_a_serial_that_did_not_increase_starts_a_new_journal(serial: int) -> None:
    journal = journal_of(view_of(4, "z 60 TXT x\n"), view_of(5))
    after = journal.extend(view_of(5), view_of(serial, "a 60 TXT x\n"))
    assert after.differences == ()
    assert after.serial == serial


def test_the_oldest_differences_beyond_the_limit_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_journal, "MAX_DIFFERENCES", 7)
    journal = Journal.start(view_of(0))
    for serial in range(20):
        journal = journal.extend(view_of(serial), view_of(serial + 1))
    assert [change.from_serial for change in journal.differences] == list(range(13, 20))
    assert journal.since(12) is None
    assert journal.since(13) is not None


def test_the_size_of_a_journal_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_journal, "MAX_BYTES", 3000)
    views = [view_of(serial, f"a 60 TXT {'x' * 200} {serial}\n") for serial in range(21)]
    journal = Journal.start(views[0])
    for old, new in itertools.pairwise(views):
        journal = journal.extend(old, new)
    assert 1 < len(journal.differences) < 6
    assert sum(len(change.data) for change in journal.differences) <= 3000
    large = view_of(21, "\n".join(f"n{i} 60 TXT {'x' * 200}" for i in range(30)))
    assert journal.extend(views[-1], large).differences == ()


@given(st.integers(0, 2**32), st.integers(0, 4))
@settings(max_examples=50)
def test_encode_and_decode_round_trip(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    texts = [zone_text(random_zone(rng)).replace(" 1 7200", f" {number} 7200") for number in range(steps + 1)]
    views = [view_zone(zone_of(text)) for text in texts]
    journal = journal_of(*views)
    assert decode(encode(journal)) == journal
    for old, new in itertools.pairwise(views):
        assert Difference.between(old, new, ZoneDiff.between(old, new).names) == Difference.between(old, new)
    assert journal.fits(views[-1])
    assert len(journal.differences) == steps


def test_a_journal_of_another_version_is_refused() -> None:
    data = encode(journal_of(view_of(1), view_of(2, "a 60 TXT x\n")))
    with pytest.raises(JournalError, match="of another version"):
        decode(data.replace(b"journal 3", b"journal 2"))


def test_a_journal_of_a_wrong_length_is_refused_with_a_right_checksum() -> None:
    body = encode(journal_of(view_of(1), view_of(2, "a 60 TXT x\n")))[:-32]
    for wrong in (*(body[:end] for end in range(16, len(body))), body + b"x"):
        with pytest.raises(JournalError, match="its length is wrong"):
            decode(wrong + hashlib.sha256(wrong).digest())


def test_a_change_of_any_byte_is_detected() -> None:
    octets = encode(journal_of(view_of(1), view_of(2, "a 60 TXT x\n")))
    for place in range(len(octets)):
        with pytest.raises(JournalError):
            decode(octets[:place] + bytes((octets[place] ^ 1,)) + octets[place + 1 :])
        with pytest.raises(JournalError):
            decode(octets[:place])
    with pytest.raises(JournalError):
        decode(octets + b"x")


def test_file_round_trip_beside_a_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "z.journal"
    (tmp_path / ".z.journal.new").write_bytes(b"half")  # left by a crash
    view = view_of(2, "a 60 TXT x\n")
    journal = journal_of(view_of(1), view)
    for _ in range(2):
        write_journal(path, journal, Repetitions())
    assert read_journal(path, view) == journal
    assert [file.name for file in tmp_path.iterdir()] == ["z.journal"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"", "not a journal"),
        (b"something else", "not a journal"),
        (encode(Journal.start(view_of(2)))[:-1], "checksum is wrong"),
        (encode(Journal.start(view_of(3))), "it leads to serial 3, not to this zone of serial 2"),
        (encode(Journal.start(view_of(2, "other 60 TXT x\n"))), "not to this zone"),
    ],
)
def test_an_unusable_file_is_replaced_and_the_reason_is_logged(
    octets: bytes, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "z.journal"
    path.write_bytes(octets)
    view = view_of(2)
    assert read_journal(path, view) == Journal.start(view)
    assert f"{path} is not used, secondaries will get AXFR: " in caplog.text
    assert why in caplog.text
    write_journal(path, Journal.start(view), Repetitions())
    assert read_journal(path, view) == Journal.start(view)


def test_a_zone_that_advanced_while_no_server_ran_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path, view = tmp_path / "z.journal", view_of(2)
    path.write_bytes(encode(Journal.start(view_of(1))))
    assert read_journal(path, view) == Journal.start(view)
    assert caplog.messages == [f"journal {path} ends at serial 1, not at 2: secondaries will get AXFR"]
    assert caplog.records[0].levelno == logging.INFO
    assert [file.name for file in tmp_path.iterdir()] == ["z.journal"]


def test_read_and_write_errors_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    view = view_of(2)
    assert read_journal(tmp_path / "none", view) == Journal.start(view)
    assert not caplog.records, "a missing file is not an error"
    path = tmp_path / "z.journal"
    os.mkfifo(path)
    assert read_journal(path, view) == Journal.start(view)
    assert "is not used, secondaries will get AXFR: Is not a regular file" in caplog.text
    path.unlink()
    path.mkdir()
    assert read_journal(path, view) == Journal.start(view)
    write_journal(path, Journal.start(view), Repetitions())
    assert "not written" in caplog.text
    write_journal(tmp_path / "none" / "z.journal", Journal.start(view), Repetitions())
    assert [file.name for file in tmp_path.iterdir()] == ["z.journal"], "nothing is left beside it"


def test_journal_paths() -> None:
    file, state = Path("zones/ark.arpa.zone"), Path("state")
    assert journal_path(ZoneConfig(fold(parse("ark.arpa.")), file)) == Path("zones/ark.arpa.zone.journal")
    for name, path in ("ark.arpa.", "ark.arpa.journal"), (".", "%root.journal"):
        assert journal_path(ZoneConfig(fold(parse(name)), file, state=state)) == state / path
    assert journal_path(ZoneConfig(Folded((b"a/b", b"..", b"x")), file, state=state)).parent == state


def test_a_damaged_difference_raises_zone_error() -> None:
    change = Difference(1, 2, 3, b"\1a")
    with pytest.raises(ZoneError, match="the journal is damaged"):
        list(change)
