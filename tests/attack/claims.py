# SPDX-License-Identifier: Apache-2.0
"""Attack the claims around the numbers: who counts, what is covered or public.

Ids in several spellings, rows in several requests, fits under one contract, parameters
set late, rows that outweigh all others, days in public documents, stolen keys.
"""

import json
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from expunge import Budget, LinearRegression, LogisticRegression, load
from expunge.exceptions import ExpungeError, InvalidInput
from expunge.ledger import check_receipt, open_signing_key
from expunge.promise.scope import (
    BEFORE_PREPROCESSING,
    OTHER_RELEASES,
    PREPROCESSING,
)
from expunge.registry import Registry
from tests.forgery import forged_receipt, made_up

from .draws import Generator, chance, pick
from .judge import Checker
from .losses import Array, Loss
from .oracle import Aim, Sample, minimise
from .peek import draft_of

NAMES = ("Zo\u00eb", "Jos\u00e9", "\u00c5sa", "Ada", "7", "\uac00\ub098", "x y")
NOBODY = (None, float("nan"), 3.0, np.float64(7.0), True, b"Ada", "", "  ", "a\x00b")


def attack(rng: Generator, checker: Checker) -> None:
    """Try one of the ways in which a claim could be wrong."""
    CLAIMS[pick(rng, *CLAIMS)](rng, checker)


def table(rng: Generator) -> tuple[Array, Array]:
    """Return rows and labels of two classes."""
    n = int(rng.integers(12, 40))
    X = rng.standard_normal((n, int(rng.integers(1, 4))))
    y = (X[:, 0] + rng.standard_normal(n) > 0.0).astype(int)
    y[:2] = (0, 1)
    return X, y


def model(rng: Generator, **parameters: Any) -> Any:
    """Return a classifier that refuses no request."""
    return LogisticRegression(
        alpha=float(10.0 ** rng.uniform(-3.0, 0.0)),
        penalize_intercept=True,
        random_state=int(rng.integers(100)),
        classes=[0, 1],
        **parameters,
    )


