# SPDX-License-Identifier: Apache-2.0
"""People table: whose rows are in which model, under tags, each person's sealed apart.

The rows of one person in one model are sealed under a key of their own. Those keys are
kept in pages of 256, each page sealed under a page key, and page keys belong to the
model's checkpoint. Removing a person deletes the rows and rewrites the page without
that key and under another page key: a few kilobytes, however many people there are.

A row without a person has the tag ``row:`` and its position. Tags of people begin with
the hexadecimal name of a key, so no request finds such a row, and it does not count as
a person.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from ...core.values import Private
from ...exceptions import StoreFailed
from .engine import analyse
from .tables import pages, request_tags, rows, subjects
from .vault import KEY_BYTES, new_key, seal, unseal

PAGE = 256  # keys in a page
PAGES_AT_ONCE = 16
CHUNK = 500  # values in one statement
ROW_TAG = "row:"

# Statements are made once: a request is a few dozen of them.
_HOLDERS = (
    select(subjects.c.tag, rows.c.model)
    .join(rows, rows.c.subject == subjects.c.id)
    .where(subjects.c.tag.in_(bindparam("tags", expanding=True)))
)
_ASKED = (
    select(
        request_tags.c.request,
        rows.c.model,
        rows.c.subject,
        request_tags.c.tag,
        rows.c.page,
        rows.c.slot,
        rows.c.sealed,
    )
    .join(subjects, subjects.c.tag == request_tags.c.tag)
    .join(rows, rows.c.subject == subjects.c.id)
    .where(request_tags.c.request.in_(bindparam("ids", expanding=True)))
)
_TAGGED = (
    select(
        rows.c.model,
        rows.c.subject,
        subjects.c.tag,
        rows.c.page,
        rows.c.slot,
        rows.c.sealed,
    )
    .join(subjects, rows.c.subject == subjects.c.id)
    .where(subjects.c.tag.in_(bindparam("tags", expanding=True)))
)
_EVERYBODY = (
    select(rows.c.subject, subjects.c.tag, rows.c.page, rows.c.slot, rows.c.sealed)
    .join(subjects, rows.c.subject == subjects.c.id)
    .where(rows.c.model == bindparam("model"), rows.c.page >= bindparam("first"))
    .order_by(rows.c.page, rows.c.slot)
)
_KNOWN = select(subjects.c.tag, subjects.c.id).where(
    subjects.c.tag.in_(bindparam("tags", expanding=True))
)
_NEAR = select(subjects.c.near, subjects.c.tag).where(
    subjects.c.near.in_(bindparam("near", expanding=True))
)
_WRITE_NEAR = (
    update(subjects)
    .where(subjects.c.tag == bindparam("of"))
    .values(near=bindparam("loose"))
)
_PAGES = select(pages.c.page, pages.c.sealed).where(
    pages.c.model == bindparam("model"),
    pages.c.page.in_(bindparam("wanted", expanding=True)),
)
_RENEW = update(pages).where(
    pages.c.model == bindparam("of"), pages.c.page == bindparam("number")
)
_STRIKE = delete(rows).where(
    rows.c.model == bindparam("model"),
    rows.c.subject.in_(bindparam("numbers", expanding=True)),
)
_DROP = delete(subjects).where(
    subjects.c.id.in_(bindparam("numbers", expanding=True)),
    subjects.c.id.not_in(
        select(rows.c.subject).where(
            rows.c.subject.in_(bindparam("numbers", expanding=True))
        )
    ),
)

PageKeys: TypeAlias = NDArray[np.uint8]
Pages: TypeAlias = dict[int, bytes]
Who: TypeAlias = int | str
"""A person by number, or by tag."""
NO_KEYS: PageKeys = np.zeros((0, KEY_BYTES), np.uint8)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SealedRows(Private):
    """The sealed rows of one person in one model, and where their key lies."""

    subject: int
    tag: str
    page: int
    slot: int
    sealed: bytes


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RemainingKeys(Private):
    """A model's key pages without the keys of some people."""

    removed: Sequence[SealedRows]
    sealed: Mapping[int, bytes]
    page_keys: PageKeys


def models_by_tag(connection: Connection, tags: Sequence[str]) -> dict[str, set[str]]:
    """Return for each known tag the models that hold rows under it."""
    held: dict[str, set[str]] = {}
    for chunk in chunks(tags):
        for tag, model in connection.execute(_HOLDERS, {"tags": chunk}):
            held.setdefault(tag, set()).add(model)
    return held


def find_nearest(connection: Connection, tags: Sequence[str]) -> dict[str, str]:
    """Return for each tag itself, if somebody has it, or else the next one in order.

    The store takes the same steps for everybody, as ``aliases_table`` does.
    """
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    found: dict[str, str] = {}
    for chunk in chunks(tags):
        marks = ", ".join([f"({mark})"] * len(chunk))
        lines = connection.exec_driver_sql(
            f"WITH wanted (place) AS (VALUES {marks}) SELECT place, "
            "(SELECT min(tag) FROM subjects WHERE tag >= place) FROM wanted",
            tuple(chunk),
        )
        found |= {place: tag for place, tag in lines}
    return found


