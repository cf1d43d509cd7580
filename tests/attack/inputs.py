# SPDX-License-Identifier: Apache-2.0
"""Attack models of texts, dicts and embeddings: rows that were made of inputs.

Words are hashed here again, by MurmurHash3 as its author describes it. What an encoder
gives depends on what else it is given, in the last bits: each row of the truth is the
one that was given when it came into the model.
"""

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.pipeline import make_pipeline

from expunge import EmbeddingCache, ExpungeError, FixedMap, load
from expunge.linear_model.base import public_model

from . import draws
from .crowds import Crowd
from .draws import Generator, Task, chance, pick
from .estimators import (
    RequestMaker,
    balance,
    check_against_fit,
    estimator,
    labels_of,
    retraining_problem,
)
from .judge import Checker
from .losses import Array
from .oracle import Sample

REQUESTS = 6
WORDS = ("ash", "Birch", "cedar", "a", "elm2", "große", "Ünder", "日本", "fir", "oak")
MASK = 2**32 - 1


def murmur(word: str) -> int:
    """Return MurmurHash3, 32 bits for x86 and with seed zero, as a signed number."""
    data, h = word.encode(), 0

    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 & MASK
        return (k << 15 | k >> 17) * 0x1B873593 & MASK

    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        h ^= mixed(int.from_bytes(data[i : i + 4], "little"))
        h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & MASK
    if whole < len(data):
        h ^= mixed(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> shift) * factor & MASK
    h ^= h >> 16
    return h - 2**32 if h >> 31 else h


def hash_row(counts: dict[str, float], width: int, signed: bool) -> Array:
    """Return the row of these features."""
    row = np.zeros(width)
    for word, value in counts.items():
        h = murmur(word)
        row[abs(h) % width] += -value if signed and h < 0 else value
    return row


@dataclass
class Inputs:
    """Inputs, the rows that they should become, and what makes them.

    Attributes
    ----------
    given
        An array of objects.
    rows
        Rows of the truth.
    step
        What is passed as preprocessing.
    """

    given: Array
    rows: Array
    step: Any
    same_again: bool = True
    weighed: str = ""

    def rows_of(self, stay: Array) -> Array:
        """Return the rows of a fit to the inputs that stay."""
        rows = self.rows[stay]
        if not self.weighed:
            return rows
        n_with = (rows != 0.0).sum(axis=0).astype(np.longdouble)
        weighed = rows * (np.log((1 + np.longdouble(len(rows))) / (1 + n_with)) + 1)
        if self.weighed != "none":
            order = int(self.weighed[1])
            sizes = (np.abs(weighed) ** order).sum(axis=1) ** (1.0 / order)
            weighed = weighed / np.where(sizes == 0.0, 1.0, sizes)[:, None]
        return np.asarray(weighed, dtype=float)

    def came_in(self, mask: Array) -> None:
        """Note that these inputs came into the model just now."""

    def reload(self, checker: Checker, model: Any) -> Any:
        """Return the model after saving and loading it."""
        del checker
        with tempfile.TemporaryDirectory(prefix="expunge-attack-") as folder:
            model.save(Path(folder) / "model")
            return load(Path(folder) / "model")

    def check(self, checker: Checker, model: Any, gone: Array) -> None:
        """Check what must hold of these inputs besides."""


def texts(rng: Generator, n: int) -> Inputs:
    """Return texts, with rows as a hashing of scikit-learn should make them."""
    words = [[str(w) for w in rng.choice(WORDS, rng.integers(0, 7))] for _ in range(n)]
    given = np.array([" ".join(row) for row in words], dtype=object)
    width, signed = int(rng.integers(3, 12)), chance(rng, 0.6)
    norm, binary = pick(rng, "l1", "l2", "none"), chance(rng, 0.2)
    analyzer, last = pick(rng, "word", "char"), int(rng.integers(1, 3))
    rows = np.zeros((n, width))
    for place, row in enumerate(words):
        whole = [word.lower() for word in row]
        parts = [word for word in whole if len(word) > 1]
        if analyzer == "char":
            parts = list(" ".join(whole))
        between = "" if analyzer == "char" else " "
        pairs = pairwise(parts) if last == 2 else ()
        counted = Counter([*parts, *(between.join(pair) for pair in pairs)])
        rows[place] = hash_row(dict(counted), width, signed)
        if binary:  # of columns in which something was counted, as scikit-learn has it
            hit = {abs(murmur(word)) % width for word in counted}
            rows[place] = [float(column in hit) for column in range(width)]
        l1, l2 = (float(np.linalg.norm(rows[place], order)) for order in (1, 2))
        rows[place] /= {"l1": l1, "l2": l2}.get(norm) or 1.0
    step = HashingVectorizer(
        n_features=width,
        analyzer=analyzer,
        ngram_range=(1, last),
        norm=None if norm == "none" else norm,
        binary=binary,
        alternate_sign=signed,
    )
    return Inputs(given, rows, step)


