# SPDX-License-Identifier: Apache-2.0
"""Files that browsers get: those of others are whole, and ours hold nothing inline."""

import re
from hashlib import sha256

from expunge.service.rendering import FOLDER, STATIC

VENDOR = STATIC / "vendor"
LINE = re.compile(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_code_of_others_is_as_it_came() -> None:
    stated = dict(LINE.findall((VENDOR / "README.md").read_text(encoding="utf-8")))
    files = [path for path in VENDOR.rglob("*") if path.is_file()]
    found = {
        path.relative_to(VENDOR).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name != "README.md"
    }
    assert found == stated and len(found) >= 5
    for folder in {path.parent for path in files} - {VENDOR}:
        assert (folder / "LICENSE").is_file()


def test_own_files_name_their_licence() -> None:
    for path in [*STATIC.glob("*.*"), *(FOLDER / "templates").rglob("*.j2")]:
        if path.suffix != ".svg":
            first = path.read_text(encoding="utf-8").splitlines()[0]
            assert "SPDX-License-Identifier: Apache-2.0" in first, path.name


def test_templates_hold_no_inline_script_or_style() -> None:
    """The policy of the dashboard would refuse them."""
    inline = re.compile(
        r"<style|\bstyle=|\bon[a-z]+=\"|javascript:|<script(?![^>]*src=)"
    )
    for path in (FOLDER / "templates").rglob("*.j2"):
        if path.name == "check.html.j2":  # a file of its own, under its own policy
            continue
        text = path.read_text(encoding="utf-8")
        data = text.replace('<script type="application/json"', "")
        assert not inline.search(data), path.name