def find_near(connection: Connection, near: Sequence[str]) -> dict[str, set[str]]:
    """Return for each tag of a loosest form the tags of people who are held with it."""
    found: dict[str, set[str]] = {}
    for chunk in chunks(near):
        for loose, tag in connection.execute(_NEAR, {"near": chunk}):
            found.setdefault(loose, set()).add(tag)
    return found


def write_near(connection: Connection, near: Mapping[str, str]) -> None:
    """Write the tag of the loosest form of each person's id, by the person's tag."""
    lines = [{"of": tag, "loose": loose} for tag, loose in near.items()]
    for chunk in chunks(lines):
        connection.execute(_WRITE_NEAR, chunk)


def count_people(connection: Connection, model: str) -> int:
    """Return how many people a model holds; rows without a person do not count."""
    query = (
        select(func.count())
        .select_from(rows)
        .join(subjects, rows.c.subject == subjects.c.id)
        .where(rows.c.model == model, subjects.c.tag.not_like(f"{ROW_TAG}%"))
    )
    return int(connection.scalar(query) or 0)


def row_tag(position: int) -> str:
    """Return the tag of a row without a person."""
    return f"{ROW_TAG}{position}"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SealedPeople(Private):
    """People's rows, sealed for one model, with the pages that hold their keys.

    Attributes
    ----------
    rows
        For each person: who, and ``page``, ``slot`` and ``sealed`` as in the table.
    pages
        Sealed pages, by number.
    page_keys
        The keys of these pages, in order.
    """

    rows: Sequence[tuple[Who, Mapping[str, Any]]]
    pages: Mapping[int, bytes]
    page_keys: PageKeys


def seal_people(
    model: str, people: Sequence[tuple[Who, bytes]], *, first_page: int = 0
) -> SealedPeople:
    """Seal people's rows, each with who they are, on pages of their own."""
    sealed_rows, sealed_pages, page_keys = [], {}, []
    for page, members in enumerate(chunks(people, PAGE), first_page):
        keys = [new_key() for _ in members]
        page_keys.append(new_key())
        sealed_pages[page] = _seal_page(
            b"".join(keys), page_keys[-1], model=model, page=page
        )
        for slot, ((who, data), key) in enumerate(zip(members, keys, strict=True)):
            sealed = seal(data, key, place=_seal_name(model, page, slot=slot))
            sealed_rows.append((who, {"page": page, "slot": slot, "sealed": sealed}))
    joined = np.frombuffer(b"".join(page_keys), np.uint8)
    return SealedPeople(sealed_rows, sealed_pages, joined.reshape(-1, KEY_BYTES))


def insert_people(
    connection: Connection, model: str, *, people: Iterable[tuple[str, bytes]]
) -> PageKeys:
    """Insert people, each a tag with rows as bytes; return the page keys.

    Known tags get these rows beside those of other models. However many people there
    are, only some of them are in memory.
    """
    page_keys, page, left = [], 0, iter(people)
    while members := list(islice(left, PAGES_AT_ONCE * PAGE)):
        known = find_numbers(connection, [tag for tag, _ in members])
        numbered = [(known[tag], data) for tag, data in members]
        sealed = seal_people(model, numbered, first_page=page)
        insert_sealed(connection, model, sealed=sealed)
        page_keys.append(sealed.page_keys)
        page += len(sealed.page_keys)
    analyse(connection, "subjects (id)", "rows (model, subject)", "pages (model, page)")
    return np.concatenate([NO_KEYS, *page_keys])


def find_numbers(connection: Connection, tags: Sequence[str]) -> dict[str, int]:
    """Return the number of each tag; new ones are inserted."""
    known = _read_ids(connection, tags)
    new = [{"tag": tag} for tag in tags if tag not in known]
    for chunk in chunks(new):
        connection.execute(insert(subjects), chunk)
    return known | _read_ids(connection, [item["tag"] for item in new])


def insert_sealed(connection: Connection, model: str, *, sealed: SealedPeople) -> None:
    """Insert sealed rows, each with a person's number, and the pages of their keys.

    People may be named by their tags too, which costs reading their numbers.
    """
    tags = [who for who, _ in sealed.rows if isinstance(who, str)]
    numbers: dict[Who, int] = {}
    if tags:
        numbers.update(find_numbers(connection, tags))
    for page, data in sealed.pages.items():
        connection.execute(
            insert(pages), {"model": model, "page": page, "sealed": data}
        )
    lines = [
        {"model": model, "subject": numbers.get(who) or who, **line}
        for who, line in sealed.rows
    ]
    for chunk in chunks(lines):
        connection.execute(insert(rows), chunk)


