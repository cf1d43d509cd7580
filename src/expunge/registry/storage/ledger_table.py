# SPDX-License-Identifier: Apache-2.0
"""Ledger table: the ledger's entries, tree and heads in a store.

The roots of complete subtrees are kept with the entries, about two for each, so that
the next entry and any proof take a few look-ups, however long the ledger is.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, false, insert, or_, select

from ...exceptions import InvalidInput, LedgerCorrupt
from ...ledger import Entry, Head, KeyHistory, KeyRotated, Ledger, PublicKey, read_entry
from ...ledger.documents import FIRST_DAY
from ...ledger.merkle import (
    Frontier,
    Nodes,
    Proof,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
)
from .tables import entries, heads, nodes, read_metadata

FIRST_KEY = "ledger key"


@dataclass(slots=True)
class LedgerBatch:
    """Entries about to be appended to a ledger, written together.

    Parameters
    ----------
    ledger
        Where it stands, from ``read_ledger``.
    """

    ledger: Ledger
    entries: list[tuple[Entry, str]] = field(default_factory=list)
    roots: dict[tuple[int, int], bytes] = field(default_factory=dict)
    peaks: dict[tuple[int, int], bytes] = field(init=False)

    def __post_init__(self) -> None:
        """Keep the peaks: with the new roots they prove every new entry."""
        frontier = self.ledger.frontier
        places = _peaks(frontier.size)
        self.peaks = dict(zip(places, frontier.peaks, strict=True))

    def append(self, entry: Entry) -> None:
        """Append the next entry."""
        text = entry.to_json()
        frontier, hashed = self.ledger.frontier, leaf_hash(text.encode())
        self.ledger = self.ledger.append_hashed(entry, hashed)
        for level, root in enumerate(frontier.completed_roots(hashed)):
            self.roots[level, frontier.size >> level] = root
        self.entries.append((entry, text))

    def proof(self, entry: Entry) -> Proof:
        """Return the proof that a new entry is in the ledger as it stands now."""

        def root(level: int, place: int) -> bytes:
            known = self.roots.get((level, place))
            return self.peaks[level, place] if known is None else known

        return inclusion_proof(root, entry.sequence, size=self.ledger.size)

    def write(self, connection: Connection, head: Head) -> None:
        """Write the new entries and the head above them."""
        if self.entries:
            connection.execute(
                insert(entries),
                [
                    {
                        "sequence": entry.sequence,
                        "day": entry.day,
                        "kind": entry.kind,
                        "text": text,
                    }
                    for entry, text in self.entries
                ],
            )
            connection.execute(
                insert(nodes),
                [
                    {"level": level, "place": place, "hash": root}
                    for (level, place), root in self.roots.items()
                ],
            )
        write_head(connection, head)


def write_head(connection: Connection, head: Head) -> None:
    """Write a head."""
    connection.execute(insert(heads), {"size": head.size, "text": head.to_json()})


def read_last_head(connection: Connection) -> str:
    """Return the newest head as it was written; nothing if there is none."""
    query = select(heads.c.text).order_by(heads.c.size.desc()).limit(1)
    return connection.scalar(query) or ""


def read_heads(connection: Connection) -> list[str]:
    """Return all heads as they were written, in order."""
    return list(connection.scalars(select(heads.c.text).order_by(heads.c.size)))


def read_heads_after(connection: Connection, after: int, *, most: int) -> list[Head]:
    """Return at most so many heads over more than ``after`` entries, in order."""
    query = select(heads.c.text).where(heads.c.size > after).order_by(heads.c.size)
    with _report_altered():
        return [Head.from_json(text) for text in connection.scalars(query.limit(most))]


def prove_inclusion(
    connection: Connection, sequence: int, *, size: int
) -> tuple[str, ...]:
    """Return the proof that an entry is in the ledger of a size, in hexadecimal."""
    _require_size(connection, size)
    proof = inclusion_proof(_nodes_in(connection), sequence, size=size)
    return tuple(one.hex() for one in proof)


def prove_growth(connection: Connection, first: int, *, second: int) -> tuple[str, ...]:
    """Return the proof that one size of the ledger begins with another's."""
    _require_size(connection, second)
    proof = consistency_proof(_nodes_in(connection), first, new=second)
    return tuple(one.hex() for one in proof)


def _require_size(connection: Connection, size: int) -> None:
    """Refuse a size that the ledger does not have yet."""
    there = count_entries(connection)
    if size > there:
        raise InvalidInput(f"the ledger has {there} entries, not {size}; ask for less")


