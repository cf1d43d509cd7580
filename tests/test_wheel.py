# SPDX-License-Identifier: Apache-2.0
"""The wheel stands on its own: built, installed elsewhere, imported there."""

import importlib.metadata
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import expunge

ROOT = Path(__file__).parents[1]
CORE = ("numpy", "rfc8785", "scipy", "scikit-learn")

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that must succeed; return what it said."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of the working tree, built with the pinned backend."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation")
    run(*build, "--outdir", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


def requirements(dist: importlib.metadata.Distribution) -> list[str]:
    """Return the names that a distribution requires, without those of its extras."""
    lines = [line for line in dist.requires or [] if "extra ==" not in line]
    return [re.split(r"[^\w-]", line)[0] for line in lines]


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> importlib.metadata.Distribution:
    info = zipfile.Path(wheel, f"expunge-{expunge.__version__}.dist-info/")
    return importlib.metadata.PathDistribution(info)


@pytest.fixture(scope="module")
def stranger(
    wheel: Path,
    unpacked: importlib.metadata.Distribution,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Return a Python that knows the wheel and what it requires, nothing else.

    What it requires is linked from here: installing it again takes ten seconds.
    """
    folder = tmp_path_factory.mktemp("stranger")
    venv.create(folder / "env")
    (packages,) = folder.glob("env/lib/*/site-packages")
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index")
    run(*install, "--no-deps", "--target", packages, wheel, cwd=folder)
    known, wanted = set[str](), requirements(unpacked)
    while wanted:
        if (name := wanted.pop()) in known:
            continue
        known.add(name)
        dist = importlib.metadata.distribution(name)
        wanted += requirements(dist)
        for top in {file.parts[0] for file in dist.files or []} - {"..", "__pycache__"}:
            (packages / top).symlink_to(Path(str(dist.locate_file(top))))
    return folder / "env/bin/python"


def test_wheel_holds_the_package_and_only_that(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"expunge/py.typed", "expunge/demo/page.html.j2"} <= set(names)
    pages = {"static/check.js", "static/vendor/htmx/LICENSE", "templates/check.html.j2"}
    assert {f"expunge/service/{name}" for name in pages} <= set(names)
    folders = {name.partition("/")[0] for name in names}
    assert folders == {"expunge", f"expunge-{expunge.__version__}.dist-info"}


def test_wheel_requires_the_core_alone(
    unpacked: importlib.metadata.Distribution,
) -> None:
    assert sorted(requirements(unpacked)) == sorted(CORE)


def test_stranger_can_import(stranger: Path, tmp_path: Path) -> None:
    story = (
        "from expunge import *; import expunge;"
        "print(expunge.__version__, expunge.__file__, sep='\\n')"
    )
    version, place = run(stranger, "-I", "-c", story, cwd=tmp_path).splitlines()
    assert version == expunge.__version__
    assert Path(place).is_relative_to(stranger.parents[1])
