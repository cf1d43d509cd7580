# SPDX-License-Identifier: Apache-2.0
"""People: what is known of somebody, for operators, before they answer.

What is asked comes in a body, never in an address, which logs and browsers keep.
"""

from fastapi import Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from ..exceptions import ExpungeError, InvalidInput, UnknownSubject
from .auth import Caller, CanOperate, TheForm
from .documents import DecisionIn
from .problems import Refused, describe_error
from .rendering import show_page
from .routing import describe_file, make_download, page_router, program_router

api, pages = program_router("people"), page_router()
MOST = 100


class LookIn(DecisionIn):
    """Whom to look up, and why."""

    people: list[str] = Field(
        min_length=1,
        max_length=MOST,
        description="Ids, or a kind and a value such as `email:ada@example.org`.",
        examples=[["person 7", "email:ada@example.org"]],
    )


class HeldOut(BaseModel):
    """Rows of a person in one fit of a model."""

    model: str
    place: str = Field(examples=["in use", "restricted", "held"])
    request: str
    reason: str
    until: str


class KnownOut(BaseModel):
    """What is known under one word."""

    word: str
    ids: list[str] = Field(description="The ids that it means.")
    rows: list[HeldOut]
    requests: list[str] = Field(description="Requests that name the person and wait.")
    n_aliases: int
    forgotten: bool = Field(
        description="Whether somebody of such an id was forgotten before."
    )
    near: str | None = Field(
        description="The id of somebody else who is spelled almost so; empty if that "
        "cannot be told."
    )


class LookOut(BaseModel):
    """What is known under some words."""

    people: list[KnownOut]
    tried: list[str] = Field(description="The kinds of identifier that were tried.")


async def _look(caller: Caller, given: LookIn) -> LookOut:
    def look() -> LookOut:
        found = caller.registry.people.look(given.people, by=caller.decides(given.why))
        known = [KnownOut.model_validate(one.to_json()) for one in found.people]
        return LookOut(people=known, tried=list(found.tried))

    return await run_in_threadpool(look)


@api.post("/people/look", response_model=LookOut)
async def look_up(given: LookIn, caller: CanOperate) -> LookOut:
    """Say what is known of people: where their rows are, and what waits.

    The access log says who looked, and why.
    """
    return await _look(caller, given)


@api.post(
    "/people/account",
    response_class=Response,
    responses=describe_file("All that is held.", "application/json", kind="object"),
)
async def make_account(given: LookIn, caller: CanOperate) -> Response:
    """Download all that is held of one person, with their rows, for the person.

    All that is given is of one person. It is kept nowhere.
    """

    def account() -> str:
        by = caller.decides(given.why)
        return caller.registry.people.account(given.people, by=by)

    try:
        return _download(await run_in_threadpool(account))
    except UnknownSubject as error:
        raise Refused(404, str(error)) from None


def _download(text: str) -> Response:
    return make_download(text, "account.json", media_type="application/json")


@pages.get("/people")
async def show_people(caller: CanOperate) -> Response:
    """Show the form to look people up."""
    return _show(caller, "", why="")


def _show(
    caller: Caller,
    people: str,
    *,
    why: str,
    found: LookOut | None = None,
    code: int = 200,
    problem: str = "",
) -> Response:
    return show_page(
        caller,
        "people",
        page=found,
        people=people,
        why=why,
        code=code,
        problem=problem,
    )


@pages.post("/people")
async def search_people(caller: CanOperate, form: TheForm) -> Response:
    """Look people up, or hand out the account of one."""
    people, why = form.text("people"), form.text("why")
    words = [line.strip() for line in people.splitlines() if line.strip()]
    try:
        if not 1 <= len(words) <= MOST:
            raise InvalidInput(f"{len(words)} people; give 1 to {MOST}, one a line")
        given = LookIn(people=words, why=why[:200])
        if form.text("act") == "account":
            return await make_account(given, caller)
        found = await _look(caller, given)
    except Refused as error:
        return _show(caller, people, why=why, code=404, problem=str(error.detail))
    except ExpungeError as error:
        code, problem = describe_error(error)
        return _show(caller, people, why=why, code=code, problem=problem)
    return _show(caller, people, why=why, found=found)
