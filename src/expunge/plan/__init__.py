# SPDX-License-Identifier: Apache-2.0
"""Plan: what a contract allows on given rows, before anyone signs it."""

from .orders import removal_orders
from .reach import Reach
from .report import PlanReport
from .scores import Scored
from .study import Options, PlanningLooksAtData, plan

__all__ = [
    "Options",
    "PlanReport",
    "PlanningLooksAtData",
    "Reach",
    "Scored",
    "plan",
    "removal_orders",
]
