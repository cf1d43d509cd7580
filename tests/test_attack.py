# SPDX-License-Identifier: Apache-2.0
"""No promise breaks under attack; the oracle is right, and the adversary has power."""

import warnings
from math import inf, isfinite
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expunge import Budget, HalfSquared, LinearRegression, LogisticRegression
from tests.apart import apart
from tests.attack import nuclear
from tests.attack.__main__ import main
from tests.attack.arithmetic import mean_and_deviation
from tests.attack.engines import NEEDS, available
from tests.attack.estimators import unit_of
from tests.attack.judge import Checker, Tally
from tests.attack.losses import Loss
from tests.attack.mutants import MUTANTS, caught, stale
from tests.attack.oracle import (
    LONG,
    Aim,
    Optimum,
    Point,
    Problem,
    Sample,
    error_bound,
    minimise,
    solve,
)
from tests.attack.pipelines import is_near
from tests.attack.raw_tables import draw_table
from tests.attack.running import KINDS, Limits, Schedule, case, table

SEED = 20
# Cases of each kind, in two parts: seconds in all; make attack has minutes.
CASES = {
    "core": 20,
    "looks": 15,
    "streams": 15,
    "targets": 15,
    "responses": 15,
    "survival": 15,
    "adopted": 20,
    "lifted": 20,
    "wide": 12,
    "pipelines-mean": 10,
    "pipelines-sum": 10,
    "bins": 10,
    "curves": 4,
    "means": 4,
    "inputs": 20,
    "splits": 40,
    "tuned": 4,
    "registry": 2,
    "classes": 12,
    "interrupts": 6,
    "threads": 12,
    "claims": 6,
    "exact": 6,
    "long": 6,
    "dask": 2,
    "device": 20,
    "parity": 6,
    "balanced": 10,
    "cards": 4,
}
# Mutants that are cheap to catch, and a seed at which each soon is.
QUICK = {
    "drop-the-third-order": 1,
    "weigh-from-the-last-refit": 1,
    "keep-every-class": 1,
    "sum-in-floats": 1,
    "stop-one-polish-early": 1,
    "look-at-other-rows": 1,
    "keep-a-stale-gradient": 1,
    "overlook-the-way": 1,
    "keep-the-scaler": 1,
    "keep-the-ranks": 1,
    "keep-the-step-before-a-map": 1,
    "keep-the-edges": 1,
    "replace-no-row": 1,
    "forget-the-shift": 1,
    "keep-the-first-units": 1,
    "weigh-by-the-exposure": 1,
    "leave-offsets-out": 1,
    "forget-the-mean-target": 1,
    "count-radii-as-given": 1,
    "leave-the-unit-unsaid": 1,
    "forget-the-gaps": 3,
    "leave-the-offset-out": 1,
    "add-up-the-row-growth": 1,
    "let-no-row-grow": 5,
    "ignore-free-intercepts": 1,
    "no-mean-row": 2,
    "keep-the-columns": 1,
    "choose-any-subgradient": 2,
    "weigh-newcomers-alike": 1,
    "number-classes-afresh": 1,
    "keep-the-moment": 1,
    "keep-the-longest-row": 1,
    "keep-the-sizes": 1,
    "keep-rectified-rows": 2,
    "read-who-left": 1,
    "add-groups-backwards": 5,
    "overlook-weightless-rows": 1,
    "show-the-steps": 1,
    "add-what-leaves": 1,
}


class TestPromises:
    @pytest.mark.parametrize("part", [0, 1])
    @pytest.mark.parametrize("kind", KINDS)
    def test_hold_under_attack(self, kind: str, part: int) -> None:
        if not available(kind):
            pytest.skip(f"NOT TESTED: {NEEDS[kind]} is not installed")
        tally = Tally()
        for number in range(part * CASES[kind], (part + 1) * CASES[kind]):
            case(kind, SEED, number, tally)
        assert tally.violations == []
        assert tally.checks > CASES[kind]
        assert tally.undecided <= 0.05 * tally.checks

    def test_a_flat_direction_refuses_nothing(self) -> None:
        """Found by chance: rounding left no curvature, and the rows were there."""
        assert case("classes", 1916, 1600010).violations == []


