# SPDX-License-Identifier: Apache-2.0
"""Interrupted, failed and simultaneous requests happen completely or not at all."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from expunge import Budget, LinearRegression, LogisticRegression
from expunge.exceptions import ExpungeError, InvalidInput
from expunge.linear_model.base import private_model
from expunge.linear_model.tuned import TunedClassifier
from expunge.private_model.snapshot import note_use
from tests.interrupts import PACKAGE, count_lines, interrupt

N_ROWS = 60
# Tight enough that answers are polished or retrained now and then.
BUDGET = Budget(sigma=1e-3, allow_seeded=True)


def table() -> tuple[Any, Any, Any]:
    """Return rows, labels and people with several rows each."""
    rng = np.random.default_rng(11)
    X = np.round(rng.normal(size=(N_ROWS, 3)))
    X[:3, 2] = 9.0  # a category, and an extreme, of one person
    y = (X[:, 0] + rng.normal(size=N_ROWS) > 0).astype(int)
    return X, y, np.array([f"p{row // 3}" for row in range(N_ROWS)])


def plain(**parameters: Any) -> Any:
    return LogisticRegression(
        alpha=1e-2, penalize_intercept=True, random_state=1, **parameters
    )


def tuned() -> Any:
    return TunedClassifier(
        alphas=(1e-1, 1e-2), folds=3, fold_key="k", penalize_intercept=True
    )


def encoded() -> Any:
    return plain(scaling="sum", preprocessing=OneHotEncoder())


def scaled() -> Any:
    return plain(preprocessing=StandardScaler())


KINDS: dict[str, Callable[[], Any]] = {
    "plain": plain,
    "with a budget": lambda: plain(budget=BUDGET),
    "without rows": lambda: plain(keep_data=False),
    "tuned": tuned,
    "encoded": encoded,
    "scaled": scaled,
    "scaled without rows": lambda: scaled().set_params(keep_data=False),
    "scaled with a budget": lambda: plain(
        budget=BUDGET, preprocessing=MinMaxScaler(), fit_intercept=False
    ).set_params(penalize_intercept=False),
}


def private(model: Any) -> Any:
    """Return the noise-free parameters of a model."""
    return private_model(model).answer.draft.theta


def ask(model: Any, person: str) -> Any:
    """Forget a person, by their rows if the model keeps none."""
    X, y, people = table()
    theirs = people == person
    if getattr(model, "keep_data", True):
        return model.forget([person])
    return model.forget(X=X[theirs], y=y[theirs])


def fitted(kind: str) -> Any:
    X, y, people = table()
    return KINDS[kind]().fit(X, y, subjects=people.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_request_happens_completely_or_not_at_all(kind: str) -> None:
    """Interrupt forty lines, spread evenly; ``make attack`` tries them all."""
    before, after = fitted(kind), ask(fitted(kind), "p0")
    later = ask(ask(fitted(kind), "p0"), "p7")
    target = fitted(kind)
    n_lines = count_lines(lambda: ask(target, "p0"))
    outcomes = set()
    for line in np.unique(np.linspace(1, n_lines, 40).astype(int)):
        model = fitted(kind)
        assert interrupt(partial(ask, model, "p0"), int(line))
        happened = model.certificate_.n_subjects_removed == 1
        outcomes.add(happened)
        expected = after if happened else before
        np.testing.assert_allclose(private(model), private(expected), atol=1e-9)
        if not happened:
            ask(model, "p0")  # as if nothing had happened
        ask(model, "p7")
        assert model.certificate_.n_subjects_removed == 2
        np.testing.assert_allclose(private(model), private(later), atol=1e-9)
        with pytest.raises(ExpungeError, match="no longer"):
            ask(model, "p0")
    assert outcomes == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_fit_leaves_the_earlier_model(kind: str) -> None:
    X, y, people = table()
    model = ask(fitted(kind), "p3")
    shown, paper = private(model).copy(), model.certificate_

    def fit_again() -> None:
        model.fit(X[:, ::-1], y, subjects=people.tolist())

    other = fitted(kind)
    n_lines = count_lines(lambda: other.fit(X[:, ::-1], y, people.tolist()))
    for line in np.unique(np.linspace(1, 0.9 * n_lines, 15).astype(int)):
        assert interrupt(fit_again, int(line))
        np.testing.assert_array_equal(private(model), shown)
        assert model.certificate_ is paper
    assert ask(model, "p4").certificate_.n_subjects_removed == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_fit_does_not_undo_a_simultaneous_request(kind: str) -> None:
    X, y, _ = table()
    model = fitted(kind)
    started, asked = threading.Event(), threading.Event()

    class Late:
        """Bad rows that arrive after a request was carried out."""

        def __array__(self, *_: Any, **__: Any) -> Any:
            started.set()
            asked.wait(0.5)
            raise InvalidInput("these rows never come")

        shape, ndim = X.shape, 2

        def __len__(self) -> int:
            return N_ROWS

    def fit() -> None:
        with pytest.raises(InvalidInput, match="never come"):
            model.fit(Late(), y)

    thread = threading.Thread(target=fit)
    thread.start()
    assert started.wait(10.0)
    ask(model, "p0")
    asked.set()
    thread.join()
    assert model.certificate_.n_subjects_removed == 1
    np.testing.assert_allclose(private(model), private(ask(fitted(kind), "p0")))
    with pytest.raises(ExpungeError, match="no longer"):
        ask(model, "p0")


@pytest.mark.parametrize("preprocessing", [None, StandardScaler(), OneHotEncoder()])
def test_requests_of_many_threads_are_all_carried_out(preprocessing: Any) -> None:
    X, y, people = table()
    model = LinearRegression(alpha=1e-2, preprocessing=preprocessing)
    model.fit(X, y, subjects=people.tolist())
    names = [f"p{i}" for i in range(12)]
    threads = [threading.Thread(target=model.forget, args=([name],)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = ~np.isin(people, names)
    fresh = clone(model).fit(X[left], y[left])
    assert model.certificate_.n_subjects_removed == 12
    np.testing.assert_allclose(private(model), private(fresh), atol=1e-9)


def test_an_interrupt_leaves_no_lock_behind_that_counts_budgets() -> None:
    kept = [Budget()]
    for line in range(1, count_lines(lambda: note_use(kept[-1])) + 1):
        kept.append(Budget())
        assert interrupt(lambda: note_use(kept[-1]), line)
        later = threading.Thread(target=note_use, args=(kept[-1],), daemon=True)
        later.start()
        later.join(10.0)
        assert not later.is_alive(), line
        assert note_use(kept[-1])


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        (PACKAGE + "core/a.py", True),
        ("expunge/.venv/lib/site-packages/numpy/a.py", False),
        ("expunge/tests/a.py", False),
    ],
)
def test_lines_of_the_package_alone_count(
    tmp_path: Path, path: str, counts: bool
) -> None:
    """Whatever the checkout is called: packages beside ours have other lines."""
    code = compile("a = 1\nb = 2\n", tmp_path / path, "exec")
    assert count_lines(lambda: exec(code, {})) == (2 if counts else 0)
