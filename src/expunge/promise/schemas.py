# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas of documents, made from their types.

A schema is for readers in other languages. It states what the checks of the fields
state, in the order of the class, with the words of the class's docstring. The files in
``expunge/schemas`` ship with the package; a test compares them with what is generated
here, and ``python -m tests.schemas`` renews them.
"""

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields
from importlib import resources
from typing import Any

from .canonical import Document, Schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SPELLING = (
    "Signatures and hashes are of its canonical JSON by RFC 8785. A document of this "
    "shape may still contradict itself or be forged: that is for expunge to check."
)


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema that ships for "certificate" or "receipt"."""
    file = resources.files("expunge") / "schemas" / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def publish_schema(kind: type[Document]) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document, as it is to be shipped."""
    name, version = kind.__name__.lower(), kind.checks["version"].schema["const"]
    return {
        "$schema": DIALECT,
        "title": f"expunge {name}, version {version}",
        **json_schema(kind),
        "description": f"{_summary(kind)} {SPELLING}",
    }


def json_schema(kind: type[Document]) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document, to stand within another."""
    words = {name: text for base in kind.__mro__[::-1] for name, text in _words(base)}
    names = [field.name for field in fields(kind)]
    return {
        "description": _summary(kind),
        "type": "object",
        "additionalProperties": False,
        "required": sorted(names),
        "properties": {
            # What the field means comes before what its type is in general.
            name: _describe(kind.checks[name].schema, words.get(name, ""))
            for name in sorted(names)
        },
        **kind.schema_rules(),
    }


def _describe(schema: Schema, text: str) -> dict[str, Any]:
    """Return the schema of a field with its description first, if there is one."""
    described = {"description": text} if text else {}
    return {**described, **schema, **described}


def _summary(kind: type) -> str:
    """Return the first paragraph of a class's docstring."""
    return _plain(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0])


def _words(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a class with what its docstring says of each."""
    text = inspect.cleandoc(kind.__doc__ or "")
    _, _, section = text.partition("Parameters\n----------\n")
    names: list[str] = []
    said: list[str] = []
    for line in [*section.splitlines(), "end"]:
        if line.startswith(" "):
            said.append(line.strip())
        elif line:
            yield from ((name, _plain(" ".join(said))) for name in names)
            names, said = line.split(", "), []


def _plain(text: str) -> str:
    """Return a docstring's text on one line and without its markup."""
    return " ".join(text.replace("``", "").split())
