# SPDX-License-Identifier: Apache-2.0
"""Mistakes in preprocessing that forgets, each put in by a function."""

from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put

FEATURE_MAP = "core.feature_map:FeatureMap"


def keep_the_scaler() -> None:
    """Let what was learned from numbers stay as it was."""
    put(
        "preprocessing.pipeline_model",
        "learn_again",
        lambda recipe, statistics, *, before: before,
    )


def forget_the_shift() -> None:
    """Scale rows and parameters again, and leave the intercept as it was."""
    put(FEATURE_MAP, "full_shift", property(lambda self: np.zeros(self.width)))


def forget_the_gaps() -> None:
    """Let gaps be filled with what filled them at the anchor."""
    none = np.array([], dtype=np.intp)
    put(
        "preprocessing.feature_maps",
        "_correct_gaps",
        lambda reference, now, **more: (none, none, np.array([])),
    )


def add_up_the_stretch() -> None:
    """Take 1/min rho + |t| for how much longer a row may be."""

    def stretch(self: Any) -> float:
        off = self.rows < self.size - 1
        size = float(np.abs(self.values[off]).max(initial=0.0))
        return size + float(np.linalg.norm(self.shift))

    put(FEATURE_MAP, "stretch", property(stretch))


def stretch_nothing() -> None:
    """Take rows for no longer than those that were summed."""
    put("removal.state:State", "stretch", property(lambda self: 1.0))


def leave_the_offset_out() -> None:
    """Take the gradient at the anchor for that at the new anchor."""
    real = import_module("expunge.removal.state").lift_state

    def lift_state(base: Any, features: Any) -> Any:
        lifted = real(base, features)
        return lifted.replace(gradient=features.pull(base.gradient))

    put("preprocessing.pipeline_model", "lift_state", lift_state)


def overlook_the_offset() -> None:
    """Bound the third order by the step alone, without the way to the new anchor."""

    def lift(self: Any, s: Any) -> Any:
        return s if self.features is None else self.features.lift(s)

    put("removal.state:State", "lift", lift)


def keep_the_old_pull() -> None:
    """Move the anchor to drop a category, and keep the penalty's gradient."""
    real = import_module("expunge.preprocessing.pipeline_model")._settle

    def settle(base: Any, *given: Any, **more: Any) -> Any:
        return real(base, *given, **more).replace(pull=base.pull)

    put("preprocessing.pipeline_model", "_settle", settle)


def keep_the_balance() -> None:
    """Let balanced classes weigh what they weighed at the anchor."""
    real = import_module("expunge.preprocessing.balance").ClassSums.combine

    def combine(self: Any, state: Any, now: Any) -> Any:
        return real(self, state, self.then).replace(weight=now.total)

    put("preprocessing.balance:ClassSums", "combine", combine)


def drop_no_category() -> None:
    """Let categories outlive their rows."""
    put(
        "preprocessing.pipeline_model",
        "drop_categories",
        lambda recipe, statistics: recipe,
    )
