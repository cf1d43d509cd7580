# SPDX-License-Identifier: Apache-2.0
"""``expunge verify``: what was touched is not valid; the rest is put into words."""

import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest

from expunge.cli.output import DATA_MISSING, DONE, NOT_VALID, WRONG_INPUT
from expunge.ledger import EntryProof, Ledger, ReleaseMade, export, issue_receipt, sign
from expunge.ledger.ledger import hash_entry
from expunge.ledger.merkle import build_nodes, inclusion_proof
from tests import certificates
from tests.calling import call
from tests.certificates import handling
from tests.test_ledger import ENTRIES, NEW, OLD, STRANGER, request
from tests.test_ledger_export import DOCUMENTS, EXPORT
from tests.test_receipt import CERTIFICATES, PEM, PLACE, receipt

RECEIPT = receipt().to_json()


def of_another_ledger() -> str:
    """Return a valid receipt, from a ledger that the others were not shown."""
    entries = [*ENTRIES]
    entries[2] = ReleaseMade(
        sequence=2, day=entries[2].day, model="shown", certificate="0" * 64
    )
    ledger = reduce(Ledger.append, entries, Ledger.empty(OLD.public))
    head = ledger.head(NEW, ledger.day)
    proof = inclusion_proof(
        build_nodes(map(hash_entry, entries)), PLACE, size=ledger.size
    )
    held = CERTIFICATES
    return issue_receipt(
        request(PLACE),
        held,
        handling=handling(held.values()),
        place=EntryProof(head, proof),
        key=NEW,
    ).to_json()


