# SPDX-License-Identifier: Apache-2.0
"""Models: what each promises, what is left of its budget, and copies to take back.

Everything here follows from certificates, which are public.
"""

from math import exp

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from ...promise.certificate import Certificate
from ...promise.scope import state_limit
from ...registry import ModelStatus
from ..api.documents import ModelOut, ReleaseOut, make_download
from ..api.models import Format, find_model, take_release
from ..desk import Desk
from ..problems import Refused
from .rendering import PageRoute, go_to, show_page
from .visiting import OperatingVisitor, SignedForm, WatchingVisitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)
FORMATS: dict[Format, str] = {"safetensors": "safetensors", "onnx": "ONNX"}
BELIEFS = range(0, 101, 5)  # in percent


class BeliefPoint(BaseModel):
    """How far a release can move what somebody believes, in percent."""

    before: int
    lowest: float
    highest: float


class BudgetOut(BaseModel):
    """What a budget means, from its own figures alone."""

    epsilon: float
    delta: float
    sigma: float
    limit: str = Field(description="How often a guess that was 50:50 is right.")
    used: int
    planned: int | None
    beliefs: list[BeliefPoint]

    @classmethod
    def of(cls, certificate: Certificate) -> "BudgetOut | None":
        """Return the budget of a certificate; None if nothing is promised."""
        epsilon, delta = certificate.epsilon, certificate.delta
        if certificate.status != "certified" or epsilon is None or delta is None:
            return None
        planned, sigma = certificate.releases, certificate.sigma
        assert sigma is not None
        return cls(
            epsilon=epsilon,
            delta=delta,
            sigma=sigma,
            limit=state_limit(epsilon, delta),
            used=certificate.n_releases,
            planned=planned,
            beliefs=[move_belief(before, exp(epsilon)) for before in BELIEFS],
        )


def move_belief(before: int, odds: float) -> BeliefPoint:
    """Return the beliefs that are possible after a look, but for delta."""
    yes, no = before, 100 - before
    highest = 100 * odds * yes / (odds * yes + no)
    lowest = 100 * yes / (yes + odds * no)
    return BeliefPoint(
        before=before, lowest=round(lowest, 1), highest=round(highest, 1)
    )


class ModelLine(BaseModel):
    """A model in the list."""

    model: ModelOut
    promise: str
    n_outstanding: int


class ModelsPage(BaseModel):
    """All models."""

    models: list[ModelLine]


class ModelPage(BaseModel):
    """One model."""

    model: ModelOut
    promise: str
    facts: dict[str, str]
    budget: BudgetOut | None
    outstanding: list[ReleaseOut]
    formats: dict[Format, str]
    may_download: bool


def list_models(desk: Desk) -> ModelsPage:
    """Return all models."""
    status = desk.registry.status()
    out = [one.model for one in status.outstanding]
    return ModelsPage(
        models=[
            ModelLine(
                model=ModelOut.of(one),
                promise=one.certificate.state_promise(),
                n_outstanding=out.count(one.name),
            )
            for one in status.models
        ]
    )


def read_model(desk: Desk, name: str, *, may_download: bool) -> ModelPage:
    """Return one model."""
    model: ModelStatus = find_model(desk, name)
    card = model.certificate.make_card()
    return ModelPage(
        model=ModelOut.of(model),
        promise=model.certificate.state_promise(),
        facts=dict((name, text) for name, text in card.facts),
        budget=BudgetOut.of(model.certificate),
        outstanding=list(map(ReleaseOut.of, desk.registry.models.outstanding(name))),
        formats=FORMATS,
        may_download=may_download and bool(model.estimator),
    )


@router.get("/models")
@router.get("/models.json")
async def show_models(visitor: WatchingVisitor) -> Response:
    """Show all models."""
    page = await run_in_threadpool(list_models, visitor.desk)
    return show_page(visitor, page, template="models")


@router.get("/models/{name}")
@router.get("/models/{name}.json")
async def show_model(name: str, visitor: WatchingVisitor) -> Response:
    """Show one model."""

    def read() -> ModelPage:
        return read_model(visitor.desk, name, may_download=visitor.may("operate"))

    return show_page(visitor, await run_in_threadpool(read), template="model")


@router.post("/models/{name}/release")
async def download_release(
    name: str, visitor: OperatingVisitor, *, form: SignedForm
) -> Response:
    """Hand out the newest release, and record that it left."""
    wanted = next((one for one in FORMATS if one == form.text("format")), None)
    if wanted is None:
        raise Refused(422, f"choose one of {', '.join(FORMATS)}")
    data = await run_in_threadpool(take_release, visitor.desk, name, format=wanted)
    await visitor.note("download release", name)
    return make_download(data, f"{name}.{wanted}")


@router.post("/models/{name}/withdraw")
async def withdraw_release(
    name: str, visitor: OperatingVisitor, *, form: SignedForm
) -> Response:
    """State that every copy of a release was taken back."""
    number = form.number("number")
    await run_in_threadpool(visitor.desk.registry.models.withdraw, name, number)
    await visitor.note("withdraw release", f"{name} {number}")
    return go_to(f"/models/{name}", "withdrawn")
