# SPDX-License-Identifier: Apache-2.0
"""Rows on a device: sums within the rounding that is paid for, fits and requests."""

import re
import sys
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from benchmarks.gpu import __main__ as benchmark
from expunge import (
    L1,
    L2,
    Budget,
    Logistic,
    MatrixFree,
    Multinomial,
    Newton,
    Objective,
    Rows,
)
from expunge.core import sums
from expunge.core.arrays import UNIT_ROUNDOFF, Vector, norm
from expunge.core.linalg import Symmetric
from expunge.core.measurement import Point, measure
from expunge.core.rows import most_rows
from expunge.core.solver import minimise
from expunge.exceptions import (
    InvalidInput,
    MissingExtra,
    NotPositiveDefinite,
    Unsupported,
)
from expunge.gpu import DeviceRows, to_device
from expunge.gpu import device as devices
from expunge.gpu import rows as device_rows
from expunge.private_model.model import PrivateModel
from expunge.promise.rounding import Rounding
from expunge.removal import Draft, State
from expunge.removal.state import summarise
from tests import gpu_soundness
from tests.instances import LOSSES, labelled

CERTIFIED = ("logistic", "half_squared", "multinomial", "multi_output", "one_vs_rest")


def _problem(
    name: str, device: str, *, n_rows: int = 700, intercept: bool = True
) -> tuple[Objective, Rows, DeviceRows]:
    """Return an objective, and weighted rows in memory and in float32 on a device."""
    rng = np.random.default_rng(5)
    X, y = labelled(name, rng, n_rows)
    narrow = X.astype(np.float32)
    weight = rng.integers(0, 4, size=n_rows)
    objective = Objective(LOSSES[name][0], L2(), alpha=0.02, intercept=intercept)
    there = to_device(objective, narrow, y, sample_weight=weight, device=device)
    return objective, objective.rows(narrow, y, weight), there


def _state(objective: Objective, rows: Any, theta: Vector) -> State:
    state = summarise(objective, rows, theta=theta)
    return state.replace(sums=state.sums.keeping(hessian=True, moment=True))


