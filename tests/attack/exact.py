# SPDX-License-Identifier: Apache-2.0
"""Attack exact models: fractions and decimals say what retraining publishes.

The oracle shares no code with the package: it adds up the rows that are left as
Python's fractions, solves by elimination, takes logarithms to 60 digits, and rounds
once.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

from expunge import (
    EASE,
    BernoulliNB,
    ComplementNB,
    ExactLinearRegression,
    ExactRidge,
    MultinomialNB,
    NearestCentroid,
    Popularity,
    load,
)
from expunge.exceptions import CannotFit
from expunge.linear_model.exact import exact_model
from expunge.registry import Registry

from .draws import Generator, chance, pick
from .judge import Checker
from .losses import Array

Rows: TypeAlias = list[tuple[list[Fraction], Any]]
LABELS = ("x", "y", "z")
ITEMS = tuple(f"item {j}" for j in range(7))
DECIMALS = 2
REQUESTS = 8


def log(value: Fraction) -> float:
    """Return the nearest multiple of 2^-32 to a logarithm."""
    with localcontext() as context:
        context.prec = 60
        found = Decimal(value.numerator).ln() - Decimal(value.denominator).ln()
        return float(int((found * 2**32).to_integral_value())) / 2.0**32


def solve(A: list[list[Fraction]], b: list[Fraction]) -> list[Fraction]:
    """Return the solution of A x = b, or raise CannotFit if there is no single one."""
    rows = [[*row, one] for row, one in zip(A, b, strict=True)]
    for k in range(len(rows)):
        at = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if at is None:
            raise CannotFit("singular")
        rows[k], rows[at] = rows[at], rows[k]
        rows[k] = [one / rows[k][k] for one in rows[k]]
        for i in range(len(rows)):
            if i != k:
                factor = rows[i][k]
                pairs = zip(rows[i], rows[k], strict=True)
                rows[i] = [one - factor * other for one, other in pairs]
    return [row[-1] for row in rows]


def by_class(rows: Rows) -> dict[Any, Rows]:
    """Return the rows of each label that there is, sorted."""
    return {
        one: [r for r in rows if r[1] == one] for one in sorted({y for _, y in rows})
    }


def totals(rows: Rows) -> list[Fraction]:
    """Return the sum of each column."""
    return [
        sum(column, Fraction(0)) for column in zip(*(x for x, _ in rows), strict=True)
    ]


def multinomial(rows: Rows) -> list[list[float]]:
    """Return log (N_cj + 1) / sum, and log n_c / n, a list for each class."""
    found = []
    for some in by_class(rows).values():
        counts = [one + 1 for one in totals(some)]
        prior = log(Fraction(len(some), len(rows)))
        found.append([*(log(one / sum(counts)) for one in counts), prior])
    return found


def complement(rows: Rows) -> list[list[float]]:
    """Return minus the same of all other classes."""
    groups, found = by_class(rows), []
    for label, some in groups.items():
        others = [row for row in rows if row[1] != label]
        counts = (
            [n + 1 for n in totals(others)]
            if others
            else [Fraction(1)] * len(rows[0][0])
        )
        prior = log(Fraction(len(some), len(rows))) if len(groups) == 1 else 0.0
        found.append([*(-log(one / sum(counts)) for one in counts), prior])
    return found


def bernoulli(rows: Rows) -> list[list[float]]:
    """Return log-odds of columns above 1, and the logarithm of having none."""
    found = []
    for some in by_class(rows).values():
        n = len(some)
        there = [
            sum(one > 1 for one in column)
            for column in zip(*(x for x, _ in some), strict=True)
        ]
        odds = [log(Fraction(one + 1, n - one + 1)) for one in there]
        none = Fraction(1)
        for one in there:
            none *= Fraction(n - one + 1, n + 2)
        found.append([*odds, log(none) + log(Fraction(n, len(rows)))])
    return found


def centroid(rows: Rows) -> list[list[float]]:
    """Return the means."""
    groups = by_class(rows).values()
    return [[float(one / len(some)) for one in totals(some)] for some in groups]


def least_squares(rows: Rows, alpha: int) -> list[list[float]]:
    """Return coefficients on the grid that moments determine, and the intercept."""
    n, unit = len(rows), 10**DECIMALS
    X = [[int(one * unit) for one in x] for x, _ in rows]
    y = [int(one * unit) for _, one in rows]
    s, t = [sum(column) for column in zip(*X, strict=True)], sum(y)
    d = range(len(s))
    A = [
        [
            n * sum(x[i] * x[j] for x in X)
            - s[i] * s[j]
            + (i == j) * n * alpha * unit**2
            for j in d
        ]
        for i in d
    ]
    c = [n * sum(x[i] * one for x, one in zip(X, y, strict=True)) - s[i] * t for i in d]
    spread = n * sum(one * one for one in y) - t * t
    exact = solve(
        [[Fraction(a) for a in row] for row in A], [Fraction(one) for one in c]
    )
    coef = []
    for i in d:
        grid = 40 - (spread.bit_length() - A[i][i].bit_length()) // 2
        coef.append(round(exact[i] * Fraction(2) ** grid) / Fraction(2) ** grid)
    rest = t - sum(a * b for a, b in zip(s, coef, strict=True))
    return [[*map(float, coef), float(rest / (n * unit))]]


def weights(users: Mapping[str, set[str]], l2: int) -> list[int]:
    """Return EASE's weights in multiples of 2^-20, row by row."""
    items = sorted(set().union(*users.values()))
    n = range(len(items))
    A = [
        [
            Fraction(sum({a, b} <= has for has in users.values()) + (a == b) * l2)
            for b in items
        ]
        for a in items
    ]
    columns = [solve(A, [Fraction(i == j) for i in n]) for j in n]
    ratios = [
        [Fraction(0) if i == j else -columns[j][i] / columns[j][j] for j in n]
        for i in n
    ]
    return [round(one * 2**20) for row in ratios for one in row]


