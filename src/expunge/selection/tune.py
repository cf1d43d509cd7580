# SPDX-License-Identifier: Apache-2.0
r"""Tune: choose among candidates by cross-validation, and forget the choice too.

    tune     solve every candidate on every fold and on all rows, and choose
    retune   remove people from all of these models and from the validation rows;
             evaluate; refine the contenders until the choice is certified

A choice is certified if exact minimisers on the remaining rows would lead to it. That
answers the paper's Proposition 1: removal at a fixed alpha does not undo the choice of
alpha.

With K folds there is a model for each fold and candidate. Leave-one-out needs one model
for each candidate: leaving out a row is one more removal, so the state of all rows
gives every leave-one-out error in closed form, with an error bound (``loo``). That
bound grows with the distance from the anchor, so contenders are re-anchored at their
minimisers until the bounds tell them apart.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from math import isinf

from ..core.arrays import Index, Vector
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.solver import require_converged
from ..core.sums import largest_hessian
from ..core.values import Private, stored
from ..engines import DaskEngine
from ..exceptions import CannotRemove, ExpungeError, InvalidInput, NotConverged
from ..private_model.answers import REFUSALS
from ..removal import State
from ..removal.state import initial_state, keep_sums
from ..removal.summary import find_minimiser, summarise
from .choice import Choice, Chooser, ErrorInterval, Split, pool_intervals
from .evaluate import Evaluator, Fits, Place
from .fold_models import (
    CandidateFit,
    FoldModel,
    average_answers,
    drop_from_each,
    drop_rows,
    is_certified_zero,
    solve,
    step_from_anchor,
)
from .hessian_norm import (
    HessianNorm,
    affordable_cost,
    cost_of_removal,
    measure_hessian_norm,
    remaining_share,
)
from .loo import leave_one_out
from .refine import TuningAttempt, refine, run_in_threads

# Two or three rounds are usual, and fourteen were seen when the worst fifth of the rows
# was removed. Far beyond that, tuning from scratch is faster.
ROUNDS = 20


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Tuning(Private):
    """The models behind a choice.

    Attributes
    ----------
    fold_models
        For each fold, a model for each candidate, trained on all other folds.
    hessian_norms
        For each candidate, the norm that distances are measured in.
    choice
        The chosen candidate, and what proves it.
    """

    fold_models: tuple[tuple[FoldModel, ...], ...]
    hessian_norms: tuple[HessianNorm, ...]
    choice: Choice

    @property
    def objectives(self) -> list[Objective]:
        """The candidates, in order of preference."""
        return [model.state.objective for model in self.fold_models[0]]

    def start_of(self, chosen: int) -> Vector | None:
        """Return where the model of a candidate on all rows starts: amid its folds'."""
        return average_answers([models[chosen] for models in self.fold_models])


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LooTuning(Private):
    """The models behind a choice by leave-one-out.

    Attributes
    ----------
    full_fits
        For each candidate, the state of its model of all rows, including the moment.
    choice
        The chosen candidate, and what proves it.
    """

    full_fits: tuple[State, ...]
    choice: Choice

    def start_of(self, chosen: int) -> Vector | None:
        """Return where the model of a candidate on all rows starts."""
        return self.full_fits[chosen].anchor


def tune(
    objectives: Sequence[Objective],
    split: Split,
    *,
    choose: Chooser,
    on_solved: Callable[[], None] = lambda: None,
    engine: DaskEngine | None = None,
) -> Tuning:
    """Return every candidate solved on every fold, and the choice.

    Parameters
    ----------
    objectives
        The candidates, in order of preference.
    split
        Rows by fold.
    choose
        Makes the choice from intervals.
    on_solved
        Called each time a candidate has been solved on a set of rows, from any thread.
    engine
        What runs the models of the folds; threads of this process if not given.
    """
    require_training(split, InvalidInput)
    everyone, by_fold = split.training(None), split.by_fold()
    full: list[CandidateFit] = []
    for objective in objectives:
        start = full[-1].draft.theta if full else None
        full.append(solve(objective, everyone, start=start))
        on_solved()
    run = run_in_threads if engine is None else engine.map
    norms = run(lambda fit: measure_hessian_norm(fit.state, by_fold), full)
    places = list(product(range(split.n_folds), range(len(full))))
    starts = [fit.draft.theta for fit in full]
    solve_at = partial(_solve_place, objectives, starts)
    if engine is None:

        def solve_fold(fold: int) -> list[CandidateFit]:
            rows, fits = split.training(fold), []
            for candidate in range(len(full)):
                fits.append(solve_at(place=(fold, candidate), rows=rows))
                on_solved()
            return fits

        found = list(chain(*run_in_threads(solve_fold, range(split.n_folds))))
    else:
        found = engine.map(
            lambda place: solve_at(place=place, rows=split.training(place[0])), places
        )
        for _ in found:
            on_solved()
    fits = dict(zip(places, found, strict=True))
    return _settle(TuningAttempt(fits, Evaluator.of(split, norms)), choose)


