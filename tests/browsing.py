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


@pytest.fixture
def page(chromium: "Browser") -> Iterator["Page"]:
    """Return a page of its own, with no cookie; an error of its script is a failure."""
    context = chromium.new_context()
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []
