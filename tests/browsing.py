# SPDX-License-Identifier: Apache-2.0
"""A real browser to look at pages with: Chromium, driven by playwright.

Where there is none, tests that need it are skipped, and say so. Under
``EXPUNGE_REQUIRE_CHROMIUM`` they fail instead, so that nobody takes a skip for a pass.
"""

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # every test imports this module
    from playwright.sync_api import Browser, Page

REQUIRED = "EXPUNGE_REQUIRE_CHROMIUM"
# For what a page will show; milliseconds. A machine that has much to do is slow.
PATIENCE = 30_000


# For one module: while it lasts, an event loop runs in this thread, and other tests
# begin their own.
@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """Return a browser without a window, for the tests of a module."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"there is no chromium, and {REQUIRED} is set; install it")
        pytest.skip(f"NOT TESTED: there is no chromium; set {REQUIRED} to fail instead")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)

    with sync_playwright() as playwright:
        # Containers have no sandbox, and pages come from this machine alone.
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tab(chromium: "Browser") -> Iterator["Page"]:
    """Return the page of a module's tests: a new one for each takes a second."""
    context = chromium.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def page(tab: "Page") -> Iterator["Page"]:
    """Return a page as if it were new, with no cookie; its script may not fail."""
    errors: list[str] = []

    def keep(error: object) -> None:
        errors.append(str(error))

    tab.on("pageerror", keep)
    yield tab
    tab.unroute_all(behavior="ignoreErrors")
    if tab.url.startswith("http"):
        tab.evaluate("localStorage.clear()")
    tab.goto("about:blank")
    tab.context.clear_cookies()
    tab.emulate_media(media="null", color_scheme="null")
    tab.set_viewport_size({"width": 1280, "height": 720})  # as playwright makes it
    tab.remove_listener("pageerror", keep)
    assert errors == []
