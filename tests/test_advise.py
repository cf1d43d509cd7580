# SPDX-License-Identifier: Apache-2.0
"""Advice on a budget: each figure is checked by fitting and forgetting for real."""

import re
from dataclasses import asdict, replace
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm
from sklearn import linear_model
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import StandardScaler

from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    Newton,
    PiecewiseExponential,
    PoissonRegressor,
    SoftmaxRegression,
    TunedClassifier,
    advise,
)
from expunge.display import progress
from expunge.exceptions import (
    CapacityExceeded,
    InvalidInput,
    NotCertifiable,
    Unsupported,
)
from expunge.linear_model.base import private_model
from expunge.plan import Advice, SigmaTrial
from expunge.plan.advice import SIGMAS, choose_sigma
from expunge.plan.trials import (
    MOST_STEPS,
    WITHOUT_LOOK,
    Trials,
    extrapolate_looks,
    guess_label,
    leave_until_looks,
    under,
)
from expunge.preprocessing.hashed import HashedTexts
from expunge.promise.budget import (
    SIGMA_OF_LOOKS,
    SIGMA_WITH_ROWS,
    SIGMA_WITHOUT_ROWS,
    guess_of,
    mu_of,
)
from expunge.promise.decisions import class_chances, prediction_moments
from tests.calling import call

N_ROWS, N_COLUMNS, REQUESTS = 600, 4, 150
ALPHA = 0.01


def _draw(kind: str, n_rows: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_COLUMNS)) / 2.0
    eta = 3.0 * (X @ np.array([1.0, -1.0, 0.5, 0.0]))
    if kind == "linear":
        return X, eta + 0.5 * rng.normal(size=n_rows)
    if kind == "softmax":
        return X, np.digitize(eta + rng.logistic(size=n_rows), [-1.0, 1.0])
    return X, (eta + rng.logistic(size=n_rows) > 0.0).astype(int)


@cache
def _table(kind: str = "logistic") -> tuple[Any, Any]:
    return _draw(kind, N_ROWS, 0)


MODELS = {
    "logistic": LogisticRegression(alpha=ALPHA),
    "linear": LinearRegression(alpha=ALPHA),
    "softmax": SoftmaxRegression(alpha=ALPHA),
}
FEW = (1e-3, 0.02, 0.1)


