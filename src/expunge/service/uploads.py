# SPDX-License-Identifier: Apache-2.0
"""Uploads: a spreadsheet of requests, which is shown before it is sent; and new rows.

What was read stands in the page that shows it, and comes back when it is sent: nothing
is kept in between. Each request has its id by then, so sending twice is sending once.
"""

import csv
import json
from collections import Counter, defaultdict
from datetime import date
from typing import Any

from fastapi import Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from ..exceptions import ExpungeError, InvalidInput
from ..promise.noise import random_bytes
from ..registry import Registry
from ..registry.now import today
from ..rights.regimes import REGIMES
from .auth import Caller, CanSend, PostedForm, TheForm
from .batches import CSV, NDJSON, read_batch
from .documents import RequestIn
from .intake import as_asked
from .problems import Refused
from .rendering import go_to, show_page
from .requests import (
    REQUEST_BYTES,
    describe_refusal,
    make_submission,
    read_person_line,
)
from .routing import page_router
from .spreadsheets import read_table

pages = page_router()
SHOWN = 50  # lines of a preview
EPOCH = date(1970, 1, 1)


@pages.get("/requests/upload")
async def show_upload(caller: CanSend) -> Response:
    """Show the form for a spreadsheet of requests."""
    return _show_upload(caller, "")


def _show_upload(
    caller: Caller, text: str, *, code: int = 200, problem: str = ""
) -> Response:
    return show_page(caller, "upload", code=code, problem=problem, text=text, lines=[])


@pages.post("/requests/upload")
async def upload(caller: CanSend, form: TheForm) -> Response:
    """Show what a spreadsheet asks for; or, if that was seen, accept it."""
    text = form.text("file") or form.text("text")
    try:
        if form.text("batch"):
            return await _accept(caller, form.text("batch"))
        return await run_in_threadpool(_preview, caller, text)
    except (ExpungeError, Refused) as error:
        code, problem = describe_refusal(error)
        return _show_upload(caller, text, code=code, problem=problem)


def _preview(caller: Caller, text: str) -> Response:
    """Return the page that shows what would be sent."""
    given = read_batch(text.encode(), CSV)
    submissions = [make_submission(caller, one) for one in given]
    caller.registry.requests.check(list(map(as_asked, submissions)))  # or refuse
    named = [
        one if one.id else one.model_copy(update={"id": random_bytes(16).hex()})
        for one in given
    ]
    batch = "\n".join(one.model_dump_json(exclude_defaults=True) for one in named)
    rights = Counter(one.right for one in named)
    return show_page(
        caller,
        "upload",
        text="",
        batch=batch,
        lines=named[:SHOWN],
        n_lines=len(named),
        rights=rights,
    )


async def _accept(caller: Caller, batch: str) -> Response:
    """Accept what a preview showed."""
    body = batch.encode()

    def read() -> list[Any]:
        return [make_submission(caller, one) for one in read_batch(body, NDJSON)]

    submissions = await run_in_threadpool(read)
    shown = await caller.intake.accept(submissions, size=len(body))
    await caller.note("send requests", f"{len(shown)} from a file")
    return go_to("/", "accepted-all")


@pages.get("/requests/rectify")
async def show_rectify(caller: CanSend) -> Response:
    """Show the form for new rows of a person."""
    return _show_rectify(caller, PostedForm({}))


def _show_rectify(
    caller: Caller, typed: PostedForm, *, code: int = 200, problem: str = ""
) -> Response:
    chosen = {"submitted": today().isoformat()}
    chosen |= {name: typed.text(name) for name in typed.fields}
    seen = caller.may_any(("operate", "audit"))
    return show_page(
        caller,
        "rectify",
        code=code,
        problem=problem,
        id=chosen.get("id") or random_bytes(REQUEST_BYTES).hex(),
        regimes=list(REGIMES),
        models=sorted(caller.registry.models.names()) if seen else [],
        chosen=defaultdict(str, chosen),
    )


@pages.post("/requests/rectify")
async def rectify(caller: CanSend, form: TheForm) -> Response:
    """Accept new rows of a person."""
    try:
        given = await run_in_threadpool(_read_rectification, caller.registry, form)
        submission = make_submission(caller, given)
        size = len(form.text("rows").encode())
        (shown,) = await caller.intake.accept([submission], size=size)
    except (ExpungeError, Refused) as error:
        code, problem = describe_refusal(error)
        return _show_rectify(caller, form, code=code, problem=problem)
    await caller.note("send request", shown.request)
    return go_to(f"/requests/{shown.request}", "accepted")


def _read_rectification(registry: Registry, form: PostedForm) -> RequestIn:
    """Return the request in a form for new rows; no error quotes a value of a row."""
    names = ("id", "regime", "submitted", "reference")
    fields: dict[str, Any] = {one: form.text(one) for one in names if form.text(one)}
    model = form.text("model")
    kinds, target = _describe_columns(registry, model)
    target = form.text("target") or target
    reader = read_table(form.text("rows"))
    try:
        lines = list(reader)
    except csv.Error:
        raise InvalidInput(
            "the new rows are not CSV; a line for each, after one of "
            "the names of columns"
        ) from None
    columns = [one for one in reader.fieldnames or () if one != target]
    if len(columns) + 1 != len(reader.fieldnames or ()) or not lines:
        raise InvalidInput(
            f"the new rows need a first line with the names of the columns, {target!r} "
            "among them, and a line for each row"
        )
    if any(None in line or None in line.values() for line in lines):
        raise InvalidInput("a row has another number of cells than the first line")
    X = [[_read_cell(line[one], kinds.get(one)) for one in columns] for line in lines]
    y = [_read_cell(line[target], kinds.get(target)) for line in lines]
    fields |= {
        "right": "rectify",
        "people": [read_person_line(form.text("person"))],
        "rows": {model: {"X": X, "y": y, "columns": columns}},
    }
    try:
        return RequestIn.model_validate(fields)
    except ValidationError as error:
        wrong = sorted({str(one["loc"][0]) for one in error.errors()})
        raise InvalidInput(
            f"{', '.join(wrong)}: missing or wrong; fill the form in again"
        ) from None


def _describe_columns(registry: Registry, model: str) -> tuple[dict[str, str], str]:
    """Return the kinds of a model's columns, and the name of its target."""
    text = registry.models.columns(model)
    if not text:
        return {}, "target"
    schema = json.loads(text)["schema"]
    kinds = {one["name"]: one["kind"] for one in schema["columns"]}
    target = schema["target"]
    is_class = target["task"] == "classification"
    kinds[target["name"]] = "category" if is_class else "number"
    return kinds, target["name"]


def _read_cell(text: str, kind: str | None) -> float | str | None:
    """Return a cell as the API takes it: a day as its number, a gap as null.

    Of a column that the registry does not know, numbers are numbers.
    """
    word = text.strip()
    if not word:
        return None
    if kind == "date":
        try:
            return float((date.fromisoformat(word) - EPOCH).days)
        except ValueError:
            raise InvalidInput("a date is not YYYY-MM-DD; correct it") from None
    if kind in (None, "number"):
        try:
            return float(word)
        except ValueError:
            if kind:
                raise InvalidInput("a number is none; write it as 1234.5") from None
    return word
