# SPDX-License-Identifier: Apache-2.0
"""Removal without matrices: its radii, its rule, and what it keeps and reads."""

from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from expunge import (
    L1,
    L2,
    Budget,
    ElasticNet,
    GroupLasso,
    HalfSquared,
    LogisticRegression,
    MatrixFree,
    Multinomial,
    Newton,
    NuclearNorm,
    Objective,
    OneVsRest,
    Rows,
    SoftmaxRegression,
    TunedClassifier,
    load,
    summarise,
)
from expunge.core.arrays import UNIT_ROUNDOFF, Index, norm
from expunge.core.losses import Huber, Logistic, Loss
from expunge.core.measurement import measure
from expunge.core.objective import add_quadratic
from expunge.core.penalties import Penalty
from expunge.core.solver import Solution, minimise, minimise_wide
from expunge.core.sums import gram_bound, loss_hessian
from expunge.exceptions import InvalidInput, NotCertifiable, NotPositiveDefinite
from expunge.linear_model.base import private_model
from expunge.private_model import answers
from expunge.private_model.answers import Answer, retrain_answer
from expunge.private_model.model import PrivateModel
from expunge.private_model.training_rows import TrainingRows
from expunge.promise.floor import intercept_form
from expunge.promise.radius import Radii
from expunge.promise.rounding import Rounding
from expunge.removal import matrix_free, state_size
from expunge.removal.matrix_free import (
    MatrixFreeCache,
    anchor_measured,
    choose_mechanism,
)
from expunge.selection.fold_chooser import FoldChooser
from tests.instances import LOSSES, labelled

FREE = ("logistic", "multinomial", "one_vs_rest", "half_squared", "multi_output")
PENALTIES: tuple[Penalty, ...] = (
    L2(),
    L1(),
    ElasticNet(0.4),
    GroupLasso([0, 0, 1, 1, 2, 2]),
    NuclearNorm(),
)


def _model(
    name: str, *, penalty: Penalty | None = None, sigma: float = 0.1, seed: int = 0
) -> tuple[PrivateModel, Rows]:
    rng = np.random.default_rng(seed)
    X, y = labelled(name, rng, 120)
    objective = Objective(
        LOSSES[name][0],
        L2() if penalty is None else penalty,
        alpha=10.0 ** rng.uniform(-3, -1),
        ridge=0.0 if penalty is None or penalty.smooth else 0.01,
        scaling="sum" if seed % 2 else "mean",
        intercept=seed % 3 > 0,
    )
    rows = objective.rows(X, y, rng.integers(1, 4, size=120))
    budget = Budget(sigma=sigma)
    return PrivateModel.fit(
        objective, rows, mechanism=MatrixFree(), budget=budget
    ), rows


def _forget(model: PrivateModel, rows: Rows, gone: Index) -> PrivateModel:
    return model.forget(rows.take(gone), remaining=rows.without(gone))


@pytest.mark.parametrize("sigma", [0.003, 0.3, 30.0])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", FREE)
def test_no_radius_is_below_the_true_error(name: str, seed: int, sigma: float) -> None:
    outputs = LOSSES[name][0].outputs
    for penalty in PENALTIES:
        if isinstance(penalty, NuclearNorm) and outputs == 1:
            continue
        model, rows = _model(name, penalty=penalty, sigma=sigma, seed=seed)
        gone = np.arange(0)
        for place in (5, 17, 60):
            gone = np.append(gone, place)
            rest = rows.without(gone)
            model = model.forget(rows.take(np.array([place])), remaining=rest)
            objective = model.terms.objective_for(rest)
            answer = model.answer
            target = minimise(objective, rest, start=answer.draft.theta).theta
            error = norm(answer.draft.theta - target)
            assert error <= answer.radius.value + 1e-12
            assert answer.fits(model.budget)


@pytest.mark.parametrize("seed", range(6))
def test_passes_with_a_vector_bound_the_largest_eigenvalue(seed: int) -> None:
    """Of sparse rows, signed and weighted; and more rows have no smaller bound."""
    rng = np.random.default_rng(seed)
    n, d = 300, 80
    X = np.where(rng.random((n, d)) < 1.0 / (1 + np.arange(d)), rng.normal(size=d), 0.0)
    X[:, -1] = 1.0
    rows = Rows(sparse.csr_array(X), np.zeros(n), rng.exponential(size=n))
    free = seed % 2 == 0
    some = X[:, : d - free]
    largest = float(np.linalg.eigvalsh((some.T * rows.weight) @ some)[-1])
    sizes = float(np.linalg.eigvalsh((abs(some).T * rows.weight) @ abs(some))[-1])
    bound = gram_bound(rows, free=free)
    assert largest <= sizes <= bound <= 1.5 * sizes
    assert bound < 0.8 * float(rows.weight @ np.sum(X**2, axis=1))
    before = 0.0
    for end in (1, 20, 150, n):
        part = gram_bound(rows.take(np.arange(end)), free=free)
        assert before <= part * (1.0 + 1e-12)
        before = part


