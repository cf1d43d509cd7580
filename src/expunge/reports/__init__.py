# SPDX-License-Identifier: Apache-2.0
"""Reports: how requests were answered in a period, and how a model processes data."""

from .calendar import calendar_to_ics, list_days
from .counting import Report, count_requests_between
from .sheets import describe_processing
from .writing import report_to_csv, report_to_html

__all__ = [
    "Report",
    "calendar_to_ics",
    "count_requests_between",
    "describe_processing",
    "list_days",
    "report_to_csv",
    "report_to_html",
]
