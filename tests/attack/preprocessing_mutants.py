# SPDX-License-Identifier: Apache-2.0
"""Mistakes in preprocessing that forgets, each put in by a function."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put

FEATURE_MAP = "core.feature_map:FeatureMap"


def keep_the_scaler() -> None:
    """Let what was learned from numbers stay as it was."""
    put(
        "preprocessing.learned",
        "learn_again",
        lambda recipe, statistics, *, before: before,
    )


def forget_the_shift() -> None:
    """Scale rows and parameters again, and leave the intercept as it was."""
    put(FEATURE_MAP, "full_shift", property(lambda self: np.zeros(self.width)))


def forget_the_gaps() -> None:
    """Let gaps be filled with what filled them at the anchor."""
    none = np.array([], dtype=np.intp)
    put(
        "preprocessing.reference",
        "_correct_gaps",
        lambda reference, now, **more: (none, none, np.array([])),
    )


def add_up_the_row_growth() -> None:
    """Take 1/min rho + |t| for how much longer a row may be."""

    def row_growth(self: Any) -> float:
        off = self.rows < self.size - 1
        size = float(np.abs(self.values[off]).max(initial=0.0))
        return size + float(np.linalg.norm(self.shift))

    put(FEATURE_MAP, "row_growth", property(row_growth))


def let_no_row_grow() -> None:
    """Take rows for no longer than those that were summed."""
    put("removal.state:State", "row_growth", property(lambda self: 1.0))


def leave_the_offset_out() -> None:
    """Take the gradient at the anchor for that at the new anchor."""
    real = import_module("expunge.removal.sums").Sums.mapped

    def mapped(self: Any, features: Any) -> Any:
        return real(self, features).replace(gradient=features.transpose(self.gradient))

    put("removal.sums:Sums", "mapped", mapped)


def overlook_the_offset() -> None:
    """Bound the third order by the step alone, without the way to the new anchor."""

    def lift(self: Any, s: Any) -> Any:
        return s if self.features is None else self.features.lift(s)

    put("removal.state:State", "lift", lift)


def keep_the_first_map() -> None:
    """Let features follow from those at the anchor as they did after one request."""
    module = import_module("expunge.preprocessing.learned")
    real = module.find_map
    first: dict[int, Any] = {}

    def find_map(reference: Any, features: Any, **more: Any) -> Any:
        found = real(reference, features, **more)
        kept = first.setdefault(id(reference), (reference, found))[1]
        same = kept is not None and found is not None and kept.width == found.width
        return kept if same else found

    put("preprocessing.learned", "find_map", find_map)


def keep_the_balance() -> None:
    """Let balanced classes weigh what they weighed at the anchor."""
    real = import_module("expunge.preprocessing.balance").ClassSums.combine

    def combine(self: Any, now: Any) -> Any:
        return real(self, self.then).replace(weight=now.total)

    put("preprocessing.balance:ClassSums", "combine", combine)


def overlook_weightless_rows() -> None:
    """Count no rows of a class that has no weight."""
    real = import_module("expunge.preprocessing.balance").ClassSums.combine

    def combine(self: Any, now: Any) -> Any:
        pairs = zip(now.totals, self.parts, strict=True)
        counted = sum(part.n_rows for total, part in pairs if total)
        return real(self, now).replace(n_rows=counted)

    put("preprocessing.balance:ClassSums", "combine", combine)


def keep_what_left(name: str) -> None:
    """Let a statistic of the rows stay as it was when some of them leave."""
    real = import_module("expunge.preprocessing.statistics").Statistics.without

    def without(self: Any, raw: Any) -> Any:
        return replace(real(self, raw), **{name: getattr(self, name)})

    put("preprocessing.statistics:Statistics", "without", without)


def keep_the_ranks() -> None:
    """Let medians and quantiles be those of rows that have left too."""
    keep_what_left("ordered")


def keep_the_terms() -> None:
    """Weigh terms by rows that have left too."""
    keep_what_left("n_with")


def take_the_next_rank() -> None:
    """Take the quantile of another row."""
    real = import_module("expunge.preprocessing.learning").find_quantile

    def find_quantile(ranked: Any, percent: float, *, n_values: int) -> Any:
        last = n_values - 1
        return real(lambda k: ranked(min(k + 1, last)), percent, n_values=n_values)

    put("preprocessing.learning", "find_quantile", find_quantile)


def keep_the_edges() -> None:
    """Let bins end where they ended at the fit."""
    put("preprocessing.learning", "_has_same_bins", lambda spot, before: True)


def replace_no_row() -> None:
    """Leave rows that lie in another bin now as they were summed."""
    learned = import_module("expunge.preprocessing.learned")
    real = learned.Learned._find_crossing

    def find_crossing(self: Any, *given: Any, **options: Any) -> Any:
        found = real(self, *given, **options)
        return None if found is None else found.take(slice(0, 0))

    put("preprocessing.learned:Learned", "_find_crossing", find_crossing)


def overlook_common_values() -> None:
    """Give no bin of its own to a value that most rows have."""
    bins = import_module("expunge.preprocessing.bins")
    real = bins.find_edges

    def find_edges(values: Any, n_bins: int, **options: Any) -> Any:
        found, counts = np.unique(values, return_counts=True)
        alone = found[counts * n_bins > len(values)]
        edges = real(values, n_bins, **options)
        return edges[~np.isin(edges, np.nextafter(alone, -np.inf))]

    put("preprocessing.learning", "find_edges", find_edges)


def keep_what_maps_learn() -> None:
    """Let knots, quantiles and weights of terms be those of the fit."""
    first: dict[bytes, Any] = {}
    mapped = import_module("expunge.preprocessing.mapped")
    real = mapped.join_maps

    def join_maps(taught: Any) -> Any:
        key = repr([group.then for group in taught.recipe.described.groups]).encode()
        return first.setdefault(key, real(taught))

    put("preprocessing.mapped", "join_maps", join_maps)


def keep_the_answers() -> None:
    """Encode categories by what people answered who have left too."""
    first: dict[tuple[int, int], Any] = {}
    real = import_module("expunge.preprocessing.learnt_maps").learn_means

    def learn_means(step: Any, answers: Any, *, column: int) -> Any:
        found = real(step, answers, column=column)
        kept = first.setdefault((id(step), column), found)
        same = kept[0].values.shape == found[0].values.shape
        return kept if same else found

    put("preprocessing.learnt_maps", "learn_means", learn_means)


def fold_by_position() -> None:
    """Put rows into folds by where they are."""

    def with_people(rows: Any, owners: Any, **more: Any) -> Any:
        places = np.arange(len(rows), dtype=float)
        return replace(rows, X=np.column_stack([rows.dense(), places]))

    put("linear_model.rows", "with_people", with_people)


def encode_by_own_answers() -> None:
    """Encode rows of the model by what their own people answered."""
    real = import_module("expunge.preprocessing.learnt_maps").learn_means

    def learn_means(step: Any, answers: Any, *, column: int) -> Any:
        final, crossed = real(step, answers, column=column)
        every = np.broadcast_to(final.values, crossed.values.shape).copy()
        return final, replace(crossed, values=every)

    put("preprocessing.learnt_maps", "learn_means", learn_means)


def count_rows_for_people() -> None:
    """Give a category a mean of its own that one person has in many rows."""
    module = import_module("expunge.preprocessing.target_means")
    real = module._Sums

    def sums(n_rows: Any, n_people: Any, first: Any, second: Any) -> Any:
        del n_people
        return real(n_rows, n_rows, first, second)

    put("preprocessing.target_means", "_Sums", sums)


def keep_the_step_before_a_map() -> None:
    """Let what was learned before a map of rows stay as it was."""
    real = import_module("expunge.preprocessing.mapped").Mapped._after

    def after(self: Any, *given: Any, **options: Any) -> Any:
        new = self.encoder is None
        return real(self, *given, **options) if new else self

    put("preprocessing.mapped:Mapped", "_after", after)


def round_blocks_otherwise() -> None:
    """Map a row among others to other bits than the row alone."""
    real = import_module("expunge.preprocessing.sklearn_maps").SklearnMap.encode

    def encode(self: Any, X: Any) -> Any:
        made = real(self, X)
        return np.nextafter(made, np.inf) if len(X) > 1 else made

    put("preprocessing.sklearn_maps:SklearnMap", "encode", encode)
    # What sees it at the fit.
    put("preprocessing.sklearn_steps", "check_encoder", lambda encoder, X: None)
    put("preprocessing.mapped", "check_encoder", lambda encoder, X: None)


def map_the_columns_of_others() -> None:
    """Take columns that maps make for those before them in the table."""
    real = import_module("expunge.preprocessing.columns").ExtendedTable.__getitem__

    def getitem(self: Any, source: Any) -> Any:
        found = real(self, source)
        return np.roll(found, 1) if source in self.made else found

    put("preprocessing.columns:ExtendedTable", "__getitem__", getitem)


def drop_no_category() -> None:
    """Let categories outlive their rows."""
    put(
        "preprocessing.learned",
        "drop_categories",
        lambda recipe, statistics: recipe,
    )
