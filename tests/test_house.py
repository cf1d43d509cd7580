# SPDX-License-Identifier: Apache-2.0
"""The house keeps its own rules, and each rule can fail."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

import expunge
from tests import house
from tests.house import Rule, Source
from tests.names import listed

ROOT = Path(__file__).parents[1]

PACKAGE_RULES: tuple[Rule, ...] = (
    house.known,
    house.downward,
    house.documented,
    house.named,
    house.light,
    house.apart,
    house.quiet,
    house.deterministic,
    house.listed,
)
CODE_RULES: tuple[Rule, ...] = (house.annotated, house.ascii_named, house.outside)
FILE_RULES: tuple[Rule, ...] = (house.portable, house.addressless)


def tracked(root: Path) -> list[Source]:
    """Return every file that is, or is about to be, in the repository.

    Git says which. It cannot in a source archive, and refuses where the checkout is
    another user's; there all files count that ``.gitignore`` does not name.
    """
    names = listed_by_git(root) if (root / ".git").exists() else None
    if names is None:
        names = sorted(not_ignored(root))
    paths = [name for name in names if (root / name).is_file()]
    return [source(name, (root / name).read_text(errors="replace")) for name in paths]


def listed_by_git(root: Path) -> list[str] | None:
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            check=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return listing.stdout.split("\0")[:-1]


def not_ignored(root: Path) -> Iterator[str]:
    """Yield the files that the lines of ``.gitignore`` leave; it has no exceptions."""
    lines = (root / ".gitignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]

    def ignored(path: str, *, folder: bool) -> bool:
        return path == ".git" or any(
            fnmatch(path if "/" in line[:-1] else path.rpartition("/")[2], name)
            for line in patterns
            if (name := line.strip("/")) and (folder or not line.endswith("/"))
        )

    for folder, below, files in os.walk(root):
        place = Path(folder).relative_to(root)
        below[:] = [
            name for name in below if not ignored(str(place / name), folder=True)
        ]
        yield from (
            path
            for name in files
            if not ignored(path := str(place / name), folder=False)
        )


def source(path: str, text: str) -> Source:
    return Source(PurePosixPath(path), text)


FILES = tracked(ROOT)
CODE = [file for file in FILES if file.path.suffix == ".py"]
PACKAGE = [file for file in CODE if file.path.is_relative_to("src/expunge")]


@pytest.mark.parametrize(
    ("rule", "files"),
    [
        *((rule, PACKAGE) for rule in PACKAGE_RULES),
        *((rule, CODE) for rule in CODE_RULES),
        *((rule, FILES) for rule in FILE_RULES),
    ],
    ids=[rule.__name__ for rule in PACKAGE_RULES + CODE_RULES + FILE_RULES],
)
def test_every_file_is(rule: Rule, files: list[Source]) -> None:
    complaints = [complaint for file in files for complaint in rule(file)]
    assert not complaints, "\n".join(complaints)


class TestTracked:
    """What counts as ours, with git and without it."""

    OURS = (".gitignore", "README.md", "src/a.py", "tests/build/b.py")
    NOT_OURS = (
        ".venv/lib/expunge/c.py",
        "build/d.py",
        "src/__pycache__/e.pyc",
        "benchmarks/out/f.csv",
        "uv.lock",
    )

    needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        root = tmp_path / "mein Ordner ä" / "expunge"
        for name in (*self.OURS, *self.NOT_OURS):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        (root / ".gitignore").write_text((ROOT / ".gitignore").read_text())
        return root

    def names(self, root: Path) -> list[str]:
        return sorted(str(file.path) for file in tracked(root))

    @needs_git
    def test_in_a_repository(self, checkout: Path) -> None:
        subprocess.run(["git", "init", "--quiet"], cwd=checkout, check=True)
        assert listed_by_git(checkout) is not None
        assert self.names(checkout) == sorted(self.OURS)

    def test_in_a_source_archive(self, checkout: Path) -> None:
        assert self.names(checkout) == sorted(self.OURS)

    @needs_git
    def test_in_a_repository_of_another_user(
        self, checkout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        subprocess.run(["git", "init", "--quiet"], cwd=checkout, check=True)
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        assert listed_by_git(checkout) is None
        assert self.names(checkout) == sorted(self.OURS)

    def test_without_git(self, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (checkout / ".git").mkdir()
        monkeypatch.setenv("PATH", str(checkout))
        assert self.names(checkout) == sorted(self.OURS)

    def test_walking_finds_what_git_lists(self) -> None:
        # A user may have git ignore more than we do: files of an editor, say.
        assert {str(file.path) for file in FILES} <= {*not_ignored(ROOT)}


def test_package_has_no_import_cycle() -> None:
    assert list(house.cycles(PACKAGE)) == []


@pytest.mark.parametrize("rule", [house.twins, house.trespasses])
def test_package_is(rule: house.PackageRule) -> None:
    assert not list(rule(PACKAGE)), "\n".join(rule(PACKAGE))


def test_package_is_typed() -> None:
    assert (ROOT / "src/expunge/py.typed").is_file()


LOSSES = "src/expunge/core/losses.py"
MODELS = "src/expunge/registry/models.py"
INIT = "src/expunge/linalg/__init__.py"
TEST, INNER = "tests/test_restore.py", "expunge." + "registry"
SIX = "a: int, b: int, c: int, d: int, e: int, f: int"

BAD: list[tuple[Rule, str, str]] = [
    (house.known, "src/expunge/utils.py", ""),
    (house.downward, LOSSES, "from ..removal import Newton"),
    (house.downward, LOSSES, "from expunge.cli import main"),
    (house.downward, LOSSES, "def f() -> None:\n    import expunge.removal.retrain"),
    (house.downward, LOSSES, "from .. import __version__"),
    (house.downward, LOSSES, "import expunge"),
    (house.downward, INIT, "from ..solvers.newton import solve"),
    (house.documented, LOSSES, "x = 1"),
    (house.named, LOSSES, "def f(a, b, c): ..."),
    (house.named, LOSSES, "class A:\n    def f(self, X, y, a, b, c): ..."),
    (house.light, LOSSES, "from sklearn.base import clone"),
    (house.apart, LOSSES, "from ..files.onnx import make_onnx"),
    (house.apart, MODELS, "from . import lake"),
    (
        house.apart,
        "src/expunge/registry/models.py",
        "if a:\n    from .lake import Lake",
    ),
    (house.annotated, LOSSES, "def f(a): ..."),
    (house.annotated, LOSSES, "def f(a) -> None: ..."),
    (house.annotated, LOSSES, "class A:\n    def f(self): ..."),
    (house.quiet, LOSSES, "print('theta')"),
    (house.deterministic, LOSSES, "import random"),
    (house.deterministic, LOSSES, "from secrets import token_bytes"),
    (house.deterministic, LOSSES, "from numpy.random import default_rng"),
    (house.deterministic, LOSSES, "rng = np.random.default_rng()"),
    (house.deterministic, LOSSES, "rng = np.random.RandomState(0)"),
    (house.deterministic, LOSSES, "draw = stats.norm.rvs"),
    (house.ascii_named, LOSSES, "\N{GREEK SMALL LETTER THETA} = 1"),
    (house.listed, INIT, "from .prox import solve"),
    (house.outside, TEST, "registry._context.store"),
    (house.outside, TEST, "from expunge.registry import Registry, keys"),
    (house.outside, TEST, f"from {INNER}.storage import Store"),
    (house.outside, TEST, f"import {INNER}.statements as said"),
    (house.outside, TEST, f"patch.setattr('{INNER}.context.now', tell)"),
    (house.outside, "tests/test_sessions.py", f"import {INNER}.context"),
    (house.outside, TEST, "from tests.registries.inside import inside"),
    (house.portable, "README.md", "Data are under /" + "home/ada."),
    (house.addressless, "uv.lock", ""),
    (house.addressless, "requirements-dev.txt", "a @ https://example.org/a.whl"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_rule_can_fail(rule: Rule, path: str, text: str) -> None:
    assert list(rule(source(path, text)))


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _, _ in BAD} == {*PACKAGE_RULES, *CODE_RULES, *FILE_RULES}


@pytest.mark.parametrize("rule", PACKAGE_RULES + CODE_RULES + FILE_RULES)
def test_rule_lets_good_code_pass(rule: Rule) -> None:
    text = f'''"""Weigh each row."""

import numpy as np

from expunge.core.arrays import Vector
from .exceptions import ExpungeError

class Weighing:
    def __init__(self, {SIX}) -> None: ...
    def draw(self, rng: np.random.Generator, root: str = "./tmp") -> Vector: ...
'''
    assert list(rule(source(LOSSES, text))) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (TEST, "from expunge.registry import Registry, rebuild_journal"),
        (TEST, "from tests.registries import crash_at"),
        ("tests/registries/new.py", f"from {INNER}.storage import Store"),
        ("tests/test_sessions.py", f"from {INNER}.storage import Store"),
    ],
)
def test_what_is_public_or_inside_may_be_known(path: str, text: str) -> None:
    assert list(house.outside(source(path, text))) == []


def test_insiders_are_there_and_need_to_know() -> None:
    """The list gets shorter when one of them no longer does."""
    for path, parts in house.INSIDERS.items():
        files = [file for file in CODE if str(file.path).startswith(path)]
        found = {
            name.split(".")[2]
            for file in files
            for _, name in file.imports()
            if name.startswith("expunge.registry.")
        } | {name for file in files for name in house.INSIDE.findall(file.text)}
        assert {part for part in parts if part} <= found, path
        assert any(name[0].islower() for name in found), path


def test_class_with_two_homes_is_found() -> None:
    folder = [source("src/expunge/core/a.py", "class A: ...")]
    assert list(house.twins(folder)) == []
    folder.append(source("src/expunge/promise/b.py", "class A: ..."))
    assert "expunge.core.a and expunge.promise.b" in next(house.twins(folder))


@pytest.mark.parametrize(
    "text",
    [
        "def f(a):\n    return a._secret",
        "def f(a):\n    a._tell()",
        "from ..core.a import _hidden",
    ],
)
def test_trespass_is_found(text: str) -> None:
    home = "class A:\n    def __init__(self):\n        self._secret = 1\n"
    home += "    def _tell(self): return self._secret\ndef _hidden(): ..."
    folder = [source("src/expunge/core/a.py", home)]
    assert list(house.trespasses(folder)) == []
    folder.append(source("src/expunge/promise/b.py", text))
    assert list(house.trespasses(folder))


def test_cycle_within_a_folder_is_found() -> None:
    folder = [
        source("src/expunge/core/solver.py", "from .sums import total"),
        source("src/expunge/core/sums.py", "from . import solver"),
    ]
    assert list(house.cycles(folder[:1])) == []
    assert "expunge.core.solver" in next(house.cycles(folder))


def test_every_page_has_a_place_in_the_site() -> None:
    docs = ROOT / "docs"
    reached, new = set[Path](), {docs / "index.md"}
    while new:
        reached |= new
        new = {each for page in new for each in listed(page)} - reached
    missing = sorted(each.name for each in set(docs.rglob("*.md")) - reached)
    assert not missing, "name them in a toctree of docs/howto.md or docs/explanation.md"


def test_every_public_name_has_a_place_in_the_reference() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    named = re.findall(r"^   ([A-Za-z]\w*)$", text, re.M)
    missing = set(expunge.__all__) ^ set(named)
    assert not missing and len(named) == len(set(named)), "see docs/reference.md"
