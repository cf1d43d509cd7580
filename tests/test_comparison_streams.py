# SPDX-License-Identifier: Apache-2.0
"""The streams of the comparison: who asks to be forgotten, and in which order."""

import numpy as np
import pytest

from benchmarks.comparison.contenders_ours import NEWTON
from benchmarks.comparison.protocol import Problem, Promise
from benchmarks.comparison.streams import STREAMS, fit, influences
from expunge import L1, L2, HalfSquared, Logistic, Objective
from expunge.core.penalties import Penalty
from expunge.core.solver import minimise
from expunge.core.sums import norm_moment
from expunge.exceptions import InvalidInput
from tests.cases import distance, logistic_data


def problem(penalty: Penalty | None = None, copies: int = 1) -> Problem:
    """Return a problem with 200 people; all of them several times over if asked."""
    X, y = logistic_data(np.random.default_rng(1), 200, 6)
    objective = Objective(Logistic(), penalty or L2(), alpha=0.02)
    rows = objective.rows(np.tile(X, (copies, 1)), np.tile(y, copies))
    return Problem("small", objective, rows, rows)


@pytest.mark.parametrize("penalty", [L2(), L1()], ids=["L2", "L1"])
@pytest.mark.parametrize("name", STREAMS)
def test_stream_names_distinct_people_and_repeats(name: str, penalty: Penalty) -> None:
    given, stream = problem(penalty), STREAMS[name]
    order = stream(given, 4, 60)
    assert order.shape == (60,)
    assert len(set(order.tolist())) == 60
    assert set(order.tolist()) <= set(range(200))
    np.testing.assert_array_equal(order, stream(given, 4, 60))
    assert stream(given, 4, 0).size == 0


@pytest.mark.parametrize("name", ["random", "biased", "clustered"])
def test_seed_chooses_the_stream(name: str) -> None:
    given = problem()
    assert (STREAMS[name](given, 0, 50) != STREAMS[name](given, 1, 50)).any()


@pytest.mark.parametrize("name", STREAMS)
def test_stream_cannot_name_more_people_than_there_are(name: str) -> None:
    with pytest.raises(InvalidInput, match="ask for fewer"):
        STREAMS[name](problem(), 0, 201)


def test_biased_stream_takes_a_tenth_of_one_class() -> None:
    given = problem()
    order = STREAMS["biased"](given, 0, 70)
    labels = given.train.y[order]
    assert (labels == -1.0).sum() == 7
    assert (labels == 1.0).sum() == 63
    assert (labels[:35] == 1.0).sum() < 35  # mixed, not one class after the other


def test_biased_stream_needs_two_classes() -> None:
    objective = Objective(HalfSquared(), L2(), alpha=0.1)
    rows = objective.rows(np.eye(4), np.arange(4.0))
    with pytest.raises(InvalidInput, match="4 labels"):
        STREAMS["biased"](Problem("p", objective, rows, rows), 0, 2)


def test_clustered_stream_goes_outwards() -> None:
    given = problem()
    order = STREAMS["clustered"](given, 2, 200)
    X = given.train.dense()
    away = np.linalg.norm(X[order] - X[order[0]], axis=1)
    assert (np.diff(away) >= -1e-9).all()
    assert sorted(order.tolist()) == list(range(200))


@pytest.mark.parametrize("penalty", [L2(), L1()], ids=["L2", "L1"])
def test_influence_is_how_removal_moves_the_model(penalty: Penalty) -> None:
    given = problem(penalty, copies=10)  # so many that one row is a small change
    summary = fit(given)
    effects = influences(given, summary)
    order = STREAMS["largest influence"](given, 0, 2000)
    sizes = np.linalg.norm(effects, axis=1)
    assert (np.diff(sizes[order]) <= 0.0).all()
    for row in order[[0, 500, 1500]]:
        rest = given.train.without(np.array([row]))
        move = minimise(given.objective, rest).theta - summary.anchor
        assert distance(effects[row], move) < 0.02 * np.linalg.norm(move)


def test_poisoning_takes_the_best_next_person_each_time() -> None:
    given = problem()
    effects = influences(given, fit(given))
    moment = norm_moment(given.train)
    step, left = np.zeros(6), set(range(200))
    for chosen in STREAMS["poisoning"](given, 0, 30).tolist():
        there = {i: step + effects[i] for i in left}
        forms = {i: float(s @ moment @ s) for i, s in there.items()}
        assert forms[chosen] == pytest.approx(max(forms.values()), rel=1e-9)
        step = there[chosen]
        left.remove(chosen)


def test_poisoning_spends_the_budget_faster_than_any_other_stream() -> None:
    given, noises = problem(), {}
    for name, stream in STREAMS.items():
        session = NEWTON.start(given, seed=0)
        session.forget(stream(given, 0, 15))
        noises[name] = session.noise(Promise())
    assert max(noises, key=noises.__getitem__) == "poisoning"
    assert noises["poisoning"] > 3.0 * noises["random"]
