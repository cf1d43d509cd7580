# SPDX-License-Identifier: Apache-2.0
"""Scope: the standard sentences of certificates, and what decides which of them hold.

Each sentence completes "This holds provided that ..." or "It says nothing about ...".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..core.values import stored
from .accountant import Selection

Classes: TypeAlias = Literal["none", "declared", "learnt"]

ASSUMPTIONS = (
    "the budget, the objective, the schedule and the features were fixed without "
    "looking at the data",
    "the rows handed over for removal are all the rows of the people who asked",
    "requests depend on what was released, never on private state",
    "the noise comes from uniform random bits that nobody who sees the release can "
    "read or predict; what tables of its law cost, (1 + e^epsilon) 2^-200 a release, "
    "is taken off delta",
    "sums are rounded as IEEE 754 double precision requires",
)
# A certificate with a selection says this too.
TUNED = "the candidates, the folds and their key were fixed without looking at the data"
# And one with weights for classes this.
CLASS_WEIGHT = "the weights of the classes were fixed without looking at the data"
NOT_COVERED = (
    "what the private state could reveal to someone who reads the operator's memory",
    "earlier releases, which contained the removed people: the comparison is with an "
    "operator who retrains on the same requests",
)
# Every certificate says one of these two.
PREPROCESSING = (
    "preprocessing fitted outside expunge, in a scikit-learn Pipeline for example: it "
    "does not forget with this model"
)
BEFORE_PREPROCESSING = (
    "anything fitted to the data before they reached this model's preprocessing"
)
# A model with preprocessing says these too.
PREPROCESSED = (
    "preprocessing learns from the rows of the model alone; after every request it is, "
    "to the last bit, what learning from the rows that are then in it gives"
)
NO_NOISE = (
    "what preprocessing statistics from before a request reveal beside those from "
    "after it: they are exact and carry no noise"
)
COLUMNS_GUESSED = (
    "which columns the model sees, and as numbers or as categories: that was guessed "
    "from all rows at the fit, and removals do not undo it"
)
# What the circumstances of a model add.
ROWS_NOT_KEPT = (
    "a refusal because the remaining rows are needed and not kept: it is itself visible"
)
ROWS_IN_FILES = (
    "the files that the rows were read from: they still hold those of removed people "
    "until those who keep the files rewrite them"
)
# A registry says which files, by the public name of their source.
ROWS_IN_SOURCE = "the files of the source "
CLASS_REFUSED = (
    "a refusal of a request that would leave a class without rows, where retraining "
    "fails too or cannot be followed: it is itself visible"
)
OTHER_RELEASES = (
    "other releases of this model, from an earlier fit, another process or a saved "
    "copy: each counts its own releases"
)
WITHOUT_BUDGET = "any promise: without a budget the release carries no noise"
UNPROTECTED = (
    "a release under this budget that promised nothing: its noise came from a seed, "
    "which the budget does not allow"
)
CHOSEN = (
    "a choice made by looking at the data, for example of alpha or of features, which "
    "removal does not undo"
)
SEEDED = "anyone who knows or guesses the seed of the noise: they can subtract it"

# What a registry adds.
REGISTRY = (
    "copies of earlier releases that left the registry: they are marked as superseded, "
    "and anyone who holds one must stop using it",
    "backups, replicas and archived logs of the database, and copies of the key file",
    "the keyed hash of a person's id that the journal keeps, so that a restored backup "
    "brings nobody back",
)
NO_PEOPLE = (
    "the removal of anybody: the model was fitted without saying whose rows these are, "
    "so nobody can be found in it",
)

# A certificate with one of these is "radius-only", and without them "certified".
VOIDS = frozenset({WITHOUT_BUDGET, UNPROTECTED, CHOSEN})


@stored
@dataclass(frozen=True, slots=True)
class Scope:
    """What certificates of a model state besides its budget and its objective.

    Fixed by how the model was made, never by who left.

    Attributes
    ----------
    mechanism
        Name of what answers removals.
    classes
        Whether the classes were "declared", "learnt" from the rows, or there are
        "none".
    rows_kept
        Whether the remaining rows are at hand when a request needs them.
    classes_weighted
        Whether classes have weights.
    rows_in_files, source
        Whether the rows lie in files that expunge reads and never changes, and the
        public name of these files, if they have one.
    preprocessed
        Whether preprocessing is fitted, and forgets, with the model.
    columns_guessed
        Whether columns and their kinds were guessed from the rows.
    counted_apart
        Whether releases may exist that this model's account does not count.
    declared
        What made choices by looking at the data, as the operator declared.
    in_registry, has_people
        Whether a registry keeps the model, and whether the rows have owners.
    """

    mechanism: str = "newton"
    classes: Classes = "none"
    rows_kept: bool = True
    classes_weighted: bool = False
    rows_in_files: bool = False
    preprocessed: bool = False
    columns_guessed: bool = False
    counted_apart: bool = False
    declared: tuple[str, ...] = ()
    in_registry: bool = False
    has_people: bool = True
    source: str = ""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What certificates assume besides what all of them do."""
        return (
            *((CLASS_WEIGHT,) if self.classes_weighted else ()),
            *((PREPROCESSED,) if self.preprocessed else ()),
        )

    def exclusions(self, description: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what certificates under this objective do not cover."""
        reasons = {
            BEFORE_PREPROCESSING if self.preprocessed else PREPROCESSING: True,
            COLUMNS_GUESSED: self.columns_guessed,
            ROWS_NOT_KEPT: not self.rows_kept,
            describe_source(self.source): self.rows_in_files,
            CLASS_REFUSED: may_refuse_classes(self.classes, description),
            OTHER_RELEASES: self.counted_apart,
        }
        return tuple(text for text, applies in reasons.items() if applies)

    def circumstances(self) -> tuple[str, ...]:
        """Return what else they do not cover: by steps, declarations and place."""
        kept = REGISTRY if self.in_registry else ()
        return (
            *((NO_NOISE,) if self.preprocessed else ()),
            *kept,
            *(NO_PEOPLE if self.in_registry and not self.has_people else ()),
        )


def describe_source(name: str) -> str:
    """Return that files of this name still hold removed people."""
    if not name:
        return ROWS_IN_FILES
    return (
        f"{ROWS_IN_SOURCE}{name}: they still hold the rows of removed people until "
        "those who keep the files rewrite them"
    )


def leaves_files(not_covered: Iterable[str]) -> bool:
    """Return whether a certificate says that files still hold removed people."""
    return any(
        text == ROWS_IN_FILES or text.startswith(ROWS_IN_SOURCE) for text in not_covered
    )


def may_refuse_classes(classes: Classes, description: Mapping[str, Any]) -> bool:
    """Return whether a request that empties a class may be refused.

    Learnt classes: where rows are not kept, or one class would be left. Declared ones:
    where there is no minimiser without rows of every class.
    """
    if classes == "declared":
        return bool(description.get("needs_every_class", True))
    return classes == "learnt"


def assumptions_of(selection: Selection) -> tuple[str, ...]:
    """Return the standard assumptions of a certificate with this selection."""
    tuned = selection in ("certified", "recomputed", "noised")
    return (*ASSUMPTIONS, TUNED) if tuned else ASSUMPTIONS