class TestOracle:
    def test_solves_a_ridge_regression(self, rng: np.random.Generator) -> None:
        X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
        weight = rng.uniform(0.5, 2.0, 30)
        aim = Aim(Loss("squared"), alpha=0.3, scaling="sum", intercept=False)
        found = minimise(aim, Sample(X, y, weight), LONG(2.0) * LONG(weight.sum()))
        H = (X.T * weight) @ X / weight.sum() + 0.6 * np.eye(3)
        exact = np.linalg.solve(H, X.T @ (weight * y) / weight.sum())
        assert found.distance(exact) < 1e-14
        assert found.error < 1e-15

    @pytest.mark.parametrize("name", ["logistic", "softmax", "one-vs-rest", "hinge"])
    def test_start_does_not_matter(self, name: str, rng: np.random.Generator) -> None:
        loss = Loss(name, 3 if name in ("softmax", "one-vs-rest") else 1)
        X = rng.standard_normal((40, 3))
        y = np.arange(40) % 3 if loss.outputs > 1 else 1.0 - 2.0 * (np.arange(40) % 2)
        aim = Aim(loss, alpha=0.02, l1_ratio=0.5)
        sample = Sample(X, y.astype(float), np.ones(40))
        cold = minimise(aim, sample)
        start = rng.standard_normal(cold.theta.size)
        warm = minimise(aim, sample, start=start)
        assert max(cold.error, warm.error) < 1e-12
        assert warm.distance(cold.theta) <= cold.error + warm.error

    def test_solves_a_problem_of_low_rank(self, rng: np.random.Generator) -> None:
        X = np.sqrt(12.0) * np.linalg.qr(rng.standard_normal((12, 4)))[0]
        y = X @ rng.standard_normal((4, 1)) * [1.0, -1.0, 2.0]
        y += 0.1 * rng.standard_normal(y.shape)
        aim = Aim(Loss("squared", 3), alpha=0.3, ridge=0.5, intercept=False)
        found = nuclear.minimise(
            aim, Sample(X, y, np.ones(12)), LONG(12.0), np.zeros(12)
        )
        U, s, V = np.linalg.svd(X.T @ y / 12.0, full_matrices=False)
        exact = (U * np.maximum(s - 0.3, 0.0)) @ V / 1.5
        assert np.linalg.matrix_rank(exact) == 1
        assert found.distance(exact.ravel()) < 1e-14
        assert found.error < 1e-15

    def test_does_not_judge_without_a_minimiser(self) -> None:
        X, y = np.arange(6.0)[:, None], np.ones(6)  # one class, a free intercept
        found = minimise(Aim(Loss("logistic"), alpha=0.1), Sample(X, y, np.ones(6)))
        assert found.error == inf

    def test_error_bounds_the_distance_of_a_bad_point(
        self, rng: np.random.Generator
    ) -> None:
        X, y = rng.standard_normal((30, 2)), np.resize([1.0, -1.0], 30)
        for free in (False, True):
            aim = Aim(Loss("logistic"), alpha=0.1, free=free)
            sample = Sample(X, y, np.ones(30))
            good, problem = minimise(aim, sample), Problem(aim, sample, sample.total)
            for size in (1e-2, 1e-6, 1e-12):
                moved = good.theta + size * rng.standard_normal(3)
                bound = error_bound(Point(problem, moved))
                assert good.distance(moved) <= bound + good.error
                assert isfinite(bound)

    def test_solves_in_extended_precision(self) -> None:
        H = (1.0 / (np.arange(8)[:, None] + np.arange(8) + 1.0)).astype(LONG)
        x = np.arange(1, 9).astype(LONG)
        assert np.abs(solve(H, H @ x) - x).max() < 1e-7  # a Hilbert matrix


