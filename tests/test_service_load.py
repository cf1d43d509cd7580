# SPDX-License-Identifier: Apache-2.0
"""A service under load, under kill -9, spied on and fuzzed: a little of each.

``make service-load`` has thousands. The harness must be able to fail: faults that are
built in on purpose are found.
"""

import numpy as np
import pytest

from expunge.registry import Registry

from .apart import Forked
from .service_load.asking import Promises, draw_asks
from .service_load.crowd import Crowd
from .service_load.fuzzing import FuzzPlan, fuzz
from .service_load.kills import KillPlan, kill_often
from .service_load.load import LoadPlan, measure_load
from .service_load.serving import run
from .service_load.spying import SpyPlan, gather_sights, list_differences, tell_apart
from .service_load.telling import is_telling, measure_auc, separate_all


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start services as copies of a process that has imported everything."""
    monkeypatch.setattr(
        "tests.service_load.processes.start",
        lambda words, log: Forked(run, log, *words),
    )


SMALL = Crowd(n_people=100, n_features=4)


def test_under_load_every_promise_is_kept() -> None:
    plan = LoadPlan(n_requests=200, n_clients=16, block=50, window=2, crowd=SMALL)
    report = measure_load(plan)
    assert len(report.accepting) == plan.n_requests
    assert len(report.real) == len(report.plain) == 4
    assert report.applied


def test_killed_services_keep_every_promise() -> None:
    said = kill_often(KillPlan(n_kills=2, crowd=SMALL))
    assert said.startswith("2 kills on sqlite")


@pytest.mark.slow
def test_a_service_that_answers_early_is_found() -> None:
    with pytest.raises(AssertionError, match=r"lost|never accepted"):
        kill_often(KillPlan(n_kills=3, crowd=SMALL, extras="early"))


def test_nothing_but_time_could_tell_who_is_known() -> None:
    sights = gather_sights(SpyPlan(n_asks=40, window=5))
    assert len(sights) == 40
    assert {"send", "look", "look, in progress", "look, answered"} <= {
        name for one in sights for name in one.times
    }
    assert list(list_differences(sights)) == []


@pytest.mark.slow
def test_a_service_that_refuses_known_people_is_found() -> None:
    sights = gather_sights(SpyPlan(n_asks=40, window=5, extras="refusing"))
    assert any("send: only known" in one for one in list_differences(sights))
    assert is_telling(tell_apart(sights))


@pytest.mark.slow
def test_fuzzing_finds_nothing() -> None:
    found = fuzz(FuzzPlan(n_cases=330))
    assert found.n_cases > 200
    assert found.faults == {}
    assert {code for _, code in found.codes} >= {200, 201, 403, 404, 422}


class TestTelling:
    """Chance is called chance, and a small difference is seen."""

    def draw(self, shift: float) -> bool:
        rng = np.random.default_rng(0)
        known = rng.random(6000) < 0.5
        times = rng.exponential(1.0, len(known)) + shift * known
        times[rng.random(len(known)) < 0.1] = np.nan
        found = separate_all({"time": list(times)}, list(known), groups=[0.0] * 6000)
        return is_telling(found)

    def test_chance_is_called_chance(self) -> None:
        assert not self.draw(0.0)

    def test_a_tenth_of_the_spread_is_seen(self) -> None:
        assert self.draw(0.1)

    def test_the_error_is_that_of_repeated_draws(self) -> None:
        rng = np.random.default_rng(0)
        known = np.arange(400) % 2 == 0
        draws = [
            measure_auc(rng.standard_normal(400) + 0.3 * known, known)
            for _ in range(400)
        ]
        areas, errors = np.transpose(draws)
        assert np.std(areas) == pytest.approx(np.mean(errors), rel=0.1)

    def test_ties_are_in_the_middle(self) -> None:
        known = np.array([True, True, False, False])
        assert measure_auc(np.array([1.0, 0.0, 1.0, 0.0]), known)[0] == 0.5


def test_the_judge_finds_what_is_lost(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("judge") / "registry"
    SMALL.build(folder)
    promises = Promises()
    for ask in draw_asks(SMALL, 4, seed=0):
        promises.asked[ask.id] = ask
        promises.accepted.add(ask.id)
    with Registry.open(folder) as registry:
        with pytest.raises(AssertionError, match="is lost"):
            promises.require_kept(registry, SMALL)
