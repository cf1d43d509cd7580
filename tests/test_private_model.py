# SPDX-License-Identifier: Apache-2.0
"""PrivateModel: what is released fits the budget, or is not released."""

import copy
import logging
import pickle
from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np
import pytest

from expunge import (
    L1,
    L2,
    HalfSquared,
    Jackknife,
    Logistic,
    Multinomial,
    Newton,
    Objective,
    Retrain,
    Rows,
    SquaredHinge,
    learn,
)
from expunge.core.linalg import LARGE, MOST_RECENT
from expunge.core.objective import Scaling
from expunge.core.solver import minimise
from expunge.exceptions import (
    CapacityExceeded,
    ExpungeError,
    InvalidInput,
    NotCertifiable,
    ScheduleExhausted,
)
from expunge.private_model.model import PrivateModel
from expunge.promise.budget import SOLVER_SHARE, Budget
from expunge.promise.floor import strong_convexity
from expunge.promise.noise import SeededNoise
from expunge.promise.rounding import Rounding
from expunge.promise.verification import verify
from expunge.removal import Mechanism, residual
from tests.instances import labelled, retrained

BUDGET = Budget(sigma=0.5, allow_seeded=True)
MECHANISMS: list[Mechanism] = [Jackknife(), Newton(), Retrain()]


def _rows(objective: Objective, n_samples: int = 300, seed: int = 0) -> Rows:
    name = "logistic" if isinstance(objective.loss, Logistic) else "half_squared"
    return objective.rows(*labelled(name, np.random.default_rng(seed), n_samples))


def _noise(budget: Budget = BUDGET) -> SeededNoise:
    return SeededNoise(budget.deviation, budget.grid, 7)


PLAIN = Objective(Logistic(), L2(), 0.05, intercept=True, penalize_intercept=True)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_a_release_is_within_its_radius_of_retraining(mechanism: Mechanism) -> None:
    rows = _rows(PLAIN)
    summary, model = (
        learn(PLAIN, rows),
        PrivateModel.fit(PLAIN, rows, mechanism=mechanism, budget=BUDGET),
    )
    assert model.answer.radius.value <= BUDGET.solver_error(7)
    gone = np.arange(0)
    for i in range(6):
        gone = np.append(gone, i).astype(np.intp)
        remaining = rows.without(gone)
        model = model.forget(rows.take(gone[-1:]), remaining=remaining)
        _, public, record = model.release(_noise())
        target = retrained(summary, remaining)
        error = np.linalg.norm(model.answer.draft.theta - target)
        assert record.radius is not None
        assert error <= record.radius + 1e-12
        assert record.radius + BUDGET.solver_error(7) <= BUDGET.radius_budget(7)
        assert public.certificate.n_subjects_removed == i + 1
        assert verify(public.certificate, record).valid


def _wide() -> tuple[Objective, Rows]:
    """Return a problem whose matrices keep recent rows beside their triangles."""
    rng = np.random.default_rng(5)
    objective = Objective(Logistic(), L2(), 0.05)
    X = rng.normal(size=(600, LARGE)) / np.sqrt(LARGE)
    y = np.where(X[:, 0] + 0.1 * rng.normal(size=600) > 0.0, 1, -1)
    return objective, objective.rows(X, y)


def test_a_stream_on_a_wide_model_is_within_its_radius_of_retraining() -> None:
    objective, rows = _wide()
    model = PrivateModel.fit(objective, rows, mechanism=Newton(), budget=BUDGET)
    room = BUDGET.removal_budget(LARGE)
    for n in range(1, 2 * MOST_RECENT + 7):
        model = model.forget(rows.take(slice(n - 1, n)))
        # Solved as far as the budget asks for, and no further.
        assert model.answer.draft.residual is not None
        left = np.linalg.norm(model.answer.draft.residual)
        assert (
            0.0
            < left
            <= SOLVER_SHARE * room * strong_convexity(Rounding(model.answer.state))
        )
        if n % 13 == 0:
            rest = rows.without(np.arange(n))
            target = minimise(objective, rest).theta
            error = np.linalg.norm(model.answer.draft.theta - target)
            assert error <= model.answer.radius.value <= room
            fresh = residual(
                model.answer.state, replace(model.answer.draft, residual=None)
            )
            np.testing.assert_allclose(
                model.answer.draft.residual, fresh, rtol=0.0, atol=1e-15
            )


