# SPDX-License-Identifier: Apache-2.0
"""Visitors of pages without a browser: they sign in, and send forms as browsers do."""

import re
from datetime import timedelta
from typing import Any

import pytest

from tests.registries import set_clock, today
from tests.services import InProcess, apply_window

OURS = {"Sec-Fetch-Site": "same-origin"}


def sign_in(service: InProcess, scope: str = "admin", **fields: str) -> Any:
    """Sign in as somebody with a scope; the client keeps the session."""
    service.http.cookies.clear()
    given = {"token": service.tokens[scope]} | fields
    return service.http.post("/sign-in", data=given, headers=OURS)


def post(service: InProcess, path: str, **fields: Any) -> Any:
    """Send a form from a page of ours, with its word."""
    page = service.http.get("/requests/new" if "new" in path else "/").text
    word = re.search(r'name="form_token" value="([0-9a-f]+)"', page)
    given = {"form_token": word[1] if word else "", "confirmed": "yes"} | fields
    return service.http.post(path, data=given, headers=OURS, follow_redirects=False)


def send(service: InProcess, scope: str = "request", **fields: Any) -> str:
    """Send a request by the API, and return its id."""
    body = {"people": [{"id": "person 3"}]} | fields
    answer = service.call("POST", "/api/v1/requests", scope, json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def answer_all(service: InProcess, patch: pytest.MonkeyPatch) -> None:
    """Apply what waits, and let it be tomorrow, when every answer is shown."""
    apply_window(service)
    set_clock(patch, today() + timedelta(days=1))
