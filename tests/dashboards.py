# SPDX-License-Identifier: Apache-2.0
"""Dashboards for a browser: served at a socket, signed in to, and looked through."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from expunge.registry import Registry
from expunge.service.app import create_app
from expunge.service.settings import ServiceSettings
from tests.services import serve_app

ASKED = {"resultTypes": ["violations"]}  # it says less of what is well


@contextmanager
def serve_to_browsers(registry: Registry, **settings: Any) -> Iterator[str]:
    """Serve a registry on a free port of this machine; yield its address."""
    chosen: dict[str, Any] = {"is_secure": False, "rate": 10**6}
    with serve_app(create_app(registry, ServiceSettings(**chosen | settings))) as at:
        yield at


def sign_in(page: Page, address: str, *, token: str) -> None:
    """Sign in as a person does."""
    page.goto(f"{address}/sign-in")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("heading", name="Requests").wait_for()


def find_flaws(page: Page) -> list[str]:
    """Return what axe finds that keeps somebody from using a page."""
    found = Axe().run(page, options=ASKED).response["violations"]
    return [
        f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
