# SPDX-License-Identifier: Apache-2.0
"""Verification: whether a certificate stands, and what that shows.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isclose
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

from ..core.values import Private, stored
from ..exceptions import ExpungeError, InvalidInput
from .accountant import Selection
from .budget import Budget
from .canonical import (
    Check,
    Document,
    count,
    exactly,
    freeze,
    hexadecimal,
    number,
    one_of,
    optional,
    sentences,
)
from .certificate import Certificate
from .noise import SECRET_BYTES
from .scope import (
    BEFORE_PREPROCESSING,
    CHOSEN,
    CLASS_REFUSED,
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

FORMAT = 1

RadiusKind: TypeAlias = Literal[
    "measured", "measured-local", "residual", "residual-local", "two-step", "a-priori"
]
Scored: TypeAlias = tuple[float, float | None, float | None]


_SIZE = number(0.0, closed=True)
_ALPHA = number(0.0)


def _freeze_radius(value: Any) -> float | None:
    """Return the bound, or None where there is none."""
    bound: float | None = _SIZE(value) if value not in (None, inf) else None
    return bound


_RADIUS = Check(_freeze_radius, optional(_SIZE).schema)


def _freeze_timings(value: Any) -> Mapping[str, float]:
    """Return seconds by name."""
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise ValueError("it must map names to seconds")
    return MappingProxyType({freeze(name): _SIZE(value[name]) for name in value})


def _freeze_choice(value: Any) -> tuple[Scored, ...]:
    """Return candidates: alpha and two ends, None where there is none."""
    if not isinstance(value, list | tuple):
        raise ValueError("it must list candidates")
    if not all(isinstance(item, list | tuple) and len(item) == 3 for item in value):
        raise ValueError("each candidate has an alpha and two ends")
    return tuple((_ALPHA(a), _RADIUS(low), _RADIUS(high)) for a, low, high in value)


def _freeze_salt(value: Any) -> bytes:
    """Return the salt as bytes, from bytes or from the hexadecimal in JSON."""
    text = value.hex() if isinstance(value, bytes) else value
    return bytes.fromhex(_HEXADECIMAL(text))


_HEXADECIMAL = hexadecimal(SECRET_BYTES)
_ENDS = {"prefixItems": [_ALPHA.schema, _RADIUS.schema, _RADIUS.schema]}


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

    radius: float | None
    radius_kind: RadiusKind
    decisions: tuple[str, ...]
    n_samples: int
    n_removed: int
    timings: Mapping[str, float]
    salt: bytes
    choice: tuple[Scored, ...] = ()
    selection: Selection = "none"
    version: int = FORMAT

    private: ClassVar[bool] = True
    checks: ClassVar[Mapping[str, Check]] = {
        "radius": _RADIUS,
        "radius_kind": one_of(*get_args(RadiusKind)),
        "decisions": sentences,
        "n_samples": count(0),
        "n_removed": count(0),
        "timings": Check(
            _freeze_timings, {"type": "object", "additionalProperties": _SIZE.schema}
        ),
        "salt": Check(_freeze_salt, _HEXADECIMAL.schema),
        "choice": Check(_freeze_choice, {"type": "array", "items": _ENDS}),
        "selection": one_of(*get_args(Selection)),
        "version": exactly(FORMAT),
    }

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
        "choice_sigma": "any number, where a choice is noised",
        "mechanism": "any name",
        "objective": "any description",
        "assumptions": "sentences besides the standard ones",
        "not_covered": "sentences besides the standard ones",
        "commitment": "any hash, until the record is opened",
    }
)

# The fields that make a Budget.
TERMS = ("epsilon", "delta", "sigma", "tau", "releases", "choice_sigma")

# What standing shows, by evidence: the certificate; the record; a recomputed radius.
SHOWN = (
    "Its figures follow from one another. This shows what the operator committed to, "
    "not that it was computed honestly.",
    "The opened record is the one committed to, and fits the budget. This does not "
    "show that the record was computed honestly from the data.",
    "The opened record is the one committed to and fits the budget, and its radius is "
    "no smaller than the one that the caller recomputed. This does not show that the "
    "released model is the one it is about.",
)

# What was checked, and what is wrong with it if anything. A failure quotes public
# figures alone: the record's stay out of it.
Found: TypeAlias = list[tuple[str, str]]


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
    def stands(self) -> bool:
        """Whether all that was checked holds."""
        return not self.failures


def verify(
    certificate: Certificate,
    record: Record | None = None,
    *,
    radius: float | None = None,
) -> Verdict:
    """Return whether the certificate stands, and what that shows.

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
    found = [(finding, check(certificate)) for finding, check in WORDS.items()]
    found += _check_budget(certificate)
    if record is not None:
        found += _check_record(certificate, record)
    if radius is not None:
        found += _check_recomputed(record, radius)
    findings = tuple(finding for finding, failure in found if not failure)
    failures = tuple(failure for _, failure in found if failure)
    if failures:
        says = "The certificate does not stand: " + "; ".join(failures) + "."
    else:
        evidence = (record is not None) + (radius is not None)
        says = f"{_state_promise(certificate)} {SHOWN[evidence]}"
    return Verdict(findings, failures, says)


