# SPDX-License-Identifier: Apache-2.0
"""Verification: whether a certificate is valid, and what that shows.

Whatever can be derived is derived again. With the certificate alone: its figures follow
from its budget, and it says what it must. With the record as well: this is the record
committed to, and its radius fits the budget. With a radius recomputed from the data:
the record did not understate it. Less evidence shows less, and ``Verdict.says`` puts
into words how much. Nothing here sees the data.

A ``Release`` is what may leave. A ``Record`` stands behind it and must not be published
with it: the radius is a function of the removed rows, and so are decisions, counts and
timings. On real data nearly every row has a radius of its own. The public certificate
holds the hash of the record with 32 random bytes of salt. The operator cannot change
the record afterwards, a reader of the hash learns nothing, and the record can be opened
to an auditor: the SHA-256 of its canonical JSON is the commitment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isclose
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from ..core.values import Private, stored
from ..exceptions import ExpungeError, InvalidInput
from .accountant import Selection
from .budget import Budget
from .canonical import (
    Check,
    Count,
    Document,
    NotNegative,
    Positive,
    Sentence,
    Text,
    check_of,
    hexadecimal,
    number,
    optional,
)
from .certificate import Certificate
from .noise import SECRET_BYTES
from .scope import (
    BEFORE_PREPROCESSING,
    CHOSEN,
    CLASS_REFUSED,
    EXACT,
    NOT_COVERED,
    PREPROCESSING,
    SEEDED,
    VOIDS,
    WITHOUT_BUDGET,
    assumptions_of,
    may_refuse_classes,
)

if TYPE_CHECKING:  # SciPy takes a while to import, and a ledger is read without it
    from ..core.arrays import Vector

RadiusKind: TypeAlias = Literal[
    "measured",
    "measured-local",
    "residual",
    "residual-local",
    "two-step",
    "a-priori",
    "exact",
]


def _freeze_radius(value: Any) -> float | None:
    """Return the bound, or None where there is none."""
    bound: float | None = None if value in (None, inf) else _SIZE(value)
    return bound


def _freeze_error(value: Any) -> float | None:
    """Return the end of an interval, or None where it has none."""
    end: float | None = None if value in (None, inf, -inf) else _ERROR(value)
    return end


def _freeze_salt(value: Any) -> bytes:
    """Return the salt as bytes, from bytes or from the hexadecimal in JSON."""
    return bytes.fromhex(_SALT(value.hex() if isinstance(value, bytes) else value))


_SIZE, _ERROR, _SALT = check_of(NotNegative), number(), hexadecimal(SECRET_BYTES)
Bound: TypeAlias = Annotated[
    float | None, Check(_freeze_radius, optional(_SIZE).schema)
]
End: TypeAlias = Annotated[float | None, Check(_freeze_error, optional(_ERROR).schema)]
Scored: TypeAlias = tuple[Positive, End, End]


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Record(Private, Document):
    """The private half of a release.

    Parameters
    ----------
    radius
        Bound on the distance from the noise-free answer to what retraining gives;
        None where no bound was found (infinity is taken to mean the same).
    radius_kind
        Which bound was the smallest sound one.
    decisions
        What was done to get below the budget, in order: "accepted", "polished 2
        times", "retrained".
    n_samples, n_removed
        Rows at the fit and added since, and rows removed since.
    timings
        Seconds by name.
    choice
        Of a model that was tuned: each candidate's alpha and the ends of the interval
        of its cross-validation error, the chosen one's first. Candidates certified to
        be equal count as one.
    selection
        As the certificate of the release stated it.
    salt
        32 random bytes from ``noise.random_bytes`` (hexadecimal in JSON), used once.
    """

    radius: Bound
    radius_kind: RadiusKind
    decisions: tuple[Sentence, ...]
    n_samples: Count
    n_removed: Count
    timings: Mapping[Text, NotNegative]
    salt: Annotated[bytes, Check(_freeze_salt, _SALT.schema)]
    choice: tuple[Scored, ...] = ()
    selection: Selection = "not known"
    version: Literal[1] = 1

    private: ClassVar[bool] = True

    def commitment(self) -> str:
        """Return the hash that the certificate publishes: SHA-256, in hexadecimal."""
        return self.digest()


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Release:
    """What may leave: noised parameters with their certificate.

    Attributes
    ----------
    theta
        The parameters, (d k,), read-only. Without a budget they carry no noise, and
        the certificate says so.
    certificate
        What is promised about them.
    """

    theta: "Vector"
    certificate: Certificate

    def __post_init__(self) -> None:
        """Make the parameters read-only."""
        self.theta.setflags(write=False)

    def __repr__(self) -> str:
        return f"Release({self.certificate.status}, {self.theta.size} parameters)"

    def _repr_html_(self) -> str:
        return self.certificate.make_card("Release").to_html()


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ExactRelease(Release):
    """What may leave without noise: numbers that follow from exact sums.

    It is its own draft, the one exception to "numbers without noise never leave". They
    equal those of retraining to the last bit, and hide nothing; its certificate says
    both.
    """

    def __post_init__(self) -> None:
        """Make the parameters read-only; refuse a certificate of something else."""
        Release.__post_init__(self)
        if self.certificate.epsilon is not None:
            raise InvalidInput(
                "an exact release has no budget, and this one states one"
            )


def release_of(theta: "Vector", certificate: Certificate) -> Release:
    """Return what a file holds as the release that it is."""
    exact = certificate.status == "exact"
    return (ExactRelease if exact else Release)(theta, certificate)


# Special functions differ in their last bits between machines.
AGREEMENT = 1e-12
# Sums over rows depend on their order, and so does a radius recomputed elsewhere.
RECOMPUTED = 1e-9

# What can change in a certificate without contradicting the rest of it. A signature,
# the ledger or the record vouches for these; every other change is noticed.
UNDERIVED: Mapping[str, str] = MappingProxyType(
    {
        "n_subjects_removed": "any number",
        "n_subjects_added": "any number",
        "n_releases": "any number that the schedule allows",
        "tau": "any number below the radius budget",
        "row_norm": "either value",
        "classes": "any value that calls for the same exclusions",
        "selection": "any value for a choice that is covered",
        "mechanism": "any name",
        "objective": "any description",
        "assumptions": "sentences besides the standard ones",
        "not_covered": "sentences besides the standard ones",
        "commitment": "any hash, until the record is opened",
    }
)

# The fields that make a Budget.
TERMS = ("epsilon", "delta", "sigma", "tau", "releases")

# What a valid one shows, by evidence: the certificate; the record; a recomputed radius.
SHOWN = (
    "Its figures follow from one another. This shows what the operator committed to, "
    "not that it was computed honestly.",
    "The opened record is the one committed to, and fits the budget. This does not "
    "show that the record was computed honestly from the data.",
    "The opened record is the one committed to and fits the budget, and its radius is "
    "no smaller than the one that the caller recomputed. This does not show that the "
    "released model is the one it is about.",
)

# Of an exact result the second; of a radius of zero nothing is left to compare.
SHOWN_EXACT = (
    "The opened record is the one committed to, and its radius is zero. This does not "
    "show that the numbers were computed honestly from the data: check_release of the "
    "model computes them again."
)

# What was checked, and what is wrong with it if anything. A failure quotes public
# figures alone: the record's stay out of it.
Found: TypeAlias = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification found.

    Parameters
    ----------
    findings
        What was checked and holds.
    failures
        What was checked and does not hold.
    says
        In plain words, what this shows and what it does not.
    """

    findings: tuple[str, ...]
    failures: tuple[str, ...]
    says: str

    @property
    def valid(self) -> bool:
        """Whether all that was checked holds."""
        return not self.failures


