# SPDX-License-Identifier: Apache-2.0
"""Advice on a budget: each figure is checked by fitting and forgetting for real."""

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import norm
from sklearn import linear_model
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    Newton,
    SoftmaxRegression,
    TunedClassifier,
    suggest_budget,
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
from expunge.plan.advise import SIGMAS, choose_sigma, make_template
from expunge.plan.trials import DRAWS, WITHOUT_LOOK, Trials, count_leaving
from expunge.private_model.training_rows import TrainingRows
from expunge.promise.budget import guess_of, mu_of
from tests.thorough import either

N_ROWS, N_COLUMNS, REQUESTS = 600, 4, 150


@cache
def _table(kind: str = "logistic", seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, N_COLUMNS)) / 2.0
    eta = 3.0 * (X @ np.array([1.0, -1.0, 0.5, 0.0]))
    if kind == "linear":
        return X, eta + 0.5 * rng.normal(size=N_ROWS)
    if kind == "softmax":
        return X, np.digitize(eta + rng.logistic(size=N_ROWS), [-1.0, 1.0])
    return X, (eta + rng.logistic(size=N_ROWS) > 0.0).astype(int)


MODELS = {
    "logistic": LogisticRegression(alpha=0.01),
    "linear": LinearRegression(alpha=0.01),
    "softmax": SoftmaxRegression(alpha=0.01),
}


MAX_LOSS = 0.02


@cache
def _advise(kind: str = "logistic", **promise: Any) -> Advice:
    return suggest_budget(
        *_table(kind), MODELS[kind], max_loss=MAX_LOSS, requests=REQUESTS, **promise
    )


