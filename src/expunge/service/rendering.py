# SPDX-License-Identifier: Apache-2.0
"""Rendering: documents become pages, by templates that escape what they show.

A name that is missing in a template is an error.
"""

import json
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import Request as Call
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
)
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import BaseModel

from ..exceptions import OneAgreed
from ..ledger.documents import day_of, midnight
from ..ledger.receipts import rules
from ..rights.standing import describe_outcome
from .auth import Caller

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
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
    PageLink("/", "Requests", ("request", "audit")),
    PageLink("/requests/new", "New request", ("request",)),
    PageLink("/people", "People", ("operate",)),
    PageLink("/models", "Models", ("operate", "audit")),
    PageLink("/ledger", "Proof log", ("audit",)),
    PageLink("/deliveries", "Notifications", ("operate", "audit")),
    PageLink("/trail", "Access log", ("audit",)),
    PageLink("/settings", "Settings", ("admin",)),
)
# What a page says after something was done; the address holds the word alone.
SAID = {
    "accepted": "The request is on disk. It will be answered at the time below.",
    "accepted-all": "The requests are on disk. They are answered after their window.",
    "cancelled": "The request was cancelled, and will not be applied.",
    "exact": "The request means whom it names, and nobody else.",
    "refused": "The request was answered with a refusal.",
    "extended": "The deadline was extended, and the proof log says so. The request "
    "waits until you let it go on, or the new deadline nears.",
    "checked": "It is noted that you checked who asks.",
    "approved": "Your approval is noted.",
    "waits": "The request waits. It goes on by itself as its deadline nears.",
    "noted": "It is written down beside the request.",
    "proceeds": "The request goes on with the next window.",
    "agreed": "It is noted that you agree. Nothing is done until a second person does "
    "the same.",
    "ruled": "The rule holds for requests that come from now on.",
    "trusted": "The token counts where two people must decide.",
    "withdrawn": "The proof log now says that no copy of this release is in use.",
    "revoked": "The token was revoked.",
    "replayed": "The notification will be sent again.",
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
    found.filters["day"] = day_of  # of a moment in milliseconds
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
        "address": f"{path}?{call.url.query}" if call.url.query else path,
        "here": max((p.path for p in PLACES if _is_under(path, p.path)), key=len),
        "said": SAID.get(call.query_params.get("said", "")),
        "problem": "",
    }
    return environment().get_template(f"{template}.html.j2").render(known | values)


def _is_under(path: str, place: str) -> bool:
    return path == place or place == "/" or path.startswith(f"{place}/")


def show_page(
    caller: Caller,
    template: str,
    *,
    page: BaseModel | None = None,
    code: int = 200,
    problem: str = "",
    **more: Any,
) -> Response:
    """Return the page of a template.

    Parameters
    ----------
    caller
        Who looks.
    template
        Its name.
    page
        The document that programs get; None if only pages put it together.
    code, problem
        Of a form that has to be filled in again, and why.
    more
        What the page shows beside the document.
    """
    call = caller.call
    html = render(template, call, visitor=caller, page=page, problem=problem, **more)
    return HTMLResponse(html, code, headers=NO_STORE)


def go_to(path: str, said: str = "") -> Response:
    """Return the way to a page after a form, with what it says there."""
    assert not said or said in SAID
    place = f"{path}?said={said}" if said else path
    return RedirectResponse(place, 303, headers=NO_STORE)


def answer_agreed(caller: Caller, path: str, *, error: OneAgreed) -> Response:
    """Return the answer to the first of two people who must do something."""
    if caller.is_at_page:
        return go_to(path, "agreed")
    return JSONResponse({"detail": str(error)}, 202, headers=NO_STORE)


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
