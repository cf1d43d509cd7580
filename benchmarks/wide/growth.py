# SPDX-License-Identifier: Apache-2.0
"""How wide models grow: the time of a request, and the memory of a state.

Models are told to have no matrices, and their noise is so small that each request makes
passes. Exponents are slopes of log cost against log size.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from expunge.linear_model import LogisticRegression, SoftmaxRegression
from expunge.linear_model.snapshots import private_model
from expunge.removal import state_size

from ..report import Section, Table, Target, number
from ..scaling import Series
from ..timing import progress
from .contest import Contest, Model, Outcome, compete, fit_model
from .data import Labelled, generate_dense, generate_text
from .settings import ALPHA, SMALL_SIGMA, WEAK_ALPHA, Sizes, make_budget

ABOUT_ONE = (0.7, 1.3)
KINDS: dict[str, type[Model]] = {
    "softmax": SoftmaxRegression,
    "one-vs-rest": LogisticRegression,
}


def run_growth(sizes: Sizes) -> Iterator[Section]:
    """Yield requests against entries and classes, and states against d k."""
    yield against_entries(sizes)
    yield against_classes(sizes)
    yield state_section(sizes)


def against_entries(sizes: Sizes) -> Section:
    """Return the time of a request against the entries of sparse rows."""
    outcomes, entries = [], []
    for n_rows in sizes.heights:
        progress(f"requests at {n_rows} sparse rows")
        data = generate_text(sizes.text._replace(n_rows=n_rows))
        outcomes.append(time_requests(LogisticRegression, data, WEAK_ALPHA, sizes))
        entries.append(int(data.X.nnz))
    return growth_section("non-zeros", entries, {"logistic, sparse": outcomes})


def against_classes(sizes: Sizes) -> Section:
    """Return the time of a request against the number of classes, both ways."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in KINDS}
    for n_classes in sizes.classes:
        progress(f"requests at {n_classes} classes")
        data = generate_dense(sizes.growing._replace(n_classes=n_classes))
        for name, kind in KINDS.items():
            outcomes[name].append(time_requests(kind, data, ALPHA, sizes))
    return growth_section("classes", sizes.classes, outcomes)


def time_requests(
    kind: type[Model], data: Labelled, alpha: float, sizes: Sizes
) -> Outcome:
    """Return the times of requests that make passes."""
    contest = Contest(
        data=data,
        model=partial(make_model, kind, alpha),
        rivals={},
        turns=1,
        requests=2 * sizes.requests,
    )
    return compete(contest)


def make_model(kind: type[Model], alpha: float) -> Model:
    """Return a model without matrices, not fitted, with little noise."""
    return kind(
        alpha=alpha,
        fit_intercept=False,
        mechanism="matrix-free",
        budget=make_budget(SMALL_SIGMA),
    )


def growth_section(
    size: str, values: Sequence[int], outcomes: dict[str, list[Outcome]]
) -> Section:
    """Return times against a size, and their exponents."""
    lines, targets = [], []
    for name, found in outcomes.items():
        times = [outcome.passes for outcome in found]
        for value, item in zip(values, times, strict=True):
            figures = (item.median, item.lower, item.upper)
            cells = tuple(number(1e3 * figure) for figure in figures)
            lines.append((name, str(value), *cells, str(item.n)))
        medians = tuple(item.median for item in times)
        slope = Series(name, tuple(values), medians).exponent()
        targets.append(Target(f"{name}: exponent of {size}", slope, *ABOUT_ONE))
    headers = ("request [ms]", size, "median", "lower q.", "upper q.", "runs")
    return Section(
        f"Time of a request with passes against {size}",
        [Table(headers, lines)],
        targets,
        [
            f"noise of sigma {SMALL_SIGMA}, so that each request makes passes; the "
            "first after a fit left out; processor seconds"
        ],
    )


def state_section(sizes: Sizes) -> Section:
    """Return the numbers that a state holds against d k."""
    shapes = [
        sizes.growing._replace(n_classes=k, n_columns=d)
        for k in sizes.classes[:2]
        for d in (sizes.growing.n_columns, 2 * sizes.growing.n_columns)
    ]
    lines, targets = [], []
    for name, kind in KINDS.items():
        widths, counts = [], []
        for shape in shapes:
            data = generate_dense(shape)
            model: Any = fit_model(make_model(kind, ALPHA), data)
            state = private_model(model).answer.state
            widths.append(shape.n_classes * shape.n_columns)
            counts.append(state_size(state))
            lines.append((name, str(shape), str(widths[-1]), str(counts[-1])))
        slope = Series(name, tuple(widths), tuple(map(float, counts))).exponent()
        targets.append(Target(f"{name}: exponent of d k, state", slope, *ABOUT_ONE))
    return Section(
        "Memory of a state without matrices (float64 numbers)",
        [Table(("state", "shape", "d k", "numbers"), lines)],
        targets,
        [
            "not counted: the rows, and while d is at most 2048 the preconditioner, "
            "one d x d matrix for all classes, which is not stored in files"
        ],
    )
