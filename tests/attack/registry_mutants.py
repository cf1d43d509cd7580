# SPDX-License-Identifier: Apache-2.0
"""Mutants of the registry: what it forgets of models, and rows that come back."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import clone

from expunge.registry.loaded_model import dump_rows, load_rows

from .replacing import put


def launder_claims() -> None:
    """Let a registry forget what was declared of a model."""
    real = import_module("expunge.private_model.snapshot").carry_over

    def carry_over(scope: Any, before: Any, **given: Any) -> Any:
        return real(scope, None if scope.in_registry else before, **given)

    put("linear_model.base", "carry_over", carry_over)


def drop_weights_in_the_registry() -> None:
    """Let a registry fit a model without its weights."""
    real = import_module("expunge.registry.models").fit_estimator

    def fit_estimator(model: Any, X: Any, y: Any, given: Any, **named: Any) -> Any:
        return real(clone(model), X, y, given._replace(sample_weight=None), **named)

    put("registry.models", "fit_estimator", fit_estimator)


def lift_without_labels() -> None:
    """Give all rows that come back the same label."""
    _change_lifted(lambda rows: replace(rows, y=np.ones_like(rows.y)))


def lift_without_weights() -> None:
    """Let rows that come back weigh as much as any other."""
    _change_lifted(lambda rows: replace(rows, weight=np.ones_like(rows.weight)))


def keep_rectified_rows() -> None:
    """Bring new rows in, and leave the old ones where they are."""
    settling = import_module("expunge.registry.settle")
    real = settling._rectify

    def rectify(held: Any, new_rows: Any) -> Any:
        after = real(held, new_rows)
        return [*after, *(row for row in held if row not in after)]

    put("registry.settle", "_rectify", rectify)


def _change_lifted(change: Any) -> None:
    """Change rows on their way from where they were set aside into a model."""
    changes = import_module("expunge.registry.changes")
    real = changes.read_moves

    def read_moves(context: Any, *, moves: Any, load: Any = None) -> Any:
        reading = real(context, moves=moves, load=load)
        for move in moves.values():
            for old, _ in move.entering:
                if old is not None:
                    rows, places = load_rows([reading.blobs[old.key]])
                    reading.blobs[old.key] = dump_rows(change(rows), places)
        return reading

    put("registry.changes", "read_moves", read_moves)
