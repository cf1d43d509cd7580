# SPDX-License-Identifier: Apache-2.0
"""DROP: the identifiers on California's deletion lists, as hashes in its spelling.

    hash = Base64(SHA-256(standardised value in UTF-8))
    composite = hash of the Base64 hashes of its fields, one after the other

By the technical specifications of the Delete Request and Opt-out Platform, version
1.2.0, for data brokers. Each list has identifiers of one type:

- ``Email``: white space goes, lower case; dots and plus signs stay;
- ``Phone``: digits alone, and the last ten of them;
- ``MAID``: hexadecimal digits in lower case, 32 of them;
- ``CTVID``: letters and digits in lower case, 8 to 32 of them;
- ``NDZ``: first name, last name, date of birth as YYYYMMDD, ZIP code;
- ``NameVIN``: first name, last name, vehicle identification number of 17 letters and
  digits in lower case.

A ZIP code keeps letters and digits without the +4, in lower case, without zeros in
front, and of these the first five. Names are in lower case, Latin letters become those
of ASCII, and letters and digits stay. How the platform writes Greek and Cyrillic names
is published for examples alone, so these are refused here: a guess would say of a
person who is there that they are not.
"""

import re
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from hashlib import sha256
from types import MappingProxyType

from ..exceptions import InvalidInput
from .identifiers import Identifier

EMAIL, PHONE, MAID, CTVID = "Email", "Phone", "MAID", "CTVID"
FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        EMAIL: ("email",),
        PHONE: ("phone",),
        MAID: ("maid",),
        CTVID: ("ctvid",),
        "NDZ": ("first", "last", "birth", "zip"),
        "NameVIN": ("first", "last", "vin"),
    }
)
"""What each list is made of, in order."""
KNOWN = "drop-known"
"""Kind of the alias by which it is known that a person was compared with the lists."""
_HASH = re.compile(r"[A-Za-z0-9+/]{43}=")
_PLUS_FOUR = re.compile(r"-[0-9]{4}\s*$")
_SEPARATED = re.compile(r"[+(][0-9 ().-]{6,24}")
_MAID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_TEN, _VIN = 10, 17
# Letters of Latin script that no decomposition leads to those of ASCII.
_LATIN = str.maketrans(
    {
        "\u00df": "ss",
        "\u00e6": "ae",
        "\u00f0": "d",
        "\u00f8": "o",
        "\u00fe": "th",
        "\u0111": "d",
        "\u0127": "h",
        "\u0131": "i",
        "\u0142": "l",
        "\u014b": "n",
        "\u0153": "oe",
        "\u0167": "t",
    }
)


def kind_of(name: str) -> str:
    """Return the kind of the alias that holds identifiers of a list."""
    return f"drop-{name.lower()}"


def second_kind(name: str) -> str:
    """Return the kind of an alias of somebody who shares an identifier."""
    return f"{kind_of(name)}-2"


def drop_hash(text: str) -> str:
    """Return the hash of a standardised value."""
    return b64encode(sha256(text.encode()).digest()).decode("ascii")


def to_digest(hashed: str) -> str | None:
    """Return a hash in hexadecimal, or None if it is none."""
    if not _HASH.fullmatch(hashed):
        return None
    raw = b64decode(hashed)
    return raw.hex() if b64encode(raw).decode("ascii") == hashed else None


def hash_identifier(name: str, values: Mapping[str, str]) -> str:
    """Return the hash of a person's identifier on a list, or raise InvalidInput.

    Parameters
    ----------
    name
        Of the list.
    values
        The fields, as ``FIELDS`` names them, as they are.
    """
    each = [_STANDARDS[field](values[field]) for field in FIELDS[name]]
    if len(each) == 1:
        return drop_hash(each[0])
    return drop_hash("".join(map(drop_hash, each)))


