# SPDX-License-Identifier: Apache-2.0
r"""Our own mechanisms: Jackknife, Newton and Rescaled without rows, polished with them.

Their noise is (radius + tau) / mu(epsilon, delta): the smallest sound radius of the
answer, what the retrained world's solver may be off (tau: the certified error of the
first fit), and the Gaussian mechanism's exact parameter. A contender that is timed
without its certificate gets the radius from a certified state that follows it, outside
``forget``.
"""

from dataclasses import dataclass, field
from math import inf

import numpy as np

from benchmarks.rescaled import Rescaled
from expunge import (
    Jackknife,
    Newton,
    Objective,
    Rows,
    State,
    summarise,
)
from expunge.core.arrays import Index, Vector
from expunge.core.solver import Solution, minimise, require_converged
from expunge.exceptions import Unsupported
from expunge.private_model.answers import REFUSALS
from expunge.private_model.model import PrivateModel
from expunge.promise.budget import mu_of
from expunge.promise.capacity import jackknife_radius, regularity_of
from expunge.promise.radius import best_radius
from expunge.removal import Draft, Mechanism, measure_gradient, state_size
from expunge.removal.state import draft_of

from ..polish import Polish
from .contenders_rows import Remaining, row_bytes
from .protocol import Problem, Promise, add_noise

FLOAT_BYTES = 8


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Fit:
    """A fit with what its solver left: a gradient, and a certified distance."""

    summary: State
    residual: float
    error: float


def fit_and_certify(objective: Objective, rows: Rows) -> Fit:
    """Fit these rows and certify how far the solver may be from the minimiser."""
    solution = minimise(objective, rows)
    require_converged(objective, rows, solution=solution)
    return certify_solution(objective, rows, solution)


def certify_solution(objective: Objective, rows: Rows, solution: Solution) -> Fit:
    """Return a solution's sums and how far it may be from the minimiser."""
    draft = draft_of(solution, rows)
    summary = summarise(objective, rows, theta=solution.theta)
    state = Newton().init(summary)
    error = best_radius(
        state, measure_gradient(state, draft, remaining=rows), remaining=rows
    ).value
    return Fit(summary, solution.residual, error)


def required_noise(distance: float, promise: Promise) -> float:
    """Return the standard deviation that hides this distance."""
    return distance / mu_of(promise.epsilon, promise.delta)


class CertifiedState:
    """A certified state that follows a contender's removals when it is asked."""

    def __init__(self, mechanism: Mechanism, summary: State, train: Rows) -> None:
        self._mechanism, self._train = mechanism, train
        self._state = mechanism.init(summary)
        self._behind: list[Index] = []

    def follow(self, removed: Index) -> None:
        """Note a request, at no cost."""
        self._behind.append(removed)

    def radius(self, draft: Draft) -> float:
        """Return the smallest radius of an answer that is sound without rows."""
        if self._behind:
            rows = self._train.take(np.concatenate(self._behind))
            self._state = self._mechanism.update(self._state, rows, overwrite=True)
            self._behind = []
        return best_radius(self._state, draft).value


class StatefulSession:
    """Requests answered from a state, never from rows.

    Only a refusal (a leverage of one, a Hessian without a factor) leads back to the
    rows: then the model is fitted again to what remains.
    """

    def __init__(
        self, problem: Problem, timed: Mechanism, certified: Mechanism
    ) -> None:
        self._problem, self._timed, self._certified = problem, timed, certified
        self._gone = np.zeros(len(problem.train), dtype=bool)
        self._retrainings = 0
        self._anchor(problem.train)
        self._tau = self._fit.error

    def _anchor(self, rows: Rows) -> None:
        """Fit these rows and start there."""
        kept = rows.total_weight / self._problem.train.total_weight
        self._fit = fit_and_certify(self._problem.objective.after(kept), rows)
        summary = self._fit.summary
        self._state, self._draft = self._timed.step(self._timed.init(summary))
        self._certified_state = CertifiedState(
            self._certified, summary, self._problem.train
        )

    def forget(self, removed: Index) -> None:
        """Subtract the rows and read the model."""
        rows = self._problem.train.take(removed)
        self._gone[removed] = True
        try:
            state = self._timed.update(self._state, rows, overwrite=True)
            self._state, self._draft = self._timed.step(state)
        except REFUSALS:
            self._retrainings += 1
            self._anchor(self._problem.train.take(~self._gone))
            return
        self._certified_state.follow(removed)

    def theta(self) -> Vector:
        """Return the last answer."""
        return self._draft.theta

    def state_bytes(self) -> int:
        """Return the bytes of the state that answers; it holds no rows."""
        return FLOAT_BYTES * state_size(self._state)

    def radius(self) -> float:
        """Return the smallest radius of the answer that is sound without rows."""
        return self._certified_state.radius(self._draft)

    def noise(self, promise: Promise) -> float:
        """Return (radius + tau) / mu."""
        return required_noise(self.radius() + self._tau, promise)

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        """Return the answer with that noise."""
        return add_noise(self.theta(), self.noise(promise), rng)

    @property
    def retrainings(self) -> int:
        """How many requests were refused, and answered by a fit."""
        return self._retrainings


