# SPDX-License-Identifier: Apache-2.0
"""The site of the documents: complete, its links sound, and silent to everybody else.

``make docs`` builds it into build/docs and requires the second half of these tests by
``EXPUNGE_REQUIRE_SITE``; without a site they are skipped, and say so.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage
from typer.testing import CliRunner

from expunge.cli.app import app

ROOT = Path(__file__).parents[1]
DOCS, SITE = ROOT / "docs", ROOT / "build/docs"
REQUIRED = "EXPUNGE_REQUIRE_SITE"

TUTORIAL_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.M)
IN_STYLE = re.compile(
    r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", re.IGNORECASE
)
# What a browser follows by itself; a link that a reader may click on is none of these.
LOADING = {"src", "srcset", "poster", "data", "background", "action", "formaction"}


class Page(HTMLParser):
    """What a page loads, where it leads, and which places it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors = {"", "top"}
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name in LOADING or (tag != "a" and name in ("href", "xlink:href")):
                parts = value.split(",") if name == "srcset" else [value]
                self.loads += [part.split()[0] for part in parts if part.strip()]
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif name == "style":
                self.loads += loaded_by_style(value)

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loads += loaded_by_style(data)


def loaded_by_style(text: str) -> list[str]:
    return [url or sheet for url, sheet in IN_STYLE.findall(text)]


def is_outside(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme not in ("", "data") or bool(parts.netloc)


def test_gallery_is_large_enough() -> None:
    assert len(list((ROOT / "examples/gallery").glob("*.py"))) >= 12


def test_tutorial_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands end as they should, and say the lines that the page quotes."""
    monkeypatch.chdir(tmp_path)
    for language, block in TUTORIAL_BLOCK.findall((DOCS / "tutorial.md").read_text()):
        if language == "python":
            exec(compile(block, "tutorial.md", "exec"), {"__name__": "__main__"})
            continue
        for command, *quoted in (part.splitlines() for part in block.split("$ ")[1:]):
            said, failed = run_command(command)
            flat = " ".join(said.split())
            for line in quoted:
                assert " ".join(line.split()) in flat, (command, said)
            fails = any(re.search("NOT VALID|would come back", line) for line in quoted)
            assert failed == fails, (command, said)


def run_command(command: str) -> tuple[str, bool]:
    """Return what a line of the tutorial prints, and whether it failed."""
    words, _, file = command.partition(" > ")
    first, *rest = shlex.split(words)
    if first != "expunge":
        subprocess.run(["bash", "-ec", command], check=True)
        return "", False
    done = CliRunner().invoke(app, rest, prog_name="expunge")
    if file:
        Path(file).write_text(done.stdout)
    return done.stderr + ("" if file else done.stdout), done.exit_code != 0


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://x.org/a.js"></script>',
        '<img src="//x.org/a.png">',
        '<img srcset="a.png 1x, https://x.org/b.png 2x">',
        '<link rel="stylesheet" href="http://x.org/a.css">',
        "<style>@import 'https://x.org/a.css';</style>",
        '<div style="background: url(https://x.org/a.png)">',
        '<form action="https://x.org/search">',
    ],
)
def test_what_loads_from_outside_is_noticed(text: str) -> None:
    assert any(map(is_outside, Page(text).loads))


def test_what_loads_nothing_from_outside_may_stay() -> None:
    text = '<a href="https://x.org">x</a><img src="a.png"><img src="data:,">'
    assert not any(map(is_outside, Page(text).loads))


@pytest.fixture(scope="module")
def site() -> dict[str, Page]:
    if not (SITE / "index.html").exists():
        if os.environ.get(REQUIRED):
            pytest.fail(f"there is no site, and {REQUIRED} is set; run make docs")
        pytest.skip("NOT TESTED: there is no site; run make docs")
    return {
        file.relative_to(SITE).as_posix(): Page(file.read_text())
        for file in SITE.rglob("*.html")
        if "_static" not in file.parts  # templates of the theme, which is no page
    }


def test_no_page_loads_anything_from_outside(site: dict[str, Page]) -> None:
    loads = {name: page.loads for name, page in site.items()}
    for file in SITE.rglob("*.css"):
        loads[file.relative_to(SITE).as_posix()] = loaded_by_style(file.read_text())
    for file in SITE.rglob("*.svg"):
        loads[file.relative_to(SITE).as_posix()] = Page(file.read_text()).loads
    outside = {
        (name, address)
        for name, addresses in loads.items()
        for address in filter(is_outside, addresses)
    }
    assert len(site) > 100
    assert not outside


def test_every_link_within_the_site_leads_somewhere(site: dict[str, Page]) -> None:
    broken = []
    for name, page in site.items():
        for link in {*page.links, *page.loads}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = unquote(parts.path)
            target = (SITE / name).parent / path if path else SITE / name
            if target.is_dir():
                target /= "index.html"
            there = os.path.relpath(target, SITE)
            if not target.exists():
                broken.append((name, link))
            elif there in site and unquote(parts.fragment) not in site[there].anchors:
                broken.append((name, link))
    assert not broken


def test_every_example_ran_and_drew(site: dict[str, Page]) -> None:
    for example in (ROOT / "examples/gallery").glob("*.py"):
        shown = site[f"gallery/{example.stem}.html"].loads
        assert any("sphx_glr" in image for image in shown), example.name


@pytest.fixture(scope="module")
def address(site: dict[str, Page]) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *said: object) -> None:
            pass

    handler = partial(Quiet, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("unfit", "forget.html"),
        ("delete user from model", "forget.html"),
        ("right to be forgotten scikit-learn", "forget.html"),
        ("data protection officer", "dpo.html"),
    ],
)
def test_search_finds(address: str, chromium: Browser, words: str, page: str) -> None:
    tab = chromium.new_page()
    tab.goto(f"{address}search.html?q={words.replace(' ', '+')}")
    tab.wait_for_selector("#search-results ul.search li a")
    found = tab.locator("#search-results ul.search li a").evaluate_all(
        "links => links.map(each => each.getAttribute('href').split('?')[0])"
    )
    tab.close()
    assert page in [each.split("#")[0] for each in found[:3]]


@pytest.mark.parametrize("look", ["wide", "narrow", "dark"])
def test_pages_in_a_browser(address: str, chromium: Browser, look: str) -> None:
    """Nothing is asked of others, nothing fails, and nothing hangs over the edge."""
    width = 390 if look == "narrow" else 1280
    context = chromium.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if look == "dark" else "light",
    )
    tab = context.new_page()
    asked, errors = list[str](), list[str]()
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: errors.append(str(error)))

    def keep(said: ConsoleMessage) -> None:
        if said.type == "error":
            errors.append(said.text)

    tab.on("console", keep)
    for page in (
        "index",
        "proofs",
        "tutorial",
        "gallery/index",
        "epsilon",
        "reference",
    ):
        tab.goto(f"{address}{page}.html")
        tab.wait_for_load_state("networkidle")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, page
    tab.goto(f"{address}proofs.html")
    tab.wait_for_selector("mjx-container svg")
    context.close()
    assert not [url for url in asked if not url.startswith((address, "data:"))]
    assert not errors
