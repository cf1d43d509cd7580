# SPDX-License-Identifier: Apache-2.0
"""Texts of many classes, hashed: fits and requests beside scikit-learn.

Texts are generated: words by Zipf's law, three in ten of them by a law of the class.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.multiclass import OneVsRestClassifier

from expunge.core.losses import Multinomial, OneVsRest
from expunge.core.objective import Objective
from expunge.core.penalties import L2
from expunge.linear_model import LogisticRegression, SoftmaxRegression
from expunge.preprocessing.hashed import read_input_map
from expunge.preprocessing.inputs import encode_inputs

from ..report import Section, Target, number, timings_table
from ..timing import progress
from .contest import (
    Contest,
    compete,
    facts_table,
    make_rows,
    parameters_of,
    residual,
    time_processor,
)
from .data import Labelled, generate_words
from .settings import ALPHA, SIGMA, Sizes, make_budget

HEADS = {"softmax": SoftmaxRegression, "one-vs-rest": LogisticRegression}
RIVAL = "scikit-learn, lbfgs"


def run_hashed(sizes: Sizes) -> Iterator[Section]:
    """Yield softmax and one-vs-rest models of texts, hashed once."""
    shape = sizes.hashed
    texts, y = generate_words(shape.n_rows, shape.n_classes)
    made_by = read_input_map(HashingVectorizer(n_features=shape.n_columns))
    assert made_by is not None
    made, seconds = time_processor(partial(encode_inputs, made_by, texts))
    data = Labelled(made.rows, y)
    for name in HEADS:
        progress(f"hashed texts, {shape}, {name}")
        yield section(name, data, sizes=sizes, hashing=seconds)


def section(name: str, data: Labelled, *, sizes: Sizes, hashing: float) -> Section:
    """Return what a model of hashed texts costs, against scikit-learn."""
    plain = SklearnLogistic(C=1 / (ALPHA * len(data.y)), max_iter=10_000)
    rival: Any = plain if name == "softmax" else OneVsRestClassifier(plain)

    def model() -> Any:
        budget = make_budget(SIGMA)
        return HEADS[name](alpha=ALPHA, mechanism=sizes.mechanism, budget=budget)

    contest = Contest(
        data=data,
        model=model,
        rivals={RIVAL: partial(rival.fit, data.X, data.y)},
        turns=1,
        requests=sizes.requests,
    )
    outcome = compete(contest)
    classes = range(data.n_classes)
    loss = Multinomial(len(classes)) if name == "softmax" else OneVsRest(len(classes))
    objective = Objective(loss, L2(), alpha=ALPHA, intercept=True)
    fitted = [plain] if name == "softmax" else rival.estimators_
    theta = np.hstack([parameters_of(one, intercept=True)[:, None] for one in fitted])
    reached = residual(objective, make_rows(objective, data), theta.ravel())
    named = f"{name} of hashed texts"
    return Section(
        f"{named[0].upper()}{named[1:]}, {sizes.hashed}",
        [timings_table(outcome.times, "ms"), facts_table({"ours": outcome})],
        [
            Target(
                f"refit / request: {named}", outcome.fit.over(outcome.later), low=4.0
            ),
            Target(
                f"our fit / {RIVAL}: {named}",
                outcome.fit.over(outcome.rivals[RIVAL]),
                high=2.5,
            ),
        ],
        [
            f"hashing all texts once takes {number(hashing)} s of the processor, "
            f"{data.X.nnz / len(data.y):.0f} entries a row; generated texts",
            f"alpha {ALPHA:g}, noise of sigma {SIGMA:g}; scikit-learn's fit ends at a "
            f"gradient of {number(reached)}, its default, and ours at "
            f"{number(outcome.gradient)}",
        ],
    )
