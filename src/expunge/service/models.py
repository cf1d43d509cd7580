# SPDX-License-Identifier: Apache-2.0
"""Models: what each promises, what is left of its budget, and the files that leave.

What pages show beside the documents follows from certificates, which are public.
"""

import json
import pathlib
from collections import Counter
from math import exp
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Header, Path, Query, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from ..exceptions import InvalidInput, OneAgreed
from ..ledger.documents import day_of
from ..promise.certificate import Certificate
from ..promise.scope import state_limit
from ..registry import ModelStatus, Registry, ReleaseStatus
from .auth import CanOperate, CanWatch
from .problems import Refused
from .rendering import answer_agreed, go_to, show_page
from .routing import (
    answer_tagged,
    describe_file,
    make_download,
    page_router,
    program_router,
)

api, pages = program_router("models"), page_router()
ModelName = Annotated[str, Field(min_length=1, max_length=100, examples=["churn"])]
Format = Literal["safetensors", "onnx"]
FORMATS: dict[Format, str] = {"safetensors": "safetensors", "onnx": "ONNX"}
BELIEFS = range(0, 101, 5)  # in percent


class ModelOut(BaseModel):
    """A model as it is released now."""

    name: ModelName
    estimator: str = Field(description="Empty if the model must be fitted again.")
    release: int
    made: str = Field(examples=["2026-03-01"])
    n_people: int
    certificate: dict[str, Any]
    releases_left: int | None = Field(description="null if no number was planned.")

    @classmethod
    def of(cls, model: ModelStatus) -> "ModelOut":
        """Return a model as a document."""
        certificate = model.certificate
        planned = certificate.releases
        left = None if planned is None else max(0, planned - certificate.n_releases)
        return cls(
            name=model.name,
            estimator=model.estimator,
            release=model.number,
            made=day_of(model.made),
            n_people=model.n_people,
            certificate=json.loads(certificate.to_json()),
            releases_left=left,
        )


class ModelsOut(BaseModel):
    """All models."""

    models: list[ModelOut]


class ReleaseOut(BaseModel):
    """A release that left, with the names of its files."""

    model: ModelName
    number: int
    certificate: str = Field(description="Digest of its certificate.")
    superseded: str | None
    withdrawn: str | None
    is_outstanding: bool = Field(
        description="Copies are out there that must no longer be used."
    )
    files: list[str]

    @classmethod
    def of(cls, release: ReleaseStatus) -> "ReleaseOut":
        """Return a release as a document."""
        superseded, withdrawn = (
            None if time is None else day_of(time)
            for time in (release.superseded, release.withdrawn)
        )
        return cls(
            model=release.model,
            number=release.number,
            certificate=release.digest,
            superseded=superseded,
            withdrawn=withdrawn,
            is_outstanding=release.is_outstanding,
            files=[name for _, name in release.shipped],
        )


class ReleasesOut(BaseModel):
    """Releases that left the registry."""

    releases: list[ReleaseOut]


class BeliefPoint(NamedTuple):
    """How far a release can move what somebody believes, in percent."""

    before: int
    lowest: float
    highest: float


def move_belief(before: int, odds: float) -> BeliefPoint:
    """Return the beliefs that are possible after a look, but for delta."""
    yes, no = before, 100 - before
    highest = 100 * odds * yes / (odds * yes + no)
    lowest = 100 * yes / (yes + odds * no)
    return BeliefPoint(before, round(lowest, 1), round(highest, 1))


def describe_budget(certificate: Certificate) -> dict[str, Any] | None:
    """Return what a budget means, from its own figures; None if nothing is promised.

    The limit says how often a guess that was 50:50 is right.
    """
    epsilon, delta = certificate.epsilon, certificate.delta
    if certificate.status != "certified" or epsilon is None or delta is None:
        return None
    return {
        "limit": state_limit(epsilon, delta),
        "beliefs": [move_belief(before, exp(epsilon)) for before in BELIEFS],
    }


def find_model(registry: Registry, name: str) -> ModelStatus:
    """Return a model as it is released now; no error quotes a name that is unknown."""
    try:
        return registry.models.status(name)
    except InvalidInput:
        raise Refused(404, "there is no such model; see the list of models") from None