def list_forms(word: str) -> Iterator[tuple[str, Identifier]]:
    """Yield each list that a person may be on by this very id, with the identifier."""
    found = []
    if "@" in word:
        found.append(EMAIL)
    if _SEPARATED.fullmatch(word):
        found.append(PHONE)
    if _MAID.fullmatch(word):
        found.append(MAID)
    for name in found:
        with suppress(InvalidInput):
            digest = to_digest(drop_hash(_STANDARDS[FIELDS[name][0]](word)))
            assert digest is not None
            yield name, Identifier(kind_of(name), digest, hashed=True)


def _standardise_email(text: str) -> str:
    word = "".join(text.split()).lower()
    return _require(word, "an address has a name, an @ and a domain", holds="@" in word)


def _standardise_phone(text: str) -> str:
    digits = "".join(letter for letter in text if letter in "0123456789")[-_TEN:]
    return _require(digits, "a phone number has digits")


def _standardise_maid(text: str) -> str:
    word = re.sub(r"[^0-9a-f]", "", text.lower())
    whole = _MAID.fullmatch(text.strip()) is not None
    return _require(word, "an advertising id has 32 hexadecimal digits", holds=whole)


def _standardise_ctvid(text: str) -> str:
    word = _keep_ascii(text)
    return _require(
        word,
        "an id of a television has 8 to 32 letters and digits",
        holds=8 <= len(word) <= 32,
    )


def _standardise_vin(text: str) -> str:
    word = _keep_ascii(text)
    what = "the number of a vehicle has 17 letters and digits"
    return _require(word, what, holds=len(word) == _VIN)


def _standardise_birth(text: str) -> str:
    """Return a date of birth as eight digits; the year comes first in what is read."""
    word = text.strip()[:10]
    if re.fullmatch(r"[0-9]{8}", word):
        word = f"{word[:4]}-{word[4:6]}-{word[6:]}"
    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", word):
            raise ValueError
        return date.fromisoformat(word).isoformat().replace("-", "")
    except ValueError:
        raise InvalidInput(
            "a date of birth is no day of the calendar; give YYYY-MM-DD"
        ) from None


def _standardise_zip(text: str) -> str:
    word = _keep_ascii(_PLUS_FOUR.sub("", text)).lstrip("0")[:5]
    return _require(word, "a ZIP code has letters or digits")


def _standardise_name(text: str) -> str:
    """Return the letters and digits of a name, Latin ones as those of ASCII."""
    kept = []
    for letter in unicodedata.normalize("NFKC", text).lower():
        if letter.isascii():
            kept.append(letter if letter.isalnum() else "")
            continue
        script = unicodedata.name(letter, "").partition(" ")[0]
        if script in ("GREEK", "CYRILLIC"):
            raise InvalidInput(
                "a name in Greek or Cyrillic letters: how the platform writes these is "
                "published for examples alone; leave it empty here, hash it with the "
                "platform's own tool, and import that hash (expunge alias import)"
            )
        if script == "LATIN":
            plain = unicodedata.normalize("NFKD", letter.translate(_LATIN))
            kept.append(
                "".join(one for one in plain if one.isascii() and one.isalnum())
            )
        elif letter.isalnum():
            kept.append(letter)
    return _require("".join(kept), "a name has letters")


def _keep_ascii(text: str) -> str:
    return "".join(one for one in text.lower() if one.isascii() and one.isalnum())


def _require(word: str, what: str, *, holds: bool = True) -> str:
    """Return a word that is not empty, or refuse it without showing it."""
    if not word or not holds:
        raise InvalidInput(
            f"{what}, and this value has not; correct it, or leave it out"
        )
    return word


_STANDARDS: Mapping[str, Callable[[str], str]] = {
    "email": _standardise_email,
    "phone": _standardise_phone,
    "maid": _standardise_maid,
    "ctvid": _standardise_ctvid,
    "first": _standardise_name,
    "last": _standardise_name,
    "birth": _standardise_birth,
    "zip": _standardise_zip,
    "vin": _standardise_vin,
}
