# SPDX-License-Identifier: Apache-2.0
"""Dense rows like embeddings: softmax without matrices, one-vs-rest in blocks."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.multiclass import OneVsRestClassifier

from expunge.core.losses import Multinomial
from expunge.core.objective import Objective
from expunge.core.penalties import L2
from expunge.linear_model import LogisticRegression, SoftmaxRegression

from ..data import DataNotFound
from ..report import Section, Target, number, timings_table
from ..timing import progress
from .contest import (
    Contest,
    Outcome,
    compete,
    facts_table,
    make_rows,
    parameters_of,
    residual,
)
from .data import Labelled, generate_dense, read_sentences
from .settings import ALPHA, SIGMA, Sizes, make_budget

SOFTMAX_RIVAL = "scikit-learn, lbfgs at its default tolerance"
ONE_VS_REST_RIVAL = "scikit-learn, OneVsRestClassifier of lbfgs"
GRADIENT = 1e-9


def run_softmax(sizes: Sizes) -> Iterator[Section]:
    """Yield softmax models of each shape, without an intercept and with a free one."""
    for shape in sizes.softmax:
        data = generate_dense(shape)
        for intercept in (False, True):
            yield softmax_section(str(shape), data, sizes=sizes, intercept=intercept)


def run_one_vs_rest(sizes: Sizes) -> Iterator[Section]:
    """Yield one-vs-rest models of each shape, which keep no rows."""
    for shape in sizes.one_vs_rest:
        yield one_vs_rest_section(str(shape), generate_dense(shape), sizes=sizes)


def run_sentences(data_dir: Path | None, sizes: Sizes) -> Iterator[Section]:
    """Yield both models of embedded sentences, or say that they are missing."""
    try:
        data = read_sentences(data_dir).every(sizes.thinning)
    except DataNotFound as missing:
        yield Section("SKIPPED: embedded sentences", notes=[str(missing)])
        return
    name = f"sentences to a bank, {data.X.shape}, {data.n_classes} classes"
    yield softmax_section(name, data, sizes=sizes, intercept=True)
    yield one_vs_rest_section(name, data, sizes=sizes)


def softmax_section(
    name: str, data: Labelled, *, sizes: Sizes, intercept: bool
) -> Section:
    """Return how a softmax model is fitted, and forgets, against scikit-learn."""
    worded = "a free intercept" if intercept else "no intercept"
    progress(f"softmax, {name}, {worded}")
    contest = softmax_contest(data, sizes=sizes, intercept=intercept)
    outcome = compete(contest)
    rival, request = outcome.rivals[SOFTMAX_RIVAL], outcome.later
    of = f": softmax, {name}, {worded}"
    loss = Multinomial(data.n_classes)
    objective = Objective(loss, L2(), alpha=ALPHA, intercept=intercept)
    fitted = outcome.fitted[SOFTMAX_RIVAL]
    theta = parameters_of(fitted, intercept=intercept)
    theirs = residual(objective, make_rows(objective, data), theta)
    return Section(
        f"Softmax, {name}, {worded}",
        [timings_table(outcome.times, "ms"), facts_table({"ours": outcome})],
        [
            Target(f"gradient at our fit{of}", outcome.gradient, high=GRADIENT),
            Target(f"our fit / scikit-learn's{of}", outcome.fit.over(rival), high=4.0),
            Target(f"scikit-learn's fit / request{of}", rival.over(request), low=2.5),
            Target(f"our fit / request{of}", outcome.fit.over(request), low=8.0),
        ],
        [
            f"scikit-learn stops after {fitted.n_iter_[0]} iterations, at a gradient "
            f"of {number(theirs)}",
            *common_notes(contest, outcome),
        ],
    )


def one_vs_rest_section(name: str, data: Labelled, *, sizes: Sizes) -> Section:
    """Return how one-vs-rest forgets without rows, against scikit-learn."""
    progress(f"one-vs-rest, {name}")
    contest = one_vs_rest_contest(data, sizes=sizes)
    outcome = compete(contest)
    rival = outcome.rivals[ONE_VS_REST_RIVAL]
    return Section(
        f"One-vs-rest without rows, {name}",
        [timings_table(outcome.times, "ms"), facts_table({"ours": outcome})],
        [
            Target(
                f"scikit-learn's fit / request: one-vs-rest, {name}",
                rival.over(outcome.later),
                low=50.0,
            )
        ],
        [
            f"our fit takes {outcome.fit.over(rival):.1f} of scikit-learn's",
            *common_notes(contest, outcome),
        ],
    )


def common_notes(contest: Contest, outcome: Outcome) -> list[str]:
    """Return what to know of the figures of a contest."""
    return [
        f"alpha {ALPHA:g}, noise of sigma {SIGMA}; {contest.turns} turns of all fits "
        f"and {contest.requests} requests of one person each; processor seconds",
        "the first request after a fit is not among the others: "
        f"{outcome.first.over(outcome.later):.1f} times as long",
    ]


def softmax_contest(data: Labelled, *, sizes: Sizes, intercept: bool) -> Contest:
    """Return our softmax model beside scikit-learn's."""
    rival = SklearnLogistic(C=1 / (ALPHA * len(data.y)), fit_intercept=intercept)
    return Contest(
        data=data,
        model=partial(
            SoftmaxRegression,
            alpha=ALPHA,
            fit_intercept=intercept,
            mechanism=sizes.mechanism,
            budget=make_budget(),
        ),
        rivals={SOFTMAX_RIVAL: partial(rival.fit, data.X, data.y)},
        turns=sizes.turns,
        requests=sizes.requests,
    )


def one_vs_rest_contest(data: Labelled, *, sizes: Sizes) -> Contest:
    """Return our one-vs-rest model, which keeps no rows, beside scikit-learn's."""
    binary = SklearnLogistic(C=1 / (ALPHA * len(data.y)), fit_intercept=False)
    rival = OneVsRestClassifier(binary)
    return Contest(
        data=data,
        model=partial(
            LogisticRegression,
            alpha=ALPHA,
            fit_intercept=False,
            keep_data=False,
            budget=make_budget(),
        ),
        rivals={ONE_VS_REST_RIVAL: partial(rival.fit, data.X, data.y)},
        turns=sizes.turns,
        requests=sizes.requests,
    )
