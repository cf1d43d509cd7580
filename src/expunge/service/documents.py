# SPDX-License-Identifier: Apache-2.0
"""Documents of requests: what is sent and answered, field by field.

Moments are those of windows, in UTC, and days are days. No answer has a time that tells
how long something took.
"""

from dataclasses import replace
from datetime import date
from hashlib import sha256
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError, PydanticSerializationError

from ..exceptions import InvalidInput
from ..ledger.documents import day_of
from ..registry import NewRows, Request
from ..registry.decisions import METHODS
from ..rights.standing import BY_OPERATOR, FOR_HOLDS, Right
from .auth import Caller
from .windows import ShownRequest, State, format_moment

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
# Of a moment in milliseconds since 1970.
DayOf = Annotated[str, BeforeValidator(day_of)]
MomentOf = Annotated[str, BeforeValidator(format_moment)]
Span = Annotated[str, Field(pattern="^[0-9]{1,4}[dw]$", examples=["7d"])]
Cell = float | str | bool | None


class Strict(BaseModel):
    """A document in which nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """A document with fields of a value of the registry."""

    model_config = ConfigDict(from_attributes=True)


class RowsIn(Strict):
    """All rows that a person should have in a model, in the columns of its fit.

    Without `columns` they are in the order of the fit. A missing value is null, and a
    date is the number of days since 1970. `exposure` or `offset` are given where the
    model was fitted with such, and for survival the `time` until which somebody was
    seen, beside 1 in `y` if the event happened then.
    """

    X: list[list[Cell]] = Field(max_length=10_000, examples=[[[0.2, 1.5, -0.3]]])
    y: list[Cell] = Field(max_length=10_000, examples=[[1]])
    sample_weight: list[float] | None = None
    exposure: list[float] | None = Field(None, max_length=10_000, examples=[[0.5]])
    offset: list[float] | None = Field(None, max_length=10_000, examples=[[0.0]])
    time: list[float] | None = Field(None, max_length=10_000, examples=[[7.5]])
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
        every = {name: getattr(self, name) for name in ("exposure", "offset", "time")}
        beside = {name: one for name, one in every.items() if one is not None}
        if any(len(one) != len(self.y) for one in beside.values()):
            raise InvalidInput(
                f"not as many of {' and '.join(beside)} as rows; give one for each row"
            )
        return NewRows(X, np.array(self.y), self.sample_weight, columns, beside)


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
    reference: str = Field(
        "",
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="Such as the number of a ticket: sealed, and in no ledger.",
    )
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


class RemarkIn(Strict):
    """What to write beside a request, in place of what is there."""

    reference: str = Field("", max_length=200, examples=["DSR-1042"])
    note: str = Field("", max_length=2000)


class ReferenceIn(Strict):
    """What to look for."""

    reference: str = Field(min_length=1, max_length=200, examples=["DSR-1042"])


class FoundOut(BaseModel):
    """Requests that have a reference."""

    requests: list[ID]


class WindowOut(Shown):
    """When requests are gathered, applied and answered."""

    start: MomentOf = Field(examples=["2026-03-01T12:00:00Z"])
    close: MomentOf = Field(examples=["2026-03-01T12:15:00Z"])
    answer: MomentOf = Field(examples=["2026-03-01T12:16:30Z"])


class RequestOut(BaseModel):
    """A request as its sender may see it now."""

    id: ID
    sender: str = Field(description="The name of the token that it came with.")
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
    reference: str | None = Field(
        description="The reference that was given with it; null to others."
    )
    stage: str | None = Field(
        description="How far it is in truth; null to those who only send requests."
    )
    waits_for: str | None = Field(
        description="What operators must decide first; null to others."
    )

    @classmethod
    def of(
        cls, shown: ShownRequest, caller: Caller, *, reference: str | None = None
    ) -> "RequestOut":
        """Return a request as a caller may see it, with its reference."""
        status, is_done = shown.status, shown.state == "completed"
        is_done = is_done and caller.sees_answer(status.sender)
        return cls(
            id=shown.request,
            sender=status.sender,
            right=status.right,
            regime=status.regime,
            state=shown.state,
            submitted=status.submitted,
            deadline=day_of(status.deadline),
            n_people=status.n_subjects,
            window=WindowOut.model_validate(shown.window),
            answered=None if shown.answered is None else format_moment(shown.answered),
            outcome=status.outcome if is_done else None,
            reason=status.reason if is_done else None,
            receipt=f"/api/v1/requests/{shown.request}/receipt" if is_done else None,
            reference=reference,
            stage=status.stage if caller.sees_all else None,
            waits_for=status.waits_for if caller.sees_all else None,
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


Why = Annotated[
    str, Field(max_length=200, description="Why, in your words: for the access log.")
]


class DecisionIn(Strict):
    """Why an operator decides something."""

    why: Why = ""


class IdentityIn(DecisionIn):
    """How it was checked who asks."""

    method: str = Field(pattern=f"^({'|'.join(METHODS)})$", examples=["account"])


class WaitIn(DecisionIn):
    """Until which day a request waits."""

    until: Day | None = Field(
        None, description="Before the deadline; by default a week before it."
    )


class ExtensionIn(Strict):
    """Why a request takes longer, and when the person was told."""

    reason: Literal["complex", "many"]
    notified: Day
