# SPDX-License-Identifier: Apache-2.0
"""Spelling: the reader takes what another would, by the schemas, and no more."""

import json
import pickle
from datetime import date, timedelta
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.values import refuse_duplicates
from expunge.exceptions import InvalidInput
from expunge.ledger import (
    CanonicalDocument,
    Entry,
    Head,
    ReleasesSuperseded,
    RequestCompleted,
    check_export,
    export,
    merkle,
)
from expunge.ledger.documents import json_schema, model_name, read_document
from expunge.ledger.entries import KINDS as KINDS_BY_NAME
from expunge.ledger.export import SHARE, Line
from tests.test_ledger import HEAD, KINDS, OLD, request, written
from tests.test_ledger_export import alternatives

DIGESTS = st.sampled_from(["ab" * 32, "0" * 64])
NAMES = st.sampled_from(
    ["a", "b", "B", "a.1", "a-1", "_a", "", "\u00e9", 'a"', "x" * 65]
)
DAYS = st.sampled_from(
    ["2024-02-29", "2023-02-29", "1969-12-31", "2024-13-01", "2024-01-01\n", "", 1, []]
)
MODELS = st.from_regex("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
COUNTS = st.sampled_from(
    [0, 1, -1, 10**14, 10**15, 2**53 - 1, 2**53, 10**30, 1.0, True, None, "1"]
)
COMPLETE = json.loads(request(1, day="2024-03-01").to_json())
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
        "submitted": st.just("2019-12-31") | DAYS,
        "version": st.just(1) | COUNTS,
    }
).map(lambda said: COMPLETE | said)


@cache
def validator(kind: str) -> jsonschema.Draft202012Validator:
    schema = json_schema({"head": Head, **KINDS_BY_NAME}[kind])
    return jsonschema.Draft202012Validator(schema)


def judge(text: bytes) -> bool:
    """Return whether a document is valid, by other libraries than the reader's."""
    try:
        found = json.loads(text, object_pairs_hook=refuse_duplicates)
        # A newline is no part of any field, and Python's $ would let it through.
        if rfc8785.dumps(found) != text or b"\\n" in text:
            return False
        if not validator(found["kind"]).is_valid(found):
            return False
        for name in ("day", "submitted", "accepted", "deadline", "notified", "taken"):
            date.fromisoformat(found.get(name, "2000-01-01"))
    except (rfc8785.CanonicalizationError, ValueError, LookupError, TypeError):
        return False
    if found["kind"] == "request completed":
        asked = found["submitted"] <= min(found["accepted"], found["deadline"])
        told = found["outcome"] != "refused" or found["reason"]
        return bool(asked and found["accepted"] <= found["day"] and told)
    if found["kind"] == "request extended":
        return bool(found["notified"] <= min(found["day"], found["deadline"]))
    return True


def require_same(text: bytes) -> None:
    """See that the reader takes what the judge does, and gives it back."""
    try:
        document = read_document(text, Line)
    except InvalidInput:
        assert not judge(text), text
    else:
        assert judge(text), text
        assert document.to_json().encode() == text


@pytest.mark.parametrize("document", [*KINDS, HEAD], ids=lambda document: document.kind)
class TestKinds:
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

    def test_other_spellings_are_refused(self, document: Entry | Head) -> None:
        text = document.to_json()
        others = {
            text + "\n": "not in canonical spelling",
            " " + text: "not in canonical spelling",
            text.replace(",", ", ", 1): "not in canonical spelling",
            text.replace('"version":1', '"version":1,"version":1'): "given twice",
            text.replace('"version":1', '"version":01'): "not a JSON document",
            text.replace('"version":1', '"version":1.0'): r"version 1\.0; it must be 1",
            text.replace('"version":1', '"version":2'): "version 2; it must be 1; read",
            text.replace(',"version":1', ""): "version None",
            text.replace('"kind"', '"k\\u0069nd"'): "not in canonical spelling",
            text.replace('"day":', '"Day":'): r"missing fields \['day'\], unknown",
            text.replace('"version":1', '"version":1,"zone":"UTC"'): "unknown fields",
            text.replace(f'"{document.day}"', "[]"): r"day=\[\]; it must be a day from",
            text.replace(document.day, "2023-02-29"): "day='2023-02-29'; it must be a",
            text[:-1]: "not a JSON document",
        }
        for other, why in others.items():
            for spelled in (other, other.encode()):
                with pytest.raises(InvalidInput, match=why):
                    read_document(spelled, Line)

    def test_is_a_value(self, document: Entry | Head) -> None:
        again = type(document).from_json(document.to_json())
        assert again == document and hash(again) == hash(document)
        assert pickle.loads(pickle.dumps(document)) == document
        assert document.replace(day="9999-12-31") != document
        with pytest.raises(AttributeError):
            document.day = "2024-01-01"  # type: ignore[misc]


