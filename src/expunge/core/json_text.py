# SPDX-License-Identifier: Apache-2.0
"""JSON text in its one spelling, the canonical form of RFC 8785, and read strictly.

The spelling of a mapping or a list is made up of the spellings of its parts, so what is
known of them need not be computed again.
"""

import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

import rfc8785

from ..exceptions import InvalidInput

LARGEST_INTEGER = 2**53 - 1  # that a double holds exactly, as JSON numbers are


def dumps(value: object) -> str:
    """Return the canonical JSON (RFC 8785) of mappings, sequences and plain values.

    Bytes are written in hexadecimal. Raises InvalidInput for what has no spelling.
    """
    try:
        text = _spell(value)
        text.encode()
        return text
    except UnicodeEncodeError:
        reason = "it holds text with lone surrogates"
    except rfc8785.IntegerDomainError:
        reason = "an integer is beyond 2^53 - 1; write it as a string"
    except rfc8785.FloatDomainError:
        reason = "a number is NaN or infinite"
    except rfc8785.CanonicalizationError:
        reason = "it holds something that is not JSON"
    # The errors above quote the value, which may be private.
    raise InvalidInput(f"this cannot be written as canonical JSON: {reason}")


def _spell(value: Any) -> str:
    """Return the canonical JSON of a value.

    Python's own encoder of strings escapes what RFC 8785 does, and nothing else. The
    package of that name writes numbers, and refuses what is no JSON.
    """
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is dict or isinstance(value, Mapping):
        # Of ASCII the code units are the letters.
        plain = all(type(name) is str and name.isascii() for name in value)
        names = sorted(value) if plain else sorted(value, key=_utf16)
        inner = [f"{encode_basestring(name)}:{_spell(value[name])}" for name in names]
        return f"{{{','.join(inner)}}}"
    if kind is list or kind is tuple or isinstance(value, list | tuple):
        return f"[{','.join(map(_spell, value))}]"
    if kind is bytes or isinstance(value, bytes):
        return f'"{value.hex()}"'
    if kind is float and 1e-4 <= abs(value) < 1e16:
        # Digits and a point in both languages, but for a zero after it.
        return repr(value).removesuffix(".0")
    return rfc8785.dumps(value).decode()


def _utf16(name: Any) -> bytes:
    """Return what the names of fields are sorted by: their UTF-16 code units."""
    if not isinstance(name, str):
        raise rfc8785.CanonicalizationError("a name that is no text")
    return name.encode("utf-16-be")


def loads(text: str | bytes, name: str) -> dict[str, Any]:
    """Return the one JSON object in the text, or raise InvalidInput.

    Integers beyond 2^53 - 1 come back as floats: only a float is spelled like that.
    """
    try:
        found = json.loads(
            text,
            object_pairs_hook=refuse_duplicates,
            parse_constant=_refuse_constant,
            parse_int=_read_integer,
        )
    except (ValueError, RecursionError) as error:
        # The error of the parser quotes positions, never the text.
        raise InvalidInput(f"{name}: not a JSON document: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{name}: the JSON must be an object with named fields")
    return found


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key given twice: readers would differ on which one counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is given twice")
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _read_integer(text: str) -> int | float:
    """Return the number that digits spell: a float where an integer is refused."""
    real = float(text)
    return int(text) if abs(real) <= LARGEST_INTEGER else real
