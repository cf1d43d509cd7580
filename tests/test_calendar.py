# SPDX-License-Identifier: Apache-2.0
"""Days and deadlines: what was written counts early, and never late."""

import calendar
import datetime as dt
from dataclasses import FrozenInstanceError
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.rights import (
    REGIMES,
    Period,
    Regime,
    add_months,
    deadline,
    extended_deadline,
    legal_basis,
    parse_day,
    parse_span,
    regime_named,
)
from expunge.rights.calendar import EARLIEST, LATEST
from expunge.rights.standing import RIGHTS

DAY = dt.timedelta(days=1)
days = st.dates(EARLIEST, LATEST)
offsets = st.integers(-14 * 60, 14 * 60)


def zone(minutes: int) -> dt.timezone:
    return dt.timezone(dt.timedelta(minutes=minutes))


def day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


class TestAddMonths:
    @pytest.mark.parametrize(
        ("start", "months", "end"),
        [
            ("2026-01-31", 1, "2026-02-28"),
            ("2024-01-31", 1, "2024-02-29"),
            ("1900-01-31", 1, "1900-02-28"),
            ("2000-01-31", 1, "2000-02-29"),
            ("2026-01-28", 1, "2026-02-28"),
            ("2026-02-28", 1, "2026-03-28"),
            ("2024-02-29", 12, "2025-02-28"),
            ("2024-02-29", 48, "2028-02-29"),
            ("2026-03-31", 1, "2026-04-30"),
            ("2026-12-31", 2, "2027-02-28"),
            ("2026-11-16", 0, "2026-11-16"),
            ("2026-11-30", 1, "2026-12-30"),
        ],
    )
    def test_ends_of_months(self, start: str, months: int, end: str) -> None:
        assert add_months(day(start), months) == day(end)

    @given(days, st.integers(0, 1200))
    def test_is_the_same_day_or_the_last(self, start: dt.date, months: int) -> None:
        end = add_months(start, months)
        passed = (end.year - start.year) * 12 + end.month - start.month
        assert passed == months
        last = calendar.monthrange(end.year, end.month)[1]
        assert end.day == start.day or end.day == last < start.day

    @given(days, st.integers(0, 120), st.integers(0, 120))
    def test_steps_are_never_later(self, start: dt.date, first: int, then: int) -> None:
        stepwise = add_months(add_months(start, first), then)
        assert stepwise <= add_months(start, first + then)

    @given(days, days, st.integers(0, 120))
    def test_keeps_the_order(self, a: dt.date, b: dt.date, months: int) -> None:
        early, late = sorted((a, b))
        assert add_months(early, months) <= add_months(late, months)

    @pytest.mark.parametrize("months", [-1, 1.0, True, "1", None])
    def test_months_are_counted(self, months: Any) -> None:
        with pytest.raises(InvalidInput, match="whole number of months"):
            add_months(day("2026-01-31"), months)

    def test_calendar_ends(self) -> None:
        assert add_months(dt.date(9999, 11, 30), 1) == dt.date(9999, 12, 30)
        with pytest.raises(InvalidInput, match="give fewer months"):
            add_months(dt.date(9999, 12, 1), 1)


