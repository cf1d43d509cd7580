# SPDX-License-Identifier: Apache-2.0
"""The corpus: every kind of document is verified, and written to the same bytes."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, get_args

import jsonschema
import pytest

from expunge.ledger import (
    Head,
    Receipt,
    check_consistency,
    check_export,
    check_receipt,
    read_entry,
)
from expunge.ledger.entries import EXTENSIONS, KINDS
from expunge.ledger.merkle import Tree, extends, includes, leaf_hash
from expunge.ledger.receipts import DESTROYED, EXCLUSIONS, METHODS, schema
from expunge.promise.accountant import Claim, Selection
from expunge.promise.canonical import Document, load_schema
from expunge.promise.certificate import Certificate, RowNorm, Status
from expunge.promise.noise import Source
from expunge.promise.scope import Classes
from expunge.promise.verification import RadiusKind, Record, verify
from expunge.rights.regimes import REGIMES
from expunge.rights.standing import FOR_HOLDS, OUTCOMES, REASONS, RIGHTS
from tests.corpus import BEFORE, FOLDER, make_corpus
from tests.independent import read_keys, require_receipt

READERS: Mapping[str, Any] = {
    "certificates": Certificate.from_json,
    "records": Record.from_json,
    "entries": read_entry,
    "heads": Head.from_json,
    "receipts": Receipt.from_json,
}
FILES = {
    str(file.relative_to(FOLDER)): file.read_bytes()
    for file in sorted(FOLDER.rglob("*.json*"))
}
PEM = (FOLDER / "public.pem").read_text()
DOCUMENTS: dict[str, dict[str, Any]] = {
    folder: {
        path.split("/")[1].removesuffix(".json"): read(data)
        for path, data in FILES.items()
        if path.startswith(f"{folder}/")
    }
    for folder, read in READERS.items()
}
CERTIFICATES: dict[str, Certificate] = DOCUMENTS["certificates"]
RECORDS: dict[str, Record] = DOCUMENTS["records"]


def stated(kind: str, field: str) -> set[Any]:
    """Return what the documents in a folder say in a field, but for None."""
    found = {getattr(document, field) for document in DOCUMENTS[kind].values()}
    return found - {None}


def test_present_code_writes_these_bytes() -> None:
    made = make_corpus()
    stored = FILES | {
        name: (FOLDER / name).read_bytes() for name in ("public.pem", "first-key.pem")
    }
    assert made.keys() == stored.keys()
    changed = [path for path in made if made[path] != stored[path]]
    assert not changed, "decide on it, and say so in docs/decisions"


@pytest.mark.parametrize("path", [path for path in FILES if "/" in path])
def test_documents_survive_reading(path: str) -> None:
    document: Any = READERS[path.split("/")[0]](FILES[path])
    assert document.to_json().encode() == FILES[path]
    if isinstance(document, Document):
        assert document.digest() == sha256(FILES[path]).hexdigest()
    assert type(document).from_json(document.to_json()) == document


@pytest.mark.parametrize("name", CERTIFICATES)
def test_certificates_are_valid(name: str) -> None:
    certificate = CERTIFICATES[name]
    assert verify(certificate).valid
    validator = jsonschema.Draft202012Validator(load_schema("certificate"))
    validator.validate(json.loads(FILES[f"certificates/{name}.json"]))
    opened = [r for r in RECORDS.values() if r.commitment() == certificate.commitment]
    assert len(opened) == 1
    assert verify(certificate, opened[0]).valid
    others = [record for record in RECORDS.values() if record not in opened]
    assert not any(verify(certificate, record).valid for record in others)


@pytest.mark.parametrize("name", DOCUMENTS["receipts"])
def test_receipts_are_valid(name: str) -> None:
    data = FILES[f"receipts/{name}.json"]
    verdict = check_receipt(data, PEM)
    assert verdict.valid, verdict.says
    jsonschema.Draft202012Validator(schema()).validate(json.loads(data))
    signer = DOCUMENTS["receipts"][name].head.size > BEFORE
    require_receipt(data.decode(), read_keys(PEM)[signer])


def test_ledger_is_valid() -> None:
    lines = FILES["ledger.jsonl"]
    for keys in (PEM, (FOLDER / "first-key.pem").read_text()):
        verdict = check_export(lines, keys)
        assert verdict.valid, verdict.says
    entries = {entry.to_json() for entry in DOCUMENTS["entries"].values()}
    heads = {head.to_json() for head in DOCUMENTS["heads"].values()}
    written = set(lines.decode().splitlines())
    assert entries < written and len(written - entries) == 2
    assert written - entries < heads


def test_proofs_hold() -> None:
    proofs = json.loads(FILES["proofs.json"])
    leaves, roots = ([bytes.fromhex(h) for h in proofs[n]] for n in ("leaves", "roots"))
    entries = sorted(DOCUMENTS["entries"].values(), key=lambda entry: entry.sequence)
    assert leaves == [leaf_hash(entry.to_json().encode()) for entry in entries]
    for one in proofs["inclusion"]:
        path = tuple(map(bytes.fromhex, one["proof"]))
        tree, leaf = Tree(one["size"], roots[one["size"]]), leaves[one["index"]]
        assert includes(tree, one["index"], leaf=leaf, proof=path)
    for one in proofs["consistency"]:
        path = tuple(map(bytes.fromhex, one["proof"]))
        new, old = (Tree(one[side], roots[one[side]]) for side in ("new", "old"))
        assert extends(new, old, proof=path)
    old, new = (DOCUMENTS["heads"][f"{side}-rotation"] for side in ("before", "after"))
    grown = next(
        one for one in proofs["consistency"] if one["old"] == BEFORE == old.size
    )
    path = tuple(map(bytes.fromhex, grown["proof"]))
    assert check_consistency(new, old, proof=path, public_pem=PEM).valid


def test_nothing_notable_is_left_out() -> None:
    assert stated("certificates", "status") == set(get_args(Status))
    assert stated("certificates", "claim") == set(get_args(Claim))
    assert stated("certificates", "selection") == set(get_args(Selection))
    assert stated("certificates", "classes") == set(get_args(Classes))
    assert stated("certificates", "row_norm") == set(get_args(RowNorm))
    assert stated("certificates", "noise_source") == set(get_args(Source))
    assert stated("records", "radius_kind") == set(get_args(RadiusKind))
    assert stated("records", "selection") == set(get_args(Selection)) - {"not covered"}
    assert stated("entries", "kind") == set(KINDS)
    requests = [receipt.entry for receipt in DOCUMENTS["receipts"].values()]
    assert {one.outcome for one in requests} == set(OUTCOMES)
    assert {one.right for one in requests} == set(RIGHTS)
    assert {one.reason for one in requests} == set(REASONS)
    assert {one.regime for one in requests} == set(REGIMES)
    handled = [receipt.handling for receipt in DOCUMENTS["receipts"].values()]
    assert {one for each in handled for one in each.destroyed} == set(DESTROYED)
    assert {one.method for one in handled} == set(METHODS)
    assert {one.exclusion for one in handled} == set(EXCLUSIONS)
    assert any(one.recipients for one in handled)
    assert {one.retained for one in handled} > {"", "restriction"}
    assert {one.retained for one in handled} & set(FOR_HOLDS)
    extended = DOCUMENTS["entries"].values()
    given = {one.reason for one in extended if one.kind == "request extended"}
    assert given == set(EXTENSIONS)