MODELS: Mapping[str, tuple[Callable[[], Any], Callable[[Rows], list[list[float]]]]] = {
    "multinomial": (lambda: MultinomialNB(decimals=DECIMALS), multinomial),
    "complement": (lambda: ComplementNB(decimals=DECIMALS), complement),
    "bernoulli": (lambda: BernoulliNB(binarize=1.0), bernoulli),
    "centroid": (lambda: NearestCentroid(decimals=DECIMALS), centroid),
    "ridge": (
        lambda: ExactRidge(alpha=2.0, decimals=DECIMALS),
        lambda rows: least_squares(rows, 2),
    ),
    "least squares": (
        lambda: ExactLinearRegression(decimals=DECIMALS),
        lambda rows: least_squares(rows, 0),
    ),
}


def attack(rng: Generator, checker: Checker) -> None:
    """Let people leave and come, and compare every release with the oracle's."""
    if chance(rng, 0.3):
        attack_recommender(rng, checker)
        return
    make, publish = MODELS[pick(rng, *MODELS)]
    n, d = int(rng.integers(4, 30)), int(rng.integers(1, 4))
    model, rows = make(), draw_rows(rng, make, n, d)
    X, y, owners = arrays(rows)
    with checker.note_refusals() as refusal:
        model.fit(X, y, subjects=owners)
    if refusal:
        return
    left = dict(enumerate(rows))
    for step in range(REQUESTS):
        before, there = dict(left), sorted({owner for _, _, owner in left.values()})
        comes = chance(rng, 0.4)
        if comes:
            new = draw_rows(rng, make, int(rng.integers(1, 4)), d)
            left |= {len(rows) + i: one for i, one in enumerate(new)}
            rows += new
        else:
            gone = set(
                rng.choice(there, size=min(2, len(there)), replace=False).tolist()
            )
            left = {at: one for at, one in left.items() if one[2] not in gone}
        with checker.note_refusals() as refusal:
            if comes:
                model.add(*arrays(new)[:2], subjects=arrays(new)[2])
            else:
                model.forget(sorted(gone))
        known: Rows = [(x, label) for x, label, _ in left.values()]
        expected = None
        try:
            expected = publish(known) if known else None
        except CannotFit:
            pass
        checker.check(
            bool(refusal) == (expected is None), f"step {step}: refused or not"
        )
        if expected is None or refusal:
            left = before
            continue
        truth = np.array(expected).T.ravel().tobytes()
        checker.check(released(model) == truth, f"step {step}: {type(model).__name__}")
        if chance(rng, 0.1):
            model = reloaded(model)
            checker.check(released(model) == truth, "after save and load")