class TestParseDay:
    @pytest.mark.parametrize(
        ("value", "meant"),
        [
            ("2026-03-31", "2026-03-31"),
            (" 2024-02-29 ", "2024-02-29"),
            (dt.date(2026, 3, 31), "2026-03-31"),
            # In UTC it is still the day before: that counts.
            ("2026-03-31T00:30:00+02:00", "2026-03-30"),
            # In UTC it is the next day already: the day as written counts.
            ("2026-03-31T23:30:00-08:00", "2026-03-31"),
            ("2026-03-31T12:00:00Z", "2026-03-31"),
            ("2026-03-31t12:00:00z", "2026-03-31"),
            ("2026-03-31 12:00+0200", "2026-03-31"),
            ("2026-03-31T12:00:00.123456789-00:00", "2026-03-31"),
            ("2024-03-01T00:00:00+00:01", "2024-02-29"),
            (dt.datetime(2026, 3, 31, 1, tzinfo=zone(120)), "2026-03-30"),
            (dt.datetime(2026, 3, 31, 23, tzinfo=zone(-120)), "2026-03-31"),
            (pd.Timestamp("2026-03-31T01:00:00+02:00"), "2026-03-30"),
            ("1970-01-01", "1970-01-01"),
            ("9000-12-31", "9000-12-31"),
        ],
    )
    def test_earlier_day_counts(self, value: str | dt.date, meant: str) -> None:
        found = parse_day(value)
        assert found == day(meant)
        assert type(found) is dt.date

    @given(st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(8999, 1, 1)), offsets)
    def test_is_never_late(self, clock: dt.datetime, minutes: int) -> None:
        moment = clock.replace(tzinfo=zone(minutes))
        utc = moment.astimezone(dt.UTC).date()
        for value in (moment, moment.isoformat(), moment.isoformat(" ")):
            found = parse_day(value)
            assert found in (utc, clock.date())
            assert found <= utc and found <= clock.date()

    @given(days)
    def test_day_is_itself(self, value: dt.date) -> None:
        assert parse_day(value) == parse_day(value.isoformat()) == value

    @pytest.mark.parametrize(
        "value",
        [
            "2026-03-31T12:00:00",
            "2026-03-31 12:00",
            dt.datetime(2026, 3, 31, 12),
        ],
    )
    def test_needs_an_offset(self, value: str | dt.date) -> None:
        with pytest.raises(InvalidInput, match="no offset from UTC") as refused:
            parse_day(value)
        assert "2026-03-31" in str(refused.value)

    @pytest.mark.parametrize(
        "value",
        [
            "1969-12-31",
            "0001-01-01",
            "9001-01-01",
            dt.date.min,
            dt.date.max,
            dt.datetime.min.replace(tzinfo=zone(60)),
            dt.datetime.max.replace(tzinfo=zone(-60)),
            # 1969 in UTC.
            "1970-01-01T00:00:00+14:00",
        ],
    )
    def test_is_near(self, value: str | dt.date) -> None:
        with pytest.raises(InvalidInput, match="between the years 1970 and 9000"):
            parse_day(value)

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "2026-02-30",
            "2026-13-01",
            "2026-3-1",
            "31.03.2026",
            "03/31/2026",
            "20260331",
            "2026-W14-2",
            "2026-03-31x12:00:00Z",
            "2026-03-31T24:00:00Z",
            "2026-03-31T12:60:00Z",
            "2026-03-31T12:00:00+24:00",
            "2026-02-30T12:00:00Z",
            "\u0662026-03-31",
            "2026-03-31\nx",
            "yesterday " * 20,
        ],
    )
    def test_is_spelled_one_way(self, value: str) -> None:
        with pytest.raises(InvalidInput, match="YYYY-MM-DD") as refused:
            parse_day(value)
        assert len(str(refused.value)) < 200

    @pytest.mark.parametrize(
        "value", [True, 0, 20260331, 1.5, None, b"2026-03-31", pd.NaT]
    )
    def test_is_no_number(self, value: Any) -> None:
        with pytest.raises(InvalidInput, match="is not a day; give text"):
            parse_day(value)


class TestParseSpan:
    @pytest.mark.parametrize(
        ("text", "length"), [("7d", 7), ("0d", 0), (" 2w ", 14), ("9999d", 9999)]
    )
    def test_days_and_weeks(self, text: str, length: int) -> None:
        assert parse_span(text) == length * DAY

    @pytest.mark.parametrize(
        "text", ["", "7", "d", "7 d", "-7d", "7D", "1m", "1.5d", "12345d", 7, None]
    )
    def test_nothing_else(self, text: Any) -> None:
        with pytest.raises(InvalidInput, match="such as 7d or 2w"):
            parse_span(text)


