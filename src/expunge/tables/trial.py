# SPDX-License-Identifier: Apache-2.0
"""A trial: how well a model will do on people whom it has not seen.

A tenth of the people, drawn by a keyed hash of their ids, is held out; a model of the
others is scored on them and thrown away. Each person counts once, however many rows
they have. The scores of the model and of a guess without features are means over P
people of numbers between 0 and 1, so one of those people more or less moves the two
scores by at most sqrt(2) / P together. Noise of standard deviation sqrt(2) / (P mu),
with the mu of the budget, hides that (Dong, Roth and Su, Gaussian differential privacy,
Theorem 1). The trial model is a release under the budget like any other. The guess, the
most common class of those not held out, their median, or for counts, amounts and
quantiles the constant of the smallest loss, is exact: a score is for the one who holds
the table, not for publication.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from ..core.arrays import Vector
from ..exceptions import InvalidInput
from ..private_model.subjects import owners_of
from ..promise.budget import Budget
from ..promise.noise import SECRET_BYTES, make_noise, random_bytes
from ..selection.choice import folds_of
from .training import TrainingTable

N_PARTS = 10
# Beyond this a score says nothing.
LARGEST_NOISE = 0.1


@dataclass(frozen=True, slots=True)
class TrialScore:
    """What a trial found; every figure has noise.

    Attributes
    ----------
    task
        "classification": the share of rows whose class is right. "regression": the
        share of rows in which the model is nearer to the truth than the guess.
    guessed
        What the guess is, in words.
    score
        Of the model.
    guess
        Of the most common class; a half for regression.
    noise
        Standard deviation of the noise on either.
    """

    task: str
    guessed: str
    score: float
    guess: float
    noise: float

    def describe(self) -> str:
        """Return the finding as a sentence."""
        about = f"give or take {200 * self.noise:.1f} points of noise"
        if self.task == "regression":
            return (
                f"with people it has not seen, nearer to the truth than {self.guessed} "
                f"in about {self.score:.1%} of rows, {about}"
            )
        return (
            f"with people it has not seen, right in about {self.score:.1%} of rows, "
            f"where {self.guessed} is in {self.guess:.1%}, {about}"
        )


def try_model(
    estimator: Any, table: TrainingTable, *, key: bytes | None = None
) -> TrialScore:
    """Return how well an estimator does on people whom it has not seen.

    Raises an ``ExpungeError`` where that cannot be told: too few people for the noise,
    or a model that cannot be fitted without those held out.

    Parameters
    ----------
    estimator
        The estimator, which is not fitted here.
    table
        The rows.
    key
        Draws who is held out; None makes a new one.
    """
    from sklearn.base import clone

    if table.time is not None:
        raise InvalidInput(
            "survival is not tried; score such a model from Python, on people whom you "
            "held out"
        )
    owners = owners_of(table.subjects, len(table.y))
    secret = random_bytes(SECRET_BYTES) if key is None else key
    held = folds_of(owners, secret, n_folds=N_PARTS) == 0
    people = [owner for owner, out in zip(owners, held, strict=True) if out]
    budget: Budget = estimator.budget or Budget()
    noise = sqrt(2.0) / (max(len(set(people)), 1) * budget.gdp)
    if noise > LARGEST_NOISE:
        raise InvalidInput(
            "too few people to try the model on some of them; the noise that hides "
            "each of them would hide the score too"
        )
    learnt = table.take(np.flatnonzero(~held))
    model = clone(estimator)
    model.fit(
        learnt.X,
        learnt.y,
        subjects=learnt.subjects,
        sample_weight=learnt.weight,
        **_beside(learnt),
    )
    judged = table.take(np.flatnonzero(held))
    words, right, guessed = _judge(model, judged, learnt=learnt)
    exact = np.array([_mean_by_person(one, people) for one in (right, guessed)])
    source = make_noise(Budget(sigma=noise), estimator.random_state)
    score, guess = np.clip(exact + source.draw(2), 0.0, 1.0)
    if table.schema.task == "regression":
        guess = 0.5
    return TrialScore(table.schema.task, words, float(score), float(guess), noise)


def _judge(
    model: Any, judged: TrainingTable, *, learnt: TrainingTable
) -> tuple[str, Vector, Vector]:
    """Return a guess without features, and for each row how right both are."""
    y, predicted = judged.y, model.predict(judged.X)
    if judged.schema.task != "regression":
        values, counts = np.unique(learnt.y, return_counts=True)
        common = values[np.argmax(counts)]
        right = (predicted == y).astype(float)
        return "the most common class", right, (y == common).astype(float)
    if hasattr(model, "row_losses"):
        # Where most counts are zero, the median is zero and nearer than any mean.
        words, beside = "the best constant by the loss", _beside(judged)
        guess = model.find_constant(
            learnt.y, sample_weight=learnt.weight, **_beside(learnt)
        )
        own, other = (
            model.row_losses(one, y, **beside)
            for one in (predicted, np.full(len(y), guess))
        )
    else:
        words, guess = "the median", np.median(learnt.y)
        own, other = np.abs(y - predicted), np.abs(y - guess)
    return words, (np.sign(other - own) + 1.0) / 2.0, np.full(len(y), 0.5)


def _mean_by_person(values: Vector, people: list[str]) -> float:
    """Return the mean over people of the mean over each one's rows."""
    _, places = np.unique(people, return_inverse=True)
    sums, counts = np.bincount(places, weights=values), np.bincount(places)
    return float(np.mean(sums / counts))


def _beside(table: TrainingTable) -> dict[str, Any]:
    """Return exposures or offsets, if the table has them."""
    both = {"exposure": table.exposure, "offset": table.offset}
    return {name: values for name, values in both.items() if values is not None}