def find_tagged_rows(
    connection: Connection, tags: Sequence[str]
) -> list[tuple[str, SealedRows]]:
    """Return the sealed rows of these people, each with the name they are under."""
    return [
        (name, SealedRows(*place))
        for chunk in chunks(tags)
        for name, *place in connection.execute(_TAGGED, {"tags": chunk})
    ]


def sort_rows(found: Iterable[SealedRows]) -> list[SealedRows]:
    """Return sealed rows in the order of their places."""
    return sorted(found, key=lambda one: (one.page, one.slot))


def find_asked_rows(
    connection: Connection, requests: Sequence[str]
) -> list[tuple[str, str, SealedRows]]:
    """Return the sealed rows that waiting requests are about, one person at a time.

    Each with the request and the model. What two requests name comes twice.
    """
    found = []
    for chunk in chunks(requests):
        for request, model, *place in connection.execute(_ASKED, {"ids": chunk}):
            found.append((request, model, SealedRows(*place)))
    return found


def read_all_rows(
    connection: Connection, model: str, *, first_page: int = 0
) -> list[SealedRows]:
    """Return the sealed rows of all people in a model, or those on later pages."""
    wanted = {"model": model, "first": first_page}
    return [SealedRows(*line) for line in connection.execute(_EVERYBODY, wanted)]


def unseal_rows(
    model: str, found: Sequence[SealedRows], *, pages: Pages
) -> Iterator[bytes]:
    """Yield the rows of each person as they were inserted."""
    for one in found:
        key = _key_at(pages[one.page], one.slot)
        yield unseal(one.sealed, key, place=_seal_name(model, one.page, slot=one.slot))


def keys_without(
    model: str, found: Sequence[SealedRows], *, pages: Pages, page_keys: PageKeys
) -> RemainingKeys:
    """Return a model's key pages without the keys of these people; write nothing."""
    left = page_keys.copy()
    kept = {page: bytearray(content) for page, content in pages.items()}
    for one in found:
        start = one.slot * KEY_BYTES
        kept[one.page][start : start + KEY_BYTES] = bytes(KEY_BYTES)
    sealed = {}
    for page, keys in kept.items():
        key = new_key()
        left[page] = np.frombuffer(key, np.uint8)
        sealed[page] = _seal_page(bytes(keys), key, model=model, page=page)
    return RemainingKeys(found, sealed, left)


def delete_rows(
    connection: Connection, model: str, *, remaining: RemainingKeys
) -> None:
    """Delete people's rows and keys from a model, and leave their tags."""
    renewed = [
        {"of": model, "number": page, "sealed": data}
        for page, data in remaining.sealed.items()
    ]
    if renewed:
        connection.execute(_RENEW, renewed)
    numbers = [one.subject for one in remaining.removed]
    for chunk in chunks(numbers):
        connection.execute(_STRIKE, {"model": model, "numbers": chunk})


def delete_all_people(connection: Connection, model: str) -> None:
    """Delete everybody from a model, and tags that no model uses; read nothing."""
    connection.execute(delete(rows).where(rows.c.model == model))
    connection.execute(delete(pages).where(pages.c.model == model))
    used = select(rows.c.subject).where(rows.c.subject == subjects.c.id)
    connection.execute(delete(subjects).where(~used.exists()))


def chunks(values: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Yield the values a few hundred at a time: a statement takes only so many."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _read_ids(connection: Connection, tags: Sequence[str]) -> dict[str, int]:
    """Return the ids of those tags that exist."""
    known: dict[str, int] = {}
    for chunk in chunks(tags):
        lines = connection.execute(_KNOWN, {"tags": chunk})
        known |= {tag: number for tag, number in lines}
    return known


def read_pages(
    connection: Connection,
    model: str,
    *,
    found: Sequence[SealedRows],
    page_keys: PageKeys,
) -> Pages:
    """Return the pages that hold these people's keys, unsealed."""
    wanted = sorted({one.page for one in found})
    opened = {}
    for chunk in chunks(wanted):
        asked = {"model": model, "wanted": chunk}
        for page, sealed in connection.execute(_PAGES, asked):
            key = page_keys[page].tobytes()
            opened[page] = unseal(sealed, key, place=f"page {page} of {model}")
    if len(opened) < len(wanted):
        raise StoreFailed(
            f"the database lacks pages of keys of model {model!r}; put it back from a "
            "backup and run expunge restore"
        )
    return opened


def delete_unused_tags(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete those of these tags under which no rows are left."""
    for chunk in chunks(numbers):
        connection.execute(_DROP, {"numbers": chunk})


def _seal_page(keys: bytes, key: bytes, *, model: str, page: int) -> bytes:
    return seal(keys, key, place=f"page {page} of {model}")


def _key_at(keys: bytes, slot: int) -> bytes:
    return keys[slot * KEY_BYTES : (slot + 1) * KEY_BYTES]


def _seal_name(model: str, page: int, *, slot: int) -> str:
    return f"rows {slot} on page {page} of {model}"
