# SPDX-License-Identifier: Apache-2.0
"""Opening: what is private, for the operator and an auditor to see."""

import numpy as np

from ..audit import Case
from ..budget import Budget
from ..exceptions import InvalidInput
from ..linear_model.holdings import NOBODY
from ..plan import PlanReport, plan
from ..record import Record
from .site import WAIT, Site


def record_of(site: Site, name: str) -> Record:
    """Return the record behind the newest release of a model."""
    with site.working(WAIT):
        record: Record = site.held(name).model.record_
    return record


def case_of(site: Site, name: str) -> Case:
    """Return the removal of the first row that is left, to be put on trial."""
    with site.working(WAIT):
        return _case(site, name)[0]


def plan_of(site: Site, name: str) -> PlanReport:
    """Return how many removals the contract of a model allows, run on its rows."""
    with site.working(WAIT):
        case, budget = _case(site, name)
    if budget is None:
        raise InvalidInput(
            f"model {name!r} was fitted without a contract, so there is nothing to "
            "plan; fit it with a budget"
        )
    return plan(case.objective, case.rows, budget, case.mechanism)


def _case(site: Site, name: str) -> tuple[Case, Budget | None]:
    """Return the case of a model, and its contract, with the lock held."""
    holdings = site.held(name).holdings
    rows, custody = holdings.remaining(NOBODY), holdings.custody
    first = np.array([0], dtype=np.intp)
    objective = custody.objective_for(rows)
    return Case(objective, rows, first, custody.mechanism), custody.budget