class TestRegimes:
    @pytest.mark.parametrize(
        ("asked", "regime", "first", "extended"),
        [
            ("2026-01-31", "gdpr", "2026-02-28", "2026-04-28"),
            ("2024-01-31", "uk-gdpr", "2024-02-29", "2024-04-29"),
            ("2026-11-16", "gdpr", "2026-12-16", "2027-02-16"),
            # A Saturday, and a holiday: not moved.
            ("2026-11-14", "gdpr", "2026-12-14", "2027-02-14"),
            ("2026-11-25", "gdpr", "2026-12-25", "2027-02-25"),
            ("2026-01-31", "ccpa", "2026-03-17", "2026-05-01"),
            ("2024-01-31", "ccpa", "2024-03-16", "2024-04-30"),
            ("2026-03-31T00:30:00+02:00", "gdpr", "2026-04-30", "2026-06-30"),
        ],
    )
    def test_deadlines(
        self, asked: str, *, regime: str, first: str, extended: str
    ) -> None:
        law = regime_named(regime)
        assert deadline(asked, law) == day(first)
        assert extended_deadline(asked, law) == day(extended)

    @given(days)
    def test_extension_is_never_later_than_from_the_day_asked(
        self, asked: dt.date
    ) -> None:
        for name in ("gdpr", "uk-gdpr"):
            law = regime_named(name)
            assert deadline(asked, law) == add_months(asked, 1)
            assert deadline(asked, law) < extended_deadline(asked, law)
            assert extended_deadline(asked, law) <= add_months(asked, 3)
        assert extended_deadline(asked, regime_named("ccpa")) == asked + 90 * DAY

    def test_table(self) -> None:
        assert tuple(REGIMES) == (
            *("gdpr", "uk-gdpr", "ccpa", "drop", "swiss"),
            *("lgpd", "dpdp", "pdpa-sg", "pdpa-th"),
        )
        assert all(name == regime.name for name, regime in REGIMES.items())
        assert len({regime.title for regime in REGIMES.values()}) == len(REGIMES)
        with pytest.raises(TypeError):
            REGIMES["gdpr"] = REGIMES["ccpa"]  # type: ignore[index]
        with pytest.raises(FrozenInstanceError):
            REGIMES["gdpr"].first = Period(days=99)  # type: ignore[misc]

    @pytest.mark.parametrize("name", ["GDPR", "", "pdpa", None, ["gdpr"]])
    def test_unknown_regime_is_refused(self, name: Any) -> None:
        with pytest.raises(InvalidInput, match="choose one of gdpr, uk-gdpr, ccpa"):
            regime_named(name)

    @pytest.mark.parametrize(
        ("right", "references"),
        [
            (
                "erase",
                (
                    *("GDPR Art. 17", "UK GDPR Art. 17", "CCPA 1798.105"),
                    *("Cal. Civ. Code 1798.99.86", "FADP Art. 32(2)(c)"),
                    *("LGPD Art. 18", "DPDP s. 12", None, "PDPA (Thailand) s. 33"),
                ),
            ),
            (
                "rectify",
                (
                    *("GDPR Art. 16", "UK GDPR Art. 16", "CCPA 1798.106", None),
                    *("FADP Art. 32(1)", "LGPD Art. 18(III)", "DPDP s. 12"),
                    *("PDPA (Singapore) s. 22", "PDPA (Thailand) s. 36"),
                ),
            ),
            *(
                (
                    right,
                    (
                        *("GDPR Art. 18", "UK GDPR Art. 18", None, None),
                        *("FADP Art. 32(2)(a)", "LGPD Art. 18(IV)", None, None),
                        "PDPA (Thailand) s. 34",
                    ),
                )
                for right in ("restrict", "lift")
            ),
            (
                "object",
                (
                    *("GDPR Art. 21", "UK GDPR Art. 21", None, None),
                    *("FADP Art. 30(2)(b)", "LGPD Art. 18(2)", None, None),
                    "PDPA (Thailand) s. 32",
                ),
            ),
            ("hold", (None,) * 9),
            ("end-hold", (None,) * 9),
        ],
    )
    def test_basis(self, right: str, references: tuple[str | None, ...]) -> None:
        found = tuple(legal_basis(right, regime) for regime in REGIMES.values())
        assert found == references

    def test_unknown_right_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match=f"give one of {', '.join(RIGHTS)}"):
            legal_basis("portability", regime_named("gdpr"))

    def test_says_which_periods_are_ours(self) -> None:
        ours = {name for name, law in REGIMES.items() if not law.is_known}
        assert ours == {"swiss", "lgpd", "dpdp", "pdpa-sg", "pdpa-th"}
        asked = day("2026-03-01")
        for name, law in REGIMES.items():
            first = deadline(asked, law)
            assert first == asked + 30 * DAY if name in ours else first > asked
            if law.extension is None:
                with pytest.raises(InvalidInput, match="no extension is known under"):
                    extended_deadline(asked, law)

    def test_regimes_can_be_added(self) -> None:
        law = Regime("x", "X", Period(months=1, days=2), Period(days=3), ())
        assert deadline("2026-01-31", law) == day("2026-03-02")
        assert extended_deadline("2026-01-31", law) == day("2026-03-05")
