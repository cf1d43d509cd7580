# SPDX-License-Identifier: Apache-2.0
"""What a release is made of agrees with itself, and is published without a secret."""

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import expunge
from tests.test_house import tracked

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def workflow() -> Any:
    return yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())


def test_version_has_one_source() -> None:
    assert "version" in PROJECT["dynamic"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == expunge.__version__
    assert cited["license"] == PROJECT["license"]


def test_publishing_needs_no_secret(workflow: Any) -> None:
    assert workflow["permissions"] == {}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert build["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    assert publish["environment"]
    text = (ROOT / ".github/workflows/release.yml").read_text()
    assert not re.search(r"secrets\.|password:|repository-url", text)
    # What runs beside the identity of the project is not code of ours.
    assert not any("checkout" in step.get("uses", "") for step in publish["steps"])


def test_tag_must_name_the_version(workflow: Any) -> None:
    (check,) = (
        step["run"]
        for step in workflow["jobs"]["build"]["steps"]
        if "__version__" in step.get("run", "")
    )
    for tag, code in ((f"v{expunge.__version__}", 0), ("v99.1", 1)):
        done = subprocess.run(
            ["bash", "-c", check], cwd=ROOT, env={"GITHUB_REF_NAME": tag}
        )
        assert done.returncode == code


@pytest.mark.slow
def test_source_archive_has_every_file(tmp_path: Path) -> None:
    """So its tests run where there is no repository."""
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation"]
    done = subprocess.run(
        [*build, "--outdir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {str(file.path) for file in tracked(ROOT)} <= held
