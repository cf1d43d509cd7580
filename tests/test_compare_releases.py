# SPDX-License-Identifier: Apache-2.0
"""Two releases compared on rows of the user: before and after a request."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score

from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    compare_releases,
    read_shipped,
    ship,
)
from expunge.exceptions import InvalidInput
from expunge.linear_model import base, tuned
from expunge.linear_model.comparison import EVERYTHING

BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=1.0)
NAMES = np.array(["<b>no</b>", "$\\frac", "yes"])


def people(n: int, seed: int) -> tuple[Any, Any]:
    rows = np.random.default_rng(seed).normal(size=(n, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, NAMES[np.argmax(rows, axis=1)]


@pytest.fixture(scope="module")
def releases() -> tuple[Any, Any]:
    """Return a model before and after a request."""
    X, y = people(120, 0)
    who = [f"person {i}" for i in range(120)]
    model = LogisticRegression(alpha=1e-2, budget=BUDGET).fit(X, y, who)
    before = deepcopy(model)
    return before, model.forget(who[:30])


def test_scores_are_those_of_the_releases(releases: Any) -> None:
    X, y = people(200, 1)
    before, after = releases
    found = compare_releases(before, after, X, y)
    assert found.metric == "accuracy" and found.pairs[0].name == EVERYTHING
    assert (found.before, found.after) == (before.score(X, y), after.score(X, y))
    assert found.n_changed == np.sum(before.predict(X) != after.predict(X)) > 0
    assert [pair.name for pair in found.pairs[1:]] == sorted(NAMES)
    assert sum(pair.n_rows for pair in found.pairs[1:]) == 200
    for word in ("before", "after"):
        parts = [pair.n_rows * getattr(pair, word) for pair in found.pairs[1:]]
        assert sum(parts) == pytest.approx(200 * getattr(found, word))
    same = compare_releases(after, after, X, y)
    assert same.n_changed == 0 and same.before == same.after


def test_targets_are_scored_by_r2() -> None:
    X, _ = people(60, 2)
    y = X @ np.array([[1.0, 0.0], [0.5, 2.0], [0.0, 1.0]])
    one, two = (LinearRegression(alpha=alpha).fit(X, y) for alpha in (1e-3, 1.0))
    found = compare_releases(one, two, X, y)
    assert found.metric == "R2" and found.n_changed is None
    assert (found.before, found.after) == (one.score(X, y), two.score(X, y))
    assert [pair.name for pair in found.pairs] == [EVERYTHING, "target 0", "target 1"]
    assert found.pairs[2].after == r2_score(y[:, 1], two.predict(X)[:, 1])
    single = LinearRegression().fit(X, y[:, 0])
    assert len(compare_releases(single, single, X, y[:, 0]).pairs) == 1
    shown = f"R2 {found.before:.4f} before, {found.after:.4f} after, on 60 rows"
    assert repr(found) == shown


def test_only_what_was_released_is_looked_at(
    releases: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X, y = people(50, 3)
    expected = compare_releases(releases[0], releases[1], X, y)
    ship(releases[1], tmp_path / "model.safetensors")

    def refuse(estimator: object) -> None:
        raise AssertionError("the private state was opened")

    for module in (base, tuned):
        monkeypatch.setattr(module, "private_model", refuse)
    assert compare_releases(releases[0], releases[1], X, y) == expected
    copies = tuple(map(deepcopy, releases))
    assert compare_releases(copies[0], copies[1], X, y) == expected
    plain = tuple(model.to_sklearn() for model in releases)
    assert compare_releases(plain[0], plain[1], X, y) == expected
    read = read_shipped(tmp_path / "model.safetensors")
    assert compare_releases(releases[0], read, X, y) == expected


def test_card_has_a_table_and_escapes_names(releases: Any) -> None:
    X, y = people(50, 3)
    found = compare_releases(releases[0], releases[1], X, y)
    card = found._repr_html_()
    assert f"Accuracy {100 * found.before:.1f} % before, " in card
    assert f"{found.n_changed} of them are predicted differently." in card
    assert "<b>no</b>" not in card and "&lt;b&gt;no&lt;/b&gt;" in card
    change = 100.0 * (found.after - found.before)
    assert f"<td>{change:+.1f} points</td>" in card
    assert card == compare_releases(releases[0], releases[1], X, y)._repr_html_()


def test_plot_ends_at_100_percent(releases: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    X, y = people(50, 3)
    figure = compare_releases(releases[0], releases[1], X, y).plot(
        tmp_path / "scores.png"
    )
    assert (tmp_path / "scores.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert axes.get_xlim() == (0.0, 1.0) and axes.get_xlabel() == "accuracy"
    labels = [tick.get_text() for tick in axes.get_xticklabels()]
    assert labels[0] == "0 %" and labels[-1] == "100 %"
    drawn = [tick.get_text() for tick in axes.get_yticklabels()]
    assert drawn == [EVERYTHING, r"\$\frac", "<b>no</b>", "yes"]


def test_plot_of_a_regression_shows_what_is_worse_than_the_mean() -> None:
    pytest.importorskip("matplotlib")
    X, _ = people(40, 4)
    model = LinearRegression().fit(X, X[:, 0])
    (axes,) = compare_releases(model, model, X, -X[:, 0]).plot().figure.axes
    assert -1.2 < axes.get_xlim()[0] <= -1.0 and axes.get_xlim()[1] == 1.0


def test_what_cannot_be_compared_is_refused(releases: Any) -> None:
    X, y = people(20, 5)
    regression = LinearRegression().fit(X, X[:, 0])
    with pytest.raises(InvalidInput, match="LogisticRegression and LinearRegression"):
        compare_releases(releases[0], regression, X, y)
    with pytest.raises(InvalidInput, match="y has 1 rows; pass two or more"):
        compare_releases(releases[0], releases[1], X[:1], y[:1])
    with pytest.raises(NotFittedError):
        compare_releases(releases[0], clone(releases[1]), X, y)