class AprioriSession(StatefulSession):
    """The same answers under the radius that constants alone give."""

    def radius(self) -> float:
        """Return Lemma 1's bound, corrected; infinite where it does not apply."""
        state = self._state
        known = regularity_of(state.objective, state.magnitude.row_norm)
        gone = state.anchor_weight - state.sums.weight
        try:
            return jackknife_radius(
                known, gone, n_samples=state.anchor_weight, residual=self._fit.residual
            )
        except Unsupported:
            return inf


@dataclass(frozen=True, slots=True)
class Stateful:
    """A mechanism that needs no rows.

    Parameters
    ----------
    name
        As on plots.
    timed
        What answers requests.
    certified
        The same with all sums that a certificate needs.
    """

    name: str
    timed: Mechanism
    certified: Mechanism

    def start(self, problem: Problem, seed: int) -> StatefulSession:
        """Fit, and prepare the mechanism's state; nothing is drawn."""
        del seed
        return StatefulSession(problem, self.timed, self.certified)


@dataclass(frozen=True, slots=True)
class Apriori:
    """Jackknife under the paper's own guarantee, its constants corrected.

    (m/n)^2 (C L / mu^2 + M L^2 / (2 mu^3)), the paper's Lemma 1 without its slips,
    in place of a radius measured at the model.
    """

    name: str = "IJ a-priori"

    def start(self, problem: Problem, seed: int) -> AprioriSession:
        """Fit, and invert the Hessian; nothing is drawn."""
        del seed
        bare = Jackknife(certified=False)
        return AprioriSession(problem, bare, bare)


class PolishedSession:
    """Newton's answer, improved on the remaining rows at every request."""

    def __init__(self, problem: Problem, mechanism: Polish) -> None:
        self._remaining = Remaining(problem.train)
        self._model = PrivateModel.fit(
            problem.objective, problem.train, mechanism=mechanism
        )
        self._tau = self._model.answer.radius.value
        self._retrainings = 0

    def forget(self, removed: Index) -> None:
        """Subtract the rows, step, polish, and measure the radius on the way."""
        rows = self._remaining.remove(removed)
        self._model = self._model.forget(rows, remaining=self._remaining.rows)
        self._retrainings += "retrained" in self._model.answer.decisions

    def theta(self) -> Vector:
        """Return the last answer."""
        return self._model.answer.draft.theta

    def state_bytes(self) -> int:
        """Return the bytes of the state and of the remaining rows."""
        state = FLOAT_BYTES * state_size(self._model.answer.state)
        return state + row_bytes(self._remaining.rows)

    def noise(self, promise: Promise) -> float:
        """Return (radius + tau) / mu, the radius measured on the rows."""
        return required_noise(self._model.answer.radius.value + self._tau, promise)

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        """Return the answer with that noise."""
        return add_noise(self.theta(), self.noise(promise), rng)

    @property
    def retrainings(self) -> int:
        """How many requests the mechanism refused, so that a fit answered."""
        return self._retrainings


@dataclass(frozen=True, slots=True)
class Polished:
    """Newton, then a few chord steps on the remaining rows."""

    name: str = "Newton+polish"
    mechanism: Polish = field(default_factory=Polish)

    def start(self, problem: Problem, seed: int) -> PolishedSession:
        """Fit, and keep the rows; nothing is drawn."""
        del seed
        return PolishedSession(problem, self.mechanism)


JACKKNIFE = Stateful("IJ", Jackknife(certified=False), Jackknife())
CERTIFIED_JACKKNIFE = Stateful("IJ certified", Jackknife(), Jackknife())
NEWTON = Stateful("Newton", Newton(), Newton())
RESCALED = Stateful("Rescaled", Rescaled(certified=False), Rescaled())