def verify(
    certificate: Certificate,
    record: Record | None = None,
    *,
    radius: float | None = None,
) -> Verdict:
    """Return whether the certificate is valid, and what that shows.

    Parameters
    ----------
    certificate
        What the operator published.
    record
        The private record behind it, if the operator opened it.
    radius
        A radius that the caller recomputed from the data, to compare with the record's.
    """
    _require_kinds(certificate, record, radius=radius)
    found = [*_check_words(certificate), *_check_budget(certificate)]
    if record is not None:
        found += _check_record(certificate, record)
    if radius is not None:
        if record is None:
            raise InvalidInput(
                "a recomputed radius is compared with the record's; pass the record too"
            )
        limit = inf if record.radius is None else record.radius * (1.0 + RECOMPUTED)
        failure = (
            "" if radius <= limit else "the recomputed radius exceeds the record's"
        )
        found.append(
            ("the record's radius is no smaller than the recomputed one", failure)
        )
    findings = tuple(finding for finding, failure in found if not failure)
    failures = tuple(failure for _, failure in found if failure)
    evidence = (record is not None) + (radius is not None)
    shown = SHOWN[evidence]
    if certificate.status == "exact" and evidence == 1:
        shown = SHOWN_EXACT
    says = f"The operator states: {certificate.state_promise()} {shown}"
    if failures:
        says = f"The certificate is not valid: {'; '.join(failures)}."
    return Verdict(findings, failures, says)


def _require_kinds(certificate: object, record: object, *, radius: object) -> None:
    """Raise InvalidInput unless these are a certificate, a record and a number."""

    def name_type(value: object) -> str:
        return "None" if value is None else f"an object of type {type(value).__name__}"

    if not isinstance(certificate, Certificate):
        raise InvalidInput(
            f"verify takes a Certificate and got {name_type(certificate)}; pass "
            "certificate_ of a fitted model, or Certificate.from_json(text)"
        )
    if not isinstance(record, Record | None):
        raise InvalidInput(
            f"record is {name_type(record)}; pass a Record, as record_ of a fitted "
            "model is, or leave it out"
        )
    if not isinstance(radius, Real | None):
        raise InvalidInput(f"radius is {name_type(radius)}; pass a number or None")


