# SPDX-License-Identifier: Apache-2.0
"""Rendering: one value becomes a page, or the JSON at the same address.

Templates escape what they show, and a name that is missing is an error. A route asks
for ``show_page`` with a value; where the address ends in ".json" the answer is the
value itself, so that a page never knows more than a program can.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Coroutine
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import Request as Call
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ...exceptions import ExpungeError
from ...ledger.documents import midnight
from ...ledger.receipts import rules
from ...rights.standing import describe_outcome
from ..api.documents import answer_json
from ..logs import log_failure
from ..problems import describe_error
from .visiting import Visitor

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
TWIN = ".json"
# In one file the parts of the script see one another without it.
_IMPORT = re.compile(r'^import .* from "\./check\.js";\n', re.MULTILINE)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")
NO_STORE = {"Cache-Control": "no-store"}


class PageLink(NamedTuple):
    """A page that the header leads to, for visitors with one of these scopes."""

    path: str
    name: str
    scopes: tuple[str, ...]


PLACES = (
    PageLink("/", "Queue", ("request", "audit")),
    PageLink("/requests/new", "New request", ("request",)),
    PageLink("/models", "Models", ("operate", "audit")),
    PageLink("/ledger", "Ledger", ("audit",)),
    PageLink("/deliveries", "Deliveries", ("operate", "audit")),
    PageLink("/trail", "Trail", ("audit",)),
    PageLink("/settings", "Settings", ("admin",)),
)
# What a page says after something was done; the address holds the word alone.
SAID = {
    "accepted": "The request is on disk. It will be answered at the time below.",
    "cancelled": "The request was cancelled, and will not be applied.",
    "exact": "The request means whom it names, and nobody else.",
    "refused": "The request was answered with a refusal.",
    "extended": "The deadline was extended, and the ledger says so.",
    "withdrawn": "The ledger now says that no copy of this release is in use.",
    "revoked": "The token was revoked.",
    "replayed": "The delivery will be sent again.",
    "removed": "The webhook was removed.",
    "signed-out": "You are signed out.",
}


@cache
def environment() -> Environment:
    """Return the templates of all pages."""
    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {
        "places": PLACES,
        "receipt_rules": spell_rules,
        "describe_outcome": describe_outcome,
    }
    found.filters["moment"] = lambda text: _MOMENT.sub(r"\1 \2 UTC", text)
    found.filters["pair"] = lambda word: (word, word)  # an option and its text
    found.filters["epoch"] = lambda day: midnight(day) // 1000  # for the axis of a plot
    return found


@cache
def spell_rules() -> Markup:
    """Return what the check of a receipt goes by, for a script element of a page."""
    # Within JSON only strings hold this sign, and this spelling is the same string.
    return Markup(json.dumps(rules()).replace("<", "\\u003c"))


def read_static(name: str) -> str:
    """Return the text of a file that browsers get as it is."""
    return (STATIC / name).read_text(encoding="utf-8")


def render(template: str, call: Call, **values: Any) -> str:
    """Return a page as HTML."""
    path = call.url.path
    known = {
        "visitor": None,
        "version": call.app.version,
        "twin": None,
        "here": max((p.path for p in PLACES if _is_under(path, p.path)), key=len),
        "said": SAID.get(call.query_params.get("said", "")),
        "problem": "",
    }
    return environment().get_template(f"{template}.html.j2").render(known | values)


def _is_under(path: str, place: str) -> bool:
    return path == place or place == "/" or path.startswith(f"{place}/")


def show_page(
    visitor: Visitor,
    value: BaseModel,
    *,
    template: str,
    code: int = 200,
    problem: str = "",
) -> Response:
    """Return a value as the page, or as the JSON, that was asked for."""
    call = visitor.call
    if call.url.path.endswith(TWIN):
        return answer_json(value)
    query = f"?{call.url.query}" if call.url.query else ""
    path = "/index" if call.url.path == "/" else call.url.path
    is_shown = call.method == "GET"
    html = render(
        template,
        call,
        visitor=visitor,
        page=value,
        problem=problem,
        twin=f"{path}{TWIN}{query}" if is_shown else None,
    )
    return HTMLResponse(html, code, headers=NO_STORE)


def go_to(path: str, said: str = "") -> Response:
    """Return the way to a page after a form, with what it says there."""
    assert not said or said in SAID
    place = f"{path}?said={said}" if said else path
    return RedirectResponse(place, 303, headers=NO_STORE)


class PageRoute(APIRoute):
    """A route whose failures are pages too, where people look."""

    def get_route_handler(self) -> Callable[[Call], Coroutine[Any, Any, Response]]:
        """Return what answers a call."""
        answer = super().get_route_handler()

        async def answer_or_explain(call: Call) -> Response:
            try:
                return await answer(call)
            except (ExpungeError, HTTPException, RequestValidationError) as error:
                if call.url.path.endswith(TWIN):
                    raise
                return _explain(call, error)

        return answer_or_explain


def _explain(call: Call, error: Exception) -> Response:
    """Return a failure as a page, without what was sent."""
    headers: dict[str, str] = dict(NO_STORE)
    if isinstance(error, HTTPException):
        code, text = error.status_code, str(error.detail)
        headers |= error.headers or {}
    elif isinstance(error, ExpungeError):
        code, text = describe_error(error)
        if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log_failure(call, error)
    else:
        code, text = HTTPStatus.NOT_FOUND, "there is no such page"
    title = HTTPStatus(code).phrase
    return HTMLResponse(
        render("problem", call, title=title, text=text), code, headers=headers
    )


@cache
def make_check_page() -> str:
    """Return the page that checks a receipt without a network, whole in one file.

    A person keeps it beside the receipt. Its scripts are those that the dashboard uses.
    A policy in the page itself allows these scripts, by their hashes, and no
    connection, so that a reader need not trust the promise that nothing leaves the
    machine.
    """
    script = read_static("check.js") + _IMPORT.sub("", read_static("receipt.js"))
    style = read_static("check.css")
    return (
        environment()
        .get_template("check.html.j2")
        .render(
            script=Markup(script),
            style=Markup(style),
            script_hash=_hash_source(script),
            style_hash=_hash_source(style),
        )
    )


def _hash_source(text: str) -> str:
    """Return the hash by which a policy names what stands in the page."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
