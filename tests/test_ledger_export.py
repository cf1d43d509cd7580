# SPDX-License-Identifier: Apache-2.0
"""Exports: whatever is done to one is found, and the entry is named."""

from collections.abc import Sequence
from functools import reduce

import pytest

from expunge.exceptions import InvalidInput
from expunge.ledger import (
    CanonicalDocument,
    Entry,
    ExportVerdict,
    Head,
    KeyRotated,
    Ledger,
    check_export,
    export,
    sign,
)
from tests.test_ledger import (
    NEW,
    OLD,
    ROTATION,
    STRANGER,
    entry,
    request,
    shifted,
    written,
)

N = 50
DOCUMENTS, STATES = zip(*written(N), strict=True)
EXPORT = export(DOCUMENTS)
PEM = OLD.public.to_pem()
BOTH = STATES[-1].keys.to_pem()
HEADS = [document for document in DOCUMENTS if isinstance(document, Head)]


def checked(documents: Sequence[CanonicalDocument], *seen: Head) -> ExportVerdict:
    return check_export(export(documents), PEM, seen=seen)


def place(sequence: int) -> int:
    """Return the line of an entry."""
    return DOCUMENTS.index(entry(sequence))


def alternatives(byte: int) -> set[int]:
    """Return other values of a byte: bits flipped, a letter for a digit and back."""
    if chr(byte).isdigit():
        return {byte ^ 1, byte ^ 0x80, ord("a")}
    if chr(byte).isalpha():
        return {byte ^ 1, byte ^ 0x20, ord("1")}
    return {byte ^ 1, byte ^ 0x20, byte ^ 0x80}


class TestWhole:
    @pytest.mark.parametrize("pem", [PEM, BOTH, BOTH.encode()])
    def test_stands_and_says_what_that_does_not_show(self, pem: str | bytes) -> None:
        for lines in (EXPORT, EXPORT.decode()):
            verdict = check_export(lines, pem, seen=HEADS)
            assert verdict.valid, verdict.says
            assert verdict.ledger == STATES[-1]
            assert "All 50 entries" in verdict.says
            assert "compare with a later head" in verdict.says
            assert f"{len(HEADS)} heads from elsewhere agree" in verdict.findings

    def test_continues_where_an_earlier_one_ended(self) -> None:
        first = check_export(export(DOCUMENTS[:24]), PEM)
        assert first.valid
        assert first.ledger.size == 20
        second = check_export(export(DOCUMENTS[24:]), PEM, since=first.ledger)
        assert second.valid
        assert second.ledger == STATES[-1]
        assert not check_export(export(DOCUMENTS[24:]), PEM).valid
        assert not check_export(export(DOCUMENTS[25:]), PEM, since=first.ledger).valid
        assert check_export(b"", PEM, since=STATES[-1]).valid

    def test_head_from_elsewhere_is_held_against_the_start(self) -> None:
        begun = STATES[DOCUMENTS.index(HEADS[3])]
        lines = EXPORT[len(export(DOCUMENTS[: DOCUMENTS.index(HEADS[3]) + 1])) :]
        assert check_export(lines, PEM, since=begun, seen=HEADS[3:4]).valid
        other = sign(HEADS[3].replace(root=HEADS[2].root), OLD)
        says = check_export(lines, PEM, since=begun, seen=[other]).says
        assert "a head from elsewhere disagrees: the head over 20" in says

    def test_what_cannot_be_compared_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="began with key"):
            check_export(EXPORT, NEW.public.to_pem(), since=STATES[30])
        with pytest.raises(InvalidInput, match="with the whole export"):
            check_export(EXPORT, PEM, since=STATES[30], seen=HEADS[:1])

    def test_one_head_at_the_end_is_enough(self) -> None:
        documents = [
            document for document in DOCUMENTS if isinstance(document, Entry)
        ] + [HEADS[-1]]
        assert checked(documents).valid

    @pytest.mark.parametrize("lines", [b"", b"\n", b"{}\n", b"[]\n", b"\xff\n"])
    def test_nothing_is_not_valid(self, lines: bytes) -> None:
        assert not check_export(lines, PEM).valid


