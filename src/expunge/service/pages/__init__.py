# SPDX-License-Identifier: Apache-2.0
"""Pages: the dashboard, and the page that checks a receipt without a network.

Each page is a value, shown by a template or, at the same address with ".json", as it
is. All of it works without a script; scripts renew pages, draw lines and check
receipts.
"""

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from ..settings import ServiceSettings
from . import (
    deliveries,
    ledger,
    models,
    queue,
    requests,
    settings,
    signin,
)
from .rendering import STATIC, make_check_page

__all__ = ["add_pages", "make_check_page"]


def add_pages(app: FastAPI, chosen: ServiceSettings) -> None:
    """Add the dashboard to an application."""
    rest = (models, ledger, deliveries, settings)
    for part in (signin, queue, requests, *rest):
        app.include_router(part.router)
    if chosen.oidc is not None:
        from .oidc import make_provider_router  # it takes a while to import

        app.include_router(make_provider_router(chosen.oidc, chosen.address))
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/check.html", include_in_schema=False)
    async def download_check_page() -> Response:
        name = 'attachment; filename="check.html"'
        return HTMLResponse(make_check_page(), headers={"Content-Disposition": name})
