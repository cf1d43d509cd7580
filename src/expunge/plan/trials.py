# SPDX-License-Identifier: Apache-2.0
r"""Trials: what noise of each size does, found with real models of the same kind.

A fit does not depend on sigma, and neither do removals: only what is accepted does. So
one model of everybody is fitted, under the least noise that can be certified, and
everything else is read from it and from models of four fifths of the people:

    score, changes   models without noise are scored on people left out, while others
                     leave; what noise adds has a formula (``promise.decisions``)
    steps            people leave alone, once with their label and once with another:
                     how far apart the two answers are is what the label can be told by
    leaving          people leave one by one until the first answer that needs the rows,
                     under every sigma at once: an answer near enough for little noise
                     is near enough for more
    looks, time      from there on requests read the rows, and are timed

*The worst order* is searched for by removals too. The more somebody moves the model,
the larger the radius is without them, so those leave first without whom it is largest.
Some move it in the same direction and add up, others cancel, so everybody is measured
again after 1, 2, 4, 8 ... have left. No search finds the worst order of all.

No noise is drawn for any figure, so the same data get the same figures, but for times.
"""

import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from math import ceil, inf, sqrt
from statistics import fmean, median
from time import process_time
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.arrays import Index, Matrix, Vector, norm
from ..core.objective import check_weights
from ..core.rows import Rows
from ..exceptions import (
    ExpungeError,
    InvalidInput,
    NotCertifiable,
    NotConverged,
    Unsupported,
)
from ..linear_model.base import (
    Forgetful,
    fit_prepared,
    prepare_fit,
    private_model,
    set_snapshot,
)
from ..linear_model.estimators import compute_predictor, noise_lengths
from ..linear_model.parameters import LoudNoiseWarning
from ..linear_model.yardstick import Rate, boosted_score
from ..preprocessing.columns import take_rows
from ..preprocessing.description import read_automatic
from ..preprocessing.hashed import read_input_map
from ..preprocessing.inputs import EncodedInputs, encode_inputs
from ..preprocessing.sklearn_steps import describe
from ..private_model.composition import FIXED
from ..private_model.labels import Labels
from ..private_model.model import PrivateModel
from ..private_model.snapshot import forget_owners
from ..private_model.subjects import owners_of
from ..private_model.target_units import has_free_units
from ..private_model.training_rows import KeptRows, TrainingRows, require_in_memory
from ..promise.budget import Budget, guess_of
from ..promise.decisions import (
    class_chances,
    expected_score,
    prediction_moments,
    share_changed,
)
from ..promise.noise import make_noise
from ..removal import Retrain

# So many people leave while a model is scored. People are left out a fifth at a time,
# until so many rows are scored; many classes take time, so they have fewer.
SCORED_REQUESTS, FOLDS, ENOUGH_ROWS, SCORED_CELLS = 5, 5, 5000, 20_000
FEWEST_PEOPLE = 50
# So many people leave alone, to see how far their label moves the model: fewer from a
# large model, and few where that takes passes over all rows.
MOST_STEPS, FEWEST_STEPS, STEP_CELLS = 200, 10, 30_000
# Predictors beyond this are taken for it in scores.
FARTHEST = 300.0
# A slope of the loss that is shorter than this counts as this.
LEAST_SLOPE = 1e-6
# Random orders in which people leave, where the rows are not kept.
ORDERS = 5
# Under each sigma requests are answered for so many seconds of processor time, or until
# so many have read the rows if all do.
MOST_SECONDS, FEW_LOOKS, TIMED = 0.8, 5, 20
# Where there are more people, they are measured in so many groups first, and then the
# people of the heaviest groups; later rounds measure at least the next few.
MOST_MEASURED, NEXT_MEASURED = 1000, 200
# The decision behind an answer that came from the state alone.
WITHOUT_LOOK = ("accepted",)
# Of the orders in which people leave, and of the noise of releases that are timed.
SEED = 0

People = NDArray[Any]


class Scored(NamedTuple):
    """What releases are worth, and how much of what they say one request changes."""

    score: float
    changed: float


# Of the predictors of one release after another, and ``spread``, the noise on them.
Judge: TypeAlias = Callable[..., Scored]


