# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas: generated from the types, and shipped as generated."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from expunge.ledger import Head, Receipt, RequestCompleted
from expunge.promise.canonical import load_schema
from expunge.promise.certificate import Certificate
from expunge.promise.verification import Record
from tests import certificates
from tests.schemas import FOLDER, PUBLISHED, describe, publish, schema_text

CORPUS = Path(__file__).with_name("corpus")
# By the documents themselves, or by the class of one that Python declares.
NAMES: dict[Any, list[str]] = {
    **{
        kind: sorted(json.loads((CORPUS / name).read_bytes()))
        for kind, name in {
            Receipt: "receipts/erased.json",
            RequestCompleted: "entries/request-erased.json",
            Head: "heads/one.json",
        }.items()
    },
    **{kind: sorted(f.name for f in fields(kind)) for kind in (Certificate, Record)},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_shipped_schema_is_the_generated_one(name: str) -> None:
    shipped = (FOLDER / name).read_text(encoding="utf-8")
    assert shipped == schema_text(name), (
        f"schemas/{name} is not what its types generate; renew it with "
        "`python -m tests.schemas`"
    )
    assert load_schema(name.removesuffix(".json")) == publish(name)


@pytest.mark.parametrize("kind", NAMES)
def test_every_field_is_stated_and_explained(kind: Any) -> None:
    schema = describe(kind)
    names = NAMES[kind]
    assert schema["required"] == list(schema["properties"]) == names
    assert schema["description"]
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_field_is_explained(name: str) -> None:
    stated = publish(name)["properties"]
    plain = {field for field in stated if "description" not in stated[field]}
    assert plain <= {"kind", "version"}


def test_schema_of_a_record_accepts_one() -> None:
    record = certificates.record()
    found = json.loads(record.to_json())
    jsonschema.Draft202012Validator(describe(Record)).validate(found)
