# SPDX-License-Identifier: Apache-2.0
"""What a model is composed of: encoding, head, chooser.

    encoding   turns the rows that are kept into the rows that the head sees
    head       objective, mechanism, sums and answer (``answers``)
    chooser    says which objective is minimised, and what a request makes of it

Rows are kept, found and hashed as they are before the encoding. ``Unchanged`` and
``FixedObjective`` are the two that do nothing; ``expunge.preprocessing`` and
``expunge.selection`` have the others.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Matrix, Vector
from ..core.losses import Loss
from ..core.objective import Objective, check_weights
from ..core.rows import Rows, RowSource
from ..core.values import Private, stored
from ..promise.accountant import Accountant
from ..promise.scope import Scope
from ..promise.verification import Scored
from ..removal import State
from ..removal.state import summarise
from .answers import Answer, FitTerms
from .training_rows import RowChange


class PublicEncoding(Protocol):
    """What predictions need of an encoding: fitted, and without rows."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""

    @property
    def n_features(self) -> int:
        """How many there are."""

    @property
    def takes_inputs(self) -> bool:
        """Whether rows are made of inputs that are no numbers, such as texts."""

    def encode(self, X: Any) -> Matrix:
        """Return the rows of a table as the head sees them, without intercept."""

    def require_consistent(self, columns: Collection[Any]) -> None:
        """Raise ValueError if the parts, read from a file, do not go together."""


class EncodedRequest(NamedTuple):
    """What a request makes of an encoding, and of the sums.

    Attributes
    ----------
    encoding
        What a fit to the rows after the request learns.
    change
        The request as the sums take it; None if they cannot take it.
    lift
        Returns the state of the present features from the sums; None if they do not
        follow from them. Without it the sums are over what the head sees.
    keeps_sums
        Whether the state that the head goes on with is that of the sums.
    """

    encoding: "Encoding"
    change: RowChange | None
    lift: Callable[[State], State | None] | None = None
    keeps_sums: bool = True


