# SPDX-License-Identifier: Apache-2.0
"""Plan: which budget to take, and what it allows, before you commit to it."""

from .advise import Advice, suggest_budget
from .planning import PlanningLooksAtData, PlanOptions, plan, plan_model
from .removals import ReleaseScore, RemovalLimit, removal_orders
from .report import PlanReport
from .trials import SigmaTrial

__all__ = [
    "Advice",
    "PlanOptions",
    "PlanReport",
    "PlanningLooksAtData",
    "ReleaseScore",
    "RemovalLimit",
    "SigmaTrial",
    "plan",
    "plan_model",
    "removal_orders",
    "suggest_budget",
]