def _solve_place(
    objectives: Sequence[Objective],
    starts: Sequence[Vector],
    *,
    place: Place,
    rows: Rows,
) -> CandidateFit:
    """Return a candidate solved on the rows that a fold trains on."""
    fold, candidate = place
    objective = objectives[candidate]
    try:
        return solve(objective, rows, start=starts[candidate])
    except NotConverged as error:
        raise NotConverged(
            f"without fold {fold + 1}, at alpha={objective.alpha:g}: {error}; fewer "
            "folds leave more to train on"
        ) from error


def retune(tuning: Tuning, split: Split, *, gone: Index, choose: Chooser) -> Tuning:
    """Return the tuning without the rows at these places; the given one stays as it is.

    ``split`` still holds those rows. Where intervals stay too wide, or a model cannot
    be updated, the remaining rows are tuned from scratch. So whatever tuning again
    would certify or refuse, this does too.
    """
    gone = gone[split.rows.weight[gone] > 0.0]  # others never counted
    if not len(gone):
        return tuning
    after = split.without(gone)
    require_training(after, CannotRemove)
    with suppress(*REFUSALS):
        updated = _settle(_remove(tuning, split, gone=gone), choose)
        if updated.choice.certified:
            return updated
    return tune(tuning.objectives, after, choose=choose)


def loo_tune(
    objectives: Sequence[Objective],
    split: Split,
    *,
    choose: Chooser,
    on_solved: Callable[[], None] = lambda: None,
    engine: DaskEngine | None = None,
) -> LooTuning:
    """Return every candidate solved on all rows, and the choice; see ``tune``."""
    rows = split.training(None)
    if len(rows) < 2:
        raise InvalidInput(
            f"n_samples={len(rows)}: leaving one out takes at least two rows with "
            "weight; tune on more"
        )
    states: list[State] = []
    for objective in objectives:
        start = states[-1].anchor if states else None
        states.append(_solve_state(objective, rows, start=start))
        on_solved()
    solved = [True] * len(states)
    return _settle_loo(states, rows, solved=solved, choose=choose, engine=engine)


def loo_retune(
    tuning: LooTuning, split: Split, *, gone: Index, choose: Chooser
) -> LooTuning:
    """Return the tuning without the rows at these places; see ``retune``."""
    gone = gone[split.rows.weight[gone] > 0.0]  # others never counted
    if not len(gone):
        return tuning
    removed, rows = split.rows.take(gone), split.without(gone).training(None)
    if len(rows) < 2:
        raise CannotRemove(
            "one row with weight would be left, and leaving one out takes two; delete "
            "the model instead"
        )
    states = run_in_threads(lambda state: drop_rows(state, removed), tuning.full_fits)
    solved = [False] * len(states)
    return _settle_loo(states, rows, solved=solved, choose=choose)


def require_training(split: Split, error: type[ExpungeError]) -> None:
    """Raise ``error`` if some fold has nobody to train on."""
    total = split.rows.total_weight
    for fold in range(split.n_folds):
        if not total - split.validation(fold).total_weight > 1e-12 * total:
            raise error(
                "everyone is in one fold (as one sample or one person always is), so "
                "that nobody is left to train on; tune on more people, or with another "
                "fold_key"
            )


def _remove(tuning: Tuning, split: Split, *, gone: Index) -> TuningAttempt:
    """Return every model without these rows, by one step each."""
    removed, folds = split.rows.take(gone), split.folds_at(gone)

    def remove(fold: int) -> list[CandidateFit]:
        leaving = removed.take(folds != fold)
        states = [model.state for model in tuning.fold_models[fold]]
        lighter = drop_from_each(states, leaving)
        return [step_from_anchor(state, "before") for state in lighter]

    found = [remove(fold) for fold in range(split.n_folds)]
    fits = _by_place(_keep_kappas(tuning, found, removed=removed))
    evaluator = Evaluator.of(split.without(gone), tuning.hessian_norms)
    return TuningAttempt(fits, evaluator)


def _keep_kappas(
    tuning: Tuning, found: Sequence[Sequence[CandidateFit]], *, removed: Rows
) -> list[list[CandidateFit]]:
    """Return the fits with what the removal leaves of each model's kappa."""
    steepest = largest_hessian(tuning.objectives[0].loss, removed)
    models = zip(*tuning.fold_models, strict=True)
    fits = zip(*found, strict=True)
    norms = tuning.hessian_norms
    costs = [
        cost_of_removal(
            hessian_norm,
            [model.state for model in ours],
            after=[fit.state for fit in theirs],
            steepest=steepest,
            most=max(affordable_cost(model.kappa or 0.0) for model in ours),
        )
        for hessian_norm, ours, theirs in zip(norms, models, fits, strict=True)
    ]

    def keep_kappa(
        model: FoldModel, fit: CandidateFit, *, candidate: int
    ) -> CandidateFit:
        kappa = remaining_share(
            norms[candidate],
            fit.state,
            before=model.kappa or 0.0,
            cost=costs[candidate],
        )
        return replace(fit, kappa=kappa)

    return [
        [
            keep_kappa(model, fit, candidate=candidate)
            for candidate, (model, fit) in enumerate(zip(before, after, strict=True))
        ]
        for before, after in zip(tuning.fold_models, found, strict=True)
    ]


