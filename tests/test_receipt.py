# SPDX-License-Identifier: Apache-2.0
"""Receipts: complete in themselves, refused when altered, honest about their limits."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import rfc8785

from expunge.exceptions import InvalidInput
from expunge.ledger import (
    EntryProof,
    Head,
    Ledger,
    Receipt,
    RequestCompleted,
    SigningKey,
    check_receipt,
    issue_receipt,
    receipts,
    sign,
    state_exclusion,
    state_method,
)
from expunge.ledger.ledger import hash_entry
from expunge.ledger.merkle import build_nodes, inclusion_proof
from expunge.ledger.receipts import schema
from expunge.promise.certificate import Certificate
from expunge.promise.scope import NOT_COVERED
from expunge.promise.verification import verify
from tests import certificates
from tests.certificates import handling
from tests.test_ledger import (
    EACH,
    ENTRIES,
    HEAD,
    JOINT,
    LEDGER,
    NEW,
    OLD,
    STRANGER,
    request,
    shifted,
)
from tests.test_ledger_export import alternatives

PLACE = 11
PEM = LEDGER.keys.to_pem()
NODES = build_nodes(map(hash_entry, ENTRIES))
CERTIFICATES = {"churn": EACH, "credit": JOINT}


def receipt(
    entry: RequestCompleted | None = None,
    held: Mapping[str, Certificate] = CERTIFICATES,
    head: Head = HEAD,
    key: SigningKey = NEW,
) -> Receipt:
    """Return a receipt of the entry at ``PLACE``, whatever is said to stand there."""
    proof = inclusion_proof(NODES, PLACE, size=LEDGER.size)
    said = request(PLACE) if entry is None else entry
    return issue_receipt(
        said,
        held,
        handling=handling(held.values()),
        place=EntryProof(head, proof),
        key=key,
    )


def alone(certificate: Certificate) -> Receipt:
    """Return the receipt of a request about one model, the first of two entries."""
    entry = request(0, certificates={"churn": certificate.digest()})
    ledger = Ledger.empty(OLD.public).append(entry).append(ENTRIES[1])
    head, proof = ledger.head(OLD, ledger.day), (hash_entry(ENTRIES[1]),)
    return issue_receipt(
        entry,
        {"churn": certificate},
        handling=handling([certificate]),
        place=EntryProof(head, proof),
        key=OLD,
    )


# Not too deep for the parser, and too deep for what comes after it.
DEEP = '{"a":' * 64 + "1" + "}" * 64
RECEIPT = receipt()
TEXT = RECEIPT.to_json()


def resigned(**changes: Any) -> Receipt:
    """Return the receipt with changes, signed by the operator again."""
    return sign(RECEIPT.replace(**changes), NEW)


class TestStanding:
    @pytest.mark.parametrize("pem", [PEM, PEM.encode(), NEW.public.to_pem()])
    def test_with_nothing_but_a_key(self, pem: str | bytes) -> None:
        for text in (TEXT, TEXT.encode()):
            verdict = check_receipt(text, pem)
            assert verdict.valid, verdict.says
            assert f"it is signed by key {NEW.public.id}" in verdict.findings
            assert any("entry 11 of a ledger of 25" in f for f in verdict.findings)

    def test_says_what_is_promised_and_what_is_not(self) -> None:
        verdict = check_receipt(TEXT, PEM)
        assert f"request {PLACE:032x}" in verdict.says
        assert "made on 2023-11-11 and accepted on 2023-11-12, was" in verdict.says
        assert "answered on 2023-11-15, 27 days before its deadline" in verdict.says
        for name, certificate in CERTIFICATES.items():
            assert f"Model {name}: {verify(certificate).says}" in verdict.says
        assert verdict.not_covered[: len(receipts.NOT_COVERED)] == receipts.NOT_COVERED
        assert set(NOT_COVERED) < set(verdict.not_covered)
        assert len(set(verdict.not_covered)) == len(verdict.not_covered)
        assert all(sentence in verdict.says for sentence in verdict.not_covered)

    @pytest.mark.parametrize("certificate", certificates.ALL)
    def test_any_certificate(self, certificate: Certificate) -> None:
        verdict = check_receipt(alone(certificate).to_json(), OLD.public.to_pem())
        assert verdict.valid, verdict.says
        assert set(certificate.not_covered) < set(verdict.not_covered)
        nothing = "Nothing is promised" in verdict.says
        assert nothing == (certificate.status == "no promise")

    @pytest.mark.parametrize(
        ("days", "said"),
        [
            (2, "2 days AFTER its deadline of 2023-12-12."),
            (1, "1 day AFTER its deadline"),
            (0, "2023-12-12, on the day of its deadline"),
            (-1, "1 day before its deadline"),
        ],
    )
    def test_lateness_is_said(self, days: int, said: str) -> None:
        stated = request(0, day=shifted(request(0).deadline, days), certificates={})
        ledger = Ledger.empty(OLD.public).append(stated)
        head = ledger.head(OLD, ledger.day)
        late = issue_receipt(
            stated, {}, handling=handling(), place=EntryProof(head, ()), key=OLD
        )
        verdict = check_receipt(late.to_json(), PEM)
        assert verdict.valid
        assert said in verdict.says
        assert "Models changed: none" in verdict.says

    def test_later_head_will_do(self) -> None:
        ledger = LEDGER.append(request(25))
        grown = build_nodes(map(hash_entry, [*ENTRIES, request(25)]))
        later = issue_receipt(
            request(PLACE),
            CERTIFICATES,
            handling=handling(CERTIFICATES.values()),
            place=EntryProof(
                ledger.head(NEW, ledger.day), inclusion_proof(grown, PLACE, size=26)
            ),
            key=NEW,
        )
        assert check_receipt(later.to_json(), PEM).valid

    def test_proof_from_the_frontier_alone(self) -> None:
        # The newest entry's siblings are the peaks before it: no store is needed.
        entry = request(25, certificates={})
        ledger = LEDGER.append(entry)
        newest = issue_receipt(
            entry,
            {},
            handling=handling(),
            place=EntryProof(
                ledger.head(NEW, ledger.day), tuple(reversed(LEDGER.frontier.peaks))
            ),
            key=NEW,
        )
        assert check_receipt(newest.to_json(), PEM).valid

    def test_names_nobody(self) -> None:
        stated = json.loads(TEXT)
        assert set(stated["entry"]) == {
            *("accepted", "certificates", "deadline", "kind", "n_subjects"),
            *("day", "request", "sequence", "version", "submitted", "right", "regime"),
            *("outcome", "reason"),
        }
        assert set(stated["handling"]) == {
            *("basis", "destroyed", "backups_until", "retained", "retained_until"),
            *("copies", "extended", "notified", "guarantee", "kind", "version"),
            *("method", "exclusion", "excluded_until", "recipients"),
        }
        other = certificates.record(1e-5)
        for held in stated["certificates"].values():
            assert held["commitment"] == certificates.record().commitment()
            assert held["commitment"] != other.commitment()

    def test_says_how_and_for_how_long(self) -> None:
        """By its certificates, and never by what a fallback did to one request."""
        bare = certificates.UNPROTECTED
        for found, held in (
            ("no promise", [EACH, bare]),
            ("certified", [EACH]),
            ("excluded only", []),
        ):
            assert state_method("until readmitted", held) == found
        again = EACH.replace(mechanism="retrain")
        assert state_method("", [again]) == "retrained"
        assert state_method("", [again, EACH]) == "certified"
        assert state_method("", []) == ""
        assert (
            state_exclusion("erase", "done", until="2030-01-01")
            == "until the day stated"
        )
        assert state_exclusion("restrict", "done", until="2030-01-01") == "until lifted"
        assert state_exclusion("hold", "partly") == "until readmitted"
        ends = (("lift", "done"), ("rectify", "done"), ("erase", "refused"))
        for right, outcome in ends:
            assert not state_exclusion(right, outcome, until="2030-01-01")
        stated = {
            "exclusion": "until the day stated",
            "excluded_until": "2030-01-01",
            "recipients": ("Mail Ltd",),
        }
        told = RECEIPT.handling.replace(**stated)
        says = check_receipt(resigned(handling=told).to_json(), PEM).says
        assert "Excluded from all later training until 2030-01-01" in says
        assert "The operator tells these recipients of the data: Mail Ltd." in says
        assert "Method: certified." in says
        for wrong in (
            {"excluded_until": "2030-01-01"},
            {"exclusion": "until the day stated"},
        ):
            with pytest.raises(InvalidInput, match="a day without its reason"):
                RECEIPT.handling.replace(**wrong)
        with pytest.raises(InvalidInput, match="its method is not that"):
            RECEIPT.replace(handling=RECEIPT.handling.replace(method="exact"))

    def test_survives_reading(self) -> None:
        assert Receipt.from_json(TEXT) == RECEIPT
        assert Receipt.from_json(TEXT.encode()).to_json() == TEXT
        assert rfc8785.dumps(json.loads(TEXT)) == TEXT.encode()
        assert RECEIPT.head == HEAD
        assert dict(RECEIPT.certificates) == CERTIFICATES


class TestTampering:
    @pytest.mark.slow
    @pytest.mark.parametrize(("made", "every"), [(alone(EACH), 1), (RECEIPT, 23)])
    def test_every_byte(self, made: Receipt, every: int) -> None:
        data = made.to_json().encode()
        assert check_receipt(data, PEM).valid
        for i in range(0, len(data), every):
            for other in alternatives(data[i]):
                forged = b"%b%c%b" % (data[:i], other, data[i + 1 :])
                assert not check_receipt(forged, PEM).valid, (i, other)

    @pytest.mark.parametrize(
        "text",
        [
            *("", "{}", "null", "[]", '"receipt"', TEXT[:-1], "\ud800", "[" * 100_000),
            *(b"\xff", TEXT.encode("utf-16"), TEXT.replace("25", "25.0")),
            TEXT.replace('"n_subjects":1', '"n_subjects":1,"n_subjects":1'),
            TEXT.replace('"objective":{', '"objective":{"a":' + DEEP + ","),
        ],
    )
    def test_other_texts_are_refused(self, text: str | bytes) -> None:
        verdict = check_receipt(text, PEM)
        assert "not a receipt as it was issued" in verdict.says
        assert verdict.not_covered == ()

    @pytest.mark.parametrize("ending", ["\n", "\r\n"])
    def test_a_newline_at_the_end_is_no_matter(self, ending: str) -> None:
        assert check_receipt(TEXT + ending, PEM) == check_receipt(TEXT, PEM)

    @pytest.mark.parametrize(
        "text",
        [
            *(TEXT + "\n\n", TEXT + "\r", " " + TEXT),
            b"\xef\xbb\xbf" + TEXT.encode(),
            json.dumps(json.loads(TEXT), indent=2),
            json.dumps(dict(reversed(json.loads(TEXT).items()))),
        ],
    )
    def test_saved_again_is_told_from_altered(self, text: str | bytes) -> None:
        verdict = check_receipt(text, PEM)
        assert verdict.resaved and not verdict.valid
        assert "what it says is what was signed" in verdict.says
        assert verdict.findings == verdict.not_covered == ()
        data = text if isinstance(text, bytes) else text.encode()
        altered = check_receipt(data.replace(b"erase", b"hold"), PEM)
        assert not altered.resaved and not altered.valid

    def test_question_mark_does_not_stand_for_anything(self) -> None:
        # A character that cannot be encoded must not become another one.
        asked = EACH.replace(mechanism="what?")
        text = alone(asked).to_json()
        assert check_receipt(text, PEM).valid
        assert not check_receipt(text.replace("what?", "what\ud800"), PEM).valid


class TestForgery:
    """The operator's key is at hand, or another; still it must not pass."""

    def test_other_keys_are_refused(self) -> None:
        stranger = sign(RECEIPT, STRANGER)
        assert "the keys given are" in check_receipt(stranger.to_json(), PEM).says
        renamed = stranger.replace(key=NEW.public.id).to_json()
        assert "is not signed by key" in check_receipt(renamed, PEM).says
        assert not check_receipt(TEXT, STRANGER.public.to_pem()).valid
        assert not check_receipt(TEXT, OLD.public.to_pem()).valid

    def test_head_of_another_key_is_refused(self) -> None:
        for head in (sign(HEAD, STRANGER), sign(HEAD, OLD)):
            says = check_receipt(resigned(head=head).to_json(), PEM).says
            assert "its head is not signed by key" in says

    @pytest.mark.parametrize(
        "change",
        [
            {"entry": request(PLACE, n_subjects=2)},
            {"entry": request(PLACE, deadline=shifted(request(PLACE).deadline, 1))},
            {"entry": request(PLACE + 1)},
            {"proof": RECEIPT.proof[1:]},
            {"proof": (*RECEIPT.proof, "00" * 32)},
            {"proof": ("00" * 32, *RECEIPT.proof[1:])},
            {"head": sign(HEAD.replace(root="00" * 32), NEW)},
            {"head": sign(HEAD.replace(size=PLACE), NEW)},
            {"head": sign(HEAD.replace(size=PLACE + 1), NEW)},
        ],
    )
    def test_entry_must_be_in_the_ledger(self, change: dict[str, Any]) -> None:
        # By the key alone, which then signs heads of any size.
        says = check_receipt(resigned(**change).to_json(), NEW.public.to_pem()).says
        assert "the proof does not lead from the entry to the head" in says

    def test_head_must_not_be_older_than_the_entry(self) -> None:
        early = sign(HEAD.replace(day=shifted(request(PLACE).day, -1)), NEW)
        says = check_receipt(resigned(head=early).to_json(), PEM).says
        assert "the head is older than the entry" in says

    def test_certificates_must_be_those_of_the_ledger(self) -> None:
        swapped = {"churn": JOINT, "credit": EACH}
        verdict = check_receipt(resigned(certificates=swapped).to_json(), PEM)
        assert len(verdict.failures) == 2
        assert "churn: the certificate is not the one in the ledger" in verdict.says
        with pytest.raises(InvalidInput, match="it needs one for each"):
            receipt(held={"churn": EACH})

    def test_certificate_must_stand_itself(self) -> None:
        boast = alone(EACH.replace(epsilon=0.1))
        says = check_receipt(boast.to_json(), PEM).says
        assert "churn: radius_budget is" in says

    def test_refused_value_is_not_repeated(self) -> None:
        with pytest.raises(InvalidInput) as raised:
            Receipt.from_json(TEXT.replace('"size":25', '"size":-1'))
        assert "Receipt: head.size=-1; it must be an integer" in str(raised.value)
        assert len(str(raised.value)) < 200


