# SPDX-License-Identifier: Apache-2.0
"""Handling: what a receipt tells the officer who has to answer for a request.

An entry of the ledger says what was asked and what became of it. This says the rest
that authorities ask for: where the law grants the right, what was destroyed, until when
backups can hold it, what is kept and why, which copies of superseded releases are out
there, whether the deadline was extended, and what the guarantee means in one sentence.
Like all that a receipt holds it names nobody, and no figure in it depends on a row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp
from typing import ClassVar

from ..exceptions import InvalidInput
from ..promise.canonical import Check, exactly, one_of, sentence
from ..promise.certificate import Certificate
from ..rights.regimes import REGIMES
from ..rights.standing import FOR_HOLDS, OUTCOMES, REASONS, RIGHTS
from .documents import CanonicalDocument, by_model, list_of, optional_day
from .entries import EXTENSIONS

FORMAT = 1
RESTRICTION = "restriction"
DESTROYED = (
    "rows",
    "keys of rows",
    "private states",
    "parameters of superseded releases",
)
"""What a request can destroy."""
REFERENCES = sorted(
    {text for regime in REGIMES.values() for _, text in regime.references}
)
NO_MODEL = "No model was changed, so nothing is promised about one."


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Handling(CanonicalDocument):
    """What was done, in the words of an officer.

    Parameters
    ----------
    basis
        Where the law grants the right; empty if it does not know this one.
    destroyed
        What no longer exists: rows and the keys that open them, private states made
        with them, parameters of releases made with them.
    backups_until
        The last day on which a backup of the operator can hold what was destroyed;
        empty if the operator has not stated one.
    retained, retained_until
        Why rows are kept sealed, and until which day; empty if none are, or no end is
        set. Of every request the journal keeps a keyed tag, so that nobody who was
        erased comes back with a backup or a fit.
    copies
        For each model, the file names under which superseded releases left and were
        not stated to be taken back.
    extended, notified
        Why the deadline was extended, and when the person was told; empty if not.
    guarantee
        What is promised, in one sentence.
    """

    basis: str
    destroyed: tuple[str, ...]
    backups_until: str
    retained: str
    retained_until: str
    copies: Mapping[str, tuple[str, ...]]
    extended: str
    notified: str
    guarantee: str
    kind: str = "handling"
    version: int = FORMAT

    checks: ClassVar[Mapping[str, Check]] = {
        "basis": one_of("", *REFERENCES),
        "destroyed": list_of(one_of(*DESTROYED)),
        "backups_until": optional_day,
        "retained": one_of("", RESTRICTION, *FOR_HOLDS),
        "retained_until": optional_day,
        "copies": by_model(list_of(sentence)),
        "extended": one_of("", *EXTENSIONS),
        "notified": optional_day,
        "guarantee": sentence,
        "kind": one_of("handling"),
        "version": exactly(FORMAT),
    }

    def with_copies(self, copies: Mapping[str, tuple[str, ...]]) -> "Handling":
        """Return the same, with the files under which superseded releases left."""
        return replace(self, copies=copies)

    def require_consistent(self) -> None:
        """Refuse an end without a reason."""
        if (self.retained_until and not self.retained) or (
            bool(self.notified) != bool(self.extended)
        ):
            raise InvalidInput(
                "Handling: a day without its reason, or a reason without its day"
            )


def list_destroyed(
    right: str, outcome: str, *, reason: str, changed: bool, in_files: bool = False
) -> tuple[str, ...]:
    """Return what a request destroyed; where it is not known, less.

    Parameters
    ----------
    right, outcome, reason
        What was asked, what became of it, and why.
    changed
        Whether a model was changed.
    in_files
        Whether the rows may lie in files that the registry only reads, and then still
        do: what is destroyed is where they are.
    """
    assert right in RIGHTS and outcome in OUTCOMES and reason in REASONS
    erases = right in ("erase", "object", "rectify", "end-hold")
    # Where all rows are held, an erasure is answered by "partly" and destroys none.
    surely = outcome == "done" or (outcome == "partly" and changed)
    ended = right == "end-hold" and outcome == "partly"
    # Sealed rows of an earlier fit cannot come back, and are destroyed.
    stale = right == "lift" and reason == "fitted-again"
    first = 1 if in_files else 0
    rows = DESTROYED[first:2] if stale or (erases and (surely or ended)) else ()
    return rows + (DESTROYED[2:] if changed else ())


def describe_guarantee(certificates: Iterable[Certificate]) -> str:
    """Return in one sentence what certificates promise together: the weakest."""
    found = list(certificates)
    if not found:
        return NO_MODEL
    promised = [one for one in found if one.status != "radius-only"]
    if len(promised) < len(found):
        return "For at least one model nothing is promised; the certificates say which."
    epsilon = max(one.epsilon or 0.0 for one in promised)
    delta = max(one.delta or 0.0 for one in promised)
    return (
        "Each release is hard to tell from one of a model that was fitted to the data "
        "as they now are: whatever somebody believes, seeing it changes the odds of "
        f"any guess by at most {exp(epsilon):.3g} times (epsilon {epsilon:g}), except "
        f"with a probability of {delta:g} (delta)."
    )
