# SPDX-License-Identifier: Apache-2.0
"""The page of the service: its table of routes is what tokens of each scope may call.

``python -m tests.service_page`` renews the table in docs/service.md.
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .registries import A_REQUEST, registry_at
from .services import InProcess, serve_in_process

PAGE = Path(__file__).parents[1] / "docs/service.md"
TABLE = re.compile(r"^\| call \| request \|.*?\n\n", re.M | re.S)
SCOPES = ("request", "operate", "audit", "admin")
VALUES = {"request": A_REQUEST, "name": "all", "number": "1", "token": "0" * 16}
A_PERSON = {"people": [{"id": "person 3"}]}
BATCH = "/api/v1/requests/batch"


def list_calls(service: InProcess) -> Iterator[tuple[str, str, str]]:
    """Yield method, path and description of each call of the API."""
    described = service.http.get("/api/v1/openapi.json").json()
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            if path.startswith("/api/v1/"):
                yield method.upper(), path, about["description"].partition("\n")[0]
    yield "GET", "/metrics", "Show the metrics."


def is_allowed(service: InProcess, method: str, *, path: str, scope: str) -> bool:
    """Return whether a call is let in, whatever becomes of it then."""
    place = re.sub(r"\{(\w+)\}", lambda found: VALUES.get(found[1], "0"), path)
    given = {"json": A_PERSON} if path != BATCH else {"content": b"{}"}
    answer = service.call(
        method, place, scope, **({} if method in ("GET", "DELETE") else given)
    )
    return bool(answer.status_code != 403)


def is_open(service: InProcess, method: str, path: str) -> bool:
    """Return whether a call needs no token."""
    place = re.sub(r"\{(\w+)\}", lambda found: VALUES.get(found[1], "0"), path)
    return service.http.request(method, place).status_code != 401


def render_table(service: InProcess) -> str:
    """Return the table of routes as Markdown."""
    lines = [
        "| call | request | operate | audit | admin | |",
        "|---|---|---|---|---|---|",
    ]
    for method, path, about in list_calls(service):
        if is_open(service, method, path):
            marks = ["open"] * len(SCOPES)
        else:
            marks = [
                "yes" if is_allowed(service, method, path=path, scope=scope) else ""
                for scope in SCOPES
            ]
        about = about.replace("|", "\\|")
        lines.append(f"| `{method} {path}` | {' | '.join(marks)} | {about} |")
    return "\n".join(lines) + "\n\n"


def render_now() -> str:
    """Return the table for a service of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        registry_at(Path(folder) / "registry") as registry,
        serve_in_process(registry) as service,
    ):
        return render_table(service)


def renewed(page: str) -> str:
    """Return the page with the table as it is now."""
    table = render_now()
    return TABLE.sub(lambda _: table, page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