def test_schema_accepts_what_the_library_reads() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    for made in (RECEIPT, *map(alone, certificates.ALL)):
        validator.validate(json.loads(made.to_json()))
    names = sorted(json.loads(TEXT))
    assert sorted(schema()["properties"]) == sorted(schema()["required"]) == names
    for part in ("entry", "head", "handling"):
        names = sorted(json.loads(TEXT)[part])
        stated = schema()["properties"][part]
        assert sorted(stated["properties"]) == sorted(stated["required"]) == names


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"kind": "head"},
        {"proof": ["00"]},
        {"key": "AB" * 32},
        {"subject": "Ada"},
        {"certificates": {"Ada Lovelace": json.loads(EACH.to_json())}},
        {"certificates": {"churn": {}}},
        {"head": {}},
    ],
)
def test_schema_refuses_what_the_library_refuses(change: dict[str, Any]) -> None:
    stated = json.loads(TEXT) | change
    assert not jsonschema.Draft202012Validator(schema()).is_valid(stated)
    with pytest.raises(InvalidInput):
        Receipt.from_json(json.dumps(stated, sort_keys=True, separators=(",", ":")))


def test_offline_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "receipt.json").write_text(TEXT)
    (tmp_path / "key.pem").write_text(PEM)
    program = (
        "from pathlib import Path\n"
        "from expunge.ledger import check_receipt\n"
        "read = lambda name: Path(name).read_bytes()\n"
        "assert check_receipt(read('receipt.json'), read('key.pem')).valid\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
