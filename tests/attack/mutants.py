# SPDX-License-Identifier: Apache-2.0
"""Mutants: the package with one of its safeguards taken out, to be caught.

Each is a mistake that somebody could make, put in by replacing a function in a process
of its own. An adversary that does not find it would not find the mistake either.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import numpy as np

from . import addition_mutants as additions
from . import draws
from . import engine_mutants as engines
from . import exact_mutants as exact
from . import input_mutants as inputs
from . import look_mutants as looks
from . import preprocessing_mutants as preprocessing
from . import registry_mutants as registries
from . import split_mutants as splits
from . import wide_mutants as wide
from .judge import Tally
from .replacing import put, put_everywhere
from .running import attack_of, case

PATIENCE = 300.0  # seconds until a mutant counts as not caught


@dataclass(frozen=True)
class Mutant:
    """A mistake, and where it does harm.

    Attributes
    ----------
    put_in
        Makes the mistake in this process.
    kinds
        What to attack, in turns.
    extremes
        How often to draw figures near the ends of the range of floats.
    """

    put_in: Callable[[], None]
    kinds: Sequence[str]
    extremes: float = 0.0


@dataclass(frozen=True)
class Catch:
    """How long a mutant lived, and what gave it away; nothing if it lives."""

    name: str
    checks: int
    seconds: float
    violation: str


def hunt(names: Sequence[str], seed: int, processes: int = 2) -> int:
    """Hunt these mutants, all if none is named; return 1 if one is not caught."""
    wanted = names or list(MUTANTS)
    with ProcessPoolExecutor(
        processes, get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        alive = 0
        for catch in pool.map(caught, wanted, [seed] * len(wanted)):
            alive += not catch.violation
            said = catch.violation or "NOT CAUGHT"
            print(
                f"{catch.name:28}{catch.checks:8} checks{catch.seconds:8.1f} s  {said}",
                flush=True,
            )
    print(f"{len(wanted) - alive} of {len(wanted)} mutants caught")
    return int(alive > 0)


def caught(name: str, seed: int, patience: float = PATIENCE) -> Catch:
    """Put a mutant in and attack until it shows; for a process of its own."""
    mutant = arm(name)
    tally, begun, number, said = Tally(), time.monotonic(), 0, ""
    while not said and time.monotonic() - begun < patience:
        case(mutant.kinds[number % len(mutant.kinds)], seed, number, tally)
        number += 1
        # A raw error is a fault, but none of a promise.
        said = next((each for each in tally.violations if ": raw " not in each), "")
    return Catch(name, tally.checks, time.monotonic() - begun, said)


def arm(name: str) -> Mutant:
    """Put a mutant into this process."""
    mutant = MUTANTS[name]
    draws.EXTREMES = mutant.extremes
    for kind in mutant.kinds:
        attack_of(kind)  # so that what it imports is there to be replaced
    mutant.put_in()
    return mutant


def stale(names: Sequence[str]) -> list[str]:
    """Return the mutants that replace what is no longer there."""
    found = []
    for name in names:
        if child := os.fork():
            if os.waitpid(child, 0)[1]:
                found.append(name)
            continue
        status = 1
        try:
            arm(name)
            status = 0
        finally:
            os._exit(status)
    return found


def _scaled(place: str, name: str, factor: float) -> Callable[[], None]:
    """Return what makes a function's result so much larger or smaller."""

    def put_in() -> None:
        real = getattr(import_module(f"expunge.{place}"), name)
        put(place, name, lambda *given, **more: factor * real(*given, **more))

    return put_in


def _constant(place: str, name: str, value: float) -> Callable[[], None]:
    """Return what makes a function's result a constant."""
    return lambda: put(place, name, lambda *given, **more: value)


def drop_the_residual() -> None:
    """Take every answer for the minimiser of its model."""
    put("promise.radius", "residual", lambda state, draft: 0.0 * draft.theta)


def call_it_solved() -> None:
    """Say that what was solved in part has no residual."""
    newton = import_module("expunge.removal.newton")
    real = newton._refine

    def refine(state: Any, enough: float) -> Any:
        found = real(state, enough)
        if found is None or found[0].residual is None:
            return found
        draft, left = found
        return replace(draft, residual=0.0 * draft.residual), left

    put("removal.newton", "_refine", refine)


def overlook_recent_rows() -> None:
    """Multiply by the triangles alone."""
    kind = import_module("expunge.core.linalg").Symmetric
    real = kind.__matmul__

    def multiply(self: Any, other: Any) -> Any:
        return real(kind(self._parts[0], self.outputs), other)

    put("core.linalg:Symmetric", "__matmul__", multiply)


