# SPDX-License-Identifier: Apache-2.0
"""Routes of models: what is released, and the files that leave."""

import pathlib
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Path, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from ...exceptions import InvalidInput
from ...registry import ModelStatus
from ..access import Operator, Watcher
from ..desk import Desk, Note
from ..problems import Refused
from .documents import (
    PROBLEMS,
    ModelName,
    ModelOut,
    ReleaseOut,
    StrictRoute,
    TheDesk,
    answer_json,
    describe_file,
    is_unchanged,
    make_download,
    tag_content,
)

router = APIRouter(route_class=StrictRoute, tags=["models"], responses=PROBLEMS)
Format = Literal["safetensors", "onnx"]
Number = Annotated[int, Path(ge=1, lt=2**31)]


class ModelsOut(BaseModel):
    """All models."""

    models: list[ModelOut]


class ReleasesOut(BaseModel):
    """Releases that left the registry."""

    releases: list[ReleaseOut]


def find_model(desk: Desk, name: str) -> ModelStatus:
    """Return a model as it is released now."""
    try:
        return desk.registry.models.status(name)
    except InvalidInput:
        raise Refused(404, "there is no such model; see the list of models") from None


@router.get("/models", response_model=ModelsOut)
def list_models(caller: Watcher, *, desk: TheDesk) -> Response:
    """List the models with the certificates of their newest releases."""
    models = desk.registry.status().models
    return answer_json(ModelsOut(models=[ModelOut.of(one) for one in models]))


@router.get("/models/{name}", response_model=ModelOut)
def show_model(
    name: ModelName,
    caller: Watcher,
    *,
    desk: TheDesk,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """Show a model. Its ETag changes with each release."""
    found = ModelOut.of(find_model(desk, name))
    tag = tag_content(found)
    if is_unchanged(if_none_match, tag):
        return Response(status_code=304, headers={"ETag": tag})
    return answer_json(found, headers={"ETag": tag})


@router.get(
    "/models/{name}/certificate",
    response_class=Response,
    responses=describe_file("The certificate.", "application/json", kind="object"),
)
def show_certificate(name: ModelName, caller: Watcher, *, desk: TheDesk) -> Response:
    """Download the certificate of the newest release."""
    text = find_model(desk, name).certificate.to_json()
    return Response(
        text, media_type="application/json", headers={"Cache-Control": "no-store"}
    )


@router.get(
    "/models/{name}/release",
    response_class=Response,
    responses=describe_file("The file.", "application/octet-stream"),
)
async def download_release(
    name: ModelName, caller: Operator, *, desk: TheDesk, format: Format = "safetensors"
) -> Response:
    """Download the newest release. The registry remembers that it left.

    When a newer one supersedes it, the copy must be taken back: see the releases.
    """
    data = await run_in_threadpool(take_release, desk, name, format=format)
    await desk.record(Note(caller.name, "download release", name))
    return make_download(data, f"{name}.{format}")


def take_release(desk: Desk, name: str, *, format: Format) -> bytes:
    """Return the newest release as a file; the registry records that it left."""
    find_model(desk, name)
    with TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"{name}.{format}"
        desk.registry.models.ship(name, path)
        return path.read_bytes()


def withdraw(desk: Desk, name: str, *, number: int) -> None:
    """Record that a release was taken back; no error quotes a name that is unknown."""
    find_model(desk, name)
    desk.registry.models.withdraw(name, number)


@router.get("/releases", response_model=ReleasesOut)
def list_outstanding(caller: Watcher, *, desk: TheDesk) -> Response:
    """List superseded releases of which copies must be taken back."""
    found = desk.registry.status().outstanding
    return answer_json(ReleasesOut(releases=[ReleaseOut.of(one) for one in found]))


@router.post("/models/{name}/releases/{number}/withdraw", status_code=204)
async def withdraw_release(
    name: ModelName, number: Number, *, caller: Operator, desk: TheDesk
) -> Response:
    """State in the ledger that every copy of a release was taken back."""
    await run_in_threadpool(withdraw, desk, name, number=number)
    await desk.record(Note(caller.name, "withdraw release", f"{name} {number}"))
    return Response(status_code=204)
