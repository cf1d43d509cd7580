# SPDX-License-Identifier: Apache-2.0
"""What a sender sees depends on when a request came, not on how long it took."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.registry import RequestStatus
from expunge.service.windows import Windows

QUARTER = Windows(900)
NOON = 1_800_000_000_000 - 1_800_000_000_000 % 900_000
ASKED = RequestStatus("0" * 32, "accepted", NOON + 60_000, NOON + 10**9, None, 1)
TIMES = st.integers(0, 4 * 10**12)


def complete(after: int) -> RequestStatus:
    return replace(ASKED, stage="completed", completed=ASKED.accepted + after)


def test_a_request_is_pending_until_its_window_closes() -> None:
    for time in (NOON + 60_000, NOON + 899_999):
        assert QUARTER.show(ASKED, time).state == "pending"
    assert QUARTER.show(ASKED, NOON + 900_000).state == "in_progress"


def test_a_request_that_was_refused_at_once_still_looks_pending() -> None:
    assert QUARTER.show(complete(1), NOON + 61_000).state == "pending"


def test_answers_are_shown_at_one_moment_however_long_they_took() -> None:
    moments = set()
    for took in (840_000, 841_000, 900_000, 929_999):
        status = complete(took)
        assert QUARTER.show(status, NOON + 989_999).state == "in_progress"
        shown = QUARTER.show(status, NOON + 990_000)
        assert shown.state == "completed"
        moments.add(shown.answered)
    assert moments == {NOON + 990_000}


def test_a_slow_batch_is_shown_with_a_later_window() -> None:
    slow = complete(990_001 - 60_000)
    assert QUARTER.show(slow, NOON + 1_889_999).state == "in_progress"
    assert QUARTER.show(slow, NOON + 1_890_000).answered == NOON + 1_890_000


def test_a_cancelled_request_is_shown_at_once() -> None:
    cancelled = replace(ASKED, stage="cancelled")
    assert QUARTER.show(cancelled, NOON + 60_001).state == "cancelled"


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
