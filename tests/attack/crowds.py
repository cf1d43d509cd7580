# SPDX-License-Identifier: Apache-2.0
"""People who leave a model and people who come, and what must hold of its releases."""

from typing import Any

import numpy as np

from expunge.exceptions import CapacityExceeded, InvalidInput
from expunge.linear_model.base import private_model, set_snapshot, snapshot_of
from expunge.private_model.snapshot import replace_places

from . import draws
from .draws import Generator, Task, chance
from .estimators import (
    RequestMaker,
    check_against_fit,
    labels_of,
    make_request,
    retraining_problem,
)
from .judge import Checker, Refusal
from .losses import Array


class Crowd:
    """Who is in a model of a problem, and who may come.

    Parameters
    ----------
    rng, checker
        Chance, and where verdicts go.
    task
        The problem, everybody's rows included.
    maker
        How people are removed.
    seen
        The problem with its rows as numbers, if they are not.
    """

    def __init__(
        self,
        rng: Generator,
        checker: Checker,
        task: Task,
        maker: RequestMaker,
        seen: Task | None = None,
    ) -> None:
        self.rng, self.checker, self.task, self.maker = rng, checker, task, maker
        self.seen = task if seen is None else seen
        everybody = list(task.people)
        # Positions are those among the rows of the fit: everybody is there.
        by_place = maker.way == "position"
        first = everybody if by_place else draws.first_people(rng, self.seen)
        self.start(task.rows_of(first))
        self.counts = [0, 0]
        self.behind = False  # whether the release is older than the state
        self.declared = False  # whether classes are, and may come when they like
        ones = (task.sample.weight == 1.0).all()
        self.weight = None if ones else task.sample.weight

    def start(self, inside: Array) -> None:
        """Have these rows in the model at its fit."""
        self.inside = inside
        self.first_weight = self.task.sample.take(inside).total

    def fit(self, model: Any, X: Any, engine: str | None = None) -> bool:
        """Fit a model to those who are in it first; return whether that is possible."""
        here = self.inside
        if not self.task.sample.weight[here].any():
            return False
        with self.checker.note_refusals() as refusal:
            subjects = self.maker.subjects(self.task)
            owners = None if subjects is None else np.array(subjects)[here].tolist()
            y, weight = labels_of(self.task)[here], self.weights(here)
            options = {} if engine is None else {"engine": engine}
            model.fit(X[here], y, owners, weight, **options)
        return not refusal

    def weights(self, mask: Array) -> Array | None:
        """Return the weights of some rows, if rows have weights."""
        return None if self.weight is None else self.weight[mask]

    def draw(self) -> tuple[list[str], list[str]]:
        """Return who leaves and who comes next."""
        here = np.unique(self.task.owners[self.inside])
        return draws.change(self.rng, self.seen, here.tolist())

    def possible(self, leaving: list[str], coming: list[str]) -> bool:
        """Whether weight and every class of the model are left after a request."""
        after = self.after(leaving, coming)
        if not self.task.sample.weight[after].any():
            return False
        if not self.task.classes:
            return True
        words = labels_of(self.task)
        had, has = set(words[self.inside].tolist()), set(words[after].tolist())
        return had <= has

    def after(self, leaving: list[str], coming: list[str]) -> Array:
        """Return which rows are in the model after a request."""
        task = self.task
        return np.asarray((self.inside & ~task.rows_of(leaving)) | task.rows_of(coming))

    def ask(self, model: Any, leaving: list[str], coming: list[str]) -> Refusal:
        """Let people leave and come, in one request or in two; return a refusal."""
        one = bool(leaving and coming) and model.keep_data and chance(self.rng, 0.7)
        if one and self.maker.way != "position":
            return self._exchange(model, leaving, coming)
        said = Refusal()
        if coming and self.maker.way != "position":
            said = self.add(model, coming)
        if said or not (leaving or not coming):
            return said
        request = (self.task, leaving, self.inside)
        self.inside, said = make_request(self.checker, model, self.maker, request)
        if isinstance(said.error, CapacityExceeded):
            self.behind = True
        elif leaving and not said:
            self.behind = False
        self.counts[0] += len(leaving) * (not said or self.behind)
        return said

    def add(self, model: Any, coming: list[str]) -> Refusal:
        """Let people come; a refusal must change nothing."""
        mask, task = self.task.rows_of(coming), self.task
        X, y = task.sample.X[mask], labels_of(task)[mask]
        with self._watch(model) as said:
            owners = task.owners[mask].tolist()
            model.add(X, y, subjects=owners, sample_weight=self.weights(mask))
        self._settle(said, [], coming, grows=bool(model.keep_data))
        return said

    def _exchange(self, model: Any, leaving: list[str], coming: list[str]) -> Refusal:
        """Let people leave and others come, in one change and one release."""
        task, mask = self.task, self.task.rows_of(coming)
        with self._watch(model) as said:
            added = read(model, task, mask, self.weights(mask))
            private = private_model(model)
            assert private.training_rows is not None
            after = replace_places(
                private,
                private.training_rows.find(set(leaving)),
                added=added,
                owners=task.owners[mask].tolist(),
            )
            set_snapshot(model, snapshot_of(model).release(after))
        self._settle(said, leaving, coming)
        return said

    def _settle(
        self,
        said: Refusal,
        leaving: list[str],
        coming: list[str],
        *,
        grows: bool = False,
    ) -> None:
        """Note who is in the model after a request, by which its classes may grow."""
        if self.task.classes and not self.declared and not grows:
            words, mask = labels_of(self.task), self.task.rows_of(coming)
            known = set(words[self.inside].tolist())
            if not set(words[mask].tolist()) <= known:
                self.checker.check(bool(said), "a new class came in")
        if said:
            return
        self.inside = self.after(leaving, coming)
        self.behind = False
        self.counts[0] += len(leaving)
        self.counts[1] += len(coming)

    def _watch(self, model: Any) -> "_Watch":
        return _Watch(self.checker, model)

    def check(self, model: Any, what: str = "") -> None:
        """Compare a release with a fit to the rows that are in the model."""
        rest = retraining_problem(self.task, self.inside)
        check_against_fit(self.checker, model, rest, self.first_weight, what)
        if self.maker.way == "person" and not self.behind:
            certificate = model.certificate_
            said = [certificate.n_subjects_removed, certificate.n_subjects_added]
            same = said == self.counts
            self.checker.check(same, f"{self.counts} left and came, {said} counted")