def _make(kind: str, **settings: Any) -> Any:
    return MODELS[kind].__class__(alpha=ALPHA, **settings)


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try three sigmas and few labels, and boost nothing: more would tell no more."""
    monkeypatch.setattr("expunge.plan.advice.SIGMAS", FEW)
    monkeypatch.setattr("expunge.plan.trials.MOST_STEPS", 40)
    monkeypatch.setattr("expunge.plan.trials.boosted_score", lambda *_, **__: 0.9)


@cache
def _advise(kind: str = "logistic", *, kept: bool = True, **promise: Any) -> Advice:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("expunge.plan.trials.MOST_SECONDS", 1e9)  # all requests
        patch.setattr("expunge.plan.trials.MOST_STEPS", MOST_STEPS)
        model = _make(kind, keep_data=kept)
        return advise(*_table(kind), model, requests=REQUESTS, **promise)


def _untimed(advice: Advice) -> Advice:
    trials = tuple(replace(trial, seconds=0.0) for trial in advice.trials)
    return replace(advice, trials=trials)


# What noise does, against draws of it.


@pytest.mark.parametrize("n_classes", [1, 2, 3, 10])
@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_chances_are_those_of_noise_that_is_drawn(n_classes: int, scale: float) -> None:
    rng = np.random.default_rng(n_classes)
    eta, spread = rng.normal(size=(6, n_classes)), scale * rng.uniform(0.5, 2.0, 6)
    drawn = eta + spread[:, None] * rng.normal(size=(40_000, 6, n_classes))
    won = (drawn[..., 0] > 0.0).astype(int) if n_classes == 1 else drawn.argmax(axis=2)
    shares = [np.mean(won == c, axis=0) for c in range(max(n_classes, 2))]
    assert class_chances(eta, spread) == pytest.approx(np.transpose(shares), abs=0.012)


def test_without_noise_decisions_are_certain() -> None:
    for eta in (
        np.array([[2.0], [-1e-9]]),
        np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 0.0]]),
    ):
        chances = class_chances(eta, np.zeros(2))
        certain = (
            np.argmax(np.hstack([np.zeros((2, 1)), eta]), axis=1)
            if eta.shape[1] == 1
            else eta.argmax(axis=1)
        )
        assert chances.tolist() == np.eye(chances.shape[1])[certain].tolist()


def test_moments_of_predictions_are_exact() -> None:
    rng = np.random.default_rng(0)
    eta, spread = rng.normal(size=(5, 2)), rng.uniform(0.1, 1.0, (5, 2))
    mean, variance = prediction_moments(eta, spread, mean=lambda eta: eta)
    assert mean == pytest.approx(eta, abs=1e-12)
    assert variance == pytest.approx(spread**2, rel=1e-9)
    mean, variance = prediction_moments(eta, spread, mean=np.exp)  # log-normal
    square = spread**2
    assert mean == pytest.approx(np.exp(eta + square / 2.0), rel=1e-6)
    known = np.expm1(square) * np.exp(2.0 * eta + square)
    assert variance == pytest.approx(known, rel=1e-4)


# What advice says, against requests that really came.


@cache
def _advise_many(kind: str) -> Advice:
    return advise(*_draw(kind, 5000, 1), MODELS[kind], requests=5)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("sigma", FEW[1:])
def test_so_much_really_changes_with_each_request(kind: str, sigma: float) -> None:
    """Over 50 requests, four times, with noise of their own."""
    trial = next(one for one in _advise_many(kind).trials if one.sigma == sigma)
    X, y = _draw(kind, 5000, 1)
    budget, changes = Budget(sigma=sigma, allow_seeded=True), list[float]()
    for seed in range(4):
        model = _make(kind, budget=budget, random_state=seed).fit(X, y)
        said = model.predict(X)
        for row in range(50):
            before, said = said, model.forget(rows=[row]).predict(X)
            if kind == "linear":
                changes.append(np.mean((said - before) ** 2) / np.var(y))
            else:
                changes.append(np.mean(said != before))
    error = 3.0 * float(np.std(changes)) / sqrt(len(changes))
    told = trial.changed**2 if kind == "linear" else trial.changed
    # Few rows are near enough to a boundary to change, and others at another fit.
    assert told == pytest.approx(np.mean(changes), abs=error + 0.05 * told)
    assert error < 0.2 * told  # else it would tell nothing


@pytest.mark.parametrize("kind", MODELS)
def test_so_much_score_is_really_lost(kind: str) -> None:
    trial = _advise(kind).trials[-1]
    (X, y), (others, truth) = _table(kind), _draw(kind, 2000, 1)
    budget = Budget(sigma=trial.sigma, allow_seeded=True)
    scores = [
        _make(kind, budget=budget, random_state=seed).fit(X, y).score(others, truth)
        for seed in range(80)
    ]
    free = _make(kind).fit(X, y).score(others, truth)
    expected = _advise(kind).noise_free - trial.score
    assert expected == pytest.approx(free - np.mean(scores), abs=0.004)
    assert expected > 0.002


def _guess_labels(sigma: float, n_leavers: int) -> float:
    """Return how often labels are guessed right from two releases, by NumPy alone.

    Whoever guesses knows the leaver's features, all other rows, and both releases.
    """
    X, y = _table()
    model = LogisticRegression(
        alpha=ALPHA, budget=Budget(sigma=sigma, allow_seeded=True), random_state=1
    ).fit(X, y)
    ones, right = np.column_stack([X, np.ones(N_ROWS)]), 0
    before = np.append(model.coef_, model.intercept_)
    for row in range(n_leavers):
        share = 1.0 / (1.0 + np.exp(-ones[row:] @ before))
        rest, curved = ones[row + 1 :], share[1:] * (1.0 - share[1:])
        curvature = (rest.T * curved) @ rest / len(rest)
        curvature += ALPHA * np.diag([1.0] * N_COLUMNS + [0.0])
        model.forget(rows=[row])
        after = np.append(model.coef_, model.intercept_)
        # What the model moves by if the label was one, and if it was zero.
        way = np.linalg.solve(curvature, ones[row]) / len(rest)
        moves = [way * (share[0] - label) for label in (0.0, 1.0)]
        misses = [np.linalg.norm(after - before - move) for move in moves]
        right += int(misses[1] < misses[0]) == y[row]
        before = after
    return right / n_leavers


@pytest.mark.parametrize(("sigma", "n_leavers"), [(0.02, 300), (0.1, 300)])
def test_labels_are_really_guessed_so_often(sigma: float, n_leavers: int) -> None:
    told = next(one.label_guess for one in _advise().trials if one.sigma == sigma)
    deviation = sqrt(told * (1.0 - told) / n_leavers)
    assert _guess_labels(sigma, n_leavers) == pytest.approx(told, abs=2.5 * deviation)


def test_the_guess_is_that_of_the_better_of_two_gaussians() -> None:
    """Two means a step apart, and the noise of two releases."""
    rng, sigma, step = np.random.default_rng(0), 0.3, 0.5
    seen = rng.normal(size=200_000) * sigma - rng.normal(size=200_000) * sigma
    right = np.mean(seen < step / 2.0)  # of those at zero; as many of the others
    assert guess_label(np.array([step]), sigma) == pytest.approx(right, abs=0.004)
    assert guess_label(np.array([]), sigma) == 1.0  # nothing is known


def test_steps_of_a_quadratic_follow_a_formula() -> None:
    X, _ = _table("linear")
    trials = _trials("linear")
    model = private_model(trials.fit(Budget(sigma=1e-3), np.arange(N_ROWS)))
    steps = trials.find_label_steps(model)
    ones = np.column_stack([X, np.ones(N_ROWS)])
    expected = []
    for person in trials.orders[0][: len(steps)].tolist():
        rest = np.delete(ones, int(person), axis=0)
        curvature = rest.T @ rest / len(rest)
        curvature += ALPHA * np.diag([1.0] * N_COLUMNS + [0.0])
        way = np.linalg.solve(curvature, ones[int(person)]) / len(rest)
        expected.append(np.linalg.norm(way))  # a target a deviation up, in deviations
    assert steps == pytest.approx(np.array(expected), rel=1e-3)


def test_a_model_without_matrices_gets_the_same_guesses() -> None:
    dense, wide = (
        advise(*_table("softmax"), _make("softmax", mechanism=one), requests=10)
        for one in ("newton", "matrix-free")
    )
    for one, other in zip(dense.trials, wide.trials, strict=True):
        assert one.label_guess == pytest.approx(other.label_guess, abs=0.08)


@cache
def _trials(kind: str = "logistic", requests: int = REQUESTS) -> Trials:
    return Trials.of(MODELS[kind], *_table(kind), subjects=None, requests=requests)


def _replay(kind: str, sigma: float, order: NDArray[Any]) -> list[Any]:
    """Return what was done for each row that leaves, with noise nobody seeded."""
    model = _make(kind, budget=Budget(sigma=sigma)).fit(*_table(kind))
    return [model.forget(rows=[int(row)]).record_.decisions for row in order]


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_so_many_requests_really_read_the_rows(kind: str) -> None:
    """Exactly in the order tried, and about as many in another one."""
    always, *others = _advise(kind).trials
    assert always.sigma <= SIGMA_OF_LOOKS and always.looks == REQUESTS
    another = np.random.default_rng(9).permutation(N_ROWS)[:REQUESTS]
    for trial in others:
        done = _replay(kind, trial.sigma, _trials(kind).orders[0][:REQUESTS])
        assert trial.looks == REQUESTS - done.count(WITHOUT_LOOK)
        done = _replay(kind, trial.sigma, another)
        looks = REQUESTS - done.count(WITHOUT_LOOK)
        assert trial.looks == pytest.approx(looks, abs=0.15 * REQUESTS)
    assert others[0].looks is not None and others[-1].looks is not None
    assert others[0].looks > others[-1].looks


def test_looks_go_on_as_they_began() -> None:
    yes, no = True, False
    assert extrapolate_looks(30, [], requests=1000) == 0
    assert extrapolate_looks(30, [no, no], requests=1000) == 0
    assert extrapolate_looks(30, [yes, yes, yes], requests=1000) == 970
    # Ten in fifty; those after the last run might be many more without a look.
    looked = [yes] * 5 + [no] * 10 + [yes] * 5 + [no] * 3
    assert extrapolate_looks(30, looked, requests=1000) == 200


def test_so_many_really_leave_before_the_first_look() -> None:
    """In two random orders and the worst: neither fewer than advised, nor more."""
    kind = "logistic"
    advice, trials = _advise(kind, kept=False), _trials(kind)
    model = private_model(trials.fit(Budget(sigma=FEW[-1]), np.arange(N_ROWS)))
    orders = [*trials.orders, trials.find_worst_order(model)]
    for trial in advice.trials[1:]:  # the first one always looks, if it can
        assert trial.at_random is not None and trial.at_worst is not None
        counts = [*trial.at_random, trial.at_worst]
        for order, count in list(zip(orders, counts, strict=True))[1::2]:
            done = _replay(kind, trial.sigma, order[: min(count + 1, REQUESTS)])
            assert done[:count] == [WITHOUT_LOOK] * count
            assert count == REQUESTS or done[count] != WITHOUT_LOOK
        assert trial.at_worst <= min(trial.at_random)


def test_a_model_without_rows_refuses_after_so_many() -> None:
    (X, y), trials = _table(), _trials()
    for trial in _advise(kept=False).trials[:2]:
        assert trial.at_random is not None
        count = trial.at_random[0]
        assert count < REQUESTS
        model = _make("logistic", budget=Budget(sigma=trial.sigma), keep_data=False)
        model.fit(X, y)
        order = trials.orders[0][: count + 1].astype(int)
        for row in order[:-1]:
            model.forget(X=X[[row]], y=y[[row]])
        with pytest.raises(CapacityExceeded):
            model.forget(X=X[order[-1:]], y=y[order[-1:]])


def test_each_sigma_alone_gives_the_same_counts() -> None:
    """One stream for all sigmas finds what a stream for each one does."""
    trials = _trials()
    model = private_model(trials.fit(Budget(sigma=1e-3), np.arange(N_ROWS)))
    people, budgets = trials.orders[1][:60], [Budget(sigma=s) for s in SIGMAS[3:10]]
    together = [n for n, _ in leave_until_looks(model, budgets, people=people)]
    alone = [leave_until_looks(model, [one], people=people)[0][0] for one in budgets]
    assert together == alone == sorted(alone)
    assert 0 < together[3] < together[-1]
    assert model.n_removed == 0 and model.pending is None
    assert model.training_rows is not None
    assert len(model.training_rows.find(set(people.tolist()))) == len(people)


def test_the_worst_order_is_worse_than_chance_and_than_large_effects() -> None:
    """Effects are H^-1 g at the minimiser, by NumPy alone."""
    X, y = _table()
    free = linear_model.LogisticRegression(C=1 / (ALPHA * N_ROWS), tol=1e-10).fit(X, y)
    ones = np.column_stack([X, np.ones(N_ROWS)])
    share = free.predict_proba(X)[:, 1]
    curvature = (ones.T * (share * (1.0 - share))) @ ones / N_ROWS
    curvature += ALPHA * np.diag([1.0] * N_COLUMNS + [0.0])
    effects = np.linalg.solve(curvature, (ones * (share - y)[:, None]).T).T
    along = effects @ np.linalg.svd(effects)[2][0]
    trial = _advise(kept=False).trials[-1]
    assert trial.at_random is not None and trial.at_worst is not None
    assert 3 * trial.at_worst < min(trial.at_random)
    size, budget = np.linalg.norm(effects, axis=1), Budget(sigma=trial.sigma)
    model = private_model(_trials().fit(budget, np.arange(N_ROWS)))
    for order in (np.argsort(-size), np.argsort(along), np.argsort(-along)):
        people = order[:REQUESTS].astype(np.str_)
        assert trial.at_worst <= leave_until_looks(model, [budget], people=people)[0][0]


def test_the_heaviest_are_found_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expunge.plan.trials.MOST_MEASURED", 60)
    monkeypatch.setattr("expunge.plan.trials.NEXT_MEASURED", 20)
    X, y = _table()
    heavy = int(_trials().orders[0][-1])
    X = np.where(np.arange(N_ROWS)[:, None] == heavy, 5.0 * X, X)
    y = np.where(np.arange(N_ROWS) == heavy, X @ [1.0, -1.0, 0.5, 0.0] < 0.0, y)
    trials = Trials.of(MODELS["logistic"], X, y, subjects=None, requests=20)
    model = trials.fit(Budget(sigma=10.0), np.arange(N_ROWS))
    order = trials.find_worst_order(private_model(model))
    assert sorted(map(int, order)) == list(range(N_ROWS))
    assert int(order[0]) == heavy


@pytest.mark.parametrize("kept", [True, False])
def test_the_recommended_budget_really_fits(kept: bool) -> None:
    advice = _advise(kept=kept)
    sigma = SIGMA_WITH_ROWS if kept else SIGMA_WITHOUT_ROWS
    assert advice.budget == Budget(sigma=sigma) and advice.default == sigma
    X, y = _table()
    model = _make("logistic", budget=advice.budget, keep_data=kept).fit(X, y)
    assert model.certificate_.status == "certified"
    for row in range(3):
        model.forget(X=X[[row]], y=y[[row]])
    assert model.certificate_.status == "certified"


def test_time_is_that_of_requests() -> None:
    """A look takes longer than no look, and both are of the size of real ones."""
    from time import process_time

    always, *_, most = _advise().trials
    model = _make("logistic", budget=Budget(sigma=always.sigma)).fit(*_table())
    clock = process_time()
    for row in range(30):
        model.forget(rows=[row])
    real = (process_time() - clock) / 30
    assert real / 5.0 < always.seconds < 5.0 * real
    assert 0.0 < most.seconds < always.seconds


def test_no_figure_depends_on_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    goal: dict[str, Any] = {"requests": 20}
    first = advise(*_table(), MODELS["logistic"], **goal)
    assert _untimed(advise(*_table(), MODELS["logistic"], **goal)) == _untimed(first)
    drawn = "expunge.promise.noise.SeededNoise.draw"
    monkeypatch.setattr(drawn, lambda self, size: np.full(size, 1e3))
    assert _untimed(advise(*_table(), MODELS["logistic"], **goal)) == _untimed(first)


# What is recommended.


def _made_up(sigma: float, **figures: Any) -> SigmaTrial:
    usual = {"score": 0.9, "changed": 0.001, "seconds": 0.1, "looks": 0}
    return SigmaTrial(sigma, **usual | figures, label_guess=0.5)


def test_with_rows_it_is_the_smallest_noise_at_an_acceptable_time() -> None:
    def choose(trials: list[SigmaTrial], max_seconds: float = 1.0) -> float:
        return choose_sigma(
            trials,
            rows_kept=True,
            max_seconds=max_seconds,
            lowest=0.0,
            unnoticed=0.005,
        )

    trials = [
        _made_up(1e-4, seconds=3.0),
        _made_up(5e-4, seconds=2.0, changed=0.001),
        _made_up(1e-3, seconds=1.5, changed=0.002),
        _made_up(1e-2, seconds=0.2, changed=0.004),
        _made_up(0.1, seconds=0.1, changed=0.05),
    ]
    assert choose(trials) == 1e-2
    # Less than the default would not be noticed either.
    assert choose(trials, 10.0) == 1e-3
    # Where the default is noticed, less noise is better while there is time.
    noticed = [replace(one, changed=30.0 * one.changed) for one in trials]
    assert choose(noticed, 10.0) == 1e-4
    assert choose(noticed, 1.0) == 1e-2
    with pytest.raises(InvalidInput, match=r"takes 0.1 s .* under sigma=0.1, the qui"):
        choose(trials, 0.05)


def test_without_rows_it_is_the_largest_noise_that_does_little_harm() -> None:
    trials = [_made_up(s, score=0.9 - loss) for s, loss in TRIED]
    for max_loss, sigma in ((0.001, 0.1), (0.005, 0.1), (0.03, 1.0), (0.5, 2.0)):
        assert _choose_without_rows(trials, max_loss) == sigma
    with pytest.raises(InvalidInput, match=r"sigma=0.1, the smallest .* max_loss"):
        _choose_without_rows(trials, 1e-4)


# Sigmas with what they lose, which need not rise with the noise.
TRIED = ((0.1, 0.0005), (0.2, 0.04), (0.5, 0.01), (1.0, 0.02), (2.0, 0.3))


def _choose_without_rows(trials: list[SigmaTrial], max_loss: float) -> float:
    return choose_sigma(
        trials, rows_kept=False, max_seconds=1e-9, lowest=0.9 - max_loss, unnoticed=0.0
    )


def test_defaults_are_the_constants_of_the_contract() -> None:
    """And the ladder has them, so that the table shows what they do."""
    assert {SIGMA_WITH_ROWS, SIGMA_WITHOUT_ROWS} < set(SIGMAS)
    assert min(SIGMAS) == 1e-4 and max(SIGMAS) == 1.0
    for kept in (True, False):
        line = _line_of(_advise(kept=kept), _advise(kept=kept).default)
        assert line.endswith("recommended, default")


def test_what_is_not_given_comes_from_the_estimator() -> None:
    X, y = _table()
    own = Budget(epsilon=2.0, delta=1e-6, sigma=7.0, releases=500)
    model = LogisticRegression(alpha=ALPHA, budget=own)
    advice = advise(X, y, model, requests=30, delta=1e-8)
    expected = replace(own, delta=1e-8, sigma=advice.budget.sigma)
    assert advice.budget == expected
    # The estimator's own sigma is tried as well.
    assert [one.sigma for one in advice.trials] == [*FEW, 7.0]
    assert "\n7 " in advice.table()
    assert model.budget is own and not hasattr(model, "coef_")


def test_releases_promised_together_are_counted() -> None:
    joint = advise(
        *_table(), MODELS["logistic"], requests=20, releases=50, epsilon=0.5, delta=1e-7
    )
    assert joint.guess == pytest.approx(guess_of(mu_of(0.5, 1e-7)), rel=1e-6)
    assert "all 50 releases" in joint.sentences[-1]
    assert joint.may_leave is not None and _advise().may_leave is None
    assert "leave, worst" in joint.table() and "looks of 20" in joint.table()
    assert eval(joint.line, {"Budget": Budget}) == joint.budget
    for trial in joint.trials:
        assert trial.at_random is not None and trial.at_worst is not None
        assert trial.at_worst <= min(trial.at_random)


def test_sigmas_that_cannot_be_certified_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many there are, and the others are what a fit under each one allows."""
    monkeypatch.setattr("expunge.plan.advice.SIGMAS", (1e-13, 1e-12, 1e-11, *FEW))
    advice = advise(*_table(), MODELS["logistic"], requests=5)
    assert len(advice.uncertified) > 1
    assert advice.table().count("cannot be certified") == len(advice.uncertified)
    assert [one.sigma for one in advice.trials][-3:] == list(FEW)
    for sigma in advice.uncertified:
        with pytest.raises(NotCertifiable):
            _make("logistic", budget=Budget(sigma=sigma)).fit(*_table())
    least = Budget(sigma=advice.trials[0].sigma)
    assert _make("logistic", budget=least).fit(*_table()).certificate_