@pytest.mark.parametrize("name", ["logistic", "multinomial", "one_vs_rest"])
def test_the_form_is_below_the_hessian(name: str, rng: np.random.Generator) -> None:
    model, rows = _model(name, seed=1)
    gone = np.arange(10)
    model = _forget(model, rows, gone)
    state, loss = model.answer.state, LOSSES[name][0]
    rest = rows.without(gone)
    hessian = loss_hessian(loss, rest, theta=state.anchor)
    H = add_quadratic(state.objective, hessian, scale=state.penalty_weight)
    form = intercept_form(Rounding(state))
    assert form is not None
    floor = form.smallest
    smallest = float(np.linalg.eigvalsh(H.dense())[0])
    assert 0.0 < floor <= smallest
    for _ in range(50):
        r = rng.normal(size=state.anchor.size)
        true = float(np.sqrt(r @ np.linalg.solve(H.dense(), r)))
        bound = form.dual_norm(r)
        assert true <= bound <= 20.0 * true
        # Also where squares are no float.
        assert form.dual_norm(1e-200 * r) == pytest.approx(1e-200 * bound, rel=1e-9)
    E = form.longest_row(6.0)
    inverse = np.linalg.inv(H.dense())
    for x in rest.dense()[np.linalg.norm(rest.dense(), axis=1) <= 6.0]:
        row = np.kron(x[:, None], np.eye(loss.outputs))
        assert np.linalg.eigvalsh(row.T @ inverse @ row)[-1] <= E * E


def test_a_look_that_suffices_reads_no_row() -> None:
    model, rows = _model("multinomial", sigma=30.0)
    reads = []

    def remaining() -> Rows:
        reads.append(1)
        return rows.without(np.array([3]))

    after = model.forget(rows.take(np.array([3])), remaining=remaining)
    assert after.answer.decisions == ("accepted",) and not reads
    assert np.array_equal(after.answer.draft.theta, model.answer.draft.theta)
    tight, rows = _model("multinomial", sigma=1e-4)
    after = tight.forget(rows.take(np.array([3])), remaining=remaining)
    assert after.answer.decisions[0].startswith("polished") and len(reads) == 1


def test_the_gradient_stays_that_of_the_remaining_rows() -> None:
    model, rows = _model("one_vs_rest", sigma=3.0, seed=2)
    for place in range(40):
        gone = np.arange(place + 1)
        rest = rows.without(gone)
        model = model.forget(rows.take(np.array([place])), remaining=rest)
    state = model.answer.state
    objective = state.objective.after(state.kept)
    hand = MatrixFree().init(summarise(objective, rest, theta=state.anchor))
    ours, theirs = state.sums, hand.sums
    np.testing.assert_allclose(ours.gradient, theirs.gradient, atol=1e-11)
    assert ours.curvature is not None and theirs.curvature is not None
    np.testing.assert_allclose(ours.curvature, theirs.curvature, atol=1e-11)
    assert ours.intercept_columns is not None and theirs.intercept_columns is not None
    np.testing.assert_allclose(
        ours.intercept_columns, theirs.intercept_columns, atol=1e-11
    )


def test_a_state_is_as_large_as_the_model() -> None:
    for d in (50, 100, 200):
        rng = np.random.default_rng(0)
        objective = Objective(Multinomial(5), L2(), 0.1)
        rows = objective.rows(rng.normal(size=(60, d)), rng.integers(0, 5, size=60))
        model = PrivateModel.fit(objective, rows, mechanism=MatrixFree())
        assert state_size(model.answer.state) <= 5 * 5 * d + 25