@dataclass(frozen=True, slots=True)
class SigmaTrial:
    """What noise of one size does to a model.

    Attributes
    ----------
    sigma
        Standard deviation of the noise.
    score
        Expected accuracy, or R2, of a release on people who were not fitted.
    changed
        What one request does to everybody else: the expected share of decisions that
        differ from the release before; for a regression the typical change of a
        prediction, in deviations of y.
    seconds
        Processor time of a request, on average.
    looks
        How many of the requests read the remaining rows; None if they are not kept.
    label_guess
        How often somebody with the release before, who knows all of a leaver but the
        label, guesses it, where chance is right in half.
    at_random, at_worst
        How many people may leave, one after another, before an answer has to read the
        rows: in each random order, and in the worst of all orders tried. None where
        the rows are kept and each release is promised on its own.
    """

    sigma: float
    score: float
    changed: float
    seconds: float
    looks: int | None
    label_guess: float
    at_random: tuple[int, ...] | None = None
    at_worst: int | None = None


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trials:
    """An estimator, the data to try it on, and who leaves.

    Attributes
    ----------
    estimator
        As given.
    X, y, weight
        Rows as an estimator keeps them: exposures, offsets and times are in labels and
        weights, and texts are encoded. No weights are None.
    owners
        The owner of each row.
    orders
        All owners, in random orders.
    requests
        How many requests there will be.
    """

    estimator: Forgetful
    X: Any
    y: NDArray[Any]
    weight: Vector | None
    owners: People
    orders: tuple[People, ...]
    requests: int

    @classmethod
    def of(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        subjects: Iterable[object] | None,
        requests: int,
        **beside: Any,
    ) -> "Trials":
        """Return the trials, or refuse what cannot be tried.

        ``beside`` are weights, exposures and offsets.
        """
        if not isinstance(estimator, Forgetful):
            raise InvalidInput(
                f"estimator={type(estimator).__name__}, which cannot forget; give an "
                "estimator of expunge, such as LogisticRegression()"
            )
        mechanism = estimator.get_params(deep=False)["mechanism"]
        if mechanism == "retrain":
            mechanism = Retrain()
        if not isinstance(mechanism, str) and mechanism.needs_rows:
            raise Unsupported(
                f"{type(mechanism).__name__} looks at the remaining rows at every "
                "request, so its answers fit whatever is removed; try Newton or "
                "Jackknife"
            )
        n_rows = len(np.asarray(y))
        given = range(n_rows) if subjects is None else subjects
        named: Sequence[Any] = owners_of(given, n_rows)
        X, labels, named, weight = _read_rows(estimator, X, y, named, **beside)
        owners = np.array(named, dtype=np.str_)
        people = np.unique(owners)
        if len(people) < FEWEST_PEOPLE:
            raise InvalidInput(
                f"the rows belong to {len(people)} people; give rows of at least "
                f"{FEWEST_PEOPLE}, some of them to fit and some to score"
            )
        orders = tuple(shuffle(people, SEED + i) for i in range(ORDERS))
        return cls(estimator, X, labels, weight, owners, orders, requests)

    @property
    def metric(self) -> str:
        """What a score is."""
        if hasattr(type(self.estimator), "classes_"):
            return "accuracy"
        return "D2" if hasattr(self.estimator, "explained") else "R2"

    @property
    def keeps_rows(self) -> bool:
        """Whether the estimator is to keep its rows; one that tunes itself does."""
        return bool(self.estimator.get_params(deep=False).get("keep_data", True))

    def n_steps(self, budgets: Sequence[Budget]) -> int:
        """Return how many steps ``run`` counts."""
        return 4 + len(budgets)

    @property
    def n_leaving(self) -> int:
        """How many people leave: one for each request, at most every other one."""
        return min(self.requests, len(self.orders[0]) // 2)

    def run(
        self, budgets: Sequence[Budget], count: Callable[[], None]
    ) -> tuple[Scored, list[SigmaTrial]]:
        """Return what releases are worth without noise, and what each budget does.

        Budgets come in the order of their noise. The first ones may be missing: no fit
        can be certified under them.

        Parameters
        ----------
        budgets
            They differ by sigma alone.
        count
            Called after each of ``n_steps``.
        """
        model, first = self.fit_least(budgets)
        budgets = budgets[first:]
        for _ in range(first + 1):
            count()
        free, *scored = self.score([0.0, *(budget.deviation for budget in budgets)])
        count()
        steps = self.find_label_steps(model)
        count()
        people, jointly = self.orders[0], budgets[0].releases is not None
        counts: list[list[int]] | None = None
        reads = model.needs_training_rows  # at every request
        left = [(0, under(model, budget)) for budget in budgets]
        if not reads:
            left = leave_until_looks(model, budgets, people=people[: self.n_leaving])
            if jointly or not self.keeps_rows:
                worst = self.find_worst_order(under(model, budgets[-1]))
                others = (
                    order[: self.n_leaving] for order in (*self.orders[1:], worst)
                )
                found = [
                    left,
                    *(leave_until_looks(model, budgets, people=o) for o in others),
                ]
                counts = [[n for n, _ in one] for one in zip(*found, strict=True)]
        count()
        quick, trials = 0.0 if reads else self.time_quick(left[-1][1]), []
        for i, (quiet, after) in enumerate(left):
            looks, seconds = None, quick
            if self.keeps_rows:
                always = reads or budgets[i].always_looks
                if always:
                    quiet, after = 0, under(model, budgets[i])
                looks, look = self.serve(after, quiet, always=always)
                seconds += (look - quick) * looks / self.requests
            trials.append(
                SigmaTrial(
                    sigma=budgets[i].deviation,
                    score=scored[i].score,
                    changed=scored[i].changed,
                    seconds=seconds,
                    looks=looks,
                    label_guess=guess_label(steps, budgets[i].deviation),
                    at_random=None if counts is None else tuple(counts[i][:ORDERS]),
                    at_worst=None if counts is None else min(counts[i]),
                )
            )
            count()
        return free, trials

    def make(self, budget: Budget | None) -> Forgetful:
        """Return the estimator under this budget, not fitted."""
        parameters = self.estimator.get_params(deep=False)
        changes: dict[str, Any] = {"budget": budget, "random_state": SEED}
        if not self.keeps_rows:  # they are kept here, and answers do not know it
            changes["keep_data"] = True
            steps = parameters["preprocessing"]
            if read_automatic(steps) is not None:  # without what takes the rows
                guessed = describe(steps, self.X, rows_kept=False)
                changes["preprocessing"] = guessed
            if parameters["mechanism"] == "auto":
                changes["mechanism"] = "newton"
        return type(self.estimator)(**parameters | changes)

    def fit(self, budget: Budget | None, rows: Index) -> Forgetful:
        """Return the estimator, fitted to these rows under this budget."""
        model, owners = self.make(budget), self.owners[rows]
        X, y, weight = self.take(rows)
        # Not its own ``fit``, which looks for what works in place of what does not, and
        # warns of what is scored here without noise, and thrown away.
        prepared = prepare_fit(model, X, y, subjects=owners, sample_weight=weight)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LoudNoiseWarning)
            set_snapshot(model, fit_prepared(model, prepared))
        return model

    def take(self, rows: Index) -> tuple[Any, NDArray[Any], Vector | None]:
        """Return some rows with their labels and weights."""
        weight = None if self.weight is None else self.weight[rows]
        if isinstance(self.X, EncodedInputs):
            return EncodedInputs(self.X.rows[rows]), self.y[rows], weight
        return take_rows(self.X, rows), self.y[rows], weight

    def fit_least(self, budgets: Sequence[Budget]) -> tuple[PrivateModel, int]:
        """Return the model under the first budget that can be certified, and which.

        The budgets come in the order of their noise. If none can be, this raises what
        a fit under the last one raises.
        """
        found, failures = dict[int, PrivateModel](), dict[int, ExpungeError]()

        def works(i: int) -> bool:
            try:
                found[i] = private_model(self.fit(budgets[i], np.arange(len(self.y))))
            except (NotCertifiable, NotConverged, InvalidInput) as error:
                failures[i] = error
            return i in found

        n = len(budgets)
        first = 0 if works(0) else 1 + bisect_left(range(1, n), True, key=works)
        if first == n:
            # Its own fit also names a change that works.
            model = self.make(budgets[-1])
            Forgetful.fit(model, self.X, self.y, self.owners, self.weight)
            raise failures[n - 1]
        return found[first], first

    @property
    def n_folds(self) -> int:
        """How many parts of the rows are held out, one after another."""
        return min(FOLDS, ceil(FOLDS * ENOUGH_ROWS / len(self.y)))

    def boost(self) -> float | None:
        """Return the score of gradient boosting on what is held out, if it takes it."""
        if isinstance(self.X, EncodedInputs):
            return None
        scores, n_scored = list[float](), list[int]()
        for fold in range(self.n_folds):
            out = np.isin(self.owners, self.orders[0][fold::FOLDS])
            rate = None
            if self.metric == "D2":
                model: Any = self.fit(None, np.flatnonzero(~out))
                _, labels, weight = self.take(np.flatnonzero(out))
                kind = private_model(model).objective.loss
                rate = Rate(kind, model.explained(labels, weight))
            found = boosted_score(
                self.X,
                self.y,
                train=np.flatnonzero(~out),
                test=np.flatnonzero(out),
                classify=self.metric == "accuracy",
                weight=self.weight,
                rate=rate,
            )
            if found is None:
                return None
            scores.append(found)
            n_scored.append(int(out.sum()))
        return float(np.average(scores, weights=n_scored))

    def score(self, sigmas: Sequence[float]) -> tuple[Scored, ...]:
        """Return score and changes under noise of each size."""
        totals, n_scored = np.zeros((len(sigmas), 2)), 0
        for fold in range(self.n_folds):
            out = np.isin(self.owners, self.orders[0][fold::FOLDS])
            leaving = np.delete(self.orders[0], np.s_[fold::FOLDS])[:SCORED_REQUESTS]
            model = self.fit(None, np.flatnonzero(~out))
            places = np.flatnonzero(out)
            if self.metric == "accuracy" and len(model.classes_) > 2:
                places = places[: ceil(SCORED_CELLS / len(model.classes_))]
            X, y, weight = self.take(places)
            lengths, etas = noise_lengths(model, X), [compute_predictor(model, X)]
            judge = self._judge(model, y, weight)
            for person in leaving:
                etas.append(compute_predictor(model.forget([person]), X))
                if etas[-1].shape != etas[0].shape:  # a class left with its last row
                    etas.pop()
                    break
            for i, sigma in enumerate(sigmas):
                totals[i] += len(y) * np.array(judge(etas, spread=sigma * lengths))
            n_scored += len(y)
        return tuple(Scored(*means) for means in (totals / n_scored).tolist())

    def _judge(self, model: Any, y: NDArray[Any], weight: Vector | None) -> Judge:
        """Return what scores releases of a model, and tells how much they differ."""
        if self.metric == "accuracy":
            known = model.classes_[:, None] == y
            return partial(judge_classes, known.T.astype(float))
        objective = private_model(model).objective
        targets = y.astype(float).reshape(len(y), -1)
        every = self.y.astype(float).reshape(len(self.y), -1)
        factor = np.ones((len(y), 1))
        if objective.loss.has_offsets:
            targets, factor, every = targets[:, :1], targets[:, 1:], every[:, :1]
        deviation = np.std(every, axis=0)
        free = has_free_units(objective)  # then sigma is a share of the deviation
        return partial(
            judge_predictions,
            targets,
            weight=np.ones(len(y)) if weight is None else weight,
            score=_explain(model, y, weight),
            mean=lambda eta: factor * objective.loss.mean(eta),
            deviation=deviation,
            unit=deviation if free else np.ones_like(deviation),
        )

    def find_label_steps(self, model: PrivateModel) -> Vector:
        """Return how far apart answers are that differ by a leaver's label alone.

        The other label is the likeliest other class, or a target one deviation higher.
        A row leaves once with its label, and once with the other. Where removals are
        passes over the rows, these do not ask for the label: then the answer's step is
        taken for as much longer as the slope of the loss is.
        """
        kept, units = require_in_memory(_rows_of(model)), model.terms.units
        deviation = np.std(kept.rows.y, axis=0)
        if model.objective.loss.has_offsets:  # which stand beside the response
            deviation[1:] = 0.0
        # Under the objective as it was chosen; without a budget nobody looks for more.
        wide = not model.terms.mechanism.keeps_matrices
        if wide:
            terms = replace(model.terms, budget=None)
            model = replace(model, terms=terms)
        model = replace(model, chooser=FIXED)
        theta, steps = model.answer.draft.theta, []
        loss = model.objective.loss
        n_steps = 0 if wide else min(MOST_STEPS, STEP_CELLS // theta.size)
        for person in self.orders[0][: max(n_steps, FEWEST_STEPS)].tolist():
            gone = np.array(kept.positions[person][:1])
            row = kept.take(gone)
            seen = model.encode(row)
            assert isinstance(seen, Rows)
            eta = seen.X @ theta.reshape(-1, loss.outputs)
            other = replace_label(row, eta, labels=model.labels, deviation=deviation)
            # A label that nobody has may leave no minimiser, and is left out then.
            with suppress(ExpungeError), np.errstate(over="ignore", invalid="ignore"):
                after = model.forget(row, gone=gone if wide else None)
                step = after.answer.draft.theta  # of other features, if one is gone
                if wide and step.size != theta.size:
                    continue
                if wide:
                    step = step - theta
                    eta = eta[:, 0] if loss.outputs == 1 else eta
                    codes = [row.y, other.y]
                    if model.labels is not None:
                        codes = list(map(model.labels.recoding(loss), codes))
                    own, its = (loss.slope(code, eta) for code in codes)
                    step *= norm((its - own).ravel()) / max(
                        norm(own.ravel()), LEAST_SLOPE
                    )
                else:
                    step = step - model.forget(other).answer.draft.theta
                if units is not None:
                    step = units.scale(step, intercept=False)
                steps.append(norm(step))
        return np.array(steps)

    def find_worst_order(self, model: PrivateModel) -> People:
        """Return all people, those first who make the radius grow most.

        Which radius fits depends on the budget, and the radius itself hardly: one that
        allows much will do for all.
        """
        people, most = self.orders[0], MOST_MEASURED
        rest = rank(model, np.array_split(people, min(len(people), most)))
        if len(people) > most:
            rest = np.concatenate([rank(model, rest[:most, None]), rest[most:]])
        taken, rest = rest[:1], rest[1:]
        while len(taken) < self.n_leaving:
            n_taken = len(taken)
            pool, others = np.split(rest, [max(NEXT_MEASURED, 2 * n_taken)])
            pool = rank(model, pool[:, None], after=taken)
            taken = np.concatenate([taken, pool[:n_taken]])
            rest = np.concatenate([pool[n_taken:], others])
        return np.concatenate([taken, rest])

    def time_quick(self, model: PrivateModel) -> float:
        """Return the processor time of a request that reads no rows, releases made."""
        kept, seconds = _rows_of(model), []
        assert model.budget is not None
        noise = make_noise(model.budget, SEED)
        for person in self.orders[0][:TIMED].tolist():
            with suppress(ExpungeError):
                clock = process_time()
                after = model.forget(kept.take(kept.find({person})))
                after.release(noise)
                seconds.append(process_time() - clock)
        return median(seconds) if seconds else 0.0

    def serve(
        self, model: PrivateModel, quiet: int, *, always: bool
    ) -> tuple[int, float]:
        """Return how many requests read the rows, and how long one takes that does.

        Parameters
        ----------
        model, quiet
            The model after so many people have left, in the first order, and its rows
            as they were at the fit.
        always
            Whether every request reads the rows.
        """
        people = self.orders[0][: self.n_leaving]
        kept, budget = require_in_memory(_rows_of(model)), model.budget
        assert budget is not None
        rows = kept.rows.take(np.arange(len(kept.rows)))  # what leaves is overwritten
        own = TrainingRows(rows, kept.owners)
        own.erase(own.find(set(people[:quiet].tolist())))
        model, noise = replace(model, training_rows=own), make_noise(budget, SEED)
        looked, seconds = list[bool](), list[float]()
        begin = process_time()
        for person in people[quiet:].tolist():
            clock = process_time()
            try:
                model = forget_owners(model, {person})
                model, _, _ = model.release(noise)
            except ExpungeError:  # nobody can answer it: all who are left are alike
                looked.append(True)
                break
            spent = process_time() - clock
            looked.append(always or model.answer.decisions != WITHOUT_LOOK)
            if looked[-1]:
                seconds.append(spent)
            slow = process_time() - begin > MOST_SECONDS
            if len(seconds) >= FEW_LOOKS and (slow or always):
                break
            model = model.finish()
        look = fmean(seconds) if seconds else 0.0
        n_asked = quiet + len(looked)
        if always:
            return self.requests, look
        if n_asked == self.n_leaving:
            return round(sum(looked) / n_asked * self.requests), look
        return extrapolate_looks(quiet, looked, requests=self.requests), look


def judge_classes(known: Matrix, etas: Sequence[Matrix], *, spread: Vector) -> Scored:
    """Return the expected accuracy of releases, and the share of changed decisions.

    ``known`` is one where a class is the label of a row, and zero elsewhere.
    """
    chances = [class_chances(eta, spread) for eta in etas]
    right = [float(np.mean(np.sum(known * chance, axis=1))) for chance in chances]
    changed = [share_changed(*pair) for pair in pairwise(chances)]
    return Scored(float(np.mean(right)), float(np.mean(changed)))


def _read_rows(
    estimator: Any, X: Any, y: Any, owners: Sequence[str], **beside: Any
) -> tuple[Any, NDArray[Any], Sequence[Any], Vector | None]:
    """Return rows as an estimator keeps them: rows, labels, owners and weights."""
    given = {name: one for name, one in beside.items() if one is not None}
    weight = given.get("sample_weight")
    if hasattr(estimator, "spread"):
        if len(given) > (weight is not None):
            raise InvalidInput(
                "exposure=... or offset=... with survival, whose times are the "
                "exposures; leave them out"
            )
        X, y, owners, weight = estimator.spread(X, y, owners, weight)
    elif hasattr(estimator, "label"):
        y, weight = estimator.label(y, **given)
    elif len(given) > (weight is not None):
        raise InvalidInput(
            f"exposure=... or offset=... with {type(estimator).__name__}; they are for "
            "counts, amounts and quantiles, such as PoissonRegressor"
        )
    made_by = read_input_map(estimator.preprocessing)
    if made_by is not None and not made_by.keeps_people:  # once for all fits
        X = encode_inputs(made_by.noted(), X)
    if weight is not None:
        weight = check_weights(weight, len(owners))
    return X, np.asarray(y), owners, weight


def _explain(
    model: Any, y: NDArray[Any], weight: Vector | None
) -> Callable[[Vector], float] | None:
    """Return what says D2 of predictors on rows; None where R2 is the score."""
    if not hasattr(model, "explained"):
        return None
    explain, mean = model.explained(y, weight), private_model(model).objective.loss.mean
    # Under loud noise means are large, and must not be infinite.
    return lambda eta: float(explain(mean(np.clip(eta, -FARTHEST, FARTHEST))))


def judge_predictions(
    targets: Matrix,
    etas: Sequence[Matrix],
    *,
    spread: Vector,
    weight: Vector,
    score: Callable[[Vector], float] | None,
    mean: Callable[[Vector], Vector],
    deviation: Vector,
    unit: Vector,
) -> Scored:
    """Return the expected score of releases, and the typical change of a prediction.

    That is its root mean square, in deviations of the target. ``mean`` makes
    predictions of predictors; sigma is in the ``unit`` of each. Rows count as often as
    their ``weight`` says. ``score`` makes a score of predictors; None stands for R2.
    """
    each = np.outer(spread, unit)
    moments = [prediction_moments(eta, each, mean=mean) for eta in etas]
    average = partial(np.average, axis=0, weights=weight)
    total = average((targets - average(targets)) ** 2)
    scores = [
        float(np.mean(1.0 - average((targets - m) ** 2 + v) / total))
        if score is None
        else expected_score(eta[:, 0], each[:, 0], score=score)
        for eta, (m, v) in zip(etas, moments, strict=True)
    ]
    squares = [
        np.mean(average((m - n) ** 2 + v + w) / deviation**2)
        for (m, v), (n, w) in pairwise(moments)
    ]
    return Scored(float(np.mean(scores)), sqrt(float(np.mean(squares))))


def replace_label(
    row: Rows, eta: Matrix, *, labels: Labels | None, deviation: Vector
) -> Rows:
    """Return a kept row with its likeliest other class, or a target a deviation up."""
    if labels is None:
        y = row.y + deviation
    elif labels.signed:
        y = -row.y
    elif len(labels.classes) == 2:
        y = 1.0 - row.y
    else:
        behind = eta[0].copy()
        behind[int(row.y[0])] = -inf
        y = np.array([float(np.argmax(behind))])
    return Rows(row.X, y, row.weight)


def guess_label(steps: Vector, sigma: float) -> float:
    """Return how often a label is guessed from two releases, on average.

    The answers to a request with one label and with the other are a step d apart. The
    difference of two releases carries noise of deviation sqrt(2) sigma, so the best
    test between two labels as likely as each other is right with probability
    Phi(d / (2 sqrt(2) sigma)); see docs/choosing.md.
    """
    guesses = [guess_of(step / (sqrt(2.0) * sigma)) for step in steps.tolist()]
    return float(np.mean(guesses)) if guesses else 1.0


def under(model: PrivateModel, budget: Budget) -> PrivateModel:
    """Return the model as a fit under another budget makes it, if that is certified."""
    terms = replace(model.terms, budget=budget, looks=budget.always_looks)
    return replace(model, terms=terms)


def leave_until_looks(
    model: PrivateModel, budgets: Sequence[Budget], *, people: People
) -> list[tuple[int, PrivateModel]]:
    """Return how many people leave before an answer needs the rows, under each budget.

    And the model then; its rows stay as they are. The budgets come in the order of
    their noise: what is near enough for one is near enough for all after it.
    """
    kept, found = _rows_of(model), list[tuple[int, PrivateModel]]()
    current = under(model, budgets[0])
    for position, person in enumerate(people.tolist()):
        rows = kept.take(kept.find({person}))
        while len(found) < len(budgets):
            with suppress(ExpungeError):  # if all who are left are of one class, say
                after = current.forget(rows)
                if after.answer.fits(after.budget):
                    current = after
                    break
            found.append((position, current))
            if len(found) < len(budgets):
                current = under(current, budgets[len(found)])
        else:
            return found
    rest = budgets[len(found) :]
    return [*found, *((len(people), under(current, budget)) for budget in rest)]


def extrapolate_looks(quiet: int, looked: Sequence[bool], *, requests: int) -> int:
    """Return how many of the requests read the rows, if it goes on like this.

    Parameters
    ----------
    quiet, looked
        How many requests came before the first that did, and what came from there on.
    requests
        How many there will be.
    """
    if not any(looked):
        return 0
    ends = [i + 1 for i, (a, b) in enumerate(pairwise(looked)) if a and not b]
    if not ends:  # they go on reading
        return requests - quiet
    share = sum(looked[: ends[-1]]) / (quiet + ends[-1])
    return round(share * requests)


def rank(
    model: PrivateModel, groups: Iterable[People], *, after: People | None = None
) -> People:
    """Return the people of these groups by the radius without them, the largest first.

    Others may have left before (``after``). Nobody looks at the rows: a model that is
    not told which rows leave cannot.
    """
    kept = _rows_of(model)
    gone: set[str] = set() if after is None else set(after.tolist())

    def leave(model: PrivateModel, people: set[str]) -> PrivateModel:
        return model.forget(kept.take(kept.find(people)))

    if gone:
        with suppress(ExpungeError):  # without them there may be no answer for anybody
            model, gone = leave(model, gone), set()
    listed, radii = list(groups), []
    for group in listed:
        try:
            radii.append(leave(model, gone | set(group.tolist())).answer.radius.value)
        except ExpungeError:
            radii.append(inf)
    order = np.argsort(np.negative(radii), kind="stable")
    return np.concatenate([listed[i] for i in order])


def shuffle(people: People, seed: int) -> People:
    """Return people in the order of hashes of their positions: a random one."""
    keys = [blake2b(f"{seed}:{i}".encode(), digest_size=16) for i in range(len(people))]
    digests = [key.digest() for key in keys]
    return people[sorted(range(len(people)), key=digests.__getitem__)]


def _rows_of(model: PrivateModel) -> KeptRows:
    assert model.training_rows is not None
    return model.training_rows
