# SPDX-License-Identifier: Apache-2.0
"""Plans: what a model's budget allows on its rows, for operators alone.

One plan at a time is computed, in a thread of its own. Every figure depends on rows, so
nothing of a plan is stored, logged or counted; the trail has that somebody planned.
Figures are kept in memory, without any radius, and only for the release they were
computed at: with the next one somebody may have left, on whom they depended, and they
are dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock, Thread
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter
from fastapi import Request as Call
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from ...exceptions import Busy, ExpungeError, Unsupported
from ...registry import Registry
from ..api.models import find_model
from ..logs import log_failure
from ..problems import Refused
from .rendering import PageRoute, go_to, show_page
from .visiting import OperatingVisitor, SignedForm, Visitor

if TYPE_CHECKING:
    from ...plan import PlanReport
    from ...plan.removals import RemovalLimit

State = Literal["none", "computing", "ready", "outdated", "failed"]
# Multiples of the budget's sigma; half and double are what the advice is about.
HALF, SAME, DOUBLE = 0.5, 1.0, 2.0
FACTORS = (0.1, 0.3, HALF, SAME, DOUBLE, 3.0, 10.0)
ORDERS = {
    "typical": "at random",
    "clustered": "with their nearest neighbours",
    "worst": "in the hardest order found",
}
BUSY = "the registry was busy; try again in a minute"
FAILED = (
    "the plan could not be computed; run expunge plan on the command line, which says "
    "why"
)
router = APIRouter(route_class=PageRoute, include_in_schema=False)
NO_BUDGET = (
    "this model was fitted without a budget, so there is nothing to plan; fit it again "
    "with one"
)


class LimitOut(BaseModel):
    """How many rows may leave in some order."""

    order: str
    without_rows: int
    with_rows: int
    then: str


class ScoreOut(BaseModel):
    """How good releases are under a sigma, and how many rows it lets leave."""

    sigma: float
    score: float
    lowest: float
    at_random: int | None
    hardest: int | None


class PlanOut(BaseModel):
    """What a budget allows on the rows of a model, without any radius."""

    n_rows: int
    sigma: float
    metric: str
    noise_free: float
    limits: list[LimitOut]
    scores: list[ScoreOut]
    advice: list[str]
    not_covered: list[str]

    @classmethod
    def of(cls, report: "PlanReport") -> "PlanOut":
        """Return what a page may show of a plan."""
        limits: dict[str, RemovalLimit] = {one.kind: one for one in report.limits}
        scores = [
            ScoreOut(
                sigma=one.sigma,
                score=one.score,
                lowest=one.lowest,
                at_random=one.typical,
                hardest=one.worst,
            )
            for one in report.noised
        ]
        return cls(
            n_rows=report.n_samples,
            sigma=report.budget.sigma,
            metric=report.metric,
            noise_free=report.noise_free.score,
            limits=[
                LimitOut(
                    order=words,
                    without_rows=limits[kind].without_rows,
                    with_rows=limits[kind].with_rows,
                    then=limits[kind].then,
                )
                for kind, words in ORDERS.items()
            ],
            scores=scores,
            advice=advise(dict(zip(FACTORS, scores, strict=True)), report.metric),
            not_covered=list(report.not_covered),
        )


def advise(scores: Mapping[float, ScoreOut], metric: str) -> list[str]:
    """Return what half and double the noise would cost, the promise being the same."""
    same, advice = scores[SAME], []
    for words, factor in (("half", HALF), ("double", DOUBLE)):
        other = scores[factor]
        cost = (
            f"With {words} the noise (sigma {other.sigma:g}) the {metric} would be "
            f"{other.score:.3f} on average instead of {same.score:.3f}"
        )
        advice.append(f"{cost}, and {compare_removals(other, same)}.")
    return advice


def compare_removals(other: ScoreOut, same: ScoreOut) -> str:
    """Return in words how many rows could leave under another sigma."""
    if other.hardest is None:
        return "no release could be certified"
    if other.hardest == same.hardest:
        return f"as many rows as now, {same.hardest}, could leave in the hardest order"
    return (
        f"{other.hardest} rows instead of {same.hardest} could leave in the hardest "
        "order"
    )


@dataclass(frozen=True, slots=True, repr=False)
class PlanFound:
    """How far the plan of a model is.

    Parameters
    ----------
    state
        In a word.
    release
        At which the plan was begun; None if there is none.
    plan, problem
        The figures of a plan that is ready, or why it failed.
    """

    state: State
    release: int | None = None
    plan: PlanOut | None = None
    problem: str = ""


class Planner:
    """Computes plans, one at a time, and keeps those of the newest releases.

    Parameters
    ----------
    registry
        With the models.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lock = Lock()
        self._at_work = ""  # the model whose plan is computed
        self._found: dict[str, PlanFound] = {}

    @property
    def is_at_work(self) -> bool:
        """Whether a plan is computed now."""
        return bool(self._at_work)

    def start(self, name: str, release: int) -> None:
        """Begin to plan for a model, unless its plan is computed already."""
        with self._lock:
            if self._at_work == name:
                return
            if self._at_work:
                raise Refused(
                    409, "another model's plan is being computed; wait until it is done"
                )
            self._at_work = name
            self._found[name] = PlanFound("computing", release)
        # It writes nothing, so the service need not wait for it in order to end.
        Thread(
            target=self._run, args=(name, release), name="planning", daemon=True
        ).start()

    def find(self, name: str, release: int) -> PlanFound:
        """Return how far the plan for the newest release of a model is."""
        with self._lock:
            found = self._found.get(name, PlanFound("none"))
            if found.state == "ready" and found.release != release:
                found = self._found[name] = PlanFound("outdated", found.release)
            return found

    def _run(self, name: str, release: int) -> None:
        found = self._compute(name, release)
        with self._lock:
            self._at_work = ""
            self._found[name] = found

    def _compute(self, name: str, release: int) -> PlanFound:
        """Return a plan, or why there is none; the text of most errors is not shown."""
        from ...plan import PlanOptions  # it takes a while to import

        try:
            options = PlanOptions(factors=FACTORS, silent=True)
            report = self._registry.models.plan(name, options)
            return PlanFound("ready", release, PlanOut.of(report))
        except Unsupported as error:  # says which mechanism it is, and what to do
            return PlanFound("failed", release, problem=str(error))
        except Busy:
            return PlanFound("failed", release, problem=BUSY)
        except ExpungeError:
            return PlanFound("failed", release, problem=FAILED)
        except Exception as error:
            log_failure(None, error)
            return PlanFound("failed", release, problem=FAILED)


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