def read(model: Any, task: Task, mask: Array, weight: Array | None) -> Any:
    """Return rows as a model keeps them."""
    from expunge.linear_model.fitting import read_rows

    snapshot = snapshot_of(model)
    X, y = task.sample.X[mask], labels_of(task)[mask]
    owners = task.owners[mask].tolist()
    return read_rows(snapshot, X, y, sample_weight=weight, subjects=owners)


class _Watch:
    """Notes a refusal, and checks that it left the release as it was."""

    def __init__(self, checker: Checker, model: Any) -> None:
        self.checker, self.model = checker, model
        self.before = np.array(model.coef_)
        self.rows = private_model(model).n_samples
        self.noting = checker.note_refusals()

    def __enter__(self) -> Refusal:
        self.said = self.noting.__enter__()
        return self.said

    def __exit__(self, *error: Any) -> Any:
        caught = self.noting.__exit__(*error)
        if self.said:
            private = private_model(self.model)
            same = np.array_equal(self.model.coef_, self.before)
            same = same and private.n_samples == self.rows
            self.checker.check(same, "a refused addition changed the model")
            kept = private.training_rows is not None
            bad = kept and not isinstance(self.said.error, (InvalidInput, ValueError))
            if bad and type(self.said.error).__name__ not in TOLERATED:
                self.checker.check(False, f"{self.said.error!r} though rows are kept")
        return caught


# What a fit to the rows may say too (the kind ``parity`` sees that it does), or a
# schedule that has ended.
TOLERATED = (
    "NotConverged",
    "NotCertifiable",
    "NotPositiveDefinite",
    "ScheduleExhausted",
    "EmptyClass",
)
