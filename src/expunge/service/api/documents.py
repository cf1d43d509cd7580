# SPDX-License-Identifier: Apache-2.0
"""Documents of the API: what is sent and answered, field by field, and how.

Moments are those of windows, in UTC, and days are days. No answer has a time that tells
how long something took. JSON is read strictly, and no cache keeps an answer.
"""

import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import date
from hashlib import sha256
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Depends, Response
from fastapi import Request as Call
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError, PydanticSerializationError

from ...core.values import refuse_duplicates
from ...exceptions import InvalidInput
from ...ledger.documents import day_of
from ...registry import ModelStatus, NewRows, ReleaseStatus, Request
from ...registry.window import Window
from ...rights.standing import BY_OPERATOR, FOR_HOLDS, Right
from ..access import Caller
from ..desk import Desk
from ..problems import MEDIA_TYPE, Refused
from ..windows import ShownRequest, State, format_moment

ID = Annotated[
    str,
    Field(
        pattern="^[0-9a-f]{32}$",
        description="32 random hexadecimal digits; the same id means the same request.",
        examples=["3f1c9a5d0e2b4786a1c3d5e7f9081726"],
    ),
]
ModelName = Annotated[str, Field(min_length=1, max_length=100, examples=["churn"])]


def _require_day(value: Any) -> Any:
    """Refuse a number, which would be taken for seconds since 1970."""
    if isinstance(value, date) or (isinstance(value, str) and "-" in value[1:]):
        return value
    raise PydanticCustomError("day_expected", "not a day")


Day = Annotated[date, BeforeValidator(_require_day), Field(examples=["2026-03-01"])]
Span = Annotated[str, Field(pattern="^[0-9]{1,4}[dw]$", examples=["7d"])]
Cell = float | str | bool | None


class Strict(BaseModel):
    """A document in which nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid")


class RowsIn(Strict):
    """All rows that a person should have in a model, in the columns of its fit.

    Without `columns` they are in the order of the fit. A missing value is null, and a
    date is the number of days since 1970.
    """

    X: list[list[Cell]] = Field(max_length=10_000, examples=[[[0.2, 1.5, -0.3]]])
    y: list[Cell] = Field(max_length=10_000, examples=[[1]])
    sample_weight: list[float] | None = None
    columns: list[str] | None = Field(
        None, min_length=1, max_length=10_000, examples=[["age", "town", "joined"]]
    )

    def to_rows(self) -> NewRows:
        """Return them as the registry takes them."""
        widths = {len(row) for row in self.X}
        if len(widths) != 1 or len(self.X) != len(self.y):
            raise InvalidInput(
                "new rows of different lengths, or not as many targets; give each row "
                "a value for each column, and one target"
            )
        if self.columns is not None and {len(self.columns)} != widths:
            raise InvalidInput(
                f"{len(self.columns)} columns, and rows of another length; name the "
                "column of each value"
            )
        is_plain = all(
            isinstance(one, float) and not isinstance(one, bool)
            for row in self.X
            for one in row
        )
        kind = np.float64 if is_plain else object
        X = np.empty((len(self.X), widths.pop()), kind)
        for place, row in enumerate(self.X):
            X[place] = row
        columns = tuple(self.columns or ())
        return NewRows(X, np.array(self.y), self.sample_weight, columns)


class RequestIn(Strict):
    """What people ask for."""

    id: ID | None = None
    right: Right = "erase"
    people: list[dict[str, str]] = Field(
        min_length=1,
        max_length=1000,
        description="Each person by one or more identifiers: a kind, and a raw value "
        "or `sha256:` and a hash. The kind `id` is the id that models know.",
        examples=[[{"email": "ada@example.org"}], [{"id": "person 7"}]],
    )
    regime: Literal["gdpr", "uk-gdpr", "ccpa"] | None = None
    submitted: Day | None = Field(
        None, description="The day on which the person asked; today by default."
    )
    reason: str = Field(
        "", pattern=f"^({'|'.join(FOR_HOLDS)})?$", description="Of a hold: why."
    )
    until: Day | None = Field(None, description="Of a hold: the day on which it ends.")
    rows: dict[str, RowsIn] = Field(
        default_factory=dict, description="Of a rectification: new rows, by model."
    )

    def to_request(self, sender: str) -> Request:
        """Return it as the registry takes it, without its people."""
        asked = Request(
            subjects=(),
            right=self.right,
            regime=self.regime,
            submitted=self.submitted,
            reason=self.reason,
            until="" if self.until is None else self.until,
            rows={name: one.to_rows() for name, one in self.rows.items()},
            sender=sender,
            envelope=self._hash(),
        )
        return asked if self.id is None else replace(asked, request=self.id)

    def _hash(self) -> str:
        """Return the hash of all that was sent."""
        try:
            return sha256(self.model_dump_json().encode()).hexdigest()
        except PydanticSerializationError:
            raise InvalidInput(
                "a text holds half of a character; send valid UTF-8"
            ) from None


class WindowOut(BaseModel):
    """When requests are gathered, applied and answered."""

    start: str = Field(examples=["2026-03-01T12:00:00Z"])
    close: str = Field(examples=["2026-03-01T12:15:00Z"])
    answer: str = Field(examples=["2026-03-01T12:16:30Z"])

    @classmethod
    def of(cls, window: Window) -> "WindowOut":
        """Return a window as a document."""
        return cls(
            start=format_moment(window.start),
            close=format_moment(window.close),
            answer=format_moment(window.answer),
        )


class RequestOut(BaseModel):
    """A request as its sender may see it now."""

    id: ID
    right: str = Field(examples=["erase"])
    regime: str = Field(examples=["gdpr"])
    state: State
    submitted: str = Field(examples=["2026-03-01"])
    deadline: str = Field(examples=["2026-04-01"])
    n_people: int = Field(description="How many people it asks for.")
    window: WindowOut
    answered: str | None = Field(description="When the answer was first shown.")
    outcome: str | None = Field(
        description="done, nothing found, partly or refused; null until it is "
        "answered, and to operators who did not send it."
    )
    reason: str | None = Field(description="The code of a reason, if there is one.")
    receipt: str | None = Field(description="Where the receipt is, once answered.")

    @classmethod
    def of(cls, shown: ShownRequest, caller: Caller) -> "RequestOut":
        """Return a request as a caller may see it."""
        status, is_done = shown.status, shown.state == "completed"
        is_done = is_done and caller.sees_answer(status.sender)
        return cls(
            id=shown.request,
            right=status.right,
            regime=status.regime,
            state=shown.state,
            submitted=status.submitted,
            deadline=day_of(status.deadline),
            n_people=status.n_subjects,
            window=WindowOut.of(shown.window),
            answered=None if shown.answered is None else format_moment(shown.answered),
            outcome=status.outcome if is_done else None,
            reason=status.reason if is_done else None,
            receipt=f"/api/v1/requests/{shown.request}/receipt" if is_done else None,
        )


class RequestPageOut(BaseModel):
    """Some requests, by deadline."""

    requests: list[RequestOut]
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class BatchOut(BaseModel):
    """The requests of a batch, in the order of its lines."""

    requests: list[RequestOut]


class NearMissesOut(BaseModel):
    """Requests that may mean somebody else than whom they name, for operators."""

    requests: list[ID]


class RefusalIn(Strict):
    """Why an operator refuses a request."""

    reason: str = Field(
        pattern=f"^({'|'.join(BY_OPERATOR)})$", examples=["legal-claims"]
    )


class ExtensionIn(Strict):
    """Why a request takes longer, and when the person was told."""

    reason: Literal["complex", "many"]
    notified: Day


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
        return cls(
            model=release.model,
            number=release.number,
            certificate=release.digest,
            superseded=_day(release.superseded),
            withdrawn=_day(release.withdrawn),
            is_outstanding=release.is_outstanding,
            files=[name for _, name in release.shipped],
        )


def _day(time: int | None) -> str | None:
    return None if time is None else day_of(time)


class EntriesOut(BaseModel):
    """Entries of the ledger, as they were signed."""

    entries: list[dict[str, Any]]
    next: int | None = Field(description="Where the next page starts.")


class ProofOut(BaseModel):
    """Hashes that prove something of the ledger, as RFC 9162 orders them."""

    hashes: list[str]


class StatusOut(BaseModel):
    """The registry at one moment."""

    n_requests: int
    n_completed: int
    n_pending: int
    n_overdue: int
    n_restricted: int
    n_held: int
    ledger_size: int
    key: str
    store: str
    models: list[str]
    window: WindowOut


class StrictCall(Call):
    """A call in whose JSON no field may be given twice.

    Of two, programs on the way may take the first and we the last: a check that was
    made before us would be of another request.
    """

    async def json(self) -> Any:
        """Return what the body says."""
        try:
            return json.loads(await self.body(), object_pairs_hook=refuse_duplicates)
        except json.JSONDecodeError:
            raise  # the framework tells where
        except ValueError:
            raise Refused(
                400,
                "the JSON cannot be read; send UTF-8, give each field once, and no "
                "number with thousands of digits",
            ) from None


class StrictRoute(APIRoute):
    """A route that reads JSON strictly."""

    def get_route_handler(self) -> Callable[[Call], Coroutine[Any, Any, Response]]:
        """Return what answers a call."""
        answer = super().get_route_handler()

        async def answer_strictly(call: Call) -> Response:
            return await answer(StrictCall(call.scope, call.receive))

        return answer_strictly


class Problem(BaseModel):
    """A failure, as RFC 9457 describes it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] | None = None


