# SPDX-License-Identifier: Apache-2.0
"""Refine the candidate fits that decide the choice, by the cheapest step that helps.

First a chord step with the Hessian at hand. Where the gradient does not shrink, or the
answer is far from its anchor, a new Hessian: for all folds together, as often as that
helps, then for one fit alone. Where that does not help either, the solver, which
searches along its steps. A solved fit is left alone, so refining ends.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from math import isinf
from typing import TypeVar

from ..core.values import Private
from ..private_model.answers import REFUSALS
from .evaluate import Evaluator, Fits, Place, measure_moves
from .fold_models import (
    CandidateFit,
    SharedAnchor,
    average_answers,
    reanchor_alone,
    reanchor_together,
    solve_again,
    step_from_answer,
)
from .hessian_norm import HessianNorm, measure_hessian_norm

Task = TypeVar("Task")
Result = TypeVar("Result")

# A step that leaves more than this share of the gradient calls for a costlier one. Slow
# progress will do: a new Hessian costs as much as twenty chord steps.
CONTRACTION = 0.75
# Fits are refined if their error bound exceeds this share of the widest one.
WIDE = 0.1
# If norms change by more than this between anchor and answer, or predictors by more,
# a Hessian nearby is worth a pass.
FAR = 6.0
FAR_MOVE = 3.6
# If norms may have changed by more than this, a bound takes a Hessian at the answer.
LOST = 20.0
# Below this share of H_A, the Hessian norm is measured again.
WORN = 0.02


def run_in_threads(
    work: Callable[[Task], Result], tasks: Iterable[Task]
) -> list[Result]:
    """Return the result of each task, in order, computed in threads.

    For work of milliseconds: a thread takes a tenth of one to start.
    """
    tasks = list(tasks)
    if len(tasks) < 2:
        return list(map(work, tasks))
    with ThreadPoolExecutor() as pool:
        return list(pool.map(work, tasks))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TuningAttempt(Private):
    """All fits of a request, and what evaluates them."""

    fits: Fits
    evaluator: Evaluator

    def with_candidates(
        self, candidates: Collection[int], other: "TuningAttempt"
    ) -> "TuningAttempt":
        """Return the attempt with another one's models of these candidates."""
        ours, theirs = self.evaluator.hessian_norms, other.evaluator.hessian_norms
        norms = [
            theirs[place] if place in candidates else ours[place]
            for place in range(len(ours))
        ]
        return TuningAttempt(
            {p: (other if p[1] in candidates else self).fits[p] for p in self.fits},
            replace(self.evaluator, hessian_norms=tuple(norms)),
        )


def refine(attempt: TuningAttempt, candidates: Collection[int]) -> TuningAttempt:
    """Return the attempt with fits of these candidates closer to their minimisers.

    Only those with the widest error bounds: if one bound is infinite, others can wait.
    """
    fits = attempt.fits
    open_ones = [p for p in fits if p[1] in candidates and not fits[p].solved]
    widest = max((fits[place].error_bound for place in open_ones), default=0.0)
    open_ones = [p for p in open_ones if fits[p].error_bound >= WIDE * widest]
    far = [place for place in open_ones if fits[place].norm_ratio > FAR]
    first = {place[1] for place in far if fits[place].origin == "before"}
    attempt = _reanchor_together(attempt, sorted(first))
    later = [place for place in far if place[1] not in first]
    attempt, again = _reanchor_if_shorter(attempt, _moved_together(attempt, later))
    alone = [place for place in open_ones if place[1] not in first.union(again)]
    fits = attempt.fits
    lost = [place for place in alone if _is_lost(fits[place])]
    near = [place for place in alone if place not in lost]
    after = _step_if_shorter(
        attempt, near, step=lambda place: step_from_answer(fits[place]), run=map
    )
    stuck = [place for place in near if after[place] is fits[place]]
    again = _stuck_together(attempt, stuck)
    attempt = _reanchor_together(replace(attempt, fits=after), again)
    rest = [place for place in [*lost, *stuck] if place[1] not in again]
    return replace(attempt, fits=_reanchor_or_solve(attempt, rest))


def _is_worn(fit: CandidateFit) -> bool:
    """Return whether the Hessian norm has too little to do with the fit's Hessian."""
    return (fit.kappa or 0.0) < WORN


def _is_lost(fit: CandidateFit) -> bool:
    """Return whether the fit is so far from its Hessian that no step gives a bound."""
    return LOST < fit.norm_ratio and isinf(fit.error_bound) and fit.origin != "before"


