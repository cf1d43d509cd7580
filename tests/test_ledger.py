# SPDX-License-Identifier: Apache-2.0
"""Ledgers: entries come in order, heads sign for all of them, and nobody is named."""

import json
import re
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest

from expunge.exceptions import InvalidInput
from expunge.ledger import (
    CanonicalDocument,
    Entry,
    Head,
    HoldEnded,
    KeyRotated,
    Ledger,
    ModelRegistered,
    ModelRemoved,
    RecordsExpired,
    ReleaseMade,
    ReleasesSuperseded,
    ReleaseWithdrawn,
    RequestCompleted,
    RequestExtended,
    Restored,
    SigningKey,
    TrailSealed,
    check_consistency,
    entries,
    read_entry,
    sign,
)
from expunge.ledger.documents import DAY, day_of, midnight
from expunge.ledger.ledger import hash_entry
from expunge.ledger.merkle import build_nodes, consistency_proof
from tests import certificates

START = "2023-11-14"
OLD, NEW, STRANGER = (SigningKey(bytes([i]) * 32) for i in (1, 2, 3))
EACH, JOINT = certificates.EACH, certificates.JOINT
ROTATION = 20


def shifted(day: str, days: int) -> str:
    """Return the day that comes so many days later."""
    return day_of(midnight(day) + days * DAY)