class TestTampering:
    @pytest.mark.slow
    def test_every_byte(self) -> None:
        """Change each byte; what comes before its line was checked already."""
        begin, since, n_changes = 0, Ledger.empty(OLD.public), 0
        for document, after in zip(DOCUMENTS, STATES, strict=True):
            line = document.to_json().encode() + b"\n"
            tail = EXPORT[begin:]
            for i, byte in enumerate(line):
                for other in alternatives(byte):
                    forged = b"%b%c%b" % (tail[:i], other, tail[i + 1 :])
                    n_changes += 1
                    verdict = check_export(forged, PEM, since=since)
                    assert failed_here(verdict, since), (
                        document,
                        i,
                        other,
                        verdict.says,
                    )
            begin, since = begin + len(line), after
        assert begin == len(EXPORT)
        assert n_changes == 3 * len(EXPORT)

    def test_bytes_of_the_whole_export(self) -> None:
        for i in range(0, len(EXPORT), 199):
            for other in alternatives(EXPORT[i]):
                forged = b"%b%c%b" % (EXPORT[:i], other, EXPORT[i + 1 :])
                assert not check_export(forged, PEM).valid

    @pytest.mark.parametrize("length", [1, 100, len(EXPORT) - 1])
    def test_broken_off_within_a_line(self, length: int) -> None:
        assert "breaks off" in check_export(EXPORT[:length], PEM).says

    def test_appended_bytes(self) -> None:
        for extra in (b" ", b"\n", b"{}", b"\x00\n"):
            assert not check_export(EXPORT + extra, PEM).valid


def failed_here(verdict: ExportVerdict, since: Ledger) -> bool:
    """Whether the export was refused before the next head was believed."""
    return not verdict.valid and verdict.ledger == since


class TestEntries:
    @pytest.mark.parametrize("sequence", [0, 7, 19, ROTATION, 21, 48])
    def test_removed_entry_is_named(self, sequence: int) -> None:
        documents = list(DOCUMENTS)
        del documents[place(sequence)]
        says = checked(documents).says
        late = isinstance(DOCUMENTS[place(sequence) + 1], Head)
        missing = f"entry {sequence} is missing"
        head = f"the head over {sequence + 1} entries comes after {sequence}"
        assert (head if late else missing) in says
        assert "removed or moved" in says

    @pytest.mark.parametrize("sequence", [0, 7, 20, 49])
    def test_inserted_entry_is_named(self, sequence: int) -> None:
        documents = list(DOCUMENTS)
        again = entry(sequence).replace()
        documents.insert(place(sequence) + 1, again)
        says = checked(documents).says
        assert f"entry {sequence} stands where entry {sequence + 1} should" in says

    @pytest.mark.parametrize("sequence", [0, 6, 21])
    def test_exchanged_entries_are_named(self, sequence: int) -> None:
        documents = list(DOCUMENTS)
        i = place(sequence)
        documents[i], documents[i + 1] = documents[i + 1], documents[i]
        says = checked(documents).says
        assert f"entry {sequence} is missing, entry {sequence + 1} stands" in says

    def test_changed_entry_is_found_between_heads(self) -> None:
        documents = list(DOCUMENTS)
        documents[place(11)] = request(11, n_subjects=2)
        verdict = checked(documents)
        assert "one of entries 10 to 14 was changed" in verdict.says
        assert verdict.ledger.size == 10

    def test_head_after_every_entry_names_the_changed_one(self) -> None:
        documents = [document for document, _ in written(N, every=1)]
        assert checked(documents).valid
        documents[documents.index(entry(11))] = request(11, n_subjects=2)
        assert "entry 11 was changed" in checked(documents).says

    def test_renumbered_removal_is_found(self) -> None:
        kept = [entry(0), entry(2), entry(3)]
        kept = [document.replace(sequence=i) for i, document in enumerate(kept)]
        assert (
            "comes after 3 entries: others before it were removed"
            in checked([*kept, HEADS[0]]).says
        )
        filled: list[CanonicalDocument] = [*kept, entry(3), entry(4), HEADS[0]]
        filled[3] = request(3)
        assert "one of entries 0 to 4" in checked(filled).says

    def test_entries_after_the_last_head_are_not_vouched_for(self) -> None:
        verdict = checked([*DOCUMENTS, entry(1).replace(sequence=50, day="2033-05-18")])
        assert "no head vouches for what comes after 50 entries" in verdict.says
        assert verdict.ledger == STATES[-1]


