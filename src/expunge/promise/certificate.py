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
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

from ..core.values import stored
from ..exceptions import InvalidInput, Unsupported
from .accountant import Accountant, Claim, Selection, is_permitted
from .canonical import (
    Check,
    Document,
    Schema,
    count,
    exactly,
    freeze,
    hexadecimal,
    number,
    one_of,
    optional,
    sentence,
    sentences,
)
from .card import PromiseCard
from .noise import Source
from .scope import (
    CHOSEN,
    NOT_COVERED,
    SEEDED,
    UNPROTECTED,
    VOIDS,
    WITHOUT_BUDGET,
    Classes,
    Scope,
    assumptions_of,
)

if TYPE_CHECKING:  # SciPy takes a while to import, and a ledger is read without it
    from ..core.objective import Objective

Status: TypeAlias = Literal["certified", "radius-only"]
RowNorm: TypeAlias = Literal["declared", "measured"]

FORMAT = 1
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
# Stated only beside the others, where they apply.
OPTIONAL_FIELDS = ("releases", "choice_sigma", "choice_share")


def _freeze_objective(value: Any) -> Any:
    """Return the description of an objective, read-only."""
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
class Certificate(PromiseCard, Document):
    """The public half of a release: budget, request log, and a commitment.

    Parameters
    ----------
    status
        "certified", or "radius-only" where nothing is promised; then ``not_covered``
        says why.
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
        Where the noise comes from: "secure", "opendp" or "seeded".
    n_releases
        Releases made under the budget, this one included.
    n_subjects_removed, n_subjects_added
        People removed since the fit; people who came since, or brought more rows, each
        counted once a request.
    n_parameters
        Length of the released vector.
    row_norm
        Whether the bound on the norm of a row was "declared" with the budget or
        "measured" at the fit.
    classes
        Whether a classifier's classes were "declared" in advance, so that a release
        names them no matter who left, or "learnt" from the rows; "none" for other
        models.
    selection
        How tuned parameters were chosen: "none" if nothing was tuned, "certified" to
        equal tuning again on the remaining rows, "recomputed" on them, by "noised"
        scores, or "not covered". It names the method fixed beforehand, not what a
        request turned out to need.
    choice_sigma
        Standard deviation of the noise on the scores that a noised choice compares;
        None if no choice is noised.
    choice_share
        Share of each release's cost that pays for a noised choice, or None.
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
    epsilon: float | None
    delta: float | None
    sigma: float | None
    tau: float | None
    radius_budget: float | None
    releases: int | None
    n_releases: int
    n_subjects_removed: int
    n_subjects_added: int
    n_parameters: int
    noise_grid: float | None
    noise_source: Source | None
    row_norm: RowNorm
    classes: Classes
    selection: Selection
    choice_sigma: float | None
    choice_share: float | None
    mechanism: str
    objective: Mapping[str, Any]
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]
    commitment: str
    version: int = FORMAT

    checks: ClassVar[Mapping[str, Check]] = {
        "status": one_of(*get_args(Status)),
        "claim": optional(one_of(*get_args(Claim))),
        "epsilon": optional(number(0.0, closed=True)),
        "delta": optional(number(0.0, 1.0)),
        "sigma": optional(number(0.0)),
        "tau": optional(number(0.0)),
        "radius_budget": optional(number(0.0)),
        "releases": optional(count(1)),
        "n_releases": count(1),
        "n_subjects_removed": count(0),
        "n_subjects_added": count(0),
        "n_parameters": count(1),
        "noise_grid": optional(number(0.0)),
        "noise_source": optional(one_of(*get_args(Source))),
        "row_norm": one_of(*get_args(RowNorm)),
        "classes": one_of(*get_args(Classes)),
        "selection": one_of(*get_args(Selection)),
        "choice_sigma": optional(number(0.0)),
        "choice_share": optional(number(0.0, 1.0)),
        "mechanism": sentence,
        "objective": Check(_freeze_objective, _DESCRIPTION),
        "assumptions": sentences,
        "not_covered": sentences,
        "commitment": hexadecimal(32),
        "version": exactly(FORMAT),
    }

    @classmethod
    def schema_rules(cls) -> Schema:
        """Return that a budget is stated whole or not at all."""
        absent = {name: {"type": "null"} for name in (*BUDGET_FIELDS, *OPTIONAL_FIELDS)}
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
        stray = any(getattr(self, name) is not None for name in OPTIONAL_FIELDS)
        if absent and (len(absent) < len(BUDGET_FIELDS) or stray):
            raise InvalidInput(
                f"Certificate: {', '.join(absent)} missing from the budget; state all "
                "of it, or nothing if there is no budget"
            )


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
    budget, description = accountant.budget, describe(objective)
    exclusions = _exclusions(accountant, noise_source)
    promised = budget is not None and budget.row_norm is not None
    missing = (*NOT_COVERED, *scope.exclusions(description), *exclusions)
    missing += scope.circumstances()
    return Certificate(
        **_state_budget(accountant) | {"noise_source": noise_source},
        status="certified" if VOIDS.isdisjoint(exclusions) else "radius-only",
        n_releases=1,
        n_subjects_removed=0,
        n_subjects_added=0,
        n_parameters=accountant.n_parameters,
        row_norm="declared" if promised else "measured",
        classes=scope.classes,
        selection=accountant.selection,
        mechanism=scope.mechanism,
        objective=description,
        assumptions=(*assumptions_of(accountant.selection), *scope.assumptions),
        not_covered=tuple(dict.fromkeys(missing)),
        commitment=NO_COMMITMENT,
    )


def _state_budget(accountant: Accountant) -> dict[str, Any]:
    """Return what the budget determines, all None where there is none."""
    budget, size = accountant.budget, accountant.n_parameters
    if budget is None:
        return dict.fromkeys((*BUDGET_FIELDS, *OPTIONAL_FIELDS))
    return {
        "claim": accountant.claim,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "sigma": budget.sigma,
        "tau": budget.solver_error(size),
        "radius_budget": budget.radius_budget(size),
        "releases": budget.releases,
        "noise_grid": budget.grid,
        "choice_sigma": budget.choice_sigma,
        "choice_share": budget.choice_share if budget.choice_sigma else None,
    }


def _exclusions(accountant: Accountant, noise_source: Source | None) -> tuple[str, ...]:
    """Return what this release does not cover besides the standard sentences."""
    chosen = accountant.selection == "not covered"
    if accountant.budget is None:
        unprotected = False
    else:
        sound = is_permitted(accountant.budget, noise_source)
        unprotected = not sound or not (accountant.holds or chosen)
    reasons = {
        WITHOUT_BUDGET: accountant.budget is None,
        UNPROTECTED: unprotected,
        CHOSEN: chosen,
        SEEDED: noise_source == "seeded",
    }
    return tuple(sentence for sentence, applies in reasons.items() if applies)


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
