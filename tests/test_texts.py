# SPDX-License-Identifier: Apache-2.0
"""Texts and dicts hashed into rows, in everything that a model does."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import expunge
from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
    load,
    read_shipped,
    ship,
)
from expunge.exceptions import InvalidInput, UnknownRows, Unsupported
from expunge.linear_model.base import private_model, public_model
from expunge.preprocessing.automatic import ColumnsWarning
from expunge.preprocessing.hashed import HashedTexts, read_input_map
from expunge.preprocessing.inputs import encode_inputs
from expunge.registry import Registry
from tests.calling import call

HASHED = HashingVectorizer(n_features=2**9)
ALPHABET = list("abcdefgh ÄßéİŁ,.!12 ")


def problem(n: int = 120, seed: int = 0) -> tuple[list[str], NDArray[Any], list[str]]:
    """Return texts of two kinds, with two texts for each person."""
    rng = np.random.default_rng(seed)
    words = np.array([f"word{i}" for i in range(90)])
    y = rng.integers(0, 2, size=n)
    texts = [" ".join(rng.choice(words[:55] if k else words[35:], 9)) for k in y]
    return texts, y, [f"person {i // 2}" for i in range(n)]


def model(**options: Any) -> LogisticRegression:
    return LogisticRegression(alpha=1e-2, **({"preprocessing": HASHED} | options))


def rows_of(X: Any, step: Any) -> Any:
    made_by = read_input_map(step)
    assert made_by is not None
    return encode_inputs(made_by, X).rows


@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb"])
@pytest.mark.parametrize("norm", [None, "l1", "l2"])
def test_a_text_alone_makes_the_row_that_it_makes_among_others(
    analyzer: Any, norm: Any
) -> None:
    rng = np.random.default_rng(1)
    texts = ["".join(rng.choice(ALPHABET, rng.integers(0, 300))) for _ in range(400)]
    step = HashingVectorizer(
        n_features=37, analyzer=analyzer, norm=norm, ngram_range=(1, 2)
    )
    block = rows_of(texts, step)
    np.testing.assert_array_equal(block.toarray(), step.transform(texts).toarray())
    for place, text in enumerate(texts):
        alone = rows_of([text], step)
        for part in ("data", "indices"):
            among = getattr(block[place : place + 1], part)
            assert getattr(alone, part).tobytes() == among.tobytes()


@pytest.mark.parametrize("norm", [None, "l2"])
@pytest.mark.parametrize("keep", [True, "encoded", False], ids=str)
def test_forgetting_is_fitting_the_remaining_texts(
    keep: Any, norm: Any, tmp_path: Path
) -> None:
    X, y, people = problem()
    step = HashingVectorizer(n_features=2**6, norm=norm)
    ours = model(preprocessing=step, keep_data=keep).fit(X, y, people)
    assert ours.score(X, y) > 0.8
    if keep:
        ours.forget(["person 3"])
    else:
        ours.forget(X=X[6:8], y=y[6:8])
    ours.forget(X=X[20:21], y=y[20:21])
    ours.save(tmp_path / "model")
    ours = expunge.load(tmp_path / "model")
    ours.forget(X=X[40:42], y=y[40:42])
    ours.add(X[6:8], y[6:8], subjects=["person 3", "person 3"])
    with pytest.raises(UnknownRows):
        ours.forget(X=["no such text"], y=[1])
    left = np.setdiff1d(np.arange(len(X)), [20, 40, 41])
    fresh = model(preprocessing=step).fit([X[i] for i in left], y[left])
    mine, exact = private_model(ours).answer, private_model(fresh).answer
    distance = np.linalg.norm(mine.draft.theta - exact.draft.theta)
    assert distance <= mine.radius.value + exact.radius.value
    plain = Plain(C=1 / (1e-2 * len(left)), tol=1e-10, max_iter=10_000)
    plain.fit(step.transform([X[i] for i in left]), y[left])
    np.testing.assert_allclose(fresh.coef_, plain.coef_, atol=1e-6)


@pytest.mark.parametrize(
    "given", [list, tuple, np.array, pd.Series, pl.Series, "objects", "frame"], ids=str
)
def test_texts_come_as_lists_columns_and_frames_of_one_column(given: Any) -> None:
    X, y, _ = problem()
    if given == "objects":
        texts: Any = np.array(X, dtype=object)[:, None]
    elif given == "frame":
        texts = pd.DataFrame({"body": X})
    else:
        texts = given(X)
    ours = model().fit(texts, y)
    np.testing.assert_array_equal(ours.coef_, model().fit(X, y).coef_)
    np.testing.assert_array_equal(ours.predict(texts), ours.predict(X))
    assert ours.n_features_in_ == 2**9
    assert len(ours.get_feature_names_out()) == 2**9
    assert ours.predict([]).shape == (0,)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a text", "X is one str; give a list"),
        (["a", None], "text 1, counted from 0, is no text but missing; put '' in"),
        (["a", pd.NA], "text 1, counted from 0, is no text but missing; put '' in"),
        ([1.0, 2.0], "text 0, .* is no text but float; give a list of texts"),
        (["a"], "inconsistent numbers of samples"),
        (np.array([["a", "b"], ["c", "d"]]), "is no text but ndarray"),
        (pd.DataFrame({"a": ["x", "y"], "b": ["x", "y"]}), "X has 2 columns"),
    ],
)
def test_bad_inputs_change_nothing(X: Any, message: str) -> None:
    ours = model().fit(*problem())
    before = ours.coef_
    with pytest.raises(ValueError, match=message):
        ours.add(X, [0, 1], subjects=["a", "b"])
    with pytest.raises(ValueError, match=message):
        ours.fit(X, [0, 1])
    assert ours.coef_ is before or np.array_equal(ours.coef_, before)
    ours.forget(["person 1"])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (CountVectorizer(), "learns which words there are"),
        (TfidfVectorizer(), "learns which words there are"),
        (DictVectorizer(), "learns which words there are"),
        (HashingVectorizer(analyzer=str.split), "analyzer=.*is code"),
        (HashingVectorizer(tokenizer=str.split), "tokenizer=.*is code"),
        (HashingVectorizer(preprocessor=str.lower), "preprocessor=.*is code"),
        (HashingVectorizer(strip_accents=str.lower), "strip_accents=.*is code"),
        (HashingVectorizer(input="filename"), "give their texts"),
        (HashingVectorizer(dtype=np.float32), "leave dtype out"),
        (HashingVectorizer(n_features=0), "use a number of columns"),
        (make_pipeline(HashingVectorizer(), StandardScaler()), "beside other steps"),
        (make_pipeline(HashingVectorizer(), TfidfTransformer()), "alternate_sign="),
        (
            make_pipeline(
                HashingVectorizer(alternate_sign=False),
                TfidfTransformer(sublinear_tf=True),
            ),
            "leave sublinear_tf at its default",
        ),
        (
            make_pipeline(
                HashingVectorizer(alternate_sign=False), TfidfTransformer(norm="l3")
            ),
            "'l1', 'l2' or None",
        ),
    ],
    ids=str,
)
def test_what_is_code_or_learns_is_refused(step: Any, message: str) -> None:
    X, y, people = problem()
    with pytest.raises((InvalidInput, Unsupported), match=message):
        model(preprocessing=step).fit(X, y, people)


def test_a_pipeline_of_one_step_is_that_step() -> None:
    X, y, _ = problem()
    ours = model(preprocessing=make_pipeline(HASHED)).fit(X, y)
    np.testing.assert_array_equal(ours.coef_, model().fit(X, y).coef_)


@pytest.mark.parametrize("input_type", ["dict", "pair", "string"])
def test_dicts_pairs_and_words(input_type: Any, tmp_path: Path) -> None:
    texts, y, people = problem()
    X: list[Any] = [text.split() for text in texts]
    if input_type != "string":
        X = [[(word, 0.5 + place) for place, word in enumerate(row)] for row in X]
    if input_type == "dict":
        X = [dict(row) for row in X]
    step = FeatureHasher(n_features=2**7, input_type=input_type)
    ours = model(preprocessing=step, mechanism="retrain").fit(X, y, people)
    ours.forget(["person 2"])
    ours.forget(X=X[:1], y=y[:1])
    ours.save(tmp_path / "model")
    ours = expunge.load(tmp_path / "model").forget(["person 5"])
    left = np.setdiff1d(np.arange(len(X)), [0, 4, 5, 10, 11])
    fresh = model(preprocessing=step).fit([X[i] for i in left], y[left])
    np.testing.assert_allclose(ours.coef_, fresh.coef_, atol=1e-7)
    np.testing.assert_allclose(
        ours.to_sklearn().predict_proba(X), ours.predict_proba(X)
    )
    with pytest.raises(InvalidInput, match="counted from 0"):
        ours.predict(["text"])


def test_certificate_states_the_hashing_and_rows_nothing() -> None:
    X, y, people = problem()
    ours = model(budget=Budget(sigma=0.3)).fit(X, y, people).forget(["person 1"])
    certificate = ours.certificate_
    assert certificate.status == "certified"
    (stated,) = [text for text in certificate.assumptions if "HashedTexts" in text]
    assert '"n_features":512' in stated
    assert expunge.verify(certificate, ours.record_).valid
    assert "word" not in repr(private_model(ours)) + repr(ours._snapshot)


def test_another_hashing_is_refused_before_anything_changes(tmp_path: Path) -> None:
    X, y, people = problem()
    ours = model().fit(X, y, people)
    ours.save(tmp_path / "model")
    other: Any = expunge.load(tmp_path / "model")
    made_by = private_model(other).encoding.input_map
    object.__setattr__(made_by, "bits", "0" * 64)
    acts: list[Any] = [
        lambda: other.forget(X=X[:1], y=y[:1]),
        lambda: other.add(X[:1], y[:1], subjects=["new"]),
    ]
    for act in acts:
        with pytest.raises(InvalidInput, match="hashes otherwise"):
            act()
    other.forget(["person 0"])  # by id no text is read


def test_shipped_and_plain_models_predict_the_same(tmp_path: Path) -> None:
    X, y, people = problem()
    ours = model(budget=Budget(sigma=0.3)).fit(X, y, people)
    ship(ours, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        read_shipped(tmp_path / "model.safetensors").predict_proba(X),
        ours.predict_proba(X),
    )
    np.testing.assert_allclose(
        ours.to_sklearn().predict_proba(X), ours.predict_proba(X)
    )
    with pytest.raises(Unsupported, match="safetensors"):
        ship(ours, tmp_path / "model.onnx")


def test_registry(tmp_path: Path) -> None:
    X, y, people = problem()
    with Registry.create(tmp_path / "registry") as registry:
        ours = model(budget=Budget(sigma=0.01))
        registry.fit("model", ours, X, y, subjects=people)
        registry.forget(["person 7"])
    with Registry.open(tmp_path / "registry") as registry:
        registry.forget(["person 8", "person 9"])
        registry.add("model", ["word1 word2"], [1], subjects=["new"])
        registry.models.reanchor("model")
        certificate = registry.model("model").certificate_
        assert certificate.status == "certified"
        assert expunge.verify(certificate, registry.models.record("model")).valid
        assert registry.model("model").score(X, y) > 0.8
        registry.models.refit(
            "model", ours, X, y, subjects=people, without_forgotten=True
        )
    for file in (tmp_path / "registry").rglob("*"):
        assert not file.is_file() or b"word1 word2" not in file.read_bytes()


@pytest.mark.parametrize("kind", [SoftmaxRegression, TunedClassifier, LinearRegression])
def test_other_estimators(kind: Any) -> None:
    X, y, people = problem()
    ours = kind(preprocessing=HASHED).fit(X, y, people).forget(["person 4"])
    assert ours.score(X, y) > 0.7
    balanced: Any = {} if kind is LinearRegression else {"class_weight": "balanced"}
    ours = kind(preprocessing=HASHED, **balanced).fit(X, y, people)
    ours.forget(["person 4"])


def test_a_fit_that_is_refused_names_what_works_without_hashing_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y, people = problem()
    hashed = []
    make_rows = HashedTexts.make_rows

    def count(self: HashedTexts, *args: Any, **options: Any) -> Any:
        hashed.append(1)
        return make_rows(self, *args, **options)

    monkeypatch.setattr(HashedTexts, "make_rows", count)
    with pytest.raises(expunge.exceptions.CannotFit):
        model(budget=Budget(sigma=1e-14, tau=1e-17)).fit(X, y, people)
    assert len(hashed) == 1


def table_of(n: int = 240) -> tuple[pd.DataFrame, NDArray[Any], list[str]]:
    """Return a text beside a number and a category, of which each tells a part."""
    texts, y, people = problem(n)
    rng = np.random.default_rng(1)
    texts = [text if i % 17 else None for i, text in enumerate(texts)]  # type: ignore[misc]
    size = rng.normal(size=n) + y
    town = np.where(rng.random(n) < 0.5, "Ulm", "Bonn")
    return pd.DataFrame({"size": size, "note": texts, "town": town}), y, people


class TestBesideOthers:
    """A column of texts is hashed into columns of a table."""

    STEPS = ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["size"]),
            ("words", HashingVectorizer(n_features=2**6), "note"),
            ("towns", OneHotEncoder(), ["town"]),
        ]
    )

    def test_forgetting_is_fitting_the_remaining_rows(self, tmp_path: Path) -> None:
        X, y, people = table_of()
        given = LogisticRegression(
            alpha=1e-2, preprocessing=self.STEPS, budget=Budget()
        )
        given.fit(X, y, people)
        assert len(given.get_feature_names_out()) == 1 + 64 + 2
        given.forget([f"person {i}" for i in range(9)])
        given.forget(X=X[18:20], y=y[18:20])
        assert given.certificate_.status == "certified"
        fresh = LogisticRegression(alpha=1e-2, preprocessing=self.STEPS)
        fresh.fit(X[20:], y[20:])
        mine, exact = private_model(given).answer, private_model(fresh).answer
        distance = np.linalg.norm(mine.draft.theta - exact.draft.theta)
        assert distance <= mine.radius.value + exact.radius.value
        # As in scikit-learn, where a gap is an empty text.
        filled = X.assign(note=X["note"].fillna(""))
        plain = make_pipeline(self.STEPS, Plain(C=1 / (1e-2 * 220), tol=1e-10))
        plain.fit(filled[20:], y[20:])
        rated = plain.predict_proba(filled)
        assert np.abs(fresh.predict_proba(X) - rated).max() < 1e-4
        assert np.allclose(
            given.to_sklearn().predict_proba(X), given.predict_proba(X), atol=1e-9
        )

    def test_rows_come_change_and_are_told(self, tmp_path: Path) -> None:
        X, y, people = table_of()
        model = LogisticRegression(preprocessing="auto", budget=Budget())
        with pytest.warns(ColumnsWarning, match="'note': taken for free text, its wo"):
            model.fit(X[:200], y[:200], people[:200])
        assert "note words 255" in model.get_feature_names_out()
        assert '"HashedColumn"' in str(model.certificate_)
        model.add(X[200:], y[200:], subjects=people[200:])
        rate = model.predict_proba(X[:3])
        model.save(tmp_path / "model")
        assert np.array_equal(load(tmp_path / "model").predict_proba(X[:3]), rate)
        ship(model, tmp_path / "model.safetensors")
        shipped = read_shipped(tmp_path / "model.safetensors")
        assert np.array_equal(shipped.predict_proba(X[:3]), rate)
        with pytest.raises(Unsupported, match=r"HashingVectorizer: ONNX has no opera"):
            ship(model, tmp_path / "model.onnx")

    @pytest.mark.parametrize(
        ("step", "columns", "said"),
        [
            (HashingVectorizer(), "note", "give n_features=2\\*\\*8, at most 4096"),
            (HashingVectorizer(n_features=64), ["note", "town"], "list it once for"),
            (HashingVectorizer(n_features=64), ["size"], "is no text but float"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, step: Any, columns: Any, said: str
    ) -> None:
        X, y, _ = table_of()
        steps = ColumnTransformer([("words", step, columns)])
        with pytest.raises(InvalidInput, match=said):
            LogisticRegression(preprocessing=steps).fit(X, y)

    def test_registry(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        X, y, people = table_of()
        texts = X["note"].fillna("")
        table = X.assign(note=texts + " as somebody said", who=people, y=y)
        table.to_csv("rows.csv", index=False)
        assert call("init").code == 0
        about = ("--target", "y", "--subject", "who")
        done = call("fit", "mixed", "rows.csv", *about)
        assert "its words hashed into 256 columns" in done.words, done.err
        assert "looks like free text: 'note'" in done.err
        assert call("forget", "person 3").code == 0
        table[:2].assign(who="new").to_csv("more.csv", index=False)
        assert call("add", "mixed", "more.csv").code == 0
        table[10:12].to_csv("right.csv", index=False)
        done = call("rectify", "person 5", "mixed", "right.csv")
        assert done.code == 0, done.err
        assert call("predict", "mixed", "rows.csv").code == 0
        with Registry.open(tmp_path / "expunge-registry") as registry:
            assert registry.model("mixed").certificate_.status == "certified"
            assert registry.model("mixed").score(table[[*X]], y) > 0.9


class TestCommandLine:
    """A column of texts is the only feature that a model reads."""

    def test_fits_adds_predicts_and_forgets(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        X, y, people = problem(200)
        kind = np.where(y > 0, "spam", "ham")
        table = pd.DataFrame({"sender": people, "body": X, "kind": kind, "size": 3.5})
        table.loc[5, "body"] = None
        table.to_csv("mails.csv", index=False)
        about = ("--target", "kind", "--subject", "sender")
        assert call("init").code == 0
        done = call("fit", "spam", "mails.csv", *about, "--text", "body")
        assert done.code == 0, done.err
        assert "its words hashed into 65536 columns" in done.words
        assert "the model reads a text" in done.words
        assert call("forget", "person 3").code == 0
        table[:4].assign(sender="new").to_csv("more.csv", index=False)
        assert call("add", "spam", "more.csv").code == 0
        predicted = call("predict", "spam", "mails.csv")
        assert predicted.code == 0
        with Registry.open(tmp_path / "expunge-registry") as registry:
            assert registry.model("spam").certificate_.status == "certified"
            assert registry.model("spam").score(table[["body"]].fillna(""), kind) > 0.8

    def test_schema_says_what_is_text(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        X, y, people = problem(80)
        table = pd.DataFrame({"who": people, "body": X, "kind": y, "size": y + 0.5})
        table.to_csv("mails.csv", index=False)
        about = ("--target", "kind", "--subject", "who")
        assert call("init").code == 0
        done = call("fit", "a", "mails.csv", *about, "--text", "body")
        assert done.code == 0
        schema = Path("mails.schema.json").read_text()
        narrow = schema.replace("65536", "256")
        Path("narrow.json").write_text(narrow)
        done = call("fit", "b", "mails.csv", *about, "--schema", "narrow.json")
        assert done.code == 0, done.err
        assert "hashed into 256 columns" in done.words
        wide = narrow.replace('"left out"', '"number"').replace(
            ', "why": "the model reads a text"', ""
        )
        for text, said in (
            (wide.replace("256", "65536"), "beside other columns at most 4096"),
            (schema.replace("65536", "1"), "a number of columns"),
        ):
            Path("bad.json").write_text(text)
            done = call("fit", "c", "mails.csv", *about, "--schema", "bad.json")
            assert done.code != 0
            assert said in done.err
        both = ("--schema", "narrow.json", "--text", "body")
        assert "omit it" in call("fit", "c", "mails.csv", *about, *both).err
        done = call("fit", "c", "mails.csv", *about, "--text", "kind")
        assert "is used twice" in done.err
        table.assign(body=None).to_csv("mails.csv", index=False)
        done = call("fit", "c", "mails.csv", *about, "--text", "body")
        assert "column 'body': no text in any row; choose another" in done.err


@pytest.mark.parametrize("norm", ["l1", "l2", None])
@pytest.mark.parametrize("width", [2**5, 2**13])
def test_weights_of_words_are_those_of_the_texts_that_stay(
    width: int, norm: Any, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(60)]
    given = [
        " ".join(rng.choice(words[: 20 + i % 2 * 40], rng.integers(0, 12)))
        for i in range(120)
    ]
    y, owners = np.arange(120) % 2 == 0, [f"person {i // 2}" for i in range(120)]
    hashing = HashingVectorizer(n_features=width, norm=None, alternate_sign=False)
    steps = make_pipeline(hashing, TfidfTransformer(norm=norm))
    ours = LogisticRegression(alpha=1e-2, preprocessing=steps, budget=Budget(sigma=1))
    ours.fit(given, y, owners).forget(["person 3"])
    ours.save(tmp_path / "model")
    ours = expunge.load(tmp_path / "model")
    ours.forget(["person 9"]).forget(X=given[:1], y=y[:1])
    left = np.setdiff1d(np.arange(120), [0, 6, 7, 18, 19])
    rest = [given[i] for i in left]
    fresh = clone(ours).set_params(budget=None).fit(rest, y[left])
    fitted: list[Any] = [public_model(one) for one in (ours, fresh)]
    rows, expected = (one.preprocessing.encode(given) for one in fitted)
    assert (rows != expected).nnz == 0
    theirs = clone(steps).fit(rest).transform(given)
    np.testing.assert_allclose(rows.toarray(), theirs.toarray(), atol=1e-14)
    answer, exact = private_model(ours).answer, private_model(fresh).answer
    distance = np.linalg.norm(answer.draft.theta - exact.draft.theta)
    assert distance <= answer.radius.value + exact.radius.value
    assert ours.certificate_.status == "certified"
    plain = ours.to_sklearn()
    np.testing.assert_allclose(plain.predict_proba(given), ours.predict_proba(given))
    expunge.ship(ours, tmp_path / "a.safetensors")
    again = expunge.read_shipped(tmp_path / "a.safetensors")
    expected = ours.predict_proba(given)
    np.testing.assert_array_equal(again.predict_proba(given), expected)
    with pytest.raises(InvalidInput, match="keep_data=True"):
        clone(ours).set_params(keep_data=False).fit(given, y)
