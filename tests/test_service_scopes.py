# SPDX-License-Identifier: Apache-2.0
"""Every route, with every scope and with none: who is let in, and who is not.

The routes are those of the application, so one that is new must be added here.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI

from expunge.service.auth import COOKIE, make_form_token

from .registries import registry_at
from .services import InProcess, serve_in_process

SCOPES = ("request", "operate", "audit", "admin")
ID = "0123456789abcdef0123456789abcdef"
FILLED = {
    "request": ID,
    "name": "all",
    "number": "1",
    "token": "0" * 16,
    "delivery": ID,
    "webhook": ID,
    "right": "erase",
}

ANYBODY = ("nobody", *SCOPES)
SENDERS = ("request", "operate", "admin")
READERS = SCOPES  # request or audit, and what includes them
OPERATORS = ("operate", "admin")
AUDITORS = ("audit", "admin")
WATCHERS = ("operate", "audit", "admin")
ADMINS = ("admin",)

API = {
    "POST /requests": SENDERS,
    "POST /requests/batch": SENDERS,
    "GET /requests": READERS,
    "GET /requests/{request}": READERS,
    "DELETE /requests/{request}": SENDERS,
    "GET /requests/{request}/receipt": READERS,
    "GET /requests/{request}/letter": OPERATORS,
    "GET /requests/{request}/evidence": AUDITORS,
    "POST /requests/{request}/refuse": OPERATORS,
    "POST /requests/{request}/extend": OPERATORS,
    "POST /requests/{request}/exact": OPERATORS,
    "POST /requests/{request}/identity": OPERATORS,
    "POST /requests/{request}/approve": OPERATORS,
    "POST /requests/{request}/wait": OPERATORS,
    "POST /requests/{request}/proceed": OPERATORS,
    "POST /people/look": OPERATORS,
    "POST /people/account": OPERATORS,
    "POST /requests/{request}/remark": OPERATORS,
    "POST /find": WATCHERS,
    "GET /outcomes": AUDITORS,
    "GET /near-misses": OPERATORS,
    "GET /models": WATCHERS,
    "GET /models/{name}": WATCHERS,
    "GET /models/{name}/certificate": WATCHERS,
    "GET /models/{name}/release": OPERATORS,
    "POST /models/{name}/recommendations": OPERATORS,
    "GET /releases": WATCHERS,
    "POST /models/{name}/releases/{number}/withdraw": OPERATORS,
    "GET /ledger/entries": AUDITORS,
    "GET /ledger/head": AUDITORS,
    "GET /ledger/inclusion": AUDITORS,
    "GET /ledger/consistency": AUDITORS,
    "GET /ledger/export": AUDITORS,
    "GET /keys": ANYBODY,
    "GET /window": READERS,
    "GET /status": WATCHERS,
    "GET /trail": AUDITORS,
    "GET /deliveries": WATCHERS,
    "POST /deliveries/{delivery}/replay": OPERATORS,
    "GET /webhooks": ADMINS,
    "POST /webhooks": ADMINS,
    "DELETE /webhooks/{webhook}": ADMINS,
    "GET /tokens": ADMINS,
    "POST /tokens": ADMINS,
    "DELETE /tokens/{token}": ADMINS,
    "POST /tokens/{token}/trust": ADMINS,
    "GET /rules": WATCHERS,
    "PUT /rules/{right}": ADMINS,
    "GET /openapi.json": ANYBODY,
}
PAGES = {
    "GET /": READERS,
    "GET /requests/new": SENDERS,
    "POST /requests/new": SENDERS,
    "GET /requests/{request}": READERS,
    "GET /requests/{request}/receipt": READERS,
    "GET /requests/{request}/letter": OPERATORS,
    "GET /requests/{request}/evidence": AUDITORS,
    "POST /requests/{request}/cancel": SENDERS,
    "POST /requests/{request}/refuse": OPERATORS,
    "POST /requests/{request}/extend": OPERATORS,
    "POST /requests/{request}/exact": OPERATORS,
    "POST /requests/{request}/identity": OPERATORS,
    "POST /requests/{request}/approve": OPERATORS,
    "POST /requests/{request}/wait": OPERATORS,
    "POST /requests/{request}/proceed": OPERATORS,
    "GET /requests/upload": SENDERS,
    "POST /requests/upload": SENDERS,
    "GET /requests/rectify": SENDERS,
    "POST /requests/rectify": SENDERS,
    "GET /people": OPERATORS,
    "POST /people": OPERATORS,
    "POST /requests/{request}/remark": OPERATORS,
    "POST /find": WATCHERS,
    "GET /outcomes": AUDITORS,
    "GET /models": WATCHERS,
    "GET /models/{name}": WATCHERS,
    "POST /models/{name}/release": OPERATORS,
    "POST /models/{name}/releases/{number}/withdraw": OPERATORS,
    "GET /ledger": AUDITORS,
    "POST /ledger": AUDITORS,
    "GET /deliveries": WATCHERS,
    "POST /deliveries/{delivery}/replay": OPERATORS,
    "GET /trail": AUDITORS,
    "GET /settings": ADMINS,
    "POST /settings/webhooks": ADMINS,
    "POST /settings/webhooks/{webhook}/remove": ADMINS,
    "POST /settings/tokens": ADMINS,
    "POST /settings/tokens/{token}/revoke": ADMINS,
    "POST /settings/tokens/{token}/trust": ADMINS,
    "POST /settings/rules": ADMINS,
}
OTHERS = {
    "GET /healthz": ANYBODY,
    "GET /readyz": ANYBODY,
    "GET /metrics": WATCHERS,
    "GET /check.html": ANYBODY,
    "GET /sign-in": ANYBODY,
    "POST /sign-in": ANYBODY,
    "POST /sign-out": ANYBODY,
    "GET /static": ANYBODY,
}
BY_HEADER = ("/api/", "/metrics")
SIGNING = {"POST /sign-in", "POST /sign-out"}  # they send everybody elsewhere
ALLOWED = {
    **{name.replace(" ", " /api/v1", 1): who for name, who in API.items()},
    **PAGES,
    **OTHERS,
}


class Route(NamedTuple):
    """A method and the template of a path."""

    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def list_routes(routes: Any, prefix: str = "") -> Iterator[Route]:
    """Yield every route below some, however they were included."""
    for one in routes:
        included = getattr(one, "original_router", None)
        if included is not None:
            inner = prefix + one.include_context.prefix
            yield from list_routes(included.routes, inner)
        else:
            for method in getattr(one, "methods", None) or {"GET"}:
                if method not in ("HEAD", "OPTIONS"):
                    yield Route(method, prefix + one.path.removeprefix(prefix))


class Sessions(NamedTuple):
    """A service, with a session for each scope."""

    service: InProcess
    secrets: dict[str, str]

    def lets_in(self, route: Route, who: str) -> bool:
        """Return whether a route is open to a scope, by a form or by a header."""
        secret, path = self.secrets.get(who, ""), route.path.format(**FILLED)
        headers = {"Sec-Fetch-Site": "same-origin"}
        if secret and path.startswith(BY_HEADER):
            headers["Authorization"] = f"Bearer {secret}"
        elif secret:
            headers["Cookie"] = f"{COOKIE}={secret}"
        word = {"form_token": make_form_token(secret)}
        form = word if route.method == "POST" else None
        answer = self.service.http.request(
            route.method, path, headers=headers, data=form, follow_redirects=False
        )
        assert answer.status_code < 500, answer.text
        if answer.status_code == 303:
            return not answer.headers["location"].startswith("/sign-in?")
        return answer.status_code not in (401, 403)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    folder = tmp_path_factory.mktemp("scopes") / "registry"
    with registry_at(folder) as registry, serve_in_process(registry) as running:
        # Tokens of any kind would do; only those of sessions also open pages.
        secrets = {
            scope: registry.access.create_session(scope, [scope], minutes=9)[1]
            for scope in SCOPES
        }
        yield Sessions(running, secrets)


def test_the_table_has_every_route(sessions: Sessions) -> None:
    app = sessions.service.http.app
    assert isinstance(app, FastAPI)
    assert {str(one) for one in list_routes(app.routes)} == set(ALLOWED)


@pytest.mark.parametrize("name", sorted(set(ALLOWED) - SIGNING))
def test_each_scope_opens_its_routes_and_no_others(
    sessions: Sessions, name: str
) -> None:
    route = Route(*name.split(" "))
    found = [who for who in ANYBODY if sessions.lets_in(route, who)]
    assert found == [who for who in ANYBODY if who in ALLOWED[name]]
