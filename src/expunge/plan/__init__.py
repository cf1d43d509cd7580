# SPDX-License-Identifier: Apache-2.0
"""Plan: what a budget allows on given rows, before you commit to it."""

from .planning import PlanningLooksAtData, PlanOptions, plan, plan_model
from .removals import ReleaseScore, RemovalLimit, removal_orders
from .report import PlanReport

__all__ = [
    "PlanOptions",
    "PlanReport",
    "PlanningLooksAtData",
    "ReleaseScore",
    "RemovalLimit",
    "plan",
    "plan_model",
    "removal_orders",
]