def _check_words(certificate: Certificate) -> Found:
    """Hold words against the facts that force them."""
    planned, made = certificate.releases, certificate.n_releases
    status, not_covered = certificate.status, certificate.not_covered
    joint, failure = certificate.claim == "all releases jointly", ""
    if planned is not None and made > planned:
        failure = f"{made} releases were made and {planned} were planned"
    elif certificate.claim is not None and joint != (planned is not None):
        failure = f"the claim is about {certificate.claim}, with releases={planned}"
    yield "the releases made and claimed are those of the schedule", failure

    standard = assumptions_of(certificate.selection, exact=status == "exact")
    missing = [text for text in standard if text not in certificate.assumptions]
    excluded = (*NOT_COVERED[:2], EXACT) if status == "exact" else NOT_COVERED
    missing += [text for text in excluded if text not in not_covered]
    if not {PREPROCESSING, BEFORE_PREPROCESSING}.intersection(not_covered):
        missing.append(PREPROCESSING)
    failure = f"not stated: {'; '.join(missing)}" if missing else ""
    yield "every standard assumption and exclusion is stated", failure

    forced = {
        WITHOUT_BUDGET: certificate.epsilon is None and status != "exact",
        EXACT: status == "exact",
        CHOSEN: certificate.selection == "not covered",
        SEEDED: certificate.noise_source == "seeded",
        CLASS_REFUSED: may_refuse_classes(certificate.classes, certificate.objective),
    }
    wrong = (
        f"not_covered {'leaves out' if applies else 'lists without a reason'}: {text}"
        for text, applies in forced.items()
        if applies != (text in not_covered)
    )
    failure = next(wrong, "")
    yield "what is not covered matches budget, noise and selection", failure

    voids, failure = sorted(VOIDS.intersection(not_covered)), ""
    if status != "no promise" and voids:
        failure = f"the status is {status}, yet not covered is {'; '.join(voids)}"
    elif status == "no promise" and not voids:
        failure = "the status is no promise, and nothing says why"
    elif status == "exact" and certificate.epsilon is not None:
        failure = "the status is exact, yet a budget is stated"
    yield "the status follows from what is not covered", failure


def _check_budget(certificate: Certificate) -> Found:
    """Derive the figures of the budget again and compare."""
    if certificate.epsilon is None:
        yield "no budget is stated", ""
        return
    terms = {name: getattr(certificate, name) for name in TERMS}
    size = certificate.n_parameters
    try:
        budget = Budget(**terms)
        allowed = budget.radius_budget(size)
        budget.solver_error(size)  # refuses a tau that leaves no room
    except (ExpungeError, OverflowError) as error:
        yield "the budget can be kept", f"the budget cannot be kept: {error}"
        return
    stated, grid = certificate.radius_budget, certificate.noise_grid
    same = stated is not None and isclose(stated, allowed, rel_tol=AGREEMENT)
    yield "the budget can be kept, with tau within the radius budget", ""
    yield (
        "the noise grid is the power of two that sigma determines",
        "" if grid == budget.grid else f"noise_grid is {grid!r}, not {budget.grid}",
    )
    yield (
        "the radius budget follows from sigma, epsilon, delta, the number of "
        "releases and of parameters, and the grid",
        "" if same else f"radius_budget is {stated!r}, not {allowed!r}",
    )


def _check_record(certificate: Certificate, record: Record) -> Found:
    """Hold the record against the commitment, the choice and the budget."""
    same = record.commitment() == certificate.commitment
    yield (
        "the record is the one committed to",
        "" if same else "the record is not the one that the certificate commits to",
    )
    yield "the choice is the record's", _check_choice(certificate, record)
    if certificate.status == "exact":
        failure = "" if record.radius == 0.0 else "the record's radius is not zero"
        yield "the record's radius is zero", failure
    elif certificate.radius_budget is not None and certificate.tau is not None:
        fits = (
            record.radius is not None
            and record.radius + certificate.tau <= certificate.radius_budget
        )
        failure = "the record's radius and tau together exceed the radius budget"
        yield "the record's radius and tau fit the radius budget", failure * (not fits)


def _check_choice(certificate: Certificate, record: Record) -> str:
    """Hold the selection and the alpha against the record."""
    stated, choice = certificate.selection, record.choice
    if stated not in (record.selection, "not covered"):
        return "the record speaks of another kind of selection"
    if stated in ("not known", "none", "not covered"):
        return ""
    if not choice or choice[0][0] != certificate.objective.get("alpha"):
        return "the record's choice is not the certificate's alpha"
    (_, _, reach), *rivals = choice
    # The interval of the chosen candidate lies below all others.
    separated = all(
        reach is not None and low is not None and reach < low for _, low, _ in rivals
    )
    proved = stated != "certified" or separated
    return "" if proved else "the record does not prove the choice"
