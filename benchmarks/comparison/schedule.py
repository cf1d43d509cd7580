# SPDX-License-Identifier: Apache-2.0
"""The schedule: how each contender gets its requests, so that the comparison is fair.

Where an answer and its guarantee do not depend on how people are grouped into requests,
they come in one batch up to each checkpoint and then as single people, who are timed:
ten for contenders that answer in milliseconds, one for the others. Three need care.

Guo       its bound grows with the square of a batch, so every request is one person. A
          request costs a Hessian, so it stops after fifty. Its b is drawn once, of a
          size fixed in advance, and it retrains when that is used up.
D2D       its noise grows with the largest request, not with their number, so it starts
          again at each checkpoint, without those removed before, and serves one person.
          That favours it: it never starts from an earlier answer of its own.
printed   its noise depends on the requests too, and they are cheap: one person each.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from expunge.core.arrays import Index, Vector

from .guo import Guo
from .protocol import Contender, Problem, Promise, Session

SINGLES = 10
QUICK = frozenset({"IJ", "IJ certified", "IJ a-priori", "Newton", "Rescaled"})
# Deviation of Guo's b, in units of the sum over rows.
GUO_SIGMA = 1.0
GUO_REQUESTS = 50


@dataclass(frozen=True, slots=True)
class Schedule:
    """A contender, and how it gets its requests.

    Attributes
    ----------
    contender
        The contender.
    singles
        Timed requests at each checkpoint; None makes every request one person.
    most
        After how many removals it stops; None if it never does.
    noise_fixed
        Whether its noise is in the model already, so that epsilon cannot be varied.
    """

    contender: Contender
    singles: int | None = 1
    most: int | None = None
    noise_fixed: bool = False


def schedule_all(contenders: Iterable[Contender]) -> list[Schedule]:
    """Return each contender with its schedule."""
    return [schedule_of(contender) for contender in contenders]


def schedule_of(contender: Contender) -> Schedule:
    """Return a contender with its schedule."""
    name = contender.name
    if name == "Guo":
        fixed = Guo(sigma=GUO_SIGMA)
        return Schedule(fixed, singles=None, most=GUO_REQUESTS, noise_fixed=True)
    if name == "D2D":
        return Schedule(Restarting(contender))
    if name == "printed":
        return Schedule(contender, singles=None)
    return Schedule(contender, singles=SINGLES if name in QUICK else 1)


@dataclass(frozen=True, slots=True)
class Restarting:
    """A contender that starts again after every batch, without having seen it."""

    contender: Contender

    @property
    def name(self) -> str:
        """The contender's own name."""
        return self.contender.name

    def start(self, problem: Problem, seed: int) -> "RestartingSession":
        """Start on all rows."""
        return RestartingSession(self.contender, problem, seed)


class RestartingSession:
    """A session that is replaced at each batch, and passes on single requests."""

    def __init__(self, contender: Contender, problem: Problem, seed: int) -> None:
        self._contender, self._problem, self._seed = contender, problem, seed
        self._gone: Index = np.empty(0, dtype=np.intp)
        self._left: Index = np.arange(len(problem.train))
        self._session: Session = contender.start(problem, seed)

    def forget(self, removed: Index) -> None:
        """Serve one person, or start again without everyone removed."""
        self._gone = np.concatenate([self._gone, removed])
        if len(removed) == 1:
            self._session.forget(np.searchsorted(self._left, removed))
            return
        self._left = np.setdiff1d(np.arange(len(self._problem.train)), self._gone)
        rest = replace(self._problem, train=self._problem.train.take(self._left))
        self._session = self._contender.start(rest, self._seed)

    def theta(self) -> Vector:
        """Return the session's answer."""
        return self._session.theta()

    def state_bytes(self) -> int:
        """Return what the session keeps."""
        return self._session.state_bytes()

    def noise(self, promise: Promise) -> float:
        """Return what the session's last request needs."""
        return self._session.noise(promise)

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        """Return what the session would publish."""
        return self._session.release(promise, rng)

    @property
    def retrainings(self) -> int:
        """How often the session was forced to retrain."""
        return self._session.retrainings