def _by_place(found: Sequence[Sequence[CandidateFit]]) -> dict[Place, CandidateFit]:
    """Return the fits of each fold by fold and candidate."""
    return {
        (fold, candidate): fit
        for fold, fits in enumerate(found)
        for candidate, fit in enumerate(fits)
    }


def _settle(attempt: TuningAttempt, choose: Chooser) -> Tuning:
    """Return the tuning with its choice, refining contenders until it is certified."""
    fits = attempt.evaluator.evaluate(attempt.fits, attempt.fits.keys())
    attempt = TuningAttempt(fits, attempt.evaluator)
    for _ in range(ROUNDS):
        choice = choose(_candidate_errors(attempt), _zero_candidates(attempt))
        if choice.certified or _cannot_improve(attempt.fits, choice):
            break
        attempt = refine(attempt, choice.contenders)
    return Tuning(
        fold_models=tuple(
            tuple(attempt.fits[place].to_model() for place in places)
            for places in _places(attempt)
        ),
        hessian_norms=attempt.evaluator.hessian_norms,
        choice=choice,
    )


def _cannot_improve(fits: Fits, choice: Choice) -> bool:
    """Return whether all contenders are solved, or one is and still has no bound."""
    ours = [fits[place] for place in fits if place[1] in choice.contenders]
    solved = [fit for fit in ours if fit.solved]
    return len(solved) == len(ours) or any(isinf(fit.error_bound) for fit in solved)


def _places(attempt: TuningAttempt) -> list[list[Place]]:
    """Return the places of each fold, in the order of the candidates."""
    candidates = range(len(attempt.evaluator.hessian_norms))
    folds = range(attempt.evaluator.split.n_folds)
    return [[(fold, candidate) for candidate in candidates] for fold in folds]


def _candidate_errors(attempt: TuningAttempt) -> list[ErrorInterval]:
    """Return each candidate's mean loss over the validation rows of all folds."""
    total = attempt.evaluator.split.rows.total_weight
    errors = []
    for places in zip(*_places(attempt), strict=True):
        losses = (attempt.fits[place].loss for place in places)
        known = [loss for loss in losses if loss is not None]
        errors.append(pool_intervals(known, weight=total))
    return errors


def _zero_candidates(attempt: TuningAttempt) -> list[bool]:
    """Return which candidates are certified to be all zeros in every fold."""
    used = [sizes.weight > 0.0 for sizes in attempt.evaluator.sizes]
    return [
        all(is_certified_zero(attempt.fits[p]) for p in places if used[p[0]])
        for places in zip(*_places(attempt), strict=True)
    ]


def _settle_loo(
    states: list[State],
    rows: Rows,
    *,
    solved: list[bool],
    choose: Chooser,
    engine: DaskEngine | None = None,
) -> LooTuning:
    """Return the choice, solving contenders until it is certified or all are solved."""
    run = run_in_threads if engine is None else engine.map
    errors = run(lambda state: _loo_error(state, rows), states)
    with ThreadPoolExecutor() as pool:
        while True:
            choice = choose(errors, [False] * len(states))
            unsolved = [place for place in choice.contenders if not solved[place]]
            if choice.certified or not unsolved:
                return LooTuning(tuple(states), choice)

            def solve_at(place: int) -> State:
                state = states[place]
                return _solve_state(state.objective, rows, start=state.anchor)

            fresh = pool.map(solve_at, unsolved)
            for place, state in zip(unsolved, fresh, strict=True):
                states[place], solved[place] = state, True
                errors[place] = _loo_error(state, rows)


def _solve_state(objective: Objective, rows: Rows, *, start: Vector | None) -> State:
    """Return the state at the minimiser on these rows, with its moment."""
    solution = find_minimiser(objective, rows, start=start)
    require_converged(objective, rows, solution=solution)
    summary = summarise(
        objective, rows, theta=solution.theta, subgradient=solution.subgradient
    )
    return keep_sums(initial_state(summary), summary, moment=True)


def _loo_error(state: State, rows: Rows) -> ErrorInterval:
    """Return bounds on the leave-one-out error."""
    found = leave_one_out(state, rows)
    value, bound = found.value, found.error_bound
    return ErrorInterval(max(0.0, value - bound), value, value + bound)
