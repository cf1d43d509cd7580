# SPDX-License-Identifier: Apache-2.0
"""Digests of the rows that are in a model which does not keep them.

Removing a row that was never there would manipulate the model, so every row to be
removed must have a digest here: 16 bytes of keyed BLAKE2b of its numbers, label and
weight. A digest says nothing without the key, and is deleted with the row. Equal rows
are counted. The digests also say which rows belong to one person, by number, so that a
person counts once however their rows are removed. The number is a keyed digest too, of
the person's id: who brings more rows later is recognised.

They change in place, because a copy for each request would cost more than the removal.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.arrays import Design, Matrix, Vector
from ..core.packing import Arrays, pack
from ..core.rows import Rows
from ..core.values import Private
from ..exceptions import UnknownRows

DIGEST_BYTES = 16
Key = TypeVar("Key")
Person = TypeVar("Person")
Value = TypeVar("Value")


class RowDigests(Private):
    """Digests of the rows in the model, with how often each occurs.

    Attributes
    ----------
    key
        The secret key of the digests.
    counts
        How often each digest occurs.
    owners
        The number of the person who owns each row with a digest; empty if every row is
        a person.
    left, partly_removed
        How many rows each person has left, and people some of whose rows are removed.
    """

    __slots__ = ("counts", "key", "left", "owners", "partly_removed")

    def __init__(
        self,
        counts: Counter[bytes],
        key: bytes,
        *,
        owners: Mapping[bytes, Sequence[int]] | None = None,
        partly_removed: Iterable[int] = (),
    ) -> None:
        self.counts = counts
        self.key = key
        self.owners = {entry: tuple(some) for entry, some in (owners or {}).items()}
        self.left = Counter(n for some in self.owners.values() for n in some)
        self.partly_removed = set(partly_removed)

    @classmethod
    def of(
        cls, rows: Rows, key: bytes, *, owners: Sequence[str] | None = None
    ) -> "RowDigests":
        """Return the digests of these rows under a secret key, with their owners."""
        entries = list(digests(rows, key))
        if owners is None:
            return cls(Counter(entries), key)
        numbers = {owner: number_person(owner, key) for owner in set(owners)}
        theirs: dict[bytes, list[int]] = {}
        for entry, owner in zip(entries, owners, strict=True):
            theirs.setdefault(entry, []).append(numbers[owner])
        return cls(Counter(entries), key, owners=theirs)

    def find(self, rows: Rows) -> Counter[bytes]:
        """Return the digests of these rows, or raise UnknownRows; change nothing."""
        counts = Counter(digests(rows, self.key))
        missing = sum(
            max(0, count - self.counts[digest]) for digest, count in counts.items()
        )
        if missing:
            raise unknown_rows(missing, len(rows))
        return counts

    def count_people(self, entries: Counter[bytes]) -> int:
        """Return how many people lose rows for the first time with these digests."""
        if not self.owners:
            return entries.total()
        return len(self._people(self._taken(entries)).keys() - self.partly_removed)

    def change(
        self, gone: Counter[bytes], added: Rows | None, *, owners: Sequence[str] = ()
    ) -> "DigestChange":
        """Return what removing these digests and adding rows changes; change nothing.

        ``owners`` are those of the added rows.
        """
        taken = self._taken(gone)
        lost = self._people(taken)
        counts = {entry: self.counts[entry] - n for entry, n in gone.items()}
        left = {person: self.left[person] - n for person, n in lost.items()}
        theirs = {
            entry: tuple(
                person
                for index, person in enumerate(self.owners[entry])
                if index not in indices
            )
            for entry, indices in taken.items()
        }
        entries = [] if added is None else digests(added, self.key)
        for entry, owner in itertools.zip_longest(entries, owners):
            counts[entry] = counts.get(entry, self.counts[entry]) + 1
            if self.owners:
                person = number_person(owner, self.key)
                theirs[entry] = (
                    *theirs.get(entry, self.owners.get(entry, ())),
                    person,
                )
                left[person] = left.get(person, self.left[person]) + 1
        return DigestChange(counts, theirs, left, frozenset(lost))

    def apply(self, change: "DigestChange") -> None:
        """Apply a change from ``change``; doing it twice has the same effect."""
        _put(self.counts, change.counts)
        _put(self.owners, change.owners)
        _put(self.left, change.left)
        for person, n_rows in change.left.items():
            if not n_rows:
                self.partly_removed.discard(person)
            elif person in change.lost:
                self.partly_removed.add(person)

    def dump(self, path: str, arrays: Arrays) -> Any:
        """Return the digests as JSON data, with their arrays beside it."""
        entries = sorted(self.counts.items())
        joined = b"".join(entry for entry, _ in entries)
        owners = [p for entry, _ in entries for p in self.owners.get(entry, ())]
        parts = {
            "key": self.key,
            "digests": np.frombuffer(joined, np.uint8).reshape(-1, DIGEST_BYTES),
            "counts": np.array([count for _, count in entries], dtype=np.int64),
            "owners": np.array(owners, dtype=np.int64),
            "partly_removed": sorted(self.partly_removed),
        }
        return pack(parts, path, arrays=arrays)

    @classmethod
    def load(cls, parts: Mapping[str, Any]) -> "RowDigests":
        """Return the digests from the unpacked output of ``dump``."""
        entries = [bytes(entry) for entry in parts["digests"]]
        counts = parts["counts"].tolist()
        owners, people = {}, parts["owners"].tolist()
        if people:
            ends = np.cumsum([0, *counts]).tolist()
            owners = {
                entry: people[begin:end]
                for entry, begin, end in zip(entries, ends[:-1], ends[1:], strict=True)
            }
        table = Counter(dict(zip(entries, counts, strict=True)))
        return cls(
            table, parts["key"], owners=owners, partly_removed=parts["partly_removed"]
        )

    def _taken(self, entries: Counter[bytes]) -> dict[bytes, list[int]]:
        """Return which rows of each digest to remove, by index among its owners.

        Equal rows are the same to the model. A request is taken to mean the people all
        of whose rows it names, or most of them, or who lost rows before.
        """
        if not self.owners:
            return {}
        share = share_by_person(entries, self.owners)

        def order(entry: bytes) -> list[int]:
            theirs = self.owners[entry]
            return sorted(
                range(len(theirs)),
                key=lambda index: (
                    share[theirs[index]] < self.left[theirs[index]],
                    -share[theirs[index]],
                    theirs[index] not in self.partly_removed,
                ),
            )

        return {entry: order(entry)[:n] for entry, n in entries.items()}

    def _people(self, taken: Mapping[bytes, Sequence[int]]) -> Counter[int]:
        return Counter(
            self.owners[entry][index]
            for entry, indices in taken.items()
            for index in indices
        )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DigestChange(Private):
    """What a request makes of the digests it names, and of those who lost rows."""

    counts: Mapping[bytes, int]
    owners: Mapping[bytes, tuple[int, ...]]
    left: Mapping[int, int]
    lost: frozenset[int]


def unknown_rows(missing: int, n_rows: int) -> UnknownRows:
    """Return the error for rows, named by their content, that are not in the model."""
    return UnknownRows(
        f"not, or no longer, in the training data: {missing} of {n_rows} rows; nothing "
        "was removed; pass rows exactly as this model was fitted to them, with their "
        "labels and weights (after the steps of a scikit-learn Pipeline, which does "
        "not forget; give the model the steps as preprocessing=...)"
    )


def number_person(owner: str, key: bytes) -> int:
    """Return the number by which digests know a person: a digest of their id."""
    hashed = blake2b(owner.encode(), key=key, digest_size=8, person=b"person")
    return int.from_bytes(hashed.digest(), "big") >> 1


def share_by_person(
    wanted: Counter[bytes], owners: Mapping[bytes, Sequence[Person]]
) -> Counter[Person]:
    """Return how many of the rows named each person could mean."""
    share: Counter[Person] = Counter()
    for entry, n in wanted.items():
        for person, there in Counter(owners[entry]).items():
            share[person] += min(n, there)
    return share


def digests(rows: Rows, key: bytes) -> Iterator[bytes]:
    """Yield the keyed digest of each row's numbers, label and weight.

    A row has one digest, dense or sparse. If most of its numbers are not zero, they are
    hashed in their order; else the columns (as int32) and numbers that are not zero.
    Neither can be mistaken for the other, which is of another length.
    """
    for block in rows.blocks(1024):
        labels = block.y.reshape(len(block), -1)
        # Adding zero makes -0.0 and 0.0 the same number.
        facts = np.concatenate([labels, block.weight[:, None]], axis=1)
        facts = np.add(facts, 0.0, order="C")
        for line, fact in zip(_lines(block.X), facts, strict=True):
            hashed = blake2b(line, key=key, digest_size=DIGEST_BYTES)
            hashed.update(fact)
            yield hashed.digest()


def _lines(X: Design) -> Iterator[Any]:
    n_columns = int(X.shape[1])
    if sparse.issparse(X):
        ends, columns, numbers = _sparse_entries(X)
    else:
        if len(X) == 1:  # most requests: a tenth of the time
            fewest = int(np.count_nonzero(X))
        else:
            fewest = int(np.min(np.count_nonzero(X, axis=1), initial=n_columns))
        if 2 * fewest > n_columns:
            yield from np.add(X, 0.0, order="C")
            return
        ends, columns, numbers = _dense_entries(X)
    for begin, end in itertools.pairwise(ends):
        if 2 * (end - begin) <= n_columns:
            yield columns[begin:end].tobytes() + numbers[begin:end].tobytes()
        else:
            line = np.zeros(n_columns)
            line[columns[begin:end]] = numbers[begin:end]
            yield line


# Where rows begin and end, and the columns and numbers that are not zero.
def _sparse_entries(X: Any) -> tuple[list[int], NDArray[np.int32], Vector]:
    if not (X.has_canonical_format and X.data.all()):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return X.indptr.tolist(), X.indices.astype(np.int32, copy=False), X.data


def _dense_entries(X: Matrix) -> tuple[list[int], NDArray[np.int32], Vector]:
    n_rows, n_columns = X.shape
    table = X.reshape(-1)
    indices = np.flatnonzero(table)
    if n_rows == 1:
        return [0, len(indices)], indices.astype(np.int32), table[indices]
    ends = np.searchsorted(indices, np.arange(n_rows + 1) * n_columns)
    return ends.tolist(), (indices % n_columns).astype(np.int32), table[indices]


def _put(table: MutableMapping[Key, Value], after: Mapping[Key, Value]) -> None:
    """Write these values into a table; delete entries whose value is empty."""
    for key, value in after.items():
        if value:
            table[key] = value
        else:
            table.pop(key, None)