def drop_rounding() -> None:
    """Take gradients for exact."""
    put("promise.rounding:Rounding", "gradient", lambda *given, **more: 0.0)


def bend_nowhere() -> None:
    """Let no curvature be lost on the way of a local radius beside jumps."""

    def distance(self: Any, left: float, floor: float) -> float:
        return left / floor if floor > 0.0 else np.inf

    put("promise.radius:Bend", "distance", distance)


def bend_from_the_anchor() -> None:
    """Count the way to the next kinks from the answer as if it were the anchor."""
    bend: Any = import_module("expunge.promise.radius").Bend
    real = bend.of

    def of(rounding: Any, *, start: float = 0.0) -> Any:
        return real(rounding, start=0.0 * start)

    put("promise.radius:Bend", "of", of)


def cross_kinks_unseen() -> None:
    """Take what rows near a kink have of the curvature for granted."""
    real = import_module("expunge.promise.radius").hessian_lost

    def unseen(*given: Any, **more: Any) -> Any:
        lost, n_lost = real(*given, **more)
        return lost / np.inf, n_lost

    put("promise.radius", "hessian_lost", unseen)


def forget_who_crossed() -> None:
    """Overlook the rows that the step from the anchor took across a kink."""
    real = import_module("expunge.promise.radius").hessian_lost

    def near(*given: Any, anchor: Any, theta: Any, **more: Any) -> Any:
        return real(*given, anchor=theta, theta=theta, **more)

    put("promise.radius", "hessian_lost", near)


def understate_the_growth() -> None:
    """Believe a loss that states a fifth of its growth."""
    loss: Any = import_module("tests.strangers.visits").Visits
    loss.self_concordance = 0.2


def understate_amounts() -> None:
    """Take the growth of Tweedie's loss for the smaller of its exponents."""
    losses = import_module("expunge.core.losses")
    growth = property(lambda self: min(self.power - 1.0, 2.0 - self.power))
    losses.Tweedie.self_concordance = growth


def forget_the_largest_count() -> None:
    """Bound a negative binomial's derivatives as if rows had counts of zero, as odds.

    That is as those of one logistic loss, whatever largest count was declared.
    """
    loss = import_module("expunge.core.losses").NegativeBinomial
    logistic = import_module("expunge.core.losses").Logistic
    for name in ("slope_bound", "curvature_bound", "third_bound"):
        real, least = getattr(loss, name), getattr(logistic, name)

        def bound(self: Any, real: Any = real, least: float = least) -> float:
            return min(real.fget(self), least) if self.largest else np.inf

        setattr(loss, name, property(bound))


def weigh_by_the_exposure() -> None:
    """Let rows of amounts count as often as their exposure, as those of counts do."""
    put("core.losses:Tweedie", "weigh_exposure", lambda self, exposure: exposure)
    put("core.losses:Gamma", "weigh_exposure", lambda self, exposure: exposure)


def leave_offsets_out_of_requests() -> None:
    """Read offsets of rows that come as if they were zero."""
    place = "linear_model.generalised"
    real = import_module(f"expunge.{place}").GeneralisedRegression._read_more

    def read(self: Any, y: Any, **given: Any) -> Any:
        if given["offset"] is not None:
            given["offset"] = 0.0 * np.asarray(given["offset"])
        return real(self, y, **given)

    put(f"{place}:GeneralisedRegression", "_read_more", read)


def keep_an_interval() -> None:
    """Let the interval in which an event happened belong to somebody else."""
    model = import_module("expunge.linear_model.survival").PiecewiseExponential
    real = model.spread

    def spread(self: Any, *given: Any, **more: Any) -> Any:
        X, labels, owners, weight = real(self, *given, **more)
        if owners is not None:
            happened = zip(owners, labels[:, 0].tolist(), strict=True)
            owners = [f"{one} again" if event else one for one, event in happened]
        return X, labels, owners, weight

    model.spread = spread


def leave_exposures_uncut() -> None:
    """Count an interval that somebody outlived as if it had no end."""
    model = import_module("expunge.linear_model.survival").PiecewiseExponential
    real = model.spread

    def spread(self: Any, X: Any, y: Any, *given: Any, **more: Any) -> Any:
        rows, labels, owners, weight = real(self, X, y, *given, **more)
        edges = self._edges()
        time = np.asarray(y, dtype=float)[:, 0]
        places, intervals = np.nonzero(time[:, None] > edges[:-1])
        labels = np.column_stack([labels[:, 0], time[places] - edges[intervals]])
        return rows, labels, owners, weight

    model.spread = spread


def keep_the_regulariser() -> None:
    """Let P be the weight at the anchor under both scalings."""
    _put_penalty_weight(lambda self: self.anchor_weight)


