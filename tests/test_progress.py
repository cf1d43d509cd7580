# SPDX-License-Identifier: Apache-2.0
"""One progress bar for terminals and notebooks, the same no matter who left."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from expunge import Budget, LogisticRegression, TunedClassifier, load
from expunge.cli.estimators import ModelKind, ModelOptions
from expunge.cli.output import show_named_progress, show_progress
from expunge.display.progress import DrawnBar, ProgressBar
from expunge.exceptions import ExpungeError

BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=0.3, allow_seeded=True)


class Cell:
    """What a notebook's cell shows: updates replace what was there."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def display(self, value: Any, *, display_id: bool) -> "Cell":
        assert display_id
        self.shown.append(value)
        return self

    def update(self, value: Any) -> None:
        self.shown[-1] = value


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """Pretend that this is a notebook."""
    cell = Cell()
    shell = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=cell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return cell


def people(n: int = 60) -> tuple[Any, Any, list[str]]:
    rows = np.random.default_rng(0).normal(size=(n, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, rows[:, 0] > 0.0, [f"person {i}" for i in range(n)]


def test_bar_is_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    X, y, who = people()
    LogisticRegression(budget=BUDGET, random_state=0).fit(X, y, who).forget([who[3]])
    with ProgressBar("walking", 2, shown=False) as bar:
        bar.count()
        bar.report(2, 2)
    assert capsys.readouterr() == ("", "")


def test_bar_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("walking", 2, shown=True) as bar:
        bar.count()
        bar.report(2, 2, label="run")
    drawn = capsys.readouterr().err.split("\r")[1:]
    assert drawn[0] == f"walking [{'.' * 30}] 0/2"
    assert drawn[1] == f"walking [{'#' * 15}{'.' * 15}] 1/2"
    assert drawn[2] == f"run [{'#' * 30}] 2/2" + " " * 4 + "\n"  # over all of the last


def test_bar_that_does_not_stay_is_wiped(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("walking", 1, shown=True, stays=False):
        pass
    *_, last, end = capsys.readouterr().err.split("\r")
    assert last.strip() == end == ""


def test_an_error_starts_on_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="stop"), ProgressBar("a", 2, shown=True):
        raise ValueError("stop")
    assert capsys.readouterr().err.endswith("0/2\n")


def test_many_steps_are_drawn_a_hundred_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressBar("walking", 5000, shown=True) as bar:

        def walk() -> None:
            for _ in range(500):
                bar.count()

        threads = [threading.Thread(target=walk) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    drawn = capsys.readouterr().err
    assert drawn.count("\r") == 101 and drawn.endswith("5000/5000\n")


def test_commands_show_a_bar_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda on=terminal: on)
        with show_progress("forgetting") as report:
            report(1, 2)
        with show_named_progress("a") as step:
            step("c", 2, 2)
        shown = capsys.readouterr().err
        assert ("forgetting [" in shown) is ("c [" in shown) is terminal


def test_a_fit_by_command_shows_a_bar_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda on=terminal: on)
        assert ModelOptions().build_estimator(ModelKind.linear).verbose is terminal


def test_a_notebook_keeps_the_last_bar_alone(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y, _ = people()
    TunedClassifier(alphas=[1e-2, 1e-3], folds=2, verbose=True).fit(X, y)
    assert cell.shown == [DrawnBar("tuning 2 candidates", 4, 4)]
    assert cell.shown[0]._repr_html_() == (
        '<div>tuning 2 candidates <progress value="4" max="4"></progress> 4/4</div>'
    )
    assert capsys.readouterr() == ("", "")
    assert "<b>" not in DrawnBar("<b>", 0, 0)._repr_html_()


def test_a_model_that_was_saved_is_silent(tmp_path: Path, cell: Cell) -> None:
    X, y, who = people()
    model = LogisticRegression(budget=BUDGET, random_state=0, verbose=True)
    model.fit(X, y, who).save(tmp_path / "model")
    cell.shown.clear()
    load(tmp_path / "model").forget([who[0]])
    assert not cell.shown


def test_a_bar_of_tuned_preprocessing_is_filled(cell: Cell) -> None:
    X, y, who = people()
    tuned = TunedClassifier(
        alphas=[1e-2, 1e-3], folds=2, preprocessing=StandardScaler(), verbose=True
    )
    tuned.fit(X, y, who)
    assert cell.shown == [DrawnBar("tuning 2 candidates", 4, 4)]


@pytest.mark.parametrize("kind", [LogisticRegression, TunedClassifier])
def test_requests_look_the_same_whoever_leaves(
    kind: Any, cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y, who = people()
    X[7] *= 50.0  # has to be removed by looking at the rows; the others need not be
    looked = set()
    for gone in ([who[3]], [who[7]], who[10:50], []):
        model = kind(budget=BUDGET, random_state=0, verbose=True).fit(X, y, who)
        cell.shown.clear()
        model.forget(gone)
        assert [repr(bar) for bar in cell.shown] == [f"forgetting [{'#' * 30}] 1/1"]
        looked.add(model.record_.decisions)
    assert len(looked) > 1
    assert capsys.readouterr() == ("", "")


def test_a_refused_request_leaves_an_unfinished_bar(cell: Cell) -> None:
    X, y, who = people()
    model = LogisticRegression(verbose=True).fit(X, y, who)
    cell.shown.clear()
    with pytest.raises(ExpungeError):
        model.forget(["stranger"])
    assert [bar.percent for bar in cell.shown] == [0]
