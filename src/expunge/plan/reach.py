# SPDX-License-Identifier: Apache-2.0
r"""Reach: how far an order of removals can be followed under a contract.

A count is found by real removals: round numbers first, then bisection between the last
that fits and the first that does not. Nothing is retrained, since the radius comes from
the state, and a batch equals a stream. Radii do not depend on sigma, so one set of
them answers for every contract.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

from .._typing import Index
from ..budget import Budget
from ..exceptions import (
    CannotRemove,
    ExpungeError,
    InvalidInput,
    NotPositiveDefinite,
)
from ..mechanisms import look
from ..private import Private
from ..radius import best_radius
from ..rows import Rows
from ..unlearn import Custody, forget

Kind: TypeAlias = Literal["typical", "worst", "clustered"]
Fits: TypeAlias = Callable[[float], bool]
Progress: TypeAlias = Callable[[str], None]

KINDS: tuple[Kind, ...] = ("typical", "worst", "clustered")


@dataclass(frozen=True, slots=True)
class Reach:
    """How many removals of one kind the contract allows.

    Attributes
    ----------
    kind, order
        "typical", "worst" or "clustered", and the name of the order of
        ``removal_orders`` that was followed by the state alone.
    without_rows, with_rows
        The count at which the answer still fits, and at one more does not: by the
        state alone, and with one look at the remaining rows.
    then
        What one more makes of the answer when the remaining rows are at hand.
    tried
        (count, radius by the state alone) for every count tried in this order.
    """

    kind: Kind
    order: str
    without_rows: int
    with_rows: int
    then: str
    tried: tuple[tuple[int, float], ...]


class Radii(dict[int, float]):
    """Radius by number of rows removed, each computed when first asked for."""

    def __init__(self, radius: Callable[[int], float]) -> None:
        super().__init__()
        self._radius = radius

    def __missing__(self, count: int) -> float:
        self[count] = self._radius(count)
        return self[count]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trial(Private):
    """One order of removal: its radii, and what is done beyond them."""

    most: int
    by_state: Radii
    on_rows: Radii
    settled: Callable[[int], str]

    def without_rows(self, fits: Fits) -> int:
        """Return the count until which the state's own radius fits."""
        return _last(self.by_state, fits, 0, self.most)

    def with_rows(self, fits: Fits) -> int:
        """Return the count until which one look at the rows is enough."""
        return _last(self.on_rows, fits, self.without_rows(fits), self.most)


def _last(radii: Radii, fits: Fits, low: int, most: int) -> int:
    """Return a count from ``low`` on that fits while one more does not.

    Round counts until the first that does not fit, then bisection. A looser ``fits``
    never finds less: it turns upwards wherever a stricter one does.
    """
    for high in (count for count in round_counts(most) if count > low):
        if not fits(radii[high]):
            break
        low = high
    else:
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(radii[middle]) else (low, middle)
    return low


def round_counts(most: int) -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50 and so on, and at last ``most``."""
    decade = 1
    while decade < most:
        yield from (step * decade for step in (1, 2, 5) if step * decade < most)
        decade *= 10
    if most > 0:
        yield most


def trial(custody: Custody, rows: Rows, order: Index, tell: Progress) -> Trial:
    """Return the trial of one order."""

    def held(count: int) -> Custody | None:
        tell(f"{count} of {len(rows)} rows removed")
        try:
            return forget(custody, rows.take(order[:count]))
        except (NotPositiveDefinite, CannotRemove):  # no answer from the state alone
            return None

    def by_state(count: int) -> float:
        after = held(count)
        return inf if after is None else after.radius.value

    def on_rows(count: int) -> float:
        after, remaining = held(count), rows.without(order[:count])
        if after is None or custody.budget is None:
            return inf
        seen = look(after.state, after.draft, remaining)
        row_norm = custody.budget.row_norm
        return best_radius(after.state, seen, remaining, row_norm).value

    def settled(count: int) -> str:
        tell(f"{count} of {len(rows)} rows removed, the others at hand")
        gone = order[:count]
        try:
            return forget(custody, rows.take(gone), rows.without(gone)).decisions[0]
        except ExpungeError as error:
            return f"no answer ({type(error).__name__})"

    return Trial(len(rows) - 1, Radii(by_state), Radii(on_rows), settled)


def reached(kind: Kind, trials: Mapping[str, Trial], fits: Fits) -> Reach:
    """Return how far a kind can go; the worst is the hardest of all orders."""
    names = list(trials) if kind == "worst" else [kind]
    order = min(names, key=lambda name: trials[name].without_rows(fits))
    blind = trials[order]
    seeing = min((trials[name] for name in names), key=lambda t: t.with_rows(fits))
    count = seeing.with_rows(fits)
    over = count == seeing.most
    return Reach(
        kind=kind,
        order=order,
        without_rows=blind.without_rows(fits),
        with_rows=count,
        then="no row left to fit" if over else seeing.settled(count + 1),
        tried=tuple(sorted(blind.by_state.items())),
    )


def accepted_radii(custody: Custody, budget: Budget) -> Fits | None:
    """Return which radii the contract accepts; None if not even the fit's."""
    size = custody.draft.theta.size
    try:
        room, tau = budget.radius_budget(size), budget.solver_error(size)
    except InvalidInput:  # a tau that this sigma leaves no room for
        return None
    if not custody.radius.value <= tau:
        return None
    return lambda radius: radius + tau <= room
