# SPDX-License-Identifier: Apache-2.0
"""Certificates: what a release promises, and nothing that removed rows could change.

A certificate holds the budget, figures that follow from the budget, and the request
log. What depends on rows (radius, decisions, row counts, timings) stays in the private
record, of which the certificate holds a salted hash. ``verification`` checks one
against the other.

The standard sentences are in ``scope``. A certificate may say more, never less.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from ..core.values import stored
from ..display.cards import Card
from ..exceptions import InvalidInput, Unsupported
from .accountant import Accountant, Claim, Selection, is_permitted
from .canonical import (
    Check,
    Count,
    Digest,
    Document,
    NotNegative,
    OneOrMore,
    Positive,
    Schema,
    Sentence,
    Share,
    freeze,
)
from .noise import Source
from .scope import (
    CHOSEN,
    EXACT_NOT_COVERED,
    NOT_COVERED,
    SEEDED,
    TARGETS_SCALED,
    UNPROTECTED,
    VOIDS,
    WITHOUT_BUDGET,
    Classes,
    Scope,
    assumed_of,
    assumptions_of,
    state_limit,
)

if TYPE_CHECKING:  # SciPy takes a while to import, and a ledger is read without it
    from ..core.objective import Objective

Status: TypeAlias = Literal["certified", "exact", "no promise"]
RowNorm: TypeAlias = Literal["declared", "measured"]

NO_COMMITMENT = "00" * 32
# Stated together or not at all.
BUDGET_FIELDS = (
    "epsilon",
    "delta",
    "sigma",
    "tau",
    "radius_budget",
    "noise_grid",
    "noise_source",
    "claim",
)
NO_BUDGET = "Nothing is promised: there is no budget, so the release has no noise."
CHOSEN_ON_DATA = (
    "Nothing is promised: a choice was made by looking at the data, and removal does "
    "not undo it."
)
SEEDED_NOISE = (
    "Nothing is promised: the noise came from a seed, which the budget does not allow."
)


def _freeze_objective(value: Any) -> Any:
    description = freeze(value)
    parts = description if isinstance(description, Mapping) else {}
    for part in (parts.get("loss"), parts.get("penalty")):
        if not (isinstance(part, Mapping) and isinstance(part.get("name"), str)):
            raise ValueError("it must name its loss and its penalty, see describe()")
    return description


_NAMED = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}},
}
_DESCRIPTION = {
    "type": "object",
    "required": ["loss", "penalty"],
    "properties": {"loss": _NAMED, "penalty": _NAMED},
}


@stored
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Certificate(Document):
    """The public half of a release: budget, request log, and a commitment.

    Parameters
    ----------
    status
        "certified": the noise hides what the release may differ from retraining;
        "exact": the published numbers equal those of retraining to the last bit,
        without noise and without a budget; "no promise": nothing is promised, and
        ``not_covered`` says why.
    claim
        What (epsilon, delta) is about: "each release" or "all releases jointly".
    epsilon, delta
        A limit on how well anyone can tell a release from one made after retraining;
        None, like everything else that the budget determines, if there is no budget.
    sigma
        Standard deviation of the noise on each parameter.
    tau
        How far a solver may be from its minimiser: the budget's, or the default used.
    releases
        Number of releases that the claim is about; None if it is about each.
    radius_budget
        How far the released model, before its noise, may be from retraining, errors
        of both solvers included. The radius itself is private.
    noise_grid
        Step of the noise, a power of two.
    noise_source
        Where the noise comes from: "secure" or "seeded".
    n_releases
        Releases made under the budget, this one included.
    n_subjects_removed, n_subjects_added
        People removed since the fit; people who came since, or brought more rows, each
        counted once a request.
    n_parameters
        Length of the released vector; 0 if answers to questions are all that leaves.
    row_norm
        Whether the bound on the norm of a row was "declared" with the budget or
        "measured" at the fit.
    classes
        Whether a classifier's classes were "declared" in advance, so that a release
        names them no matter who left, or "learnt" from the rows; "none" for other
        models.
    selection
        How parameters such as alpha were chosen: "not known" unless somebody said so,
        "none" if the operator declared that nothing was chosen by looking at the data,
        "certified" to equal tuning again on the remaining rows, "recomputed" on them,
        or "not covered". It names the method fixed beforehand, not what a request
        turned out to need.
    mechanism
        Name of what answers removals.
    objective
        What was minimised at the fit, see ``describe``.
    assumptions
        Conditions under which the promise holds.
    not_covered
        What the promise does not cover.
    commitment
        SHA-256 of the canonical JSON of the private record, which holds 32 random
        bytes.
    version
        Version of the format.
    """

    status: Status
    claim: Claim | None
    epsilon: NotNegative | None
    delta: Share | None
    sigma: Positive | None
    tau: Positive | None
    radius_budget: Positive | None
    releases: OneOrMore | None
    n_releases: OneOrMore
    n_subjects_removed: Count
    n_subjects_added: Count
    n_parameters: Count
    noise_grid: Positive | None
    noise_source: Source | None
    row_norm: RowNorm
    classes: Classes
    selection: Selection
    mechanism: Sentence
    objective: Annotated[Mapping[str, Any], Check(_freeze_objective, _DESCRIPTION)]
    assumptions: tuple[Sentence, ...]
    not_covered: tuple[Sentence, ...]
    commitment: Digest
    version: Literal[1] = 1

    @classmethod
    def schema_rules(cls) -> Schema:
        """Return that a budget is stated whole or not at all."""
        absent = {name: {"type": "null"} for name in (*BUDGET_FIELDS, "releases")}
        stated = {name: {"not": {"type": "null"}} for name in BUDGET_FIELDS}
        return {
            "if": {"properties": {"epsilon": {"type": "null"}}},
            "then": {"properties": absent},
            "else": {"properties": stated},
        }

    @property
    def is_of_a_fit(self) -> bool:
        """Whether nobody left and nobody came since the fit: its first release."""
        return not (self.n_subjects_removed or self.n_subjects_added)

    def require_consistent(self) -> None:
        """Refuse a budget that is stated in part."""
        absent = [name for name in BUDGET_FIELDS if getattr(self, name) is None]
        stray = self.releases is not None
        if absent and (len(absent) < len(BUDGET_FIELDS) or stray):
            raise InvalidInput(
                f"Certificate: {', '.join(absent)} missing from the budget; state all "
                "of it, or nothing if there is no budget"
            )

    def state_promise(self) -> str:
        """Return in one sentence what is promised."""
        left, came = (
            f"{n} {'person' if n == 1 else 'people'} who"
            for n in (self.n_subjects_removed, self.n_subjects_added)
        )
        changes = [f"without the {left} left"] * bool(self.n_subjects_removed)
        changes += [f"with the {came} came"] * bool(self.n_subjects_added)
        gives = f"what retraining {' and '.join(changes) or 'from scratch'} gives"
        if self.status == "exact":
            return f"To the last bit, this release is {gives}; it carries no noise."
        if self.epsilon is None or self.delta is None:
            return NO_BUDGET
        if self.status == "no promise":
            return CHOSEN_ON_DATA if self.selection == "not covered" else SEEDED_NOISE
        what, they, them = "this release is", "it was", "it"
        if self.releases is not None:
            what = f"all {self.releases} releases are"
            they, them = "they were", "them all"
        return (
            f"Up to noise that hides the difference, {what} {gives}: someone who "
            f"thought 50:50 whether {they} retrained is "
            f"{state_limit(self.epsilon, self.delta)} after seeing {them} "
            f"(epsilon {self.epsilon:g}, delta {self.delta:g})."
        )

    @property
    def _unit(self) -> str:
        scaled = TARGETS_SCALED in self.assumptions
        return " deviations of the targets" if scaled else ""

    def make_card(self, title: str = "Certificate") -> Card:
        """Return the card, under a title of your own."""
        loss, penalty = self.objective["loss"], self.objective["penalty"]
        of = "" if self.releases is None else f" of {self.releases}"
        facts = {
            "people removed": str(self.n_subjects_removed),
            "people added": str(self.n_subjects_added or ""),
            "release": f"{self.n_releases}{of}",
            "model": f"{loss['name']} loss, {penalty['name']} penalty, "
            f"{self.n_parameters} parameters; removal by {self.mechanism}",
            "noise": ""
            if self.sigma is None
            else f"sigma {self.sigma:g}{self._unit} on each parameter, from a "
            f"{self.noise_source} "
            "source",
        }
        return Card(
            title,
            self.state_promise(),
            tone="warning" if self.status == "no promise" else "promise",
            facts=tuple((name, text) for name, text in facts.items() if text),
            folded=(
                ("What is not covered: it says nothing about ...", self.not_covered),
                ("When it holds: provided that ...", self.assumptions),
            ),
        )

    def _repr_html_(self) -> str:
        return self.make_card().to_html()


def certify(
    accountant: Accountant,
    objective: "Objective",
    *,
    scope: Scope,
    noise_source: Source | None,
    commitment: str,
) -> Certificate:
    """Return the certificate of the release that the accountant composed last.

    Everything in it follows from the budget, the request log and the scope.

    Parameters
    ----------
    accountant
        The account after this release.
    objective
        As fitted: under "sum" scaling its factors after a removal tell row counts.
    scope
        What else is true of the model.
    noise_source
        Where the noise came from; None without a budget.
    commitment
        ``Record.commitment()`` of the record behind the release.
    """
    # All else is the same for one release after another, and takes a while to check.
    first = accountant.without_counts()
    template = _make_template(first, objective, scope=scope, noise_source=noise_source)
    return template.replace(
        n_releases=accountant.n_releases,
        n_subjects_removed=accountant.n_subjects_removed,
        n_subjects_added=accountant.n_subjects_added,
        commitment=commitment,
    )


@lru_cache(maxsize=64)
def _make_template(
    accountant: Accountant,
    objective: "Objective",
    *,
    scope: Scope,
    noise_source: Source | None,
) -> Certificate:
    """Return a certificate whose counts and commitment are to be filled in."""
    budget, size = accountant.budget, accountant.n_parameters
    chosen, description = accountant.selection == "not covered", describe(objective)
    sound = is_permitted(budget, noise_source) and (accountant.holds or chosen)
    reasons = {
        WITHOUT_BUDGET: budget is None,
        UNPROTECTED: budget is not None and not sound,
        CHOSEN: chosen,
        SEEDED: noise_source == "seeded",
    }
    exclusions = [text for text, applies in reasons.items() if applies]
    stated: dict[str, Any] = dict.fromkeys((*BUDGET_FIELDS, "releases"))
    if budget is not None:
        stated |= {
            "claim": accountant.claim,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "sigma": budget.sigma,
            "tau": budget.solver_error(size),
            "radius_budget": budget.radius_budget(size),
            "releases": budget.releases,
            "noise_grid": budget.grid,
        }
    promised = budget is not None and budget.row_norm is not None
    return Certificate(
        **stated | {"noise_source": noise_source},
        status="certified" if VOIDS.isdisjoint(exclusions) else "no promise",
        n_releases=1,
        n_subjects_removed=0,
        n_subjects_added=0,
        n_parameters=size,
        row_norm="declared" if promised else "measured",
        classes=scope.classes,
        selection=accountant.selection,
        mechanism=scope.mechanism,
        objective=description,
        assumptions=(
            *assumptions_of(accountant.selection),
            *scope.assumptions,
            *assumed_of(objective),
        ),
        not_covered=(*NOT_COVERED, *scope.exclusions(description, budget), *exclusions),
        commitment=NO_COMMITMENT,
    )


def certify_exact(
    accountant: Accountant,
    description: Mapping[str, Any],
    *,
    scope: Scope,
    not_covered: tuple[str, ...],
    commitment: str,
) -> Certificate:
    """Return the certificate of a release that follows from exact sums.

    Parameters
    ----------
    accountant
        The account after this release.
    description
        What was computed, as ``describe`` states an objective.
    scope
        What else is true of the model.
    not_covered
        What it does not cover besides what no exact release does.
    commitment
        ``Record.commitment()`` of the record behind the release.
    """
    chosen = accountant.selection == "not covered"
    stated: dict[str, Any] = dict.fromkeys((*BUDGET_FIELDS, "releases"))
    excluded = (*EXACT_NOT_COVERED, *not_covered)
    standard = assumptions_of(accountant.selection, exact=True)
    if chosen:
        excluded = (*NOT_COVERED, *not_covered, WITHOUT_BUDGET, CHOSEN)
        standard = assumptions_of(accountant.selection)
    return Certificate(
        **stated,
        status="no promise" if chosen else "exact",
        n_releases=accountant.n_releases,
        n_subjects_removed=accountant.n_subjects_removed,
        n_subjects_added=accountant.n_subjects_added,
        n_parameters=accountant.n_parameters,
        row_norm="measured",
        classes=scope.classes,
        selection=accountant.selection,
        mechanism=scope.mechanism,
        objective=description,
        assumptions=(*standard, *scope.assumptions),
        not_covered=(*excluded, *scope.exclusions(description, None)),
        commitment=commitment,
    )


def describe(objective: "Objective") -> dict[str, Any]:
    """Return an objective as plain JSON data.

    Its fields by name, and whether it needs rows of every class. It states alpha or, if
    alpha follows from it, C. A loss or a penalty becomes its own fields and its class
    as "name"; being a dataclass is all that a new one needs.
    """
    stated = _fields(objective)
    del stated["C" if objective.C is None else "alpha"]
    return stated | {"needs_every_class": objective.needs_every_class}


def _fields(part: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(part, field.name)) for field in fields(part)}


def _plain(value: Any) -> Any:
    """Return the value of a field as JSON data; refuse what would be left out."""
    if value is None or isinstance(value, str | Real):
        return freeze(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {"name": type(value).__name__} | _fields(value)
    raise Unsupported(
        f"a certificate cannot describe {type(value).__name__}; make it a frozen "
        "dataclass of plain numbers, words and tuples"
    )
