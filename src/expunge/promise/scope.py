# SPDX-License-Identifier: Apache-2.0
"""Scope: the standard sentences of certificates, and what decides which of them hold.

Each sentence completes "This holds provided that ..." or "It says nothing about ...".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from math import ceil, exp
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..core.values import stored
from .accountant import Selection

if TYPE_CHECKING:  # SciPy takes a while to import, and a ledger is read without it
    from ..core.objective import Objective
    from .budget import Budget

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
# All that a result rests on that equals retraining to the last bit.
EXACT_ASSUMPTIONS = (
    "what is computed and the features were fixed without looking at the data",
    ASSUMPTIONS[1],
    ASSUMPTIONS[4],
    "retraining is the same program on the same kind of machine",
)
# A certificate with a selection says this too.
TUNED = "the candidates, the folds and their key were fixed without looking at the data"
# One with a map of rows of the operator's own says this, and what the map is.
ENCODED = (
    "each row was encoded by itself, to the same numbers whenever it is encoded, by a "
    "map that was fixed without looking at the data: "
)
# One with embeddings says this and what the encoder is, and one of the three after it.
EMBEDDED = (
    "each row is an embedding of one input alone, but for rounding, and retraining "
    "would use the same encoder: "
)
NEVER_SAW = (
    "the encoder {name} never saw data of anybody whose rows are or were in the model, "
    "as its operator declares"
)
ENCODER_KNOWS = (
    "the encoder {name}: what it learnt from people who left stays in it, and nobody "
    "declared that it never saw them"
)
ENCODER_STAYS = "the encoder {name} by itself, which is not retrained when people leave"
ENCODER_PRIVATE = (
    "the training of the encoder {name} was differentially private, with epsilon "
    "{epsilon} and delta {delta} for one of its rows, as its operator declares, and "
    "who leaves does not depend on it"
)
ENCODER_COSTS = (
    "; seen together with this release, and compared with retraining both, it costs at "
    "most epsilon {total_epsilon} and delta {total_delta} in all if one row of its "
    "training left, and if m rows did, epsilon {head_epsilon} + m {epsilon} and delta "
    "{head_delta} + m e^((m - 1) {epsilon}) {delta}"
)
# And one with weights for classes this.
CLASS_WEIGHT = "the weights of the classes were fixed without looking at the data"
# And one of a loss that somebody else wrote this.
STRANGE_LOSS = (
    "the slope and the curvature of the loss {name}, which is not part of expunge, are "
    "its derivatives, and its bounds and its growth are what it states"
)
STRANGE_PENALTY = (
    "the penalty {name}, which is not part of expunge, is convex, and its proximal "
    "operator and subgradients are what its definition has"
)
# Tried on Adult by somebody who knew the rest of the row (benchmarks/defaults.py).
TWO_RELEASES = (
    "what two releases together reveal about one person who left or came between them: "
    "their label was guessed right in 0.54, 0.72 and 0.985 of tries at sigma 0.1, 0.01 "
    "and 0.001 (Adult, by somebody who knew the rest of the row), and retraining "
    "without noise would reveal it too"
)
NOT_COVERED = (
    "what the private state could reveal to someone who reads the operator's memory",
    "earlier releases, which contained the removed people: the comparison is with an "
    "operator who retrains on the same requests",
    TWO_RELEASES,
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
MEANS_PUBLIC = (
    "encodings of categories by what people answered: each is public, without noise, "
    "and a mean of the labels of at least as many people as was declared; whoever has "
    "a release from before a request and one from after it can compute what a single "
    "person who left answered, nearly or exactly, as if the model were trained again"
)
QUANTA_GUESSED = (
    "what ends of learnt bins are rounded to: that was guessed from all rows at the "
    "fit, and removals do not undo it"
)
# And one whose noise is counted in deviations of the targets these.
TARGETS_SCALED = (
    "sigma, tau, the radius budget and the radius in the private record are shares of "
    "the standard deviation of each target, which after every request is, to the last "
    "bit, that of the rows that are then in the model"
)
TARGETS_EXACT = (
    "what the mean and the standard deviation of the targets from before a request "
    "reveal beside those from after it: they are exact and carry no noise"
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
EXACT = (
    "what the numbers reveal, alone or beside those of an earlier release: they are "
    "exact and carry no noise"
)
# So is what certificates of exact results say of requests.
EXACT_PAIRS = (
    "two releases, seen together: their numbers carry no noise, so that the rows of "
    "people who left or came between them can be computed from the difference; "
    "requests that one release answers together hide in each other, and in nothing else"
)
EXACT_STAYERS = (
    "people who stay: somebody who has rows of their own removed bit by bit, and sees "
    "every release, can learn about others whose rows are in it"
)
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
    "so nobody can be found in it"
)

# What certificates of exact results do not cover, besides what is in their scope.
EXACT_NOT_COVERED = (*NOT_COVERED[:2], EXACT_PAIRS, EXACT_STAYERS, EXACT)

# The status of a certificate with one of these is "no promise".
VOIDS = frozenset({WITHOUT_BUDGET, UNPROTECTED, CHOSEN})


@stored
@dataclass(frozen=True, slots=True)
class ForeignEncoder:
    """An encoder that was made elsewhere, as its operator describes it.

    Attributes
    ----------
    name
        For people.
    seen
        "nobody" if it never saw data of people in the model, else "unknown".
    epsilon, delta
        What its training promises one of its rows, if it was differentially private.
    """

    name: str
    seen: Literal["unknown", "nobody"]
    epsilon: float | None = None
    delta: float | None = None

    @property
    def assumed(self) -> tuple[str, ...]:
        """What certificates assume of it."""
        if self.seen == "nobody":
            return (NEVER_SAW.format(name=self.name),)
        if self.epsilon is None:
            return ()
        own = {name: Decimal(str(getattr(self, name))) for name in ("epsilon", "delta")}
        return (ENCODER_PRIVATE.format(name=self.name, **own),)

    def excluded(self, head: "Budget | None") -> tuple[str, ...]:
        """Return what certificates under this budget of the head do not cover.

        The totals are sums of the decimals that are stated, so that none is rounded
        down.
        """
        if self.seen == "nobody":
            return ()
        if self.epsilon is None:
            return (ENCODER_KNOWS.format(name=self.name),)
        stays = ENCODER_STAYS.format(name=self.name)
        if head is None:
            return (stays,)
        values: dict[str, object] = {}
        for name in ("epsilon", "delta"):
            own, heads = (Decimal(str(getattr(one, name))) for one in (self, head))
            with localcontext() as exact:
                exact.rounding = ROUND_CEILING
                total = (own + heads).normalize()
            values |= {name: own, f"head_{name}": heads, f"total_{name}": total}
        return (stays + ENCODER_COSTS.format(**values),)


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
    targets_scaled
        Whether noise is counted in standard deviations of the targets.
    encoder
        Name and parameters of the map that encodes rows; empty without one.
    foreign
        The encoder that rows are embeddings by; None if they are not.
    columns_guessed
        Whether columns and their kinds were guessed from the rows.
    quanta_guessed
        Whether it was guessed from the rows what ends of learnt bins are rounded to.
    means_public
        Whether categories are encoded by what people who have them answered.
    counted_apart
        Whether releases may exist that this model's account does not count.
    declared, untuned
        What made choices by looking at the data, as the operator declared, or that
        nothing did.
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
    untuned: bool = False
    in_registry: bool = False
    has_people: bool = True
    source: str = ""
    encoder: str = ""
    foreign: ForeignEncoder | None = None
    targets_scaled: bool = False
    quanta_guessed: bool = False
    means_public: bool = False

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What certificates assume besides what all of them do."""
        return (
            *((CLASS_WEIGHT,) if self.classes_weighted else ()),
            *((PREPROCESSED,) if self.preprocessed else ()),
            *self._encoded,
            *((TARGETS_SCALED,) if self.targets_scaled else ()),
        )

    @property
    def _encoded(self) -> tuple[str, ...]:
        if self.foreign is not None:
            return (EMBEDDED + self.encoder, *self.foreign.assumed)
        return (ENCODED + self.encoder,) if self.encoder else ()

    def exclusions(
        self, description: Mapping[str, Any], budget: "Budget | None"
    ) -> tuple[str, ...]:
        """Return what certificates under this objective and budget do not cover."""
        reasons = {
            BEFORE_PREPROCESSING if self.preprocessed else PREPROCESSING: True,
            COLUMNS_GUESSED: self.columns_guessed,
            QUANTA_GUESSED: self.quanta_guessed,
            MEANS_PUBLIC: self.means_public,
            ROWS_NOT_KEPT: not self.rows_kept,
            describe_source(self.source): self.rows_in_files,
            CLASS_REFUSED: may_refuse_classes(self.classes, description),
            OTHER_RELEASES: self.counted_apart,
            NO_NOISE: self.preprocessed,
            TARGETS_EXACT: self.targets_scaled,
            **dict.fromkeys(REGISTRY, self.in_registry),
            NO_PEOPLE: self.in_registry and not self.has_people,
        }
        stated = tuple(text for text, applies in reasons.items() if applies)
        foreign = () if self.foreign is None else self.foreign.excluded(budget)
        return (*foreign, *stated)


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


