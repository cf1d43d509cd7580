# SPDX-License-Identifier: Apache-2.0
"""Rule: how a hyper-parameter is chosen, fixed before the data is seen.

Candidates, folds, their key and the method are part of the contract: two worlds that
differ in a person follow one and the same rule.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite
from numbers import Integral
from typing import Literal, TypeAlias

from ..accountant import Accountant
from ..budget import SOLVER_SHARE, Budget
from ..events import NoisyTuning, TunedOnData, TunedRemovably
from ..exceptions import InvalidInput
from ..objective import Objective
from ..private import Private
from .choice import Choice, Decide, choose, near

Method: TypeAlias = Literal["certified", "recomputed", "noised"]
MAX_KEY_SIZE = blake2b.MAX_KEY_SIZE
METHODS: tuple[Method, ...] = ("certified", "recomputed", "noised")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Rule(Private):
    """Candidates, folds and method.

    Attributes
    ----------
    objectives
        The candidates in order of preference: the most regularised first.
    n_folds
        How many folds; None leaves out one row at a time.
    key
        Of the hash that assigns people to folds.
    method
        "certified" updates every model and proves the choice; "recomputed" tunes again
        from nothing at each request; "noised" compares scores with noise.
    budget
        The contract, which must provide for noised choices.
    """

    objectives: tuple[Objective, ...]
    n_folds: int | None
    key: bytes
    method: Method
    budget: Budget | None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        if self.method not in METHODS:
            words = ", ".join(map(repr, METHODS))
            raise InvalidInput(f"method={self.method!r}; choose one of {words}")
        folds: object = self.n_folds
        if folds is not None and (
            isinstance(folds, bool) or not isinstance(folds, Integral) or folds < 2
        ):
            raise InvalidInput(f"folds={folds!r}; give at least 2, or 'loo'")
        if not 1 <= len(self.key) <= MAX_KEY_SIZE:
            raise InvalidInput(
                f"fold_key of {len(self.key)} bytes; give 1 to {MAX_KEY_SIZE}, or None"
            )
        noised = self.budget is not None and self.budget.choice_sigma is not None
        if noised != (self.method == "noised"):
            raise InvalidInput(
                f"method={self.method!r} with choice_sigma="
                f"{self.budget.choice_sigma if self.budget else None}: "
                "method='noised' and Budget(choice_sigma=...) belong together"
            )

    def decide(self, *, at_fit: bool) -> Decide:
        """Return how intervals become a choice.

        Noise pays for the errors of both worlds: a fit may use the solver's share, a
        removal the rest.
        """
        if self.method != "noised":
            return choose
        assert self.budget is not None
        room = self.budget.scores_budget(len(self.objectives))
        return near(room * (SOLVER_SHARE if at_fit else 1.0 - SOLVER_SHARE))

    def account(self, accountant: Accountant, choice: Choice) -> Accountant:
        """Return the account after a choice.

        One that could not be certified is one that removal does not undo.
        """
        if self.method == "recomputed":
            return accountant.compose(TunedRemovably(certified=False))
        if not choice.certified:
            return accountant.compose(TunedOnData("cross-validation"))
        if self.method == "noised":
            assert self.budget is not None
            if accountant.pending:  # of a choice that was never shown, nor will be
                return accountant
            return accountant.compose(NoisyTuning(self.budget.choice_gdp))
        return accountant.compose(TunedRemovably(certified=True))


def grid(
    alphas: Iterable[float], l1_ratios: Iterable[float]
) -> list[tuple[float, float]]:
    """Return pairs of alpha and l1_ratio, largest alpha first, then largest ratio."""
    try:
        alpha_list = [float(alpha) for alpha in alphas]
        ratio_list = [float(ratio) for ratio in l1_ratios]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"alphas and l1_ratios must be lists: {error}") from error
    if not alpha_list or not ratio_list:
        raise InvalidInput("alphas and l1_ratios must name at least one value each")
    for name, values in (("alphas", alpha_list), ("l1_ratios", ratio_list)):
        if len(set(values)) < len(values):
            raise InvalidInput(f"{name}={values}; each value may be there only once")
    if not all(isfinite(alpha) and alpha > 0.0 for alpha in alpha_list):
        raise InvalidInput(f"alphas={alpha_list}; all must be positive numbers")
    pairs = ((alpha, ratio) for alpha in alpha_list for ratio in ratio_list)
    return sorted(pairs, reverse=True)