def test_what_a_tight_budget_cannot_spare_is_solved() -> None:
    objective, rows = _wide()
    removed = rows.take(np.arange(20))
    exact = PrivateModel.fit(objective, rows, mechanism=Newton(), budget=BUDGET)
    terms = replace(exact.terms, smallest_radii=True)
    best = replace(exact, terms=terms).forget(removed).answer
    # A budget that leaves hardly more than the smallest radius.
    sigma = BUDGET.deviation * best.radius.value / BUDGET.removal_budget(LARGE)
    tight = replace(BUDGET, sigma=1.0001 * sigma)
    model = replace(exact, terms=replace(exact.terms, budget=tight))
    answer = model.forget(removed).answer
    assert answer.draft.residual is None
    assert answer.fits(tight)
    assert answer.radius.value == pytest.approx(best.radius.value, rel=1e-9)


def test_an_answer_that_does_not_fit_is_polished_then_retrained() -> None:
    rows = _rows(PLAIN)
    seen = set()
    for sigma in (5.0, 0.5, 0.05, 2e-3, 1e-6):
        budget = Budget(sigma=sigma, allow_seeded=True)
        model = PrivateModel.fit(PLAIN, rows, mechanism=Jackknife(), budget=budget)
        gone = np.arange(60)
        model = model.forget(rows.take(gone), remaining=rows.without(gone))
        assert model.answer.fits(model.budget)
        seen.add(model.answer.decisions[0])
        _, public, record = model.release(_noise(budget))
        assert verify(public.certificate, record).valid
    polished = {f"polished {n_steps} times" for n_steps in (1, 2)}
    assert seen == {"accepted", "accepted on rows", "retrained"} | polished


def test_without_rows_the_budget_can_be_exhausted() -> None:
    budget = Budget(sigma=0.02, allow_seeded=True)
    rows = _rows(PLAIN)
    model = PrivateModel.fit(PLAIN, rows, mechanism=Newton(), budget=budget)
    with pytest.raises(CapacityExceeded) as refusal:
        for i in range(150):
            model = model.forget(rows.take(np.array([i])))
            model.release(_noise(budget))
    assert 3 < i < 149
    assert not any(character.isdigit() for character in str(refusal.value))
    remaining = rows.without(np.arange(i + 2))
    assert model.forget(rows.take(np.array([i + 1])), remaining=remaining).answer.fits(
        model.forget(rows.take(np.array([i + 1])), remaining=remaining).budget
    )


def test_the_same_state_has_one_release() -> None:
    rows = _rows(PLAIN)
    model = PrivateModel.fit(PLAIN, rows, budget=BUDGET)
    noise = _noise()
    model, first, record = model.release(noise)
    again = model.release(noise)
    assert again[1] is first and again[2] is record
    assert model.forget(rows.take(slice(0, 0))).released is not None
    later = model.forget(rows.take(np.array([0])))
    _, second, _ = later.release(noise)
    assert second is not first
    assert not np.array_equal(first.theta, second.theta)


def test_a_schedule_ends() -> None:
    budget = Budget(sigma=0.5, releases=2, allow_seeded=True)
    rows, noise = _rows(PLAIN), _noise(budget)
    model, _, _ = PrivateModel.fit(PLAIN, rows, budget=budget).release(noise)
    model = model.forget(rows.take(np.array([0])))
    model, public, _ = model.release(noise)
    assert public.certificate.claim == "all releases jointly"
    assert public.certificate.n_releases == 2
    model = model.forget(rows.take(np.array([1])))
    with pytest.raises(ScheduleExhausted):
        model.release(noise)


def test_seeded_noise_certifies_only_when_allowed() -> None:
    budget = Budget(sigma=0.5)
    _, public, _ = PrivateModel.fit(PLAIN, _rows(PLAIN), budget=budget).release(
        _noise(budget)
    )
    assert public.certificate.status == "no promise"
    assert public.certificate.noise_source == "seeded"


