# SPDX-License-Identifier: Apache-2.0
"""Plan: what a contract allows on given rows, before anyone signs it."""

from .removals import Reach, Scored, removal_orders
from .study import Options, PlanningLooksAtData, PlanReport, plan

__all__ = [
    "Options",
    "PlanReport",
    "PlanningLooksAtData",
    "Reach",
    "Scored",
    "plan",
    "removal_orders",
]