class TestTail:
    SHORT = DOCUMENTS[: DOCUMENTS.index(HEADS[5]) + 1]

    def test_cut_off_at_a_head_is_seen_by_a_later_head_alone(self) -> None:
        assert checked(self.SHORT).valid
        says = checked(self.SHORT, HEADS[-1]).says
        assert "entries 30 to 49 were cut off" in says
        assert checked(self.SHORT, HEADS[5], HEADS[0]).valid

    def test_rewritten_past_is_seen_by_an_earlier_head(self) -> None:
        rewritten = [
            request(11, n_subjects=2) if document == entry(11) else document
            for document in DOCUMENTS
            if isinstance(document, Entry)
        ]
        ledger = reduce(Ledger.append, rewritten, Ledger.empty(OLD.public))
        resigned = [*rewritten, ledger.head(NEW, ledger.day)]
        assert checked(resigned).valid  # signed by the operator himself
        says = checked(resigned, HEADS[2]).says
        assert "a head from elsewhere disagrees: the head over 15 entries" in says

    def test_forged_head_from_elsewhere_is_refused(self) -> None:
        forged = HEADS[3].replace(day=shifted(HEADS[3].day, 1))
        assert "is not signed by key" in checked(list(DOCUMENTS), forged).says


class TestKeys:
    def test_heads_of_a_stranger_are_refused(self) -> None:
        documents = [
            sign(document, STRANGER) if isinstance(document, Head) else document
            for document in DOCUMENTS
        ]
        assert "names key" in checked(documents).says
        renamed = [
            document.replace(key=OLD.public.id)
            if isinstance(document, Head)
            else document
            for document in documents
        ]
        assert "is not signed by key" in checked(renamed).says
        assert "names key" in check_export(EXPORT, STRANGER.public.to_pem()).says

    def test_retired_key_signs_no_later_head(self) -> None:
        documents = [*DOCUMENTS[:-1], sign(HEADS[-1], OLD)]
        assert "is in force there" in checked(documents).says

    def test_rotation_to_a_key_that_is_not_given_is_refused(self) -> None:
        history = Ledger.empty(OLD.public).keys
        for since in (ROTATION, ROTATION + 1, N + 1):
            given = history.with_key(since, STRANGER.public).to_pem()
            verdict = check_export(EXPORT, given)
            place = min(since - 1, ROTATION)
            assert f"entry {place} is wrong: after it key" in verdict.says
            assert verdict.ledger.size <= place

    def test_rotation_elsewhere_than_listed_is_refused(self) -> None:
        history = Ledger.empty(OLD.public).keys
        for since in (ROTATION, ROTATION + 2):
            given = history.with_key(since, NEW.public).to_pem()
            assert "by the list of keys given" in check_export(EXPORT, given).says
        with pytest.raises(InvalidInput, match="changed its keys elsewhere"):
            check_export(b"", given, since=STATES[-1])
        assert check_export(b"", BOTH, since=STATES[-1]).valid

    def test_rotation_by_a_stranger_is_refused(self) -> None:
        rotation = DOCUMENTS[place(ROTATION)]
        assert isinstance(rotation, KeyRotated)
        documents = list(DOCUMENTS)
        documents[place(ROTATION)] = sign(rotation, STRANGER)
        assert f"entry {ROTATION} rotates the key without" in checked(documents).says
