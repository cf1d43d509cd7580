# SPDX-License-Identifier: Apache-2.0
"""Encoders from elsewhere, their embeddings, and heads on them."""

import fcntl
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from decimal import Decimal
from math import exp
from pathlib import Path
from shutil import copyfile
from threading import Barrier
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as Plain

import expunge
from expunge import (
    Budget,
    EmbeddingCache,
    EmbeddingClassifier,
    FixedMap,
    LinearRegression,
    LogisticRegression,
    TunedClassifier,
    read_shipped,
    ship,
)
from expunge.exceptions import InvalidInput, StoreFailed, UnknownSubject, Unsupported
from expunge.linear_model.base import private_model
from expunge.promise.group import Spent
from expunge.registry import Registry

WIDTH = 24


class Encoder:
    """Sums of directions of letters, like a model of sentences that was downloaded."""

    def __init__(self, seed: int = 0, width: int = WIDTH) -> None:
        self.table = np.random.default_rng(seed).normal(size=(256, width))
        self.calls: list[int] = []

    def encode(self, sentences: list[str]) -> NDArray[np.float32]:
        self.calls.append(len(sentences))
        rows = np.array([self.table[list(text.encode())].mean(0) for text in sentences])
        # What others are in the batch changes the last bits, as BLAS and padding do.
        return np.asarray(rows * (1.0 + 1e-7 * len(sentences)), np.float32)