def _nodes_in(connection: Connection) -> Nodes:
    """Return how to look up the complete subtrees in a store."""
    query = select(nodes.c.hash).where(
        nodes.c.level == bindparam("of"), nodes.c.place == bindparam("at")
    )

    def find(level: int, place: int) -> bytes:
        found = connection.scalar(query, {"of": level, "at": place})
        if found is None:
            raise LedgerCorrupt(
                "the ledger lacks a hash over its entries; export it and run expunge "
                "verify to see what is gone"
            )
        return bytes(found)

    return find


def has_head(connection: Connection, text: str) -> bool:
    """Return whether a head is here as it was written."""
    size = Head.from_json(text).size
    return connection.scalar(select(heads.c.text).where(heads.c.size == size)) == text


_LAST = (
    select(entries.c.sequence, entries.c.day)
    .order_by(entries.c.sequence.desc())
    .limit(1)
)
_ROTATIONS = (
    select(entries.c.text)
    .where(entries.c.kind == "key rotated")
    .order_by(entries.c.sequence)
)
_FROM = (
    select(entries.c.text)
    .where(entries.c.sequence >= bindparam("start"))
    .order_by(entries.c.sequence)
    .limit(bindparam("most"))
)


def count_entries(connection: Connection) -> int:
    """Return how many entries the ledger in a store has."""
    last = connection.execute(_LAST).first()
    return 0 if last is None else int(last.sequence) + 1


def read_last_day(connection: Connection) -> str:
    """Return the day of the last entry; empty if there is none."""
    last = connection.execute(_LAST).first()
    return "" if last is None else str(last.day)


def read_ledger(connection: Connection) -> Ledger:
    """Return where the ledger in a store stands."""
    last = connection.execute(_LAST).first()
    size, day = (0, FIRST_DAY) if last is None else (last.sequence + 1, last.day)
    places = _peaks(size)
    # Pair by pair: SQLite would not use its index for a list of pairs.
    pairs = ((nodes.c.level == i) & (nodes.c.place == j) for i, j in places)
    query = select(nodes).where(or_(false(), *pairs))
    found = {(line.level, line.place): line.hash for line in connection.execute(query)}
    if len(found) < len(places):
        raise LedgerCorrupt(
            f"the ledger has {size} entries and lacks hashes over them; export it and "
            "run expunge verify to see what is gone"
        )
    peaks = tuple(bytes(found[place]) for place in places)
    return Ledger(Frontier(size, peaks), _keys(connection), day)


def read_entries(connection: Connection, start: int, *, most: int) -> list[Entry]:
    """Return at most so many entries, from one on."""
    found = connection.execute(_FROM, {"start": start, "most": most}).all()
    with _report_altered():
        return [read_entry(text) for (text,) in found]


def read_entries_of(
    connection: Connection, kinds: Sequence[type[Entry]]
) -> list[Entry]:
    """Return all entries of some kinds, in order."""
    names = [str(kind.__struct_config__.tag) for kind in kinds]
    query = select(entries.c.text).where(entries.c.kind.in_(names))
    rows = connection.scalars(query.order_by(entries.c.sequence))
    with _report_altered():
        return [read_entry(text) for text in rows]


def export_lines(connection: Connection) -> bytes:
    """Return the whole ledger as the lines of an export, heads in their places."""
    signed: dict[int, str] = {
        size: text
        for size, text in connection.execute(select(heads.c.size, heads.c.text))
    }
    written = []
    query = select(entries.c.sequence, entries.c.text).order_by(entries.c.sequence)
    for sequence, text in connection.execute(query):
        written.append(text)
        if sequence + 1 in signed:
            written.append(signed[sequence + 1])
    return "".join(f"{line}\n" for line in written).encode()


def _keys(connection: Connection) -> KeyHistory:
    """Return the keys of the ledger, from the first one on."""
    first = PublicKey(bytes.fromhex(read_metadata(connection, FIRST_KEY)))
    history = KeyHistory(((0, first),))
    for text in connection.scalars(_ROTATIONS):
        with _report_altered():
            rotation = read_entry(text)
        assert isinstance(rotation, KeyRotated)
        history = history.with_key(rotation.sequence + 1, rotation.new_key)
    return history


def _peaks(size: int) -> list[tuple[int, int]]:
    """Return level and place of the largest complete subtrees, largest first."""
    levels = reversed(range(size.bit_length()))
    return [(level, (size >> level) - 1) for level in levels if size >> level & 1]


@contextmanager
def _report_altered() -> Iterator[None]:
    """Report an entry that cannot be parsed as altered."""
    try:
        yield
    except InvalidInput as error:
        raise LedgerCorrupt(
            f"an entry of the ledger was altered: {error}; export it and run expunge "
            "verify to see which"
        ) from error