def attack_recommender(rng: Generator, checker: Checker) -> None:
    """The same with users and items, at times in a registry, at times restored."""
    kind = pick(rng, "ease", "popularity")
    l2 = int(rng.integers(1, 9))
    users: dict[str, set[str]] = {}
    for i in range(int(rng.integers(2, 12))):
        size = int(rng.integers(1, 5))
        users[f"user {i}"] = set(rng.choice(ITEMS, size=size, replace=False).tolist())

    def pairs(some: Mapping[str, set[str]]) -> list[tuple[str, str]]:
        return [(user, item) for user, has in some.items() for item in sorted(has)]

    model: Any = EASE(l2=l2) if kind == "ease" else Popularity()
    model.fit(pairs(users))
    for step in range(REQUESTS):
        if chance(rng, 0.4):
            user = f"user {int(rng.integers(0, 20))}"
            free = sorted({*ITEMS} - users.get(user, set()))
            if not free:
                continue
            new = {pick(rng, *free)}
            users[user] = users.get(user, set()) | new
            model.add([(user, item) for item in new])
        elif len(users) > 1:
            user = pick(rng, *users)
            del users[user]
            model.forget([user])
        truth = weights(users, l2)
        if kind == "popularity":
            items = sorted(set().union(*users.values()))
            truth = [sum(one in has for has in users.values()) for one in items]
        found = exact_model(model).answer().ravel().tolist()
        checker.check(found == truth, f"step {step}: {kind}")
        if chance(rng, 0.1):
            model = reloaded(model)
            found = exact_model(model).answer().ravel().tolist()
            checker.check(found == truth, f"step {step}: {kind} after save and load")
    if chance(rng, 0.05):
        in_registry(checker, model, pairs(users))


def in_registry(checker: Checker, model: Any, pairs: list[tuple[str, str]]) -> None:
    """Fit, forget, restore an older backup, and compare recommendations."""
    from tests.registries import back_up

    users = [user for user, _ in pairs]
    fresh = type(model)(**model.get_params())
    with TemporaryDirectory() as folder:
        registry = Registry.create(Path(folder) / "registry")
        registry.fit("model", fresh, [item for _, item in pairs], subjects=users)
        backup = back_up(registry, Path(folder) / "backup")
        if len({*users}) > 1:
            registry.forget([users[0]])
        registry.close()
        left = [pair for pair in pairs if pair[0] != users[0] or len({*users}) == 1]
        truth = fresh.fit(left)
        with backup.restore() as restored:
            for item in ITEMS:
                found = restored.models.recommend("model", [item], k=9)
                same = found == truth.recommend([item], k=9).tolist()
                checker.check(same, "a restored registry recommends something else")


def draw_rows(rng: Generator, make: Callable[[], Any], n: int, d: int) -> Any:
    """Return rows of hundredths, with labels or targets, and whose they are."""
    regression = type(make()).__name__.startswith("Exact")
    low = -900 if regression else 0
    found = []
    for _ in range(n):
        x = [Fraction(int(one), 100) for one in rng.integers(low, 900, size=d)]
        y: Any = pick(rng, *LABELS)
        if regression:
            y = Fraction(int(rng.integers(-900, 900)), 100)
        found.append((x, y, f"person {int(rng.integers(0, 1 + n // 2))}"))
    return found


def arrays(rows: Any) -> tuple[Array, Any, list[str]]:
    """Return rows as an estimator takes them."""
    X = np.array([[float(one) for one in x] for x, _, _ in rows])
    y = [label if isinstance(label, str) else float(label) for _, label, _ in rows]
    return X, np.array(y), [owner for _, _, owner in rows]


def released(model: Any) -> bytes:
    """Return the bytes of the last release."""
    found: bytes = model._public.release.theta.tobytes()
    return found


def reloaded(model: Any) -> Any:
    """Return the model after it was saved and loaded."""
    with TemporaryDirectory() as folder:
        model.save(folder)
        return load(folder)