def _describe(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}}


def describe_file(
    text: str, media_type: str, *, kind: str = "string"
) -> dict[int | str, dict[str, Any]]:
    """Return how OpenAPI describes an answer that is handed on byte for byte."""
    return {
        200: {"description": text, "content": {media_type: {"schema": {"type": kind}}}}
    }


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _describe("The call cannot be read."),
    401: _describe("No token, or one that is unknown or expired."),
    403: _describe("The token lacks the scope."),
    404: _describe("There is no such thing, or it is not yours to see."),
    409: _describe("It conflicts with what is there."),
    413: _describe("The body is too long."),
    415: _describe("The body has another content type."),
    422: _describe("Fields are missing or wrong."),
    429: _describe("Too many calls; see Retry-After."),
    503: _describe("Not now; see Retry-After."),
}


async def get_desk(request: Call) -> Desk:
    """Return the desk of the application."""
    # Not by a plain function: the framework would call that in a thread, at each call.
    desk: Desk = request.app.state.desk
    return desk


TheDesk = Annotated[Desk, Depends(get_desk)]


def answer_json(
    document: BaseModel, code: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a document as a response, which no cache keeps."""
    kept = {"Cache-Control": "no-store", **(headers or {})}
    return Response(
        document.model_dump_json(), code, headers=kept, media_type="application/json"
    )


def make_download(
    data: bytes | str, name: str, *, media_type: str = "application/octet-stream"
) -> Response:
    """Return a file for download, which no cache keeps."""
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return Response(data, headers=headers, media_type=media_type)


def tag_content(document: BaseModel) -> str:
    """Return the ETag of a document."""
    return f'"{sha256(document.model_dump_json().encode()).hexdigest()[:32]}"'


def is_unchanged(if_none_match: str, tag: str) -> bool:
    """Return whether a caller has a document already."""
    known = {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
    return tag in known or "*" in known