def _shape(
    n: int, d: int, loss: Loss, *, penalty: Penalty | None = None, dense: bool = True
) -> tuple[Objective, Rows]:
    """Return rows of this shape without the memory that they would take."""
    objective = Objective(loss, L2() if penalty is None else penalty, 0.1)
    X = sparse.csr_array((n, d))
    if dense:
        view = np.lib.stride_tricks.as_strided(np.zeros(1), (n, d), (0, 0))
        return objective, Rows(view, np.zeros(n), np.ones(n))
    return objective, Rows(X, np.zeros(n), np.ones(n))


@pytest.mark.parametrize(
    ("n", "d", "loss", "dense", "newton"),
    [
        (20_000, 1_024, Logistic(), True, True),
        (20_000, 1_025, Logistic(), True, False),
        (64 * 1_025, 1_025, Logistic(), True, True),
        (64 * 1_025, 1_025, Logistic(), False, False),
        (10**6, 4_097, Logistic(), True, False),
        (20_000, 384, Multinomial(10), True, False),
        (20_000, 102, Multinomial(10), True, True),
        (20_000, 384, OneVsRest(100), True, True),
        (20_000, 768, OneVsRest(20), True, True),
        (20_000, 768, OneVsRest(40), True, False),
        (20_000, 768, HalfSquared(40), True, False),
        (100_000, 50_000, Logistic(), False, False),
    ],
)
def test_the_rule_is_as_stated(
    n: int, d: int, loss: Loss, dense: bool, newton: bool
) -> None:
    objective, rows = _shape(n, d, loss, dense=dense)
    expected = Newton() if newton else MatrixFree()
    assert choose_mechanism(objective, rows) == expected


def test_the_rule_keeps_to_matrices_where_nothing_else_certifies() -> None:
    objective, rows = _shape(100, 2_000, Logistic(), penalty=L1())
    assert choose_mechanism(objective, rows) == Newton()
    flat = Objective(Huber(), L2(), 0.1, intercept=True)
    assert choose_mechanism(flat, rows) == Newton()


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> tuple[NDArray[np.float64], Index, Index]:
    """Let ten columns count as wide; return rows, labels and people."""
    monkeypatch.setattr(matrix_free, "SMALL_BLOCK", 10)
    monkeypatch.setattr(matrix_free, "LONG", 10**9)
    rng = np.random.default_rng(4)
    X = rng.normal(size=(150, 12)) * (rng.random((150, 12)) < 0.5)
    return X, rng.integers(0, 3, size=150), np.arange(150) // 2


def test_estimators_go_without_matrices(
    wide: tuple[NDArray[np.float64], Index, Index], tmp_path: Path
) -> None:
    X, y, people = wide
    model = SoftmaxRegression(alpha=0.01, budget=Budget(sigma=0.2))
    model.fit(sparse.csr_array(X), y, subjects=people)
    assert model.certificate_.mechanism == "matrix-free (auto)"
    model.forget([3])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    private = private_model(again)
    assert isinstance(cache := private.answer.state.cache, MatrixFreeCache)
    assert cache.short_cut is None
    assert isinstance(private.training_rows, TrainingRows)
    assert sparse.issparse(private.training_rows.rows.X)
    for one in (model, again):
        one.forget([9, 12])
        answer, objective = private_model(one).answer, private_model(one).objective
        left = ~np.isin(people, [3, 9, 12])
        target = minimise(objective, objective.rows(X[left], y[left])).theta
        assert norm(answer.draft.theta - target) <= answer.radius.value
        assert one.certificate_.mechanism == "matrix-free (auto)"


def test_tuning_goes_without_matrices(
    wide: tuple[NDArray[np.float64], Index, Index],
) -> None:
    X, y, people = wide
    model = TunedClassifier(
        alphas=[1.0, 0.1, 0.01], folds=3, fold_key=b"k", budget=Budget(sigma=0.2)
    )
    model.fit(X, y > 0, subjects=people)
    assert model.certificate_.mechanism == "matrix-free (auto)"
    model.forget([3, 5])
    left = ~np.isin(people, [3, 5])
    again = TunedClassifier(
        alphas=[1.0, 0.1, 0.01], folds=3, fold_key=b"k", budget=Budget(sigma=0.2)
    ).fit(X[left], y[left] > 0, subjects=people[left])
    assert model.alpha_ == again.alpha_
    np.testing.assert_allclose(model.curve_.errors, again.curve_.errors, atol=1e-6)


