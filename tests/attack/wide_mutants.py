# SPDX-License-Identifier: Apache-2.0
"""Mistakes in models without matrices, each put in by a function."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put

BOUNDS = "promise.bounds"
MECHANISM = "removal.matrix_free:MatrixFree"


def _change_form(name: str, change: Callable[[Any, Any], Any]) -> Callable[[], None]:
    """Return what changes the form below the Hessian: (form, state) -> form."""

    def put_in() -> None:
        real = getattr(import_module(f"expunge.{BOUNDS}"), name)

        def form(state: Any) -> Any:
            found = real(state)
            return None if found is None else change(found, state)

        put(BOUNDS, name, form)

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
    real = import_module(f"expunge.{BOUNDS}").form_floor

    def floor(A: float, *, e: Any, kappa: Any) -> float:
        pairs = zip(e, kappa, strict=True)
        return max(float(real(A, e=one, kappa=its)) for one, its in pairs)

    put("promise.radius", "form_floor", floor)


def drop_the_gauge() -> None:
    """Use the curvature of the outputs alone, which is flat along their sum.

    No other number in its place does harm: beside the sum the curvature is at most half
    of f, so that the gauge is never what is flattest.
    """

    def form(state: Any) -> Any:
        return None if np.linalg.eigvalsh(state.curvature)[0] < 1e-14 else real(state)

    real = import_module(f"expunge.{BOUNDS}")._joint_form
    put(BOUNDS, "_joint_form", form)


def take_it_for_a_parabola() -> None:
    """Take the curvature for constant on the way to the minimiser."""
    put("promise.radius", "local_distance", lambda decrement, R: decrement)


def overlook_rounding() -> None:
    """Take gradients for exact."""
    put("promise.radius", "gradient_error", lambda *given, **more: 0.0)


def ignore_free_intercepts() -> None:
    """Take |r| / mu though nothing penalises the intercepts."""
    put(
        "promise.radius",
        "strong_convexity",
        import_module(f"expunge.{BOUNDS}").penalised_curvature,
    )


no_lever_arm = _change_form(
    "_joint_form", lambda found, state: found._replace(kappa=0.0 * found.kappa)
)
"""Let kappa be zero: the intercepts do not move with the coefficients."""
no_mean_row = _change_form(
    "_separate_forms",
    lambda found, state: found._replace(K=0.0 * found.K, kappa=0.0 * found.kappa),
)
"""The same where the mean rows are known."""


def short_spread() -> None:
    """Take the mean of |x|^2 for that of |x|^2 over the columns."""

    def change(found: Any, state: Any) -> Any:
        width = state.anchor.size // len(state.curvature)
        return found._replace(kappa=found.kappa / np.sqrt(width))

    _change_form("_joint_form", change)()


keep_the_gradient = _change_state(
    lambda after, before: after.replace(gradient=before.gradient)
)
"""Leave the gradients of removed rows in."""
keep_the_curvature = _change_state(
    lambda after, before: after.replace(curvature=before.curvature)
)
"""Leave the curvature of removed rows in."""
keep_the_lever = _change_state(lambda after, before: after.replace(lever=before.lever))
"""Leave the lever of removed rows in."""


def weigh_all_alike() -> None:
    """Change the gradient by rows as if each weighed one."""
    real = import_module("expunge.removal.changes").loss_slopes

    def slopes(loss: Any, rows: Any, *, theta: Any) -> Any:
        same = replace(rows, weight=np.ones(len(rows.weight)))
        return real(loss, same, theta=theta)

    put("removal.changes", "loss_slopes", slopes)


def choose_any_subgradient() -> None:
    """Let what is zero take any subgradient, however long."""

    def subgradient(self: Any, theta: Any, near: Any) -> Any:
        return np.where(theta != 0.0, np.sign(theta), near)

    put("core.penalties:L1", "subgradient", subgradient)


def keep_the_scales() -> None:
    """Move the anchor, and leave sizes in units of the old weight."""
    module = import_module("expunge.removal.matrix_free")
    real = module._move

    def move(state: Any, rows: Any, *, goal: float) -> Any:
        moved = real(state, rows, goal=goal)
        scales = replace(moved.scales, square_norm=state.scales.square_norm)
        return moved.replace(scales=scales)

    put("removal.matrix_free", "_move", move)


def count_the_shortest_row() -> None:
    """Take the fewest entries of a row for the most."""

    def most_entries(rows: Any) -> int:
        X = rows.X.toarray() if hasattr(rows.X, "toarray") else rows.X
        return int(np.count_nonzero(X, axis=1).min(initial=X.shape[1]))

    put("removal.summary", "most_entries", most_entries)


def keep_the_spread() -> None:
    """Move the anchor, and leave the largest eigenvalue in units of the old weight."""
    module = import_module("expunge.removal.matrix_free")
    real = module._move

    def move(state: Any, rows: Any, *, goal: float) -> Any:
        moved = real(state, rows, goal=goal)
        return moved.replace(gram_norm=state.gram_norm)

    put("removal.matrix_free", "_move", move)


def centre_the_spread() -> None:
    """Take the largest eigenvalue of the centred rows for that of all."""
    module = import_module("expunge.wide.preconditioner")
    real = module.make_preconditioner

    def make(objective: Any, rows: Any, *, hessian: Any) -> Any:
        made = real(objective, rows, hessian=hessian)
        if not hasattr(made, "values"):
            return made
        return replace(made, largest_eigenvalue=float(made.values[-1]))

    for place in ("wide.preconditioner", "wide.solver"):
        put(place, "make_preconditioner", make)


def believe_every_rank() -> None:
    """Let singular values beside the space of the coefficients be of any size."""

    def subgradient(self: Any, theta: Any, near: Any) -> Any:
        left, values, right = np.linalg.svd(theta, full_matrices=False)
        there = values > 1e-13 * values[0]
        left, right = left[:, there], right[there]
        beside = near - left @ (left.T @ near)
        return left @ right + beside - (beside @ right.T) @ right

    put("core.penalties:NuclearNorm", "subgradient", subgradient)