# What is shown.


def _line_of(advice: Advice, sigma: float) -> str:
    lines = advice.table().splitlines()
    return next(line for line in lines if line.startswith(f"{sigma:g} "))


def test_the_table_holds_the_figures() -> None:
    kept, without = _advise(), _advise(kept=False)
    heads = kept.table().splitlines()[0]
    assert re.split(r"  +", heads.strip()) == [
        *("sigma", "accuracy", "changed", "time", f"looks of {REQUESTS}"),
        "label guessed",
    ]
    for trial in kept.trials:
        cells = re.split(r"  +", _line_of(kept, trial.sigma))
        assert cells[1] == f"{trial.score:.4f}"
        assert float(cells[2].rstrip(" %")) == pytest.approx(
            100.0 * trial.changed, rel=0.06
        )
        assert cells[4] == str(trial.looks)
        shown = (
            "> 99.9 %"
            if trial.label_guess > 0.9995
            else (f"{100.0 * trial.label_guess:.1f} %")
        )
        assert cells[5] == shown
    assert "looks" not in without.table()
    assert "leave, random" in without.table().splitlines()[0]
    for trial in without.trials:
        assert trial.looks is None and trial.at_random is not None
        few, many = min(trial.at_random), max(trial.at_random)
        counts = str(few) if few == many else f"{few}-{many}"
        cells = re.split(r"  +", _line_of(without, trial.sigma))
        assert cells[4:6] == [counts, str(trial.at_worst)]
    assert "moved" in _advise("linear").table().splitlines()[0]