@given(REQUESTS, st.booleans())
def test_whatever_a_request_says_is_judged_the_same(said: Any, ordered: bool) -> None:
    text = json.dumps(said, sort_keys=ordered, separators=(",", ":"))
    require_same(text.encode())


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), DIGESTS)))
def test_models_come_in_order_each_once(pairs: list[tuple[str, str]]) -> None:
    text = request(1, certificates={}).to_json()
    inner = ",".join(f'"{name}":"{digest}"' for name, digest in pairs)
    text = text.replace('"certificates":{}', f'"certificates":{{{inner}}}')
    require_same(text.encode())


@given(
    st.dictionaries(MODELS, DIGESTS),
    st.integers(0, 2**53 - 1),
)
def test_whatever_it_says_is_spelled_as_the_package_spells(
    certificates: dict[str, str], n: int
) -> None:
    document = request(1, certificates=certificates, n_subjects=n)
    text = document.to_json().encode()
    assert text == rfc8785.dumps(json.loads(text))
    assert read_document(text, Line) == document
    assert all(model_name(name) == name for name in certificates)


@given(st.lists(DIGESTS).map(tuple))
def test_lists_of_any_length_are_read(digests: tuple[str, ...]) -> None:
    document = ReleasesSuperseded(
        sequence=1, day="2024-01-01", model="m", certificates=digests, by="ab" * 32
    )
    assert read_document(document.to_json(), Line) == document


def test_days_are_those_of_the_calendar() -> None:
    known: set[str] = set()
    for year in (1970, 1972, 1999, 2000, 2023, 2024, 2100, 2400, 9996, 9999):
        day = date(year, 1, 1)
        while day.year == year:
            known.add(day.isoformat())
            if day == date.max:
                break
            day += timedelta(days=1)
    rule = jsonschema.Draft202012Validator(json_schema(Head)["properties"]["day"])
    for start in {text[:4] for text in known}:
        for month in range(14):
            for number in range(33):
                text = f"{start}-{month:02}-{number:02}"
                assert rule.is_valid(text) == (text in known), text


def test_what_a_caller_states_is_read_as_strictly() -> None:
    stated = json.loads(request(1).to_json())
    del stated["kind"]
    numbers = {"n_subjects": np.int64(2), "certificates": stated["certificates"]}
    assert RequestCompleted(**stated | numbers).n_subjects == 2
    for change, why in (
        ({"n_subjects": 2.0}, r"n_subjects=2.0; it must be an integer from 0"),
        ({"n_subjects": 2**53}, "it must be an integer from 0 to 2.53 - 1"),
        ({"n_subjects": 10**30}, "it must be an integer from 0"),
        ({"n_subjects": object()}, "state plain values"),
        ({"model": "churn"}, r"unknown fields \['model'\]"),
        ({"certificates": ["churn"]}, "it must be a mapping, each name 1 to"),
        ({"certificates": {"a b": "ab" * 32}}, "it must be a mapping"),
        ({"right": "forget"}, "right='forget'; it must be one of 'end-hold', 'erase'"),
        ({"reason": "x" * 1000}, "reason='x{79}[.]{3}; it must be one of '', 'hold'"),
        ({"submitted": "2030-01-01"}, "submitted comes first"),
        ({"deadline": "2000-01-01"}, "submitted comes first"),
        ({"accepted": "2030-01-01"}, "cannot be answered before it came in"),
        ({"outcome": "refused"}, "without a reason"),
    ):
        with pytest.raises(InvalidInput, match=why):
            RequestCompleted(**stated | change)
    with pytest.raises(InvalidInput, match=r"missing fields \['day'\]"):
        Head(size=1, root="ab" * 32)  # type: ignore[call-arg]


def test_mappings_cannot_be_changed() -> None:
    given = {"churn": "ab" * 32}
    document = request(1, certificates=given)
    given["credit"] = "ab" * 32
    assert document.certificates == {"churn": "ab" * 32}
    with pytest.raises(TypeError):
        document.certificates["credit"] = "ab" * 32  # type: ignore[index]


class TestWork:
    """What a check costs, counted."""

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
            document.replace(signature="00" * 64)
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
        documents[2 * SHARE] = HEAD.replace(size=1)
        says = check_export(export(documents), OLD.public.to_pem()).says
        assert f"the head over 1 entries comes after {SHARE}" in says
