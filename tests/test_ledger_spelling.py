# SPDX-License-Identifier: Apache-2.0
"""Spelling: a glance reads what the strict reader reads, and nothing else."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.values import dumps
from expunge.exceptions import InvalidInput
from expunge.ledger import (
    Entry,
    Head,
    Receipt,
    ReleasesSuperseded,
    check_export,
    export,
    merkle,
)
from expunge.ledger.documents import (
    model_name,
    read_at_a_glance,
    read_document,
)
from expunge.ledger.entries import SHARE
from expunge.ledger.export import LINES
from expunge.promise.canonical import CanonicalDocument
from tests.test_ledger import HEAD, KINDS, OLD, request, written
from tests.test_ledger_export import DOCUMENTS, alternatives

DIGESTS = st.sampled_from(["ab" * 32, "0" * 64])
NAMES = st.sampled_from(
    ["a", "b", "B", "a.1", "a-1", "_a", "", "\u00e9", 'a"', "x" * 65]
)
DAYS = st.sampled_from(["2024-02-29", "2023-02-29", "1969-12-31", "2024-13-01", "", 1])
MODELS = st.from_regex(model_name.schema["pattern"], fullmatch=True)
COUNTS = st.sampled_from(
    [0, 1, -1, 10**14, 10**15, 2**53 - 1, 2**53, 10**30, 1.0, True, None, "1"]
)
REQUESTS = st.fixed_dictionaries(
    {
        "accepted": st.just("2020-01-01") | DAYS,
        "certificates": st.dictionaries(NAMES, DIGESTS) | DIGESTS,
        "day": st.just("2024-03-01") | DAYS,
        "deadline": st.just("2024-04-01") | DAYS,
        "kind": st.sampled_from(["request completed", "release made"]),
        "n_subjects": COUNTS,
        "request": st.sampled_from(["ab" * 16, "AB" * 16, "a\n" * 16]),
        "sequence": COUNTS,
        "version": st.just(1) | COUNTS,
    }
)


def strictly(text: str | bytes) -> CanonicalDocument | None:
    """Return the document as the strict reader reads it; None if it refuses."""
    try:
        kind = json.loads(text)["kind"]
        return LINES[kind].from_json(text)
    except (InvalidInput, ValueError, LookupError, TypeError):
        return None


def parts(document: CanonicalDocument) -> list[tuple[str, type, Any]]:
    """Return the fields of a document with their types."""
    found = [(field.name, getattr(document, field.name)) for field in fields(document)]
    return [(name, type(value), value) for name, value in found]


def require_same(text: str | bytes) -> None:
    """See that a glance tells nothing, or what the strict reader tells."""
    seen = read_at_a_glance(text, LINES)
    if seen is not None:
        read = strictly(text)
        assert read is not None, text
        assert parts(seen) == parts(read)


@pytest.mark.parametrize("document", [*KINDS, HEAD], ids=lambda document: document.kind)
class TestKinds:
    def test_is_read_at_a_glance(self, document: Entry | Head) -> None:
        for text in (document.to_json(), document.to_json().encode()):
            seen = read_at_a_glance(text, LINES)
            assert seen is not None
            assert parts(seen) == parts(type(document).from_json(text))
            assert seen.to_json() == document.to_json()

    def test_is_spelled_as_the_package_spells(self, document: Entry | Head) -> None:
        text = document.to_json().encode()
        assert text == rfc8785.dumps(json.loads(text))

    def test_changed_bytes_are_judged_the_same(self, document: Entry | Head) -> None:
        line = document.to_json().encode()
        for i, byte in enumerate(line):
            for other in alternatives(byte):
                require_same(b"%b%c%b" % (line[:i], other, line[i + 1 :]))
            require_same(line[:i] + line[i + 1 :])
            require_same(line[:i] + line[i : i + 1] + line[i:])

    def test_other_spellings_are_not_read_at_a_glance(
        self, document: Entry | Head
    ) -> None:
        text = document.to_json()
        found = json.loads(text)
        others = [
            text + "\n",
            " " + text,
            text.replace(",", ", ", 1),
            text.replace('"version":1', '"version":1,"version":1'),
            text.replace('"version":1', '"version":01'),
            text.replace('"kind"', '"k\\u0069nd"'),
            json.dumps(dict(reversed(found.items())), separators=(",", ":")),
            dumps({name: found[name] for name in found if name != "day"}),
            dumps(found | {"zone": "UTC"}),
        ]
        for other in others:
            assert read_at_a_glance(other, LINES) is None
            with pytest.raises(InvalidInput):
                read_document(other, LINES)


@given(REQUESTS, st.booleans())
def test_whatever_a_request_says_is_judged_the_same(said: Any, ordered: bool) -> None:
    require_same(json.dumps(said, sort_keys=ordered, separators=(",", ":")))


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), DIGESTS)))
def test_models_come_in_order_each_once(pairs: list[tuple[str, str]]) -> None:
    text = request(1, certificates={}).to_json()
    inner = ",".join(f'"{name}":"{digest}"' for name, digest in pairs)
    text = text.replace('"certificates":{}', f'"certificates":{{{inner}}}')
    require_same(text)
    names = [name for name, _ in pairs]
    in_order = names == sorted(set(names))
    assert (read_at_a_glance(text, LINES) is not None) == in_order


@given(
    st.dictionaries(MODELS, DIGESTS),
    st.integers(0, 2**53 - 1),
)
def test_whatever_it_says_is_spelled_as_the_package_spells(
    certificates: dict[str, str], n: int
) -> None:
    text = request(1, certificates=certificates, n_subjects=n).to_json().encode()
    assert text == rfc8785.dumps(json.loads(text))


@given(st.lists(DIGESTS).map(tuple))
def test_lists_of_any_length_are_read_at_a_glance(digests: tuple[str, ...]) -> None:
    document = ReleasesSuperseded(
        sequence=1, day="2024-01-01", model="m", certificates=digests, by="ab" * 32
    )
    assert read_at_a_glance(document.to_json(), LINES) == document


def test_numbers_too_long_for_a_glance_are_read_all_the_same() -> None:
    document = request(1, n_subjects=2**53 - 1)
    assert read_at_a_glance(document.to_json(), LINES) is None
    assert read_document(document.to_json(), LINES) == document


def test_numbers_that_a_double_cannot_hold_are_refused() -> None:
    text = request(1, n_subjects=2**53 - 1).to_json()
    beyond = text.replace(str(2**53 - 1), str(2**53))
    assert read_at_a_glance(beyond, LINES) is None
    with pytest.raises(InvalidInput, match="must be an integer"):
        read_document(beyond, LINES)


def test_documents_within_documents_are_not_read_at_a_glance() -> None:
    assert read_at_a_glance('{"kind":"receipt"}', {"receipt": Receipt}) is None


class TestWork:
    """What a check costs, counted."""

    def test_every_line_is_read_at_a_glance(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unexpected(text: str | bytes) -> CanonicalDocument:
            raise AssertionError(text)

        data = export(DOCUMENTS)
        monkeypatch.setattr(CanonicalDocument, "from_json", unexpected)
        assert check_export(data, OLD.public.to_pem()).valid

    def test_hashes_are_one_for_each_entry_and_a_few_for_each_head(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, n_hashes = merkle.node_hash, 0

        def counted(left: bytes, right: bytes) -> bytes:
            nonlocal n_hashes
            n_hashes += 1
            return real(left, right)

        n, every = 512, 64
        data = export(document for document, _ in written(n, every))
        monkeypatch.setattr(merkle, "node_hash", counted)
        assert check_export(data, OLD.public.to_pem()).valid
        assert n_hashes <= n + (n // every) * n.bit_length()


class TestSignatures:
    N = 2 * SHARE + 50
    WRITTEN = tuple(document for document, _ in written(N, every=1))

    def forged(self, *sizes: int) -> list[CanonicalDocument]:
        return [
            replace(document, signature="00" * 64)
            if isinstance(document, Head) and document.size in sizes
            else document
            for document in self.WRITTEN
        ]

    @pytest.mark.parametrize(
        "sizes", [(1,), (7, 8), (SHARE + 3, 2 * SHARE + 1), (2 * SHARE + 9,), (N,)]
    )
    def test_first_bad_one_is_named(self, sizes: tuple[int, ...]) -> None:
        data = export(self.forged(*sizes))
        for lines in (data, data + b"{}\n", data + b"{"):
            verdict = check_export(lines, OLD.public.to_pem())
            first = f"the head over {sizes[0]} entries is not signed by key"
            assert first in verdict.says
            assert verdict.ledger.size == sizes[0] - 1

    def test_what_comes_before_a_bad_one_is_named_instead(self) -> None:
        documents = self.forged(SHARE + 3)
        documents[2 * SHARE] = replace(HEAD, size=1)
        says = check_export(export(documents), OLD.public.to_pem()).says
        assert f"the head over 1 entries comes after {SHARE}" in says
