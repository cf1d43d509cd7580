# SPDX-License-Identifier: Apache-2.0
"""EASE and popularity: against NumPy, fits from scratch, and who can be found out."""

import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from expunge import EASE, Popularity, load, verify
from expunge.core import decided_ratios
from expunge.core.decided import eliminate
from expunge.exceptions import (
    CannotFit,
    CannotRemove,
    InvalidInput,
    NoPrivateState,
    UnknownSubject,
    Unsupported,
)
from expunge.linear_model.exact import exact_model
from expunge.linear_model.recommenders import EASE_PAIRS, MOST_ITEMS, require_room
from expunge.registry import Registry
from tests.thorough import either

N_USERS, N_ITEMS = 120, 15


def interactions(seed: int = 0) -> Any:
    """Return who has what: users by items, of some kinds of users."""
    rng = np.random.default_rng(seed)
    taste = rng.integers(0, 3, N_USERS)
    rates = np.where((np.arange(N_ITEMS) % 3) == taste[:, None], 0.5, 0.1)
    X = (rng.random((N_USERS, N_ITEMS)) < rates).astype(int)
    X[np.arange(N_USERS), rng.integers(0, N_ITEMS, N_USERS)] = 1
    return sparse.csr_array(X)


USERS = [f"user {i}" for i in range(N_USERS)]


def pairs_of(X: Any, users: list[str]) -> tuple[list[str], list[str]]:
    """Return an item and a user for each pair."""
    rows, columns = X.nonzero()
    return [f"item {j:02d}" for j in columns], [users[i] for i in rows]


def reference(X: Any, l2: float) -> NDArray[np.float64]:
    """Return EASE's weights, as its paper has them."""
    G = (X.T @ X).toarray().astype(float)
    G[np.diag_indices(len(G))] += l2
    P = np.linalg.inv(G)
    B = P / -np.diag(P)
    B[np.diag_indices(len(B))] = 0.0
    return np.asarray(B)


def weights(model: Any) -> Any:
    return exact_model(model).answer()


def without(X: Any, *names: str) -> tuple[Any, list[str]]:
    left = [i for i, user in enumerate(USERS) if user not in names]
    return X[left], [USERS[i] for i in left]


def test_weights_and_lists_are_those_of_ten_lines_of_numpy() -> None:
    X = interactions()
    items, users = pairs_of(X, USERS)
    model = EASE(l2=50).fit(items, subjects=users)
    B = reference(X, 50.0)
    assert np.abs(weights(model) * 2.0**-20 - B).max() <= 2.0**-21 + 1e-12
    scores = X.toarray() @ B
    for i in range(0, N_USERS, 7):
        own = X[[i]].indices
        expected = [j for j in np.argsort(-scores[i], kind="stable") if j not in own][
            :5
        ]
        found = model.recommend([f"item {j:02d}" for j in own], k=5)
        assert found.tolist() == [f"item {j:02d}" for j in expected]
    nearest = np.argsort(-B[3], kind="stable")
    similar = [f"item {j:02d}" for j in nearest if j != 3][:4]
    assert model.similar_items("item 03", k=4).tolist() == similar


