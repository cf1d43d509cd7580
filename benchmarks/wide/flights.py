# SPDX-License-Identifier: Apache-2.0
"""A real sparse table: which of a year's flights from New York arrive late."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sklearn.linear_model import LogisticRegression as SklearnLogistic

from expunge.linear_model import LogisticRegression

from ..data import DataNotFound
from ..report import Section, Target, timings_table
from ..timing import progress
from .contest import Contest, compete, facts_table
from .data import Labelled, read_flights
from .settings import FLIGHTS_ALPHA, SIGMA, Sizes, make_budget

RIVAL = "scikit-learn, lbfgs at its default tolerance"


def run_flights(data_dir: Path | None, sizes: Sizes) -> Iterator[Section]:
    """Yield how a model of flights forgets one, or say that they are missing."""
    try:
        data = read_flights(data_dir).every(sizes.thinning)
    except DataNotFound as missing:
        yield Section("SKIPPED: flights from New York", notes=[str(missing)])
        return
    yield flights_section(data, sizes=sizes)


def flights_section(data: Labelled, *, sizes: Sizes) -> Section:
    """Return how a model with a free intercept forgets, against scikit-learn."""
    progress(f"flights, {data.X.shape}")
    rival = SklearnLogistic(C=1 / (FLIGHTS_ALPHA * len(data.y)))
    contest = Contest(
        data=data,
        model=partial(
            LogisticRegression,
            alpha=FLIGHTS_ALPHA,
            mechanism=sizes.mechanism,
            budget=make_budget(),
        ),
        rivals={RIVAL: partial(rival.fit, data.X, data.y)},
        turns=sizes.turns,
        requests=sizes.requests,
    )
    outcome = compete(contest)
    theirs = outcome.rivals[RIVAL]
    # Two kinds of request, a hundred times apart: a median of both tells of neither.
    kinds = {"look": outcome.looks, "request with passes": outcome.passes}
    return Section(
        f"Flights from New York in 2013, sparse, {data.X.shape}",
        [timings_table(outcome.times, "ms"), facts_table({"ours": outcome})],
        [
            Target(f"scikit-learn's fit / {kind}: flights", theirs.over(item), low=10.0)
            for kind, item in kinds.items()
            if item.n
        ],
        [
            "late is more than 15 minutes; flags of carrier, origin, destination, tail "
            "number, hour and month; a free intercept",
            f"alpha {FLIGHTS_ALPHA:g}, noise of sigma {SIGMA}; {contest.turns} turns "
            f"of all fits and {contest.requests} requests of one flight each; "
            "processor seconds",
            f"our fit takes {outcome.fit.over(theirs):.1f} of scikit-learn's",
        ],
    )
