# SPDX-License-Identifier: Apache-2.0
"""The house keeps its own rules, and each rule can fail."""

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from tests import house
from tests.house import Rule, Source

ROOT = Path(__file__).parents[1]

PACKAGE_RULES: tuple[Rule, ...] = (
    house.known,
    house.downward,
    house.documented,
    house.named,
    house.light,
    house.quiet,
    house.deterministic,
    house.listed,
)
CODE_RULES: tuple[Rule, ...] = (house.annotated, house.ascii_named)
FILE_RULES: tuple[Rule, ...] = (house.portable, house.addressless)


def tracked() -> list[Source]:
    """Return every file that is, or is about to be, in the repository."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    paths = [name for name in listing.stdout.split("\0") if (ROOT / name).is_file()]
    return [source(name, (ROOT / name).read_text(errors="replace")) for name in paths]


def source(path: str, text: str) -> Source:
    return Source(PurePosixPath(path), text)


FILES = tracked()
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


def test_package_has_no_import_cycle() -> None:
    assert list(house.cycles(PACKAGE)) == []


@pytest.mark.parametrize("rule", [house.twins, house.trespasses])
def test_package_is(rule: house.PackageRule) -> None:
    assert not list(rule(PACKAGE)), "\n".join(rule(PACKAGE))


def test_package_is_typed() -> None:
    assert (ROOT / "src/expunge/py.typed").is_file()


LOSSES = "src/expunge/core/losses.py"
INIT = "src/expunge/linalg/__init__.py"
SIX = "a: int, b: int, c: int, d: int, e: int, f: int"

BAD: list[tuple[Rule, str, str]] = [
    (house.known, "src/expunge/utils.py", ""),
    (house.downward, LOSSES, "from ..removal import Newton"),
    (house.downward, LOSSES, "from expunge.cli import main"),
    (house.downward, LOSSES, "def f() -> None:\n    import expunge.removal.summary"),
    (house.downward, LOSSES, "from .. import __version__"),
    (house.downward, LOSSES, "import expunge"),
    (house.downward, INIT, "from ..solvers.newton import solve"),
    (house.documented, LOSSES, "x = 1"),
    (house.named, LOSSES, "def f(a, b, c): ..."),
    (house.named, LOSSES, "class A:\n    def f(self, X, y, a, b, c): ..."),
    (house.light, LOSSES, "from sklearn.base import clone"),
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