def test_without_a_budget_nothing_is_promised() -> None:
    model = PrivateModel.fit(PLAIN, _rows(PLAIN))
    model, public, _ = model.release()
    assert public.certificate.status == "no promise"
    assert public.certificate.epsilon is None
    assert np.array_equal(public.theta, model.answer.draft.theta)
    with pytest.raises(InvalidInput, match="noise and budget go together"):
        PrivateModel.fit(PLAIN, _rows(PLAIN)).release(_noise())
    with pytest.raises(InvalidInput, match="noise and budget go together"):
        PrivateModel.fit(PLAIN, _rows(PLAIN), budget=BUDGET).release()


def test_a_fit_that_cannot_be_certified_fails() -> None:
    # Tau is below what rounding allows.
    objective = Objective(SquaredHinge(), L2(), 0.05, intercept=True)
    rows = objective.rows(*labelled("logistic", np.random.default_rng(0), 300))
    with pytest.raises(NotCertifiable, match="penalise the intercept"):
        PrivateModel.fit(objective, rows, budget=Budget(sigma=1e-13))
    assert PrivateModel.fit(objective, rows, budget=BUDGET).budget is BUDGET
    assert PrivateModel.fit(objective, rows).budget is None


@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("penalty", [L2(), L1()], ids=repr)
def test_reanchoring_forgets_the_old_sums(penalty: L1 | L2, scaling: Scaling) -> None:
    objective = Objective(HalfSquared(), penalty, 0.05, ridge=0.05, scaling=scaling)
    rows = _rows(objective)
    model = PrivateModel.fit(objective, rows)
    first = np.arange(20)
    model = model.forget(rows.take(first))
    moved = model.reanchor(rows.without(first))
    assert moved.answer.state.anchor_weight == 280.0
    assert np.allclose(moved.answer.draft.theta, model.answer.draft.theta, atol=1e-9)
    # Both give the same answer to the next request.
    second = np.arange(20, 25)
    ours = moved.forget(rows.take(second)).answer.draft.theta
    theirs = model.forget(rows.take(second)).answer.draft.theta
    assert np.allclose(ours, theirs, atol=1e-9)


def test_reanchoring_does_not_let_the_objective_drift() -> None:
    # Under "sum" alpha W is fixed: a heavy row that left, and many new anchors, must
    # not change that by more than the radius allows.
    objective = Objective(Logistic(), L2(), 30.0 / 1e8, scaling="sum")
    X, y = labelled("logistic", np.random.default_rng(4), 60)
    weight = np.ones(60)
    weight[0] = 1e8 + 0.3
    rows = objective.rows(X, y, weight)
    remaining = rows.without(np.array([0]))
    model = PrivateModel.fit(objective, rows).forget(rows.take(np.array([0])))
    for _ in range(6):
        model = model.reanchor(remaining)
    kept = remaining.total_weight / rows.total_weight
    oracle = PrivateModel.fit(objective.after(kept), remaining)
    distance = np.linalg.norm(model.answer.draft.theta - oracle.answer.draft.theta)
    assert distance <= model.answer.radius.value + oracle.answer.radius.value


def replay(model: PrivateModel, requests: Iterable[tuple[Rows, Rows]]) -> PrivateModel:
    """Return the model after these requests, one after another."""
    for removed, remaining in requests:
        model = model.forget(removed, remaining=remaining)
    return model


def test_an_auditor_with_the_data_recomputes_the_radius() -> None:
    rows = _rows(PLAIN)
    budget = Budget(sigma=0.02, allow_seeded=True)
    batches = [np.arange(k, k + 5) for k in range(0, 60, 5)]
    requests = [
        (rows.take(batch), rows.without(np.arange(batch[-1] + 1))) for batch in batches
    ]
    model = replay(PrivateModel.fit(PLAIN, rows, budget=budget), requests)
    _, public, record = model.release(_noise(budget))
    again = replay(PrivateModel.fit(PLAIN, rows, budget=budget), requests)
    assert verify(public.certificate, record, radius=again.answer.radius.value).valid
    understated = replace(record, radius=0.5 * again.answer.radius.value)
    certificate = replace(public.certificate, commitment=understated.commitment())
    assert verify(certificate, understated).valid  # the record alone cannot tell
    assert not verify(certificate, understated, radius=again.answer.radius.value).valid


