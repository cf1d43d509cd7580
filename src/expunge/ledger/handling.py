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
from typing import Annotated, Literal

from ..exceptions import InvalidInput
from ..promise.canonical import CanonicalDocument, Sentence, one_of
from ..promise.certificate import Certificate
from ..promise.scope import state_limit
from ..rights.regimes import REGIMES
from ..rights.standing import FOR_HOLDS, OUTCOMES, REASONS, RIGHTS
from .documents import ModelName, OptionalDay
from .entries import EXTENSIONS

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
REMOVED = {
    "data": "without your data",
    "before": "that you were in the data",
    "effect": "The influence of your data on the published parameters of {models} was "
    "removed.",
}
EFFECTS: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(RIGHTS, REMOVED),
    "rectify": {
        "data": "with your corrected data",
        "before": "that it had learnt from your former data",
        "effect": "The published parameters of {models} follow from your corrected "
        "data.",
    },
    "lift": {
        "data": "with your data",
        "before": "that they were put back",
        "effect": "The published parameters of {models} follow from your data again.",
    },
}
"""By what was asked: what a retrained model learns from, what somebody may think
instead of that, and what it means for models with a promise."""
WITHOUT_PROMISE = (
    "Of {models}, changed too, nothing is promised about what is left in the result."
)
GUARANTEES: Mapping[str, str] = {
    "no promise": (
        "For at least one model nothing is promised; the certificates say which."
    ),
    "certified": (
        "Up to noise that hides the difference, the result is what retraining {data} "
        "gives: someone who thought 50:50 {before}, and otherwise that the model was "
        "retrained, is {limit} after seeing this release of it (epsilon {epsilon}, "
        "delta {delta})."
    ),
    "exact": "To the last bit, the result is what retraining {data} gives.",
    "": "No model was changed, so nothing is promised about one.",
}
"""What is promised in words, by the weakest status of the certificates."""


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

    basis: Annotated[str, one_of("", *REFERENCES)]
    destroyed: tuple[Annotated[str, one_of(*DESTROYED)], ...]
    backups_until: OptionalDay
    retained: Annotated[str, one_of("", RESTRICTION, *FOR_HOLDS)]
    retained_until: OptionalDay
    copies: Mapping[ModelName, tuple[Sentence, ...]]
    extended: Annotated[str, one_of("", *EXTENSIONS)]
    notified: OptionalDay
    guarantee: Sentence
    kind: Literal["handling"] = "handling"
    version: Literal[1] = 1

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


def describe_guarantee(right: str, certificates: Iterable[Certificate]) -> str:
    """Return in one sentence what certificates promise together: the weakest.

    Parameters
    ----------
    right
        What was asked.
    certificates
        Those of the models that were changed.
    """
    found = list(certificates)
    statuses = {one.status for one in found}
    epsilon = max((one.epsilon or 0.0 for one in found), default=0.0)
    delta = max((one.delta or 0.0 for one in found), default=0.0)
    return GUARANTEES[
        next((word for word in GUARANTEES if word in statuses), "")
    ].format(
        **EFFECTS[right],
        limit=state_limit(epsilon, delta),
        epsilon=f"{epsilon:g}",
        delta=f"{delta:g}",
    )


def describe_effect(right: str, certificates: Mapping[str, Certificate]) -> str:
    """Return in sentences what a request did to models; nothing if none was changed."""
    bare = [name for name, one in certificates.items() if one.status == "no promise"]
    names = [name for name in certificates if name not in bare]
    said = []
    for text, found in ((EFFECTS[right]["effect"], names), (WITHOUT_PROMISE, bare)):
        if found:
            models = f"model{'s' * (len(found) > 1)} {', '.join(found)}"
            said.append(f"{text.format(models=models)} ")
    return "".join(said)
