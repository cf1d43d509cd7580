# SPDX-License-Identifier: Apache-2.0
"""Identifiers: what a person is known by elsewhere, raw or hashed, in one spelling.

A word that stands for a person has one spelling: NFC, without white space around. Ids
of people and most identifiers share it. Letters that differ in meaning stay apart, and
so do upper and lower case, since ids that differ in case alone do exist.

An identifier is a kind, such as ``email``, and a value. Raw values are normalised:

- ``email``: Unicode NFC, no white space around, lower case throughout. Not NFKC, which
  makes one address of two (RFC 6532, section 3.1, advises against it), and not
  ``casefold``, for the same reason. Dots, plus signs and the spelling of an
  international domain stay as they are: other mailboxes may differ in them.
- ``phone``: E.164, a plus sign and 7 to 15 digits, once spaces, dashes, dots and
  brackets are dropped. A bracketed "(0)" is refused: it is not dialled from abroad.
- every other kind: as ids are spelled.

A hashed value is the SHA-256 of the normalised value in UTF-8, as 64 hexadecimal digits
or in base64, standard or URL-safe. Raw and hashed forms of one value are therefore
equal, and ``digest`` is all that a look-up needs.

The loosest form of a word is what is left when everything is gone that a form, a
spreadsheet or a keyboard changes: case, white space, letters of another width, leading
zeros, the ".0" of a float. It identifies nobody: two words that share it may be two
people. It tells an operator that they may be one.

No error, ``repr`` or ``str`` shows a value.
"""

import re
import unicodedata
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256

from ..exceptions import InvalidInput

SPELLING = "NFC, stripped"
"""The rule by name. A registry records it, because its tags depend on it."""
LONGEST = 1024  # bytes of a word
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # Unicode's Cc and Cs

# Printable ASCII without white space around: spelled already, and no objection to it.
_PLAIN = re.compile(f"[!-~](?:[ -~]{{0,{LONGEST - 2}}}[!-~])?")

# What the loosest form drops: a fraction of zeros, and zeros before a number.
_ZERO_FRACTION = re.compile(r"([+-]?[0-9]+)\.0+")
_LEADING_ZEROS = re.compile(r"(?<![0-9.])0+(?=[0-9])")

EMAIL, PHONE, ID = "email", "phone", "id"
HASHED = "sha256:"
"""What a hashed value begins with where values are text."""
ADDRESSES = (EMAIL, PHONE)
"""Kinds that mean the same person wherever they stand: an id may be one."""
_KIND = re.compile("[a-z][a-z0-9_-]{0,31}")
_SPACE = re.compile(r"\s")
# In an address these stand in quotes, comments and lists alone.
_AROUND_ADDRESS = frozenset('<>()[]",;:\\')
_PHONE_MARKS = re.compile(r"[\s().\[\]\u2010-\u2015\u2212-]")
_TRUNK_ZERO = re.compile(r"[(\[]\s*0\s*[)\]]")
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_HEX = re.compile("[0-9a-fA-F]{64}")
_BASE64 = re.compile("([A-Za-z0-9+/]{43}|[A-Za-z0-9_-]{43})=?")


def is_plain(word: str) -> bool:
    """Whether a word is so simple that its spelling is itself: most are."""
    return _PLAIN.fullmatch(word) is not None


def spell(word: str) -> str:
    """Return a word in its one spelling."""
    return unicodedata.normalize("NFC", word).strip()


def loosest(word: str) -> str:
    """Return the loosest form of a word; equal ones may be one person's, or not."""
    wide = unicodedata.normalize("NFKC", word).casefold()
    # Once more: folding may leave letters that combine.
    kept = "".join(
        letter
        for letter in unicodedata.normalize("NFKC", wide)
        if not letter.isspace() and unicodedata.category(letter) != "Cf"
    )
    number = _ZERO_FRACTION.fullmatch(kept)
    return _LEADING_ZEROS.sub("", number[1] if number else kept)


def after_colon(word: str) -> str:
    """Return what follows the first colon, as in "mailto:ada@example.org", or nothing.

    A sender's own word for a kind may stand before it, and then this is the id.
    """
    return word.partition(":")[2].strip()


def list_spellings(word: str) -> list[str]:
    """Return the usual spellings of what a word may mean: some of one loosest form."""
    plain = " ".join(unicodedata.normalize("NFKC", word).split())
    whole = _ZERO_FRACTION.sub(r"\1", plain)
    bare = _LEADING_ZEROS.sub("", whole)
    cases = (str, str.lower, str.upper, str.title, str.capitalize)
    some = [case(one) for one in (word, plain, whole, bare) for case in cases]
    tight = [one.replace(" ", "") for one in some]
    return [spell(one) for one in dict.fromkeys(some + tight) if spell(one)]


def normal_form(kind: str, word: str) -> str | None:
    """Return a word as a kind of identifier spells it; None if it cannot be one."""
    try:
        return Identifier(kind, word).value
    except InvalidInput:
        return None


