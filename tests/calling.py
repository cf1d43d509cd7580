# SPDX-License-Identifier: Apache-2.0
"""Calling the command line from a test, and a registry to call it about."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from expunge.cli.app import app
from expunge.cli.output import DONE, NOT_VALID
from expunge.registry import Registry

N_PEOPLE = 40


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, if that was JSON."""
        return json.loads(self.out)

    @property
    def words(self) -> str:
        """What it printed, as if on one line."""
        return " ".join(self.out.split())


def call(*words: str | Path) -> Done:
    """Run a command; a failure prints one line, without a traceback."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert "Traceback" not in done.stderr
    if done.exit_code not in (DONE, NOT_VALID):
        last = done.stderr.splitlines()[-1]
        assert last.startswith(("expunge: ", '{"error": ')), done.stderr
    return Done(done.exit_code, done.stdout, done.stderr)


def person(number: int) -> str:
    """Return the id of a person in the table."""
    return f"patient-{number:04d}"


def make_registry(where: Path) -> Path:
    """Make a registry with two models of the same people, beside their table."""
    table, folder = write_table(where / "people.csv"), where / "registry"
    assert call("init", "-r", folder).code == DONE
    churn = ("fit", "churn", table, "--target", "outcome", "--subject", "patient")
    assert call(*churn, "-r", folder, "--sigma", "0.5").code == DONE
    dose = ("fit", "dose", table, "--target", "dose", "--subject", "patient")
    budget = ("--drop", "outcome", "--sigma", "0.5", "--releases", "4")
    assert call(*dose, *budget, "-r", folder).code == DONE
    return folder


def copied(made: Path, where: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy a registry into a folder, and make both the defaults of commands."""
    copy = shutil.copytree(made, where / "registry")
    monkeypatch.setenv("EXPUNGE_REGISTRY", str(copy))
    monkeypatch.chdir(where)
    return copy


def write_table(path: Path) -> Path:
    """Write a table with two rows for each person, of small norm."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(2 * N_PEOPLE, 3))
    label = np.where(X[:, 0] + 0.2 * rng.normal(size=len(X)) > 0, "yes", "no")
    lines = ["patient,age,dose,weight,outcome"]
    for i, (row, word) in enumerate(zip(X, label, strict=True)):
        lines.append(",".join([person(i // 2), *(f"{x:.6f}" for x in row), word]))
    path.write_text("\n".join(lines) + "\n")
    return path


def whole(folder: Path) -> tuple[object, ...]:
    """Return all of a registry that a failed command must leave as it was."""
    with Registry.open(folder) as registry:
        kept = registry.ledger.export(), registry.status()
    secrets = sorted(path.name for path in (folder / "keys").iterdir())
    return (*kept, (folder / "journal").read_bytes(), secrets)
