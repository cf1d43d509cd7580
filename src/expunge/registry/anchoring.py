# SPDX-License-Identifier: Apache-2.0
"""Anchoring anew: a private state that has never seen those who left.

A state is sums around an anchor that was fitted with everybody. Who opens it can learn
of removed rows (docs/state.md), and only new sums over the rows that are left end that.
They cost passes over all rows, so it is done when the operator says so, and whenever an
answer looks at the rows anyhow. Nothing is released by it.
"""

from dataclasses import replace

from ..exceptions import Unsupported
from ..linear_model.holdings import NOBODY
from ..stores import publications
from ..tuning.holdings import TunedHoldings
from ..unlearn import reanchor
from .held import checkpoint
from .site import WAIT, Site


def anchor_anew(site: Site, name: str) -> None:
    """Replace the state of a model by one made from the rows that are left."""
    held = site.held(name)
    holdings = held.holdings
    if isinstance(holdings, TunedHoldings):
        raise Unsupported(
            f"model {name!r} is tuned and keeps a state for every candidate and fold; "
            "fit it anew to be rid of their anchors"
        )
    remaining = holdings.remaining(NOBODY)
    # Twice: the first step begins at an answer of the old state, and of that the second
    # leaves no more than rounding.
    custody = reanchor(reanchor(holdings.custody, remaining), remaining)
    snapshot = held.model._snapshot.holding(replace(holdings, custody=custody))
    data = checkpoint(held.model, snapshot, held.page_keys)
    written = site.checkpoints.write(name, held.generation + 1, data)
    site.cache.pop(name, None)
    with site.changing() as connection:
        after = {"checkpoint": written, "number": held.number}
        publications.move_on(connection, name, held.generation, after)
    site.store.erase(WAIT)
    site.settle()
