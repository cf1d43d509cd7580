# SPDX-License-Identifier: Apache-2.0
"""Mistakes in looks at the rows, each put in by a function."""

from dataclasses import replace
from importlib import import_module
from typing import Any

from .replacing import put

ANSWERS = "private_model.answers"


def stop_one_polish_early() -> None:
    """Give the answer before the last step with the radius after it."""
    judge = import_module(f"expunge.{ANSWERS}")._judge
    last: list[Any] = [None, None]

    def judged(terms: Any, state: Any, *, draft: Any, **more: Any) -> Any:
        found = judge(terms, state, draft=draft, **more)
        (of, before), last[:] = last[:], [state, draft]
        same = of is state and draft.measured is not None
        return replace(found, draft=before) if same else found

    put(ANSWERS, "_judge", judged)


def look_at_other_rows() -> None:
    """Look at all remaining rows but the first."""
    real = import_module("expunge.removal").measure_gradient

    def measure_gradient(state: Any, draft: Any, *, remaining: Any) -> Any:
        weight = remaining.weight.copy()
        weight[:1] = 0.0
        return real(state, draft, remaining=replace(remaining, weight=weight))

    put(ANSWERS, "measure_gradient", measure_gradient)


def keep_a_stale_gradient() -> None:
    """Take the gradient at the last answer that was looked at for that at the next."""
    real = import_module("expunge.removal").measure_gradient
    last: dict[str, Any] = {}

    def measure_gradient(state: Any, draft: Any, *, remaining: Any) -> Any:
        seen = real(state, draft, remaining=remaining)
        stale = last.get("seen")
        last["seen"] = seen.measured
        same = stale is not None and stale.shape == seen.measured.shape
        return replace(seen, measured=stale) if same else seen

    put(ANSWERS, "measure_gradient", measure_gradient)


def overlook_the_way() -> None:
    """Take the curvature at the answer for that at the anchor."""
    radius = import_module("expunge.promise.radius")

    def local(self: Any, floor: Any, decrement: float, *, b: float) -> float:
        there = floor.faded(0.0, self.modulus)
        found: float = radius.local_radius(
            there, decrement, rate=self.rate, R=self.longest
        )
        return found

    put("promise.radius:Radii", "_local", local)


def move_no_predictor() -> None:
    """Take the largest move of a predictor for none."""
    put("promise.radius:Radii", "_moved", 0.0)