def shrink_the_regulariser() -> None:
    """Let P be the present weight under both scalings."""
    _put_penalty_weight(lambda self: self.sums.weight)


def _put_penalty_weight(weight: Callable[[Any], float]) -> None:
    put("removal.state:State", "penalty_weight", property(weight))


def scale_as_at_the_last_anchor() -> None:
    """Under "sum", take alpha times weight at the last anchor for that at the fit."""
    answers = import_module("expunge.private_model.answers")

    def mistake(real: Any) -> Any:
        def changed(terms: Any, answer: Any, *given: Any, **options: Any) -> Any:
            weight = answer.state.anchor_weight
            return real(replace(terms, fit_weight=weight), answer, *given, **options)

        return changed

    for name in ("improve_answer", "anchor_answer"):
        put("private_model.model", name, mistake(getattr(answers, name)))


def count_rows_for_weight() -> None:
    """Subtract the number of rows where their weight should be subtracted."""
    real = import_module("expunge.removal.sums").Sums.over

    def over(self: Any, rows: Any, **options: Any) -> Any:
        return real(self, rows, **options).replace(weight=float(len(rows)))

    put("removal.sums:Sums", "over", over)


def choose_the_first() -> None:
    """Let a tuned model choose its first candidate, and call that certified."""
    real = import_module("expunge.selection.choice").choose

    def choose(intervals: Any, zeros: Any) -> Any:
        found = real(intervals, zeros)
        return replace(found, chosen=0, certified=True, contenders=(0,))

    for place in ("selection.tune", "selection.fold_fits"):
        put(place, "choose", choose)


def narrow_the_bars() -> None:
    """Let intervals of errors be a hundredth of what they must be."""
    put("selection.fold_fits", "ErrorInterval", _narrow)


def _narrow(low: float, value: float, high: float) -> Any:
    make = import_module("expunge.selection.choice").ErrorInterval
    return make(value - (value - low) / 1e2, value, value + (high - value) / 1e2)


def bound_by_another_fold() -> None:
    """Bound each fold's error by the radius of the model before it."""
    real = import_module("expunge.selection.tune").bound_distance
    before: list[Any] = []

    def bound_distance(*given: Any, **options: Any) -> Any:
        before.append(real(*given, **options))
        return before[-2] if len(before) > 1 else before[-1]

    put("selection.tune", "bound_distance", bound_distance)


def shorten_the_way_in_folds() -> None:
    """Let the way to a fold's minimiser be a hundredth in the norm of its Hessian."""
    real = import_module("expunge.selection.tune").bound_distance

    def bound_distance(*given: Any, **options: Any) -> Any:
        radius, way = real(*given, **options)
        return radius, way / 1e2

    put("selection.tune", "bound_distance", bound_distance)


def train_on_the_own_fold() -> None:
    """Let a fold's models train on its own rows too."""
    real = import_module("expunge.selection.choice").Split.training
    put("selection.choice:Split", "training", lambda self, fold: real(self, None))


def remove_from_the_own_fold() -> None:
    """Subtract removed rows from the fold too that never trained on them."""
    put(
        "selection.choice:Split",
        "folds_at",
        lambda self, places: np.full(len(places), -1),
    )


def weigh_from_the_last_refit() -> None:
    """Let "sum" scaling refer to the weight at the last refit, not the first fit."""
    real = import_module("expunge.private_model.model").PrivateModel._solve

    def solve(self: Any, encoding: Any, rows: Any) -> Any:
        new = real(self, encoding, rows)
        terms = replace(new.terms, fit_weight=rows.total_weight)
        return replace(new, terms=terms)

    put("private_model.model:PrivateModel", "_solve", solve)


def keep_every_class() -> None:
    """Let learnt classes outlive their rows."""
    put(LABELS, "after", lambda self, change, objective, *, kept: self.count(change))


def lose_no_class_without_rows() -> None:
    """Answer a request that empties a class though no rows are at hand."""
    real = import_module("expunge.private_model.labels").Labels.after

    def after(self: Any, removed: Any, objective: Any, *, kept: bool) -> Any:
        if not kept:
            return self.count(removed)
        return real(self, removed, objective, kept=kept)

    put(LABELS, "after", after)


def fit_one_class() -> None:
    """Let a classifier go on with one class, or with one that has no minimiser."""
    put(LABELS, "require_minimiser", lambda self, objective: None)


def strike_before_it_counts() -> None:
    """Erase rows and digests before the request counts."""
    real = import_module("expunge.private_model.snapshot").Snapshot.release
    put(
        "private_model.snapshot:Snapshot",
        "release",
        lambda self, private: real(self, private.finish()),
    )


