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

from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    Newton,
    Polish,
    SoftmaxRegression,
    suggest_budget,
)
from expunge.display import progress
from expunge.exceptions import InvalidInput, NotCertifiable, Unsupported
from expunge.plan import Advice, SigmaTrial
from expunge.plan.advise import SIGMAS, choose_sigma, make_template
from expunge.plan.trials import DRAWS, WITHOUT_LOOK, Trials
from expunge.promise.budget import guess_of, mu_of

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


@pytest.fixture
def few_sigmas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try two sigmas, where others would tell no more."""
    monkeypatch.setattr("expunge.plan.advise.SIGMAS", (0.05, 0.5))


# Sigmas with what they lose, which need not rise with the noise.
TRIED = ((0.1, 0.0005), (0.2, 0.04), (0.5, 0.01), (1.0, 0.02), (2.0, 0.3))


def _measure_losses(kind: str, sigma: float) -> Any:
    """Return what noise costs, measured on other splits and with other noise."""
    (X, y), losses = _table(kind), []
    for seed in range(5):
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
    trials = [SigmaTrial(s, 0.9 - loss, 0.0, 0) for s, loss in TRIED]
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


def test_in_the_order_tried_the_count_is_exact() -> None:
    """At every sigma at which all requests were tried."""
    X, y = _table()
    trials = Trials.of(MODELS["logistic"], X, y, subjects=None)
    n_exact = 0
    for trial in _advise().trials[4::2]:
        model = LogisticRegression(alpha=0.01, budget=Budget(sigma=trial.sigma))
        model.fit(X, y)
        order = [int(one) for one in trials.people_to_ask(REQUESTS)]
        looks = [
            model.forget(rows=[row]).record_.decisions != ("accepted",) for row in order
        ]
        if sum(looks) < 20:
            assert trial.without_look == REQUESTS - sum(looks)
            n_exact += 1
    assert n_exact >= 3


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


def test_the_line_is_the_budget() -> None:
    advice = _advise()
    assert eval(advice.line, {"Budget": Budget}) == advice.budget
    assert advice.line.startswith("Budget(epsilon=1.0, delta=1e-05, sigma=")
    other = _advise(epsilon=0.5, delta=1e-7, releases=200, row_norm=9.0)
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
    assert model.budget is own and not hasattr(model, "coef_")


def test_delta_is_well_below_one_in_all_people() -> None:
    for n_people, delta in ((60, 1e-5), (9_999, 1e-5), (10_001, 1e-6), (10**7, 1e-8)):
        template = make_template(MODELS["logistic"], {}, n_people=n_people)
        assert template.delta == delta


def test_the_guess_is_that_of_the_gaussian() -> None:
    advice = _advise()
    mu = mu_of(1.0, 1e-5)
    assert advice.guess == pytest.approx(norm.cdf(mu / 2), rel=1e-6)
    assert "from 50 % to at most 55.4 % by looking at a release." in advice.sentences[2]
    joint = _advise(epsilon=0.5, delta=1e-7, releases=200, row_norm=9.0)
    assert joint.guess == pytest.approx(guess_of(mu_of(0.5, 1e-7)), rel=1e-6)
    assert "all 200 releases" in joint.sentences[2]


def test_the_sentences_hold_the_figures() -> None:
    advice = _advise()
    words = " ".join(advice.sentences)
    chosen = advice.chosen
    loss = 100 * (advice.noise_free - chosen.score)
    assert f"loses about {loss:.1f} points of accuracy" in words
    assert f"About {chosen.without_look} of {REQUESTS} requests" in words
    shown = str(advice)
    assert shown.startswith(advice.line)
    flat = " ".join(shown.split())
    assert not re.search(r"\n *%", shown)
    for sentence in (*advice.sentences, *advice.assumed):
        assert sentence in flat
    assert max(map(len, shown.splitlines())) <= 88
    assert shown.isascii()
    worst = 100 * (advice.noise_free - chosen.lowest)
    assert f"({worst:.1f} in the worst of {DRAWS} tries)" in words
    assert "thousandths of R2" in " ".join(_advise("linear").sentences)


def test_less_noise_is_named_where_it_does_as_well() -> None:
    trials = [SigmaTrial(s, 0.9, 0.9, min(9, int(20 * s))) for s in (0.1, 0.5, 1.0)]
    advice = replace(_advise(), trials=tuple(trials), budget=Budget(sigma=1.0))
    assert advice.sentences[-1] == "sigma=0.5 answers as many with less noise."
    advice = replace(advice, budget=Budget(sigma=0.5))
    assert "less noise" not in " ".join(advice.sentences)


def test_the_table_lists_every_sigma() -> None:
    advice = _advise()
    lines = advice.table().splitlines()[3:]
    assert [float(line.split()[0]) for line in lines] == list(SIGMAS)
    marked = [line for line in lines if "recommended" in line]
    assert len(marked) == 1 and marked[0].startswith(f"{advice.budget.sigma:g} ")
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
    left, right = advice.plot(tmp_path / "advice.png").axes
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")
    assert left.get_ylabel() == "accuracy"
    assert right.get_ylim() == (0.0, 1.0)
    _advise("linear").plot()


@pytest.mark.usefixtures("few_sigmas")
def test_tables_of_any_kind_get_the_same_advice() -> None:
    X, y = _table()
    names = [f"f{i}" for i in range(N_COLUMNS)]
    goal: dict[str, Any] = {"requests": 20, "max_loss": MAX_LOSS}
    plain = suggest_budget(X, y, MODELS["logistic"], **goal)
    frame = pd.DataFrame(X, columns=names)
    arrow = pytest.importorskip("pyarrow").table(dict(zip(names, X.T, strict=True)))
    for table in (frame, arrow, sparse.csr_array(X), X.tolist()):
        assert suggest_budget(table, y, MODELS["logistic"], **goal) == plain


def test_noise_is_all_that_scores_differ_by() -> None:
    """Without noise the same people leave; with next to none nothing is lost."""
    trials = Trials.of(MODELS["logistic"], *_table(), subjects=None)
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
    for mechanism in ("retrain", Polish()):
        with pytest.raises(Unsupported, match="whatever is removed"):
            suggest_budget(*_table(), LogisticRegression(mechanism=mechanism))
    model = LogisticRegression(alpha=0.01, mechanism=Newton())
    assert suggest_budget(*_table(), model, requests=5, max_loss=0.02).trials


@pytest.mark.usefixtures("few_sigmas")
def test_where_nothing_can_be_certified_the_reason_is_given() -> None:
    X, y = _table()
    frame = pd.DataFrame(X * [1.0, 1e5, 1.0, 1e7], columns=["a", "wage", "c", "d"])
    with pytest.raises(NotCertifiable, match="columns to blame: 'd'"):
        suggest_budget(frame, y, LogisticRegression(alpha=1e-3), requests=5)