def _require_kinds(certificate: object, record: object, *, radius: object) -> None:
    """Raise InvalidInput unless these are a certificate, a record and a number."""
    if not isinstance(certificate, Certificate):
        raise InvalidInput(
            f"verify takes a Certificate and got {_name_type(certificate)}; pass "
            "certificate_ of a fitted model, or Certificate.from_json(text)"
        )
    if not isinstance(record, Record | None):
        raise InvalidInput(
            f"record is {_name_type(record)}; pass a Record, as record_ of a fitted "
            "model is, or leave it out"
        )
    if not isinstance(radius, Real | None):
        raise InvalidInput(f"radius is {_name_type(radius)}; pass a number or None")


def _name_type(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _state_promise(certificate: Certificate) -> str:
    """Return what the operator states, in a sentence."""
    if certificate.status == "radius-only":
        return "The operator promises nothing about what the release reveals."
    about = "each release, taken on its own, is"
    if certificate.releases is not None:
        about = f"all {certificate.releases} planned releases, taken together, are"
    return (
        f"The operator states that {about} within epsilon={certificate.epsilon:g}, "
        f"delta={certificate.delta:g} of what an operator who retrains on the same "
        "requests would release."
    )


def _check_budget(certificate: Certificate) -> Found:
    """Derive the figures of the budget again and compare."""
    if certificate.epsilon is None:
        return [("no budget is stated", "")]
    terms = {name: getattr(certificate, name) for name in TERMS}
    if certificate.choice_share is not None:
        terms["choice_share"] = certificate.choice_share
    size = certificate.n_parameters
    try:
        budget = Budget(**terms)
        room = budget.radius_budget(size)
        budget.solver_error(size)  # refuses a tau that leaves no room
    except (ExpungeError, OverflowError) as error:
        return [("the budget can be kept", f"the budget cannot be kept: {error}")]
    stated, grid = certificate.radius_budget, certificate.noise_grid
    same = stated is not None and isclose(stated, room, rel_tol=AGREEMENT)
    return [
        ("the budget can be kept, with tau within the radius budget", ""),
        (
            "the noise grid is the power of two that sigma determines",
            "" if grid == budget.grid else f"noise_grid is {grid!r}, not {budget.grid}",
        ),
        (
            "the radius budget follows from sigma, epsilon, delta, the number of "
            "releases and of parameters, and the grid",
            "" if same else f"radius_budget is {stated!r}, not {room!r}",
        ),
    ]


def _check_record(certificate: Certificate, record: Record) -> Found:
    """Hold the record against the commitment and the budget."""
    same = record.commitment() == certificate.commitment
    found = [
        (
            "the record is the one committed to",
            "" if same else "the record is not the one that the certificate commits to",
        )
    ]
    found.append(("the choice is the record's", _check_choice(certificate, record)))
    if certificate.radius_budget is None or certificate.tau is None:
        return found
    fits = (
        record.radius is not None
        and record.radius + certificate.tau <= certificate.radius_budget
    )
    failure = "the record's radius and tau together exceed the radius budget"
    found.append(
        ("the record's radius and tau fit the radius budget", "" if fits else failure)
    )
    return found


def _check_choice(certificate: Certificate, record: Record) -> str:
    """Hold the selection and the alpha against the record."""
    stated = certificate.selection
    if stated not in (record.selection, "not covered"):
        return "the record speaks of another kind of selection"
    if stated in ("none", "not covered"):
        return ""
    if not record.choice or record.choice[0][0] != certificate.objective.get("alpha"):
        return "the record's choice is not the certificate's alpha"
    proved = stated != "certified" or _is_separated(record)
    return "" if proved else "the record does not prove the choice"


def _is_separated(record: Record) -> bool:
    """Whether the chosen candidate's interval lies below all others."""
    (_, _, reach), *rivals = record.choice
    return all(
        reach is not None and low is not None and reach < low for _, low, _ in rivals
    )


def _check_recomputed(record: Record | None, radius: float) -> Found:
    """Hold a recomputed radius against the record's."""
    if record is None:
        raise InvalidInput(
            "a recomputed radius is compared with the record's; pass the record too"
        )
    limit = inf if record.radius is None else record.radius * (1.0 + RECOMPUTED)
    failure = "" if radius <= limit else "the recomputed radius exceeds the record's"
    return [("the record's radius is no smaller than the recomputed one", failure)]


def _check_schedule(certificate: Certificate) -> str:
    """Hold the claim and the number of releases against the schedule."""
    planned, made = certificate.releases, certificate.n_releases
    if planned is not None and made > planned:
        return f"{made} releases were made and {planned} were planned"
    joint = certificate.claim == "all releases jointly"
    if certificate.claim is not None and joint != (planned is not None):
        return f"the claim is about {certificate.claim}, with releases={planned}"
    return ""


def _check_selection(certificate: Certificate) -> str:
    """Check that the budget provides for a noised choice."""
    terms = (certificate.choice_sigma, certificate.choice_share)
    if (terms[0] is None) != (terms[1] is None):
        return "choice_sigma and choice_share belong together, and one is missing"
    if certificate.selection == "noised" and terms[0] is None:
        return "the choice was noised, and the budget names no noise for it"
    if certificate.selection in ("certified", "recomputed") and terms[0] is not None:
        return "the budget is for noised choices, and the selection is another"
    return ""


def _check_sentences(certificate: Certificate) -> str:
    """Look for every standard sentence."""
    standard = assumptions_of(certificate.selection)
    missing = [text for text in standard if text not in certificate.assumptions]
    missing += [text for text in NOT_COVERED if text not in certificate.not_covered]
    if not {PREPROCESSING, BEFORE_PREPROCESSING}.intersection(certificate.not_covered):
        missing.append(PREPROCESSING)
    return f"not stated: {'; '.join(missing)}" if missing else ""


def _check_exclusions(certificate: Certificate) -> str:
    """Hold what is not covered against the facts that force it."""
    forced = {
        WITHOUT_BUDGET: certificate.epsilon is None,
        CHOSEN: certificate.selection == "not covered",
        SEEDED: certificate.noise_source == "seeded",
        CLASS_REFUSED: may_refuse_classes(certificate.classes, certificate.objective),
    }
    for sentence, applies in forced.items():
        if applies != (sentence in certificate.not_covered):
            verb = "leaves out" if applies else "lists without a reason"
            return f"not_covered {verb}: {sentence}"
    return ""


def _check_status(certificate: Certificate) -> str:
    """Hold the status against what is not covered."""
    voids = sorted(VOIDS.intersection(certificate.not_covered))
    if certificate.status == "certified" and voids:
        return f"the status is certified, yet not covered is {'; '.join(voids)}"
    if certificate.status == "radius-only" and not voids:
        return "the status is radius-only, and nothing says why"
    return ""


WORDS: Mapping[str, Callable[[Certificate], str]] = MappingProxyType(
    {
        "the releases made and claimed are those of the schedule": _check_schedule,
        "the budget provides for the kind of selection": _check_selection,
        "every standard assumption and exclusion is stated": _check_sentences,
        "what is not covered matches budget, noise and selection": _check_exclusions,
        "the status follows from what is not covered": _check_status,
    }
)