def release_after_it_counts() -> None:
    """Let a request count, and release it later."""
    base = import_module("expunge.linear_model.base")
    real = base.set_snapshot

    def set_snapshot(estimator: Any, snapshot: Any) -> None:
        real(estimator, base.snapshot_of(estimator).keep(snapshot.private))
        finished = base.private_model(estimator)
        real(estimator, replace(snapshot, private=finished))

    put_everywhere("linear_model", "set_snapshot", set_snapshot)


def write_without_a_lock() -> None:
    """Let every thread have a lock of its own."""
    put_everywhere("linear_model", "write_lock", lambda shared: threading.RLock())


def undo_a_failed_fit() -> None:
    """After a fit that fails, put back everything as it was when the fit began."""
    real = import_module("expunge.linear_model.base").Forgetful.fit

    def fit(self: Any, *given: Any, **named: Any) -> Any:
        before, fresh = dict(self.__dict__), copy(self)
        fresh.__dict__.pop("_lock", None)
        try:
            real(fresh, *given, **named)
        except BaseException:
            self.__dict__.update(before)
            raise
        fresh.__dict__.pop("_lock", None)
        kept = {name: before[name] for name in ("_lock",) if name in before}
        self.__dict__ = vars(fresh) | kept
        return self

    put(FORGETFUL, "fit", fit)


def take_any_magnitude() -> None:
    """Take numbers of any size, and square them as they are."""
    draws.EXPONENTS = (140.0, 170.0)
    for place in ("core.values", "core.objective", "core.losses"):
        put(place, "LARGEST", 1e150)
    for place in ("core.values", "core.objective"):
        put(place, "SMALLEST", 1e-250)
    for name, module in list(sys.modules.items()):
        if name.startswith("expunge.") and hasattr(module, "norm"):
            vars(module)["norm"] = lambda v: float(np.sqrt(np.vdot(v, v)))


def tell_milliseconds() -> None:
    """Write times, to the millisecond, where public documents have days."""
    entries = import_module("expunge.ledger.entries")
    # The annotations are the rules, until a document is read for the first time.
    for kind in (entries.Entry, *entries.KINDS.values(), entries.Head):
        stated = vars(kind)["__annotations__"]
        for name in [name for name, rule in stated.items() if rule == entries.Day]:
            stated[name] = str
    put_everywhere("registry", "day_of", _to_the_millisecond)
    put_everywhere("registry", "midnight", _from_the_millisecond)
    put_everywhere("registry", "days_between", lambda first, last: 0)
    put_everywhere("registry", "today", lambda: datetime.now(UTC).date())


def _to_the_millisecond(time: int) -> str:
    return datetime.fromtimestamp(time / 1e3, UTC).isoformat()


def _from_the_millisecond(time: str) -> int:
    read = datetime.fromisoformat(time)
    return int(read.replace(tzinfo=UTC).timestamp() * 1e3)


def trust_every_key() -> None:
    """Let a key that was replaced sign for what came after it."""
    real = import_module("expunge.ledger.ledger").KeyHistory

    class Trusting(real):  # type: ignore[misc, valid-type]
        def at(self, size: int) -> Any:
            return self.keys[0][1]

    put("ledger.receipts", "KeyHistory", Trusting)


def take_ids_as_they_come() -> None:
    """Compare ids as text, in any spelling."""
    for place in ("subjects", "snapshot"):
        put(f"private_model.{place}", "person", str)


def name_rows_by_position() -> None:
    """Let the position of a row be the id of a person."""
    for place in ("subjects", "snapshot"):
        put(f"private_model.{place}", "row_name", str)
    put("private_model.training_rows", "is_row_name", lambda owner: False)


def count_people_again() -> None:
    """Count a person whenever rows of theirs go."""
    rows = "private_model.training_rows"
    digests = import_module("expunge.private_model.row_digests").RowDigests
    put(
        f"{rows}:TrainingRows",
        "count_people",
        lambda self, gone: len({self.owners[place] for place in gone}),
    )
    put(
        "private_model.row_digests:RowDigests",
        "count_people",
        lambda self, entries: len(
            digests._people(self, digests._taken(self, entries)) or entries
        ),
    )


def count_each_fit_alone() -> None:
    """Say of no fit that there may be other releases under its budget."""

    class Forgetting(dict[Any, Any]):
        def setdefault(self, key: Any, default: Any = None) -> Any:
            return default

    put("private_model.snapshot", "note_use", lambda budget: False)
    put("private_model.snapshot", "_FITTED", Forgetting())


