# SPDX-License-Identifier: Apache-2.0
"""Calendar days: reading them, adding months, and spans such as "7d".

A deadline is a day, not a moment, and periods of the law are counted in calendar months
or days. Where a day is in doubt the earlier one counts: a deadline may then be early,
never late.
"""

import re
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta

from ..exceptions import InvalidInput

EARLIEST, LATEST = date(1970, 1, 1), date(9000, 12, 31)
MONTHS_A_YEAR = 12
SATURDAY = 5  # of the days of a week, Monday being 0
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# RFC 3339, seconds optional. datetime.fromisoformat takes more, such as any letter in
# place of T, and what it takes differs between versions of Python.
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]"
    r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?"
    r"(?P<offset>[Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])?"
)
_SPAN = re.compile(r"([0-9]{1,4})([dw])")
_DAYS = {"d": 1, "w": 7}


def add_months(day: date, months: int) -> date:
    """Return the same day some months later, or the last day of a shorter month.

    31 January and one month is 28 or 29 February.
    """
    if type(months) is not int or months < 0:
        raise InvalidInput(f"months={months!r}; give a whole number of months from 0")
    years, month = divmod(day.month - 1 + months, MONTHS_A_YEAR)
    year, month = day.year + years, month + 1
    if year > date.max.year:
        raise InvalidInput(
            f"{months} months after {day:%Y-%m-%d} is after the year {date.max.year}; "
            "give fewer months"
        )
    return date(year, month, min(day.day, monthrange(year, month)[1]))


def parse_day(value: str | date) -> date:
    """Return the day that a date or a timestamp with offset means.

    Of a timestamp, the earlier of the day as it is written and the day in UTC counts:
    the person wrote the one, the operator's clock may show the other.

    Parameters
    ----------
    value
        "2026-03-31", "2026-03-31T23:30:00+02:00", a ``date``, or a ``datetime`` that
        has a time zone. Years are 1970 to 9000.
    """
    is_missing = value != value  # pandas' NaT is a datetime, and equals nothing
    if isinstance(value, datetime) and not is_missing:
        return _day_of(value)
    if isinstance(value, date) and not is_missing:
        return _require_near(value, shown=value)
    if not isinstance(value, str):
        raise InvalidInput(
            f"{_show(value)} is not a day; give text such as 2026-03-31, or a date"
        )
    text = value.strip()
    moment = _MOMENT.fullmatch(text)
    try:
        if _DAY.fullmatch(text):
            return _require_near(date.fromisoformat(text), shown=value)
        if moment is not None:
            if moment["offset"] is None:
                raise _without_offset(value)
            return _day_of(datetime.fromisoformat(text.upper()))
    except InvalidInput:
        raise
    except ValueError:  # such as 30 February
        pass
    raise InvalidInput(
        f"{_show(value)} is not a day of the calendar; give YYYY-MM-DD, or a timestamp "
        "such as 2026-03-31T12:00:00+02:00"
    )


def parse_span(text: object) -> timedelta:
    """Return how long "7d" (days) or "2w" (weeks) is."""
    span = _SPAN.fullmatch(text.strip()) if isinstance(text, str) else None
    if span is None:
        raise InvalidInput(
            f"{_show(text)} is not a span of time; give days or weeks, such as 7d or 2w"
        )
    return timedelta(days=int(span[1]) * _DAYS[span[2]])


def _day_of(moment: datetime) -> date:
    """Return the earlier of a moment's day as written and in UTC."""
    if moment.utcoffset() is None:
        raise _without_offset(moment)
    written = _require_near(moment.date(), shown=moment)  # far ones have no UTC day
    return _require_near(min(written, moment.astimezone(UTC).date()), shown=moment)


def _require_near(day: date, *, shown: object) -> date:
    """Return a day of the years in use, or raise InvalidInput."""
    if not EARLIEST <= day <= LATEST:
        raise InvalidInput(
            f"{_show(shown)} is not between the years {EARLIEST.year} and "
            f"{LATEST.year}; check the date"
        )
    return day


def _without_offset(value: object) -> InvalidInput:
    """Return the error about a timestamp of an unknown place."""
    return InvalidInput(
        f"{_show(value)} has no offset from UTC, so its day is not known; add one, "
        "such as Z or +02:00, or give the day alone"
    )


def _show(value: object) -> str:
    """Return a value as an error shows it."""
    text = repr(str(value)) if isinstance(value, date) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def add_working_days(day: date, days: int) -> date:
    """Return the last of so many working days after a day: Monday to Friday.

    Holidays count as working days, so the result may be early, and is never late.
    """
    left = days
    while left:
        day += timedelta(days=1)
        left -= day.weekday() < SATURDAY
    return day