def test_the_tables_on_the_page_are_what_it_prints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for times."""
    monkeypatch.setattr("expunge.plan.advice.SIGMAS", SIGMAS)
    monkeypatch.setattr("expunge.plan.trials.MOST_STEPS", MOST_STEPS)
    monkeypatch.setattr("expunge.plan.trials.MOST_SECONDS", 1e9)
    page = (Path(__file__).parents[1] / "docs/choosing.md").read_text()
    code = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
    quoted = re.findall(
        r"^sigma  +acc.*?(?=\n\n|\n```)", page, re.DOTALL | re.MULTILINE
    )
    names: dict[str, Any] = {}
    exec(code, names)
    without = LogisticRegression(alpha=1e-3, keep_data=False)
    other = advise(names["old_X"], names["old_y"], without, requests=100)
    assert len(quoted) == 2
    for text, advice in zip(quoted, (names["advice"], other), strict=True):
        told, made = (
            [re.split(r"  +", line) for line in table.splitlines()]
            for table in (text, advice.table())
        )
        assert len(told) == len(made) == 2 + 1 + len(SIGMAS) and told[0] == made[0]
        for one, another in zip(told[2:], made[2:], strict=True):
            assert one[:3] == another[:3] and one[5:] == another[5:]
            if "looks of 100" not in told[0] or one[0] == "0":
                assert one[4] == another[4]
            else:  # a few people decide, and any better radius changes who needs one
                assert abs(int(one[4]) - int(another[4])) <= 5
    assert " ".join(names["advice"].sentences[0].split()) in " ".join(
        page.replace("\n  ", " ").split()
    )


def test_the_sentences_hold_the_figures() -> None:
    kept, without = _advise(), _advise(kept=False)
    assert kept.sentences[0] == (
        "Why 0.001? The rows are kept, so more noise would buy nothing but time: it is "
        "the smallest tried whose requests take at most 1 s on average."
    )
    assert without.sentences[0].endswith(
        "it is the largest tried that costs no more than 0.01 of accuracy."
    )
    loss = 100 * (without.noise_free - without.chosen.score)
    assert f"loses about {loss:.2g} points of accuracy" in without.sentences[1]
    assert (
        f"about {100 * without.chosen.changed:.1f} % of everybody"
        in (without.sentences[1])
    )
    assert f"about {REQUESTS} of {REQUESTS} read" in kept.sentences[2]
    counts = without.may_leave
    assert counts is not None
    assert (
        f"In the worst order found it was {counts['at_worst']}."
        in (without.sentences[3])
    )
    guess = f"in {100 * without.chosen.label_guess:.1f} % of cases"
    assert guess in without.sentences[4]
    assert "Retraining without noise would tell it too" in kept.sentences[3]
    mu = mu_of(1.0, 1e-5)
    assert kept.guess == pytest.approx(norm.cdf(mu / 2), rel=1e-6)
    assert "at most 55.4 % by looking at a release" in kept.sentences[-1]
    shown = str(without)
    assert repr(without) == shown and shown.startswith(without.line)
    flat = " ".join(shown.split())
    assert not re.search(r"\n *%", shown)
    for sentence in (*without.sentences, *without.assumed):
        assert sentence in flat
    assert shown.isascii()
    assert "deviations of y" in _advise("linear").sentences[1]
    exact = "tell a single leaver's target by themselves"
    assert exact in " ".join(_advise("linear").assumed)
    assert exact not in " ".join(kept.assumed)


def test_the_card_of_a_notebook_holds_the_same() -> None:
    advice = _advise()
    text = " ".join(re.sub("<[^>]+>", " ", advice._repr_html_()).split())
    assert advice.line in text and advice.sentences[0] in text.replace("&#x27;", "'")
    assert "recommended, default" in text
    assert "<script" not in advice._repr_html_()


def test_a_plot_is_drawn_and_saved(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    advice = _advise()
    left, middle, right = advice.plot(tmp_path / "advice.png").axes
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")
    shown = [
        np.asarray(one.get_lines()[0].get_ydata()) for one in (left, middle, right)
    ]
    for name, values in zip(("score", "changed", "label_guess"), shown, strict=True):
        assert values.tolist() == [asdict(one)[name] for one in advice.trials]


def test_progress_is_shown_where_somebody_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    advise(*_table(), MODELS["linear"], requests=5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("expunge.plan.advice.is_watched", lambda: True)
    for kept in (True, False):
        advise(*_table("linear"), _make("linear", keep_data=kept), requests=5)
        drawn = capsys.readouterr().err
        assert "advising" in drawn
        done, total = map(int, re.findall(r"(\d+)/(\d+)", drawn)[-1])
        assert done == total
    assert not progress.is_watched()


# What is taken, and what is not.


def test_models_of_any_kind_are_tried() -> None:
    X, y = _table()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    for model, target in (
        (TunedClassifier(alphas=(0.1, 0.01), folds=3), y),
        (LogisticRegression(alpha=ALPHA, preprocessing=StandardScaler()), y),
        (LogisticRegression(alpha=ALPHA), _table("softmax")[1]),
        (LogisticRegression(alpha=ALPHA, class_weight="balanced"), y),
        (LinearRegression(alpha=ALPHA), np.column_stack([frame["a"], frame["b"]])),
    ):
        advice = advise(frame, target, model, requests=5)
        guesses = [one.label_guess for one in advice.trials]
        assert guesses == sorted(guesses, reverse=True) and guesses[-1] > 0.5
        changes = [one.changed for one in advice.trials]
        assert changes == sorted(changes) and changes[-1] > advice.changed_anyway
    # One that tunes itself reads its rows at every request.
    tuned = advise(frame, y, TunedClassifier(alphas=(0.1,), folds=2), requests=5)
    assert [one.looks for one in tuned.trials] == [5] * len(FEW)


def test_tables_of_any_kind_get_the_same_advice() -> None:
    X, y = _table()
    names = [f"f{i}" for i in range(N_COLUMNS)]
    plain = advise(X, y, MODELS["linear"], requests=5)
    frame = pd.DataFrame(X, columns=names)
    arrow = pytest.importorskip("pyarrow").table(dict(zip(names, X.T, strict=True)))
    for table in (frame, arrow, sparse.csr_array(X), X.tolist()):
        found = advise(table, y, MODELS["linear"], requests=5)
        for one, other in zip(found.trials, plain.trials, strict=True):
            assert one.score == pytest.approx(other.score)
            assert one.changed == pytest.approx(other.changed)
            assert one.label_guess == pytest.approx(other.label_guess)


def test_whole_people_leave_where_rows_have_owners() -> None:
    X, y = _table()
    people = np.arange(N_ROWS) // 6
    advice = advise(X, y, MODELS["logistic"], subjects=people, requests=40)
    assert "removes one person" in " ".join(advice.assumed)
    assert advice.tried == 40
    rows = _advise()
    for one, other in zip(advice.trials[1:], rows.trials[1:], strict=True):
        assert one.looks is not None and other.looks is not None
        assert one.looks / 40 > other.looks / REQUESTS  # six rows at once
    assert advice.changed_anyway > rows.changed_anyway


def test_the_estimator_stays_as_it_is() -> None:
    model = LogisticRegression(alpha=ALPHA, keep_data=False, random_state=3)
    before = model.get_params()
    advise(*_table(), model, requests=20)
    assert model.get_params() == before and not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        ({"max_loss": 0.0}, "max_loss=0.0; give a positive number"),
        ({"max_loss": -1.0}, "max_loss=-1.0"),
        ({"max_seconds": 0.0}, "max_seconds=0.0; give a positive number"),
        ({"max_seconds": float("nan")}, "max_seconds=nan"),
        ({"requests": 0}, "requests=0; give a positive integer"),
        ({"requests": 1.5}, "requests=1.5"),
        ({"sigma": 0.1}, "leave it out"),
        ({"requests": 100, "releases": 100}, "plan releases=101"),
        ({"subjects": ["a"] * N_ROWS}, "belong to 1 people"),
        ({"subjects": ["a"]}, "1 ids and X has 600 rows"),
        ({"epsilon": -1.0}, "epsilon=-1.0"),
    ],
)
def test_goals_that_make_no_sense_are_refused(goal: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        advise(*_table(), MODELS["logistic"], **goal)
    assert "\n" not in str(caught.value)


def test_estimators_that_cannot_be_tried_are_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot forget"):
        advise(*_table(), linear_model.LogisticRegression())
    with pytest.raises(Unsupported, match="whatever is removed"):
        advise(*_table(), LogisticRegression(mechanism="retrain"))
    model = LogisticRegression(alpha=ALPHA, mechanism=Newton())
    assert advise(*_table(), model, requests=5).trials


def test_where_nothing_can_be_certified_the_reason_is_given() -> None:
    X, y = _table()
    frame = pd.DataFrame(X * [1.0, 1e5, 1.0, 1e7], columns=["a", "wage", "c", "d"])
    model = LogisticRegression(alpha=1e-3)
    with pytest.raises(NotCertifiable, match="columns to blame: 'd'") as caught:
        advise(frame, y, model, requests=5)
    with pytest.raises(NotCertifiable) as fitted:
        model.set_params(budget=Budget(sigma=FEW[-1])).fit(frame, y)
    assert str(caught.value) == str(fitted.value)


def test_other_budgets_share_the_fit() -> None:
    """What a model answers under a budget is what one fitted under it answers."""
    trials = _trials()
    model = private_model(trials.fit(Budget(sigma=1e-3), np.arange(N_ROWS)))
    for sigma in (1e-3, 0.02, 0.5):
        fitted = private_model(trials.fit(Budget(sigma=sigma), np.arange(N_ROWS)))
        moved = under(model, Budget(sigma=sigma))
        assert np.array_equal(moved.answer.draft.theta, fitted.answer.draft.theta)
        assert moved.terms.looks == fitted.terms.looks == (sigma <= 1e-3)
        assert moved.budget == fitted.budget


# Exposures, offsets, times and texts.


def test_counts_are_advised_on_by_their_deviance() -> None:
    rng = np.random.default_rng(0)
    X, v = rng.normal(size=(200, 3)), rng.uniform(0.1, 2.0, 200)
    y = rng.poisson(v * np.exp(X @ [1.0, -0.5, 0.0]))
    model = PoissonRegressor(alpha=ALPHA)
    given: dict[str, Any] = {"subjects": [f"p{i // 2}" for i in range(200)]}
    by_weight = advise(X, y, model, requests=20, exposure=v, **given)
    by_offset = advise(X, y, model, requests=20, offset=np.log(v), **given)
    assert by_weight.metric == by_offset.metric == "D2"
    people = np.array(given["subjects"])
    order = Trials.of(model, X, y, subjects=people, requests=20, exposure=v).orders[0]
    scores = []
    for fold in range(5):
        out = np.isin(people, order[fold::5])
        fit = PoissonRegressor(alpha=ALPHA).fit(X[~out], y[~out], exposure=v[~out])
        scores.append(fit.score(X[out], y[out], exposure=v[out]))
    # Of the releases after five people have left, beside the one before.
    assert by_weight.noise_free == pytest.approx(np.mean(scores), abs=0.01)
    assert by_offset.noise_free == pytest.approx(by_weight.noise_free, abs=0.02)
    for advice in (by_weight, by_offset):
        assert advice.boosted is not None
        assert advice.noise_free - 0.1 < advice.trials[0].score <= 1.0
        losses = [trial.score for trial in advice.trials]
        assert losses == sorted(losses, reverse=True)
        assert "thousandths of D2" in str(advice)
    with pytest.raises(InvalidInput, match="are for counts, amounts and quantiles"):
        advise(X, y > 0, LogisticRegression(), exposure=v)


def test_survival_is_advised_on_by_people() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    life, seen = rng.exponential(8.0 * np.exp(-X[:, 0])), rng.uniform(1.0, 24.0, 200)
    y = np.column_stack([np.minimum(life, seen), life <= seen])
    model = PiecewiseExponential(breaks=[4, 12], alpha=ALPHA)
    advice = advise(X, y, model, subjects=[f"p{i}" for i in range(200)], requests=20)
    assert advice.metric == "D2"
    assert 0.0 < advice.noise_free < 1.0
    assert advice.budget.sigma == SIGMA_WITH_ROWS
    with pytest.raises(InvalidInput, match="whose times are the exposures"):
        advise(X, y, model, offset=np.ones(200))


def test_texts_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, hashed = np.random.default_rng(0), []
    words = np.array([f"word{i}" for i in range(60)])
    y = rng.integers(0, 2, 200)
    X = [" ".join(rng.choice(words[:40] if one else words[20:], 8)) for one in y]
    make_rows = HashedTexts.make_rows

    def count(self: HashedTexts, *given: Any, **more: Any) -> Any:
        hashed.append(1)
        return make_rows(self, *given, **more)

    monkeypatch.setattr(HashedTexts, "make_rows", count)
    steps = HashingVectorizer(n_features=2**8)
    model = LogisticRegression(alpha=ALPHA, preprocessing=steps)
    advice = advise(X, y, model, requests=20)
    assert len(hashed) == 1
    assert advice.noise_free > 0.8
    assert advice.boosted is None


def test_command_line_takes_times_exposures_and_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 150
    size, v = rng.normal(size=n), rng.uniform(0.5, 1.0, n)
    table = pd.DataFrame({"size": size, "years": v, "hits": rng.poisson(v)})
    table["dead"] = rng.integers(0, 2, n)
    table["said"] = [f"it was {'good' if i % 3 else 'bad'} of {i}" for i in range(n)]
    table.to_csv("rows.csv", index=False)
    few = ("--requests", "10", "--json")
    counts = ("--target", "hits", "--loss", "poisson", "--exposure", "years")
    done = call("advise", "rows.csv", *counts, "--drop", "dead", *few, "--progress")
    assert done.json["metric"] == "D2", done.err
    assert "advising" in done.err
    lives = ("--target", "dead", "--loss", "survival", "--time", "years")
    done = call("advise", "rows.csv", *lives, "--breaks", "0.7", *few)
    assert done.json["metric"] == "D2", done.err
    done = call("advise", "rows.csv", "--target", "dead", "--text", "said", *few)
    assert done.json["metric"] == "accuracy", done.err
    done = call("advise", "rows.csv", "--target", "dead", "--time", "years")
    assert "--time without --loss survival" in done.err
