# SPDX-License-Identifier: Apache-2.0
"""What a trained extractor adds to the price of forgetting by the head alone."""

from collections.abc import Iterator

from expunge.promise.group import Spent

from ..comparison.measure import PROMISE
from ..features import load_features
from ..features.group import coverage, largest_group
from ..report import Section, Table, number
from .figures import Figure, Place
from .results import Results
from .settings import FEATURES, SETTINGS, Setting, Source

EXPERIMENT = "extractor"
ROWS = (1, 10, 30, 100, 1000)


def measure_extractor(setting: Setting, source: Source) -> list[Figure]:
    """Return what training the extractor of a setting cost one row; nothing is free."""
    kind = setting.name.removeprefix("svhn-")
    spent = load_features(source.cache, FEATURES[kind], source.data_dir).spent
    if spent is None:
        return []
    return [
        Figure(_place(setting.name, name), getattr(spent, name), 0, 1)
        for name in ("epsilon", "delta")
    ]


def _place(setting: str, quantity: str) -> Place:
    return Place(EXPERIMENT, setting, 0.0, "", "extractor", quantity, 0)


def extractor_sections(results: Results) -> Iterator[Section]:
    """Yield for each trained extractor what it and a certified head cost together."""
    head = Spent(PROMISE.epsilon, PROMISE.delta)
    for line in results.having(experiment=EXPERIMENT, quantity="epsilon"):
        figures = [results.last(line), results.last(line._replace(quantity="delta"))]
        epsilon, delta = (spread.mean for spread in figures if spread is not None)
        spent = Spent(epsilon, delta)
        whole = [coverage(head, spent, n_removed) for n_removed in ROWS]
        rows = [
            (
                str(each.n_removed),
                number(each.total.epsilon),
                number(each.total.delta),
                f"{100.0 * each.right_guesses:.1f} %",
            )
            for each in whole
        ]
        headers = ("rows removed", "epsilon", "delta", "right guesses at most")
        yield Section(
            f"{SETTINGS[line.setting].title}: head and extractor together",
            [Table(headers, rows)],
            notes=[
                f"a head certified at epsilon {head.epsilon:g}, delta {head.delta:g}; "
                f"an extractor trained at epsilon {epsilon:.3g}, delta {delta:.1g} a "
                "row and not retrained: group privacy, then composition",
                "the extractor alone promises something for up to "
                f"{largest_group(spent)} rows",
                *(each.sentence for each in whole[:1] + whole[-1:]),
            ],
        )