def people_count_once(rng: Generator, checker: Checker) -> None:
    """Remove rows in random portions; each person must count once."""
    X, y = table(rng)
    owners = rng.integers(0, max(2, len(X) // 3), len(X))
    ours = model(rng, keep_data=chance(rng, 0.5)).fit(X, y, subjects=owners.tolist())
    asked: set[int] = set()
    order = rng.permutation(len(X))[: len(X) // 2]
    for some in np.array_split(order, int(rng.integers(1, 6))):
        ours.forget(X=X[some], y=y[some])
        asked |= set(owners[some].tolist())
        counted = ours.certificate_.n_subjects_removed
        checker.check(counted == len(asked), f"{len(asked)} asked, {counted} counted")
        if chance(rng, 0.2):
            ours = save_and_load(ours)


def save_and_load(ours: Any) -> Any:
    """Return a model written to files and read again."""
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder)
        return load(folder)


def ids_have_one_spelling(rng: Generator, checker: Checker) -> None:
    """Fit under one spelling of an id, ask under another; refuse what is not an id."""
    X, y = table(rng)
    owners = [respell(rng, str(rng.choice(NAMES))) for _ in range(len(X))]
    ours = model(rng).fit(X, y, subjects=owners)
    person = unicodedata.normalize("NFC", owners[0]).strip()
    theirs = [unicodedata.normalize("NFC", o).strip() == person for o in owners]
    if not all(theirs):
        with checker.note_refusals((ExpungeError,)) as refusal:
            ours.forget([respell(rng, person)])
        checker.check(not refusal, "a person is not known by another spelling")
        if not refusal:
            same = ours.record_.n_removed == sum(theirs)
            checker.check(same, "some rows of a person stayed under another spelling")
    nobody: Any = NOBODY[int(rng.integers(len(NOBODY)))]
    owners[int(rng.integers(len(owners)))] = nobody
    checker.check(
        is_refused(lambda: model(rng).fit(X, y, owners)), f"{nobody!r} is a person"
    )
    checker.check(
        is_refused(lambda: ours.forget([nobody])), f"{nobody!r} was forgotten"
    )


def respell(rng: Generator, name: str) -> str:
    """Return an id in one of its equivalent spellings."""
    form: Any = pick(rng, "NFC", "NFD")
    return pick(rng, "", " ", "\t ") + unicodedata.normalize(form, name) + " "


def is_refused(act: Callable[[], object]) -> bool:
    """Return whether an action is refused as bad input."""
    try:
        act()
    except InvalidInput:
        return True
    return False


def positions_are_no_ids(rng: Generator, checker: Checker) -> None:
    """A model without subjects must refuse every id."""
    X, y = table(rng)
    ours = model(rng).fit(X, y)
    place = int(rng.integers(len(X)))
    for ids in ([place], [str(place)]):
        refused = is_refused(partial(ours.forget, ids))
        checker.check(refused, "a position is an id")
    with tempfile.TemporaryDirectory() as folder:
        with Registry.create(Path(folder) / "registry") as registry:
            registry.fit("nobody", model(rng), X, y)
            known = registry.requests.find_models([str(place)])
            checker.check(not known[str(place)], "a registry knows a position")


def releases_are_counted_honestly(rng: Generator, checker: Checker) -> None:
    """A second fit under one budget, or a loaded model, must say so."""
    X, y = table(rng)
    budget = Budget(sigma=0.5, allow_seeded=True, releases=5)
    ours = model(rng, budget=budget).fit(X, y)
    alone = OTHER_RELEASES not in ours.certificate_.not_covered
    checker.check(alone, "a first fit says that there are others")
    way = pick(rng, "refit", "clone", "load")
    if way == "load":
        other = save_and_load(ours).forget(X=X[2:3], y=y[2:3])
    else:
        other = (ours if way == "refit" else clone(ours)).fit(X, y)
    said = OTHER_RELEASES in other.certificate_.not_covered
    checker.check(said, f"{way}: nothing says that other releases may exist")


def parameters_are_those_of_the_fit(rng: Generator, checker: Checker) -> None:
    """Parameters set after the fit must not be in the files of its release."""
    X, y = table(rng)
    ours = model(rng).fit(X, y)
    alpha = ours.alpha
    ours.set_params(alpha=9.0, loss="squared_hinge", fit_intercept=False)
    again = save_and_load(ours)
    checker.check(again.alpha == alpha, "a parameter set later was saved")
    same = np.array_equal(again.predict(X), ours.predict(X))
    checker.check(same, "a saved model predicts something else")


def a_heavy_row_leaves(rng: Generator, checker: Checker) -> None:
    """A request that leaves nothing of the sums must be answered from the rows."""
    X, _ = table(rng)
    y, weight = X[:, 0] + rng.standard_normal(len(X)), np.ones(len(X))
    weight[-1] = 10.0 ** rng.uniform(14.0, 17.0)
    scaling: Any = pick(rng, "mean", "sum")
    ours = LinearRegression(alpha=0.1, scaling=scaling, penalize_intercept=True)
    ours.fit(X, y, sample_weight=weight)
    with checker.note_refusals((ExpungeError,)) as refusal:
        ours.forget(rows=[len(X) - 1])
    checker.check(not refusal, "a row that outweighs all others cannot leave")
    if not refusal:
        aim = Aim(Loss("squared"), 0.1, scaling=scaling, free=False)
        whole = Sample(X, y, weight)
        rest, theta = whole.take(np.arange(len(X)) < len(X) - 1), draft_of(ours)
        truth = minimise(aim, rest, whole.total, theta)
        radius = ours.record_.radius
        checker.check_radius(inf if radius is None else radius, theta, truth, "heavy")


def pipelines_say_what_is_true(rng: Generator, checker: Checker) -> None:
    """A pipeline whose steps forget must not name them as fitted elsewhere."""
    X, y = table(rng)
    plain = model(rng).fit(X, y).certificate_.not_covered
    pipeline = model(rng, preprocessing=StandardScaler()).fit(X, y)
    piped = pipeline.forget(rows=[int(rng.integers(len(X)))]).certificate_.not_covered
    checker.check(PREPROCESSING in plain, "a plain model covers preprocessing")
    checker.check(PREPROCESSING not in piped, "a pipeline says that it does not forget")
    checker.check(BEFORE_PREPROCESSING in piped, "it covers what came before it")


def public_documents_tell_days(rng: Generator, checker: Checker) -> None:
    """No public time is finer than a day, and a stolen key signs nothing more."""
    X, y = table(rng)
    owners = [f"p{i}" for i in range(len(X))]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "registry"
        with Registry.create(home) as registry:
            stolen = open_signing_key(home / "keys" / "signing-0.pem", create=False)
            registry.fit("model", model(rng), X, y, subjects=owners)
            receipt = registry.forget(["p3"])
            lines = registry.ledger.export().decode().splitlines()
            for text in (receipt, *lines):
                finer = [v for v in figures(json.loads(text)) if FINE.fullmatch(v)]
                checker.check(not finer, f"a public document holds {finer}")
            registry.keys.rotate_signing_key()
            entries, keys = list(registry.ledger.entries()), registry.keys.public_pem()
    forged = forged_receipt([*entries, made_up(entries)], stolen)
    valid = check_receipt(forged, keys).valid
    checker.check(not valid, "a stolen key signs for what came after it")


FINE = re.compile(r"\d{10,}|.*\d\d:\d\d.*")


def figures(value: Any) -> Iterator[str]:
    """Yield every number and every short text in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            # Descriptions of the model, and hashes, are not times.
            if key not in ("certificates", "signature", "objective"):
                yield from figures(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from figures(inner)
    elif isinstance(value, int | str) and len(str(value)) < 60:
        yield str(value)


def declarations_stay(rng: Generator, checker: Checker) -> None:
    """A declared search must stay declared after another fit and in a pipeline."""
    X, y = table(rng)
    budget = Budget(sigma=0.5, allow_seeded=True)
    ours = model(rng, budget=budget).fit(X, y).declare_tuned("grid search")
    way = pick(rng, "fit", "pipeline", "load")
    again = save_and_load(ours) if way == "load" else ours
    if way == "pipeline":
        again.set_params(preprocessing=StandardScaler())
    status = again.fit(X, y).certificate_.status
    checker.check(status == "no promise", f"{way}: a declared choice became {status}")


def equal_rows_have_owners(rng: Generator, checker: Checker) -> None:
    """Two people with the same row ask in different ways; both must be removed."""
    X, y = table(rng)
    owners = [f"p{i}" for i in range(len(X))]
    first, second, third = rng.permutation(len(X))[:3]
    X[second], y[second] = X[first], y[first]
    owners[third] = owners[second]
    ours = model(rng).fit(X, y, subjects=owners)
    with checker.note_refusals() as refusal:
        ours.forget(X=X[[first]], y=y[[first]])
    if refusal:
        ours.forget([owners[first]])
    ours.forget([owners[second]])
    n_left = len(X) - ours.record_.n_removed
    checker.check(n_left == len(X) - 3, "somebody's equal row stayed")


def noise_is_used_once(rng: Generator, checker: Checker) -> None:
    """No two releases may share noise, whatever was saved and loaded in between."""
    X = rng.standard_normal((30, 2))
    y = np.arange(30) % 3
    budget = Budget(sigma=0.5, allow_seeded=True)
    ours: Any = LogisticRegression(
        alpha=0.1, penalize_intercept=True, random_state=1, budget=budget
    ).fit(X, y, subjects=[f"p{label}" for label in y])
    noise = []
    for person in (None, "p0"):
        if person is not None:
            ours.forget([person])
        released = np.vstack([ours.coef_.T, ours.intercept_]).ravel()
        noise.append(released - draft_of(ours))
        ours = save_and_load(ours)
    ours.forget(X=X[1:2], y=y[1:2])
    released = np.vstack([ours.coef_.T, ours.intercept_]).ravel()
    # Answers are rounded to the grid of the noise.
    every = np.round(np.concatenate([*noise, released - draft_of(ours)]), 6)
    checker.check(len(np.unique(every)) == len(every), "noise was used twice")


CLAIMS: dict[str, Callable[[Generator, Checker], None]] = {
    "count": people_count_once,
    "spell": ids_have_one_spelling,
    "place": positions_are_no_ids,
    "release": releases_are_counted_honestly,
    "set": parameters_are_those_of_the_fit,
    "weigh": a_heavy_row_leaves,
    "cover": pipelines_say_what_is_true,
    "public": public_documents_tell_days,
    "declare": declarations_stay,
    "equal": equal_rows_have_owners,
    "noise": noise_is_used_once,
}