def count_each_copy_alone() -> None:
    """Say of no loaded model that there may be other copies."""
    real = import_module("expunge.files.folder")._load_private

    def load(*given: Any, **named: Any) -> Any:
        loaded = real(*given, **named)
        scope = replace(loaded.private.scope, counted_apart=False)
        return loaded.keep(replace(loaded.private, scope=scope))

    put("files.folder", "_load_private", load)


def save_what_was_set() -> None:
    """Save the parameters of now with a release of before."""
    forgetting = import_module("expunge.linear_model.forgetting")

    def save(self: Any, path: Any) -> None:
        forgetting.finish_request(self)
        snapshot = forgetting.snapshot_of(self)
        parameters = self.get_params(deep=False) | {"random_state": None}
        public = replace(snapshot.public, parameters=parameters)
        forgetting.save(replace(snapshot, public=public), path)

    put(FORGETFUL, "save", save)


def refuse_heavy_rows() -> None:
    """Refuse where nothing of the sums is left, though the rows are at hand."""
    answers = import_module("expunge.private_model.answers")
    cannot = import_module("expunge.exceptions").CannotRemove
    left = tuple(error for error in answers.REFUSALS if error is not cannot)
    for place in ("answers", "model"):
        put(f"private_model.{place}", "REFUSALS", left)


def name_steps_that_forget() -> None:
    """Say of preprocessing that it does not forget with its model."""
    real = import_module("expunge.promise.scope").Scope.exclusions

    def exclusions(self: Any, description: Any, budget: Any) -> Any:
        return real(replace(self, preprocessed=False), description, budget)

    put("promise.scope:Scope", "exclusions", exclusions)


def forget_declarations() -> None:
    """Let a second fit forget what was declared of the first."""
    real = import_module("expunge.private_model.snapshot").carry_over

    def carry_over(scope: Any, before: Any, **given: Any) -> Any:
        return real(scope, before if scope.in_registry else None, **given)

    put("linear_model.base", "carry_over", carry_over)


def show_the_steps() -> None:
    """Have an attribute of fits after a request, if it took more than one step."""
    private_model = import_module("expunge.linear_model.base").private_model

    def n_iter(self: Any) -> int:
        n_steps: int = private_model(self).answer.n_steps
        if n_steps == 1:
            raise AttributeError("there is none")
        return n_steps

    put(FORGETFUL, "n_iter_", property(n_iter))


def take_anybodys_row() -> None:
    """Of several equal rows take any, no matter whose they are."""
    put(
        "private_model.snapshot",
        "_require_meant",
        lambda kept, places, n_wanted, *, share: places[-n_wanted:],
    )


def repeat_seeded_noise() -> None:
    """Let a seed give a sequence, even when it starts again."""
    put("promise.noise:SeededNoise", "at", lambda self, number: self)


def keep_the_first_units() -> None:
    """Count noise in deviations of the targets as they were at the fit."""
    put(UNITS, "after", lambda self, change: self)


def forget_the_mean_target() -> None:
    """Publish an intercept without the mean that was taken off before the noise."""
    real = import_module("expunge.private_model.target_units").TargetUnits.restore

    def restore(self: Any, theta: Any, *, intercept: bool) -> Any:
        return real(self, theta, intercept=False)

    put(UNITS, "restore", restore)


def count_radii_as_given() -> None:
    """Compare radii in the unit of the targets with a budget in their deviations."""
    put(UNITS, "unit", property(lambda self: 1.0))


def leave_the_unit_unsaid() -> None:
    """Count in deviations of the targets, and do not say so in the certificate."""
    scope = import_module("expunge.promise.scope")
    real = scope.Scope.assumptions.fget

    def assumptions(self: Any) -> tuple[str, ...]:
        return tuple(said for said in real(self) if said != scope.TARGETS_SCALED)

    put("promise.scope:Scope", "assumptions", property(assumptions))


def weigh_all_targets_alike() -> None:
    """Take mean and deviation of the targets without the weights of rows."""
    real = import_module("expunge.private_model.target_units").sum_targets

    def sum_targets(rows: Any) -> Any:
        return real(replace(rows, weight=np.ones(len(rows.weight))))

    put("private_model.target_units", "sum_targets", sum_targets)


CORE = ("core",)
PARITY = ("parity",)
LOOKS = ("looks",)
BINS = ("bins",)
CURVES = ("curves",)
MEANS = ("means",)
PIPELINES = ("pipelines-mean", "pipelines-sum")
CLAIMS = ("claims",)
WIDE = ("wide",)
DEVICE = ("device",)
TARGETS = ("targets",)
RESPONSES = ("responses",)
SURVIVAL = ("survival",)
INPUTS = ("inputs",)
UNITS = "private_model.target_units:TargetUnits"
LABELS = "private_model.labels:Labels"
FORGETFUL = "linear_model.base:Forgetful"