def assumed_of(objective: "Objective") -> tuple[str, ...]:
    """Return what is assumed of a loss and a penalty that somebody else wrote."""
    loss, penalty = objective.loss, objective.penalty
    losses = dict.fromkeys(type(one) for one in (loss, getattr(loss, "binary", loss)))
    stated = [(kind, STRANGE_LOSS) for kind in losses]
    return tuple(
        text.format(name=kind.__name__)
        for kind, text in [*stated, (type(penalty), STRANGE_PENALTY)]
        if not kind.__module__.startswith("expunge.")
    )


def assumptions_of(selection: Selection, *, exact: bool = False) -> tuple[str, ...]:
    """Return the standard assumptions of a certificate with this selection."""
    tuned = selection in ("certified", "recomputed")
    return (EXACT_ASSUMPTIONS if exact else ASSUMPTIONS) + (TUNED,) * tuned


def state_limit(epsilon: float, delta: float) -> str:
    """Return in words how often a guess between two even chances is right at most.

        (1 + delta e^-epsilon) / (1 + e^-epsilon)

    Of a test between P and Q that says P with probability p under P and q under Q, p is
    at most e^epsilon q + delta, and 1 - q at most e^epsilon (1 - p) + delta. Both hold
    with equality where (p + 1 - q) / 2, how often it is right, is largest. Rounded up.
    """
    right = (1.0 + delta * exp(-epsilon)) / (1.0 + exp(-epsilon))
    # The little that is added pays for exp, and lets other languages round the same.
    share = min(ceil(1000.0 * right + 1e-9), 1000) / 10.0
    return f"right at most {share:.1f} % of the time"
