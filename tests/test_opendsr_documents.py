# SPDX-License-Identifier: Apache-2.0
"""The body of an OpenDSR request is understood, or refused without being quoted."""

import json
from base64 import b64encode
from datetime import date
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.rights import Identifier
from expunge.service.opendsr.documents import (
    OPENDSR,
    OPENGDPR,
    TYPES,
    Edition,
    SubjectRequest,
    UnusableDocument,
    list_supported,
    parse_request,
    read_identity,
)

TODAY = date(2026, 11, 16)
IDS = ("id", "controller_customer_id")
SECRET = "ada.lovelace@example.org"


def body(**changes: Any) -> bytes:
    """Return a request with some fields changed, or left out by None."""
    fields: dict[str, Any] = {
        "regulation": "gdpr",
        "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
        "subject_request_type": "erasure",
        "submitted_time": "2026-11-02T15:00:00Z",
        "api_version": "2.0",
        "subject_identities": [identity()],
        "status_callback_urls": ["https://controller.example/callbacks"],
        "extensions": {"controller.example": {"anything": [SECRET]}},
    }
    fields |= changes
    return json.dumps({k: v for k, v in fields.items() if v is not None}).encode()


def identity(
    value: Any = SECRET, name: Any = "email", form: Any = "raw"
) -> dict[str, Any]:
    return {"identity_type": name, "identity_value": value, "identity_format": form}


def parse(text: bytes, edition: Edition = OPENDSR) -> SubjectRequest:
    return parse_request(text, edition, today=TODAY, id_kinds=IDS)


def test_a_request_is_understood() -> None:
    found = parse(body(regulation="ccpa"))
    assert found.request == "a7551968d5d644b29831815ac9017798"
    assert found.regime == "ccpa"
    assert found.submitted == date(2026, 11, 2)
    assert found.identities == ((Identifier("email", SECRET),),)
    assert found.callbacks == ("https://controller.example/callbacks",)
    assert found.reply is None
    assert SECRET not in repr(found)


def test_the_older_edition_names_no_law() -> None:
    assert parse(body(regulation=None, api_version="1.0"), OPENGDPR).regime == "gdpr"
    with pytest.raises(UnusableDocument, match=r"not 1\.0"):
        parse(body(), OPENGDPR)


@pytest.mark.parametrize("value", [7, True, [], {}, "other", 1.5])
@pytest.mark.parametrize(
    "field",
    [
        "regulation",
        "subject_request_id",
        "subject_request_type",
        "submitted_time",
        "api_version",
        "subject_identities",
        "status_callback_urls",
        "extensions",
    ],
)
def test_every_field_is_checked(field: str, value: object) -> None:
    if (field, value) in (("status_callback_urls", []), ("extensions", {})):
        return
    with pytest.raises(UnusableDocument) as caught:
        parse(body(**{field: value}))
    assert [one.field for one in caught.value.complaints] == [field]


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(UnusableDocument) as caught:
        parse(b"{}")
    said = {(one.field, one.reason) for one in caught.value.complaints}
    required = "regulation subject_request_id subject_request_type submitted_time"
    assert said == {
        (name, "required") for name in [*required.split(), "subject_identities"]
    }


@pytest.mark.parametrize("kind", ["access", "portability", "Erasure"])
def test_erasure_is_the_one_type(kind: str) -> None:
    with pytest.raises(UnusableDocument, match="erasure is, see discovery"):
        parse(body(subject_request_type=kind))


@pytest.mark.parametrize(
    "text",
    [
        "A7551968-D5D6-44B2-9831-815AC9017798",
        "a7551968d5d644b29831815ac9017798",
        "a7551968-d5d6-14b2-9831-815ac9017798",
        "a7551968-d5d6-44b2-c831-815ac9017798",
        " a7551968-d5d6-44b2-9831-815ac9017798",
    ],
)
def test_ids_are_uuids_of_version_4(text: str) -> None:
    with pytest.raises(UnusableDocument, match="subject_request_id"):
        parse(body(subject_request_id=text))


@pytest.mark.parametrize(
    ("time", "day"),
    [
        ("2026-11-16T23:59:59Z", "2026-11-16"),
        ("2026-11-17T11:00:00Z", "2026-11-16"),  # a clock that is ahead
        ("2026-11-01T00:30:00.5+02:00", "2026-10-31"),
        ("2026-11-18T00:00:00Z", None),
        ("2026-11-16", None),
        ("2026-11-16T12:00:00", None),
        ("yesterday at ten", None),
    ],
)
def test_the_day_asked_is_read_from_the_time(time: str, day: str | None) -> None:
    if day is None:
        with pytest.raises(UnusableDocument, match="submitted_time"):
            parse(body(submitted_time=time))
    else:
        found = parse(body(submitted_time=time))
        assert found.submitted == date.fromisoformat(day)


