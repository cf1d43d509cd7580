# SPDX-License-Identifier: Apache-2.0
"""Identifiers: one value is equal in all its forms, and shows itself in none."""

import pickle
import unicodedata
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.private_model.subjects import person
from expunge.rights import Identifier, parse_identifier
from expunge.rights.identifiers import LONGEST, read_identifier

ADA = "ada@example.org"
LETTERS = "abcxyzABCXYZ0123456789._+-\u00e9\u0130\u03a3\u1e9e\u0345\u0301"
names = st.text(LETTERS, min_size=1)
addresses = st.builds("{}@{}".format, names, names)


def digest_of(value: str) -> bytes:
    return sha256(value.encode()).digest()


def spellings(raw: bytes) -> list[str]:
    """Return every way to write a hash."""
    standard, url_safe = b64encode(raw).decode(), urlsafe_b64encode(raw).decode()
    padded = [raw.hex(), raw.hex().upper(), standard, url_safe]
    return padded + [word.rstrip("=") for word in padded]


class TestNormalisation:
    @pytest.mark.parametrize(
        ("kind", "value", "normal"),
        [
            ("email", " Ada@Example.ORG\n", ADA),
            ("email", "ada+list@example.org", "ada+list@example.org"),
            ("email", "a.d.a@example.org", "a.d.a@example.org"),
            ("email", "zoe\u0308@example.org", "zo\u00eb@example.org"),
            # Not casefold, not NFKC: these are addresses of other people.
            ("email", "stra\u00dfe@example.org", "stra\u00dfe@example.org"),
            ("email", "\ufb01n@example.org", "\ufb01n@example.org"),
            ("phone", "+44 20 7946-0958", "+442079460958"),
            ("phone", "+1 (555) 010.9999", "+15550109999"),
            ("phone", "+49\u00a030\u202f1234\u20115678", "+493012345678"),
            ("phone", "+683 4000", "+6834000"),
            ("customer", " Zoe\u0308 7 ", "Zo\u00eb 7"),
            ("customer", "ADA", "ADA"),
            ("ios_advertising_id", "AB-12", "AB-12"),
            ("id", " urn:x:1", "urn:x:1"),
        ],
    )
    def test_rules(self, kind: str, value: str, normal: str) -> None:
        identifier = Identifier(kind, value)
        assert identifier.value == normal
        assert identifier.digest() == digest_of(normal).hex()

    @pytest.mark.parametrize(
        ("kind", "value", "reason"),
        [
            ("email", "ada", "one @"),
            ("email", "@example.org", "one @"),
            ("email", "ada@", "one @"),
            ("email", "ada@home@example.org", "one @"),
            ("email", "ada\uff20example.org", "one @"),
            ("email", "Ada <ada@example.org>", "more than an address"),
            ("email", "mailto:ada@example.org", "more than an address"),
            ("email", "ada @example.org", "more than an address"),
            ("email", "ada@example.org,", "more than an address"),
            ("email", "", "empty"),
            ("email", "a\x00da@example.org", "control characters"),
            ("phone", "020 7946 0958", "plus sign"),
            ("phone", "0044 20 7946 0958", "plus sign"),
            ("phone", "+44 (0)20 7946 0958", r"\(0\)"),
            ("phone", "+44 [ 0 ] 20 7946 0958", r"\(0\)"),
            ("phone", "+0 20 7946 0958", "plus sign"),
            ("phone", "+123456", "7 to 15 digits"),
            ("phone", "+1234567890123456", "7 to 15 digits"),
            ("phone", "+44 20 7946 0958 ext 3", "plus sign"),
            ("phone", "+44207946\u0660958", "plus sign"),
            ("customer", " \t", "empty"),
            ("customer", "a\x07b", "control characters"),
            ("customer", "a\ud800", "control characters"),
            ("customer", "a" * (LONGEST + 1), f"use at most {LONGEST}"),
        ],
    )
    def test_what_is_refused(self, kind: str, value: str, reason: str) -> None:
        with pytest.raises(InvalidInput, match=reason) as refused:
            Identifier(kind, value)
        said = str(refused.value)
        assert kind in said and "ada" not in said and "7946" not in said

    @given(st.text())
    def test_other_kinds_are_spelled_as_ids(self, text: str) -> None:
        try:
            word = person(text)
        except InvalidInput:
            with pytest.raises(InvalidInput):
                Identifier("customer", text)
        else:
            assert Identifier("customer", text).value == word

    @given(addresses)
    def test_address_has_one_spelling(self, address: str) -> None:
        normal = Identifier("email", address).value
        assert Identifier("email", normal).value == normal
        for form in ("NFC", "NFD"):
            variant = f"\t{unicodedata.normalize(form, address)} "
            assert Identifier("email", variant).value == normal

    @given(st.text("0123456789", min_size=6, max_size=14), st.randoms())
    def test_number_has_one_spelling(self, digits: str, chance: Any) -> None:
        number = f"+4{digits}"
        marks = [f"{chance.choice(['', ' ', '-', '.', ') '])}{d}" for d in number[1:]]
        assert Identifier("phone", "+" + "".join(marks)).value == number

    @pytest.mark.parametrize("value", [7, True, None, 1.5, b"ada"])
    def test_value_is_text(self, value: Any) -> None:
        with pytest.raises(InvalidInput, match="give it as text"):
            Identifier("customer", value)


