# SPDX-License-Identifier: Apache-2.0
"""Documents: what the body of an OpenDSR request says, every field of it checked.

Everything that is wrong is reported at once, in words that hold no value that was sent:
errors are logged and shown where a person's address must not be. Fields that the
protocol does not know are left alone.

An identity type is a kind of alias under the same name. Raw values of some kinds are
the ids under which models know people, as the operator says; by default those of
``controller_customer_id``. They are tried as ids first: a number that is one person's
id may be another's alias.

Formats are ``raw`` and ``sha256``, of the value as ``rights.identifiers`` normalises
it, in hexadecimal or base64. The others that the protocol knows, SHA-1 and MD5, would
need tables of their own under broken hashes, and are refused.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from ...core.values import loads
from ...exceptions import InvalidInput
from ...rights.calendar import parse_day
from ...rights.identifiers import Identifier
from ..intake import Named, name_value

FORMATS = RAW, SHA256 = "raw", "sha256"
TYPES = (
    "controller_customer_id",
    "email",
    "android_advertising_id",
    "android_id",
    "fire_advertising_id",
    "ios_advertising_id",
    "ios_vendor_id",
    "microsoft_advertising_id",
    "microsoft_publisher_id",
    "roku_publisher_id",
    "roku_advertising_id",
)
"""Every identity type of the protocol."""
_REFUSED_FORMATS = ("sha1", "md5")
LONGEST_VALUE = 900
"""Bytes of a value: with its kind before it, it is still a word for a person."""
MOST_IDENTITIES, MOST_CALLBACKS = 20, 10
LONGEST_URL, LONGEST_TOKEN = 2048, 8192
FIDES = "ethyca.com"
"""The domain under which extensions say where fides waits for an answer."""
_UUID4 = re.compile(
    "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)
_PATH = re.compile("(/[A-Za-z0-9_.~-]+){1,20}")
_TOKEN = re.compile(f"[A-Za-z0-9_.~+/=-]{{1,{LONGEST_TOKEN}}}")
# Clocks are ahead, and some senders write their local time as if it were UTC.
_AHEAD = timedelta(days=1)


def list_supported() -> Iterator[dict[str, str]]:
    """Yield each identity type and format that is understood, as discovery has it."""
    for name in TYPES:
        for form in FORMATS:
            yield {"identity_type": name, "identity_format": form}


def read_identity(
    name: str, value: str, *, form: str, id_kinds: Collection[str]
) -> Named:
    """Return what an identity may mean, in order; no error shows its value.

    Parameters
    ----------
    name, value, form
        ``identity_type``, ``identity_value`` and ``identity_format``.
    id_kinds
        Kinds whose raw values are ids.
    """
    if name not in TYPES:
        raise InvalidInput("this identity_type is not supported; see discovery")
    if form in _REFUSED_FORMATS:
        raise InvalidInput(
            f"identity_format {form} is not supported, since the hash is broken; send "
            f"{RAW} or {SHA256}"
        )
    if form not in FORMATS:
        raise InvalidInput(
            f"this identity_format is not supported; send {RAW} or {SHA256}"
        )
    if len(value.encode("utf-8", "surrogatepass")) > LONGEST_VALUE:
        raise InvalidInput(f"identity_value has more than {LONGEST_VALUE} bytes")
    if form == RAW:
        return name_value(name, value, id_kinds=id_kinds)
    return (Identifier(name, value, hashed=True),)


@dataclass(frozen=True, slots=True)
class Edition:
    """One edition of the protocol.

    Parameters
    ----------
    name
        Its word in headers.
    version
        What it calls itself.
    base, collection
        Where its routes begin, and what requests are called there.
    regulations
        The laws that a request may name; without any, none is named.
    """

    name: str
    version: str
    base: str
    collection: str
    regulations: tuple[str, ...]

    @property
    def form(self) -> str:
        """The form of its callbacks."""
        return self.name.lower()


OPENDSR = Edition("OpenDSR", "2.0", "/v2", "requests", ("gdpr", "ccpa"))
OPENGDPR = Edition("OpenGDPR", "1.0", "/v1", "opengdpr_requests", ())
EDITIONS = (OPENDSR, OPENGDPR)


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong with a call: the field, a code, and a sentence."""

    field: str
    reason: str
    message: str


class UnusableDocument(InvalidInput):
    """A request that cannot be understood; nothing was accepted.

    Attributes
    ----------
    complaints
        What is wrong, one for each field.
    """

    def __init__(self, complaints: Sequence[Complaint]) -> None:
        super().__init__("; ".join(one.message for one in complaints))
        self.complaints = tuple(complaints)


@dataclass(frozen=True, slots=True, repr=False)
class FidesReply:
    """Where fides waits for the end of a request: a path there, and its token."""

    path: str
    token: str


@dataclass(frozen=True, slots=True, repr=False)
class SubjectRequest:
    """A request as it was understood.

    Parameters
    ----------
    request
        Its id, 32 hexadecimal digits.
    regime
        The law that it names.
    submitted
        The day on which the person asked.
    identities
        Of one person.
    callbacks
        Addresses that want to be told.
    reply
        Where fides waits, if it does.
    """

    request: str
    regime: str
    submitted: date
    identities: tuple[Named, ...]
    callbacks: tuple[str, ...]
    reply: FidesReply | None


