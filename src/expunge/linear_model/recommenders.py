# SPDX-License-Identifier: Apache-2.0
r"""Recommenders that forget to the last bit: EASE, and what most people have.

Rows are users and columns are items. EASE (Steck 2019) weighs every item by every
other: with the products G = X'X of interactions, all integers, and P = (G + l2 I)^-1,

    B_ij = -P_ij / P_jj  for i != j,  B_jj = 0 ;   scores = x B .

B is rounded to the nearest multiple of 2^-20, which follows from G alone, and so scores
are sums of integers. B determines G. So it is not published unless its user says so:
the model answers with recommendations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core.arrays import Vector, write_lock
from ..core.decided_ratios import RATIO_BITS, lower_triangle, ratios
from ..core.rows import Rows
from ..core.values import replace_fields, stored
from ..core.whole_sums import WholeSums, entries_of, too_large
from ..exceptions import InvalidInput, Unsupported
from ..private_model.exact import ExactModel, Formula
from ..private_model.labels import Labels
from ..private_model.snapshot import PublicModel, Snapshot, replace_places
from ..private_model.subjects import list_of_ids, owners_of, person
from ..private_model.training_rows import NO_ROWS, TrainingRows
from ..promise.scope import Scope
from .exact import ExactEstimator, exact_model
from .forgetting import (
    finish_request,
    people_model,
    set_snapshot,
)
from .parameters import name_unknown

MOST_ITEMS = 10_000
ITEMS_AT_ONCE = 512
WIDTH = 2**14  # places for items in a row: more than there can be at a time
LARGEST_RATING = 2**20
GRID_OF_L2 = 1024
EASE_PAIRS = (
    "a leaver's whole list of items, where somebody has the weights from before and "
    "after: they determine how many users have which two items (in 50 of 50 trials a "
    "single leaver's list was recovered); recommendations give away less, and no limit "
    "on that is proved"
)
Items = NDArray[np.str_]


@stored
@dataclass(frozen=True, eq=False, kw_only=True)
class PublicRecommender(PublicModel):
    """The public part of a recommender: items, and weights if these are published."""

    def require_consistent(self) -> None:
        """Raise ValueError if the parts do not go together, as those of a fit do."""
        items, size = self.classes, self.release.theta.size
        if (
            items is None
            or items.ndim != 1
            or len(items) != self.n_features
            or size not in (0, len(items), len(items) ** 2)
            or not np.isfinite(self.release.theta).all()
        ):
            raise ValueError("the parts of this recommender do not go together")

    def require_shippable(self) -> None:
        """Raise Unsupported: there is no format of recommenders to ship."""
        raise Unsupported(
            "recommenders are not shipped as one file; ask the model, a registry or a "
            "service for recommendations, or save it with save()"
        )

    @property
    def coefficients(self) -> Any:
        """Weights of items (columns) by items (rows), and no intercepts."""
        n = self.n_features
        return self.release.theta.reshape(n, -1), np.zeros(n)


@stored
@dataclass(frozen=True, eq=False, repr=False)
class ItemPairs(Formula):
    """EASE: how many users have which two items, and what follows.

    Attributes
    ----------
    items
        The item in each place of a row; empty where there is none.
    declared
        Whether items were declared, and stay without users.
    l2
        The penalty.
    published
        Whether weights are published.
    """

    items: tuple[str, ...]
    declared: bool
    l2: float
    published: bool

    not_covered: ClassVar[tuple[str, ...]] = (EASE_PAIRS,)

    def sums_of(self, rows: Rows, labels: Labels | None) -> WholeSums:
        """Return X'X, its lower triangle packed row by row."""
        del labels
        X: Any = rows.X
        n = int(X.indices.max(initial=-1)) + 1
        largest = float(np.abs(entries_of(X)).max(initial=0.0))
        if largest**2 * max(len(rows), 1) >= 2.0**52:
            raise too_large("products of ratings")
        numbers = sparse.csr_array(
            (X.data.astype(np.int64), X.indices, X.indptr), shape=(len(rows), n)
        )
        packed = np.zeros((1, n * (n + 1) // 2), dtype=np.int64)
        turned: Any = sparse.csr_array(numbers.T)
        for begin in range(0, n, ITEMS_AT_ONCE):
            found: Any = sparse.coo_array(
                turned[begin : begin + ITEMS_AT_ONCE] @ numbers
            )
            i, j = (np.asarray(at, dtype=np.int64) for at in found.coords)
            lower = i + begin >= j
            i, j = i[lower] + begin, j[lower]
            packed[0, i * (i + 1) // 2 + j] = found.data[lower]
        return WholeSums({"pairs": packed})

    def own(self, sums: WholeSums) -> NDArray[np.int64]:
        """Return what each place has: nothing, if no user has the item in it."""
        packed = sums.narrow("pairs")
        at = np.arange(max(len(self.items), WIDTH))
        ends = at * (at + 3) // 2
        found = np.zeros(len(at), dtype=np.int64)
        inside = ends < len(packed)
        found[inside] = packed[ends[inside]]
        return found

    def present(self, sums: WholeSums) -> NDArray[np.intp]:
        """Return the places of the items that there are, by their names."""
        own = np.zeros(len(self.items), dtype=np.int64)
        found = self.own(sums)[: len(own)]
        own[: len(found)] = found
        named = np.array([bool(name) for name in self.items], dtype=bool)
        places = np.flatnonzero(named & (self.declared | (own > 0)))
        names = np.array(self.items, dtype=object)[places]
        order: NDArray[np.intp] = np.argsort(names, kind="stable")
        return places[order]

    def left_by(self, sums: WholeSums) -> Self:
        """Return the formula without the names of items that nobody has.

        Raises InvalidInput for rows that come back with an item whose name has gone.
        """
        used = np.flatnonzero(self.own(sums)).tolist()
        if any(at >= len(self.items) or not self.items[at] for at in used):
            raise InvalidInput(
                "rows to add have an item that left the model with its last user, or "
                "that it never had; fit again, or declare the items; nothing was added"
            )
        there = set(self.present(sums).tolist())
        items = (name if at in there else "" for at, name in enumerate(self.items))
        return replace(self, items=tuple(items))

    def answer(self, sums: WholeSums) -> NDArray[Any]:
        """Return B in multiples of 2^-20, of the items in the order of their names."""
        at = self.present(sums)
        n = len(self.items)
        packed = np.zeros(n * (n + 1) // 2, dtype=np.int64)
        pairs = sums.narrow("pairs")[: len(packed)]
        packed[: len(pairs)] = pairs
        A = lower_triangle(packed, n)
        A = A if np.array_equal(at, np.arange(n)) else A[np.ix_(at, at)]
        A[np.arange(len(at)), np.arange(len(at))] += self.l2
        if self.l2 % 1.0:
            A *= GRID_OF_L2  # integers again, and the same ratios
        return ratios(A)

    def publish(self, sums: WholeSums, labels: Labels | None) -> Vector:
        """Return the weights if they are published; nothing else is."""
        del labels
        if not self.published:
            return np.zeros(0)
        weights: Vector = self.answer(sums).ravel() * 2.0**-RATIO_BITS
        return weights

    def public_of(self, sums: WholeSums) -> Mapping[str, Any]:
        """Return the items that there are."""
        return _catalogue(np.array(self.items, dtype=object)[self.present(sums)])

    def describe(self) -> Mapping[str, Any]:
        """Return it as a certificate states it."""
        published = "weights" if self.published else "recommendations"
        return {
            "loss": {"name": "EASE", "published": published},
            "penalty": {"name": "SquaredNorm", "l2": self.l2},
            "intercept": False,
            "needs_every_class": False,
        }


@stored
@dataclass(frozen=True, eq=False, repr=False)
class UsersOfItems(ItemPairs):
    """How many users each item has."""

    not_covered = ()

    def sums_of(self, rows: Rows, labels: Labels | None) -> WholeSums:
        """Return how many users each item has."""
        del labels
        X: Any = rows.X
        n = max(int(X.indices.max(initial=-1)) + 1, len(self.items))
        return WholeSums({"users": np.bincount(X.indices, minlength=n)[None]})

    def own(self, sums: WholeSums) -> NDArray[np.int64]:
        """Return how many users the item in each place has."""
        return sums.narrow("users")

    def answer(self, sums: WholeSums) -> NDArray[Any]:
        """Return how many users each item has, in the order of their names."""
        counts = np.zeros(len(self.items), dtype=np.int64)
        users = sums.narrow("users")[: len(counts)]
        counts[: len(users)] = users
        return counts[self.present(sums)]

    def publish(self, sums: WholeSums, labels: Labels | None) -> Vector:
        """Return how many users each item has, if that is published."""
        del labels
        return self.answer(sums).astype(np.float64) if self.published else np.zeros(0)

    def describe(self) -> Mapping[str, Any]:
        """Return it as a certificate states it."""
        published = "counts" if self.published else "recommendations"
        return {
            "loss": {"name": "Popularity", "published": published},
            "penalty": {"name": "none"},
            "intercept": False,
            "needs_every_class": False,
        }


def _catalogue(items: NDArray[Any]) -> Mapping[str, Any]:
    return {
        "classes": np.array(items.tolist(), dtype=np.str_),
        "n_features": len(items),
    }


class Recommender(ExactEstimator):
    """Users, items, and what to recommend."""

    _public_kind = PublicRecommender
    items: Sequence[object] | None
    publish: str
    keep_data = True
    decimals = None
    needs_targets = False  # without ratings a user has an item or not

    def fit(
        self,
        X: Any,
        y: Any = None,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model and make its first release.

        Parameters
        ----------
        X
            What users have, in one of three ways: an item for each pair, with its user
            in ``subjects``; a table of two columns, user and item, or of three, with a
            rating; or a sparse matrix of users by items, with the user of each row in
            ``subjects``, whose items are the numbers of its columns.
        y
            A rating for each pair, a whole number from 1; without it a user has an item
            or not.
        subjects
            The user of each pair, or of each row of a matrix.
        sample_weight
            None: a user counts once.
        """
        if sample_weight is not None:
            raise InvalidInput("sample_weight: a user counts once; leave it out")
        return super().fit(X, y, subjects)

    def _read(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any, Labels | None]:
        del X, y, reset
        raise Unsupported(
            "recommenders forget people by their ids: forget(subjects=[...])"
        )

    def _fit_snapshot(
        self,
        X: Any,
        y: Any,
        *,
        scope: Scope,
        before: PublicModel | None,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        engine: Any = None,
    ) -> Snapshot:
        if engine is not None or sample_weight is not None:
            raise InvalidInput(
                "recommenders take neither engine nor sample_weight; leave them out"
            )
        pairs = read_pairs(X, y, subjects=subjects)
        formula = self._formula()
        assert isinstance(formula, ItemPairs)
        if not formula.declared:
            formula = replace(formula, items=tuple(np.unique(pairs.items).tolist()))
        require_room(len(formula.items))
        rows, owners = pairs.rows(formula.items)
        self.n_features_in_ = len(formula.items)
        return self._fit_rows(
            formula, rows, labels=None, owners=owners, scope=scope, before=before
        )

    def add(
        self,
        X: Any,
        y: Any = None,
        *,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add what users have, new users or not, and make a new release.

        Parameters
        ----------
        X, y, subjects
            As ``fit`` takes them. Items may be new unless they are declared.
        sample_weight
            None: a user counts once.
        """
        if sample_weight is not None:
            raise InvalidInput("sample_weight: a user counts once; leave it out")
        pairs = read_pairs(X, y, subjects=subjects)
        with write_lock(self):
            finish_request(self)
            before, private = self._snapshot, exact_model(self)
            formula, kept = private.formula, private.training_rows
            assert isinstance(formula, ItemPairs) and isinstance(kept, TrainingRows)
            grown = formula
            if not formula.declared:
                grown = replace(formula, items=_with_new(formula.items, pairs.items))
                require_room(sum(map(bool, grown.items)))
            known = [name for name in pairs.users if name in kept.positions]
            gone = NO_ROWS
            if known:
                gone = np.sort(kept.find(set(known)))
                pairs = pairs.with_rows(
                    kept.take(gone),
                    [kept.owners[at] for at in gone],
                    names=grown.items,
                )
            added, owners = pairs.rows(grown.items)
            private = replace_fields(private, formula=grown)
            after = replace_places(private, gone, added=added, owners=owners, stay=True)
            set_snapshot(self, before.release(after))
        return self

    def _read_added(
        self, before: Snapshot, X: Any, y: Any, *, sample_weight: ArrayLike | None
    ) -> Rows:
        del before, X, y, sample_weight
        raise Unsupported(
            "a registry cannot add to a recommender; fit it again with all pairs "
            "(refit, or expunge fit --replace)"
        )

    @property
    def items_(self) -> Items:
        """The items of the last release, sorted."""
        return np.asarray(self._public.classes)

    def _answer(self) -> Any:
        """Return weights or counts: those published, or those of the private sums."""
        theta = self._public.release.theta
        if theta.size:
            return self._scaled(theta)
        private = people_model(self)
        assert isinstance(private, ExactModel)
        return private.answer()

    def _scaled(self, theta: Vector) -> Any:
        """Return what was published, as integers."""
        n = self._public.n_features
        return np.rint(theta * 2.0**RATIO_BITS).astype(np.int64).reshape(n, n)

    def recommend(self, user_items: Any, k: int = 10) -> NDArray[Any]:
        """Return the k best items for somebody who has these, the best first.

        Of items that the model does not have nothing follows. Without any that it has
        there are none to recommend.

        Parameters
        ----------
        user_items
            Ids of items; or ids with ratings, as a mapping.
        k
            How many, if there are so many.
        """
        items = self.items_
        places, ratings = places_of(items, user_items)
        if not len(places):
            return items[:0]
        scores = self._scores(places, ratings)
        return items[best(scores, k, but=places)]

    def _scores(self, places: NDArray[np.intp], ratings: NDArray[np.int64]) -> Any:
        """Return the score of each item, a whole number."""
        rows = self._answer()[places]
        return ratings @ rows.astype(np.int64)

    def to_sklearn(self) -> Any:
        """Raise Unsupported: scikit-learn has no recommender."""
        raise Unsupported("scikit-learn has no recommenders; use recommend")


class EASE(Recommender):
    """EASE, a linear recommender that forgets users to the last bit.

    It holds a matrix of items by items: at most 10,000 items, which take 4 GiB.

    Parameters
    ----------
    l2
        The penalty: some hundreds. A multiple of 1/1024.
    items
        All items, declared in advance; without it an item leaves with its last user.
    publish
        "recommendations": nothing but answers leaves the model. "weights": the release
        is the matrix, from which a leaver's items can be computed if somebody has the
        one before.
    """

    @name_unknown
    def __init__(
        self,
        l2: float = 500.0,
        items: Sequence[object] | None = None,
        publish: str = "recommendations",
    ) -> None:
        self.l2 = l2
        self.items = items
        self.publish = publish

    def _formula(self) -> Formula:
        l2 = self.l2
        plain = isinstance(l2, Real) and not isinstance(l2, bool)
        if not (plain and 0 < l2 < 2**40 and float(l2) * GRID_OF_L2 % 1 == 0):
            raise InvalidInput(
                f"l2={l2!r}; give a number above zero, a multiple of 1/{GRID_OF_L2}"
            )
        published = _is_published(self.publish, "weights")
        names = _declared(self.items)
        return ItemPairs(names or (), names is not None, float(l2), published)

    def similar_items(self, item: object, k: int = 10) -> NDArray[Any]:
        """Return the k items that this one speaks for most, the best first.

        Parameters
        ----------
        item
            The id of an item of the model.
        k
            How many, if there are so many.
        """
        items = self.items_
        places, _ = places_of(items, [item])
        if not len(places):
            raise InvalidInput(f"item {item!r} is not, or no longer, in the model")
        (row,) = self._answer()[places]
        return items[best(row.astype(np.int64), k, but=places)]


class Popularity(Recommender):
    """Recommends what most users have: the yardstick, which forgets too.

    Parameters
    ----------
    items
        All items, declared in advance; without it an item leaves with its last user.
    publish
        "recommendations": nothing but answers leaves the model. "counts": the release
        says how many users each item has.
    """

    @name_unknown
    def __init__(
        self,
        items: Sequence[object] | None = None,
        publish: str = "recommendations",
    ) -> None:
        self.items = items
        self.publish = publish

    def _formula(self) -> Formula:
        names = _declared(self.items)
        published = _is_published(self.publish, "counts")
        return UsersOfItems(names or (), names is not None, 0.0, published)

    def _scaled(self, theta: Vector) -> Any:
        return theta.astype(np.int64)

    def recommend(self, user_items: Any = (), k: int = 10) -> NDArray[Any]:
        """Return the k items that most users have, but those that somebody has."""
        items = self.items_
        places, _ = places_of(items, user_items)
        return items[best(self._answer(), k, but=places)]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Pairs:
    """Users with their items and ratings, each user with each item once."""

    users: list[str]
    items: Items
    ratings: NDArray[np.int64]

    def rows(self, names: Sequence[str]) -> tuple[Rows, list[str]]:
        """Return a row for each user, in the order of first pairs, and the users."""
        place = {name: at for at, name in enumerate(names) if name}
        try:
            columns = np.array([place[one] for one in self.items.tolist()])
        except KeyError as error:
            raise InvalidInput(
                f"item {error.args[0]!r} is not among the declared items; declare it, "
                "or leave items out"
            ) from None
        order = {user: at for at, user in enumerate(dict.fromkeys(self.users))}
        at = np.array([order[user] for user in self.users])
        by_pair = np.lexsort((columns, at))
        at, columns = at[by_pair], columns[by_pair]
        twice = np.flatnonzero((np.diff(at) == 0) & (np.diff(columns) == 0))
        if twice.size:
            first, second = sorted(by_pair[twice[0] : twice[0] + 2].tolist())
            raise InvalidInput(
                f"a user has an item twice: pairs {first} and {second}, counted from "
                "0; leave one out"
            )
        lengths = np.bincount(at, minlength=len(order))
        pointers = np.concatenate([[0], np.cumsum(lengths)])
        numbers: Any = self.ratings[by_pair].astype(np.float64), columns, pointers
        X: Any = sparse.csr_array(numbers, shape=(len(order), WIDTH))
        n = len(order)
        return Rows(X, np.zeros(n), np.ones(n)), list(order)

    def with_rows(
        self, rows: Rows, owners: Sequence[str], *, names: Sequence[str]
    ) -> "Pairs":
        """Return the pairs with those of rows that are kept before them."""
        X: Any = rows.X
        lengths = np.diff(X.indptr)
        users = np.repeat(np.array(owners, dtype=object), lengths).tolist()
        items = np.array([names[at] for at in X.indices.tolist()], dtype=np.str_)
        ratings = np.concatenate([X.data.astype(np.int64), self.ratings])
        return Pairs(users + self.users, np.concatenate([items, self.items]), ratings)


def read_pairs(X: Any, y: Any, *, subjects: Iterable[object] | None) -> Pairs:
    """Return users, items and ratings of what ``fit`` is given."""
    if is_sparse(X):
        if y is not None:
            raise InvalidInput("y with a matrix: its numbers are the ratings; omit y")
        matrix = sparse.csr_array(X)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        lengths = np.diff(matrix.indptr)
        owners = owners_of(subjects, matrix.shape[0])
        if len({*owners}) < len(owners):
            raise InvalidInput("a user has two rows of the matrix; join them")
        if not lengths.all():
            raise InvalidInput(
                f"row {int(np.argmin(lengths))}, counted from 0, is of a user without "
                "items; leave it out"
            )
        users = np.repeat(np.array(owners, dtype=object), lengths).tolist()
        names = matrix.indices.astype(np.str_)
        return Pairs(users, names, _ratings(matrix.data))
    table = np.asarray(X, dtype=object)
    if subjects is None:
        if table.ndim != 2 or table.shape[1] not in (2, 3) or y is not None:
            raise InvalidInput(
                "give an item for each pair and its user in subjects, a table of user "
                "and item (and rating), or a sparse matrix with subjects"
            )
        subjects = table[:, 0].tolist()
        y = table[:, 2] if table.shape[1] == 3 else None
        table = table[:, 1]
    if table.ndim == 2 and table.shape[1] == 1:
        table = table[:, 0]
    if table.ndim != 1 or not len(table):
        raise InvalidInput(
            f"X has shape {table.shape}; give one item for each pair, and at least one"
        )
    users = owners_of(subjects, len(table))
    items = np.array([person(one) for one in table.tolist()], dtype=np.str_)
    if y is None:
        return Pairs(users, items, np.ones(len(items), dtype=np.int64))
    ratings = _ratings(y)
    if ratings.shape != items.shape:
        raise InvalidInput(f"y has {ratings.size} ratings for {len(items)} pairs")
    return Pairs(users, items, ratings)


def is_sparse(X: Any) -> bool:
    """Whether this is a sparse matrix, of whatever format."""
    return bool(sparse.issparse(X))


def _ratings(y: Any) -> NDArray[np.int64]:
    """Return whole numbers from 1."""
    try:
        numbers = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"ratings must be numbers: {error}") from error
    fine = (numbers >= 1.0) & (numbers <= LARGEST_RATING) & (numbers % 1.0 == 0.0)
    if not fine.all():
        at = int(np.argmin(fine))
        raise InvalidInput(
            f"rating {numbers.flat[at]:g} of pair {at}, counted from 0: ratings are "
            f"whole numbers from 1 to {LARGEST_RATING}; leave out what nobody likes"
        )
    return numbers.astype(np.int64)


def require_room(n_items: int) -> None:
    """Raise InvalidInput for more items than a matrix is for; say what it takes."""
    if n_items > MOST_ITEMS:
        raise InvalidInput(
            f"{n_items} items: their matrix would take {40 * n_items**2 / 2**30:.0f} "
            f"GiB while it is inverted, and {MOST_ITEMS} are taken at most; leave out "
            "items with few users"
        )


def _with_new(items: Sequence[str], named: Items) -> tuple[str, ...]:
    """Return items with those that are new, in places that are free."""
    known = {*items}
    new = [name for name in np.unique(named).tolist() if name not in known]
    grown = list(items)
    free = iter([at for at, name in enumerate(items) if not name])
    for name in new:
        place = next(free, None)
        if place is None:
            grown.append(name)
        else:
            grown[place] = name
    return tuple(grown)


def _declared(items: Sequence[object] | None) -> tuple[str, ...] | None:
    """Return a declared catalogue, in the order of names."""
    if items is None:
        return None
    names = sorted({person(one) for one in list_of_ids(items)})
    if not names:
        raise InvalidInput("items=[]; name at least one, or leave it out")
    return tuple(names)


def _is_published(publish: str, what: str) -> bool:
    if publish not in ("recommendations", what):
        raise InvalidInput(f"publish={publish!r}; choose 'recommendations' or {what!r}")
    return publish == what


def places_of(
    items: Items, user_items: Any
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return the places of items that there are, and their ratings."""
    rated = user_items if isinstance(user_items, Mapping) else None
    given = list_of_ids(list(user_items))
    names = [person(one) for one in given]
    ratings = np.ones(len(names), np.int64)
    if rated is not None:
        ratings = _ratings(list(rated.values()))
    place = {name: at for at, name in enumerate(items.tolist())}
    known = [at for at, name in enumerate(names) if name in place]
    places = np.array([place[names[at]] for at in known], dtype=np.intp)
    if len({*places.tolist()}) < len(places):
        raise InvalidInput("an item is named twice; name each once")
    return places, ratings[known]


def best(scores: Any, k: int, *, but: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the places of the highest scores, of equal ones the first."""
    if isinstance(k, bool) or not k >= 1:
        raise InvalidInput(f"k={k!r}; ask for at least one item")
    order = np.argsort(-np.asarray(scores, dtype=np.int64), kind="stable")
    return order[~np.isin(order, but)][: int(k)]


def recommender_of(snapshot: Snapshot) -> Any:
    """Return the recommender of a snapshot, or raise InvalidInput."""
    from .fitting import estimator_of

    model = estimator_of(snapshot)
    if not isinstance(model, Recommender):
        raise InvalidInput(
            f"this is {type(model).__name__}, which recommends nothing; ask an EASE"
        )
    return model