def request(place: int, **changes: Any) -> RequestCompleted:
    """Return the entry of a request about one person in two models."""
    stated: dict[str, Any] = {
        "sequence": place,
        "day": shifted(START, place // 10),
        "request": f"{place:032x}",
        "certificates": {"churn": EACH.digest(), "credit": JOINT.digest()},
        "n_subjects": 1,
        "submitted": shifted(START, -3),
        "accepted": shifted(START, -2),
        "deadline": shifted(START, 28),
        "right": "erase",
        "regime": "gdpr",
        "outcome": "done",
        "reason": "",
    }
    return RequestCompleted(**stated | changes)


def entry(sequence: int) -> Entry:
    """Return some entry for this place; a rotation at ``ROTATION``."""
    today = shifted(START, sequence // 10)
    stamp: dict[str, Any] = {"sequence": sequence, "day": today}
    one, other = EACH.digest(), JOINT.digest()
    if sequence == ROTATION:
        return sign(KeyRotated(**stamp, public=NEW.public.raw.hex()), OLD)
    makers: list[Any] = [
        lambda: ModelRegistered(**stamp, model="churn", certificate=one),
        lambda: request(sequence),
        lambda: ReleaseMade(**stamp, model="credit", certificate=other),
        lambda: ReleasesSuperseded(
            **stamp, model="credit", certificates=(one, other), by=other
        ),
        lambda: Restored(**stamp, taken=shifted(START, -1), n_replayed=2),
    ]
    made: Entry = makers[sequence % 5]()
    return made


RARER = (ModelRemoved, ReleaseWithdrawn)


def rarer_entries() -> list[Entry]:
    """Return an entry of each kind that ``entry`` does not make."""
    stamp: dict[str, Any] = {"sequence": 0, "day": START}
    asked = stamp | {"request": f"{7:032x}"}
    later = shifted(START, 90)
    return [
        *(kind(**stamp, model="credit", certificate=EACH.digest()) for kind in RARER),
        RequestExtended(**asked, reason="complex", notified=START, deadline=later),
        HoldEnded(**asked),
        TrailSealed(**stamp, n_lines=3, last=EACH.digest()),
        RecordsExpired(**stamp, requests=START, exclusions="", n_lines=3),
    ]


def written(n: int, every: int = 5) -> Iterator[tuple[CanonicalDocument, Ledger]]:
    """Yield entries, a head after every few and the last, and the ledger after each."""
    ledger = Ledger.empty(OLD.public)
    for sequence in range(n):
        ledger = ledger.append(entry(sequence))
        yield entry(sequence), ledger
        if sequence % every == every - 1 or sequence == n - 1:
            yield ledger.head(signer(ledger), shifted(ledger.day, 1)), ledger


def signer(ledger: Ledger) -> SigningKey:
    return OLD if ledger.keys.current == OLD.public else NEW


ENTRIES = [entry(sequence) for sequence in range(25)]
KINDS = [*rarer_entries(), *map(entry, (0, 1, 2, 3, 4, ROTATION))]
LEDGER = reduce(Ledger.append, ENTRIES, Ledger.empty(OLD.public))
HEAD = LEDGER.head(NEW, LEDGER.day)


class TestEntries:
    def test_no_kind_is_left_out_here(self) -> None:
        assert {document.kind for document in KINDS} == {*entries.KINDS}

    @pytest.mark.parametrize(
        "document", [*KINDS, HEAD], ids=lambda document: document.kind
    )
    def test_survives_reading(self, document: Entry | Head) -> None:
        text = document.to_json()
        read = Head.from_json if isinstance(document, Head) else read_entry
        assert read(text) == read(text.encode()) == document
        assert read(text).to_json() == text

    @pytest.mark.parametrize(
        "document", [*KINDS, HEAD], ids=lambda document: document.kind
    )
    def test_other_spellings_are_refused(self, document: Entry | Head) -> None:
        text = document.to_json()
        read = Head.from_json if isinstance(document, Head) else read_entry
        shuffled = json.dumps(dict(reversed(json.loads(text).items())))
        for other in (text + "\n", " " + text, shuffled, text.replace(":", ": ")):
            with pytest.raises(InvalidInput, match="canonical"):
                read(other)
            with pytest.raises(InvalidInput, match="canonical"):
                read(other.encode())
        for encoding in ("utf-16", "utf-8-sig"):
            with pytest.raises(InvalidInput):
                read(text.encode(encoding))

    def test_every_kind_is_in_the_table(self) -> None:
        assert {type(document) for document in KINDS} == set(entries.KINDS.values())
        assert all(entries.KINDS[document.kind] is type(document) for document in KINDS)

    def test_unknown_kind_field_or_version_is_refused(self) -> None:
        stated = json.loads(ENTRIES[0].to_json())
        for change in (
            {"kind": "model lost"},
            {"kind": ["head"]},
            {"kind": None},
            {"subject": "Ada"},
            {"version": 2},
        ):
            with pytest.raises(InvalidInput):
                read_entry(json.dumps(stated | change, sort_keys=True))

    @pytest.mark.parametrize(
        "change",
        [
            {"request": "ada@example.org"},
            {"request": "4711"},
            {"certificates": {"Ada Lovelace": EACH.digest()}},
            {"certificates": {"ada@example.org": EACH.digest()}},
            {"certificates": {"churn": "Ada"}},
            {"n_subjects": -1},
            {"day": 19675},
            {"day": 1_700_000_000_000},
            {"day": None},
            {"day": "2023-11-14T22:13:20"},
            {"day": "2023-11-14 22:13"},
            {"day": "20231114"},
            {"day": "2023-W46-2"},
            {"day": "2023-11-31"},
            {"day": "2023-11-14\n"},
            {"day": "\u0662023-11-14"},
            {"day": "1969-12-31"},
            {"day": "10000-01-01"},
            {"sequence": -1},
            {"accepted": shifted(START, 50)},
            {"deadline": shifted(START, -4)},
            {"submitted": shifted(START, -1)},
            {"right": "forget"},
            {"regime": "Ada's law"},
            {"outcome": "Ada is gone"},
            {"outcome": "refused"},
            {"outcome": "refused", "reason": "Ada asked too often"},
            {"reason": "Ada"},
        ],
    )
    def test_fields_keep_to_their_domain(self, change: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            request(1, **change)

    def test_no_field_has_room_for_a_person(self) -> None:
        # Free text nowhere: numbers, hashes, names of models, the kind, codes.
        allowed = re.compile(r"[0-9a-f]{32,128}|[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
        for document in KINDS:
            stated = json.loads(document.to_json())
            assert stated.pop("kind") in entries.KINDS
            for value in leaves(stated):
                assert isinstance(value, int) or allowed.fullmatch(value or "none")
            assert {*document.__struct_fields__} == {*stated}

    def test_day_of_a_time(self) -> None:
        assert day_of(1_700_000_000_000) == START
        assert day_of(midnight(START)) == day_of(midnight(START) + DAY - 1) == START
        assert day_of(midnight(START) - 1) == "2023-11-13"
        assert day_of(0) == "1970-01-01" and midnight("1970-01-01") == 0
        assert day_of(253_402_300_799_999) == "9999-12-31"
        for time in (-1, 253_402_300_800_000):
            with pytest.raises(InvalidInput, match="set the clock"):
                day_of(time)

    def test_deep_nesting_is_refused(self) -> None:
        deep = '{"kind":"restored","taken":' + "[" * 900 + "]" * 900 + "}"
        for depth in (deep, deep.replace("[", "[" * 100).replace("]", "]" * 100)):
            with pytest.raises(InvalidInput):
                read_entry(depth)


def leaves(value: Any) -> Iterator[Any]:
    """Yield everything in a JSON value that is not a container, keys included."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


class TestGrowth:
    def test_ledgers_are_values(self) -> None:
        again = reduce(Ledger.append, ENTRIES, Ledger.empty(OLD.public))
        assert again == LEDGER
        assert LEDGER.size == 25
        assert Ledger(LEDGER.frontier, LEDGER.keys, LEDGER.day) == LEDGER

    def test_only_the_next_entry_is_taken(self) -> None:
        for sequence, words in ((24, "inserted or moved"), (26, "removed or moved")):
            with pytest.raises(InvalidInput, match=words):
                LEDGER.append(request(sequence, day=LEDGER.day))
        with pytest.raises(InvalidInput, match="is older than the one before"):
            LEDGER.append(request(25, day=shifted(LEDGER.day, -1)))
        assert LEDGER.append(request(25, day=LEDGER.day)).size == 26

    def test_head_is_signed_by_the_key_in_force(self) -> None:
        before = reduce(Ledger.append, ENTRIES[:ROTATION], Ledger.empty(OLD.public))
        after = before.append(ENTRIES[ROTATION])
        assert before.head(OLD, before.day).signed_by(OLD.public)
        assert after.head(NEW, after.day).signed_by(NEW.public)
        for ledger, key in ((before, NEW), (after, OLD), (after, STRANGER)):
            with pytest.raises(InvalidInput, match="names key"):
                ledger.head(key, ledger.day)

    def test_old_head_stays_verifiable_after_a_rotation(self) -> None:
        before = reduce(Ledger.append, ENTRIES[:ROTATION], Ledger.empty(OLD.public))
        head = before.head(OLD, before.day)
        assert head.signed_by(LEDGER.keys.at(head.size))

    def test_head_is_not_older_than_its_entries(self) -> None:
        with pytest.raises(InvalidInput, match="before its last entry"):
            LEDGER.head(NEW, shifted(LEDGER.day, -1))

    def test_rotation_needs_the_key_in_force(self) -> None:
        stamp: dict[str, Any] = {"sequence": 25, "day": LEDGER.day}
        unsigned = KeyRotated(**stamp, public=STRANGER.public.raw.hex())
        assert LEDGER.append(sign(unsigned, NEW)).keys.current == STRANGER.public
        for refused in (unsigned, sign(unsigned, OLD), sign(unsigned, STRANGER)):
            with pytest.raises(InvalidInput, match="without the signature"):
                LEDGER.append(refused)
        moved = sign(unsigned.replace(day=START), NEW).replace(day=LEDGER.day)
        with pytest.raises(InvalidInput, match="without the signature"):
            LEDGER.append(moved)
        back = KeyRotated(**stamp, public=OLD.public.raw.hex())
        with pytest.raises(InvalidInput, match="brings a retired key back"):
            LEDGER.append(sign(back, NEW))

    def test_signature_of_one_kind_is_none_of_another(self) -> None:
        # The kind is among the bytes that are signed, and so is the key's name.
        assert b'"kind":"head"' in HEAD.payload()
        assert b'"kind":"key rotated"' in KINDS[-1].to_json().encode()
        assert b'"signature"' not in HEAD.payload()

    def test_signature_under_another_name_is_refused(self) -> None:
        named = HEAD.replace(key=OLD.public.id)
        disguised = named.replace(signature=NEW.sign(named.payload()).hex())
        assert not disguised.signed_by(NEW.public)
        assert not disguised.signed_by(OLD.public)

    def test_state_does_not_grow_with_the_ledger(self) -> None:
        assert len(LEDGER.frontier.peaks) == LEDGER.size.bit_count()


class TestTwoHeads:
    SMALL = reduce(Ledger.append, ENTRIES[:7], Ledger.empty(OLD.public))
    EARLY = SMALL.head(OLD, SMALL.day)
    PEM = LEDGER.keys.to_pem()
    PROOF = consistency_proof(build_nodes(map(hash_entry, ENTRIES)), 7, new=25)

    def test_growth_is_proved_without_entries(self) -> None:
        verdict = check_consistency(
            HEAD, self.EARLY, proof=self.PROOF, public_pem=self.PEM
        )
        assert verdict.valid, verdict.says
        assert "grew from 7 to 25 entries and changed none" in verdict.says

    def test_rewritten_past_is_found(self) -> None:
        rewritten = [ENTRIES[0], request(1, n_subjects=2), *ENTRIES[2:]]
        other = reduce(Ledger.append, rewritten, Ledger.empty(OLD.public))
        proof = consistency_proof(build_nodes(map(hash_entry, rewritten)), 7, new=25)
        verdict = check_consistency(
            other.head(NEW, other.day), self.EARLY, proof=proof, public_pem=self.PEM
        )
        assert verdict.failures == ("not so: the first 7 entries of both are the same",)

    def test_foreign_signature_is_found(self) -> None:
        forged = sign(HEAD, STRANGER)
        verdict = check_consistency(
            forged, self.EARLY, proof=self.PROOF, public_pem=self.PEM
        )
        assert not verdict.valid
        assert "signed by key" in verdict.says
        renamed = forged.replace(key=NEW.public.id)
        assert not check_consistency(
            renamed, self.EARLY, proof=self.PROOF, public_pem=self.PEM
        ).valid

    def test_time_does_not_run_backwards(self) -> None:
        late = sign(self.EARLY.replace(day=shifted(HEAD.day, 1)), OLD)
        verdict = check_consistency(HEAD, late, proof=self.PROOF, public_pem=self.PEM)
        assert "not the earlier one" in verdict.says
        assert not verdict.valid
