# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas: generated from the types, and shipped as generated."""

import json
from dataclasses import fields

import jsonschema
import pytest

from expunge.ledger import Head, RequestCompleted
from expunge.promise.canonical import Document, json_schema, load_schema, publish_schema
from expunge.promise.verification import Record
from tests import certificates
from tests.schemas import FOLDER, PUBLISHED, schema_text


@pytest.mark.parametrize("name", PUBLISHED)
def test_shipped_schema_is_the_generated_one(name: str) -> None:
    shipped = (FOLDER / name).read_text(encoding="utf-8")
    assert shipped == schema_text(name), (
        f"schemas/{name} is not what its types generate; renew it with "
        "`python -m tests.schemas`"
    )
    assert load_schema(name.removesuffix(".json")) == publish_schema(PUBLISHED[name])


@pytest.mark.parametrize("kind", [*PUBLISHED.values(), Record, RequestCompleted, Head])
def test_every_field_is_stated_and_explained(kind: type[Document]) -> None:
    schema = json_schema(kind)
    names = sorted(field.name for field in fields(kind))
    assert schema["required"] == list(schema["properties"]) == names
    assert schema["description"]
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_field_is_explained(name: str) -> None:
    stated = publish_schema(PUBLISHED[name])["properties"]
    plain = {field for field in stated if "description" not in stated[field]}
    assert plain <= {"kind", "version"}


def test_schema_of_a_record_accepts_one() -> None:
    record = certificates.record()
    found = json.loads(record.to_json())
    jsonschema.Draft202012Validator(json_schema(Record)).validate(found)
