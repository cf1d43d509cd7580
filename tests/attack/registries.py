# SPDX-License-Identifier: Apache-2.0
"""Attack the registry: requests, reopening, new anchors, restored backups."""

import shutil
import tempfile
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import linear_model

from expunge import from_sklearn
from expunge.registry import Registry

from . import draws
from .draws import Generator, Task, chance, pick
from .estimators import (
    WORDS,
    balance,
    empties_a_class,
    estimator,
    labels_of,
    public_parameters,
    retraining_problem,
    unit_of,
)
from .judge import Checker
from .losses import Array, Loss
from .oracle import LONG, Aim, Sample, minimise
from .peek import draft_in

# A file system in memory if there is one; the disk is not under attack here.
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, eq=False)
class Entry:
    """A model in a registry: its problem, its budget, and what it may claim."""

    task: Task
    budget: Any
    may_certify: bool = True
    balanced: bool = False


def attack(rng: Generator, checker: Checker) -> None:
    """Fill a registry, remove people, disturb it, and check every release."""
    place = str(MEMORY) if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="expunge-attack-", dir=place) as folder:
        site = pick_site(rng)(rng, checker, Path(folder))
        try:
            site.run()
        finally:
            site.registry.close()


def pick_site(rng: Generator) -> "type[Site]":
    """Return what to do with a registry: all mishaps, or all rights."""
    from .rights import RightsSite  # which rests on this module

    return RightsSite if chance(rng, 0.5) else Site


