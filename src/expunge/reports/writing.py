# SPDX-License-Identifier: Apache-2.0
"""Writing: a report as a page for print, and as a table."""

import csv
import io
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..exceptions import needing
from ..rights.standing import OUTCOME_WORDS, REASONS
from .counting import Report

with needing("cli", "a report"):
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

NOT_FOR = (
    "For the operator, the data protection officer and the authority. Do not publish "
    "it or show it to people who send requests: where a count is small, it can tell "
    "whether one person was known. The yearly figures for the CCPA are meant to be "
    "published, once a year and for all of it."
)
"""To whom a report must not be shown."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@cache
def environment() -> Environment:
    """Return the templates of reports and sheets."""
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def list_figures(report: Report) -> Iterator[tuple[str, str, object]]:
    """Yield the figures of a report in order: a group, a name, and a value."""
    counts = {
        "received": report.n_requests,
        "open": report.n_open,
        "taken back": report.n_cancelled,
        "answered": report.n_answered,
        "answered late": report.n_late,
        "overdue": report.n_overdue,
        "extended": report.n_extended,
        "median days to answer": _spell(report.median_days),
    }
    groups: Mapping[str, Mapping[str, Any]] = {
        "requests": counts,
        "by kind": report.by_right,
        "by law": report.by_regime,
        "by outcome": {
            OUTCOME_WORDS.get(word, word): n for word, n in report.by_outcome.items()
        },
        "by month": report.by_month,
        "refused": {REASONS[word]: n for word, n in report.refused.items()},
        **{
            f"CCPA, {words}": {
                "received": one.received,
                "complied with in whole or in part": one.complied,
                "denied": one.denied,
                "median days to answer": _spell(one.median_days),
            }
            for words, one in report.ccpa.items()
            if one.received
        },
        "releases of models": {
            one.name: f"{one.n_releases} of {one.planned}"
            if one.planned is not None
            else one.n_releases
            for one in report.models
        },
        "copies outstanding": {
            one.name: ", ".join(one.copies) for one in report.models if one.copies
        },
    }
    for group, figures in groups.items():
        for name, value in figures.items():
            yield group, name, value


def _spell(days: float | None) -> str:
    return "none yet" if days is None else f"{days:g}"


def report_to_csv(report: Report) -> str:
    """Return a report as CSV, in which no cell is taken for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "figure", "value"])
    rows: list[tuple[str, str, object]] = [
        ("period", "from", report.since),
        ("period", "until", report.until),
        *list_figures(report),
        ("note", "", NOT_FOR),
    ]
    for row in rows:
        writer.writerow([_plain(cell) for cell in row])
    return text.getvalue()


def _plain(cell: object) -> object:
    """Return a cell that a spreadsheet takes for text, if it is text."""
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return f"'{cell}"
    return cell


def report_to_html(report: Report) -> str:
    """Return a report as one HTML file, for a screen and for print."""
    groups: dict[str, list[tuple[str, object]]] = {}
    for group, name, value in list_figures(report):
        groups.setdefault(group, []).append((name, value))
    template = environment().get_template("report.html.j2")
    return template.render(report=report, groups=groups, not_for=NOT_FOR)
