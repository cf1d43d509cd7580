# SPDX-License-Identifier: Apache-2.0
"""Attack models without matrices: radii anywhere, requests one after another.

Three ways in: a state anchored at any point at all, whose radius must hold however bad
that point is; a model that rows are removed from, with every sum of its state computed
a second time; and estimators, saved and loaded in between. Now and then a registry.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy import sparse

from expunge import Budget, MatrixFree, Objective, Rows
from expunge.core import preconditioner, sums
from expunge.core.measurement import measure
from expunge.core.preconditioner import GramPreconditioner
from expunge.private_model import answers
from expunge.private_model.model import PrivateModel
from expunge.private_model.training_rows import RowChange
from expunge.promise.radius import Radii, best_radius
from expunge.removal import State, matrix_free
from expunge.removal.matrix_free import (
    MatrixFreeCache,
    anchor_measured,
    keep_short_cut,
)

from . import nuclear, wide_draws
from .core import objective_of
from .draws import Generator, Task, chance, pick
from .judge import Checker
from .losses import Array
from .oracle import Aim, Optimum, Point, Problem, Sample
from .wide_estimators import attack_estimator, attack_registry
from .wide_state import check_state

MOST_REQUESTS = 20
NUCLEAR = 0.12


def attack(rng: Generator, checker: Checker) -> None:
    """Attack in one of the ways, with thresholds moved so that all code is reached."""
    way = pick(
        rng, "anywhere", "stream", "estimator", "registry", p=[0.4, 0.4, 0.19, 0.01]
    )
    with moved_thresholds(rng):
        if way == "anywhere":
            attack_anywhere(rng, checker)
        elif way == "stream":
            attack_stream(rng, checker)
        elif way == "estimator":
            attack_estimator(rng, checker)
        else:
            attack_registry(rng, checker)


@contextmanager
def moved_thresholds(rng: Generator) -> Iterator[None]:
    """Let "auto" go without matrices, blocks be short, designs wide, solvers bad."""
    goal = 10.0 ** rng.uniform(-9.0, -1.0) if chance(rng, 0.5) else 1e-9
    with ExitStack() as stack:

        def put(place: Any, name: str, value: Any) -> None:
            stack.enter_context(patch.object(place, name, value))

        put(matrix_free, "SMALL_BLOCK", 0)
        put(matrix_free, "LARGE_BLOCK", 0)
        put(answers, "SMALLEST_GRADIENT", goal)
        if chance(rng, 0.5):
            put(sums, "BLOCK_ROWS", 4)
        if chance(rng, 0.3):
            put(preconditioner, "WIDEST_GRAM", 0)
        if chance(rng, 0.3):
            put(GramPreconditioner, "at", misled(10.0 ** rng.uniform(0.0, 2.0)))
        if chance(rng, 0.5):
            put(Radii, "enough", aiming(10.0 ** rng.uniform(-2.0, 2.0)))
        yield


def misled(factor: float) -> Any:
    """Return a preconditioner that takes every other parameter for so much flatter."""
    real = GramPreconditioner.at

    def at(self: GramPreconditioner, *given: Any) -> Any:
        solve = real(self, *given)

        def scaled(v: Array) -> Array:
            scale = np.where(np.arange(v.size) % 2, 1.0, factor)
            return np.asarray(scale * solve(scale * v))

        return scaled

    return at


def aiming(factor: float) -> Any:
    """Return what aims at so many times the gradient that should do."""
    real = Radii.enough
    return lambda self, allowed: factor * real(self, allowed)


@dataclass(frozen=True, eq=False)
class Wide:
    """A problem as the package sees it, and as the oracle does."""

    task: Task
    objective: Objective
    rows: Rows
    low_rank: bool
    first_weight: Any = None

    @property
    def aim(self) -> Aim:
        """What is minimised, without the rows."""
        return self.task.aim

    def left(self, stay: Array) -> Sample:
        """Return the remaining rows for the oracle."""
        return self.task.sample.take(stay)

    def truth(self, stay: Array, start: Array) -> Optimum:
        """Return the minimiser over the remaining rows."""
        solver = nuclear.minimise if self.low_rank else nuclear.minimise_plain
        first = self.first_weight
        total = self.task.sample.total if first is None else first
        return solver(self.aim, self.left(stay), total, start)


def draw_wide(rng: Generator, checker: Checker) -> Wide | None:
    """Return a problem, with dense or sparse rows; None if its rows are refused."""
    low_rank = chance(rng, NUCLEAR)
    task = wide_draws.task(rng, nuclear=low_rank)
    objective = objective_of(task.aim)
    if low_rank:
        objective = replace(objective, penalty=nuclear.PENALTY)
    X: Any = task.sample.X
    if chance(rng, 0.3):
        task.sample.X[:] = np.where(rng.random(X.shape) < 0.5, 0.0, X)
        X = sparse.csr_array(X)
    with checker.note_refusals() as refusal:
        rows = objective.rows(X, task.sample.y, task.sample.weight)
    return None if refusal else Wide(task, objective, rows, low_rank)


def requests(
    rng: Generator, wide: Wide, *, most: int, stay: Array | None = None
) -> Iterator[Array]:
    """Yield which rows stay, after each of some requests.

    A few rows, those furthest from their label, the longest, those of one class until
    hardly any is left, or most of them. What comes meanwhile is not theirs to remove.
    """
    sample = wide.task.sample
    y = sample.y.reshape(len(sample.y), -1)[:, 0]
    hated = rng.choice(y)
    stay = np.ones(len(y), dtype=bool) if stay is None else stay
    loss = wide.aim.loss
    for _ in range(int(rng.integers(1, most + 1))):
        kind = pick(
            rng, "few", "loss", "long", "class", "most", p=[0.4, 0.2, 0.12, 0.2, 0.08]
        )
        score = rng.random(len(y))
        if kind == "loss":
            eta = sample.X @ rng.standard_normal((sample.X.shape[1], loss.outputs))
            score = -loss.values(loss.coded(sample.y), eta / (np.abs(eta).max() or 1.0))
        elif kind == "long":
            score = -np.linalg.norm(sample.X, axis=1)
        elif kind == "class":
            score = score + (y != hated)
        order = np.argsort(np.where(stay, score, np.inf), kind="stable")
        n_left = int(stay.sum())
        size = n_left // 2 if kind == "most" else int(rng.integers(1, 3))
        stay = stay.copy()
        stay[order[: min(size, n_left - 1)]] = False
        if not sample.weight[stay].any() or n_left < 3:
            return
        yield stay


def attack_anywhere(rng: Generator, checker: Checker) -> None:
    """Anchor a state near or far from the minimiser, and check its radius."""
    wide = draw_wide(rng, checker)
    if wide is None:
        return
    objective, rows = wide.objective, wide.rows
    everyone = np.ones(len(rows), dtype=bool)
    size = rows.X.shape[1] * objective.loss.outputs
    truth = wide.truth(everyone, np.zeros(size))
    if not np.isfinite(truth.error):
        checker.note_undecided()
        return
    for theta in points_around(rng, wide, truth):
        with checker.note_refusals() as refusal:
            at = measure(objective, rows, theta=theta)
            state = anchor_measured(objective, rows, at=at, before=None)
            made = preconditioner.make_preconditioner(objective, rows, at=at)
            state = keep_short_cut(state, made)
            check_radii(checker, state, truth, "anywhere ")
            check_use(checker, state, truth)
        if refusal:
            return
        stay = next(requests(rng, wide, most=1), None)
        if stay is not None:
            with checker.note_refusals():
                state = MatrixFree().update(state, rows.take(~stay))
                left = wide.truth(stay, truth.theta.astype(float))
                check_radii(checker, state, left, "anywhere, removed ")
                check_state(checker, state, wide.aim, wide.left(stay))


def points_around(rng: Generator, wide: Wide, truth: Optimum) -> Iterator[Array]:
    """Yield points near the minimiser, mostly along where the objective is flat."""
    centre = truth.theta.astype(float)
    sample = wide.task.sample
    H = Point(Problem(wide.aim, sample, sample.total), centre).hessian()
    way = rng.standard_normal(centre.size)
    if np.isfinite(H).all() and chance(rng, 0.7):
        vectors = np.linalg.eigh(H)[1]
        way = vectors[:, 0] if chance(rng, 0.8) else vectors[:, -1]
    if chance(rng, 0.5):  # where it was zero it stays zero
        way = np.where(centre == 0.0, 0.0, way)
    for size in 10.0 ** rng.uniform((-17.0, -12.0), (-10.0, 0.5)):
        moved = centre + size * (np.linalg.norm(centre) or 1.0) * way
        yield moved


def check_radii(checker: Checker, state: State, truth: Optimum, what: str) -> None:
    """Compare each radius of an answer with the distance to the minimiser."""
    draft, longest = MatrixFree().answer_at_anchor(state), state.magnitude.row_norm
    claims = {"best": best_radius(state, draft).value}
    if state.objective.n_free:
        claims["local"] = Radii(state, draft, longest).intercept()
    else:
        claims["residual"] = Radii(state, draft).residual()
    for name, claimed in claims.items():
        checker.check_radius(claimed, draft.theta, truth, what + name)


def check_use(checker: Checker, state: State, truth: Optimum) -> None:
    """Check that an answer next to the minimiser of a tame problem has a radius."""
    objective, longest, k = state.objective, state.magnitude.row_norm, len(truth.theta)
    loss = objective.loss
    if not (objective.smooth and objective.n_free and isfinite(loss.self_concordance)):
        return
    assert state.sums.curvature is not None
    held = np.linalg.eigvalsh(state.sums.curvature)[int(loss.shift_invariant)]
    tame = held > 0.01 and objective.quadratic > 1e-4 and longest < 1e2
    size = float(np.linalg.norm(truth.theta.astype(float)))
    if tame and size < 1e3 and truth.distance(state.anchor) < 1e-10:
        value = best_radius(state, MatrixFree().answer_at_anchor(state)).value
        checker.check(isfinite(value), f"no radius for {k} parameters that are held")


def attack_stream(rng: Generator, checker: Checker) -> None:
    """Fit a model, let rows leave and come, and check all that it claims."""
    wide = draw_wide(rng, checker)
    if wide is None:
        return
    mechanism = MatrixFree() if chance(rng, 0.7) else None
    stay = first_rows(rng, wide)
    wide = replace(wide, first_weight=wide.left(stay).total)
    with checker.note_refusals() as refusal:
        model = PrivateModel.fit(
            wide.objective,
            wide.rows.take(stay),
            mechanism=mechanism,
            budget=budget_of(rng, wide),
            rows_kept=chance(rng, 0.5),
        )
    if refusal:
        return
    if model.terms.mechanism.keeps_matrices:
        bare = wide.objective.quadratic == 0.0 or wide.aim.loss.concordance == np.inf
        checker.check(bare, "auto keeps matrices of a model that could do without")
        return
    check_model(checker, model, wide, stay)
    came = np.zeros(len(stay), dtype=bool)
    for after in requests(rng, wide, most=MOST_REQUESTS, stay=stay):
        came = came & (rng.random(len(came)) < 0.7)
        gone, come = stay & ~(after | came), some_rows(rng, ~stay)
        came = came | come
        stay = after | came
        left = remaining_rows(rng, wide.rows, stay)
        with checker.note_refusals() as refusal:
            change = RowChange(
                removed=wide.rows.take(gone),
                added=wide.rows.take(come),
                n_subjects_removed=int(gone.sum()),
                n_subjects_added=int(come.sum()),
            )
            model = model.change(change, remaining=left)
        if refusal:
            return
        check_model(checker, model, wide, stay)
        if chance(rng, 0.1):  # as a file would have it
            state = model.answer.state.replace(cache=MatrixFreeCache())
            model = replace(model, answer=replace(model.answer, state=state))
        if chance(rng, 0.1):
            with checker.note_refusals() as refusal:
                model = model.reanchor(left)
            if not refusal:
                check_model(checker, model, wide, stay)


def first_rows(rng: Generator, wide: Wide) -> Array:
    """Return which rows a model is fitted to: all, some, or the shortest."""
    n = len(wide.rows)
    kind = pick(rng, "all", "some", "short", p=[0.4, 0.4, 0.2])
    score = rng.random(n)
    if kind == "short":
        score = np.linalg.norm(wide.task.sample.X, axis=1)
    share = 1.0 if kind == "all" else rng.uniform(0.2, 0.95)
    stay = np.argsort(np.argsort(score, kind="stable")) < max(2, int(share * n))
    if not wide.task.sample.weight[stay].any():
        stay[:] = True
    return np.asarray(stay)


def some_rows(rng: Generator, away: Array) -> Array:
    """Return which of the rows that are away come: often none."""
    come = np.zeros(len(away), dtype=bool)
    places = np.flatnonzero(away)
    if places.size and chance(rng, 0.6):
        most = len(places) if chance(rng, 0.1) else min(3, len(places))
        come[rng.permutation(places)[: int(rng.integers(1, most + 1))]] = True
    return come


def budget_of(rng: Generator, wide: Wide) -> Budget | None:
    """Return a budget, or None; one with room for everything, or for hardly any."""
    if chance(rng, 0.25):
        return None
    longest = float(wide.rows.norms().max()) * 10.0 ** rng.uniform(0.01, 1.0)
    return Budget(
        epsilon=float(10.0 ** rng.uniform(-1.0, 1.0)),
        delta=float(10.0 ** rng.uniform(-9.0, -2.0)),
        sigma=float(10.0 ** rng.uniform(-12.0 if chance(rng, 0.1) else -7.0, 3.0)),
        row_norm=longest if chance(rng, 0.3) and longest < 1e40 else None,
        allow_seeded=True,
    )


def remaining_rows(rng: Generator, rows: Rows, stay: Array) -> Rows:
    """Return the rows that stay: copied, or where they are beside what is absent."""
    if chance(rng, 0.5):
        return rows.take(stay)
    gone = np.flatnonzero(~stay)
    return Rows(rows.X, rows.y, np.where(stay, rows.weight, 0.0), gone)


def check_model(checker: Checker, model: PrivateModel, wide: Wide, stay: Array) -> None:
    """Check the last answer: its radius, its budget, its decision and its state."""
    answer, budget = model.answer, model.budget
    theta, decision = answer.draft.theta, answer.decisions[0]
    truth = wide.truth(stay, theta)
    checker.note_decisions(answer.decisions)
    known = ("fitted", "accepted", "polished", "retrained", "re-anchored")
    checker.check(decision.split()[0] in known, f"a decision {decision!r}")
    checker.check_radius(answer.radius.value, theta, truth, "stream")
    if budget is not None:
        checker.check(answer.fits(budget), f"{decision}, and does not fit the budget")
        checker.check_radius(
            budget.radius_budget(theta.size), theta, truth, "stream, certified"
        )
        if decision == "fitted":
            tau = budget.solver_error(theta.size)
            checker.check_radius(tau, theta, truth, "stream, tau")
    check_state(checker, answer.state, wide.aim, wide.left(stay))
