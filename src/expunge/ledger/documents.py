# SPDX-License-Identifier: Apache-2.0
"""What entries, heads and receipts are made of: names of models, and days.

Documents hold days alone: a finer time would tell how long an answer took, and so
whether the rows of the others were needed for it.

Of entries and heads the canonical spelling is a regular language: fields in order,
hexadecimal words, days, whole numbers. One match of a regular expression, built from
the JSON Schemas of the fields, proves such a document canonical and takes it apart,
so that to check a long export takes little more than twice as long as to parse it. What
does not match is read by ``CanonicalDocument.from_json``, which knows every valid
spelling and says what is wrong with the others. So the glance may be too narrow, but
never too wide.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, TypeVar

from ..core.values import dumps, loads
from ..exceptions import InvalidInput
from ..promise.canonical import CanonicalDocument, Check, Schema, checks_of, matching

DAY = 24 * 60 * 60 * 1000  # in milliseconds
EPOCH = date(1970, 1, 1)
FIRST_DAY, LAST_DAY = EPOCH.isoformat(), date.max.isoformat()

# No address fits.
model_name = matching(
    "[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
    "1 to 64 ASCII letters, digits, dots, dashes or underscores, and begin with a "
    "letter or a digit",
)


@lru_cache(4096)  # many documents are of one day
def _utc_day(value: Any) -> str:
    """Check a day in UTC, as YYYY-MM-DD; the earlier of two sorts first."""
    try:
        spelled = date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        spelled = ""
    if spelled != value or spelled < FIRST_DAY:
        raise ValueError(f"it must be a day from {FIRST_DAY} on, as YYYY-MM-DD")
    return spelled


_DAY = "^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"

ModelName: TypeAlias = Annotated[str, model_name]
Day: TypeAlias = Annotated[
    str, Check(_utc_day, {"type": "string", "format": "date", "pattern": _DAY})
]
# Empty where there is none.
OptionalDay: TypeAlias = Annotated[
    str,
    Check(
        lambda value: value if value == "" else _utc_day(value),
        {"type": "string", "pattern": f"{_DAY}|^$"},
    ),
]


def day_of(time: int) -> str:
    """Return the day in UTC of a time in milliseconds since 1970."""
    if not 0 <= time < midnight(LAST_DAY) + DAY:
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


AnyDocument = TypeVar("AnyDocument", bound=CanonicalDocument)


def read_document(
    text: str | bytes, kinds: Mapping[str, type[AnyDocument]]
) -> AnyDocument:
    """Return the document in these bytes; refuse an unknown kind."""
    document = read_at_a_glance(text, kinds)
    if document is not None:
        return document
    found = loads(text, "Document")
    kind = found.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidInput(
            f"kind {kind!r}; it must be one of {', '.join(map(repr, kinds))}; "
            "a newer expunge may know more"
        )
    return kinds[kind].from_canonical(found, text)


def read_at_a_glance(
    text: str | bytes, kinds: Mapping[str, type[AnyDocument]]
) -> AnyDocument | None:
    """Return the document in these bytes; None if a glance cannot tell."""
    try:
        decoded = text if isinstance(text, str) else text.decode("ascii")
    except UnicodeDecodeError:
        return None
    # A guess at the kind: the pattern then says whether it is right.
    start = decoded.find('"kind":"') + len('"kind":"')
    kind = kinds.get(decoded[start : decoded.find('"', start)])
    if kind is None:
        return None
    known: Any = kind
    glance = _glance(known)
    match = None if glance is None else glance[0].fullmatch(decoded)
    if match is None:
        return None
    document = object.__new__(kind)
    try:
        for (put, read), part in zip(glance[1], match.groups(), strict=True):
            put(document, read(part))
        document.require_consistent()
    except ValueError:
        return None
    return document


@cache
def _glance(kind: Any) -> Any:
    """Return a pattern of a kind of document, and how each group sets its field.

    None if the schema of a field is of no regular language.
    """
    written, setters = [], []
    for name, check in checks_of(kind).items():
        spelling = _spelling(check.schema)
        if spelling is None:
            return None
        written.append(f'"{name}":({spelling[0]})')
        # A frozen document has slots, which are filled here as by its constructor.
        setters.append((getattr(kind, name).__set__, spelling[1]))
    return re.compile(rf"\{{{','.join(written)}\}}"), setters


def _spelling(schema: Schema) -> tuple[str, Callable[[str], Any]] | None:
    """Return a pattern of JSON that passes a schema, without groups, and its reader.

    The reader raises ValueError for what the pattern lets through and the check of the
    field would not.
    """
    words = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if words:
        spelled = {dumps(word): word for word in words}
        return f"(?:{'|'.join(map(re.escape, spelled))})", spelled.__getitem__
    kind, pattern = schema.get("type"), str(schema.get("pattern", ""))
    if kind == "integer" and schema["minimum"] in (0, 1):
        # All of these are in range. Longer ones are spelled too, but rare.
        return f"(?:{'0|' * (not schema['minimum'])}[1-9][0-9]{{0,14}})", int
    if kind == "string" and pattern.startswith("^") and "|^" not in pattern:
        day = schema.get("format") == "date"
        inner = pattern[1:-1].replace("(", "(?:")
        return f'"{inner}"', lambda text: _utc_day(text[1:-1]) if day else text[1:-1]
    if kind == "array" and (found := _spelling(schema["items"])):
        item, read = re.compile(found[0]), found[1]
        whole = rf"\[(?:{found[0]}(?:,{found[0]})*)?\]"
        return whole, lambda text: tuple(map(read, item.findall(text)))
    if kind == "object" and "propertyNames" in schema:
        name = _spelling(schema["propertyNames"])
        value = _spelling(schema["additionalProperties"])
        if name and value:
            return _spell_mapping(name[0], value[0], read=value[1])
    return None


def _spell_mapping(
    name: str, value: str, *, read: Callable[[str], Any]
) -> tuple[str, Callable[[str], Any]]:
    pair, both = f"{name}:{value}", re.compile(f"({name}):({value})")

    def read_pairs(text: str) -> Mapping[str, Any]:
        pairs = both.findall(text)
        names = [key[1:-1] for key, _ in pairs]
        if len(pairs) > 1 and names != sorted(set(names)):
            raise ValueError("it must have its names in order, each once")
        return MappingProxyType({key[1:-1]: read(item) for key, item in pairs})

    return rf"\{{(?:{pair}(?:,{pair})*)?\}}", read_pairs