class Encoding(Private, ABC):
    """Turns rows as they are kept into rows as the head sees them.

    Some encodings learn from the rows. Then sums are kept over features as they were
    learnt at the anchor, and ``EncodedRequest.lift`` leads to the present ones.
    """

    __slots__ = ()

    @property
    def raw(self) -> bool:
        """Whether rows are kept as something else than what the head sees."""
        return True

    @property
    def changes(self) -> bool:
        """Whether what the head sees of a row depends on the other rows."""
        return True

    @property
    def input_map(self) -> Any:
        """What makes rows of inputs that are no numbers; None if rows are numbers."""
        return None

    def with_input_map(self, made_by: Any) -> Self:
        """Return the encoding with another such map, where it has one."""
        del made_by
        return self

    def keep(self, X: Any, y: Any, weight: Any, *, objective: Objective) -> Rows:
        """Return checked features, coded labels and weights as the rows to keep."""
        return raw_rows(X, y, weight, objective=objective)

    @abstractmethod
    def fit_again(self, rows: RowSource, objective: Objective) -> Self:
        """Return the same encoding, fitted to other rows alone."""

    @abstractmethod
    def encode(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return kept rows as the head sees them, intercept included."""

    @abstractmethod
    def after(
        self,
        change: RowChange,
        objective: Objective,
        *,
        rows: Callable[[], RowSource] | None = None,
    ) -> EncodedRequest:
        """Return what a request of kept rows leads to.

        ``rows`` returns all rows after it, as they are kept, if they are at hand.
        """

    def anchor(
        self, terms: FitTerms, answer: Answer, *, rows: RowSource
    ) -> tuple[Self, Answer]:
        """Return the encoding and an answer just solved, with sums for requests.

        Parameters
        ----------
        terms, answer
            The head, its sums over the encoded rows.
        rows
            All rows, as they are kept.
        """
        encoding, objective = self.anchored(terms.objective), terms.objective
        if encoding.plain or not terms.mechanism.keeps_matrices:
            return encoding, answer  # matrix-free: every request reads the rows again
        theta = encoding.extend(answer.draft.theta, objective)
        summed = encoding.summed(rows, objective)
        whole = summarise(terms.objective_for(summed), summed, theta=theta)
        return encoding, replace(answer, state=terms.mechanism.init(whole))

    def anchored(self, objective: Objective) -> Self:
        """Return the encoding with its present features as those at the anchor."""
        del objective
        return self

    @property
    def plain(self) -> bool:
        """Whether the sums are over what the head sees, anchored just now."""
        return True

    def summed(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return kept rows as the sums take them."""
        return self.encode(rows, objective)

    def extend(self, theta: Vector, objective: Objective) -> Vector:
        """Return parameters of what the head sees as those of what is summed."""
        del objective
        return theta

    def carry(self, theta: Vector, before: "Encoding", *, outputs: int) -> Vector:
        """Return parameters under the encoding before as a start under this one."""
        del before, outputs
        return theta

    @property
    def learned(self) -> "Encoding | None":
        """The part of it that learns from rows, if there is one."""
        return None

    def with_learned(self, learned: "Encoding") -> "Encoding":
        """Return the encoding with another such part, which it has."""
        del learned
        return self

    @property
    def unweighted(self) -> "Encoding":
        """The same for rows that are tested: their weights and labels are their own."""
        return self

    @property
    def public(self) -> PublicEncoding | None:
        """What predictions need; None if rows are encoded as they are given."""
        return None

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, with what they say of this encoding."""
        return scope


def raw_rows(X: Any, y: Any, weight: Any, *, objective: Objective) -> Rows:
    """Return rows that are kept as they are given, without an intercept."""
    return Rows(X, objective.loss.labels(y), check_weights(weight, X.shape[0]))


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Unchanged(Encoding):
    """Rows are kept as the head sees them."""

    @property
    def raw(self) -> bool:
        """False."""
        return False

    @property
    def changes(self) -> bool:
        """False."""
        return False

    def keep(self, X: Any, y: Any, weight: Any, *, objective: Objective) -> Rows:
        """Return checked features as rows, intercept included."""
        return objective.rows(X, y, weight)

    def fit_again(self, rows: RowSource, objective: Objective) -> Self:
        """Return the same: nothing is learnt."""
        del rows, objective
        return self

    def encode(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return the rows."""
        del objective
        return rows

    def after(
        self,
        change: RowChange,
        objective: Objective,
        *,
        rows: Callable[[], RowSource] | None = None,
    ) -> EncodedRequest:
        """Return the request as it is."""
        del objective, rows
        return EncodedRequest(self, change)


class Chooser(Private, ABC):
    """Says which objective a model minimises."""

    __slots__ = ()

    # Whether it looks at the rows themselves at every request.
    needs_rows: ClassVar[bool] = False

    @abstractmethod
    def after(
        self,
        rows: Callable[[], Rows],
        gone: Index | None,
        *,
        loss: Loss | None,
        encoding: Encoding,
    ) -> tuple["Chooser", Objective | None]:
        """Return the chooser after a request, and the objective if it is another.

        Parameters
        ----------
        rows, gone
            Returns the rows as they are kept, those that leave included; and where
            these are.
        loss
            The loss for the classes that are left; None if all are.
        encoding
            Of the model, before the request.
        """

    @property
    def start(self) -> Vector | None:
        """Where the solver may start with another objective."""
        return None

    @property
    def scores(self) -> tuple[Scored, ...]:
        """The interval of each candidate's error, if there are candidates."""
        return ()

    def count_in(self, account: Accountant) -> Accountant:
        """Return the account after the present choice."""
        return account

    def compact(self, alive: NDArray[np.bool]) -> Self:
        """Return the chooser for the rows that are left, without gaps."""
        del alive
        return self

    def interchangeable(self, positions: Sequence[int]) -> bool:
        """Whether it does not matter which of these equal rows goes."""
        del positions
        return True

    def require_addable(self) -> None:
        """Raise Unsupported if the model can take in no rows."""

    def require_anchorable(self) -> None:
        """Raise Unsupported if sums cannot be built again."""


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FixedObjective(Chooser):
    """The objective was fixed before the fit."""

    def after(
        self,
        rows: Callable[[], Rows],
        gone: Index | None,
        *,
        loss: Loss | None,
        encoding: Encoding,
    ) -> tuple[Chooser, Objective | None]:
        """Return the same: no request moves it."""
        del rows, gone, loss, encoding
        return self, None


UNCHANGED = Unchanged()
FIXED = FixedObjective()
