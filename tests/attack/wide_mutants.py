# SPDX-License-Identifier: Apache-2.0
"""Mistakes in models without matrices, each put in by a function."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put

FLOOR = "promise.floor"
MECHANISM = "removal.matrix_free:MatrixFree"


def _change_form(name: str, change: Callable[[Any, Any], Any]) -> Callable[[], None]:
    """Return what changes the form below the Hessian: (form, state) -> form."""

    def put_in() -> None:
        real = getattr(import_module(f"expunge.{FLOOR}"), name)

        def form(rounding: Any, **given: Any) -> Any:
            found = real(rounding, **given)
            return None if found is None else change(found, rounding.state)

        put(FLOOR, name, form)

    return put_in


def _change_state(change: Callable[[Any, Any], Any]) -> Callable[[], None]:
    """Return what changes a state after rows were removed: (after, before) -> after."""

    def put_in() -> None:
        real = import_module("expunge.removal.matrix_free").MatrixFree.update

        def update(self: Any, state: Any, removed: Any = None, **options: Any) -> Any:
            return change(real(self, state, removed, **options), state)

        put(MECHANISM, "update", update)

    return put_in


def take_the_best_output() -> None:
    """Let the floor be that of the output that is held best."""
    real = import_module(f"expunge.{FLOOR}").form_floor

    def floor(A: float, *, e: Any, coupling: Any) -> float:
        pairs = zip(e, coupling, strict=True)
        return max(float(real(A, e=one, coupling=its)) for one, its in pairs)

    put(FLOOR, "form_floor", floor)


def drop_the_gauge() -> None:
    """Use the curvature of the outputs alone, which is flat along their sum.

    No other number in its place does harm: beside the sum the curvature is at most half
    of f, so that the gauge is never what is flattest.
    """

    def form(rounding: Any, **given: Any) -> Any:
        smallest = np.linalg.eigvalsh(rounding.state.sums.curvature)[0]
        return None if smallest < 1e-14 else real(rounding, **given)

    real = import_module(f"expunge.{FLOOR}")._joint_form
    put(FLOOR, "_joint_form", form)


def take_it_for_a_parabola() -> None:
    """Take the curvature for constant on the way to the minimiser."""
    put(FLOOR, "local_distance", lambda decrement, R: decrement)


def overlook_rounding() -> None:
    """Take gradients for exact."""
    put("promise.rounding:Rounding", "gradient", lambda *given, **more: 0.0)


def ignore_free_intercepts() -> None:
    """Take |r| / mu though nothing penalises the intercepts."""
    put(
        "promise.radius",
        "strong_convexity",
        import_module(f"expunge.{FLOOR}").penalised_curvature,
    )


no_lever_arm = _change_form(
    "_joint_form", lambda found, state: found._replace(coupling=0.0 * found.coupling)
)
"""Let the coupling be zero: the intercepts do not move with the coefficients."""
no_mean_row = _change_form(
    "_separate_forms",
    lambda found, state: found._replace(K=0.0 * found.K, coupling=0.0 * found.coupling),
)
"""The same where the mean rows are known."""


def _keep(name: str) -> Callable[[], None]:
    """Return what leaves one of the sums over removed rows in."""
    return _change_state(
        lambda after, before: after.replace(
            sums=after.sums.replace(**{name: getattr(before.sums, name)})
        )
    )


keep_the_gradient = _keep("gradient")
"""Leave the gradients of removed rows in."""
keep_the_curvature = _keep("curvature")
"""Leave the curvature of removed rows in."""
keep_the_columns = _keep("intercept_columns")
"""Leave the intercept_columns of removed rows in."""


def weigh_all_alike() -> None:
    """Change the gradient by rows as if each weighed one."""
    real = import_module("expunge.removal.sums").Sums.over

    def over(self: Any, rows: Any, **options: Any) -> Any:
        same = replace(rows, weight=np.ones(len(rows.weight)))
        gradient = real(self, same, **options).gradient
        return real(self, rows, **options).replace(gradient=gradient)

    put("removal.sums:Sums", "over", over)


def choose_any_subgradient() -> None:
    """Let what is zero take any subgradient, however long."""

    def subgradient(self: Any, theta: Any, near: Any) -> Any:
        return np.where(theta != 0.0, np.sign(theta), near)

    put("core.penalties:L1", "subgradient", subgradient)


def take_sizes_for_means() -> None:
    """Move the anchor, and leave sizes as means over the rows."""
    module = import_module("expunge.removal.matrix_free")
    real = module._move

    def move(state: Any, rows: Any, *, goal: float) -> Any:
        moved = real(state, rows, goal=goal)
        sizes, weight = moved.magnitude, moved.sums.weight
        less = replace(
            sizes, square_norm=sizes.square_norm / weight, gram=sizes.gram / weight
        )
        return moved.replace(sums=moved.sums.replace(magnitude=less))

    put("removal.matrix_free", "_move", move)


def count_the_shortest_row() -> None:
    """Take the fewest entries of a row for the most."""

    def most_entries(rows: Any) -> int:
        X = rows.X.toarray() if hasattr(rows.X, "toarray") else rows.X
        return int(np.count_nonzero(X, axis=1).min(initial=X.shape[1]))

    put("removal.matrix_free", "most_entries", most_entries)


def count_one_entry() -> None:
    """Count the roundings of a row as if it had one entry."""
    put("promise.rounding:Rounding", "_width", lambda self, *, summed: 1.0)


def take_the_mean_for_the_spread() -> None:
    """Take the largest eigenvalue of a mean for that of the sum."""
    module = import_module("expunge.removal.matrix_free")
    real = module.keep_short_cut

    def keep(state: Any, made: Any) -> Any:
        kept = real(state, made)
        if made is None:
            return kept
        gram = min(state.magnitude.gram, made.largest_eigenvalue)
        less = replace(kept.magnitude, gram=gram)
        return kept.replace(sums=kept.sums.replace(magnitude=less))

    for place in ("removal.matrix_free", "private_model.answers"):
        put(place, "keep_short_cut", keep)


def trust_an_old_spread() -> None:
    """Take the largest eigenvalue over rows of before for that over these."""
    module = import_module("expunge.removal.matrix_free")
    real = module._move

    def move(state: Any, rows: Any, *, goal: float) -> Any:
        moved = real(state, rows, goal=goal)
        return module.keep_short_cut(moved, moved.cache.short_cut)

    put("removal.matrix_free", "_move", move)


def centre_the_spread() -> None:
    """Take the largest eigenvalue of the centred rows for that of all."""
    module = import_module("expunge.core.preconditioner")
    real = module.make_preconditioner

    def make(objective: Any, rows: Any, *, at: Any) -> Any:
        made = real(objective, rows, at=at)
        if not hasattr(made, "values"):
            return made
        return replace(made, largest_eigenvalue=float(made.values[-1]))

    for place in ("core.preconditioner", "core.solver"):
        put(place, "make_preconditioner", make)


def believe_the_aim() -> None:
    """Take a step for as near as it aimed, whatever its radius."""
    answers = import_module("expunge.private_model.answers")
    step, judge = answers.MatrixFree.step, answers._judge
    moved: list[Any] = []

    def take_step(self: Any, state: Any, *given: Any, **options: Any) -> Any:
        after, draft = step(self, state, *given, **options)
        moved[:] = [after]
        return after, draft

    def believe(terms: Any, state: Any, **given: Any) -> Any:
        found = judge(terms, state, **given)
        if terms.budget is None or not (moved and state is moved[0]):
            return found
        allowed = terms.budget.removal_budget(state.anchor.size)
        radius = replace(found.radius, value=min(found.radius.value, allowed))
        return replace(found, radius=radius, as_a_fit=True)

    put(MECHANISM, "step", take_step)
    put("private_model.answers", "_judge", believe)


def believe_every_rank() -> None:
    """Let singular values beside the space of the coefficients be of any size."""

    def subgradient(self: Any, theta: Any, near: Any) -> Any:
        left, values, right = np.linalg.svd(theta, full_matrices=False)
        there = values > 1e-13 * values[0]
        left, right = left[:, there], right[there]
        beside = near - left @ (left.T @ near)
        return left @ right + beside - (beside @ right.T) @ right

    put("core.penalties:NuclearNorm", "subgradient", subgradient)
