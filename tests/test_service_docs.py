# SPDX-License-Identifier: Apache-2.0
"""What the pages about the service list is what there is."""

import json
import re
import shlex
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import yaml

from expunge.cli.app import COMMANDS
from expunge.registry import Registry
from expunge.service.settings import (
    OidcSettings,
    OpenDsrSettings,
    ServiceSettings,
    read_settings,
)

from .cli_page import help_of
from .service_page import PAGE, TABLE, render_now
from .services import serve_in_process
from .test_service_metrics import NAMES

OPERATIONS = PAGE.with_name("operations.md")
README = PAGE.parents[1] / "README.md"
KEY = re.compile(r"^\| `(\w+)` \|([^|]*)\|", re.M)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
IN_TABLES = {"opendsr", "oidc", "client_secret"}


def blocks(page: Path, kind: str) -> list[str]:
    """Return the fenced blocks of a kind on a page."""
    return [text for found, text in BLOCK.findall(page.read_text()) if found == kind]


def test_the_table_of_routes_is_what_tokens_may_call() -> None:
    (table,) = TABLE.findall(PAGE.read_text())
    assert table == render_now(), "stale: run python -m tests.service_page"


def test_openapi_holds_every_document_that_it_refers_to(
    sqlite_registry: Registry,
) -> None:
    with serve_in_process(sqlite_registry) as service:
        described = service.http.get("/api/v1/openapi.json").json()
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(described)))
    assert "Problem" in named
    assert named <= set(described["components"]["schemas"])


def test_every_setting_is_listed_with_its_default() -> None:
    about = OPERATIONS.read_text().partition("## Settings")[2].partition("\n## ")[0]
    listed = dict(KEY.findall(about))
    wanted = {
        one.name: one
        for kind in (ServiceSettings, OpenDsrSettings, OidcSettings)
        for one in fields(kind)
        if one.name not in IN_TABLES
    }
    assert set(listed) == set(wanted)
    for name, setting in wanted.items():
        default = setting.default
        if setting.default_factory is not MISSING:
            default = setting.default_factory()
        said = "" if default is MISSING else f"`{json.dumps(default)}`"
        assert listed[name].strip() == said, name


def test_the_settings_shown_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPUNGE_OIDC_SECRET", "secret")
    (text,) = blocks(OPERATIONS, "toml")
    path = tmp_path / "service.toml"
    path.write_text(text)
    found = read_settings(path)
    assert found.oidc is not None and found.oidc.scopes["internal-audit"] == ("audit",)


def test_the_page_lists_every_metric() -> None:
    text = OPERATIONS.read_text()
    listed = set(re.findall(r"^\| `(expunge_\w+)", text, re.M))
    assert listed == NAMES
    (scraped,) = map(yaml.safe_load, blocks(OPERATIONS, "yaml"))
    assert scraped["scrape_configs"][0]["job_name"] == "expunge"


@pytest.mark.parametrize("page", [README, PAGE, OPERATIONS], ids=lambda one: one.name)
def test_commands_shown_exist(page: Path) -> None:
    shown = "\n".join(blocks(page, "")) + "\n".join(
        re.findall(r"`(expunge [^`]+)`", page.read_text())
    )
    lines = shown.replace("\\\n", " ").splitlines()
    start = re.compile(r"(?:\$ |sudo -u expunge )?expunge (.+)")
    called = [found[1] for found in map(start.match, lines) if found]
    assert len(called) >= 2
    for words in (shlex.split(line.partition("#")[0]) for line in called):
        names = [" ".join(words[:n]) for n in (2, 1)]
        (name,) = [one for one in names if one in COMMANDS][:1]
        options = {word for word in words if re.match("--?[a-z]", word)}
        known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", help_of(f"{name} ")))
        assert options <= known, (name, options - known)
