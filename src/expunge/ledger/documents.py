# SPDX-License-Identifier: Apache-2.0
"""Documents of the ledger: what an annotation says, and one spelling.

The annotations of a class are all that is said of its fields. From them msgspec reads
and writes documents, and ``json_schema`` describes them. Documents hold text, whole
numbers, and lists and mappings of these, of which the sorted JSON of msgspec is the
canonical form (RFC 8785). A document is its canonical bytes or nothing: what is read is
written again and compared, since trees and signatures are computed from these bytes.

Documents hold days alone: a finer time would tell how long an answer took, and so
whether the rows of the others were needed for it.
"""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from functools import cache
from numbers import Integral
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Self,
    TypeAlias,
    get_args,
    get_type_hints,
)

from ..core.values import LARGEST_INTEGER, loads, require_shallow
from ..exceptions import InvalidInput, needing
from ..promise.canonical import Document, describe

with needing("registry", "a ledger"):
    from msgspec import (
        NODEFAULT,
        Meta,
        MsgspecError,
        Raw,
        Struct,
        StructMeta,
        ValidationError,
    )
    from msgspec.json import Decoder, Encoder, schema
    from msgspec.structs import fields

DAY = 24 * 60 * 60 * 1000  # in milliseconds
EPOCH = date(1970, 1, 1)
FIRST_DAY, LAST_DAY = EPOCH.isoformat(), date.max.isoformat()
LONGEST_SHOWN = 80


def day_of(time: int) -> str:
    """Return the day in UTC of a time in milliseconds since 1970."""
    if not 0 <= time < _END:
        raise InvalidInput(
            f"the time is {time} ms since 1970, which is not a day from {FIRST_DAY} to "
            f"{LAST_DAY}; set the clock"
        )
    return (EPOCH + timedelta(days=time // DAY)).isoformat()


def midnight(day: str) -> int:
    """Return the start of a day, in milliseconds since 1970."""
    return DAY * days_between(FIRST_DAY, day)


def days_between(first: str, last: str) -> int:
    """Return how many days the last day is after the first."""
    return (date.fromisoformat(last) - date.fromisoformat(first)).days


_END = midnight(LAST_DAY) + DAY
_WORDS = {"\\S": "a sentence"}  # what a pattern asks for, for errors


def matching(pattern: str, words: str, **said: Any) -> Meta:
    """Return the rule that text matches a pattern, which is such and such in words."""
    _WORDS[f"^{pattern}$"] = words
    return Meta(pattern=rf"^{pattern}\Z", extra_json_schema=said)


def one_of(*words: str) -> Meta:
    """Return the rule that text is one of these words."""
    pattern = "|".join(map(re.escape, words))
    return Meta(pattern=rf"^({pattern})\Z", extra_json_schema={"enum": list(words)})


def hexadecimal(n_bytes: int) -> Meta:
    """Return the rule that text is so many bytes in lower-case hexadecimal."""
    words = f"{n_bytes} bytes in lower-case hexadecimal"
    return matching(f"[0-9a-f]{{{2 * n_bytes}}}", words)


# Every day that there is from 1970 to 9999, leap years included.
_LEAP = (
    "(19(7[26]|8[048]|9[26])|[2-9][0-9](0[48]|[2468][048]|[13579][26])|"
    "([2468][048]|[3579][26])00)-02-29"
)
_DAY = (
    "((19[7-9][0-9]|[2-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|"
    f"(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP})"
)
_AS_DAY = f"a day from {FIRST_DAY} on, as YYYY-MM-DD"
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # no address fits
_AS_NAME = (
    "1 to 64 ASCII letters, digits, dots, dashes or underscores, and begin with a "
    "letter or a digit"
)

Day: TypeAlias = Annotated[str, matching(_DAY, _AS_DAY, format="date")]
OptionalDay: TypeAlias = Annotated[str, matching(f"{_DAY}?", f"{_AS_DAY}, or empty")]
ModelName: TypeAlias = Annotated[str, matching(_NAME, _AS_NAME)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST_INTEGER)]
Sentence: TypeAlias = Annotated[str, Meta(pattern="\\S")]
OneOrMore: TypeAlias = Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)]
# SHA-256: of a document, of a tree, of a key.
Digest: TypeAlias = Annotated[str, hexadecimal(32)]


def model_name(name: object) -> str:
    """Return the name of a model, or raise ValueError."""
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise ValueError(f"it must be {_AS_NAME}")
    return name


