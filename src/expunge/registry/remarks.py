# SPDX-License-Identifier: Apache-2.0
"""Remarks: the number of a ticket and a note on a request, for those who work on it.

A ticket leads to a person, so neither is a part of the request, of the journal or of
the ledger. Both are sealed under a key for each request, made from ``keys/outbox``. A
reference is found again by a keyed tag. Remarks are erased when somebody says so, at
the latest with the record of the request. A restore brings back what the backup has.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sqlalchemy import Connection, delete, insert, select

from ..exceptions import InvalidInput
from ..ledger import TagKey
from ..ledger.documents import day_of
from ..ledger.keys import request_tag
from ..rights.identifiers import spell
from .context import WAIT, Context
from .deliveries import open_outbox_key
from .keys import read_tag_keys
from .request import RequestStatus, require_request
from .storage.engine import chunks
from .storage.keystore import KEY_BYTES, seal, unseal
from .storage.tables import remarks

LONGEST_REFERENCE, LONGEST_NOTE = 200, 2000
COLUMNS = (
    "reference",
    "request",
    "right",
    "regime",
    "stage",
    "submitted",
    "accepted",
    "deadline",
    "completed",
    "outcome",
    "reason",
    "extended",
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


@dataclass(frozen=True, slots=True, repr=False)
class Remark:
    """What somebody wrote down beside a request.

    Parameters
    ----------
    reference
        Such as the number of a ticket; it can be searched for.
    note
        Any text.
    """

    reference: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse what is too long, or would break a line of a table."""
        for name, text, most in (
            ("reference", self.reference, LONGEST_REFERENCE),
            ("note", self.note, LONGEST_NOTE),
        ):
            if len(text) > most:
                raise InvalidInput(
                    f"a {name} of {len(text)} characters; give {most} at most"
                )
        if not self.reference.isprintable():
            raise InvalidInput("the reference holds a line break or the like; leave it")

    def __bool__(self) -> bool:
        return bool(self.reference or self.note)


def write_remarks(context: Context, found: Mapping[str, Remark]) -> None:
    """Write remarks in place of those that there are; an empty one deletes them."""
    keys = read_tag_keys(context.paths)
    secret = open_outbox_key(context.paths)
    rows = [
        {
            "request": request,
            "tag": _tags(one.reference, keys)[0] if one.reference else "",
            "sealed": seal(
                json.dumps([one.reference, one.note]).encode(),
                _key(secret, request),
                place=f"remark {request}",
            ),
        }
        for request, one in found.items()
        if one
    ]
    with context.store.write() as connection:
        for request in found:
            require_request(connection, request)
        _delete(connection, [*found])
        for some in chunks(rows):
            connection.execute(insert(remarks), some)


def read_remarks(context: Context, requests: Sequence[str]) -> dict[str, Remark]:
    """Return the remarks on requests; those without are left out."""
    with context.store.read(snapshot=False) as connection:
        rows = [
            row
            for chunk in chunks(requests)
            for row in connection.execute(
                select(remarks).where(remarks.c.request.in_(chunk))
            )
        ]
    if not rows:
        return {}
    secret = open_outbox_key(context.paths)
    return {
        row.request: Remark(
            *json.loads(
                unseal(
                    bytes(row.sealed),
                    _key(secret, row.request),
                    place=f"remark {row.request}",
                )
            )
        )
        for row in rows
    }


def find_reference(context: Context, reference: str) -> list[str]:
    """Return the requests that have a reference."""
    tags = _tags(reference, read_tag_keys(context.paths))
    query = select(remarks.c.request).where(remarks.c.tag.in_(tags))
    with context.store.read(snapshot=False) as connection:
        return sorted(connection.scalars(query))


def erase_remarks(context: Context, requests: Sequence[str]) -> None:
    """Delete remarks, from disk too."""
    with context.store.write() as connection:
        _delete(connection, requests)
    context.store.erase_deleted(WAIT)


def write_outcomes(
    requests: Iterable[RequestStatus], found: Mapping[str, Remark]
) -> str:
    """Return requests and what became of them as CSV, for a ticket system."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for one in requests:
        said = {
            **one.to_json(),
            "reference": found.get(one.request, Remark()).reference,
            "completed": "" if one.completed is None else day_of(one.completed),
            "extended": one.extended,
        }
        writer.writerow(defuse(str(said[name])) for name in COLUMNS)
    return text.getvalue()


def defuse(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def _delete(connection: Connection, requests: Sequence[str]) -> None:
    for chunk in chunks(requests):
        connection.execute(delete(remarks).where(remarks.c.request.in_(chunk)))


def _tags(reference: str, keys: Sequence[TagKey]) -> list[str]:
    """Return the tags of a reference under every key, newest first."""
    text = f"reference\x00{spell(reference).casefold()}"
    return [request_tag(text, key) for key in keys]


def _key(secret: bytes, request: str) -> bytes:
    """Return the key of the remark on one request."""
    hashed = blake2b(
        request.encode(), key=secret, digest_size=KEY_BYTES, person=b"expunge remark"
    )
    return hashed.digest()
