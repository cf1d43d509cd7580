# SPDX-License-Identifier: Apache-2.0
"""Plans: what a model's budget allows on its rows, for operators alone.

Every figure depends on rows, so nothing of a plan is stored, logged or counted; the
trail has that somebody planned.
"""

from fastapi import APIRouter
from fastapi import Request as Call
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from ..api.models import find_model
from ..problems import Refused
from .planning import Planner, PlanOut, State
from .rendering import PageRoute, go_to, show_page
from .visiting import OperatingVisitor, SignedForm, Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)
NO_BUDGET = (
    "this model was fitted without a budget, so there is nothing to plan; fit it again "
    "with one"
)


class PlanPage(BaseModel):
    """How far the plan of a model is, and what it says."""

    model: str
    release: int
    has_budget: bool
    state: State
    planned_release: int | None
    is_at_work: bool
    plan: PlanOut | None
    problem: str


def find_planner(call: Call) -> Planner:
    """Return what computes plans in this process."""
    planner: Planner = call.app.state.planner
    return planner


def read_plan(visitor: Visitor, name: str) -> PlanPage:
    """Return the plan of a model, as far as it is."""
    model, planner = find_model(visitor.desk, name), find_planner(visitor.call)
    is_at_work = planner.is_at_work  # before the look, which may find it just done
    found = planner.find(name, model.number)
    has_budget = model.certificate.epsilon is not None
    return PlanPage(
        model=name,
        release=model.number,
        has_budget=has_budget,
        state=found.state,
        planned_release=found.release,
        is_at_work=is_at_work and found.state != "computing",
        plan=found.plan,
        problem=found.problem if has_budget else NO_BUDGET,
    )


def start_plan(visitor: Visitor, name: str) -> None:
    """Begin to plan for the newest release of a model."""
    model = find_model(visitor.desk, name)
    if model.certificate.epsilon is None:
        raise Refused(422, NO_BUDGET)
    # The release is read before the rows are: a plan is never taken for a later one's.
    find_planner(visitor.call).start(name, model.number)


@router.get("/models/{name}/plan")
@router.get("/models/{name}/plan.json")
async def show_plan(name: str, visitor: OperatingVisitor) -> Response:
    """Show the plan of a model."""
    page = await run_in_threadpool(read_plan, visitor, name)
    return show_page(visitor, page, template="plan")


@router.post("/models/{name}/plan")
async def compute_plan(
    name: str, visitor: OperatingVisitor, *, form: SignedForm
) -> Response:
    """Begin to compute the plan of a model."""
    await run_in_threadpool(start_plan, visitor, name)
    await visitor.note("plan", name)
    return go_to(f"/models/{name}/plan")