def _plain(value: object) -> object:
    """Return what msgspec does not write as what it does."""
    if type(value) is MappingProxyType or isinstance(value, Mapping):
        return {
            name: Raw(item.to_json().encode()) if isinstance(item, Document) else item
            for name, item in value.items()
        }
    if isinstance(value, Integral):
        return int(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


# Most fields. To ask an abstract class of each takes as long as reading a document.
_NO_MAPPINGS = frozenset({str, int, bool, float, tuple, list, type(None)})
_encode = Encoder(order="sorted", enc_hook=_plain).encode


class Checked(StructMeta):
    """Reads what a caller states of a document as strictly as what a file says."""

    if not TYPE_CHECKING:

        def __call__(self, **stated: Any) -> Any:
            """Return the document with these fields, or raise InvalidInput."""
            for name, value in stated.items():
                if type(value) not in _NO_MAPPINGS and isinstance(value, Mapping):
                    stated[name] = MappingProxyType(value)
            try:
                data = _encode(_defaults(self) | stated)
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidInput(
                    f"{self.__name__}: {error}; state plain values"
                ) from None
            return _decode(data, self)


class CanonicalDocument(
    Struct,
    metaclass=Checked,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
):
    """A document of which every byte counts: any spelling but one is refused."""

    @property
    def kind(self) -> str:
        """What it is, fixed for each class."""
        return str(self.__struct_config__.tag)

    def replace(self, **changes: Any) -> Self:
        """Return the document with these fields changed."""
        stated = {name: getattr(self, name) for name in self.__struct_fields__}
        return type(self)(**stated | changes)

    def to_json(self) -> str:
        """Return the only spelling of this document."""
        return _encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the document in these bytes; refuse any but the canonical spelling."""
        document: Self = read_document(text, cls)
        return document

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return type(self).from_json, (self.to_json(),)


@cache
def _defaults(kind: Any) -> Mapping[str, Any]:
    """Return what a document says if nothing is stated."""
    given = [field for field in fields(kind) if field.default is not NODEFAULT]
    tag = {"kind": kind.__struct_config__.tag}
    return tag | {field.name: field.default for field in given}


@cache
def _decoder(kinds: Any) -> Decoder[Any]:
    return Decoder(kinds)


def _decode(data: bytes, kinds: Any) -> Any:
    try:
        require_shallow(data.decode("utf-8", "surrogatepass"))
        return _decoder(kinds).decode(data)
    except (MsgspecError, ValueError) as error:
        raise _explain(error, data, kinds=kinds) from None


def read_document(text: str | bytes, kinds: Any) -> Any:
    """Return the document in these bytes, of one of the kinds in a union.

    Refuses an unknown kind, and any spelling but the canonical one.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    document = _decode(data, kinds)
    if _encode(document) != data:
        # If a field is there twice, say that.
        raise _explain(ValueError(), data, kinds=kinds)
    return document


def _explain(error: Exception, data: bytes, *, kinds: Any) -> InvalidInput:
    """Return what is wrong with a document, and where."""
    if isinstance(error.__cause__, InvalidInput):
        return error.__cause__  # from its own check of days or words beside one another
    try:
        found = loads(data, "Document")
    except InvalidInput as unreadable:
        return unreadable
    tags = {kind.__struct_config__.tag: kind for kind in get_args(kinds) or (kinds,)}
    kind = found.get("kind")
    if not isinstance(kind, str) or kind not in tags:
        return InvalidInput(
            f"kind {kind!r}; it must be one of {', '.join(map(repr, tags))}; "
            "a newer expunge may know more"
        )
    name, rule = tags[kind].__name__, json_schema(tags[kind])
    version = found.get("version")
    if type(version) is not int or version != 1:
        return InvalidInput(
            f"{name}: version {version!r}; it must be 1; read it with the expunge that "
            "wrote it, or a newer one"
        )
    if found.keys() != rule["properties"].keys():
        missing = sorted(rule["properties"].keys() - found.keys())
        unknown = sorted(found.keys() - rule["properties"].keys())
        return InvalidInput(
            f"{name}: missing fields {missing}, unknown fields {unknown}; a document "
            "holds exactly the fields of its version"
        )
    if not isinstance(error, ValidationError):
        return InvalidInput(
            f"{name}: not in canonical spelling; pass the bytes as they were written, "
            "without a newline at the end"
        )
    # As msgspec says it: Expected `int`, got `str` - at `$.head.size`.
    words, _, where = str(error).partition(" - at ")
    path = re.findall(r"\.(\w+)", where)
    value: Any = found
    for part in path:
        if not isinstance(value, dict) or part not in rule.get("properties", {}):
            break
        value, rule = value.get(part), rule["properties"][part]
    shown = repr(value)
    if len(shown) > LONGEST_SHOWN:
        shown = f"{shown[:LONGEST_SHOWN]}..."
    wanted = _in_words(rule)
    words = f"it must be {wanted}" if wanted else words
    return InvalidInput(f"{name}: {'.'.join(path)}={shown}; {words}")


def _in_words(rule: Mapping[str, Any]) -> str:
    """Return what a JSON Schema of a field asks for."""
    if "enum" in rule:
        return f"one of {', '.join(map(repr, rule['enum']))}"
    if "const" in rule:
        return repr(rule["const"])
    if rule.get("type") == "integer":
        return f"an integer from {rule['minimum']} to 2^53 - 1"
    if rule.get("type") == "array":
        return f"a list, each {_in_words(rule['items'])}"
    if "propertyNames" in rule:
        name, value = rule["propertyNames"], rule["additionalProperties"]
        return f"a mapping, each name {_in_words(name)}, each value {_in_words(value)}"
    return _WORDS.get(rule.get("pattern", ""), "")


@cache
def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document, for use within another."""

    def tidy(rule: Any) -> Any:
        if isinstance(rule, str):
            # Python's $ lets a newline through, and other languages do not know \Z.
            return rule.replace(r"\Z", "$")
        if not isinstance(rule, dict):
            return rule
        if words := rule.get("enum"):
            return {"enum": words} if len(words) > 1 else {"const": words[0]}
        return {word: tidy(inner) for word, inner in rule.items()}

    rules: dict[str, Any] = {"kind": {"const": kind.__struct_config__.tag}}
    stated = get_type_hints(kind, include_extras=True)
    for name in kind.__struct_fields__:
        hint = stated[name]
        within = isinstance(hint, type) and issubclass(hint, CanonicalDocument)
        rules[name] = json_schema(hint) if within else tidy(schema(hint))
    return describe(kind, rules)
