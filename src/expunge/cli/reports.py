# SPDX-License-Identifier: Apache-2.0
"""``expunge report``, ``processing``, ``calendar``, ``holds``: for officers."""

from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .options import FOLDER, Folder, ModelName, open_registry
from .output import Result, TextTable, format_count

To = Annotated[
    Path | None,
    typer.Option(
        "--to", "-o", metavar="FILE", help="Write it to a new file: .html or .csv."
    ),
]


class ReportForm(StrEnum):
    """What a report is printed as."""

    text = "text"
    html = "html"
    csv = "csv"


def report(
    *,
    since: Annotated[
        str, typer.Option("--from", metavar="DAY", help="First day, as people asked.")
    ] = "1970-01-01",
    until: Annotated[
        str, typer.Option(metavar="DAY", help="Last day (default: today).")
    ] = "",
    form: Annotated[
        ReportForm, typer.Option("--as", help="What to print.")
    ] = ReportForm.text,
    to: To = None,
    registry: Folder = FOLDER,
) -> Result:
    """Count requests by kind, law, outcome and month, and how long answers took.

    With what was late, extended or refused and why, the yearly figures of the CCPA,
    budgets used and copies outstanding. It says to whom it must not be shown.
    """
    from ..disk import write_new_file
    from ..reports import count_requests_between, report_to_csv, report_to_html
    from ..reports.writing import NOT_FOR, list_figures

    with open_registry(registry) as opened:
        made = count_requests_between(
            opened, since, until=until or date.today().isoformat()
        )
    chosen = form if to is None else ReportForm(to.suffix.lstrip(".") or "text")
    if chosen is ReportForm.text and to is None:
        rows = [(group, name, str(value)) for group, name, value in list_figures(made)]
        table = TextTable(("group", "figure", "value"), rows)
        return Result(made.to_json(), table, [NOT_FOR])
    text = report_to_csv(made) if chosen is ReportForm.csv else report_to_html(made)
    if to is None:
        return Result(made.to_json(), text.rstrip("\n"))
    write_new_file(to, text.encode())
    return Result(made.to_json() | {"file": str(to)}, f"report in {to}", [NOT_FOR])


def processing(name: ModelName, *, to: To = None, registry: Folder = FOLDER) -> Result:
    """Write what a record of processing and a privacy notice can say of a model.

    What only you know is marked for you to fill in.
    """
    from ..disk import write_new_file
    from ..reports import describe_processing

    with open_registry(registry) as opened:
        sheet = describe_processing(opened, name)
    if to is None:
        return Result(sheet.to_json(), sheet.to_html())
    write_new_file(to, sheet.to_html().encode())
    return Result(sheet.to_json() | {"file": str(to)}, f"sheet in {to}")


def calendar(*, to: To = None, registry: Folder = FOLDER) -> Result:
    """Write the days that must not be missed as a file for calendars (.ics).

    Deadlines of requests that wait, ends of holds, and the next deletion lists, each a
    whole day with a reminder a week before. Written again, it moves the same events.
    """
    from ..disk import replace_file
    from ..reports import calendar_to_ics, list_days

    with open_registry(registry) as opened:
        days = [one._asdict() for one in list_days(opened)]
        text = calendar_to_ics(opened)
    if to is None:
        return Result({"days": days}, text.replace("\r\n", "\n").rstrip("\n"))
    replace_file(to, text.encode())
    n = format_count(len(days), "day")
    return Result({"days": days, "file": str(to)}, f"{n} in {to}")


def holds(*, registry: Folder = FOLDER) -> Result:
    """List what is held or restricted, with reason and end.

    Rows that a request keeps sealed apart; no release contains them.
    """
    with open_registry(registry) as opened:
        found = opened.figures.rows_apart()
    rows = [(one.until or "-", one.place, one.reason, one.request) for one in found]
    table = TextTable(("until", "place", "reason", "request"), rows)
    return Result({"holds": [one._asdict() for one in found]}, table)