@api.get("/models", response_model=ModelsOut)
@pages.get("/models")
def list_models(caller: CanWatch) -> Any:
    """List the models with the certificates of their newest releases."""
    status = caller.registry.status()
    document = ModelsOut(models=[ModelOut.of(one) for one in status.models])
    if not caller.is_at_page:
        return document
    outstanding = Counter(one.model for one in status.outstanding)
    return show_page(caller, "models", page=document, outstanding=outstanding)


@api.get("/models/{name}", response_model=ModelOut)
@pages.get("/models/{name}")
def show_model(
    name: ModelName, caller: CanWatch, *, if_none_match: Annotated[str, Header()] = ""
) -> Response:
    """Show a model. Its ETag changes with each release."""
    model = find_model(caller.registry, name)
    document = ModelOut.of(model)
    if not caller.is_at_page:
        return answer_tagged(document, if_none_match)
    outstanding = caller.registry.models.outstanding(name)
    return show_page(
        caller,
        "model",
        page=document,
        promise=model.certificate.state_promise(),
        facts=dict((name, text) for name, text in model.certificate.make_card().facts),
        budget=describe_budget(model.certificate),
        outstanding=list(map(ReleaseOut.of, outstanding)),
        formats=FORMATS,
        may_download=caller.may("operate") and bool(model.estimator),
    )


@api.get(
    "/models/{name}/certificate",
    response_class=Response,
    responses=describe_file("The certificate.", "application/json", kind="object"),
)
def show_certificate(name: ModelName, caller: CanWatch) -> Response:
    """Download the certificate of the newest release."""
    text = find_model(caller.registry, name).certificate.to_json()
    return Response(text, media_type="application/json")


@api.get(
    "/models/{name}/release",
    response_class=Response,
    responses=describe_file("The file.", "application/octet-stream"),
)
@pages.post("/models/{name}/release")
async def download_release(
    name: ModelName,
    caller: CanOperate,
    *,
    format: Annotated[Format, Query()] = "safetensors",
) -> Response:
    """Download the newest release. The registry remembers that it left.

    When a newer one supersedes it, the copy must be taken back: see the releases.
    """

    def take() -> bytes:
        find_model(caller.registry, name)
        with TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"{name}.{format}"
            caller.registry.models.ship(name, path)
            return path.read_bytes()

    data = await run_in_threadpool(take)
    await caller.note("download release", name)
    return make_download(data, f"{name}.{format}")


class WantedIn(BaseModel):
    """What somebody has, and how many recommendations they get."""

    items: list[Annotated[str, Field(max_length=200)]] = Field(max_length=10_000)
    k: Annotated[int, Field(ge=1, le=1000)] = 10


class RecommendedOut(BaseModel):
    """Items for somebody, the best first."""

    model: ModelName
    items: list[str]


@api.post("/models/{name}/recommendations", response_model=RecommendedOut)
async def recommend_items(
    name: ModelName, wanted: WantedIn, *, caller: CanOperate
) -> RecommendedOut:
    """Recommend items to somebody who has these. The weights stay in the registry.

    The first answer after a request computes them, which takes seconds where there are
    thousands of items.
    """

    def recommend() -> list[str]:
        find_model(caller.registry, name)
        return caller.registry.models.recommend(name, wanted.items, k=wanted.k)

    return RecommendedOut(model=name, items=await run_in_threadpool(recommend))


@api.get("/releases", response_model=ReleasesOut)
def list_outstanding(caller: CanWatch) -> ReleasesOut:
    """List superseded releases of which copies must be taken back."""
    found = caller.registry.status().outstanding
    return ReleasesOut(releases=[ReleaseOut.of(one) for one in found])


@api.post("/models/{name}/releases/{number}/withdraw", status_code=204)
@pages.post("/models/{name}/releases/{number}/withdraw")
async def withdraw_release(
    name: ModelName,
    number: Annotated[int, Path(ge=1, lt=2**31)],
    *,
    caller: CanOperate,
) -> Response:
    """State in the ledger that every copy of a release was taken back."""

    def withdraw() -> None:
        find_model(caller.registry, name)
        caller.registry.models.withdraw(name, number, by=caller.decides())

    try:
        await run_in_threadpool(withdraw)
    except OneAgreed as error:
        return answer_agreed(caller, f"/models/{name}", error=error)
    await caller.note("withdraw release", f"{name} {number}")
    if caller.is_at_page:
        return go_to(f"/models/{name}", "withdrawn")
    return Response(status_code=204)
