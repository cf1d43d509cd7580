# SPDX-License-Identifier: Apache-2.0
r"""Tuning by leave-one-out: one model for each candidate, and no fold.

What leaving out a row does to a model is one more removal, so that the state of all
rows gives every leave-one-out error in closed form, with a bar. The bar grows with the
distance from the anchor: contenders are anchored anew, at their minimisers, until the
bars tell them apart.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .._typing import Index, Vector
from ..exceptions import CannotRemove, InvalidInput
from ..mechanisms import State
from ..mechanisms.downdate import initial_state, with_sums
from ..objective import Objective
from ..private import Private
from ..rows import Rows
from ..solvers import minimise, require_converged
from ..summary import summarise
from .cells import dropped
from .choice import Choice, Decide, Interval
from .folds import Split
from .loo import leave_one_out


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LooTuning(Private):
    """The models behind a choice by leave-one-out.

    Attributes
    ----------
    deputies
        For each candidate, the state of its model of all rows, moment included.
    choice
        Which candidate, and why.
    """

    deputies: tuple[State, ...]
    choice: Choice


def loo_tune(
    objectives: Sequence[Objective],
    split: Split,
    decide: Decide,
    tick: Callable[[], None],
) -> LooTuning:
    """Return every candidate solved on all rows, and the choice; see ``tune``."""
    rows = split.gathered(None)
    if len(rows) < 2:
        raise InvalidInput(
            f"n_samples={len(rows)}: to leave one out takes at least two rows with "
            "weight; tune on more"
        )
    states: list[State] = []
    for objective in objectives:
        states.append(_anchored(objective, rows, states[-1].anchor if states else None))
        tick()
    return _chosen(states, [True] * len(states), rows, decide)


def loo_retune(
    tuning: LooTuning, split: Split, gone: Index, decide: Decide
) -> LooTuning:
    """Return the tuning without the rows at these places; the old one stands."""
    gone = gone[split.rows.weight[gone] > 0.0]  # others never counted
    if not len(gone):
        return tuning
    removed, rows = split.rows.take(gone), split.without(gone).gathered(None)
    if len(rows) < 2:
        raise CannotRemove(
            "one row with weight would be left, and to leave one out takes two; delete "
            "the model instead"
        )
    with ThreadPoolExecutor() as pool:
        states = list(pool.map(lambda state: dropped(state, removed), tuning.deputies))
    return _chosen(states, [False] * len(states), rows, decide)


def _chosen(
    states: list[State], solved: list[bool], rows: Rows, decide: Decide
) -> LooTuning:
    """Return the choice, contenders anchored anew until it stands or all are."""
    with ThreadPoolExecutor() as pool:
        errors = list(pool.map(lambda state: _error(state, rows), states))
        while True:
            choice = decide(errors, [False] * len(states))
            still = [place for place in choice.contenders if not solved[place]]
            if choice.certified or not still:
                return LooTuning(tuple(states), choice)

            def settle(place: int) -> State:
                state = states[place]
                return _anchored(state.objective, rows, state.anchor)

            for place, state in zip(still, pool.map(settle, still), strict=True):
                states[place], solved[place] = state, True
                errors[place] = _error(state, rows)


def _anchored(objective: Objective, rows: Rows, start: Vector | None) -> State:
    """Return the state at the minimiser on these rows, with its moment."""
    solution = minimise(objective, rows, start)
    require_converged(objective, rows, solution)
    summary = summarise(objective, rows, solution.theta, solution.subgradient)
    return with_sums(initial_state(summary), summary, moment=True)


def _error(state: State, rows: Rows) -> Interval:
    """Return where the leave-one-out error must lie."""
    left = leave_one_out(state, rows)
    return Interval(max(0.0, left.value - left.bar), left.value, left.value + left.bar)
