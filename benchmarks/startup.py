# SPDX-License-Identifier: Apache-2.0
"""How long commands take to start, and how far a reader walks to follow one.

Each command is a process of its own on a small registry, in turns with a process that
imports NumPy, scipy.linalg and SQLAlchemy and does nothing.

A walk is traced: which modules of the package a call enters, in the order in which its
functions are first called. Going back to a module that was already left counts as a
return.
"""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

import expunge
from expunge import Budget, LogisticRegression
from expunge.cli import main
from expunge.registry import Registry

from .registry import registry_of
from .report import Section, Table, Target, timings_table
from .timing import take_turns

BARE = "import numpy, scipy.linalg, sqlalchemy"
COMMAND = "from expunge.cli import main; main()"
PEOPLE, D, REPEATS, MOST = 200, 4, 7, 3.0
PACKAGE = str(Path(expunge.__file__).parent)


def start_ups(folder: Path) -> Section:
    """Return how long commands take, against importing what none can do without."""
    home = folder / "registry"
    registry_of(home, PEOPLE, D).close()
    people, environment = (
        count(),
        os.environ | {"PYTHONPATH": str(Path(PACKAGE).parent)},
    )

    def python(code: str, *words: str) -> None:
        subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            check=True,
        )

    def command(*words: str) -> None:
        python(COMMAND, *words, "--registry", str(home))

    with Registry.open(home) as registry:
        receipt = registry.forget([str(next(people))])
    (folder / "receipt.json").write_text(receipt)
    key = str(home / "public.pem")
    actions = {
        "bare imports": lambda: python(BARE),
        "status": lambda: command("status"),
        "log": lambda: command("log"),
        "verify": lambda: python(COMMAND, "verify", "receipt.json", "--key", key),
        "forget": lambda: command("forget", str(next(people))),
        "release": lambda: command("release", "model", "--to", "m.safetensors"),
    }
    times = take_turns(actions, REPEATS)
    bare = times["bare imports"]
    return Section(
        "Start-up of commands",
        [timings_table(times.values(), "ms")],
        [
            Target(f"{name} over bare imports", taken.over(bare), high=MOST)
            for name, taken in times.items()
            if taken is not bare
        ],
    )


def walks(folder: Path) -> Section:
    """Return how many modules a reader enters, and how often they return to one."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((PEOPLE, D)) / np.sqrt(D)
    y = (X[:, 0] > 0.1 * rng.standard_normal(PEOPLE)).astype(int)
    model = LogisticRegression(alpha=1e-2, budget=Budget(sigma=0.5))
    home = folder / "walked"
    registry_of(home, PEOPLE, D).close()
    rows = [
        ("fit", *trace(lambda: model.fit(X, y, subjects=range(PEOPLE)))),
        ("forget", *trace(lambda: model.forget([2]))),
        ("expunge forget ID", *trace(lambda: _call("forget", "6", "--registry", home))),
    ]
    header = ("walk", "modules", "lines in them", "changes", "returns")
    return Section("Walks through the code", [Table(header, rows)])


def trace(call: Callable[[], object]) -> tuple[str, ...]:
    """Return modules entered, their lines, changes of module and returns."""
    path: list[str] = []
    seen: set[CodeType] = set()

    def enter(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in seen or not code.co_filename.startswith(PACKAGE):
            return
        seen.add(code)
        if not path or path[-1] != code.co_filename:
            path.append(code.co_filename)

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    left: set[str] = set()
    returns = 0
    for here, there in pairwise(path):
        left.add(here)
        returns += there in left
    lines = sum(len(Path(module).read_text().splitlines()) for module in set(path))
    figures = (len(set(path)), lines, len(path) - 1, returns)
    return tuple(f"{figure:,}" for figure in figures)


def _call(*words: object) -> None:
    """Run a command in this process, quietly."""
    before = sys.argv
    sys.argv = ["expunge", *map(str, words)]
    quiet = io.StringIO()
    try:
        with (
            contextlib.suppress(SystemExit),
            contextlib.redirect_stdout(quiet),
            contextlib.redirect_stderr(quiet),
        ):
            main()
    finally:
        sys.argv = before


def run(data_dir: Path | None) -> Iterator[Section]:
    """Yield both sections; no data is needed."""
    del data_dir
    with tempfile.TemporaryDirectory() as folder:
        yield start_ups(Path(folder))
        yield walks(Path(folder))
