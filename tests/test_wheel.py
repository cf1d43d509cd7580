# SPDX-License-Identifier: Apache-2.0
"""The wheel stands on its own: built, installed elsewhere, imported there."""

import importlib.metadata
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


@pytest.fixture(scope="module")
def stranger(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python that knows the wheel and what it requires, nothing else."""
    folder = tmp_path_factory.mktemp("stranger")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env/bin/python"
    versions = (f"{name}=={importlib.metadata.version(name)}\n" for name in CORE)
    (folder / "constraints.txt").write_text("".join(versions))
    install = (python, "-m", "pip", "install", "--quiet", "-c", "constraints.txt")
    run(*install, wheel, cwd=folder)
    return python


def test_wheel_holds_the_package_and_only_that(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"expunge/py.typed", "expunge/demo/page.html.j2"} <= set(names)
    pages = {"static/check.js", "static/vendor/htmx/LICENSE", "templates/check.html.j2"}
    assert {f"expunge/service/{name}" for name in pages} <= set(names)
    folders = {name.partition("/")[0] for name in names}
    assert folders == {"expunge", f"expunge-{expunge.__version__}.dist-info"}


def test_wheel_requires_the_core_alone(wheel: Path) -> None:
    info = zipfile.Path(wheel, f"expunge-{expunge.__version__}.dist-info/")
    requirements = importlib.metadata.PathDistribution(info).requires or []
    core = [line for line in requirements if "extra ==" not in line]
    assert sorted(line.partition(">")[0] for line in core) == sorted(CORE)


def test_stranger_can_import(stranger: Path, tmp_path: Path) -> None:
    story = (
        "from expunge import *; import expunge;"
        "print(expunge.__version__, expunge.__file__, sep='\\n')"
    )
    version, place = run(stranger, "-I", "-c", story, cwd=tmp_path).splitlines()
    assert version == expunge.__version__
    assert Path(place).is_relative_to(stranger.parents[1])
