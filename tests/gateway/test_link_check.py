"""The requests for a link check, what responses mean, and when a link is dead: without sockets and clocks."""

from __future__ import annotations

import math

import pytest

from maptr.gateway.links.check import (
    AGAIN,
    AT_ONCE,
    DEAD_AFTER,
    DEAD_SECONDS,
    MAX_PAUSES,
    MAX_REST,
    NO_NETWORK,
    NOT_ASKED,
    PAUSE,
    REDIRECT,
    UNTOLD_REST,
    CheckedLink,
    CheckOutcome,
    CheckQueue,
    CheckResult,
    LinkCheck,
    LinkCounts,
    LinkResponse,
    LinkState,
    rest_of,
    retry_seconds,
)

GOOD = CheckResult(CheckOutcome.ANSWERED, 200)
BAD = CheckResult(CheckOutcome.FAILED, 404)
LATER = CheckResult(CheckOutcome.NOT_KNOWN, 503)


def after(*found: tuple[float, CheckResult]) -> CheckedLink:
    link = CheckedLink()
    for now, each in found:
        link = link.after(each, now)
    return link


def days(*found: CheckResult) -> CheckedLink:
    """A check each day."""
    return after(*((AGAIN * day + 1e9, each) for day, each in enumerate(found)))


# ---- one link


def test_a_link_is_dead_after_three_failed_checks_over_two_days() -> None:
    assert [days(*[BAD] * count).state for count in range(4)] == [
        LinkState.UNKNOWN,
        LinkState.FAILING,
        LinkState.FAILING,
        LinkState.DEAD,
    ]
    assert days(BAD, BAD, BAD).since == 1e9
    soon = after(*((1e9 + second, BAD) for second in range(10)))
    assert (soon.state, soon.failures) == (LinkState.FAILING, 10), "within a moment"
    assert after((1e9, BAD), (1e9 + 2 * DEAD_SECONDS, BAD)).state is LinkState.FAILING, "two checks"
    assert DEAD_AFTER == 3


def test_an_answer_ends_a_failure_and_a_host_that_asks_to_wait_changes_nothing() -> None:
    assert days(BAD, BAD, GOOD, BAD, BAD).state is LinkState.FAILING
    assert days(BAD, BAD, BAD, GOOD) == CheckedLink(1e9 + 3 * AGAIN, 1e9 + 3 * AGAIN, 0, 200)
    waits = days(BAD, BAD, LATER, BAD)
    assert (waits.state, waits.failures, waits.since) == (LinkState.DEAD, 3, 1e9)
    assert days(LATER, LATER, LATER, LATER).state is LinkState.UNKNOWN
    assert days(LATER, GOOD, GOOD).since == 1e9 + AGAIN


def test_a_clock_that_goes_back_makes_no_link_dead() -> None:
    assert after((2e9, BAD), (1e9, BAD), (1e9 + 1, BAD)).state is LinkState.FAILING


@pytest.mark.parametrize(
    ("objects", "dead", "is_alarm"),
    [
        (0, 0, False),
        (50, 0, False),
        (50, 1, True),
        (300, 2, False),
        (300, 3, True),
        (120_000, 9, False),
        (120_000, 10, True),
    ],
)
def test_ten_objects_or_one_percent_are_an_alarm(objects: int, dead: int, is_alarm: bool) -> None:
    assert LinkCounts(answers=objects - dead, dead=dead).is_alarm is is_alarm


# ---- one check


def told(*responses: LinkResponse, target: str = "http://h.example/1") -> tuple[list[str], CheckResult | None]:
    """The requests of a check, and its result."""
    check, asked, found = LinkCheck(1, target), list[str](), None
    for response in responses:
        asked.append(f"{check.method} {check.where.server}{check.where.rest}")
        found = check.tell(response)
    return asked, found


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(status, CheckOutcome.ANSWERED) for status in (200, 204, 304, 300, 400, 401, 403, 418, 451)]
    + [(status, CheckOutcome.FAILED) for status in (404, 410, 500, 502, 503, 504, 599, 999)],
)
def test_what_a_status_means(status: int, outcome: CheckOutcome) -> None:
    assert told(LinkResponse(status))[1] == CheckResult(outcome, status)