def parse_request(
    body: bytes, edition: Edition, *, today: date, id_kinds: Collection[str]
) -> SubjectRequest:
    """Return what the body of a request says.

    Parameters
    ----------
    body
        As it came.
    edition
        Of the protocol.
    today
        In UTC. A person who is said to ask tomorrow asked today.
    id_kinds
        Kinds of identities whose raw values are ids.
    """
    required: dict[str, Callable[[Any], Any]] = {
        "subject_request_id": parse_id,
        "subject_request_type": _require_erasure,
        "submitted_time": lambda value: _parse_time(value, today),
        "subject_identities": lambda value: _parse_identities(value, id_kinds),
    }
    if edition.regulations:
        required["regulation"] = lambda value: _parse_regulation(value, edition)
    optional: dict[str, Callable[[Any], Any]] = {
        "api_version": lambda value: _require_version(value, edition),
        "status_callback_urls": _parse_urls,
        "extensions": _parse_extensions,
    }
    found = _read_fields(body, required, optional=optional)
    return SubjectRequest(
        found["subject_request_id"],
        found.get("regulation", "gdpr"),
        found["submitted_time"],
        found["subject_identities"],
        found.get("status_callback_urls", ()),
        found.get("extensions"),
    )


def _read_fields(
    body: bytes,
    required: dict[str, Callable[[Any], Any]],
    *,
    optional: dict[str, Callable[[Any], Any]],
) -> dict[str, Any]:
    """Return what the fields of a body mean; raise with all that is wrong."""
    try:
        given = loads(body, "the body")
    except InvalidInput as error:
        raise UnusableDocument([Complaint("", "parse", str(error))]) from None
    found, complaints = {}, []
    for name, parse in (required | optional).items():
        value = given.get(name)
        if value is None:
            if name in required:
                complaints.append(Complaint(name, "required", f"{name} is required"))
            continue
        try:
            found[name] = parse(value)
        except InvalidInput as error:
            complaints.append(Complaint(name, "invalid", str(error)))
    if complaints:
        raise UnusableDocument(complaints)
    return found


def parse_id(value: Any) -> str:
    """Return the registry's id for a UUID."""
    if not isinstance(value, str) or not _UUID4.fullmatch(value):
        raise InvalidInput("subject_request_id is not a version 4 UUID in lower case")
    return value.replace("-", "")


def _require_erasure(value: Any) -> None:
    if value != "erasure":
        raise InvalidInput(
            "this subject_request_type is not supported; erasure is, see discovery"
        )


def _require_version(value: Any, edition: Edition) -> None:
    major = edition.version.partition(".")[0]
    if not isinstance(value, str) or value.partition(".")[0] != major:
        raise InvalidInput(f"api_version is not {edition.version}, that of this route")


def _parse_regulation(value: Any, edition: Edition) -> str:
    for known in edition.regulations:
        if value == known:
            return known
    raise InvalidInput(f"regulation is not one of {', '.join(edition.regulations)}")


def _parse_time(value: Any, today: date) -> date:
    try:
        if not isinstance(value, str) or "T" not in value.upper():
            raise InvalidInput("a day without a time")
        day = parse_day(value)
    except InvalidInput:
        raise InvalidInput(
            "submitted_time is not a time of RFC 3339, such as 2026-03-31T12:00:00Z"
        ) from None
    if day > today + _AHEAD:
        raise InvalidInput("submitted_time is in the future")
    return min(day, today)


def _parse_identities(value: Any, id_kinds: Collection[str]) -> tuple[Named, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_IDENTITIES:
        raise InvalidInput(
            f"subject_identities is not a list of 1 to {MOST_IDENTITIES} identities"
        )
    return tuple(
        _parse_identity(one, place, id_kinds=id_kinds)
        for place, one in enumerate(value)
    )


def _parse_identity(value: Any, place: int, *, id_kinds: Collection[str]) -> Named:
    fields = value if isinstance(value, dict) else {}
    name = fields.get("identity_type")
    text = fields.get("identity_value")
    form = fields.get("identity_format")
    try:
        if not (
            isinstance(name, str) and isinstance(text, str) and isinstance(form, str)
        ):
            raise InvalidInput(
                "give identity_type, identity_value and identity_format, each as text"
            )
        return read_identity(name, text, form=form, id_kinds=id_kinds)
    except InvalidInput as error:
        raise InvalidInput(f"subject_identities[{place}]: {error}") from None


def _parse_urls(value: Any) -> tuple[str, ...]:
    """Return addresses; whether they may be called is for others to say."""
    if not isinstance(value, list) or len(value) > MOST_CALLBACKS:
        raise InvalidInput(
            f"status_callback_urls is not a list of at most {MOST_CALLBACKS} addresses"
        )
    if not all(isinstance(url, str) and len(url) <= LONGEST_URL for url in value):
        raise InvalidInput(
            "status_callback_urls may hold only addresses of at most "
            f"{LONGEST_URL} characters"
        )
    return tuple(dict.fromkeys(value))


def _parse_extensions(value: Any) -> FidesReply | None:
    """Return where fides waits; what stands under other domains is not ours to read."""
    if not isinstance(value, dict):
        raise InvalidInput(
            "extensions is not an object with one member for each domain"
        )
    if FIDES not in value:
        return None
    said = value[FIDES] if isinstance(value[FIDES], dict) else {}
    path, token = said.get("reply_to"), said.get("reply_to_token")
    # A path alone: it is put behind the address of fides that the operator gave.
    if not isinstance(path, str) or not _PATH.fullmatch(path) or "/.." in path:
        raise InvalidInput(f"extensions: reply_to of {FIDES} is not a path")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise InvalidInput(f"extensions: reply_to_token of {FIDES} is not a token")
    return FidesReply(path, token)
