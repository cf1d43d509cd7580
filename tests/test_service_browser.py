# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a browser: wide, narrow, dark, by keys alone, without script."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from expunge.ledger import check_receipt
from expunge.registry import Registry, Request
from tests.dashboards import find_flaws, serve_to_browsers, sign_in
from tests.registries import registry_at, set_clock, today

IMAGES = Path(__file__).parents[1] / "docs" / "images"
# Set to have the pictures in the documents drawn again.
DRAW = "EXPUNGE_DRAW_IMAGES"
NARROW = {"width": 390, "height": 844}
DAY_LONG = 24 * 60 * 60
WIDE = {"width": 1280, "height": 860}
PAGES = (
    "/",
    "/requests/new",
    "/requests/upload",
    "/requests/rectify",
    "/people",
    "/models",
    "/models/all",
    "/ledger",
    "/deliveries",
    "/trail",
    "/settings",
)


class Dashboard(NamedTuple):
    """A service, somebody who may do everything, and two requests."""

    address: str
    registry: Registry
    token: str
    answered: str
    overdue: str


def fill(registry: Registry) -> Request:
    """Let some weeks pass, with requests and releases; return an answered request."""
    answered = Request(("person 1",), sender="privacy desk")
    days: list[tuple[int, Request]] = [
        (14, Request(("person 2", "person 3"), sender="consent desk")),
        (9, Request(("person 4",), right="restrict", sender="consent desk")),
        (5, answered),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for before, request in days:
            set_clock(patch, today() - timedelta(days=before))
            registry.requests.accept([request])
            registry.requests.apply()
            patch.undo()
        set_clock(patch, today() - timedelta(days=3))
        waits = today() - timedelta(days=24)
        registry.requests.accept(
            [Request(("person 5",), submitted=waits, sender="consent desk")]
        )
    return answered


@pytest.fixture(scope="module")
def dashboard(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dashboard]:
    """Return a service that applies nothing: what waits, waits in all tests."""
    folder = tmp_path_factory.mktemp("dashboard")
    late = Request(("person 30",), submitted=today() - timedelta(days=40))
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            set_clock(patch, today() - timedelta(days=20))
            registry = stack.enter_context(registry_at(folder / "registry"))
            registry.models.ship("all", folder / "all.safetensors")
        _, token = registry.access.create("privacy desk", ["admin"])
        answered = fill(registry)
        registry.requests.accept(
            [late, Request(("person 6",), right="object", sender="consent desk")]
        )
        address = stack.enter_context(
            serve_to_browsers(registry, window=DAY_LONG, applies=False)
        )
        yield Dashboard(address, registry, token, answered.request, late.request)


@pytest.fixture(scope="module")
def busy(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dashboard]:
    """Return a service that applies requests at the end of each second."""
    folder = tmp_path_factory.mktemp("busy")
    with ExitStack() as stack:
        registry = stack.enter_context(registry_at(folder / "registry"))
        _, token = registry.access.create("privacy desk", ["operate", "audit"])
        address = stack.enter_context(serve_to_browsers(registry, window=1))
        yield Dashboard(address, registry, token, "", "")


def draw(page: Page, name: str) -> None:
    """Write a picture for the documents, if asked to."""
    if os.environ.get(DRAW):
        page.screenshot(path=IMAGES / f"service-{name}.png", full_page=True)


def file_request(page: Page, address: str, *, people: str) -> str:
    """Fill the form in and send it; return the request's id."""
    page.goto(f"{address}/requests/new")
    page.get_by_label("People").fill(people)
    page.get_by_role("button", name="Send the request").click()
    page.wait_for_url(re.compile("/requests/[0-9a-f]{32}"))
    return page.url.rpartition("/")[2].partition("?")[0]


def test_from_request_to_receipt(page: Page, busy: Dashboard) -> None:
    """File a request, watch it complete, and check its receipt in the page."""
    sign_in(page, busy.address, token=busy.token)
    request = file_request(page, busy.address, people="person 7")
    expect(page.get_by_role("status").first).to_contain_text("on disk")
    # The page renews itself until there is an answer.
    receipt = page.get_by_role("heading", name="Receipt", exact=True)
    receipt.wait_for(timeout=30_000)
    expect(page.locator(".badge").first).to_have_text("completed")
    page.get_by_role("button", name="Check this receipt").click()
    page.get_by_role("heading", name="The receipt is valid").wait_for()
    expect(page.locator("[data-verdict]")).to_contain_text(
        "What this page does not check"
    )
    assert find_flaws(page) == []
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download the receipt").click()
    text = waiting.value.path().read_bytes()
    assert check_receipt(text, busy.registry.keys.public_pem()).valid
    assert Path(waiting.value.suggested_filename).name == f"receipt-{request}.json"


def test_damaged_receipt_is_not_valid(page: Page, dashboard: Dashboard) -> None:
    """What the server hands out is checked, and not what it says of it."""

    def damage(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        body = answer.text().replace('"n_subjects":1', '"n_subjects":2')
        route.fulfill(response=answer, body=body)  # type: ignore[attr-defined]

    sign_in(page, dashboard.address, token=dashboard.token)
    page.route("**/receipt", damage)
    page.goto(f"{dashboard.address}/requests/{dashboard.answered}")
    page.get_by_role("button", name="Check this receipt").click()
    page.get_by_role("heading", name="The receipt is not valid").wait_for()


def test_cancel(page: Page, dashboard: Dashboard) -> None:
    sign_in(page, dashboard.address, token=dashboard.token)
    file_request(page, dashboard.address, people="person 9")
    page.get_by_label("It will not be applied").check()
    page.get_by_role("button", name="Cancel the request").click()
    expect(page.get_by_role("status").first).to_contain_text("will not be applied")
    expect(page.locator(".badge").first).to_have_text("cancelled")


def test_overdue_comes_first_and_is_said(page: Page, dashboard: Dashboard) -> None:
    sign_in(page, dashboard.address, token=dashboard.token)
    page.get_by_label("Due").select_option("overdue")
    page.get_by_role("button", name="Show").click()
    line = page.get_by_role("row").nth(1)
    expect(line).to_contain_text(dashboard.overdue[:12])
    expect(line).to_contain_text("overdue by")


def test_download_and_recall(page: Page, dashboard: Dashboard) -> None:
    sign_in(page, dashboard.address, token=dashboard.token)
    page.goto(f"{dashboard.address}/models")
    page.get_by_role("link", name="all").click()
    # Before the download: a page left while its scripts load keeps its table.
    plot = page.get_by_role("img", name="What somebody believes")
    expect(plot.locator("canvas")).to_be_visible()
    for name in ("safetensors", "ONNX"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        file = waiting.value
        assert file.suggested_filename == f"all.{name.lower()}"
        assert file.path().stat().st_size > 500
    page.get_by_label("The proof log will say so for good").check()
    page.get_by_role("button", name="All copies of 1 are taken back").click()
    expect(page.get_by_role("status")).to_contain_text("no copy of this release")


def test_tokens(page: Page, dashboard: Dashboard) -> None:
    sign_in(page, dashboard.address, token=dashboard.token)
    page.goto(f"{dashboard.address}/settings")
    page.get_by_text("Make a token", exact=True).click()
    page.get_by_label("Name").fill("crm")
    page.get_by_label("request: send").check()
    page.get_by_role("button", name="Make the token").click()
    secret = page.locator("#secret").text_content()
    assert secret is not None and dashboard.registry.access.find(secret) is not None
    page.goto(f"{dashboard.address}/settings")
    assert page.get_by_text(secret).count() == 0
    row = page.get_by_role("row").filter(has_text="crm")
    row.get_by_label("for good").check()
    page.get_by_role("button", name="Revoke the token crm").click()
    expect(page.get_by_role("status")).to_contain_text("revoked")
    assert dashboard.registry.access.find(secret) is None


def test_compare_a_head(page: Page, dashboard: Dashboard) -> None:
    sign_in(page, dashboard.address, token=dashboard.token)
    page.goto(f"{dashboard.address}/ledger")
    text = dashboard.registry.requests.receipt(dashboard.answered)
    assert text is not None
    page.get_by_label("A head or a receipt").fill(text)
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="The receipt is valid").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_every_page_can_be_used_by_everybody(
    page: Page, dashboard: Dashboard, *, scheme: str, size: dict[str, int]
) -> None:
    """There is no serious flaw, nothing is wider than the screen, no script fails."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size(size)  # type: ignore[arg-type]
    said: list[str] = []

    def listen(line: ConsoleMessage) -> None:
        if line.type == "error":
            said.append(line.text)

    page.on("console", listen)
    page.goto(f"{dashboard.address}/sign-in")
    flaws = find_flaws(page)
    sign_in(page, dashboard.address, token=dashboard.token)
    request = f"/requests/{dashboard.answered}"
    for path in (*PAGES, request, "/requests/none", f"/requests/{dashboard.overdue}"):
        page.goto(dashboard.address + path)
        flaws += find_flaws(page)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"], path
    page.remove_listener("console", listen)
    assert flaws == []
    assert [line for line in said if "404" not in line] == []


def test_colours_follow_the_switch(page: Page, dashboard: Dashboard) -> None:
    page.emulate_media(color_scheme="light")
    sign_in(page, dashboard.address, token=dashboard.token)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_role("button", name="Use dark colours").click()
    dark = page.evaluate(colour)
    assert dark != light
    page.goto(f"{dashboard.address}/models/all")
    assert page.evaluate(colour) == dark  # it is kept
    page.get_by_role("button", name="Use light colours").click()
    assert page.evaluate(colour) == light


def test_keys_alone(page: Page, dashboard: Dashboard) -> None:
    """Sign in, skip to the content, and open a request without a mouse."""
    there = f"{dashboard.address}/requests/{dashboard.overdue}"
    page.goto(there)
    assert page.url.endswith(f"/sign-in?next=/requests/{dashboard.overdue}")
    token = page.get_by_label("Token")
    expect(token).to_be_focused()  # once it is shown, not before
    page.keyboard.type(dashboard.token)
    expect(token).to_have_value(dashboard.token)
    page.keyboard.press("Enter")
    page.wait_for_url(there)
    page.goto(dashboard.address)
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    expect(focused).to_have_text("Skip to the content")
    expect(focused).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
    line = dashboard.overdue[:12]
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == line:
            break
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url(there)


def test_without_script(chromium: Browser, dashboard: Dashboard) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    sign_in(page, dashboard.address, token=dashboard.token)
    request = file_request(page, dashboard.address, people="person 11")
    assert request in dashboard.registry.requests.statuses([request])
    for path in PAGES:
        page.goto(dashboard.address + path)
        expect(page.get_by_role("heading").first).to_be_visible()
    page.goto(f"{dashboard.address}/ledger")
    expect(page.get_by_text("Entries of the proof log, by day")).to_be_visible()
    page.goto(f"{dashboard.address}/requests/{dashboard.answered}")
    expect(page.get_by_text("expunge verify receipt.json")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("status")).to_contain_text("signed out")
    context.close()


def test_printed_request_is_the_receipt(page: Page, dashboard: Dashboard) -> None:
    sign_in(page, dashboard.address, token=dashboard.token)
    page.goto(f"{dashboard.address}/requests/{dashboard.answered}")
    page.emulate_media(media="print")
    for said in ("GDPR Art. 17", "Up to noise that hides", "states that request"):
        expect(page.get_by_text(said).first).to_be_visible()
    for hidden in (page.get_by_role("navigation"), page.locator("button")):
        assert not any(one.is_visible() for one in hidden.all())


def test_pictures(chromium: Browser, dashboard: Dashboard) -> None:
    """The pages of the documents' pictures exist; the pictures are drawn on demand."""
    request = f"/requests/{dashboard.answered}"
    wide = {"queue": "/", "request": request, "model": "/models/all"}
    for scheme, size, places in (
        ("light", WIDE, wide),
        ("dark", NARROW, {"queue-narrow": "/"}),
    ):
        context = chromium.new_context(color_scheme=scheme, viewport=size)  # type: ignore[arg-type]
        page = context.new_page()
        sign_in(page, dashboard.address, token=dashboard.token)
        for name, path in places.items():
            answer = page.goto(dashboard.address + path)
            assert answer is not None and answer.ok
            draw(page, name)
        context.close()