def test_a_server_without_head_is_asked_by_get() -> None:
    for status in (405, 501):
        asked, found = told(LinkResponse(status), LinkResponse(200))
        assert asked == ["HEAD http://h.example/1", "GET http://h.example/1"]
        assert found == GOOD
    assert told(LinkResponse(501), LinkResponse(501))[1] == CheckResult(CheckOutcome.FAILED, 501)
    assert told(LinkResponse(405), LinkResponse(405))[1] == CheckResult(CheckOutcome.ANSWERED, 405)


def test_five_redirects_are_followed() -> None:
    hops = [LinkResponse(302, f"/{n}") for n in range(2, 8)]
    asked, found = told(*hops[:5], LinkResponse(404))
    assert asked[-1] == "HEAD http://h.example/6"
    assert found == BAD
    assert told(*hops)[1] == CheckResult(CheckOutcome.FAILED, fault=REDIRECT)
    loop = told(LinkResponse(301, "http://h.example/2"), LinkResponse(301, "/1#x"))
    assert (len(loop[0]), loop[1]) == (2, CheckResult(CheckOutcome.FAILED, fault=REDIRECT)), "a loop is seen at once"


@pytest.mark.parametrize(
    "location",
    [
        *(
            "http://127.0.0.1/",
            "http://localhost/",
            "//10.0.0.1/x",
            "http://[::1]/",
            "http://2130706433/",
            "http://intranet/",
        ),
        *("ftp://h.example/", "javascript:alert(1)", "http://u:p@h.example/", "http://[", "http://h.example:99999/"),
        "http://h.example/" + "x" * 5000,
    ],
)
def test_a_redirect_that_must_not_be_followed_is_a_failure(location: str) -> None:
    asked, found = told(LinkResponse(302, location))
    assert (len(asked), found) == (1, CheckResult(CheckOutcome.FAILED, fault=REDIRECT))


def test_a_location_is_read_as_browsers_do() -> None:
    asked, found = told(LinkResponse(302, "/\xc3\xa9t\xc3\xa9 a%20b?q=[1]#top"), LinkResponse(200))
    assert (asked[1], found) == ("HEAD http://h.example/%C3%A9t%C3%A9%20a%20b?q=[1]", GOOD)
    assert told(LinkResponse(302))[1] == CheckResult(CheckOutcome.ANSWERED, 302)


def test_no_answer_fails_but_a_host_that_is_not_asked_does_not() -> None:
    assert told(LinkResponse(fault="timeout"))[1] == CheckResult(CheckOutcome.FAILED, fault="timeout")
    assert told(LinkResponse(fault=NOT_ASKED))[1] == CheckResult(CheckOutcome.NOT_KNOWN, fault=NOT_ASKED)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(
            ("120", 120.0),
            (" 0 ", 0.0),
            ("", None),
            ("soon", None),
            ("-1", None),
            ("9" * 5000, MAX_REST),
            ("1e3", None),
        ),
        *(("Thu, 01 Jan 1970 00:10:00 GMT", 540.0), ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0), ("\u0662", None)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_REST),
    ],
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_seconds(text, 60.0) == seconds


def test_a_host_is_left_alone_if_it_asks_for_that() -> None:
    for status in (429, 503):
        response = LinkResponse(status, retry=30.0)
        assert rest_of(response) == 30.0
        assert told(response)[1] == CheckResult(CheckOutcome.NOT_KNOWN, status)
    assert rest_of(LinkResponse(429)) == UNTOLD_REST
    assert rest_of(LinkResponse(503)) is rest_of(LinkResponse(200, retry=9.0)) is None


# ---- many checks


def queue_of(*targets: str) -> CheckQueue:
    queue = CheckQueue()
    for number, target in enumerate(targets, 1):
        queue.add(LinkCheck(number, target))
    return queue


def sent(queue: CheckQueue, now: float) -> list[LinkCheck]:
    """All requests that may be sent now."""
    found = []
    while (check := queue.next(now)) is not None:
        found.append(check)
    return found


def test_eight_requests_at_a_time_and_one_to_a_host_in_two_seconds() -> None:
    queue = queue_of(*(f"http://h{n % 10}.example/{n}" for n in range(20)))
    first = sent(queue, 0.0)
    assert [check.link for check in first] == [*range(1, AT_ONCE + 1)]
    assert queue.wait(0.0) == math.inf
    assert queue.tell(first[0], LinkResponse(200), 0.5) == GOOD
    assert [check.link for check in sent(queue, 0.5)] == [9]
    for check in first[1:]:
        queue.tell(check, LinkResponse(200), 0.5)
    assert [check.link for check in sent(queue, 0.5)] == [10]
    assert queue.wait(0.5) == PAUSE - 0.5
    assert sent(queue, PAUSE - 0.01) == []
    assert [check.link for check in sent(queue, PAUSE)] == [11, 12, 13, 14, 15, 16]