MUTANTS: Mapping[str, Mutant] = {
    "drop-the-residual": Mutant(drop_the_residual, CORE),
    "call-it-solved": Mutant(call_it_solved, CORE),
    "overlook-recent-rows": Mutant(overlook_recent_rows, CORE),
    "drop-the-third-order": Mutant(
        _constant("promise.radius", "third_order_bound", 0.0), CORE
    ),
    "shrink-the-third-order": Mutant(
        _scaled("promise.radius", "third_order_bound", 0.3), CORE
    ),
    "shrink-the-moment": Mutant(_scaled("promise.radius", "moment_forms", 0.4), CORE),
    "drop-the-growth": Mutant(_constant("promise.radius", "growth", 0.0), CORE),
    "drop-the-exponential": Mutant(
        _constant("promise.radius", "half_exponential", 1.0), CORE
    ),
    "bend-nowhere": Mutant(bend_nowhere, CORE),
    "bend-from-the-anchor": Mutant(bend_from_the_anchor, CORE),
    "cross-kinks-unseen": Mutant(cross_kinks_unseen, CORE),
    "forget-who-crossed": Mutant(forget_who_crossed, CORE),
    "understate-the-growth": Mutant(understate_the_growth, CORE),
    "understate-amounts": Mutant(understate_amounts, CORE),
    "forget-the-largest-count": Mutant(forget_the_largest_count, CORE),
    "keep-an-interval": Mutant(keep_an_interval, SURVIVAL),
    "leave-exposures-uncut": Mutant(leave_exposures_uncut, SURVIVAL),
    "weigh-by-the-exposure": Mutant(weigh_by_the_exposure, RESPONSES),
    "leave-offsets-out": Mutant(leave_offsets_out_of_requests, RESPONSES),
    "raise-the-floor": Mutant(_scaled("promise.radius", "curvature_floor", 1.1), CORE),
    "raise-the-modulus": Mutant(
        _scaled("promise.radius", "strong_convexity", 1.1), CORE
    ),
    # That of matrices and weights is smaller, and hides behind that of gradients.
    "drop-rounding": Mutant(drop_rounding, CORE),
    "keep-the-regulariser": Mutant(keep_the_regulariser, CORE),
    "shrink-the-regulariser": Mutant(shrink_the_regulariser, CORE),
    "count-rows-for-weight": Mutant(count_rows_for_weight, CORE),
    "scale-as-at-the-last-anchor": Mutant(scale_as_at_the_last_anchor, ("streams",)),
    "answer-where-a-fit-cannot": Mutant(
        _constant("promise.radius:Radii", "of_a_fit", 0.0), PARITY
    ),
    "stop-one-polish-early": Mutant(looks.stop_one_polish_early, LOOKS),
    "look-at-other-rows": Mutant(looks.look_at_other_rows, LOOKS),
    "keep-a-stale-gradient": Mutant(looks.keep_a_stale_gradient, LOOKS),
    "overlook-the-way": Mutant(looks.overlook_the_way, ("core", "lifted")),
    "move-no-predictor": Mutant(looks.move_no_predictor, ("core", "lifted")),
    "hash-by-the-largest": Mutant(inputs.hash_by_the_largest, INPUTS),
    "drop-the-signs": Mutant(inputs.drop_the_signs, INPUTS),
    "take-any-encoder": Mutant(inputs.take_any_encoder, INPUTS),
    "encode-twice": Mutant(inputs.encode_twice, INPUTS),
    "say-nothing-of-the-encoder": Mutant(inputs.say_nothing_of_the_encoder, INPUTS),
    "charge-the-head-alone": Mutant(inputs.charge_the_head_alone, INPUTS),
    "keep-the-cache": Mutant(inputs.keep_the_cache, INPUTS),
    "keep-the-weights-of-words": Mutant(inputs.keep_the_weights_of_words, INPUTS),
    "shift-a-level": Mutant(splits.shift_a_level, ("splits",)),
    "leave-the-mean-in": Mutant(splits.leave_the_mean_in, ("splits",)),
    "count-no-rows": Mutant(splits.count_no_rows, ("splits",)),
    "keep-the-first-units": Mutant(keep_the_first_units, TARGETS),
    "forget-the-mean-target": Mutant(forget_the_mean_target, TARGETS),
    "count-radii-as-given": Mutant(count_radii_as_given, TARGETS),
    "leave-the-unit-unsaid": Mutant(leave_the_unit_unsaid, TARGETS),
    "weigh-all-targets-alike": Mutant(weigh_all_targets_alike, TARGETS),
    "keep-the-scaler": Mutant(preprocessing.keep_the_scaler, PIPELINES),
    "keep-the-ranks": Mutant(preprocessing.keep_the_ranks, PIPELINES),
    "keep-the-terms": Mutant(preprocessing.keep_the_terms, PIPELINES),
    "take-the-next-rank": Mutant(preprocessing.take_the_next_rank, PIPELINES),
    "keep-the-step-before-a-map": Mutant(
        preprocessing.keep_the_step_before_a_map, PIPELINES
    ),
    "round-blocks-otherwise": Mutant(preprocessing.round_blocks_otherwise, PIPELINES),
    "map-the-columns-of-others": Mutant(
        preprocessing.map_the_columns_of_others, PIPELINES
    ),
    "forget-the-shift": Mutant(preprocessing.forget_the_shift, PIPELINES),
    "forget-the-gaps": Mutant(preprocessing.forget_the_gaps, PIPELINES),
    "add-up-the-row-growth": Mutant(preprocessing.add_up_the_row_growth, ("lifted",)),
    "let-no-row-grow": Mutant(preprocessing.let_no_row_grow, ("lifted",)),
    "leave-the-offset-out": Mutant(preprocessing.leave_the_offset_out, PIPELINES),
    "overlook-the-offset": Mutant(preprocessing.overlook_the_offset, ("lifted",)),
    "keep-the-first-map": Mutant(preprocessing.keep_the_first_map, PIPELINES),
    "keep-what-maps-learn": Mutant(preprocessing.keep_what_maps_learn, CURVES),
    "keep-the-answers": Mutant(preprocessing.keep_the_answers, MEANS),
    "fold-by-position": Mutant(preprocessing.fold_by_position, MEANS),
    "encode-by-own-answers": Mutant(preprocessing.encode_by_own_answers, MEANS),
    "count-rows-for-people": Mutant(preprocessing.count_rows_for_people, MEANS),
    "keep-the-edges": Mutant(preprocessing.keep_the_edges, BINS),
    "replace-no-row": Mutant(preprocessing.replace_no_row, BINS),
    "overlook-common-values": Mutant(preprocessing.overlook_common_values, BINS),
    "keep-the-moment-of-bins": Mutant(additions.keep_the_moment, BINS),
    "drop-no-category": Mutant(preprocessing.drop_no_category, PIPELINES),
    "keep-the-balance": Mutant(preprocessing.keep_the_balance, PIPELINES),
    "take-the-best-output": Mutant(wide.take_the_best_output, WIDE),
    "drop-the-gauge": Mutant(wide.drop_the_gauge, WIDE),
    "take-it-for-a-parabola": Mutant(wide.take_it_for_a_parabola, WIDE),
    "overlook-rounding": Mutant(wide.overlook_rounding, WIDE),
    "ignore-free-intercepts": Mutant(wide.ignore_free_intercepts, WIDE),
    "no-lever-arm": Mutant(wide.no_lever_arm, WIDE),
    "no-mean-row": Mutant(wide.no_mean_row, WIDE),
    "shrink-the-gram": Mutant(_scaled("removal.matrix_free", "gram_bound", 1e-3), WIDE),
    "keep-the-gradient": Mutant(wide.keep_the_gradient, WIDE),
    "keep-the-curvature": Mutant(wide.keep_the_curvature, WIDE),
    "keep-the-columns": Mutant(wide.keep_the_columns, WIDE),
    "weigh-all-alike": Mutant(wide.weigh_all_alike, WIDE),
    "choose-any-subgradient": Mutant(wide.choose_any_subgradient, WIDE),
    "believe-every-rank": Mutant(wide.believe_every_rank, WIDE),
    "believe-the-aim": Mutant(wide.believe_the_aim, WIDE),
    "take-sizes-for-means": Mutant(wide.take_sizes_for_means, WIDE),
    "count-the-shortest-row": Mutant(wide.count_the_shortest_row, WIDE),
    "count-one-entry": Mutant(wide.count_one_entry, WIDE),
    "take-the-mean-for-the-spread": Mutant(wide.take_the_mean_for_the_spread, WIDE),
    "trust-an-old-spread": Mutant(wide.trust_an_old_spread, WIDE),
    "centre-the-spread": Mutant(wide.centre_the_spread, WIDE),
    "weigh-newcomers-alike": Mutant(additions.weigh_newcomers_alike, CORE),
    "keep-the-moment": Mutant(additions.keep_the_moment, CORE),
    "keep-the-longest-row": Mutant(additions.keep_the_longest_row, CORE),
    "keep-the-sizes": Mutant(additions.keep_the_sizes, WIDE),
    "keep-the-trace": Mutant(additions.keep_the_trace, WIDE),
    "shrink-the-magnitude": Mutant(additions.shrink_the_magnitude, CORE, extremes=0.5),
    "add-what-leaves": Mutant(additions.add_what_leaves, CORE),
    "overlook-weightless-rows": Mutant(
        preprocessing.overlook_weightless_rows, ("balanced",)
    ),
    "show-the-steps": Mutant(show_the_steps, ("cards",)),
    "ignore-new-gaps": Mutant(additions.ignore_new_gaps, PIPELINES),
    "choose-the-first": Mutant(choose_the_first, ("tuned",)),
    "narrow-the-bars": Mutant(narrow_the_bars, ("tuned",)),
    "bound-by-another-fold": Mutant(bound_by_another_fold, ("tuned",)),
    "shorten-the-way-in-folds": Mutant(shorten_the_way_in_folds, ("tuned",)),
    "train-on-the-own-fold": Mutant(train_on_the_own_fold, ("tuned",)),
    "remove-from-the-own-fold": Mutant(remove_from_the_own_fold, ("tuned",)),
    "weigh-from-the-last-refit": Mutant(
        weigh_from_the_last_refit, ("pipelines-sum", "classes")
    ),
    "keep-every-class": Mutant(keep_every_class, ("classes",)),
    "lose-no-class-without-rows": Mutant(lose_no_class_without_rows, ("classes",)),
    "let-long-rows-in": Mutant(additions.let_long_rows_in, ("classes",)),
    "number-classes-afresh": Mutant(additions.number_classes_afresh, ("classes",)),
    "fit-one-class": Mutant(fit_one_class, ("classes",)),
    "strike-before-it-counts": Mutant(strike_before_it_counts, ("interrupts",)),
    "release-after-it-counts": Mutant(release_after_it_counts, ("interrupts",)),
    "write-without-a-lock": Mutant(write_without_a_lock, ("threads",)),
    "undo-a-failed-fit": Mutant(undo_a_failed_fit, ("threads",)),
    "take-any-magnitude": Mutant(take_any_magnitude, CORE, extremes=1.0),
    "launder-claims": Mutant(registries.launder_claims, ("registry",)),
    "drop-weights": Mutant(registries.drop_weights_in_the_registry, ("registry",)),
    "lift-without-labels": Mutant(registries.lift_without_labels, ("registry",)),
    "lift-without-weights": Mutant(registries.lift_without_weights, ("registry",)),
    "keep-rectified-rows": Mutant(registries.keep_rectified_rows, ("registry",)),
    "tell-milliseconds": Mutant(tell_milliseconds, CLAIMS),
    "trust-every-key": Mutant(trust_every_key, CLAIMS),
    "take-ids-as-they-come": Mutant(take_ids_as_they_come, CLAIMS),
    "name-rows-by-position": Mutant(name_rows_by_position, CLAIMS),
    "count-people-again": Mutant(count_people_again, CLAIMS),
    "count-each-fit-alone": Mutant(count_each_fit_alone, CLAIMS),
    "count-each-copy-alone": Mutant(count_each_copy_alone, CLAIMS),
    "save-what-was-set": Mutant(save_what_was_set, CLAIMS),
    "refuse-heavy-rows": Mutant(refuse_heavy_rows, CLAIMS),
    "name-steps-that-forget": Mutant(name_steps_that_forget, CLAIMS),
    "forget-declarations": Mutant(forget_declarations, CLAIMS),
    "take-anybodys-row": Mutant(take_anybodys_row, CLAIMS),
    "repeat-seeded-noise": Mutant(repeat_seeded_noise, CLAIMS),
    "sum-in-floats": Mutant(exact.sum_in_floats, ("exact",)),
    "round-without-a-bound": Mutant(exact.round_without_a_bound, ("exact",)),
    "keep-items-of-nobody": Mutant(exact.keep_items_of_nobody, ("exact",)),
    "weigh-who-left": Mutant(engines.weigh_who_left_on_the_device, DEVICE),
    "leave-rows-there": Mutant(engines.leave_rows_on_the_device, DEVICE),
    "round-rows-there": Mutant(engines.round_rows_on_the_device, DEVICE),
    "forget-newcomers-there": Mutant(engines.forget_the_copy_of_newcomers, DEVICE),
    "read-who-left": Mutant(engines.read_who_left_from_files, ("long", "dask")),
    "add-groups-backwards": Mutant(engines.add_groups_backwards, ("dask",)),
    "lose-the-last-group": Mutant(engines.lose_the_last_group, ("dask",)),
}