def try_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try two sigmas, and few rows for the worst order: others would tell no more."""
    monkeypatch.setattr("expunge.plan.advise.SIGMAS", (0.05, 0.5))
    monkeypatch.setattr("expunge.plan.trials.MOST_MEASURED", 60)
    monkeypatch.setattr("expunge.plan.trials.NEXT_MEASURED", 20)


@pytest.fixture
def few_sigmas(monkeypatch: pytest.MonkeyPatch) -> None:
    try_few(monkeypatch)


# Sigmas with what they lose, which need not rise with the noise.
TRIED = ((0.1, 0.0005), (0.2, 0.04), (0.5, 0.01), (1.0, 0.02), (2.0, 0.3))


def _measure_losses(kind: str, sigma: float) -> Any:
    """Return what noise costs, measured on other splits and with other noise."""
    (X, y), losses = _table(kind), []
    for seed in range(either(1, thorough=5)):
        split = KFold(5, shuffle=True, random_state=seed).split(X)
        for fold, (fitted, out) in enumerate(split):
            model = MODELS[kind].__class__(alpha=0.01).fit(X[fitted], y[fitted])
            free = model.score(X[out], y[out])
            for draw in range(4):
                number = 1 + 100 * seed + 10 * fold + draw
                model.set_params(budget=Budget(sigma=sigma), random_state=number)
                model.fit(X[fitted], y[fitted])
                losses.append(free - model.score(X[out], y[out]))
    return np.mean(losses)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_the_sigma_is_the_largest_whose_releases_lose_no_more(kind: str) -> None:
    advice = _advise(kind)
    assert advice.budget.sigma in SIGMAS[1:-1]
    larger = SIGMAS[SIGMAS.index(advice.budget.sigma) + 1]
    assert _measure_losses(kind, advice.budget.sigma) <= MAX_LOSS
    assert _measure_losses(kind, larger) > MAX_LOSS


def test_the_largest_sigma_counts_wherever_it_lies() -> None:
    trials = [SigmaTrial(s, 0.9 - loss, 0.0, 0, (0,), 0) for s, loss in TRIED]
    for max_loss, sigma in ((0.001, 0.1), (0.005, 0.1), (0.03, 1.0), (0.5, 2.0)):
        assert choose_sigma(trials, 0.9, max_loss=max_loss) == sigma
    with pytest.raises(InvalidInput, match=r"sigma=0.1, the smallest .* costs 0.0005"):
        choose_sigma(trials, 0.9, max_loss=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_so_many_requests_are_really_answered_without_a_look(kind: str) -> None:
    """Forget people in another order, with noise nobody seeded."""
    advice = _advise(kind)
    X, y = _table(kind)
    people = [f"person {i}" for i in range(N_ROWS)]
    model = MODELS[kind].__class__(alpha=0.01, budget=advice.budget)
    model.fit(X, y, subjects=people)
    leaving = np.random.default_rng(9).permutation(people)[:REQUESTS]
    decisions = [model.forget([one]).record_.decisions for one in leaving]
    assert model.certificate_.status == "certified"
    answered = decisions.count(WITHOUT_LOOK)
    assert answered == pytest.approx(advice.chosen.without_look, abs=0.05 * REQUESTS)


@cache
def _trials(kind: str = "logistic") -> Trials:
    return Trials.of(MODELS[kind], *_table(kind), subjects=None, requests=REQUESTS)


@cache
def _orders(kind: str = "logistic") -> list[list[int]]:
    """Return the orders in which rows left: the random ones, and the worst."""
    trials = _trials(kind)
    worst = trials.find_worst_order(Budget(sigma=SIGMAS[-1]))
    return [[int(one) for one in order] for order in (*trials.orders, worst)]


def _replay(kind: str, sigma: float, order: list[int]) -> list[Any]:
    """Return what was done for each row that leaves, with noise nobody seeded."""
    X, y = _table(kind)
    model = MODELS[kind].__class__(alpha=0.01, budget=Budget(sigma=sigma)).fit(X, y)
    return [model.forget(rows=[row]).record_.decisions for row in order]


def test_in_the_order_tried_the_share_is_exact() -> None:
    """At every sigma at which all requests were tried."""
    n_exact = 0
    for trial in _advise().trials[4::2]:
        done = _replay("logistic", trial.sigma, _orders()[0][:REQUESTS])
        n_looks = REQUESTS - done.count(WITHOUT_LOOK)
        if n_looks < 20:
            assert trial.without_look == REQUESTS - n_looks
            n_exact += 1
    assert n_exact >= 3


@pytest.mark.parametrize("kind", MODELS)
def test_so_many_really_leave_before_the_first_look(kind: str) -> None:
    """In each order: neither fewer than the advice says, nor more."""
    first, chosen = _advise(kind).trials[5], _advise(kind).chosen
    for trial in (first, chosen):
        counts = [*trial.at_random, trial.at_worst]
        for order, count in zip(_orders(kind), counts, strict=True):
            done = _replay(kind, trial.sigma, order[: min(count + 1, REQUESTS)])
            assert done[:count] == [WITHOUT_LOOK] * count
            assert count == REQUESTS or done[count] != WITHOUT_LOOK


def test_a_model_without_rows_refuses_after_so_many() -> None:
    X, y = _table()
    trial = _advise().trials[4]
    for order, count in (
        (_orders()[0], trial.at_random[0]),
        (_orders()[-1], trial.at_worst),
    ):
        assert 0 < count < REQUESTS
        model = LogisticRegression(
            alpha=0.01, budget=Budget(sigma=trial.sigma), keep_data=False
        ).fit(X, y)
        for row in order[:count]:
            model.forget(X=X[[row]], y=y[[row]])
        with pytest.raises(CapacityExceeded):
            model.forget(X=X[[order[count]]], y=y[[order[count]]])


def test_the_worst_order_is_worse_than_chance_and_than_large_effects() -> None:
    """Effects are H^-1 g at the minimiser, by NumPy alone."""
    X, y = _table()
    free = linear_model.LogisticRegression(C=1 / (0.01 * N_ROWS), tol=1e-10).fit(X, y)
    ones = np.column_stack([X, np.ones(N_ROWS)])
    share = free.predict_proba(X)[:, 1]
    curvature = (ones.T * (share * (1.0 - share))) @ ones / N_ROWS
    curvature += 0.01 * np.diag([1.0] * N_COLUMNS + [0.0])
    effects = np.linalg.solve(curvature, (ones * (share - y)[:, None]).T).T
    along = effects @ np.linalg.svd(effects)[2][0]
    for trial in _advise().trials[6:]:
        assert 3 * trial.at_worst < min(trial.at_random)
        size = np.linalg.norm(effects, axis=1)
        model = private_model(_trials().fit(Budget(sigma=trial.sigma), np.arange(600)))
        for order in (np.argsort(-size), np.argsort(along), np.argsort(-along)):
            people = order[:REQUESTS].astype(np.str_)
            assert trial.at_worst <= count_leaving(model, people)


def test_the_heaviest_are_found_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expunge.plan.trials.MOST_MEASURED", 60)
    monkeypatch.setattr("expunge.plan.trials.NEXT_MEASURED", 20)
    X, y = _table()
    heavy = int(_trials().orders[0][-1])
    X = np.where(np.arange(N_ROWS)[:, None] == heavy, 5.0 * X, X)
    y = np.where(np.arange(N_ROWS) == heavy, X @ [1.0, -1.0, 0.5, 0.0] < 0.0, y)
    trials = Trials.of(MODELS["logistic"], X, y, subjects=None, requests=20)
    order = trials.find_worst_order(Budget(sigma=SIGMAS[-1]))
    assert sorted(map(int, order)) == list(range(N_ROWS))
    assert int(order[0]) == heavy


def test_a_trial_leaves_the_model_as_it_is() -> None:
    model = private_model(_trials().fit(Budget(sigma=0.05), np.arange(N_ROWS)))
    people = _trials().orders[1][:REQUESTS]
    first = count_leaving(model, people)
    assert 0 < first == count_leaving(model, people)
    assert model.n_removed == 0 and model.pending is None
    assert isinstance(model.training_rows, TrainingRows)
    assert model.training_rows.alive.all()


def test_more_noise_lets_more_leave() -> None:
    for kind in MODELS:
        trials = _advise(kind).trials
        for less, more in pairwise(trials):
            assert all(map(int.__le__, less.at_random, more.at_random))
            assert less.at_worst <= more.at_worst
        assert all(one.at_worst <= min(one.at_random) for one in trials)
    # A quadratic is removed exactly, whoever leaves.
    assert _advise("linear").chosen.at_worst == REQUESTS


@pytest.mark.usefixtures("few_sigmas")
def test_the_same_data_get_the_same_advice() -> None:
    goal: dict[str, Any] = {"requests": 40, "max_loss": MAX_LOSS}
    first, again = (
        suggest_budget(*_table(), MODELS["logistic"], **goal) for _ in range(2)
    )
    assert first == again


@pytest.mark.usefixtures("few_sigmas")
def test_tuned_models_and_pipelines_are_tried_too() -> None:
    X, y = _table()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    for model in (
        TunedClassifier(alphas=(0.1, 0.01), folds=3),
        LogisticRegression(alpha=0.01, preprocessing=StandardScaler()),
    ):
        advice = suggest_budget(frame, y, model, requests=12, max_loss=0.5)
        small, large = advice.trials
        assert 0 <= small.at_worst <= large.at_worst <= min(large.at_random) <= 12
        fitted = model.set_params(budget=Budget(sigma=0.5)).fit(frame, y)
        order = [int(one) for one in _trials().orders[0]][: large.at_random[0] + 1]
        done = [fitted.forget(rows=[row]).record_.decisions for row in order]
        assert done[: large.at_random[0]] == [WITHOUT_LOOK] * large.at_random[0]


def test_more_noise_answers_more_requests() -> None:
    counts = [one.without_look for one in _advise().trials]
    assert all(less <= more + 0.05 * REQUESTS for less, more in pairwise(counts))
    assert counts[0] < counts[-1]


def test_whole_people_leave_where_rows_have_owners() -> None:
    X, y = _table()
    people = np.arange(N_ROWS) // 6
    advice = suggest_budget(
        X, y, MODELS["logistic"], subjects=people, requests=40, max_loss=0.02
    )
    assert "removes one person" in " ".join(advice.assumed)
    assert advice.tried == 40
    model = LogisticRegression(alpha=0.01, budget=advice.budget)
    model.fit(X, y, subjects=people)
    leaving = np.random.default_rng(9).permutation(100)[:40]
    decisions = [model.forget([one]).record_.decisions for one in leaving]
    rows = _advise()
    assert advice.budget.sigma == rows.budget.sigma
    share = decisions.count(WITHOUT_LOOK) / 40
    assert share == pytest.approx(advice.chosen.without_look / 40, abs=0.1)
    assert share < rows.chosen.without_look / REQUESTS  # six rows at once


@cache
def _advise_jointly() -> Advice:
    with pytest.MonkeyPatch.context() as patch:
        try_few(patch)
        return _advise(epsilon=0.5, delta=1e-7, releases=200, row_norm=9.0)


def test_the_line_is_the_budget() -> None:
    advice = _advise()
    assert eval(advice.line, {"Budget": Budget}) == advice.budget
    assert advice.line.startswith("Budget(epsilon=1.0, delta=1e-05, sigma=")
    other = _advise_jointly()
    assert eval(other.line, {"Budget": Budget}) == other.budget
    assert other.budget == Budget(
        0.5, 1e-7, other.budget.sigma, releases=200, row_norm=9.0
    )


@pytest.mark.usefixtures("few_sigmas")
def test_what_is_not_given_comes_from_the_estimator() -> None:
    X, y = _table()
    own = Budget(epsilon=2.0, delta=1e-6, sigma=7.0, releases=500)
    model = LogisticRegression(alpha=0.01, budget=own)
    advice = suggest_budget(X, y, model, requests=30, delta=1e-8)
    expected = replace(own, delta=1e-8, sigma=advice.budget.sigma)
    assert advice.budget == expected
    # The estimator's own sigma is tried as well.
    assert [one.sigma for one in advice.trials] == [0.05, 0.5, 7.0]
    assert "\n7 " in advice.table()
    assert model.budget is own and not hasattr(model, "coef_")


def test_what_nobody_states_is_the_default() -> None:
    template = make_template(MODELS["logistic"], {})
    assert template == Budget()


def test_the_guess_is_that_of_the_gaussian() -> None:
    advice = _advise()
    mu = mu_of(1.0, 1e-5)
    assert advice.guess == pytest.approx(norm.cdf(mu / 2), rel=1e-6)
    assert "from 50 % to at most 55.4 % by looking at a release." in advice.sentences[3]
    joint = _advise_jointly()
    assert joint.guess == pytest.approx(guess_of(mu_of(0.5, 1e-7)), rel=1e-6)
    assert "all 200 releases" in joint.sentences[3]


def test_the_sentences_hold_the_figures() -> None:
    advice = _advise()
    words = " ".join(advice.sentences)
    chosen = advice.chosen
    loss = 100 * (advice.noise_free - chosen.score)
    assert f"loses about {loss:.1f} points of accuracy" in words
    assert f"About {chosen.without_look} of {REQUESTS} single requests" in words
    assert advice.sentences[0].startswith(f"Which sigma? {chosen.sigma:g}, the largest")
    softmax = _advise("softmax")
    counts = softmax.chosen.at_random
    few, many, worst = min(counts), max(counts), softmax.chosen.at_worst
    assert worst < few < many < REQUESTS
    told = softmax.sentences[1]
    assert told.startswith(
        f"How many may leave? In 5 random orders between {few} and {many} rows left"
    )
    assert told.endswith(f"In the worst order found it was {worst}.")
    assert softmax.may_leave == {
        "at_random_least": few,
        "at_random_most": many,
        "at_worst": worst,
    }
    assert advice.sentences[1] == (
        f"How many may leave? In 5 random orders all {REQUESTS} rows that were tried "
        "left, and no answer had to read the remaining rows. In the worst order found "
        f"{chosen.at_worst} left before an answer had to read the remaining rows, "
        "where a model that keeps no rows must refuse."
    )
    exact = _advise("linear").sentences[1]
    assert exact.endswith("rows. The same holds for the worst order found.")
    some = replace(softmax, tried=many).sentences[1]
    assert f"between {few} and {many} (all that were tried) rows left before" in some
    shown = str(advice)
    assert shown.startswith(advice.line)
    flat = " ".join(shown.split())
    assert not re.search(r"\n *%", shown)
    for sentence in (*advice.sentences, *advice.assumed):
        assert sentence in flat
    assert max(map(len, shown.splitlines())) <= 88
    assert shown.isascii()
    most = 100 * (advice.noise_free - chosen.lowest)
    assert f"({most:.1f} in the worst of {DRAWS} tries)" in words
    assert "thousandths of R2" in " ".join(_advise("linear").sentences)


def test_less_noise_is_named_where_it_does_as_well() -> None:
    trials = tuple(
        SigmaTrial(s, 0.9, 0.9, min(9, int(20 * s)), (7, 8), int(4 * s))
        for s in (0.1, 0.5, 1.0)
    )
    advice = replace(_advise(), trials=trials, budget=Budget(sigma=1.0))
    assert advice.sentences[-1] == (
        "sigma=0.5 answers as many with less noise (in the worst order 2 may leave)."
    )
    fewer = replace(trials[1], at_random=(6, 8)), trials[2]
    for less in (
        replace(advice, budget=Budget(sigma=0.5)),
        replace(advice, trials=fewer),
    ):
        assert "less noise" not in " ".join(less.sentences)


def test_the_table_lists_every_sigma() -> None:
    advice = _advise()
    lines = advice.table().splitlines()[3:]
    assert [float(line.split()[0]) for line in lines] == list(SIGMAS)
    marked = [line for line in lines if "recommended" in line]
    assert len(marked) == 1 and marked[0].startswith(f"{advice.budget.sigma:g} ")
    for trial, line in zip(advice.trials, lines, strict=True):
        few, many = min(trial.at_random), max(trial.at_random)
        shown = [str(few) if few == many else f"{few}-{many}", str(trial.at_worst)]
        assert line.split()[4:6] == shown
    refused = replace(advice, trials=advice.trials[2:])
    assert refused.table().count("cannot be certified") == 2


def test_the_card_of_a_notebook_holds_the_same() -> None:
    advice = _advise()
    text = " ".join(re.sub("<[^>]+>", " ", advice._repr_html_()).split())
    assert advice.line in text
    assert f"{advice.chosen.without_look} of {REQUESTS}, recommended" in text
    assert "<script" not in advice._repr_html_()


def test_a_plot_is_drawn_and_saved(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    advice = _advise()
    left, middle, right = advice.plot(tmp_path / "advice.png").axes
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")
    assert left.get_ylabel() == "accuracy"
    assert right.get_ylim() == (0.0, 1.0)
    least, worst, *_ = middle.get_lines()
    assert np.asarray(least.get_ydata()).tolist() == [
        min(one.at_random) for one in advice.trials
    ]
    assert np.asarray(worst.get_ydata()).tolist() == [
        one.at_worst for one in advice.trials
    ]
    assert middle.get_ylabel() == "rows"
    _advise("linear").plot()


@pytest.mark.usefixtures("few_sigmas")
def test_tables_of_any_kind_get_the_same_advice() -> None:
    X, y = _table()
    names = [f"f{i}" for i in range(N_COLUMNS)]
    goal: dict[str, Any] = {"requests": 5, "max_loss": MAX_LOSS}
    plain = suggest_budget(X, y, MODELS["logistic"], **goal)
    frame = pd.DataFrame(X, columns=names)
    arrow = pytest.importorskip("pyarrow").table(dict(zip(names, X.T, strict=True)))
    for table in (frame, arrow, sparse.csr_array(X), X.tolist()):
        assert suggest_budget(table, y, MODELS["logistic"], **goal) == plain


def test_noise_is_all_that_scores_differ_by() -> None:
    """Without noise the same people leave; with next to none nothing is lost."""
    trials = _trials()
    free = trials.score_releases(None)
    assert len(free) == DRAWS
    quiet = trials.score_releases(Budget(sigma=1e-5))
    assert quiet == pytest.approx(free, abs=2 / N_ROWS)


@pytest.mark.usefixtures("few_sigmas")
def test_the_estimator_stays_as_it_is() -> None:
    model = LogisticRegression(alpha=0.01, keep_data=False, random_state=3)
    before = model.get_params()
    suggest_budget(*_table(), model, requests=20, max_loss=0.02)
    assert model.get_params() == before and not hasattr(model, "coef_")


def test_progress_is_shown_where_somebody_watches(
    few_sigmas: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suggest_budget(*_table(), MODELS["linear"], requests=5, max_loss=9.0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("expunge.plan.advise.is_watched", lambda: True)
    suggest_budget(*_table(), MODELS["linear"], requests=5, max_loss=9.0)
    assert "trying sigmas" in capsys.readouterr().err
    assert not progress.is_watched()


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        ({"max_loss": 0.0}, "max_loss=0.0; give a positive number"),
        ({"max_loss": -1.0}, "max_loss=-1.0"),
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
    with pytest.raises(InvalidInput, match=words):
        suggest_budget(*_table(), MODELS["logistic"], **goal)


@pytest.mark.usefixtures("few_sigmas")
def test_estimators_that_cannot_be_tried_are_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot forget"):
        suggest_budget(*_table(), linear_model.LogisticRegression())
    with pytest.raises(Unsupported, match="whatever is removed"):
        suggest_budget(*_table(), LogisticRegression(mechanism="retrain"))
    model = LogisticRegression(alpha=0.01, mechanism=Newton())
    assert suggest_budget(*_table(), model, requests=5, max_loss=0.02).trials


@pytest.mark.usefixtures("few_sigmas")
def test_where_nothing_can_be_certified_the_reason_is_given() -> None:
    X, y = _table()
    frame = pd.DataFrame(X * [1.0, 1e5, 1.0, 1e7], columns=["a", "wage", "c", "d"])
    with pytest.raises(NotCertifiable, match="columns to blame: 'd'"):
        suggest_budget(frame, y, LogisticRegression(alpha=1e-3), requests=5)