def test_a_slow_request_closes_its_host_until_it_ends() -> None:
    queue = queue_of("http://h.example/1", "http://H.example.:80/2")
    (check,) = sent(queue, 0.0)
    assert sent(queue, 100.0) == []
    queue.tell(check, LinkResponse(200), 100.0)
    assert len(sent(queue, 100.0)) == 1


def test_redirects_wait_for_their_host_too() -> None:
    queue = queue_of("http://h.example/1", "http://r.example/")
    one, other = sent(queue, 0.0)
    assert queue.tell(one, LinkResponse(301, "https://h.example/1"), 0.1) is None
    assert queue.tell(other, LinkResponse(301, "https://h.example/2"), 0.1) is None
    assert sent(queue, PAUSE - 0.01) == []
    assert sent(queue, PAUSE) == [one]
    assert queue.tell(one, LinkResponse(200), PAUSE) == GOOD
    assert sent(queue, 2 * PAUSE) == [other]
    assert queue.hosts == ["r.example"], "the host of its link"


def test_a_host_that_wants_to_be_left_alone_is_not_asked_by_a_redirect_either() -> None:
    queue = queue_of("http://h.example/1", "http://r.example/", "http://s.example/")
    one, other, third = sent(queue, 0.0)
    assert queue.tell(third, LinkResponse(301, "http://h.example/3"), 0.1) is None
    assert queue.tell(one, LinkResponse(503, retry=60.0), 0.1) == LATER
    assert not queue._waiting, "the one that waited for the host keeps its turn"
    assert queue.tell(other, LinkResponse(301, "http://h.example/2"), 0.2) == CheckResult(CheckOutcome.NOT_KNOWN, 301)
    queue.add(LinkCheck(4, "http://h.example/4"))
    assert sent(queue, 59.0) == []
    assert len(sent(queue, 61.0)) == 1


def test_several_silent_hosts_in_a_row_may_be_the_network_of_this_machine() -> None:
    queue = queue_of(*(f"http://{name}.example/" for name in "abc"))
    a, b, c = sent(queue, 0.0)
    assert queue.tell(a, LinkResponse(fault="timeout"), 1.0) == CheckResult(CheckOutcome.FAILED, fault="timeout")
    assert not queue.lacks_network
    assert queue.tell(b, LinkResponse(fault="dns"), 1.0) is None, "which says nothing of the link"
    assert queue.lacks_network
    queue.add(LinkCheck(9, "http://d.example/"))
    assert sent(queue, NO_NETWORK) == []
    assert queue.wait(1.0) == NO_NETWORK
    assert queue.tell(c, LinkResponse(404), 2.0) == BAD
    assert not queue.lacks_network
    assert len(sent(queue, 2.0)) == 1


def test_one_silent_host_alone_is_dead() -> None:
    queue = CheckQueue()
    for number in range(100):
        queue.add(LinkCheck(number, f"http://h.example/{number}"))
        (check,) = sent(queue, number * PAUSE)
        found = queue.tell(check, LinkResponse(fault="unreachable"), number * PAUSE)
        assert found is not None
        assert found.outcome is CheckOutcome.FAILED


def test_requests_of_a_gateway_are_spaced() -> None:
    queue = CheckQueue(0.05)
    for number in range(3):
        queue.add(LinkCheck(number, f"http://h{number}.example/"))
    (first,) = sent(queue, 0.0)
    assert sent(queue, 0.04) == []
    assert queue.wait(0.03) == pytest.approx(0.02)
    assert queue.tell(first, LinkResponse(200), 0.01) == GOOD
    assert sent(queue, 0.04) == []
    assert len(sent(queue, 0.05)) == 1


def test_memory_of_pauses_is_bounded() -> None:
    queue = CheckQueue()
    for number in range(MAX_PAUSES + 5_000):
        queue.add(LinkCheck(number, f"http://h{number}.example/"))
        (check,) = sent(queue, 0.0)
        queue.tell(check, LinkResponse(200), 0.0)
    assert len(queue._opens) <= MAX_PAUSES
