# SPDX-License-Identifier: Apache-2.0
"""Plans on the dashboard: how they come and go, and that they show no radius."""

import re
from collections.abc import Iterator
from html import unescape
from math import isfinite
from threading import enumerate as list_threads
from typing import Any

import numpy as np
import pytest

from expunge import LinearRegression
from expunge.plan import PlanOptions, PlanReport
from expunge.registry import Registry, Request
from expunge.service.pages.plans import BUSY, FACTORS, FAILED, ScoreOut, advise
from tests.registries import (
    BUDGET,
    data,
    estimator,
    registry_at,
    work_without_lock,
)
from tests.services import InProcess, serve_in_process
from tests.visitors import post, sign_in

PLAN = "/models/all/plan"
NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")


@pytest.fixture
def registry(tmp_path: Any) -> Iterator[Registry]:
    with registry_at(tmp_path / "registry") as opened:
        yield opened


@pytest.fixture
def service(registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(registry) as running:
        sign_in(running, "operate")
        yield running
        finish_planning()


def finish_planning() -> None:
    """Wait until no plan is computed."""
    for thread in list_threads():
        if thread.name == "planning":
            thread.join()


def read(service: InProcess, path: str = PLAN) -> Any:
    """Return the JSON of a page."""
    return service.http.get(f"{path}.json").json()


def compute(service: InProcess, path: str = PLAN) -> Any:
    """Have a plan computed, and return the JSON of its page."""
    answer = post(service, path)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    finish_planning()
    return read(service, path)


def plan_of(registry: Registry, name: str = "all") -> PlanReport:
    """Return the plan that the page shows."""
    return registry.models.plan(name, PlanOptions(factors=FACTORS, silent=True))


class TestStates:
    def test_empty_page_says_what_a_plan_is(self, service: InProcess) -> None:
        page = service.http.get(PLAN)
        assert "A plan tries on the model" in page.text
        assert "Compute the plan" in page.text and "operator's eyes" in page.text
        assert page.headers["cache-control"] == "no-store"
        assert read(service)["state"] == "none"
        assert f'href="{PLAN}"' in service.http.get("/models/all").text

    def test_from_button_to_figures(self, service: InProcess) -> None:
        shown = compute(service)
        report = plan_of(service.registry)
        limits = {one.kind: one for one in report.limits}
        assert (shown["state"], shown["planned_release"]) == ("ready", 1)
        assert [
            (one["without_rows"], one["with_rows"]) for one in shown["plan"]["limits"]
        ] == [
            (limits[kind].without_rows, limits[kind].with_rows)
            for kind in ("typical", "clustered", "worst")
        ]
        assert shown["plan"]["noise_free"] == report.noise_free.score
        assert [
            (
                one["sigma"],
                one["score"],
                one["lowest"],
                one["at_random"],
                one["hardest"],
            )
            for one in shown["plan"]["scores"]
        ] == [
            (one.sigma, one.score, one.lowest, one.typical, one.worst)
            for one in report.noised
        ]
        page = service.http.get(PLAN)
        assert page.headers["cache-control"] == "no-store"
        for text in (*shown["plan"]["advice"], *report.not_covered):
            assert text in unescape(page.text)
        assert "hx-get" not in page.text

    def test_one_at_a_time(self, service: InProcess) -> None:
        with service.registry._context.hold_lock(5.0):  # a plan waits for the rows
            assert post(service, PLAN).status_code == 303
            page = service.http.get(PLAN).text
            assert "is being computed" in page and 'hx-trigger="every 2s"' in page
            assert '<noscript><meta http-equiv="refresh"' in page
            assert read(service)["state"] == "computing"
            assert post(service, PLAN).status_code == 303  # the same one
            assert post(service, "/models/half/plan").status_code == 409
            other = service.http.get("/models/half/plan").text
            assert "Another model's plan" in unescape(other)
            assert '<button class="main"' not in other
        finish_planning()
        assert read(service)["state"] == "ready"
        assert compute(service, "/models/half/plan")["state"] == "ready"
        assert read(service)["state"] == "ready"

    def test_plan_is_dropped_when_the_model_moves_on(self, service: InProcess) -> None:
        compute(service)
        service.registry.forget(["person 1"])
        for _ in range(2):
            shown = read(service)
            assert (shown["state"], shown["plan"]) == ("outdated", None)
            assert (shown["planned_release"], shown["release"]) == (1, 2)
        page = service.http.get(PLAN).text
        assert "The model has moved on" in page and "Plan again" in page
        again = compute(service)
        assert (again["state"], again["planned_release"]) == ("ready", 2)
        assert again["plan"]["n_rows"] == len(data()[0]) - 2

    def test_plan_of_an_earlier_release_is_never_shown(
        self, service: InProcess
    ) -> None:
        """The model moves on between the button and the look at the rows."""
        with service.registry._context.hold_lock(5.0):
            post(service, PLAN)
            service.registry.requests.accept([Request(("person 1",))])
            work_without_lock(service.registry)
        finish_planning()
        assert (read(service)["state"], read(service)["plan"]) == ("outdated", None)

    def test_act_is_in_the_trail_and_no_figure(self, service: InProcess) -> None:
        compute(service)
        lines = service.registry.access.trail(0, 50)
        assert [(one.action, one.target) for one in lines[1:]] == [("plan", "all")]


class TestRefusals:
    def test_model_without_a_budget(self, service: InProcess) -> None:
        X, y, owners = data()
        plain = estimator(budget=None)
        service.registry.fit("plain", plain, X, y, subjects=owners)
        page = service.http.get("/models/plain/plan").text
        assert "fitted without a budget" in page and 'class="main"' not in page
        answer = post(service, "/models/plain/plan")
        assert answer.status_code == 422 and "without a budget" in answer.text

    def test_no_such_model(self, service: InProcess) -> None:
        assert service.http.get("/models/none/plan").status_code == 404
        assert service.http.get("/models/none/plan.json").status_code == 404
        assert post(service, "/models/none/plan").status_code == 404

    def test_model_that_is_gone(self, service: InProcess) -> None:
        compute(service)
        service.registry.models.remove("all")
        assert service.http.get(PLAN).status_code == 404

    def test_busy_registry(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("expunge.registry.models.WAIT", 0.01)
        with service.registry._context.hold_lock(5.0):
            shown = compute(service)
        assert (shown["state"], shown["problem"]) == ("failed", BUSY)
        assert BUSY in service.http.get(PLAN).text
        assert compute(service)["state"] == "ready"

    def test_text_of_other_errors_is_not_shown(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*given: Any, **options: Any) -> None:
            raise ValueError("radius 0.123 of person 1")

        monkeypatch.setattr("expunge.registry.models.plan_removals", fail)
        assert compute(service)["problem"] == FAILED
        assert "0.123" not in service.http.get(PLAN).text

    def test_forms_need_their_word(self, service: InProcess) -> None:
        ours = {"Sec-Fetch-Site": "same-origin"}
        assert service.http.post(PLAN, headers=ours).status_code == 403
        assert read(service)["state"] == "none"

    @pytest.mark.parametrize("scope", ["request", "audit"])
    def test_operators_alone(self, service: InProcess, scope: str) -> None:
        compute(service)
        sign_in(service, scope)
        assert service.http.get(PLAN).status_code == 403
        assert service.call("GET", f"{PLAN}.json", scope).status_code == 403
        assert post(service, PLAN).status_code == 403
        if scope == "audit":
            assert PLAN not in service.http.get("/models/all").text


def numbers_in(value: Any) -> set[float]:
    """Return every number in a JSON document."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return set().union(*map(numbers_in, parts))
    if isinstance(value, str):
        return set(map(float, NUMBER.findall(value.rstrip("."))))
    return {float(value)} if isinstance(value, int | float) else set()


def test_no_radius_is_shown(service: InProcess) -> None:
    shown = compute(service)
    report = plan_of(service.registry)
    radii = {report.allowed}
    radii |= {radius for limit in report.limits for _, radius in limit.tried}
    radii = {radius for radius in radii if isfinite(radius) and radius > 0.0}
    assert len(radii) > 20
    assert not any(np.isclose(list(numbers_in(shown)), one).any() for one in radii)
    spelled = {f"{one:{form}}" for one in radii for form in (".4f", ".3g", ".2e", "")}
    text = re.sub(r"<[^>]*>", " ", service.http.get(PLAN).text)
    assert not spelled - {"0.0000"} & set(NUMBER.findall(text))
    assert "allowed" not in str(shown) and "tried" not in str(sorted(shown["plan"]))


def test_numbers_as_labels(service: InProcess) -> None:
    """An R2 may be far below zero; the lines stop at -1, the table does not."""
    X, _, owners = data()
    model = LinearRegression(alpha=0.05, budget=BUDGET)
    service.registry.fit("line", model, X, X @ np.ones(X.shape[1]), subjects=owners)
    shown = compute(service, "/models/line/plan")
    assert shown["plan"]["metric"] == "R2" and shown["plan"]["scores"][-1]["score"] < -1
    page = service.http.get("/models/line/plan").text
    assert 'data-value="-1.0"' in page
    assert f"{shown['plan']['scores'][-1]['score']:.4f}" in page


def test_advice_in_words() -> None:
    scores = {
        0.5: ScoreOut(sigma=1, score=0.9, lowest=0.8, at_random=None, hardest=None),
        1.0: ScoreOut(sigma=2, score=0.8, lowest=0.7, at_random=9, hardest=3),
        2.0: ScoreOut(sigma=4, score=0.7, lowest=0.6, at_random=9, hardest=5),
    }
    half, double = advise(scores, "accuracy")
    assert half == (
        "With half the noise (sigma 1) the accuracy would be 0.900 on average instead "
        "of 0.800, and no release could be certified."
    )
    assert double.endswith("5 rows instead of 3 could leave in the hardest order.")
    same = advise(scores | {2.0: scores[1.0]}, "accuracy")[1]
    assert "as many rows as now, 3," in same
