# SPDX-License-Identifier: Apache-2.0
"""Texts and dicts hashed into a fixed number of columns, by scikit-learn's hashing.

No word list is learnt, so that nothing of it has to be forgotten. Each word is counted
in the column that its hash names, and two words may share one. Counts are whole numbers
and a row is divided by its own norm alone: a text makes the same row, to the last bit,
by itself and among others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from ..core.arrays import Design
from ..core.values import stored
from ..exceptions import InvalidInput, Unsupported
from .inputs import InputMap, is_missing
from .weighed_terms import read_weighed

MOST_COLUMNS = 2**31 - 1  # scikit-learn's own limit
# Beside other columns rows are dense. Where nobody says how wide, all texts of a table
# share so many columns, and each has at least so many.
MOST_BESIDE, SHARED, FEWEST = 2**12, 2**8, 2**6
# What everybody knows: a hash of what is made of it tells one hashing from another.
KNOWN_TEXTS = (
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich 123",
    "a",
)
KNOWN_FEATURES: Mapping[str, Any] = MappingProxyType(
    {
        "dict": [{"age": 41.5, "city=Bern": 1}, {"city": "Oslo", "age": -2}],
        "pair": [[("age", 41.5), ("city=Bern", 1)], [("age", -2), ("age", 1)]],
        "string": [["age", "city", "age"], ["Oslo"]],
    }
)


class _Hashed(InputMap):
    """What hashing of texts and of features share."""

    n_features: int
    bits: str

    @property
    def _known(self) -> Sequence[Any]:
        raise NotImplementedError

    def _require(self, inputs: Sequence[Any]) -> None:
        """Raise InvalidInput for what is no such input."""
        raise NotImplementedError

    def make_rows(
        self, inputs: Sequence[Any], *, owners: Sequence[str] | None, shown: bool
    ) -> Design:
        """Return a sparse row for each input."""
        del owners, shown
        self._require(inputs)
        if self.bits and self._found != self.bits:
            raise InvalidInput(
                f"{type(self).__name__}: the scikit-learn that is installed hashes "
                "otherwise than that of the fit; install that one, or fit again; "
                "nothing was changed"
            )
        made: Design = self._hash(inputs)
        return made

    def noted(self) -> Self:
        """Return the map with a digest of what it makes of what everybody knows."""
        return replace(self, bits=self._found)  # type: ignore[type-var]

    @cached_property
    def _found(self) -> str:
        rows = self._hash(self._known)
        digest = sha256()
        for part in (rows.indptr, rows.indices, rows.data):
            digest.update(np.asarray(part, dtype=np.float64).tobytes())
        return digest.hexdigest()

    def _hash(self, inputs: Sequence[Any]) -> Any:
        rows = sparse.csr_array(self._hasher.transform(inputs), dtype=np.float64)
        rows.sum_duplicates()
        return rows

    @cached_property
    def _hasher(self) -> Any:
        return self.to_sklearn()


@stored
@dataclass(frozen=True, eq=False)
class HashedTexts(_Hashed):
    """``HashingVectorizer`` of scikit-learn, as files and certificates hold it."""

    n_features: int = 2**20
    analyzer: str = "word"
    ngram_range: tuple[int, int] = (1, 1)
    lowercase: bool = True
    strip_accents: str | None = None
    stop_words: str | tuple[str, ...] | None = None
    token_pattern: str | None = r"(?u)\b\w\w+\b"
    norm: str | None = "l2"
    binary: bool = False
    alternate_sign: bool = True
    bits: str = ""

    @property
    def _known(self) -> Sequence[Any]:
        return KNOWN_TEXTS

    def _require(self, inputs: Sequence[Any]) -> None:
        for place, text in enumerate(inputs):
            if not isinstance(text, str):
                mend = "put '' in its place, or leave its row out"
                if not is_missing(text):
                    mend = "give a list of texts, or one column of them"
                raise InvalidInput(
                    f"text {place}, counted from 0, is no text but {_name(text)}; "
                    f"{mend}"
                )

    def to_sklearn(self) -> Any:
        """Return the transformer."""
        stop_words = self.stop_words
        return HashingVectorizer(
            n_features=self.n_features,
            analyzer=self.analyzer,
            ngram_range=self.ngram_range,
            lowercase=self.lowercase,
            strip_accents=self.strip_accents,
            stop_words=list(stop_words)
            if isinstance(stop_words, tuple)
            else stop_words,
            token_pattern=self.token_pattern,
            norm=self.norm,
            binary=self.binary,
            alternate_sign=self.alternate_sign,
        )


@stored
@dataclass(frozen=True, eq=False)
class HashedColumn(HashedTexts):
    """The same of one column of a table, beside others: a map that makes columns.

    Its rows are dense. A missing text is empty: a row of zeros.
    """

    by_block = takes_values = True
    title = "HashingVectorizer"

    @property
    def probes(self) -> NDArray[Any]:
        """Rows that everybody knows."""
        return np.array(KNOWN_TEXTS, dtype=object)[:, None]

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the columns that it makes."""
        (column,) = columns
        return [f"{column} words {index}" for index in range(self.n_features)]

    def encode(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return a dense row for each text of the one column."""
        texts = ["" if is_missing(text) else text for text in X[:, 0].tolist()]
        rows: Any = self.make_rows(texts, owners=None, shown=False)
        dense: NDArray[np.float64] = rows.toarray()
        return dense

    def make_plain(self, columns: Any) -> Any:
        """Return scikit-learn's transformers, for a column whose gaps are NaN."""
        del columns
        return make_pipeline(
            SimpleImputer(strategy="constant", fill_value=""),
            FunctionTransformer(np.ravel),
            self.to_sklearn(),
        )


@stored
@dataclass(frozen=True, eq=False)
class HashedFeatures(_Hashed):
    """``FeatureHasher`` of scikit-learn, as files and certificates hold it."""

    n_features: int = 2**20
    input_type: str = "dict"
    alternate_sign: bool = True
    bits: str = ""

    @property
    def _known(self) -> Sequence[Any]:
        known: Sequence[Any] = KNOWN_FEATURES[self.input_type]
        return known

    def _require(self, inputs: Sequence[Any]) -> None:
        for place, one in enumerate(inputs):
            fits = (
                isinstance(one, Mapping)
                if self.input_type == "dict"
                else (isinstance(one, Sequence) and not isinstance(one, str | bytes))
            )
            if not fits:
                kind = "dict" if self.input_type == "dict" else "list"
                raise InvalidInput(
                    f"input {place}, counted from 0, is no {kind} but {_name(one)}; "
                    f"FeatureHasher(input_type={self.input_type!r}) takes {kind}s"
                )

    def to_sklearn(self) -> Any:
        """Return the transformer."""
        return FeatureHasher(
            n_features=self.n_features,
            input_type=self.input_type,
            alternate_sign=self.alternate_sign,
        )


def choose_width(n_texts: int) -> int:
    """Return into how many columns each of so many columns of texts is hashed."""
    width = SHARED
    while width > FEWEST and width * n_texts > SHARED:
        width //= 2
    return width


def read_text_column(step: Any, n_columns: int) -> HashedColumn | None:
    """Return what hashes one column beside others; None for any other step."""
    if type(step) is not HashingVectorizer:
        return None
    if n_columns != 1:
        raise InvalidInput(
            f"HashingVectorizer of {n_columns} columns; list it once for each column "
            "of texts"
        )
    if step.n_features > MOST_BESIDE:
        raise InvalidInput(
            f"HashingVectorizer(n_features={step.n_features}) beside other columns, "
            f"where rows are dense; give n_features=2**8, at most {MOST_BESIDE}"
        )
    own = _read_texts(step)
    given = {one.name: getattr(own, one.name) for one in fields(own)}
    return HashedColumn(**given).noted()


def _name(value: Any) -> str:
    return "missing" if is_missing(value) else type(value).__name__


def read_input_map(preprocessing: Any) -> InputMap | None:
    """Return the map of inputs that preprocessing stands for; None if it is another."""
    if isinstance(preprocessing, InputMap):
        return preprocessing
    if type(preprocessing) is Pipeline:
        steps = [step for _, step in preprocessing.steps]
        texts = [step for step in steps if type(step) in (*READERS, *LEARNING)]
        if not texts:
            return None
        weighing = steps[1:] if type(steps[-1]) is TfidfTransformer else []
        if len(steps) > 1 + len(weighing) or len(weighing) > 1:
            raise Unsupported(
                f"{type(texts[0]).__name__} beside other steps; use HashingVectorizer "
                "alone as preprocessing, with its own norm, ngram_range and stop_words"
                ", or with TfidfTransformer() after it"
            )
        preprocessing = steps[0]
        if weighing and type(preprocessing) in READERS:
            hashed = READERS[type(preprocessing)](preprocessing)
            return read_weighed(hashed, weighing[0])
    if type(preprocessing) in LEARNING:
        raise Unsupported(
            f"{type(preprocessing).__name__} as preprocessing: it learns which words "
            "there are from all rows; use HashingVectorizer(n_features=2**18), or "
            "FeatureHasher for dicts, which learn nothing"
        )
    reader = READERS.get(type(preprocessing))
    return None if reader is None else reader(preprocessing)


def _read_texts(step: Any) -> HashedTexts:
    for name in ("preprocessor", "tokenizer"):
        if getattr(step, name) is not None:
            raise Unsupported(
                f"HashingVectorizer({name}=...) is code, which no file and no "
                "certificate holds; leave it out, or use expunge.FixedMap"
            )
    if callable(step.analyzer):
        raise Unsupported(
            "HashingVectorizer(analyzer=...) is code, which no file and no certificate "
            "holds; use 'word', 'char' or 'char_wb', or expunge.FixedMap"
        )
    if callable(step.strip_accents):
        raise Unsupported(
            "HashingVectorizer(strip_accents=...) is code, which no file and no "
            "certificate holds; use 'ascii' or 'unicode'"
        )
    if step.input != "content":
        raise Unsupported(
            f"HashingVectorizer(input={step.input!r}); read the files, and give their "
            "texts"
        )
    stop_words = step.stop_words
    if stop_words is not None and not isinstance(stop_words, str):
        stop_words = tuple(sorted(stop_words))
    first, last = step.ngram_range
    return HashedTexts(
        n_features=_read_width(step),
        analyzer=step.analyzer,
        ngram_range=(int(first), int(last)),
        lowercase=bool(step.lowercase),
        strip_accents=step.strip_accents,
        stop_words=stop_words,
        token_pattern=step.token_pattern,
        norm=step.norm,
        binary=bool(step.binary),
        alternate_sign=bool(step.alternate_sign),
    )


def _read_features(step: Any) -> HashedFeatures:
    if step.input_type not in KNOWN_FEATURES:
        raise InvalidInput(
            f"FeatureHasher(input_type={step.input_type!r}); use 'dict', 'pair' or "
            "'string'"
        )
    return HashedFeatures(
        n_features=_read_width(step),
        input_type=step.input_type,
        alternate_sign=bool(step.alternate_sign),
    )


def _read_width(step: Any) -> int:
    name = type(step).__name__
    if np.dtype(step.dtype) != np.float64:
        raise Unsupported(
            f"{name}(dtype={np.dtype(step.dtype)}); rows are float64: leave dtype out"
        )
    width = int(step.n_features)
    if not 0 < width <= MOST_COLUMNS:
        raise InvalidInput(
            f"{name}(n_features={step.n_features}); use a number of columns such as "
            "2**18"
        )
    return width


READERS: Mapping[type, Callable[[Any], InputMap]] = MappingProxyType(
    {HashingVectorizer: _read_texts, FeatureHasher: _read_features}
)
# They learn which columns there are, and so what would have to be forgotten.
LEARNING = (CountVectorizer, TfidfVectorizer, DictVectorizer)