Keep = Callable[[str, str | bytes], Path]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Return a function that writes a file and returns its path."""

    def keep(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        return path

    return keep


@pytest.fixture
def key(keep: Keep) -> Path:
    return keep("public.pem", PEM)


class TestVerify:
    def test_receipt_is_put_into_plain_words(self, keep: Keep, key: Path) -> None:
        done = call("verify", keep("receipt.json", RECEIPT), "--key", key)
        assert done.code == DONE
        words = done.words
        assert words.startswith("VALID: ")
        assert "was answered on 2023-11-15, 27 days before" in words
        assert "Model churn: The operator states: Up to noise that hides" in words
        assert "It holds provided that - the budget" in words
        assert "It says nothing about - who was removed" in words
        assert max(map(len, done.out.splitlines()[1:])) <= 80

    @pytest.mark.parametrize("ending", ["\n", "\r\n"])
    def test_line_ending_of_a_file_does_no_harm(
        self, keep: Keep, key: Path, ending: str
    ) -> None:
        assert call("verify", keep("r", RECEIPT + ending), "--key", key).code == DONE
        again = keep("r", RECEIPT + ending + ending)
        assert call("verify", again, "--key", key).code == NOT_VALID

    @pytest.mark.parametrize(
        "content",
        [
            RECEIPT.replace('"n_subjects":1', '"n_subjects":2'),
            RECEIPT.replace("churn", "chrun"),
            RECEIPT[:-1],
            RECEIPT[: len(RECEIPT) // 2],
            " " + RECEIPT,
            sign(receipt(), STRANGER).to_json(),
            export(DOCUMENTS[1:]),
            EXPORT.replace(b"churn", b"chern", 1),
            EXPORT[:-1],
            certificates.EACH.to_json().replace('"epsilon":1,', '"epsilon":0.1,'),
            certificates.EACH.to_json().replace('"certified"', '"certain"'),
            "",
            "{}",
            "[" * 10_000,
            b"\xff\xfe\x00{",
        ],
    )
    def test_what_was_touched_is_not_valid(
        self, keep: Keep, key: Path, content: str | bytes
    ) -> None:
        file = keep("file", content)
        done = call("verify", file, "--key", key)
        assert done.code == NOT_VALID
        assert done.out.startswith("NOT VALID: ")
        found = call("verify", file, "--key", key, "--json")
        assert found.code == NOT_VALID
        assert found.json["valid"] is False
        assert found.json["failures"]

    def test_other_key_is_named(self, keep: Keep) -> None:
        other = keep("other.pem", STRANGER.public.to_pem())
        done = call("verify", keep("r", RECEIPT), "--key", other)
        assert done.code == NOT_VALID
        assert STRANGER.public.id in done.out

    @pytest.mark.parametrize("content", ["", "no key", RECEIPT, b"\xff" * 9])
    def test_file_without_a_key_is_refused(
        self, keep: Keep, content: str | bytes
    ) -> None:
        done = call("verify", keep("r", RECEIPT), "--key", keep("key", content))
        assert done.code == WRONG_INPUT
        assert "no public key in the PEM text" in done.err

    def test_what_is_signed_needs_a_key(self, keep: Keep) -> None:
        for content in (RECEIPT, EXPORT):
            done = call("verify", keep("file", content))
            assert done.code == WRONG_INPUT
            assert "--key" in done.err

    def test_files_that_are_not_there(self, keep: Keep, key: Path) -> None:
        file = keep("r", RECEIPT)
        for words in (
            ("nowhere", "--key", key),
            (file, "--key", "nowhere"),
            (file, "--key", key, "--seen", "nowhere"),
            (file, "--key", key, "--record", "nowhere"),
        ):
            done = call("verify", *words)
            assert done.code == DATA_MISSING
            assert "nowhere does not exist" in done.err

    def test_export_against_what_others_hold(self, keep: Keep, key: Path) -> None:
        whole, cut = keep("whole", EXPORT), keep("cut", export(DOCUMENTS[:24]))
        alone = call("verify", cut, "--key", key)
        assert alone.code == DONE
        assert "does not show that nothing was cut off" in alone.words
        for seen in (whole, keep("r", RECEIPT + "\n")):
            assert call("verify", whole, "--key", key, "--seen", seen).code == DONE
            done = call("verify", cut, "--key", key, "--seen", seen)
            assert done.code == NOT_VALID
            assert "were cut off" in done.words

    def test_receipt_against_exports(self, keep: Keep, key: Path) -> None:
        file, whole = keep("r", RECEIPT), keep("whole", EXPORT)
        cut = keep("cut", export(DOCUMENTS[:24]))
        seen: list[str | Path] = ["--seen", whole, "--seen", cut]
        done = call("verify", file, "--key", key, *seen)
        assert done.code == DONE
        words = done.words
        assert f"{whole} is the same ledger" in words
        assert f"{cut} ends before the receipt: it could not be compared" in words
        other = keep("other", of_another_ledger())
        assert call("verify", other, "--key", key).code == DONE
        done = call("verify", other, "--key", key, *seen)
        assert done.code == NOT_VALID
        assert f"{whole} is another ledger" in done.words

    def test_what_is_held_against_it_must_stand_itself(
        self, keep: Keep, key: Path
    ) -> None:
        whole, bad = keep("whole", EXPORT), keep("bad", EXPORT[:-1])
        for file in (whole, keep("r", RECEIPT)):
            done = call("verify", file, "--key", key, "--seen", bad)
            assert done.code == WRONG_INPUT
            assert "is not valid itself" in done.err
        tampered = keep("t", RECEIPT.replace('"n_subjects":1', '"n_subjects":2'))
        for seen in (tampered, key):
            done = call("verify", whole, "--key", key, "--seen", seen)
            assert done.code == WRONG_INPUT

    def test_certificate_needs_no_key_and_takes_a_record(self, keep: Keep) -> None:
        file = keep("certificate.json", certificates.EACH.to_json())
        assert call("verify", file).code == DONE
        record = keep("record.json", certificates.record().to_json())
        done = call("verify", file, "--record", record, "--json")
        assert done.code == DONE
        assert "the record is the one committed to" in done.json["findings"]
        other = keep("other.json", certificates.record(0.5).to_json())
        assert call("verify", file, "--record", other).code == NOT_VALID
        broken = call("verify", file, "--record", keep("broken", "{}"))
        assert broken.code == WRONG_INPUT
        assert "Record: version None" in broken.err

    def test_no_promise_is_said_to_be_none(self, keep: Keep) -> None:
        done = call("verify", keep("c", certificates.BARE.to_json()))
        assert done.code == DONE
        assert "Nothing is promised" in done.out
        assert "provided that" not in done.out

    def test_options_that_do_not_belong_are_refused(
        self, keep: Keep, key: Path
    ) -> None:
        certificate = keep("c", certificates.EACH.to_json())
        file, record = keep("r", RECEIPT), keep("record", "{}")
        assert call("verify", certificate, "--seen", file).code == WRONG_INPUT
        done = call("verify", file, "--key", key, "--record", record)
        assert done.code == WRONG_INPUT
        done = call("verify", file, "--key", key, "--seen", file)
        assert done.code == WRONG_INPUT
        assert "is not a ledger export" in done.err
        done = call("verify", certificate, certificate, "--record", record)
        assert done.code == WRONG_INPUT
        assert "--record with 2 files" in done.err

    def test_each_of_several_files_has_a_verdict(self, keep: Keep, key: Path) -> None:
        good, export = keep("r", RECEIPT), keep("ledger", EXPORT)
        done = call("verify", good, export, "--key", key)
        assert done.code == DONE
        assert done.out.splitlines() == [
            f"VALID: {good}, receipt",
            f"VALID: {export}, ledger export",
        ]
        bad = keep("bad", RECEIPT.replace('"n_subjects":1', '"n_subjects":2'))
        done = call("verify", good, bad, export, "--key", key)
        assert done.code == NOT_VALID
        first, second, third = done.out.splitlines()
        assert first.startswith("VALID") and third.startswith("VALID")
        assert second.startswith(f"NOT VALID: {bad}, receipt: ")

    def test_file_that_cannot_be_checked_hides_no_other(
        self, keep: Keep, key: Path
    ) -> None:
        good, bad = keep("r", RECEIPT), keep("bad", RECEIPT[:-1])
        done = call("verify", "nowhere", good, "--key", key)
        assert done.code == DATA_MISSING
        assert done.out.splitlines() == [
            "NOT CHECKED: nowhere: does not exist; check the path",
            f"VALID: {good}, receipt",
        ]
        assert done.err.endswith("expunge: 1 of 2 files could not be checked\n")
        assert call("verify", "nowhere", bad, "--key", key).code == NOT_VALID
        unsigned = keep("c", certificates.EACH.to_json())
        done = call("verify", good, unsigned)
        assert done.code == WRONG_INPUT
        assert f"NOT CHECKED: {good}: is signed; give" in done.out
        assert f"VALID: {unsigned}, certificate" in done.out

    def test_several_files_as_json(self, keep: Keep, key: Path) -> None:
        good, bad = keep("r", RECEIPT), keep("bad", RECEIPT[:-1])
        one = call("verify", good, "--key", key, "--json").json
        done = call("verify", good, bad, "nowhere", "--key", key, "--json")
        assert done.code == NOT_VALID
        first, second, third = done.json["files"]
        assert done.json["valid"] is False
        assert first == {"file": str(good), **one}
        assert (second["file"], second["valid"]) == (str(bad), False)
        assert (third["valid"], third["code"]) == (None, DATA_MISSING)
        assert "nowhere does not exist" in third["error"]
        both = call("verify", good, good, "--key", key, "--json")
        assert both.json["valid"] is True

    def test_neither_registry_nor_database_is_needed(
        self, keep: Keep, key: Path
    ) -> None:
        file = keep("r", RECEIPT)
        code = (
            "import sys; sys.modules.update(dict.fromkeys(['sqlalchemy', 'pyarrow']))"
            f"; sys.argv = ['expunge', 'verify', {str(file)!r}, '--key', {str(key)!r}]"
            "; from expunge.cli import main; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True
        )
        assert done.returncode == DONE, done.stderr
        assert done.stdout.startswith("VALID")
