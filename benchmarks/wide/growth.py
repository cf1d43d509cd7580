# SPDX-License-Identifier: Apache-2.0
"""How wide models grow: the time of a request, and the memory of a state.

Models are told to have no matrices, and their noise is so small that each request makes
passes. How many depends on the data, not on their size alone, so that a single pass is
timed beside the requests. Exponents are slopes of log cost against log size.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from expunge.core.losses import Logistic, Multinomial, OneVsRest
from expunge.core.measurement import measure
from expunge.core.objective import Objective
from expunge.core.penalties import L2
from expunge.linear_model import LogisticRegression, SoftmaxRegression
from expunge.linear_model.base import private_model
from expunge.removal import state_size

from ..report import Section, Table, Target, number
from ..scaling import Series
from ..timing import Measurement, progress
from .contest import Contest, Model, compete, fit_model, make_rows, time_processor
from .data import Labelled, generate_dense, generate_text
from .settings import ALPHA, GROWTH_ALPHA, SMALL_SIGMA, Sizes, make_budget

ABOUT_ONE = (0.7, 1.3)
KINDS: dict[str, type[Model]] = {
    "softmax": SoftmaxRegression,
    "one-vs-rest": LogisticRegression,
}
LOSSES: dict[str, type[Multinomial | OneVsRest]] = {
    "softmax": Multinomial,
    "one-vs-rest": OneVsRest,
}


def run_growth(sizes: Sizes) -> Iterator[Section]:
    """Yield requests against entries and classes, and states against d k."""
    yield against_entries(sizes)
    yield against_classes(sizes)
    yield state_section(sizes)


def against_entries(sizes: Sizes) -> Section:
    """Return the time of a request against the entries of sparse rows."""
    points = []
    for n_rows in sizes.heights:
        progress(f"requests at {n_rows} sparse rows")
        data = generate_text(sizes.text._replace(n_rows=n_rows))
        objective = Objective(Logistic(), L2(), alpha=GROWTH_ALPHA)
        times = time_requests(LogisticRegression, data, objective, sizes)
        points.append(Point("logistic, sparse", int(data.X.nnz), *times))
    return growth_section("non-zeros", points)


def against_classes(sizes: Sizes) -> Section:
    """Return the time of a request against the number of classes, both ways."""
    points = []
    for n_classes in sizes.classes:
        progress(f"requests at {n_classes} classes")
        data = generate_dense(sizes.growing._replace(n_classes=n_classes))
        for name, kind in KINDS.items():
            objective = Objective(LOSSES[name](n_classes), L2(), alpha=ALPHA)
            times = time_requests(kind, data, objective, sizes)
            points.append(Point(name, n_classes, *times))
    return growth_section("classes", points)


class Point(NamedTuple):
    """What a request and a single pass took at one size."""

    name: str
    size: int
    request: Measurement
    single: Measurement


def time_requests(
    kind: type[Model], data: Labelled, objective: Objective, sizes: Sizes
) -> tuple[Measurement, Measurement]:
    """Return the times of requests that make passes, and of a pass by itself."""
    contest = Contest(
        data=data,
        model=partial(make_model, kind, objective.alpha),
        rivals={},
        turns=1,
        requests=2 * sizes.requests,
    )
    request, rows = compete(contest).passes, make_rows(objective, data)
    theta = np.ones(rows.X.shape[1] * objective.loss.outputs)
    look = partial(measure, objective, rows, theta=theta)
    seconds = [time_processor(look)[1] for _ in range(contest.requests)]
    return request, Measurement.of("pass", seconds[1:])


def make_model(kind: type[Model], alpha: float) -> Model:
    """Return a model without matrices, not fitted, with little noise."""
    return kind(
        alpha=alpha,
        fit_intercept=False,
        mechanism="matrix-free",
        budget=make_budget(SMALL_SIGMA),
    )


def growth_section(size: str, points: Sequence[Point]) -> Section:
    """Return times against a size, and their exponents."""
    lines = []
    for name, value, request, single in points:
        figures = (request.median, request.lower, request.upper, single.median)
        cells = tuple(number(1e3 * figure) for figure in figures)
        lines.append((name, str(value), *cells, f"{request.over(single):.1f}"))
    targets = []
    for name in dict.fromkeys(point.name for point in points):
        some = [point for point in points if point.name == name]
        values = tuple(point.size for point in some)
        for what, medians in (
            ("request", tuple(point.request.median for point in some)),
            ("pass", tuple(point.single.median for point in some)),
        ):
            slope = Series(name, values, medians).exponent()
            title = f"{name}: exponent of {size}, {what}"
            targets.append(Target(title, slope, *ABOUT_ONE))
    headers = (
        "request [ms]",
        size,
        "median",
        "lower q.",
        "upper q.",
        "a pass",
        "ratio",
    )
    return Section(
        f"Time of a request with passes against {size}",
        [Table(headers, lines)],
        targets,
        [
            f"noise of sigma {SMALL_SIGMA}, so that each request makes passes; the "
            "first after a fit left out; processor seconds",
            "a pass is a measurement of all rows: objective, gradient and curvature; a "
            "request takes as many as its data and its budget need",
            "an exponent below one is a cost that sizes share, such as reading rows",
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
