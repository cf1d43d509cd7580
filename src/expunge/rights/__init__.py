# SPDX-License-Identifier: Apache-2.0
"""People's rights without a store: days and deadlines, regimes, and identifiers.

Pure functions and frozen values that know nothing of models or databases. They describe
what the software counts and compares; they are not legal advice.
"""

from .calendar import add_months, parse_day, parse_span
from .identifiers import Identifier, parse_identifier
from .regimes import (
    REGIMES,
    Period,
    Regime,
    deadline,
    extended_deadline,
    legal_basis,
    regime_named,
)

__all__ = [
    "REGIMES",
    "Identifier",
    "Period",
    "Regime",
    "add_months",
    "deadline",
    "extended_deadline",
    "legal_basis",
    "parse_day",
    "parse_identifier",
    "parse_span",
    "regime_named",
]