def test_a_promised_row_norm_is_kept_or_refused() -> None:
    rows = _rows(PLAIN)
    longest = float(rows.norms().max())
    with pytest.raises(InvalidInput, match="longer than the budget"):
        PrivateModel.fit(PLAIN, rows, budget=Budget(sigma=0.5, row_norm=0.9 * longest))
    budget = Budget(sigma=0.5, row_norm=2.0 * longest, allow_seeded=True)
    _, public, _ = PrivateModel.fit(PLAIN, rows, budget=budget).release(_noise(budget))
    assert public.certificate.row_norm == "declared"


def test_a_failed_request_changes_nothing() -> None:
    rows = _rows(PLAIN)
    model = PrivateModel.fit(PLAIN, rows, budget=BUDGET)
    before = model.answer.draft.theta.copy()
    with pytest.raises(ExpungeError):
        model.forget(rows)
    with pytest.raises(ExpungeError):  # rows that are not the remaining ones
        tight = PrivateModel.fit(
            PLAIN,
            rows,
            mechanism=Jackknife(),
            budget=Budget(sigma=1e-4, allow_seeded=True),
        )
        tight.forget(rows.take(np.arange(50)), remaining=rows)
    assert np.array_equal(model.answer.draft.theta, before)
    assert len(model.release(_noise())[1].theta) == 7


def _softmax_release() -> tuple[PrivateModel, list[object]]:
    """Return a model after a removal and everything public about it."""
    objective = Objective(Multinomial(3), L2(), 0.05)
    X, y = labelled("multinomial", np.random.default_rng(3), 200)
    rows = objective.rows(X, y)
    model = PrivateModel.fit(
        objective, rows, budget=Budget(sigma=1.0, allow_seeded=True)
    )
    model = model.forget(rows.take(np.arange(3)), remaining=rows.without(np.arange(3)))
    model, public, _ = model.release(SeededNoise(1.0, 2.0**-27, 0))
    return model, [public, public.certificate, public.certificate.to_json()]


def _private_figures(model: PrivateModel) -> list[str]:
    """Return the figures that depend on the removed rows, as text."""
    arrays = [
        model.answer.draft.theta,
        model.answer.state.sums.gradient,
        model.answer.state.anchor,
    ]
    numbers = [model.answer.radius.value, model.seconds, *np.concatenate(arrays)]
    return [f"{abs(number):.5g}"[:-1] for number in numbers]


def test_nothing_public_shows_a_private_figure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, public = _softmax_release()
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("expunge").info("%r %r", model, public)
    try:
        raise RuntimeError(
            model, model.answer.state, model.answer.draft, model.answer.radius
        )
    except RuntimeError as error:
        told = repr(error)
    shown = " ".join([caplog.text, told, *map(repr, public), *map(str, public)])
    for figure in _private_figures(model):
        assert figure not in shown
    for word in ("radius_kind", "measured-local", "decisions", "accepted", "timings"):
        assert word not in shown
    # The search can find something: a planted figure is caught.
    planted = f"log: radius {model.answer.radius.value!r}"
    assert any(figure in planted for figure in _private_figures(model))


def test_private_values_cannot_be_pickled_or_copied() -> None:
    model, public = _softmax_release()
    private = (
        model,
        model.answer.state,
        model.answer.draft,
        model.answer.radius,
    )
    for value in private:
        for attempt in (pickle.dumps, copy.deepcopy, copy.copy):
            with pytest.raises(TypeError, match="private and noise-free"):
                attempt(value)
    # A release can be copied, and holds nothing else.
    data = pickle.dumps(public[0])
    for field in ("draft", "radius", "gradient", "anchor"):
        assert field.encode() not in data.replace(b"radius_budget", b"").replace(
            b"no promise", b""
        )
    assert model.answer.draft.theta.tobytes() not in data


def test_certificates_do_not_depend_on_who_is_removed() -> None:
    # The public texts do not depend on who is removed, but for salt and noise.
    rows = _rows(PLAIN)
    model = PrivateModel.fit(PLAIN, rows, budget=BUDGET)
    worst = int(np.argmax(rows.norms()))
    papers = []
    for victim in (0, worst):
        gone = np.array([victim])
        later = model.forget(rows.take(gone), remaining=rows.without(gone))
        papers.append(later.release(_noise())[1].certificate)
    for field in fields(papers[0]):
        if field.name != "commitment":
            values = [getattr(certificate, field.name) for certificate in papers]
            assert values[0] == values[1], field.name