def _moved_together(attempt: TuningAttempt, far: Sequence[Place]) -> list[int]:
    """Return the candidates of which several folds moved far from their common anchor.

    In the same direction, that is: if only their answers lie far apart, a common anchor
    cannot be near all of them.
    """
    fits, split = attempt.fits, attempt.evaluator.split
    shared = [p for p in far if fits[p].origin == "shared"]
    called = []
    for candidate, count in Counter(place[1] for place in shared).items():
        ours = [fits[fold, candidate] for fold in range(split.n_folds)]
        state = next(fit.state for fit in ours if fit.origin == "shared")
        step = average_answers(ours) - state.anchor
        move = measure_moves(state.objective.loss, split, steps=step[None, :])
        if count > 1 and move.max() > FAR_MOVE:
            called.append(candidate)
    return called


def _reanchor_if_shorter(
    attempt: TuningAttempt, candidates: Sequence[int]
) -> tuple[TuningAttempt, list[int]]:
    """Return the attempt with a common new anchor where that shrinks the gradients.

    And for which of the candidates it does; the others stay as they are.
    """
    if not candidates:
        return attempt, []
    after = _reanchor_together(attempt, candidates)
    folds = range(attempt.evaluator.split.n_folds)

    def length(which: TuningAttempt, candidate: int) -> float:
        return sum(which.fits[fold, candidate].gradient_norm for fold in folds)

    better = [
        candidate
        for candidate in candidates
        if length(after, candidate) < CONTRACTION * length(attempt, candidate)
    ]
    return attempt.with_candidates(better, after), better


def _stuck_together(attempt: TuningAttempt, stuck: Sequence[Place]) -> list[int]:
    """Return the candidates for which the Hessians of before the request fail twice."""
    old = [place for place in stuck if attempt.fits[place].origin == "before"]
    counts = Counter(candidate for _, candidate in old)
    return sorted(candidate for candidate, count in counts.items() if count > 1)


def _reanchor_together(
    attempt: TuningAttempt, candidates: Sequence[int]
) -> TuningAttempt:
    """Return the attempt with these candidates' folds at a common new anchor."""
    fits, evaluator = attempt.fits, attempt.evaluator
    if not candidates:
        return attempt
    split = evaluator.split
    folds, rows = range(split.n_folds), split.by_fold()

    def reanchor(candidate: int) -> tuple[SharedAnchor, HessianNorm]:
        ours = [fits[fold, candidate] for fold in folds]
        anchor = reanchor_together(ours, rows)
        if any(map(_is_worn, ours)):
            return anchor, measure_hessian_norm(anchor.full_fit, rows)
        return anchor, evaluator.hessian_norms[candidate]

    anchors = dict(zip(candidates, run_in_threads(reanchor, candidates), strict=True))
    hessian_norms = list(evaluator.hessian_norms)
    after, training = dict(fits), cache(split.training)
    for candidate, (anchor, hessian_norm) in anchors.items():
        hessian_norms[candidate] = hessian_norm
        for fold in folds:
            fit, new = fits[fold, candidate], anchor.fits[fold]
            if fit.solved:
                after[fold, candidate] = replace(fit, kappa=None)
            else:
                new = new or solve_again(fit, training(fold))
                after[fold, candidate] = new
    evaluator = replace(evaluator, hessian_norms=tuple(hessian_norms))
    places = [(fold, candidate) for fold in folds for candidate in candidates]
    evaluated = evaluator.evaluate(after, places)
    return TuningAttempt(evaluated, evaluator)


def _reanchor_or_solve(attempt: TuningAttempt, stuck: Sequence[Place]) -> Fits:
    """Return the fits, each stuck one re-anchored alone or, failing that, solved."""
    fits, split = attempt.fits, attempt.evaluator.split

    def reanchor(place: Place) -> CandidateFit:
        return reanchor_alone(fits[place], split.training_views(place[0]))

    def solve(place: Place) -> CandidateFit:
        return solve_again(fits[place], split.training(place[0]))

    after = _step_if_shorter(attempt, stuck, step=reanchor, run=run_in_threads)
    left = [place for place in stuck if after[place] is fits[place]]
    after |= zip(left, run_in_threads(solve, left), strict=True)
    return attempt.evaluator.evaluate(after, left)


def _step_if_shorter(
    attempt: TuningAttempt,
    places: Sequence[Place],
    *,
    step: Callable[[Place], CandidateFit],
    run: Callable[..., Iterable[CandidateFit]],
) -> dict[Place, CandidateFit]:
    """Return the fits, those at ``places`` after a step if it shrinks the gradient.

    ``run`` maps the step over the places: ``map``, or threads if it takes long.
    """
    fits = attempt.fits

    def try_step(place: Place) -> CandidateFit:
        with suppress(*REFUSALS):
            return step(place)
        return fits[place]

    tried = dict(fits)
    tried |= zip(places, run(try_step, places), strict=True)
    stepped = [place for place in places if tried[place] is not fits[place]]
    tried = attempt.evaluator.evaluate(tried, stepped)
    for place in stepped:
        # Strictly less, so that a gradient of zero counts as stuck.
        if not tried[place].gradient_norm < CONTRACTION * fits[place].gradient_norm:
            tried[place] = fits[place]
    return tried