def test_how_a_choice_is_made_is_settled_at_the_fit(
    wide: tuple[NDArray[np.float64], Index, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A rule applied again could flip with the number of rows that are left.
    X, y, people = wide
    model = TunedClassifier(
        alphas=[0.1, 0.01], folds=3, method="recomputed", budget=Budget(sigma=0.2)
    )
    model.fit(X, y > 0, subjects=people)
    before = private_model(model).chooser
    monkeypatch.setattr(matrix_free, "SMALL_BLOCK", 1024)
    model.forget([3])
    after = private_model(model).chooser
    assert isinstance(before, FoldChooser) and isinstance(after, FoldChooser)
    assert type(after.models) is type(before.models)
    assert model.certificate_.mechanism == "matrix-free (auto)"


def test_retraining_starts_from_nothing_where_the_last_answer_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A fit to the remaining rows has no last answer, and is not refused.
    model, rows = _model("logistic", sigma=1e-3)
    starts, solve = [], answers.solve_wide

    def lost(*given: Any, start: Any, **options: Any) -> Answer:
        starts.append(start is None)
        if start is not None:
            raise NotPositiveDefinite("the start leads nowhere")
        return solve(*given, start=start, **options)

    monkeypatch.setattr(answers, "solve_wide", lost)
    rest, theta = rows.without(np.array([1])), model.answer.draft.theta
    found = retrain_answer(model.terms, rest, start=theta)
    assert starts == [False, True] and found.fits(model.budget)


@pytest.mark.parametrize("seed", [5, 21, 76])
def test_without_a_budget_rows_that_dwarf_others_do_not_lead_astray(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = 10.0 * rng.standard_normal((16, 2)), rng.integers(0, 2, 16)
    X[12:] *= 1e4  # at the last answer they leave no curvature
    y[:2] = 0, 1
    who = [f"p{i}" for i in range(16)]
    model = LogisticRegression(alpha=1.0, mechanism="matrix-free", random_state=0)
    fresh = LogisticRegression(alpha=1.0, mechanism="newton", random_state=0)

    model.fit(X[:12], y[:12], who[:12]).add(X[12:], y[12:], subjects=who[12:])
    fresh.fit(X, y)

    assert np.allclose(model.coef_, fresh.coef_, rtol=0.0, atol=1e-9)
    assert np.allclose(model.intercept_, fresh.intercept_, rtol=0.0, atol=1e-9)


def test_rows_that_are_not_kept_call_for_matrices() -> None:
    X = sparse.csr_array(np.eye(20, 30_000))
    model = LogisticRegression(keep_data=False)
    with pytest.raises(InvalidInput, match=r"keep_data=False with 30001 .* 7\.2 GB"):
        model.fit(X, np.arange(20) % 2)
    narrow = LogisticRegression(keep_data=False, mechanism="matrix-free")
    with pytest.raises(InvalidInput, match="needs the remaining rows"):
        narrow.fit(X[:, :3], np.arange(20) % 2)


def test_a_penalty_without_curvature_cannot_be_certified(
    wide: tuple[NDArray[np.float64], Index, Index],
) -> None:
    X, y, _ = wide
    model = LogisticRegression(
        l1_ratio=1.0, mechanism="matrix-free", budget=Budget(sigma=0.2)
    )
    with pytest.raises(InvalidInput, match=r"set ridge=0\.001"):
        model.fit(X, y > 0)
    model.set_params(ridge=0.001).fit(X, y > 0)


def _sparse_rows(rng: np.random.Generator, d: int) -> tuple[Any, Any]:
    """Return rows of 30 entries among d columns, one of 37 and the first of 50."""
    lengths = np.full(400, 30)
    lengths[:2] = 50, 37
    columns = [np.sort(rng.choice(d, size=m, replace=False)) for m in lengths]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    entries = rng.normal(size=ends[-1])
    X: Any = sparse.csr_array((entries, np.concatenate(columns), ends), shape=(400, d))
    return X, (rng.random(400) < 0.5).astype(int)


def test_rounding_counts_the_entries_of_the_longest_row(
    rng: np.random.Generator,
) -> None:
    X, y = _sparse_rows(rng, 5000)
    weight = np.ones(400)
    weight[0] = 0.0  # the longest is in no sum
    objective = Objective(Logistic(), L2(), alpha=1e-2)
    rows = objective.rows(X, np.where(y, 1, -1), weight)
    model = PrivateModel.fit(objective, rows, mechanism=MatrixFree())
    state, theta = model.answer.state, rng.normal(size=5000)
    assert state.magnitude.n_entries == 37
    error = Rounding(state).predictor(theta, summed=True)
    assert error == pytest.approx(39 / 5002 * Rounding(state).predictor(theta))
    # Kept sparse or dense, what rounds is the same.
    exact = rows.dense().astype(np.longdouble) @ theta.astype(np.longdouble)
    for found in (rows.X @ theta, rows.dense() @ theta):
        off = np.abs(found - exact)[1:]
        assert (off <= error * rows.norms()[1:]).all() and off.any()
    moved = _forget(model, rows, np.array([3, 4])).answer.state
    assert moved.magnitude.n_entries == 37


def test_sparse_rows_are_certified_where_little_noise_is_asked_for(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = _sparse_rows(rng, 50_000)
    model = LogisticRegression(
        alpha=1e-5, fit_intercept=False, budget=Budget(sigma=1e-3)
    )
    model.fit(X, y)
    assert model.certificate_.status == "certified"
    # By as many roundings as there are columns it could not be.
    monkeypatch.setattr("expunge.removal.matrix_free.most_entries", lambda rows: 50_000)
    with pytest.raises(NotCertifiable):
        model.fit(X, y)


def test_sparse_rows_of_many_classes_are_certified_at_the_default_noise(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = _sparse_rows(rng, 2**16)
    y = rng.integers(0, 8, size=400)
    model = SoftmaxRegression(alpha=3e-4, budget=Budget())
    model.fit(X / np.sqrt(30.0), y)
    state = private_model(model).answer.state
    assert Rounding(state).count <= state.sums.roundings + 2 * 8 * 51 + 16
    assert model.certificate_.status == "certified"
    # By as many roundings as there are parameters it could not be.
    monkeypatch.setattr("expunge.removal.matrix_free.most_entries", lambda rows: 2**16)
    with pytest.raises(NotCertifiable):
        model.fit(X / np.sqrt(30.0), y)


def test_each_row_of_a_column_may_round_the_gradient() -> None:
    """Each addition to the larger half of a sum loses nearly half of a last bit."""
    n = 2**15
    entries: Any = sparse.csr_array(np.zeros((n, 1)))
    entries.resize((n, n))
    objective = Objective(HalfSquared(), L2(), alpha=1.0, intercept=True)
    rows = objective.rows(entries, np.full(n, -1.0 - 0.96 * 2.0**-39))
    at = measure(objective, rows, theta=np.zeros(n + 1))
    state = anchor_measured(objective, rows, at=at, before=None)
    assert state.magnitude.n_entries <= 2 and rows.n_additions > n
    off = abs(float(state.sums.gradient[-1]) + n * float(rows.y[0]))
    of_few = 2.0 * UNIT_ROUNDOFF * (2 * state.magnitude.n_entries + 32)
    draft = MatrixFree().answer_at_anchor(state)
    assert of_few * state.magnitude.slope < off
    assert off <= Rounding(state).gradient(draft, step=0.0)


def test_the_length_of_a_mean_row_counts_its_columns() -> None:
    """Squares of small entries are lost beside that of a large one."""
    d = 2**16
    objective = Objective(OneVsRest(3), L2(), alpha=1.0, intercept=True)
    rows = objective.rows(sparse.csr_array((3, d)), np.arange(3.0))
    at = measure(objective, rows, theta=np.zeros(3 * (d + 1)))
    state = anchor_measured(objective, rows, at=at, before=None)
    columns = np.full((d + 1, 3), 1e-8)
    columns[0], columns[-1] = 1.0, 1.0
    sums = state.sums.replace(intercept_columns=columns)
    form = intercept_form(Rounding(state.replace(sums=sums)))
    assert form is not None
    squares = Fraction(1) + (d - 1) * Fraction(1e-8) ** 2
    assert Fraction(float(form.coupling.min())) ** 2 >= squares


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
@pytest.mark.parametrize("intercept", [True, False])
def test_a_step_aims_at_what_leaves_the_radius_allowed(
    loss: Loss, intercept: bool, rng: np.random.Generator
) -> None:
    X = rng.normal(size=(300, 4))
    y = rng.integers(0, 3, size=300)
    labels = y if loss.outputs > 1 else np.where(y > 0, 1.0, -1.0)
    objective = Objective(loss, L2(), alpha=0.1, intercept=intercept)
    rows = objective.rows(X, labels)
    theta = minimise(objective, rows).theta + 1e-2
    at = measure(objective, rows, theta=theta)
    state = anchor_measured(objective, rows, at=at, before=None)
    draft = MatrixFree().answer_at_anchor(state)
    assert draft.measured is not None
    for allowed in (1e-1, 1e-3, 1e-6):
        share = Radii(state, draft).enough(allowed)
        nearer = replace(draft, measured=share * draft.measured)
        assert Radii(state, nearer).best().value == pytest.approx(allowed, rel=1e-3)
    # Rounding alone is more.
    assert Radii(state, draft).enough(1e-15) == 0.0


def test_a_look_takes_a_pass_or_two_and_not_a_fit(rng: np.random.Generator) -> None:
    # Noise as small as the default's: every answer looks at the rows, also where people
    # leave whose rows hardly weigh anything.
    X, y = rng.normal(size=(400, 6)), rng.integers(0, 3, size=400)
    weight = np.where(np.arange(400) < 3, 1e-9, 1.0)
    model = SoftmaxRegression(alpha=0.1, budget=Budget(), mechanism="matrix-free")
    model.fit(X, y, sample_weight=weight, subjects=range(400))
    for person in range(6):
        model.forget([person])
        assert model.record_.decisions == ("polished 1 times",)
        assert model.certificate_.status == "certified"


def test_a_fit_aims_below_the_gradient_it_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goals: list[float] = []

    def overshoot(objective: Objective, rows: Rows, **options: Any) -> Solution:
        """Stop far below the first goal, and not far enough for tau."""
        goals.append(options["goal"])
        if len(goals) > 1:
            return minimise_wide(objective, rows, **options)
        found = minimise_wide(objective, rows, **(options | {"goal": 1e-12}))
        way = np.ones(2000)
        assert found.at.hessian is not None
        tilt = (found.at.hessian @ way) / len(rows) + objective.alpha * way
        theta = found.at.theta + 4e-11 / norm(tilt) * way
        return replace(found, at=measure(objective, rows, theta=theta))

    monkeypatch.setattr(answers, "minimise_wide", overshoot)
    X, y = _sparse_rows(np.random.default_rng(0), 2000)
    objective = Objective(Logistic(), L2(), alpha=1e-5)
    rows = objective.rows(X, np.where(y, 1, -1))
    budget = Budget(sigma=1e-3)
    model = PrivateModel.fit(objective, rows, mechanism=MatrixFree(), budget=budget)
    assert len(goals) == 2 and goals[1] < 4e-11
    assert model.answer.radius.value <= budget.solver_error(2000)


def test_a_fit_is_solved_however_small_its_gradient(rng: np.random.Generator) -> None:
    """Units of the rows are those of what is solved: no gradient is small by itself."""
    X, y = labelled("logistic", rng, 80)
    found = []
    for unit in (1.0, 1e-12, 1e-20):
        objective = Objective(Logistic(), L2(), alpha=1e-2 * unit**2, intercept=False)
        rows, budget = objective.rows(unit * X, y), Budget(sigma=1e-3 / unit)
        model = PrivateModel.fit(objective, rows, mechanism=MatrixFree(), budget=budget)
        found.append(unit * model.answer.draft.theta)
    assert norm(found[0]) > 1.0
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-4)


@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", FREE)
def test_sizes_are_no_less_than_sums_and_those_of_a_fit(
    name: str, weight: float, rng: np.random.Generator
) -> None:
    """Of states that took in rows, too: longer ones, with steeper slopes."""
    X, y = labelled(name, rng, 60)
    objective = Objective(LOSSES[name][0], L2(), alpha=0.1)
    X = X * 10.0 ** rng.uniform(-1.0, 1.0, size=60)[:, None]
    rows = objective.rows(X, y, np.full(60, weight))
    first, added = rows.take(slice(0, 30)), rows.take(slice(30, None))
    theta = rng.normal(size=rows.n_columns * objective.loss.outputs)

    def fitted(some: Rows) -> Any:
        at = measure(objective, some, theta=theta)
        return anchor_measured(objective, some, at=at, before=None).magnitude

    at = measure(objective, first, theta=theta)
    state = anchor_measured(objective, first, at=at, before=None)
    ours = MatrixFree().update(state, added=added).magnitude
    least = summarise(objective, rows, theta=theta).magnitude
    for field in fields(ours):
        own, fit, exact = (
            getattr(sizes, field.name) for sizes in (ours, fitted(rows), least)
        )
        assert own >= (1.0 - 1e-13) * fit, field.name
        # A Hessian is as large here as its norm may be, of sums as its trace.
        assert field.name == "hessian" or fit >= (1.0 - 1e-12) * exact, field.name