class Site:
    """One registry under attack.

    Parameters
    ----------
    rng, court
        Chance, and where verdicts go.
    folder
        An empty folder.
    """

    def __init__(self, rng: Generator, checker: Checker, folder: Path) -> None:
        self.rng, self.checker, self.folder = rng, checker, folder
        self.registry = Registry.create(folder / "registry")
        n = int(rng.integers(10, 50))
        self.owners = draws.owners(rng, n)
        self.stay = np.ones(n, dtype=bool)
        self.entries: dict[str, Entry] = {}

    def run(self) -> None:
        """Fit some models, then make requests with mishaps in between."""
        for number in range(int(self.rng.integers(4, 9))):
            self.enter(f"model-{number}")
        if not self.entries:
            return
        self.check_releases()
        whole = draws.Task(*self._any())
        for people in draws.requests(self.rng, whole, 10):
            after = self.stay & ~whole.rows_of(people)
            if not people or not self._possible(after):
                continue
            self.disturb()
            with self.checker.note_refusals() as refusal:
                self.registry.forget(people)
            if refusal:  # it waits, and the next worker would apply it
                return
            self.stay = after
            self.check_releases()

    def _any(self) -> tuple[Aim, Sample, Array]:
        task = next(iter(self.entries.values())).task
        return task.aim, task.sample, self.owners

    def _possible(self, after: Array) -> bool:
        """Whether every model has weight left and, mostly, all its classes."""
        entries = self.entries.values()
        emptied = any(empties_a_class(entry.task, after) for entry in entries)
        if emptied and not chance(self.rng, 0.2):
            return False
        return all(entry.task.sample.weight[after].any() for entry in entries)

    def enter(self, name: str) -> None:
        """Fit a model into the registry."""
        rng, n = self.rng, len(self.owners)
        kind = pick(rng, "plain", "tuned", "weighed", p=[0.8, 0.1, 0.1])
        if kind == "weighed":
            self.enter_adopted(name)
            return
        d = int(rng.integers(1, 5))
        aim, X = draws.aim(rng, draws.LOSSES, d), draws.design(rng, n, d)
        sample = Sample(X, draws.labels(rng, aim.loss, X), draws.weights(rng, n))
        task = Task(aim, sample, self.owners)
        model = self.make_model(task)
        with self.checker.note_refusals() as refusal:
            if kind == "tuned":
                model.fit(X, labels_of(task), self.owners.tolist())
                model.declare_tuned(object())
            self._fit(name, model, task)
        if not refusal:
            self.entries[name] = Entry(task, model.budget, kind == "plain")

    def make_model(self, task: Task) -> Any:
        """Return an estimator for a problem."""
        return estimator(self.rng, task)

    def enter_adopted(self, name: str) -> None:
        """Fit a model that was adopted, with weights of its classes."""
        rng, n = self.rng, len(self.owners)
        X = draws.design(rng, n, 2)
        y = draws.labels(rng, Loss("logistic"), X)
        words, balanced = WORDS[(y.astype(int) + 1) // 2], chance(rng, 0.5)
        there, codes, counts = np.unique(words, return_inverse=True, return_counts=True)
        factors = n / (2 * counts) if balanced else rng.uniform(0.5, 3.0, 2)
        numbers: Any = dict(zip(there.tolist(), factors.tolist(), strict=True))
        fitted = linear_model.LogisticRegression(
            class_weight="balanced" if balanced else numbers, max_iter=30
        )
        weight = factors[codes]
        aim = Aim(Loss("logistic"), 1 / weight.astype(LONG).sum(), scaling="sum")
        task = Task(aim, Sample(X, y, weight), self.owners)
        with self.checker.note_refusals() as refusal:
            fitted.fit(X, words)
            model = from_sklearn(fitted, X, words, self.owners.tolist())
            self.registry.fit(name, model, X, words, subjects=self.owners.tolist())
        if not refusal:
            self.entries[name] = Entry(task, model.budget, True, balanced)

    def _fit(self, name: str, model: Any, task: Task) -> None:
        given: dict[str, Any] = {}
        if not (task.sample.weight == 1.0).all():
            given["sample_weight"] = task.sample.weight
        self.registry.fit(
            name,
            model,
            task.sample.X,
            labels_of(task),
            subjects=self.owners.tolist(),
            **given,
        )

    def disturb(self) -> None:
        """Reopen the registry, anchor a model again, or restore a backup."""
        kind = pick(
            self.rng, "nothing", "reopen", "anchor", "restore", p=[0.5, 0.2, 0.2, 0.1]
        )
        if kind == "nothing":
            return
        if kind == "anchor":
            name = pick(self.rng, *self.entries)
            with self.checker.note_refusals():
                self.registry.models.reanchor(name)
            return
        self.registry.close()
        home, backup = self.folder / "registry", self.folder / "backup"
        if kind == "restore" and backup.is_dir():
            shutil.copy(backup / "expunge.db", home / "expunge.db")
            self.registry = Registry.restore(home, backup)
            self.check_releases()
            return
        if kind == "reopen" and not backup.is_dir():
            shutil.copytree(home, backup)
        self.registry = Registry.open(home)

    def rows_of(self, name: str) -> tuple[Array, Any]:
        """Return which rows a model has, as a mask, and their weight at its fit."""
        return self.stay, self.entries[name].task.sample.total

    def check_releases(self) -> None:
        """Compare every model's release with a fit to the remaining rows."""
        for name, entry in self.entries.items():
            self._check_release(name, entry)

    def _check_release(self, name: str, entry: Entry) -> None:
        checker, registry = self.checker, self.registry
        release, record = registry.model(name), registry.models.record(name)
        inside, first_weight = self.rows_of(name)
        aim, rest, classes = retraining_problem(entry.task, inside)
        if entry.balanced:
            rest = replace(rest, weight=balance(rest.y, np.ones(len(rest.y))))
        if len(classes) and not np.array_equal(release.classes_, classes):
            checker.check(False, f"classes {release.classes_}, a fit has {classes}")
            return
        theta = draft_in(registry, name)
        truth = minimise(aim, rest, first_weight, theta)
        unit = float(unit_of(release, rest)[1].min())
        radius = inf if record.radius is None else unit * record.radius
        checker.note_decisions(record.decisions)
        checker.check_radius(radius, theta, truth, "registry")
        claims = release.certificate_.status
        if not entry.may_certify:
            checker.check(
                claims != "certified", "a choice on the data became certified"
            )
        if entry.budget is None:
            checker.check_radius(
                radius, public_parameters(release, aim), truth, "registry, public"
            )
        elif claims == "certified":
            room = unit * entry.budget.radius_budget(theta.size)
            checker.check_radius(room, theta, truth, "registry, certified")