def dicts(rng: Generator, n: int) -> Inputs:
    """Return dicts of numbers and words, with their hashed rows."""
    width, signed = int(rng.integers(3, 12)), chance(rng, 0.6)
    given, rows = np.empty(n, dtype=object), np.zeros((n, width))
    for place in range(n):
        named = rng.choice(WORDS, rng.integers(0, 5), replace=False)
        one = {str(name): float(rng.integers(-9, 9)) / 2.0 for name in named}
        rows[place] = hash_row(one, width, signed)
        given[place] = one
        if chance(rng, 0.5):
            city = str(rng.choice(WORDS))
            given[place] = one | {"city": city}
            rows[place] += hash_row({f"city={city}": 1.0}, width, signed)
    step = FeatureHasher(n_features=width, alternate_sign=signed)
    return Inputs(given, rows, step)


def weigh(rng: Generator, inputs: Inputs) -> Inputs:
    """Return hashed inputs with their columns weighed by how few have them."""
    weighed = pick(rng, "l1", "l2", "none", p=[0.2, 0.6, 0.2])
    step = TfidfTransformer(norm=None if weighed == "none" else weighed)
    return replace(inputs, step=make_pipeline(inputs.step, step), weighed=weighed)


class Encoder:
    """A table of directions whose sums depend, in their last bits, on the batch."""

    def __init__(self, rng: Generator, width: int, drift: float) -> None:
        self.table = rng.normal(size=(256, width))
        self.drift = drift
        self.last: dict[str, Array] = {}

    def __call__(self, given: list[str]) -> Array:
        made = []
        for place, text in enumerate(given):
            row = self.table[list(f"{text}.".encode())].mean(axis=0)
            row *= 1.0 + self.drift * (len(given) + 3 * place)
            self.last[text] = row
            made.append(row)
        return np.array(made)


@dataclass
class Embedded(Inputs):
    """Texts with their embeddings by an encoder, which may keep them in a cache."""

    encoder: Any = None
    cache: Any = None
    folder: Any = None
    fitted: set[str] = field(default_factory=set)
    owners: Array = field(default_factory=lambda: np.array([]))

    def came_in(self, mask: Array) -> None:
        """Take the rows that the encoder gave last."""
        for place in np.flatnonzero(mask):
            self.rows[place] = self.encoder.last[self.given[place]]

    def reload(self, checker: Checker, model: Any) -> Any:
        """Return the model loaded with its encoder; another must be refused."""
        with tempfile.TemporaryDirectory(prefix="expunge-attack-") as folder:
            path = Path(folder) / "model"
            model.save(path)
            other = Encoder(np.random.default_rng(0), len(self.encoder.table[0]), 0.0)
            try:
                load(path, encoder=other)
                checker.check(False, "another encoder was taken for that of the fit")
            except ExpungeError:
                checker.check(True, "another encoder")
            kept = dict(self.encoder.last)
            loaded = load(path, encoder=replace(self.step, encoder=self.encoder))
            self.encoder.last = kept
            return loaded

    def check(self, checker: Checker, model: Any, gone: Array) -> None:
        """Check what the certificate says of the encoder, and what the cache holds."""
        certificate, step = model.certificate_, self.step
        said = [t for t in certificate.not_covered if f"encoder {step.name}" in t]
        checker.check(bool(said) == (step.seen != "nobody"), "the encoder is unlearned")
        assumed = [t for t in certificate.assumptions if step.name in t]
        checker.check(bool(assumed), "no encoder is named")
        if step.dp is not None and model.budget is not None:
            words = said[0].partition("at most epsilon ")[2].split()
            for word, own, head in (
                (words[0], step.dp[0], model.budget.epsilon),
                (words[3], step.dp[1], model.budget.delta),
            ):
                total = Decimal(str(own)) + Decimal(str(head))
                checker.check(Decimal(word) >= total, "encoder and head cost less")
        if self.cache is not None:
            left = set(self.owners[gone].tolist())
            files = list(Path(self.folder.name).glob("*.embeddings"))
            few = len(files) <= len(self.fitted - left)
            checker.check(few, "the cache holds somebody who left")


