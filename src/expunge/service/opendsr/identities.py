# SPDX-License-Identifier: Apache-2.0
"""Identities: the types and formats in which OpenDSR names people, as identifiers.

An identity type is a kind of alias under the same name. Raw values of some kinds are
the ids under which models know people, as the operator says; by default those of
``controller_customer_id``. Nothing is tried as both: a number that is one person's
alias may be another's id.

Formats are ``raw`` and ``sha256``, of the value as ``rights.identifiers`` normalises
it, in hexadecimal or base64. The others that the protocol knows, SHA-1 and MD5, would
need tables of their own under broken hashes, and are refused.
"""

from collections.abc import Collection, Iterator

from ...exceptions import InvalidInput
from ...rights.identifiers import ID, Identifier

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


def list_supported() -> Iterator[dict[str, str]]:
    """Yield each identity type and format that is understood, as discovery has it."""
    for name in TYPES:
        for form in FORMATS:
            yield {"identity_type": name, "identity_format": form}


def read_identity(
    name: str, value: str, *, form: str, id_kinds: Collection[str]
) -> Identifier:
    """Return the identifier that an identity means; no error shows its value.

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
        return Identifier(ID if name in id_kinds else name, value)
    return Identifier(name, value, hashed=True)