def test_raw_and_hashed_identities_are_one() -> None:
    digest = sha256(SECRET.encode()).digest()
    forms = [
        identity(SECRET.upper()),
        identity(digest.hex(), form="sha256"),
        identity(digest.hex().upper(), form="sha256"),
        identity(b64encode(digest).decode(), form="sha256"),
    ]
    found = parse(body(subject_identities=forms))
    assert set(found.identities) == {(Identifier("email", SECRET),)}


def test_customers_are_ids_where_the_operator_says_so() -> None:
    customer = "controller_customer_id"
    as_id, then = read_identity(customer, " 17", form="raw", id_kinds=IDS)
    assert (as_id.kind, as_id.value) == ("id", "17")
    (alias,) = read_identity(customer, "17", form="raw", id_kinds=("id",))
    assert alias == then == Identifier(customer, "17")
    hashed = read_identity(customer, alias.digest(), form="sha256", id_kinds=IDS)
    assert hashed == (alias,)


def test_discovery_lists_what_is_understood() -> None:
    for one in list_supported():
        form = one["identity_format"]
        value = "0" * 64 if form == "sha256" else "a@b"
        read_identity(one["identity_type"], value, form=form, id_kinds=IDS)
    assert len(list(list_supported())) == 2 * len(TYPES) == 22


@pytest.mark.parametrize("form", ["sha1", "md5"])
def test_broken_hashes_are_refused_with_the_reason(form: str) -> None:
    with pytest.raises(UnusableDocument, match=f"{form} is not supported, since"):
        parse(body(subject_identities=[identity("0" * 40, form=form)]))


WRONG_IDENTITIES = [
    [],
    [identity()] * 21,
    [SECRET],
    [identity(None)],
    [identity(name=SECRET)],
    [identity(form=SECRET)],
    [identity(SECRET * 50)],
    [identity(SECRET + "\x00")],
    [identity("\ud800" + SECRET)],
    [identity(SECRET, form="sha256")],
    [identity(), identity("<" + SECRET + ">")],
]


@pytest.mark.parametrize("wrong", WRONG_IDENTITIES)
def test_no_error_shows_what_was_sent(wrong: list[Any]) -> None:
    with pytest.raises(UnusableDocument) as caught:
        parse(body(subject_identities=wrong))
    assert "lovelace" not in repr(caught.value.complaints) + str(caught.value)


@pytest.mark.parametrize("field", ["regulation", "submitted_time", "api_version"])
def test_other_fields_are_not_shown_either(field: str) -> None:
    with pytest.raises(UnusableDocument) as caught:
        parse(body(**{field: SECRET}))
    assert "lovelace" not in str(caught.value)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"\xff", b"nul", b"[" * 10**5, b'{"a":1,"a":2}', b"NaN"]
)
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(UnusableDocument) as caught:
        parse(text)
    assert caught.value.complaints[0].reason == "parse"


REPLY = {"reply_to": "/api/v1/request-task/callback", "reply_to_token": "ey.J-_."}


def test_fides_says_where_it_waits() -> None:
    reply = parse(body(extensions={"ethyca.com": REPLY})).reply
    assert reply is not None
    assert [reply.path, reply.token] == list(REPLY.values())
    assert reply.token not in repr(reply)


@pytest.mark.parametrize(
    "change",
    [
        {"reply_to": "https://elsewhere.example/"},
        {"reply_to": "//elsewhere.example/x"},
        {"reply_to": "/api/../admin"},
        {"reply_to": "/api?x=1"},
        {"reply_to": None},
        {"reply_to_token": "a\r\nb"},
        {"reply_to_token": ""},
        {"reply_to_token": "a" * 10**4},
    ],
)
def test_fides_is_called_at_a_path_of_its_own(change: dict[str, Any]) -> None:
    with pytest.raises(UnusableDocument, match="extensions"):
        parse(body(extensions={"ethyca.com": REPLY | change}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(sorted(json.loads(body())))


@given(st.dictionaries(FIELDS, JSON))
def test_anything_is_understood_or_refused(changes: dict[str, Any]) -> None:
    try:
        parse(body(**changes))
    except UnusableDocument as error:
        assert error.complaints
    except InvalidInput:  # pragma: no cover
        pytest.fail("an error without complaints")