@pytest.mark.parametrize("how", ["as it is", "refined", "solved"])
def test_each_weight_is_the_nearest(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first look, and the second, settle nothing."""
    plain, seen = decided_ratios._round, 0

    def unsure(columns: Any, errors: Any, *, at: Any) -> Any:
        nonlocal seen
        seen += 1
        found, sure = plain(columns, errors, at=at)
        blind = how == "solved" or (how == "refined" and seen == 1)
        return found, np.zeros_like(sure) if blind else sure

    monkeypatch.setattr(decided_ratios, "_round", unsure)
    rng = np.random.default_rng(4)
    for _ in range(either(6, thorough=300)):
        n, seen = int(rng.integers(1, 9)), 0
        X = (rng.random((int(rng.integers(1, 50)), n)) < 0.4) * rng.integers(1, 5)
        A = (X.T @ X).astype(float) + float(rng.integers(1, 20)) * np.eye(n)
        expected = np.zeros((n, n))
        for j in range(n):
            unit = [int(i == j) for i in range(n)]
            p, _ = eliminate([[int(one) for one in row] for row in A], unit)
            for i in set(range(n)) - {j}:
                expected[i, j] = round(Fraction(-p[i] << 20, p[j]))
        assert (decided_ratios.ratios(A) == expected).all()
    tie = np.array([[2.0**21, 1.0], [1.0, 2.0**21]])
    assert (decided_ratios.ratios(tie) == 0).all()
    assert decided_ratios.ratios(tie + 2 * (tie == 1))[0, 1] == 2


@pytest.mark.parametrize("kind", [EASE, Popularity])
def test_requests_equal_a_fit_to_the_last_bit(
    kind: Callable[..., Any], tmp_path: Path
) -> None:
    X = interactions()
    items, users = pairs_of(X, USERS)
    model = kind().fit(items, subjects=users)
    model.forget(["user 3"]).forget(["user 10", "user 11"])
    left, names = without(X, "user 3", "user 10", "user 11")
    items, users = pairs_of(left, names)
    fresh = kind().fit(items, subjects=users)
    assert weights(model).tobytes() == weights(fresh).tobytes()
    model.save(tmp_path)
    again = load(tmp_path)
    for one in (model, again):
        one.add(["item 00", "new"], subjects=["user 3", "user 3"])
        assert one.items_.tolist() == [*fresh.items_, "new"]
        assert one.check_release().valid
        one.forget(["user 3"])
        assert weights(one).tobytes() == weights(fresh).tobytes()
        assert one.items_.tolist() == fresh.items_.tolist()
    certificate, record = model.certificate_, model.record_
    assert (certificate.status, certificate.n_parameters) == ("exact", 0)
    assert (EASE_PAIRS in certificate.not_covered) == (kind is EASE)
    assert verify(certificate, record).valid


def test_a_user_of_the_model_may_bring_more() -> None:
    table = [["ann", "x"], ["ann", "y"], ["bob", "x"], ["cay", "z"]]
    model = EASE(l2=2).fit(table).add([["bob", "z"], ["dan", "y"]])
    fresh = EASE(l2=2).fit([*table, ["bob", "z"], ["dan", "y"]])
    assert weights(model).tobytes() == weights(fresh).tobytes()
    assert model.certificate_.n_subjects_removed == 0
    assert model.certificate_.n_subjects_added == 2
    model.forget(["bob", "dan"])
    fresh = EASE(l2=2).fit([["ann", "x"], ["ann", "y"], ["cay", "z"]])
    assert weights(model).tobytes() == weights(fresh).tobytes()


def test_ratings_are_whole_numbers() -> None:
    table = [["ann", "x", 5], ["ann", "y", 1], ["bob", "x", 2], ["bob", "z", 3]]
    model = EASE(l2=0.5).fit(table)
    X = sparse.csr_array(np.array([[5, 1, 0], [2, 0, 3]]))
    assert (
        np.abs(weights(model) * 2.0**-20 - reference(X, 0.5)).max() <= 2.0**-21 + 1e-12
    )
    by_columns = EASE(l2=0.5).fit(X, subjects=["ann", "bob"])
    assert (weights(by_columns) == weights(model)).all()
    assert model.recommend({"z": 3}, k=1).tolist() == ["x"]


def test_a_learnt_item_leaves_with_its_last_user_and_a_declared_one_stays() -> None:
    table = [["ann", "x"], ["ann", "rare"], ["bob", "x"], ["bob", "y"]]
    learnt = EASE(l2=2).fit(table).forget(["ann"])
    assert learnt.items_.tolist() == ["x", "y"]
    kept: Any = exact_model(learnt).formula
    assert "rare" not in kept.items
    declared = EASE(l2=2, items=["rare", "x", "y"]).fit(table).forget(["ann"])
    assert declared.items_.tolist() == ["rare", "x", "y"]
    assert declared.recommend(["x"], k=5).tolist()[0] == "y"
    with pytest.raises(InvalidInput, match="'q' is not among the declared items"):
        declared.add([["cay", "q"]])


@pytest.mark.parametrize("make", [lambda: EASE(l2=2), Popularity])
def test_rows_with_an_item_whose_name_has_gone_are_refused(make: Any) -> None:
    """As where a restriction is lifted: the name would have to come from nowhere."""
    model = make().fit([["ann", "x"], ["ann", "rare"], ["bob", "x"], ["bob", "y"]])
    kept: Any = exact_model(model).training_rows
    rows = kept.rows.take(kept.find({"ann"}))
    model.forget(["ann"])
    with pytest.raises(InvalidInput, match="left the model with its last user"):
        exact_model(model).add(rows)


def test_published_weights_leave_and_recommendations_alone_do_not() -> None:
    table = [["ann", "x"], ["ann", "y"], ["bob", "x"], ["bob", "z"]]
    model = EASE(l2=2).fit(table)
    assert not model._public.release.theta.size
    with pytest.raises(NoPrivateState):
        pickle.loads(pickle.dumps(model)).recommend(["x"])
    published = EASE(l2=2, publish="weights").fit(table)
    copy = pickle.loads(pickle.dumps(published))
    assert copy.recommend(["x"]).tolist() == model.recommend(["x"]).tolist()
    assert published.certificate_.n_parameters == 9
    assert published.check_release().valid


def recovered(before: Any, after: Any) -> set[int]:
    """Return the items of a single leaver, from the weights of two releases alone.

    I - B = P D^-1 with D the diagonal of P, so that row i of (I - B)^-1 = D (G + l2 I)
    is that of G + l2 I but for a factor. Rows of items that a leaver did not have keep
    their proportions, and the others do not.
    """
    rows = [np.linalg.inv(np.eye(len(B)) - B * 2.0**-20) for B in (before, after)]
    first, second = (L / L.diagonal()[:, None] for L in rows)
    return {*np.flatnonzero(np.abs(first - second).max(axis=1) > 1e-4).tolist()}


def test_two_published_matrices_give_a_leaver_away() -> None:
    """What ``not_covered`` says, tried: the whole list of each who leaves alone."""
    rng, right, tries = np.random.default_rng(9), 0, either(10, thorough=50)
    X = interactions(1)
    items = sorted({f"{j}" for j in range(N_ITEMS)})
    place = [int(name) for name in items]
    model = EASE(l2=20, items=items, publish="weights").fit(X, subjects=USERS)
    for user in rng.permutation(N_USERS)[:tries].tolist():
        after = EASE(l2=20, items=items, publish="weights")
        after.fit(*without(X, USERS[user])[:1], subjects=without(X, USERS[user])[1])
        found = recovered(weights(model), weights(after))
        right += {place[j] for j in found} == set(X[[user]].indices.tolist())
    assert right == tries


def test_a_registry_recommends_and_keeps_the_weights(tmp_path: Path) -> None:
    X = interactions()
    items, users = pairs_of(X, USERS)
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("films", EASE(l2=20), items, subjects=users)
        registry.fit("top", Popularity(), items, subjects=users)
        registry.forget(["user 3", "user 7"])
        left, names = without(X, "user 3", "user 7")
        some, theirs = pairs_of(left, names)
        fresh = EASE(l2=20).fit(some, subjects=theirs)
        for item in fresh.items_[:5].tolist():
            found = registry.models.recommend("films", [item], k=9)
            assert found == fresh.recommend([item], k=9).tolist()
        top = Popularity().fit(some, subjects=theirs).recommend(k=3).tolist()
        assert registry.models.recommend("top", [], k=3) == top
        registry.models.refit(
            "films", EASE(l2=20), items, subjects=users, without_forgotten=True
        )
        again = registry.models.recommend("films", ["item 00"], k=9)
        assert again == fresh.recommend(["item 00"], k=9).tolist()
        with pytest.raises(Unsupported, match="not shipped as one file"):
            registry.models.ship("films", tmp_path / "films.safetensors")
        with pytest.raises(Unsupported, match="refit"):
            registry.add("films", ["item 00"], [1], subjects=["new"])


def test_bad_input_changes_nothing() -> None:
    table = [["ann", "x"], ["ann", "y"], ["bob", "x"]]
    model = EASE(l2=2).fit(table)
    before = weights(model).tobytes()

    def refuses(what: Callable[[], object], words: str, *also: type[Exception]) -> None:
        with pytest.raises(also or InvalidInput, match=words):
            what()
        assert weights(model).tobytes() == before

    twice = [["cay", "x"], ["dan", "x"], ["cay", "x"]]
    refuses(lambda: EASE().fit(twice), "an item twice: pairs 0 and 2")
    refuses(lambda: model.add(twice), "an item twice: pairs 0 and 2")
    refuses(lambda: model.add([["bob", "x"]]), "an item twice")
    refuses(lambda: model.add([["cay", "x", -1]]), "rating -1 of pair 0")
    refuses(lambda: model.add([["cay", "x", 1.5]]), "whole numbers from 1")
    refuses(lambda: model.add([["cay", "x", 2**21]]), "to 1048576")
    refuses(lambda: model.forget(["nobody"]), "nobody was removed", UnknownSubject)
    refuses(lambda: model.forget(["ann", "bob"]), "delete the model", CannotRemove)
    refuses(lambda: model.forget(X=[["x"]], y=[1]), "forget people by", Unsupported)
    bare = sparse.csr_array(np.array([[1, 0], [0, 0]]))
    refuses(lambda: EASE().fit(bare, subjects=["a", "b"]), "row 1, counted from 0")
    refuses(lambda: EASE().fit(bare[:1], subjects=["a"], y=[1]), "omit y")
    refuses(lambda: EASE().fit(["x", "y"]), "a table of user and item")
    refuses(lambda: EASE(l2=0).fit(table), "l2=0")
    refuses(lambda: EASE(l2=1 / 3).fit(table), "a multiple of 1/1024")
    refuses(lambda: EASE(publish="all").fit(table), "publish='all'")
    refuses(lambda: model.recommend(["x", "x"]), "named twice")
    refuses(lambda: model.recommend(["x"], k=0), "at least one item")
    refuses(lambda: model.similar_items("q"), "not, or no longer")
    refuses(lambda: require_room(MOST_ITEMS + 1), r"would take \d GiB")
    assert model.recommend(["q"]).tolist() == []
    small = np.full((2, 2), 2.0**40) + np.diag([2.0**-9] * 2)
    refuses(lambda: decided_ratios.ratios(small), "l2 is so small", CannotFit)