def embeddings(rng: Generator, n: int, owners: Array) -> Embedded:
    """Return texts that an encoder makes rows of."""
    given = np.array([f"{rng.choice(WORDS)} {i}" for i in range(n)], dtype=object)
    drift = float(10.0 ** rng.uniform(-16.0, -8.0)) if chance(rng, 0.6) else 0.0
    encoder = Encoder(rng, int(rng.integers(1, 7)), drift)
    folder = None
    if chance(rng, 0.3):
        folder = tempfile.TemporaryDirectory(prefix="expunge-attack-")
    cache = None if folder is None else EmbeddingCache(folder.name)
    declared = pick(rng, "nothing", "nobody", "private")
    step = FixedMap(
        encoder,
        name="directions",
        seen="nobody" if declared == "nobody" else "unknown",
        dp=tuple(10.0 ** rng.uniform(-6.0, 0.0, 2)) if declared == "private" else None,
        batch=int(rng.integers(1, 20)),
        cache=cache,
    )
    rows = encoder(given.tolist())
    made = Embedded(given, rows, step, not drift and cache is None)
    made.encoder, made.cache, made.owners = encoder, cache, owners
    made.folder = folder
    return made


def attack(rng: Generator, checker: Checker) -> None:
    """Fit a model of inputs; people leave and come; check every release."""
    n = int(rng.integers(12, 70))
    owners = draws.owners(rng, n)
    kind = pick(rng, "texts", "dicts", "embeddings", p=[0.4, 0.2, 0.4])
    if kind == "embeddings":
        inputs: Inputs = embeddings(rng, n, owners)
    else:
        inputs = texts(rng, n) if kind == "texts" else dicts(rng, n)
        if not inputs.step.alternate_sign and chance(rng, 0.7):
            inputs = weigh(rng, inputs)
    ways = ["person", "position", *["content"] * 2 * inputs.same_again]
    maker = RequestMaker(pick(rng, *ways))
    if isinstance(inputs, Embedded) and inputs.cache is not None:
        maker = RequestMaker("person")
    keep: Any = maker.way != "content" or bool(inputs.weighed) or chance(rng, 0.5)
    keep = "encoded" if keep and chance(rng, 0.3) else keep
    aim = draws.aim(rng, draws.LOSSES, inputs.rows.shape[1])
    if not aim.ridge and (aim.l1_ratio == 1.0 or aim.groups is not None):
        aim = replace(aim, ridge=1e-3)  # columns that no input has
    y, weight = draws.labels(rng, aim.loss, inputs.rows), draws.weights(rng, n)
    task = Task(aim, Sample(inputs.given, y, weight), owners)
    balanced = bool(task.classes) and weight.min() > 0.0 and chance(rng, 0.2)
    model = estimator(rng, task, keep_data=keep, preprocessing=inputs.step)
    if balanced:
        model.set_params(class_weight="balanced")
    if not keep:
        model.set_params(mechanism="newton")
    seen = replace(task, sample=Sample(inputs.rows, y, weight))
    crowd = Crowd(rng, checker, task, maker, seen)
    if not crowd.fit(model, inputs.given):
        return
    inputs.came_in(crowd.inside)
    cached = isinstance(inputs, Embedded) and inputs.cache is not None
    if isinstance(inputs, Embedded):
        inputs.fitted = set(owners[crowd.inside].tolist())
    gone = np.zeros(n, dtype=bool)
    check(checker, model, crowd, inputs, gone, balanced)
    for _ in range(REQUESTS):
        leaving, coming = crowd.draw()
        if cached:  # whoever exchanges rows inside a model does not reach it
            coming = []
        if not crowd.possible(leaving, coming):
            continue
        if chance(rng, 0.2):
            model = inputs.reload(checker, model)
        before = crowd.inside.copy()
        refused = crowd.ask(model, leaving, coming)
        inputs.came_in(crowd.inside & ~before)
        gone = (gone | before) & ~crowd.inside
        if not refused and not crowd.behind:
            check(checker, model, crowd, inputs, gone, balanced)


def check(
    checker: Checker,
    model: Any,
    crowd: Crowd,
    inputs: Inputs,
    gone: Array,
    balanced: bool,
) -> None:
    """Compare rows and release with those of a fit to the same inputs."""
    stay = crowd.inside
    if inputs.same_again:
        public = public_model(model)
        assert public is not None and public.preprocessing is not None
        made: Any = public.preprocessing.encode(inputs.given[stay])
        made = made.toarray() if hasattr(made, "toarray") else made
        doubt = 1e-13 if inputs.weighed else 1e-14
        near = np.allclose(made, inputs.rows_of(stay), rtol=doubt, atol=0.0)
        checker.check(near, "other rows than the inputs should become")
    inputs.check(checker, model, gone)
    aim, sample, classes = retraining_problem(crowd.seen, stay)
    if inputs.weighed:
        sample = replace(sample, X=inputs.rows_of(stay))
    if balanced:
        weight = balance(labels_of(crowd.task)[stay], sample.weight)
        sample = replace(sample, weight=weight)
    check_against_fit(checker, model, (aim, sample, classes), crowd.first_weight)
