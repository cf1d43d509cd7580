# SPDX-License-Identifier: Apache-2.0
"""What an extractor adds to the price of forgetting, as a table."""

import pytest

from benchmarks.experiments import extractors
from benchmarks.experiments.figures import Figure, Machine, Measured, Place
from benchmarks.experiments.results import Results
from benchmarks.features.group import coverage
from expunge.promise.group import Spent


def results_at_price(epsilon: float, delta: float) -> Results:
    """Return the results of a run that trained an extractor at this price."""
    figures = tuple(
        Figure(
            Place("extractor", "svhn-dp", 0.0, "", "extractor", name, 0), value, 0, 1
        )
        for name, value in (("epsilon", epsilon), ("delta", delta))
    )
    return Results.of([Measured("extractor", "any", Machine.this(), figures)])


def test_price_is_the_head_and_the_group() -> None:
    (section,) = extractors.extractor_sections(results_at_price(0.1, 1e-5))
    head, extractor = Spent(1.0, 1e-5), Spent(0.1, 1e-5)
    for row in section.tables[0].rows:
        whole = coverage(head, extractor, int(row[0]))
        assert float(row[1]) == pytest.approx(whole.total.epsilon, rel=5e-3)
        assert row[3] == f"{100 * whole.right_guesses:.1f} %"
    assert any("promises next to nothing" in note for note in section.notes)


def test_features_that_never_saw_the_data_have_no_price() -> None:
    assert not list(extractors.extractor_sections(Results.of([])))