def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a block in memory have 64 rows and one on a device 128."""
    monkeypatch.setattr("expunge.core.rows.BLOCK_ROWS", 64)
    monkeypatch.setattr(device_rows, "DEVICE_BLOCK_ROWS", 128)


@pytest.mark.parametrize("name", gpu_soundness.OURS)
def test_sums_differ_by_no_more_than_the_rounding_paid_for(
    name: str, device: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _short_blocks(monkeypatch)
    objective, rows, there = _problem(name, device, n_rows=5 * 128 + 1)  # one alone
    theta = rng.normal(size=rows.n_columns * objective.loss.outputs)
    ours, theirs = (_state(objective, source, theta) for source in (rows, there))
    draft = Draft(theta, np.zeros_like(theta))
    slack = sum(Rounding(state).gradient(draft, step=0.0) for state in (ours, theirs))
    assert norm(ours.sums.gradient - theirs.sums.gradient) <= slack
    apart = ours.sums.loss_hessian.dense() - theirs.sums.loss_hessian.dense()
    assert np.linalg.norm(apart, 2) <= Rounding(ours).hessian + Rounding(theirs).hessian
    assert ours.sums.moment is not None and theirs.sums.moment is not None
    near = 4.0 * (Rounding(ours).sums + Rounding(theirs).sums)
    apart = ours.sums.moment.dense() - theirs.sums.moment.dense()
    assert np.linalg.norm(apart, 2) <= near * ours.magnitude.moment
    for one in ("row_norm", "slope", "square_norm", "hessian", "moment"):
        assert getattr(theirs.magnitude, one) == pytest.approx(
            getattr(ours.magnitude, one), rel=near + 1e-13
        )
    assert theirs.magnitude.n_entries == ours.magnitude.n_entries
    assert there.total_weight == pytest.approx(rows.total_weight, rel=near)
    if ours.sums.kinks is not None and theirs.sums.kinks is not None:
        np.testing.assert_allclose(theirs.sums.kinks, ours.sums.kinks, rtol=near)


def _sums(ours: Point, theirs: Point) -> list[tuple[Any, Any]]:
    """Return the sums of two points, side by side."""
    assert ours.seen is not None and theirs.seen is not None
    pairs = zip(ours.seen, theirs.seen, strict=True)
    return [pair for pair in pairs if pair[0] is not None]


@pytest.mark.parametrize("moved", [0.0, 1.0])
@pytest.mark.parametrize("name", gpu_soundness.OURS)
def test_a_measurement_and_its_products_are_the_same_on_a_device(
    name: str, moved: float, device: str, rng: np.random.Generator
) -> None:
    objective, rows, there = _problem(name, device)
    theta = moved * rng.normal(size=rows.n_columns * objective.loss.outputs)
    ours, theirs = (measure(objective, part, theta=theta) for part in (rows, there))
    total = rows.total_weight
    pairs: list[tuple[Any, Any]] = [
        (ours.value, theirs.value),
        (ours.gradient, theirs.gradient),
        *((one / total, other / total) for one, other in _sums(ours, theirs)),
    ]
    for one, found in pairs:
        assert isinstance(found, float | np.ndarray)
        np.testing.assert_allclose(found, one, rtol=1e-11, atol=1e-13)
    assert ours.hessian is not None and theirs.hessian is not None
    v = rng.normal(size=theta.size)
    np.testing.assert_allclose(theirs.hessian @ v, ours.hessian @ v, atol=1e-9)
    np.testing.assert_allclose(
        theirs.hessian.diagonal(), ours.hessian.diagonal(), atol=1e-9
    )


@pytest.mark.parametrize("name", gpu_soundness.OURS)
def test_the_other_passes_are_the_same_on_a_device(
    name: str, device: str, rng: np.random.Generator
) -> None:
    objective, rows, there = _problem(name, device)
    loss = objective.loss
    thetas = rng.normal(size=(3, rows.n_columns * loss.outputs))

    def passes(source: Any) -> list[Any]:
        steepest: list[Any] = []
        if np.isfinite(loss.curvature_bound):  # a parabola is above it
            found = sums.largest_hessian(loss, source, theta=thetas[0])
            steepest.append(found.dense())
        if loss.curvature_jump > 0.0:
            lost, n_lost = sums.hessian_lost(
                loss,
                source,
                anchor=thetas[0],
                theta=thetas[1],
                way=0.1,
                doubts=(1e-14, 1e-14, 0.0),
            )
            steepest += [lost.dense(), n_lost]
        return [
            *steepest,
            sums.slopes_at_each(loss, source, thetas=thetas),
            sums.loss_gradient(loss, source, theta=thetas[0])[0],
            sums.gram(source),
            sums.column_sizes(source),
            sums.largest_norm(source),
            sums.largest_move(loss, source, step=thetas[0]),
            sums.largest_moves(loss, source, steps=thetas),
            sums.slope_scale(loss, source, theta=thetas[0]),
        ]

    for ours, theirs in zip(passes(rows), passes(there), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-11, atol=1e-10)


def test_sums_lose_no_more_than_their_additions(
    device: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_rows, "DEVICE_BLOCK_ROWS", 2048)
    objective = Objective(LOSSES["half_squared"][0], L2(), alpha=1.0, intercept=False)
    X = (rng.normal(size=(50_001, 1)) * 10.0 ** rng.uniform(-6, 6, (50_001, 1))).astype(
        np.float32
    )
    y = rng.integers(-9, 10, size=len(X)).astype(np.float64)
    there = to_device(objective, X, y, device=device)
    # Of float32 and small integers: each product is exact.
    products = (-y * X[:, 0].astype(np.float64)).tolist()
    found = sums.loss_slopes(objective.loss, there, theta=np.zeros(1))[0]
    assert there.n_additions == 2048 + 5
    lost = abs(found - fsum(products))
    assert lost <= there.n_additions * UNIT_ROUNDOFF * fsum(map(abs, products))


@pytest.mark.parametrize("n_columns", [1, 5, 6, 12, 17])
def test_a_product_by_panels_is_the_whole_product(
    n_columns: int, device: str, rng: np.random.Generator
) -> None:
    import torch

    X, scale = rng.normal(size=(90, n_columns)), rng.normal(size=90)
    there = [torch.as_tensor(part, device=device) for part in (X, scale)]
    found = sums.gram_by_panels(*there, panel=6).cpu().numpy()
    expected = X.T @ (X * scale[:, None])
    size = (X**2).T @ np.abs(scale)
    near = 92 * UNIT_ROUNDOFF * np.sqrt(size[:, None] * size)
    assert (np.abs(found - expected) <= 2.0 * near).all()
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("name", gpu_soundness.OURS)
def test_terms_stay_where_the_block_lies(name: str, rng: np.random.Generator) -> None:
    # Tensors of torch's device "meta" hold no numbers and meet no others in memory: a
    # term that would not run on a card fails on them without one.
    torch = pytest.importorskip("torch")
    loss = LOSSES[name][0]
    X, y = labelled(name, rng, 50)
    arrays = (X, loss.labels(y), np.ones(50))
    block = Rows(*(torch.as_tensor(part).to("meta") for part in arrays))
    thetas = rng.normal(size=(3, X.shape[1] * loss.outputs))
    terms = [
        sums.gradient_term(loss, theta=thetas[0]),
        sums.slope_term(loss, theta=thetas[0]),
        sums.overview_term(loss, theta=thetas[0], intercept_columns=True),
        sums.overview_term(
            loss, theta=np.zeros_like(thetas[0]), intercept_columns=False
        ),
        *sums.hessian_terms(loss, X.shape[1], theta=thetas[0]),
    ]
    for term in terms:
        for part in term(block):
            assert (part.device.type, part.dtype) == ("meta", torch.float64)
    if loss.curvature_jump:
        eta = sums.predict(loss, block, theta=thetas[0])
        distance: Any = loss.kink_distance(block.y, eta)
        assert distance.device.type == "meta"


def test_no_block_of_a_gradient_or_a_hessian_is_waited_for(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    _short_blocks(monkeypatch)
    objective, rows, there = _problem("logistic", device)
    theta, n_waits = np.ones(rows.n_columns), list[tuple[int, ...]]()

    def watch(name: str) -> Any:
        real = getattr(torch.Tensor, name)

        def wait(array: Any, *args: Any) -> Any:
            n_waits.append(tuple(array.shape))
            return real(array, *args)

        return wait

    for name in ("__float__", "__bool__", "__array__", "item", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, watch(name))
    sums.loss_gradient(objective.loss, there, theta=theta)
    width = rows.n_columns
    # Of six blocks, the value of the sum and its gradient, once.
    assert set(n_waits) == {(), (width,)} and len(n_waits) <= 4
    n_waits.clear()
    sums.loss_hessian(objective.loss, there, theta=theta)
    assert set(n_waits) == {(width, width)} and len(n_waits) <= 2


def test_wide_matrices_are_factored_on_the_device(
    device: str, rng: np.random.Generator
) -> None:
    import torch

    there, size = devices.DeviceAlgebra(torch.device(device)), devices.SMALLEST
    Z = rng.normal(size=(size + 50, size))
    matrix = Symmetric.from_dense(Z.T @ Z / size)
    factor = there.factor(matrix.lower[0])
    assert factor is not None and factor.flags.f_contiguous
    assert not np.triu(factor, 1).any()
    np.testing.assert_allclose(factor, matrix.cholesky().factors[0], atol=1e-11)
    inverse = there.invert(factor)
    assert inverse is not None and inverse.flags.f_contiguous
    assert not np.triu(inverse, 1).any()
    whole = Symmetric(inverse)
    np.testing.assert_allclose(matrix @ whole.dense(), np.eye(size), atol=1e-7)
    flat = matrix.add_diagonal(np.full(size, -1.0))
    with pytest.raises(NotPositiveDefinite, match="no curvature"):
        there.factor(flat.lower[0])
    small = matrix.submatrix(np.arange(size - 1))
    assert there.factor(small.lower[0]) is None
    assert there.invert(small.lower[0]) is None


def test_a_fit_on_a_device_factors_there_and_a_request_in_memory(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "SMALLEST", 2)
    objective, rows, there = _problem("logistic", device)
    asked: list[str] = []
    for name in ("factor", "invert"):
        real = getattr(devices.DeviceAlgebra, name)

        def spy(self: Any, given: Any, name: str = name, real: Any = real) -> Any:
            asked.append(name)
            return real(self, given)

        monkeypatch.setattr(devices.DeviceAlgebra, name, spy)
    model = PrivateModel.fit(
        objective, there, mechanism=Newton(), budget=Budget(sigma=0.01)
    )
    solution = minimise(objective, rows)
    target = solution.theta
    # Of each step's Hessian, and of the last one, which is inverted. What proves a
    # curvature is factored in memory.
    assert asked == ["factor"] * (solution.n_hessians + 1) + ["invert"]
    assert norm(model.answer.draft.theta - target) <= model.answer.radius.value + 1e-12
    inverse = model.answer.state.preconditioner
    assert inverse is not None
    v = np.ones(rows.n_columns)
    np.testing.assert_allclose(
        inverse @ (model.answer.state.hessian_operator()(v)), v, atol=1e-9
    )
    gone = np.array([3])
    model = model.forget(there.take(gone), remaining=there.without(gone))
    assert model.answer.fits(model.budget)
    assert asked[-1] == "invert"


def test_radii_use_the_additions_of_the_device(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _short_blocks(monkeypatch)
    objective, rows, there = _problem("logistic", device)
    theta = np.zeros(rows.n_columns)
    ours, theirs = (_state(objective, source, theta) for source in (rows, there))
    assert there.n_additions == 128 + 3 and len(there) == 700
    assert rows.n_additions == 64 + 4
    difference = (Rounding(theirs).sums - Rounding(ours).sums) / (2.0 * UNIT_ROUNDOFF)
    assert difference == pytest.approx(131 - 68)


def test_rows_in_memory_add_no_more_often_than_those_on_a_device(device: str) -> None:
    for n_rows, n_columns in ((1, 2), (2049, 3), (40_000, 2), (10, 9000), (5000, 5000)):
        X = np.zeros((1, 1))
        objective = Objective(Logistic(), L2(), alpha=1.0, intercept=False)
        there = to_device(objective, X, np.ones(1), device=device)
        tensor = there._X.expand(n_rows, n_columns)
        wide = DeviceRows(tensor, there._y.expand(n_rows), there._weight.expand(n_rows))
        in_memory = most_rows(n_columns)
        levels = (-(-n_rows // in_memory) - 1).bit_length()
        assert min(n_rows, in_memory) - 1 + levels <= wide.n_additions
        assert wide.block_rows >= in_memory


@pytest.mark.parametrize("mechanism", [Newton(), MatrixFree()], ids=["newton", "free"])
@pytest.mark.parametrize("name", CERTIFIED)
def test_a_fit_and_requests_on_a_device(name: str, mechanism: Any, device: str) -> None:
    objective, rows, there = _problem(name, device)
    model = PrivateModel.fit(
        objective, there, mechanism=mechanism, budget=Budget(sigma=0.01)
    )
    target = minimise(objective, rows).theta
    assert norm(model.answer.draft.theta - target) <= model.answer.radius.value + 1e-12
    for place in (3, 40, 41):
        gone = np.array([place])
        removed, there = there.take(gone), there.without(gone)
        model = model.forget(removed, remaining=there)
        there.erase()
    left = rows.without(np.array([3, 40, 41]))
    assert len(there) == len(left) == model.n_samples - model.n_removed
    target = minimise(model.terms.objective_for(left), left).theta
    assert norm(model.answer.draft.theta - target) <= model.answer.radius.value + 1e-12
    assert model.answer.fits(model.budget)


def test_no_radius_on_a_device_is_below_the_true_error(device: str) -> None:
    verdict = gpu_soundness.Verdict()
    for seed in range(25):
        verdict += gpu_soundness.run_case(seed, device)
    assert verdict.n_judged >= 50
    assert verdict.n_violations == 0


def test_curvatures_stay_on_the_device(device: str) -> None:
    import torch

    objective, rows, there = _problem("multinomial", device)
    at = measure(objective, there, theta=np.zeros(rows.n_columns * 3))
    assert at.hessian is not None
    kept = at.hessian._curvatures
    assert kept is not None
    assert all(isinstance(block.diagonal, torch.Tensor) for block in kept)


def test_what_left_is_overwritten_on_the_device(device: str) -> None:
    _, rows, there = _problem("logistic", device)
    gone = np.array([2, 5])
    np.testing.assert_array_equal(there.take(gone).X, rows.take(gone).X)
    left = there.without(gone)
    left.erase()
    np.testing.assert_array_equal(there.take(gone).X, np.zeros((2, rows.n_columns)))
    np.testing.assert_array_equal(there.take(gone).y, np.zeros(2))
    for bad, said in (([5], "no row"), ([1, 1], "twice"), ([700], "outside")):
        with pytest.raises(InvalidInput, match=said):
            left.without(np.array(bad))
        with pytest.raises(InvalidInput, match=said):
            left.take(np.array(bad))


def test_numbers_that_float32_would_change_are_refused(device: str) -> None:
    objective = Objective(Logistic(), L2(), alpha=0.1)
    X, y = np.array([[0.1], [1.0]]), np.array([1.0, -1.0])
    with pytest.raises(InvalidInput, match="float32 would change"):
        to_device(objective, X, y, device=device, dtype="float32")
    with pytest.raises(InvalidInput, match="float32 would change"):
        to_device(objective, X * 1e45, y, device=device, dtype="float32")
    kept = to_device(objective, X, y, device=device)
    np.testing.assert_array_equal(kept.take(np.arange(2)).X, objective.rows(X, y).X)


def test_bad_rows_are_refused_as_in_memory(device: str) -> None:
    objective = Objective(Logistic(), L2(), alpha=0.1)
    X, y = np.ones((2, 1)), np.array([1.0, -1.0])
    for bad, labels, said in (
        (np.array([[np.nan], [1.0]]), y, "NaN"),
        (X, y[:1], "one label for each"),
        (X, np.array([0.0, 1.0]), "neither -1 nor"),
        (X[:0], y[:0], "at least one"),
    ):
        with pytest.raises(InvalidInput, match=said):
            to_device(objective, bad, labels, device=device)
    with pytest.raises(InvalidInput, match="float16"):
        to_device(objective, X, y, device=device, dtype="float16")  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="sparse"):
        to_device(objective, sparse.csr_array(X), y, device=device)


def test_what_a_device_cannot_do_is_refused(device: str) -> None:
    objective, rows, there = _problem("logistic", device)

    class Foreign(Logistic):
        def slope(self, y: Vector, eta: Vector) -> Vector:
            # What torch says on a card, and not on a processor, where NumPy can read.
            raise TypeError("can't convert cuda:0 device type tensor to numpy.")

    with pytest.raises(Unsupported, match=r"functions of expunge\.core\.arrays"):
        sums.loss_slopes(Foreign(), there, theta=np.zeros(rows.n_columns))
    kinked = replace(objective, penalty=L1(), ridge=0.1)
    with pytest.raises(Unsupported, match="needs rows in memory"):
        PrivateModel.fit(kinked, there, mechanism=MatrixFree())
    fitted = PrivateModel.fit(kinked, there, mechanism=Newton())
    target = minimise(kinked, rows).theta
    assert norm(fitted.answer.draft.theta - target) <= fitted.answer.radius.value


def test_devices_that_no_certificate_covers_are_refused(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    with pytest.raises(InvalidInput, match="not a torch device"):
        devices.require_device("abacus")
    with monkeypatch.context() as patch:
        patch.setenv(devices.EMULATION, "1")
        with pytest.raises(Unsupported, match="shorter numbers"):
            devices.require_device(device)
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(Unsupported, match="finds no CUDA device"):
            devices.require_device("cuda")
    with monkeypatch.context() as patch:
        patch.setattr(devices, "_multiplies_exactly", lambda *_: False)
        with pytest.raises(Unsupported, match="less exactly"):
            devices.require_device(device)
    with pytest.raises(Unsupported, match="cannot compute in float64"):
        devices.require_device("meta")


def test_the_product_tried_first_tells_shorter_numbers(device: str) -> None:
    import torch

    class Shorter:
        """A torch that multiplies in float32."""

        @staticmethod
        def as_tensor(part: Any, *, device: Any) -> Any:
            return torch.as_tensor(part, device=device).to(torch.float32)

    assert devices._multiplies_exactly(torch, torch.device(device))
    assert not devices._multiplies_exactly(Shorter, torch.device(device))


def test_memory_that_is_missing_is_reported(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**20, 2**30))
    with pytest.raises(Unsupported, match=r"take 1\.00 GiB, and 0\.00 of 1\.00 GiB"):
        devices.require_memory(torch.device("cuda"), 2**30)
    _, _, there = _problem("logistic", device)

    def term(block: Rows) -> tuple[float]:
        raise torch.cuda.OutOfMemoryError

    with pytest.raises(Unsupported, match="no memory left"):
        there.sum_blocks(term)


def test_a_device_without_torch_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    devices.load_torch.cache_clear()
    objective = Objective(Logistic(), L2(), alpha=0.1)
    with pytest.raises(MissingExtra, match=r"expunge\[gpu\]"):
        to_device(objective, np.ones((2, 1)), np.array([1.0, -1.0]), device="cpu")


def test_the_example_of_the_page_runs(device: str, rng: np.random.Generator) -> None:
    page = (Path(__file__).parents[1] / "docs/gpu.md").read_text()
    (example,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    X = rng.normal(size=(5000, 4)).astype(np.float32)
    names = {"X": X, "y": np.arange(5000) % 100}
    exec(example.replace('device="cuda"', f"device={device!r}"), names)
    model: Any = names["model"]
    assert (model.n_samples, model.n_removed) == (5000, 2)
    assert model.answer.fits(model.budget)


def test_tensors_are_taken_as_rows(device: str) -> None:
    import torch

    objective, rows, _ = _problem("logistic", device, intercept=False)
    X = torch.as_tensor(np.asarray(rows.X), device=device).to(torch.float32)
    there = to_device(objective, X, rows.y, device=device)
    assert there._X.dtype == torch.float32
    np.testing.assert_array_equal(there.take(np.arange(700)).X, rows.X)


def test_the_benchmark_runs_where_it_is_small(
    device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = benchmark.main(["--quick", "--device", device])
    printed = capsys.readouterr().out
    assert code == int("MISSED" in printed)
    assert "certified request" in printed and "requests that are certified" in printed


def test_the_attack_on_radii_runs_by_itself(
    device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--device", device, "--count", "2", "--first", "40"]
    assert gpu_soundness.main(options) == 0
    assert "0 violations" in capsys.readouterr().out


def test_other_codes_leave_overwritten_labels_alone(device: str) -> None:
    rows = Rows(np.ones((4, 1)), np.array([0.0, 1.0, 1.0, 0.0]), np.ones(4))
    left = device_rows.copy_rows(rows, device=device).erase_rows(np.array([1]))
    recoded = left.recode(lambda y: y + 1.0)
    assert recoded._y.cpu().numpy().tolist() == [1.0, 0.0, 2.0, 1.0]


def test_a_hessian_of_one_column_and_several_outputs(device: str) -> None:
    rows = Rows(np.ones((9, 1)), np.arange(9.0) % 3.0, np.ones(9))
    loss, theta = Multinomial(3), np.array([0.1, -0.2, 0.4])
    here, there = (
        sums.loss_hessian(loss, one, theta=theta).dense()
        for one in (rows, device_rows.copy_rows(rows, device=device))
    )
    np.testing.assert_allclose(there, here, rtol=1e-12)