def problem(
    n: int = 150, n_classes: int = 2, seed: int = 0
) -> tuple[list[str], NDArray[Any], list[str]]:
    """Return texts of some kinds, with two texts for each person."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    y = rng.integers(0, n_classes, size=n)
    texts = ["".join(rng.choice(letters[4 * k : 4 * k + 9], 30)) for k in y]
    return texts, y, [f"person {i // 2}" for i in range(n)]


def distance_and_bound(ours: Any, fresh: Any) -> tuple[float, float]:
    mine, exact = private_model(ours).answer, private_model(fresh).answer
    distance = np.linalg.norm(mine.draft.theta - exact.draft.theta)
    return float(distance), mine.radius.value + exact.radius.value


def test_forgetting_is_fitting_the_embeddings_that_remain(tmp_path: Path) -> None:
    X, y, people = problem()
    encoder = Encoder()
    made_by = FixedMap(encoder, name="letters", batch=32)
    ours = LogisticRegression(alpha=1e-2, preprocessing=made_by).fit(X, y, people)
    assert ours.score(X, y) > 0.9
    kept: Any = private_model(ours).kept_rows()
    embedded = np.vstack([encoder.encode(X[i : i + 32]) for i in range(0, 150, 32)])
    np.testing.assert_array_equal(kept.dense()[:, :-1], embedded)
    calls = len(encoder.calls)
    ours.forget(["person 3"])
    assert len(encoder.calls) == calls  # nothing is encoded again
    ours.save(tmp_path / "model")
    ours = expunge.load(tmp_path / "model")
    with pytest.raises(Unsupported, match=r"'letters' is not here.*encoder=\.\.\."):
        ours.predict(X)
    with pytest.raises(Unsupported, match="forgotten by their ids"):
        ours.add(X[:1], y[:1], subjects=["new"])
    ours.forget(["person 5"])  # by id no encoder is needed
    ours.save(tmp_path / "model")
    ours = expunge.load(tmp_path / "model", encoder=encoder)
    assert ours.score(X, y) > 0.9
    ours.add(X[6:8], y[6:8], subjects=["person 3", "person 3"])
    left = np.array([person != "person 5" for person in people])
    fresh = LogisticRegression(alpha=1e-2).fit(embedded[left], y[left])
    distance, bound = distance_and_bound(ours, fresh)
    assert distance <= bound + 1e-5  # rows that came back were rounded otherwise


def test_another_encoder_is_refused(tmp_path: Path) -> None:
    X, y, people = problem()
    made_by = FixedMap(Encoder(), digest="aa")
    ours = LogisticRegression(preprocessing=made_by).fit(X, y, people)
    ours.save(tmp_path / "model")
    ship(ours, tmp_path / "model.safetensors")
    for other in (Encoder(1), Encoder(0, 7), FixedMap(Encoder(), digest="bb")):
        with pytest.raises(InvalidInput, match="not 'Encoder' of the fit"):
            expunge.load(tmp_path / "model", encoder=other)
        with pytest.raises(InvalidInput, match="not 'Encoder' of the fit"):
            read_shipped(tmp_path / "model.safetensors", encoder=other)
    shipped = read_shipped(
        tmp_path / "model.safetensors", encoder=FixedMap(Encoder(), digest="aa")
    )
    np.testing.assert_array_equal(shipped.predict_proba(X), ours.predict_proba(X))
    numbers = LogisticRegression().fit(np.eye(2), [0, 1])
    numbers.save(tmp_path / "numbers")
    with pytest.raises(InvalidInput, match="takes numbers; leave encoder out"):
        expunge.load(tmp_path / "numbers", encoder=Encoder())
    with pytest.raises(Unsupported, match="safetensors"):
        ship(ours, tmp_path / "model.onnx")
    np.testing.assert_allclose(
        ours.to_sklearn().predict_proba(X), ours.predict_proba(X)
    )


BAD: list[tuple[Any, str]] = [
    (lambda texts: np.full((len(texts), 3), np.nan), "infinite or missing"),
    (
        lambda texts: np.zeros((len(texts), len(texts[0]))),
        "rows of .* and of .* numbers",
    ),
    (lambda texts: np.zeros(len(texts)), "a row for each input"),
    (lambda texts: np.zeros((1, 3)), "a row for each input"),
    (lambda texts: [None] * len(texts), "a row for each input"),
    (
        lambda texts: np.arange(3.0 * len(texts)).reshape(-1, 3),
        "learns from the inputs",
    ),
    (lambda texts: np.random.default_rng().normal(size=(len(texts), 3)), "at random"),
    (lambda texts: texts.shape, "give probes="),
]


@pytest.mark.parametrize(("encoder", "message"), BAD)
def test_an_encoder_that_cannot_be_used_is_refused(encoder: Any, message: str) -> None:
    X, y, people = problem()
    short = [text[: 3 + i % 2] for i, text in enumerate(X)]
    model = LogisticRegression(preprocessing=FixedMap(encoder, name="bad", batch=2))
    with pytest.raises(InvalidInput, match=message):
        model.fit(short, y, people)
    assert not hasattr(model, "_snapshot")


def test_a_row_is_as_long_alone_as_among_others() -> None:
    widths = FixedMap(lambda texts: np.ones((len(texts), 2 + len(texts))), name="bad")
    X, y, people = problem()
    with pytest.raises(InvalidInput, match="something else of an input alone"):
        LogisticRegression(preprocessing=widths).fit(X, y, people)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_input_is_refused_before_the_encoder(missing: Any) -> None:
    X, y, people = problem()
    ours = LogisticRegression(preprocessing=FixedMap(Encoder())).fit(X, y, people)
    for act in (
        lambda: ours.fit([*X[:-1], missing], y, people),
        lambda: ours.predict([X[0], missing]),
    ):
        with pytest.raises(InvalidInput, match=r"input \d+, .*is missing"):
            act()
    ours.forget(["person 1"])


def test_an_encoder_that_fails_later_changes_nothing(tmp_path: Path) -> None:
    X, y, people = problem()
    encoder = Encoder()
    ours = LogisticRegression(preprocessing=FixedMap(encoder)).fit(X, y, people)
    before = ours.coef_.copy()
    encoder.table[:] = np.nan
    for act in (
        lambda: ours.add(X[:1], y[:1], subjects=["a"]),
        lambda: ours.predict(X),
    ):
        with pytest.raises(InvalidInput, match="infinite or missing"):
            act()
    with pytest.raises(InvalidInput, match="infinite or missing"):
        ours.fit(X, y, people)
    np.testing.assert_array_equal(ours.coef_, before)
    ours.forget(["person 1"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "two\nlines"}, "printable"),
        ({"digest": "x" * 101}, "printable"),
        ({"seen": "everybody"}, "use 'unknown' or 'nobody'"),
        ({"name": 5}, "printable"),
        ({"digest": b"aa"}, "printable"),
        ({"batch": 0}, "at least 1"),
        ({"batch": 2.5}, "at least 1"),
        ({"cache": "folder"}, r"EmbeddingCache\(folder\)"),
        ({"dp": (1.0,)}, "give \\(epsilon, delta\\)"),
        ({"dp": (-1.0, 0.0)}, "zero or positive"),
        ({"dp": (1.0, 2.0)}, "between 0 and 1"),
        ({"dp": (1.0, 0.0), "seen": "nobody"}, "give only one"),
        ({"encoder": 3}, "a function of a list"),
    ],
)
def test_what_cannot_be_stated_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        FixedMap(**{"encoder": Encoder()} | given)


class TestCertificate:
    """It says whether the encoder is unlearned, and what a private one costs."""

    def certify(self, **given: Any) -> Any:
        X, y, people = problem()
        made_by = FixedMap(Encoder(), name="letters", **given)
        budget = Budget(epsilon=1.0, delta=1e-5, sigma=0.5)
        model = LogisticRegression(preprocessing=made_by, budget=budget)
        model.fit(X, y, people).forget(["person 2"])
        assert model.certificate_.status == "certified"
        assert expunge.verify(model.certificate_, model.record_).valid
        return model.certificate_

    def test_names_encoder_and_digest(self) -> None:
        certificate = self.certify(digest="sha256:aa")
        (stated,) = [t for t in certificate.assumptions if "embedding of one" in t]
        assert '"digest":"sha256:aa"' in stated
        assert '"name":"letters"' in stated

    def test_the_encoder_is_not_unlearned(self) -> None:
        (stated,) = [t for t in self.certify().not_covered if "encoder" in t]
        assert stated.startswith("the encoder letters: what it learnt from people who")

    def test_unless_it_never_saw_them(self) -> None:
        certificate = self.certify(seen="nobody")
        assert not [t for t in certificate.not_covered if "encoder" in t]
        assert any("never saw data of anybody" in t for t in certificate.assumptions)

    def test_a_private_encoder_composes(self) -> None:
        certificate = self.certify(dp=(0.1, 1e-5))
        (stated,) = [t for t in certificate.not_covered if "encoder" in t]
        assert "at most epsilon 1.1 and delta 0.00002 in all" in stated
        assert "epsilon 1.0 + m 0.1 and delta 0.00001 + m e^((m - 1) 0.1) 0.00001" in (
            stated
        )
        assert any(
            "with epsilon 0.1 and delta 0.00001 for one of its rows" in text
            for text in certificate.assumptions
        )

    def test_totals_are_never_rounded_down(self) -> None:
        certificate = self.certify(dp=(2.0**-70, 0.1 + 2**-53))
        (stated,) = [t for t in certificate.not_covered if "encoder" in t]
        words = stated.partition("at most epsilon ")[2].split()
        assert Decimal(words[0]) > 1
        assert Decimal(words[3]) == Decimal("0.00001") + Decimal(str(0.1 + 2**-53))


class TestGroup:
    """Two private steps, by a mechanism whose law is known: randomised response."""

    @pytest.mark.parametrize("n_rows", [1, 2, 5])
    @pytest.mark.parametrize("epsilon", [0.05, 0.7])
    def test_a_group_of_rows_costs_no_more(self, n_rows: int, epsilon: float) -> None:
        # Each row flips a coin of its own; all of them together are the worst group.
        p = exp(epsilon) / (1.0 + exp(epsilon))
        group, head = Spent(epsilon, 1e-6).of_group(n_rows), Spent(0.5, 1e-7)
        assert (p / (1.0 - p)) ** n_rows <= exp(group.epsilon) * (1.0 + 1e-12)
        total = group.and_then(head)
        assert total.epsilon == pytest.approx(n_rows * epsilon + 0.5)
        series = sum(1e-6 * exp(i * epsilon) for i in range(n_rows))
        assert group.delta >= series * (1.0 - 1e-12)

    def test_encoder_and_head_compose(self) -> None:
        # An encoder that tells a bit by (epsilon, delta), and a head that tells it
        # again by another: no event is likelier than the sum says.
        rng = np.random.default_rng(0)
        for _ in range(200):
            first, second = rng.uniform(0.0, 1.5, 2)
            d1, d2 = rng.uniform(0.0, 0.2, 2)
            total = Spent(first, d1).and_then(Spent(second, d2))
            e, h = _worst_pair(first, d1), _worst_pair(second, d2)
            both = np.einsum("wi,wj->wij", e, h).reshape(2, -1)
            excess = np.maximum(both[0] - exp(total.epsilon) * both[1], 0.0).sum()
            assert excess <= total.delta + 1e-12


def _worst_pair(epsilon: float, delta: float) -> NDArray[Any]:
    """Return the two laws that are as far apart as (epsilon, delta) allows."""
    p = (1.0 - delta) * exp(epsilon) / (1.0 + exp(epsilon))
    q = (1.0 - delta) / (1.0 + exp(epsilon))
    return np.array([[delta, p, q, 0.0], [0.0, q, p, delta]])


class TestEmbeddingClassifier:
    """An encoder and a head; without the encoder a head of embeddings."""

    def test_is_the_map_and_a_head(self, tmp_path: Path) -> None:
        X, y, people = problem(n_classes=3)
        ours = EmbeddingClassifier(Encoder(), budget=Budget(sigma=0.3))
        ours.fit(X, y, people).forget(["person 1"])
        assert ours.score(X, y) > 0.8
        assert ours.certificate_.objective["loss"]["name"] == "Multinomial"
        np.testing.assert_allclose(ours.predict_proba(X).sum(axis=1), 1.0)
        np.testing.assert_allclose(
            ours.to_sklearn().predict_proba(X), ours.predict_proba(X)
        )
        ours.save(tmp_path / "model")
        loaded = expunge.load(tmp_path / "model", encoder=Encoder())
        np.testing.assert_array_equal(loaded.predict_proba(X), ours.predict_proba(X))
        loaded.forget(["person 2"])
        again = clone(loaded).fit(X, y, people)
        assert again.score(X, y) > 0.8
        assert deepcopy(FixedMap(Encoder()).encoder) is not None

    def test_takes_softmax_while_its_matrices_are_small(self) -> None:
        rng = np.random.default_rng(0)
        for width, n_classes, loss in (
            (40, 3, "Multinomial"),
            (400, 3, "OneVsRest"),
            (40, 2, "Logistic"),
        ):
            y = np.arange(300) % n_classes
            X = rng.normal(size=(300, width)) / width + y[:, None] / 10
            model = EmbeddingClassifier(alpha=1e-2).fit(X, y)
            assert model.certificate_.objective["loss"]["name"] == loss
            assert model.predict_proba(X).shape == (300, n_classes)

    @pytest.mark.parametrize("loss", ["softmax", "one-vs-rest"])
    def test_the_head_may_be_named(self, loss: str) -> None:
        X, y, people = problem(n_classes=3)
        E = Encoder().encode(X).astype(np.float64)
        model = EmbeddingClassifier(loss=loss, alpha=1e-2, mechanism="retrain")
        model.fit(E, y, people).forget(["person 0"])
        plain = Plain(C=1 / (1e-2 * 148), tol=1e-10, max_iter=10_000)
        if loss == "softmax":
            plain.fit(E[2:], y[2:])
            np.testing.assert_allclose(
                model.predict_proba(E), plain.predict_proba(E), atol=1e-5
            )
        with pytest.raises(InvalidInput, match="choose one of"):
            EmbeddingClassifier(loss="hinge").fit(E, y)

    def test_is_a_model_head_of_setfit(self) -> None:
        # What SetFit does with a head of scikit-learn: rows from its body; pickles.
        class Body:
            def __init__(self, model_head: Any) -> None:
                self.body, self.model_head = Encoder(), model_head

            def fit(self, texts: list[str], labels: list[int]) -> None:
                self.model_head.fit(self.body.encode(texts), labels)

            def predict(self, texts: list[str]) -> Any:
                return self.model_head.predict(self.body.encode(texts))

            def predict_proba(self, texts: list[str]) -> Any:
                return self.model_head.predict_proba(self.body.encode(texts))

        X, y, _ = problem(n_classes=3)
        model = Body(EmbeddingClassifier(budget=Budget(sigma=0.1)))
        model.fit(X, y.tolist())
        model.model_head.forget(rows=[3])
        assert np.mean(model.predict(X) == y) > 0.8
        saved = pickle.loads(pickle.dumps(model.model_head))
        np.testing.assert_array_equal(
            saved.predict_proba(Encoder().encode(X)), model.predict_proba(X)
        )


class TestImages:
    """Inputs may be arrays; then they are recognised by arrays too."""

    def test_arrays(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        images = rng.normal(size=(80, 4, 4))
        y = (images[:, 1, 2] > 0).astype(int)
        known = rng.normal(size=(3, 4, 4))

        def flat(some: NDArray[Any]) -> NDArray[Any]:
            return some.reshape(len(some), -1)

        with pytest.raises(InvalidInput, match="give probes="):
            LogisticRegression(preprocessing=FixedMap(flat)).fit(images, y)
        made_by = FixedMap(flat, probes=known, seen="nobody")
        ours = LogisticRegression(preprocessing=made_by, alpha=1e-3).fit(images, y)
        assert ours.score(images, y) > 0.9
        ours.forget(rows=[3])
        ours.save(tmp_path / "model")
        loaded = expunge.load(tmp_path / "model", encoder=flat)
        np.testing.assert_array_equal(loaded.predict(images), ours.predict(images))


# Makes folders as another process does at that moment, for rows of one's own and of
# both: arguments are where, one's own name, and the other's.
SHARING = """
import sys, time
from pathlib import Path
import numpy as np
from expunge.preprocessing.embedding_cache import EmbeddingCache

