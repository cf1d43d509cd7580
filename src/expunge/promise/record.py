# SPDX-License-Identifier: Apache-2.0
"""Records: what stands behind a release and must not be published with it.

The radius is a function of the removed rows, and so are decisions, counts and timings:
on real data nearly every row has a radius of its own. They are kept here, and the
public certificate holds the hash of them with 32 random bytes of salt. The operator
cannot change the record afterwards, a reader of the hash learns nothing, and the record
can be opened to an auditor: the SHA-256 of its canonical JSON is the commitment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, get_args

from ..core.arrays import Private, Vector
from ..core.packing import stored
from .accountant import Selection
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
from .radius import RadiusKind

FORMAT = 1

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
        Rows at the fit, and rows removed since.
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

    theta: Vector
    certificate: Certificate

    def __post_init__(self) -> None:
        """Make the parameters read-only."""
        self.theta.setflags(write=False)

    def __repr__(self) -> str:
        return f"Release({self.certificate.status}, {self.theta.size} parameters)"