class TestKind:
    @pytest.mark.parametrize("kind", ["email", "a", "x2", "a_b-c", "a" * 32])
    def test_is_a_short_word(self, kind: str) -> None:
        value = ADA if kind == "email" else "7"
        assert Identifier(kind, value).kind == kind

    @pytest.mark.parametrize(
        "kind",
        [
            "",
            "Email",
            "2x",
            "-a",
            "a b",
            "a:b",
            "a\n",
            "a" * 33,
            ADA,
            "\u00e9",
            7,
            None,
        ],
    )
    def test_anything_else_is_refused(self, kind: Any) -> None:
        with pytest.raises(InvalidInput, match="lower-case word") as refused:
            Identifier(kind, "7")
        assert ADA not in str(refused.value)


class TestHashes:
    @given(addresses)
    def test_every_form_is_the_same(self, address: str) -> None:
        raw = Identifier("email", address)
        for word in spellings(digest_of(raw.value)):
            hashed = Identifier("email", word, hashed=True)
            assert hashed == raw and hash(hashed) == hash(raw)
            assert hashed.digest() == raw.digest()
            assert read_identifier("email", f" sha256:{word} ") == raw
            assert parse_identifier(f"email:SHA256:{word}") == raw

    def test_kind_and_value_tell_apart(self) -> None:
        forms = {
            Identifier("email", ADA),
            Identifier("login", ADA),
            Identifier("email", "eve@example.org"),
        }
        assert len(forms) == 3
        assert Identifier("email", ADA) != ADA

    @pytest.mark.parametrize(
        "word",
        [
            "",
            "ada",
            "0" * 63,
            "0" * 65,
            "g" * 64,
            "A" * 42,
            "A" * 45,
            "A" * 43 + "==",
            "A" * 42 + "B",  # bits that no hash has
            "+" + "A" * 41 + "_",  # two alphabets
            "\uff10" * 64,
        ],
    )
    def test_what_is_no_hash(self, word: str) -> None:
        with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
            Identifier("email", word, hashed=True)

    def test_id_is_not_hashed(self) -> None:
        with pytest.raises(InvalidInput, match="give the id itself"):
            Identifier("id", "0" * 64, hashed=True)


class TestSecrecy:
    @pytest.mark.parametrize("form", [repr, str, "{}".format, "{!r}".format])
    def test_shows_its_kind_alone(self, form: Any) -> None:
        identifier = Identifier("email", ADA)
        assert form(identifier) == "Identifier('email', hidden)"
        assert form([identifier]).count("hidden") == 1

    def test_travels(self) -> None:
        identifier = Identifier("email", ADA)
        assert pickle.loads(pickle.dumps(identifier)) == identifier


class TestParser:
    @pytest.mark.parametrize(
        ("word", "kind", "value"),
        [
            ("email:Ada@example.org", "email", ADA),
            ("phone:+44 20 7946 0958", "phone", "+442079460958"),
            ("customer: 42 ", "customer", "42"),
            ("urn:isbn:1", "urn", "isbn:1"),
            ("id:urn:isbn:1", "id", "urn:isbn:1"),
        ],
    )
    def test_kind_stands_before_the_first_colon(
        self, word: str, kind: str, value: str
    ) -> None:
        found = parse_identifier(word)
        assert found is not None
        assert (found.kind, found.value, found.hashed) == (kind, value, False)

    @pytest.mark.parametrize(
        "word",
        ["Ada", "42", "", ":42", "Email:ada@x", "email:", "email: ", "a b:c", "7:1"],
    )
    def test_other_words_are_ids(self, word: str) -> None:
        assert parse_identifier(word) is None

    @pytest.mark.parametrize(
        "word", ["email:ada", "phone:7946", "email:sha256:00", "x:sha256:y"]
    )
    def test_malformed_values_are_refused(self, word: str) -> None:
        with pytest.raises(InvalidInput):
            parse_identifier(word)