place, name, other = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
for number in range(5):
    (place / f"{name} {number}").touch()
    while not (place / f"{other} {number}").exists():
        time.sleep(0)
    EmbeddingCache(place / "folders" / str(number)).complete(
        [name, name],
        [name, "both"],
        identity="x",
        embed=lambda some: np.full((len(some), 2), float(len(name))),
    )
"""


class TestCache:
    """It spares the encoder, and forgets with the person."""

    @pytest.mark.parametrize("kept", [True, False], ids=["folder", "memory"])
    def test_spares_the_encoder_and_forgets(self, kept: bool, tmp_path: Path) -> None:
        X, y, people = problem()
        encoder = Encoder()
        cache = EmbeddingCache(tmp_path / "cache" if kept else None)
        made_by = FixedMap(encoder, cache=cache)
        first = EmbeddingClassifier(made_by).fit(X, y, people)
        n = sum(encoder.calls)
        second = EmbeddingClassifier(made_by, alpha=1e-2).fit(X, y, people)
        assert sum(encoder.calls) - n < 20  # what it is recognised by
        np.testing.assert_array_equal(
            private_model(first).kept_rows().dense(),  # type: ignore[union-attr]
            private_model(second).kept_rows().dense(),  # type: ignore[union-attr]
        )
        second.forget(["person 4"])
        if kept:
            assert len(list((tmp_path / "cache").glob("*.embeddings"))) == 74
            cache = EmbeddingCache(tmp_path / "cache")
            made_by = FixedMap(encoder, cache=cache)
        n = len(encoder.calls)
        EmbeddingClassifier(made_by).fit(X, y, people)
        assert 2 in encoder.calls[n:]  # the two of that person alone
        assert max(encoder.calls[n:]) < 10

    def test_forgotten_embeddings_leave_no_bytes(self, tmp_path: Path) -> None:
        X, y, people = problem()
        made_by = FixedMap(Encoder(), cache=EmbeddingCache(tmp_path))
        ours = EmbeddingClassifier(made_by).fit(X, y, people)
        row = private_model(ours).kept_rows().dense()[8, :-1]  # type: ignore[union-attr]
        held = [
            path for path in tmp_path.iterdir() if row.tobytes() in path.read_bytes()
        ]
        assert len(held) == 1
        with held[0].open("rb") as file:
            ours.forget(["person 4"])
            assert not any(file.read())  # overwritten, for those who have it open
        assert not held[0].exists()
        for path in tmp_path.iterdir():
            assert b"person" not in path.read_bytes()
            assert "person" not in path.name

    @pytest.mark.parametrize("ending", ["new", "old"])
    def test_what_a_killed_process_left_is_forgotten_too(
        self, ending: str, tmp_path: Path
    ) -> None:
        X, y, people = problem()
        made_by = FixedMap(Encoder(), cache=EmbeddingCache(tmp_path))
        ours = EmbeddingClassifier(made_by).fit(X, y, people)
        rows: Any = private_model(ours).kept_rows()
        row = rows.dense()[8, :-1].tobytes()
        for path in [*tmp_path.iterdir()]:
            if row in path.read_bytes():
                copyfile(path, tmp_path / f".{path.name}.{ending}")
        ours.forget(["person 4"])
        assert not any(row in path.read_bytes() for path in tmp_path.iterdir())

    def test_two_processes_may_create_one_folder_at_once(self, tmp_path: Path) -> None:
        names = ("left", "right")
        (tmp_path / "folders").mkdir()
        both = [
            subprocess.Popen([sys.executable, "-c", SHARING, tmp_path, *given])
            for given in (names, names[::-1])
        ]
        assert [one.wait(60) for one in both] == [0, 0]
        for folder in (tmp_path / "folders").iterdir():
            cache, asked = EmbeddingCache(folder), list[Any]()

            def embed(some: Any, asked: list[Any] = asked) -> Any:
                asked.extend(some)
                return np.zeros((len(some), 2))

            texts, owners = [*names, *names], [*names, "both", "both"]
            found = cache.complete(texts, owners, identity="x", embed=embed)
            assert asked == []  # one key, and nobody's file without the other's rows
            assert found[:, 0].tolist() == [4.0, 5.0, 4.0, 5.0]
            cache.forget([*names, "both"])
            assert [path.name for path in folder.iterdir()] == ["key"]

    def test_what_another_process_forgets_is_not_written_back(
        self, tmp_path: Path
    ) -> None:
        ours, other = EmbeddingCache(tmp_path), EmbeddingCache(tmp_path)
        old, new = np.full((1, 4), 3.25), np.full((1, 4), 7.5)

        def complete(inputs: list[str], embed: Any) -> None:
            owners = ["p"] * len(inputs)
            ours.complete(inputs, owners, identity="e", embed=embed)

        def forget_meanwhile(inputs: list[str]) -> Any:
            other.forget(["p"])
            return new

        complete(["old"], lambda inputs: old)
        complete(["old", "new"], forget_meanwhile)
        (file,) = tmp_path.glob("*.embeddings")
        assert old.tobytes() not in file.read_bytes()
        assert new.tobytes() in file.read_bytes()

    def test_all_who_make_a_folder_at_once_have_its_key(self, tmp_path: Path) -> None:
        start = Barrier(8)

        def make(folder: Path) -> None:
            start.wait()
            EmbeddingCache(folder).complete(
                ["a"], ["p"], identity="e", embed=lambda inputs: np.ones((1, 2))
            )

        for place in range(10):
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(make, [tmp_path / str(place)] * 8))
            assert len([*(tmp_path / str(place)).glob("*.embeddings")]) == 1

    def test_nobody_replaces_a_file_while_it_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is replaced is overwritten: its reader would find zeros."""
        real, read = EmbeddingCache._read, list[str]()

        def watched(cache: EmbeddingCache, owner: str) -> Any:
            descriptor = os.open(tmp_path, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(descriptor)
            read.append(owner)
            return real(cache, owner)

        monkeypatch.setattr(EmbeddingCache, "_read", watched)
        for _ in range(2):
            EmbeddingCache(tmp_path).complete(
                ["a"], ["p"], identity="e", embed=lambda inputs: np.ones((1, 2))
            )
        assert read == ["p"] * 3  # to look, to keep, and to look again

    def test_folders_that_cannot_be_used_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "key").write_bytes(b"")
        with pytest.raises(InvalidInput, match="is no key of an EmbeddingCache"):
            EmbeddingCache(tmp_path)
        with pytest.raises(StoreFailed, match="cannot be used"):
            EmbeddingCache(tmp_path / "key")
        with pytest.raises(StoreFailed, match="cannot be used"):
            EmbeddingCache(tmp_path / "missing" / "cache")

    def test_another_encoder_finds_nothing_there(self, tmp_path: Path) -> None:
        X, y, people = problem()
        cache = EmbeddingCache(tmp_path)
        for encoder in (Encoder(0), Encoder(1), Encoder(2, 7), Encoder(0)):
            made_by = FixedMap(encoder, cache=cache)
            ours = EmbeddingClassifier(made_by).fit(X, y, people)
            rows: Any = private_model(ours).kept_rows()
            np.testing.assert_allclose(
                rows.dense()[:, :-1], encoder.encode(X), rtol=1e-4
            )

    def test_needs_to_know_whose_inputs_are(self, tmp_path: Path) -> None:
        X, y, people = problem()
        ours = EmbeddingClassifier(FixedMap(Encoder(), cache=EmbeddingCache()))
        with pytest.raises(InvalidInput, match="pass the owner of each input"):
            ours.fit(X, y)
        ours.fit(X, y, people)
        with pytest.raises(InvalidInput, match="forget people by their ids"):
            ours.forget(X=X[:1], y=y[:1])
        with pytest.raises(UnknownSubject):
            ours.forget(["stranger"])
        with Registry.create(tmp_path / "registry") as registry:
            with pytest.raises(Unsupported, match="leave cache out"):
                registry.fit("model", ours, X, y, subjects=people)

    def test_takes_texts_and_arrays_and_no_copies(self) -> None:
        X, y, people = problem()
        cache = EmbeddingCache()
        made_by = FixedMap(
            lambda pairs: Encoder().encode([a + b for a, b in pairs]),
            probes=[("a", "b"), ("b", "c"), ("c", "d")],
            cache=cache,
        )
        pairs = [(text[:9], text[9:]) for text in X]
        with pytest.raises(Unsupported, match="leave cache out"):
            EmbeddingClassifier(made_by).fit(pairs, y, people)
        with pytest.raises(TypeError, match="not copied"):
            pickle.dumps(cache)
        model = EmbeddingClassifier(FixedMap(Encoder(), cache=cache))
        copied = pickle.loads(pickle.dumps(model.fit(X, y, people)))
        np.testing.assert_array_equal(copied.predict(X), model.predict(X))
        assert copied.encoder.cache is None
        assert "private" in repr(cache)


def test_registry_keeps_embeddings_and_forgets_without_the_encoder(
    tmp_path: Path,
) -> None:
    X, y, people = problem()
    with Registry.create(tmp_path / "registry") as registry:
        ours = EmbeddingClassifier(Encoder(), budget=Budget(sigma=0.05))
        registry.fit("model", ours, X, y, subjects=people)
    with Registry.open(tmp_path / "registry") as registry:
        registry.forget(["person 8", "person 9"])
        registry.models.reanchor("model")
        model = registry.model("model")
        assert model.certificate_.status == "certified"
        with pytest.raises(Unsupported, match="is not here"):
            model.predict(X)
        with pytest.raises(Unsupported, match="is not here"):
            registry.add("model", X[:1], y[:1], subjects=["new"])
        registry.forget(["person 10"])


@pytest.mark.parametrize("kind", [TunedClassifier, LinearRegression])
def test_other_estimators(kind: Any) -> None:
    X, y, people = problem()
    ours = kind(preprocessing=FixedMap(Encoder())).fit(X, y, people)
    assert ours.forget(["person 4"]).score(X, y) > 0.5
