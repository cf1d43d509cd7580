# SPDX-License-Identifier: Apache-2.0
"""What a sender sees depends on when a request came, not on how long it took."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.registry import Registry, RequestStatus
from expunge.service.windows import Windows, show_at
from expunge.service.workers import Applier
from tests.opendsr_service import Clock
from tests.registries import Window, now, status_of
from tests.services import PATIENCE, serve_in_process
from tests.test_service_applying import wait_until
from tests.visitors import send, sign_in

QUARTER = Windows(900)
NOON = 1_800_000_000_000 - 1_800_000_000_000 % 900_000
ASKED = status_of(
    accepted=NOON + 60_000,
    deadline=NOON + 10**9,
    opens=QUARTER.at(NOON + 60_000).start,
    closes=QUARTER.at(NOON + 60_000).close,
)
TIMES = st.integers(0, 4 * 10**12)


def complete(after: int) -> RequestStatus:
    return replace(ASKED, stage="completed", completed=ASKED.accepted + after)


def test_a_request_is_pending_until_its_window_closes() -> None:
    for time in (NOON + 60_000, NOON + 899_999):
        assert show_at(ASKED, time).state == "pending"
    assert show_at(ASKED, NOON + 900_000).state == "in_progress"


def test_a_request_that_was_refused_at_once_still_looks_pending() -> None:
    assert show_at(complete(1), NOON + 61_000).state == "pending"


def test_answers_are_shown_at_one_moment_however_long_they_took() -> None:
    moments = set()
    for took in (840_000, 841_000, 900_000, 929_999):
        status = complete(took)
        assert show_at(status, NOON + 989_999).state == "in_progress"
        shown = show_at(status, NOON + 990_000)
        assert shown.state == "completed"
        moments.add(shown.answered)
    assert moments == {NOON + 990_000}


def test_a_slow_batch_is_shown_with_a_later_window() -> None:
    slow = complete(990_001 - 60_000)
    assert show_at(slow, NOON + 1_889_999).state == "in_progress"
    assert show_at(slow, NOON + 1_890_000).answered == NOON + 1_890_000


def test_a_cancelled_request_is_shown_at_once() -> None:
    cancelled = replace(ASKED, stage="cancelled")
    assert show_at(cancelled, NOON + 60_001).state == "cancelled"


@given(TIMES, st.sampled_from([1, 2, 60, 900, 86_400]))
def test_windows_follow_one_another_without_gaps(time: int, seconds: int) -> None:
    windows = Windows(seconds)
    window = windows.at(time)
    assert window.start <= time < window.close < window.answer
    assert windows.at(window.close).start == window.close
    assert windows.at(window.close - 1) == window


@given(TIMES, st.sampled_from([1, 2, 60, 900, 86_400]))
def test_the_next_answer_is_the_first_one(time: int, seconds: int) -> None:
    windows = Windows(seconds)
    moment = windows.next_answer(time)
    length = seconds * 1000
    assert time <= moment < time + length
    assert moment % length == length // 10
    assert windows.next_answer(moment) == moment


@pytest.mark.parametrize("seconds", [0, -1, 7, 86_401, 172_800])
def test_odd_lengths_are_refused(seconds: int) -> None:
    with pytest.raises(InvalidInput, match="divides a day"):
        Windows(seconds)


def test_a_request_without_a_window_is_closed_at_once() -> None:
    window = Window.at(NOON + 61_234, 0)
    assert window == Window(NOON + 60_000, NOON + 60_000)
    asked = replace(ASKED, opens=window.start, closes=window.close)
    assert show_at(asked, NOON).state == "in_progress"
    done = replace(asked, stage="completed", completed=NOON + 61_500)
    assert show_at(done, NOON + 119_999).state == "in_progress"
    assert show_at(done, NOON + 120_000).answered == NOON + 120_000


def test_another_setting_changes_nothing_that_was_said(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(now() // 86_400_000 * 86_400_000 + 5_000)
    clock.install(monkeypatch)
    with serve_in_process(registry, window=60) as service:
        for person in ("person 3", "nobody"):
            asked = {"people": [{"id": person}]}
            assert service.call("POST", "/api/v1/requests", json=asked).is_success
        moments = [clock.time, clock.time + 55_000, clock.time + 61_000]
    said = []
    for window in (60, 1, 900, 86_400):
        with serve_in_process(registry, window=window) as service:
            if window == 60:
                registry.requests.apply(before=moments[1])
            for moment in moments:
                clock.time = moment
                found = service.call("GET", "/api/v1/requests").json()["requests"]
                ids = [one["id"] for one in found]
                receipts = [
                    service.call("GET", f"/api/v1/requests/{id_}/receipt").status_code
                    for id_ in ids
                ]
                pages = [service.call("GET", f"/requests/{id_}").text for id_ in ids]
                steps = [
                    page.partition('class="timeline"')[2].partition("</ol>")[0]
                    for page in pages
                ]
                assert all("The request came in" in one for one in steps)
                said.append((window, moment, found, receipts, steps))
    first = [one[1:] for one in said if one[0] == 60]
    states = [[one["state"] for one in found] for _, found, _, _ in first]
    assert states == [["pending"] * 2, ["in_progress"] * 2, ["completed"] * 2]
    assert first[-1][2] == [200, 200]
    for window in (1, 900, 86_400):
        assert [one[1:] for one in said if one[0] == window] == first


def test_what_a_setting_of_before_accepted_is_applied_when_it_closes(
    registry: Registry,
) -> None:
    """Not only when the next window of today's setting does, which is tomorrow."""
    with serve_in_process(registry, window=2) as service:
        asked = {"people": [{"id": "person 3"}]}
        sent = service.call("POST", "/api/v1/requests", json=asked).json()
    applier = Applier(registry, Windows(86_400))
    applier.start()
    wait_until(lambda: registry.requests.status(sent["id"]).stage == "completed")
    applier.close(PATIENCE)
    status = registry.requests.status(sent["id"])
    assert status.completed is not None
    assert status.window.close <= status.completed


def test_a_page_offers_to_cancel_only_what_can_be_cancelled(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator may refuse a request while its window is open."""
    clock = Clock(now() // 86_400_000 * 86_400_000 + 5_000)
    clock.install(monkeypatch)
    with serve_in_process(registry, window=900) as service:
        sign_in(service, "admin")
        waiting, refused = (send(service, "admin") for _ in range(2))
        registry.requests.refuse(refused, "unfounded")
        for request, offered in ((waiting, True), (refused, False)):
            page = service.http.get(f"/requests/{request}").text
            assert '"badge pending"' in page
            assert ("Cancel the request" in page) is offered
            answer = service.call("DELETE", f"/api/v1/requests/{request}", "admin")
            assert answer.status_code == (200 if offered else 409)