class TestArithmetic:
    def test_mean_and_deviation_far_from_zero(self) -> None:
        column = 1e8 + np.array([0.0, 1.0, 2.0, np.nan])
        mean, deviation = mean_and_deviation(column, np.ones(4))
        assert mean == 1e8 + 1.0
        assert deviation == np.sqrt(2.0 / 3.0)

    def test_tables_are_as_scikit_learn_has_them(self) -> None:
        for seed in range(40):
            table = draw_table(np.random.default_rng(seed), 30, sums_only=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                typed = pd.DataFrame(table.rows).infer_objects()  # for ufuncs
                theirs = table.preprocessing().fit_transform(typed)
            ours = table.made(np.ones(30, dtype=bool))
            assert is_near(ours, theirs.astype(float), 1e-9)


class TestJudge:
    def test_complains_of_a_radius_that_is_too_small(self) -> None:
        tally = Tally()
        checker = Checker("a case", tally)
        truth = Optimum(np.zeros(2, dtype=LONG), 1e-12)
        checker.check_radius(0.9, np.array([1.0, 0.0]), truth, "short")
        checker.check_radius(1.0, np.array([1.0, 0.0]), truth, "long enough")
        checker.check_radius(5.0, np.zeros(3), truth, "misshapen")
        checker.check_radius(inf, np.array([1.0, 0.0]), truth, "no claim")
        checker.check_radius(1e-14, np.array([5e-13, 0.0]), truth, "not to be told")
        assert [said.split(": ")[1] for said in tally.violations] == [
            "short",
            "misshapen",
        ]
        assert (tally.checks, tally.undecided) == (3, 1)

    @pytest.mark.parametrize(
        ("model", "scaled"),
        [
            (LinearRegression(budget=Budget()), True),
            (LinearRegression(l1_ratio=1.0, alpha=0.1, budget=Budget()), False),
            (LogisticRegression(loss=HalfSquared(), budget=Budget()), False),
        ],
    )
    def test_counts_in_the_unit_that_a_certificate_says(
        self, model: Any, scaled: bool
    ) -> None:
        rng = np.random.default_rng(1)
        X, y = rng.standard_normal((400, 2)), np.where(np.arange(400) < 40, 1.0, -1.0)
        fitted = model.fit(X, y, np.arange(400))
        _, deviation = unit_of(fitted, Sample(X, y, np.ones(400)))
        assert deviation == pytest.approx(0.6 if scaled else 1.0)

    def test_tells_refusals_from_faults(self) -> None:
        tally = Tally()
        checker = Checker("a case", tally)
        with checker.note_refusals() as refusal:
            raise ValueError("too few")
        assert refusal
        with checker.note_refusals():
            raise ZeroDivisionError
        assert tally.refusals == {"ValueError": 1}
        assert "raw ZeroDivisionError" in tally.violations[0]


class TestMachine:
    def test_a_case_repeats(self) -> None:
        once, again = case("core", SEED, 3), case("core", SEED, 3)
        assert (once.checks, once.worst) == (again.checks, again.worst)

    def test_time_goes_to_whoever_had_least(self) -> None:
        schedule = Schedule(["core", "streams"], Limits(60.0, checks=5))
        first, second = schedule.turn(), schedule.turn()
        assert first is not None and second is not None
        assert {first[0], second[0]} == {"core", "streams"}
        schedule.take("core", Tally(checks=5), 1.0)
        third = schedule.turn()
        assert third is not None and third[0] == "streams"
        schedule.take("streams", Tally(checks=5), 1.0)
        assert schedule.turn() is None

    def test_prints_what_it_found(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--only", "core", "--seed", "1", "--case", "2"]) == 0
        assert "0 violations" in capsys.readouterr().out
        broken = Tally(checks=1, violations=["--only core: too far"])
        assert "too far" in table({"core": broken})


@pytest.mark.slow
class TestMutants:
    def test_can_be_put_in(self) -> None:
        names = [
            name
            for name, mutant in MUTANTS.items()
            if all(kind in KINDS and available(kind) for kind in mutant.kinds)
        ]
        assert len(names) > 80
        assert apart(stale, names) == []

    @pytest.mark.parametrize("name", QUICK)
    def test_are_caught(self, name: str) -> None:
        assert name in MUTANTS
        assert apart(caught, name, QUICK[name], 120.0).violation