def word_objection(word: str) -> str | None:
    """Return why a word cannot stand for a person and what to do; do not quote it."""
    if not word:
        return "it is empty; fill it in, or remove the row"
    if _UNPRINTABLE.search(word):
        return "it holds control characters; check the file it was read from"
    size = len(word.encode())
    if size > LONGEST:
        return f"it has {size} bytes; use at most {LONGEST}"
    return None


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Identifier:
    """A kind and a value, which is normalised; equal to its hashed form.

    Parameters
    ----------
    kind
        A lower-case word of at most 32 letters, digits, ``_`` and ``-``. ``id`` is the
        id under which models know a person.
    value
        The raw value, or with ``hashed`` its SHA-256.
    hashed
        Whether the value is a hash. It then becomes 64 lower-case hexadecimal digits.
    """

    kind: str
    value: str
    hashed: bool = False

    def __post_init__(self) -> None:
        """Normalise the value, or raise InvalidInput without showing it."""
        require_kind(self.kind)
        if not isinstance(self.value, str):
            raise InvalidInput(
                f"the value of kind {self.kind} is of type {type(self.value).__name__}"
                "; give it as text"
            )
        if self.hashed and self.kind == ID:
            raise InvalidInput(
                f"an identifier of kind {ID} is hashed; give the id itself, or another "
                "kind that was imported with hashes"
            )
        value = _read_hash if self.hashed else _NORMALISE.get(self.kind, _normalise)
        object.__setattr__(self, "value", value(self.value, self.kind))

    def __repr__(self) -> str:
        return f"Identifier({self.kind!r}, hidden)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identifier):
            return NotImplemented
        return (self.kind, self.digest()) == (other.kind, other.digest())

    def __hash__(self) -> int:
        return hash((self.kind, self.digest()))

    def digest(self) -> str:
        """Return the SHA-256 of the normalised value, as 64 hexadecimal digits."""
        return self.value if self.hashed else sha256(self.value.encode()).hexdigest()


def read_identifier(kind: str, text: str) -> Identifier:
    """Return the identifier of a kind that a text spells.

    The text is a raw value, or ``sha256:`` and a hash.
    """
    word = text.strip()
    if word[: len(HASHED)].lower() == HASHED:
        return Identifier(kind, word[len(HASHED) :], hashed=True)
    return Identifier(kind, word)


def parse_identifier(word: str) -> Identifier | None:
    """Return the identifier that a word such as ``email:ada@example.org`` spells.

    None if the word has no kind before its first colon, or nothing after it: then it
    can only be an id. Ids may hold colons too, so what has the form of an identifier
    need not be one: a caller that knows the ids decides, and refuses what is both.
    """
    kind, colon, text = word.partition(":")
    if not colon or not text.strip() or not _KIND.fullmatch(kind):
        return None
    return read_identifier(kind, text)


def require_kind(kind: object) -> str:
    """Return the word for a kind of identifier, or raise InvalidInput."""
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        # Not shown: where columns are mixed up, it is a value.
        raise InvalidInput(
            f"a kind of identifier is a lower-case word such as {EMAIL}, {PHONE} or "
            "customer, of at most 32 letters, digits, _ and -; this one is not"
        )
    return kind


def _normalise(value: str, kind: str) -> str:
    """Return a value as ids are spelled."""
    word = spell(value)
    _refuse(kind, word_objection(word))
    return word


def _normalise_email(value: str, kind: str) -> str:
    """Return an address in lower case."""
    # NFC again: the lower case of a composed letter need not be composed.
    word = _normalise(_normalise(value, kind).lower(), kind)
    name, _, domain = word.partition("@")
    if word.count("@") != 1 or not name or not domain:
        _refuse(kind, "it needs one @ between a name and a domain; give the address")
    if _SPACE.search(word) or not _AROUND_ADDRESS.isdisjoint(word):
        _refuse(
            kind,
            "it holds more than an address; give it without spaces, brackets or quotes",
        )
    return word


def _normalise_phone(value: str, kind: str) -> str:
    """Return a number in E.164."""
    word = _normalise(value, kind)
    if _TRUNK_ZERO.search(word):
        _refuse(kind, "it holds a (0), which is not dialled from abroad; leave it out")
    word = _PHONE_MARKS.sub("", word)
    if not _E164.fullmatch(word):
        _refuse(
            kind,
            "it is not in international form; give a plus sign, the code of the "
            "country and the number, 7 to 15 digits in all",
        )
    return word


def _read_hash(value: str, kind: str) -> str:
    """Return a SHA-256 in hexadecimal from any of its spellings."""
    word = value.strip()
    if _HEX.fullmatch(word):
        return word.lower()
    if _BASE64.fullmatch(word):
        standard = word.replace("-", "+").replace("_", "/").removesuffix("=") + "="
        raw = b64decode(standard)
        # Bits that are cut off make several texts of one hash; none but the one whose
        # bits are zero was ever written by a hash.
        if b64encode(raw).decode("ascii") == standard:
            return raw.hex()
    raise InvalidInput(
        f"a hashed value of kind {kind} is not a SHA-256: give 64 hexadecimal digits, "
        "or 43 characters in base64 and an optional ="
    )


def _refuse(kind: str, reason: str | None) -> None:
    """Raise InvalidInput if there is a reason to."""
    if reason is not None:
        raise InvalidInput(f"a value of kind {kind} cannot be used: {reason}")


_NORMALISE = {EMAIL: _normalise_email, PHONE: _normalise_phone}
