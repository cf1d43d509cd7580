# SPDX-License-Identifier: Apache-2.0
"""The JSON Schemas that ship, as their types generate them.

``python -m tests.schemas`` writes them into the package.
"""

import json
from pathlib import Path
from typing import Any

from expunge.ledger import Receipt, documents
from expunge.promise import canonical
from expunge.promise.certificate import Certificate

FOLDER = Path(__file__).parents[1] / "src" / "expunge" / "schemas"
PUBLISHED = {"certificate.json": Certificate, "receipt.json": Receipt}


def describe(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document."""
    ours = issubclass(kind, canonical.Document)
    return canonical.json_schema(kind) if ours else documents.json_schema(kind)


def publish(name: str) -> dict[str, Any]:
    """Return what one of the files holds."""
    kind = PUBLISHED[name]
    return canonical.publish_schema(kind, describe(kind))


def schema_text(name: str) -> str:
    """Return the text of one of the files."""
    return json.dumps(publish(name), indent=2) + "\n"


def write_schemas() -> None:
    """Write all files into the package."""
    for name in PUBLISHED:
        (FOLDER / name).write_text(schema_text(name), encoding="utf-8")


if __name__ == "__main__":
    write_schemas()
