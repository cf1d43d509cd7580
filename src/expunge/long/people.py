# SPDX-License-Identifier: Apache-2.0
"""Whose rows lie where: an index from the tag of a person to positions, on disk.

A tag is 16 bytes of keyed BLAKE2b of the id; without the key, which stays in memory,
it says nothing. Tags spread evenly, so their first byte divides the rows among 256
small files, and the second each file into 256 parts: a person is found by reading one
of them. Erasing a row overwrites its tag and its position.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index
from ..core.values import Private
from .file_arrays import FileArray
from .raw_table import runs_of

TAG_BYTES = 16
BUCKETS = 256
WRITTEN_AT_ONCE = 1 << 16  # rows that are noted before 256 files are opened
ENTRY = np.dtype([("tag", "<u8", (2,)), ("position", "<i8")])
NOWHERE = -1  # the position of an entry that was erased


def tags_of(owners: Iterable[str], key: bytes) -> Iterator[bytes]:
    """Yield the tags of people, or of rows without one."""
    # A copy costs a seventh of hashing with the key from the start.
    empty = blake2b(key=key, digest_size=TAG_BYTES, person=b"tag")
    for owner in owners:
        hashed = empty.copy()
        hashed.update(owner.encode())
        yield hashed.digest()


class PeopleWriter:
    """Writes the tag of each row as the first pass finds its owner."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder = folder
        self._key = key
        self._tags = _create(folder / "tags")
        self._n_rows = 0
        self._pending: list[NDArray[Any]] = []

    def add(self, owners: Sequence[str], codes: Index) -> None:
        """Note the next rows: the owner of each, by its position in ``owners``."""
        words = b"".join(tags_of(owners, self._key))
        tags = np.frombuffer(words, "<u8").reshape(-1, 2)[codes]
        self._tags.write(tags.tobytes())
        entries = np.empty(len(codes), dtype=ENTRY)
        entries["tag"] = tags
        entries["position"] = self._n_rows + np.arange(len(codes))
        self._n_rows += len(codes)
        self._pending.append(entries)
        if sum(map(len, self._pending)) >= WRITTEN_AT_ONCE:
            self._write_pending()

    def _write_pending(self) -> None:
        """Add the entries at hand to their buckets."""
        entries = np.concatenate([np.empty(0, dtype=ENTRY), *self._pending])
        self._pending = []
        # Sixteen bits are sorted by their digits, in one look at each.
        buckets = _bucket(entries["tag"]).astype(np.uint16)
        order = np.argsort(buckets, kind="stable")
        ends = np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
        for bucket in np.unique(buckets).tolist():
            some = entries[order[ends[bucket] : ends[bucket + 1]]]
            with _bucket_path(self._folder, bucket).open("ab") as file:
                file.write(some.tobytes())

    def finish(self) -> "People":
        """Return the index, complete."""
        self._write_pending()
        self._tags.close()
        tags = FileArray(self._folder / "tags", 0, np.dtype("<u8"), (self._n_rows, 2))
        begins = np.stack([self._arrange(bucket) for bucket in range(BUCKETS)])
        return People(self._folder, self._key, tags=tags, begins=begins)

    def _arrange(self, bucket: int) -> Index:
        """Bring the entries of a bucket into the order of its parts; return where."""
        path, every = _bucket_path(self._folder, bucket), np.arange(BUCKETS + 1)
        if not path.exists():
            return np.zeros_like(every)
        entries = np.fromfile(path, dtype=ENTRY)
        parts = _part(entries["tag"])
        order = np.argsort(parts, kind="stable")
        entries[order].tofile(path)
        return np.searchsorted(parts[order], every)

    def close(self) -> None:
        """Close the file that is open."""
        self._tags.close()


class People(Private):
    """The index: positions by person, and tags by position."""

    __slots__ = ("_begins", "_folder", "_key", "_tags")

    def __init__(
        self, folder: Path, key: bytes, *, tags: FileArray, begins: Index
    ) -> None:
        self._folder = folder
        self._key = key
        self._tags = tags
        self._begins = begins

    def find(self, owner: str) -> Index:
        """Return the sorted positions of a person's rows; none if there are none."""
        tag = np.frombuffer(next(tags_of([owner], self._key)), "<u8")
        _, entries = self._read(tag[None, :])
        theirs = entries[(entries["tag"] == tag).all(axis=1)]["position"]
        return np.sort(theirs[theirs != NOWHERE]).astype(np.intp)

    def count(self, positions: Index) -> int:
        """Return how many people own the rows at these positions."""
        return len(np.unique(self._tags_at(positions), axis=0))

    def erase(self, positions: Index) -> None:
        """Overwrite what is noted of these rows; doing it twice changes nothing."""
        for tag in np.unique(self._tags_at(positions), axis=0):
            part, entries = self._read(tag[None, :])
            gone = np.isin(entries["position"], positions)
            entries["tag"][gone] = 0
            entries["position"][gone] = NOWHERE
            part.write(0, entries.tobytes())
        for begin, end in runs_of(np.unique(positions)):
            self._tags.zero(begin, end)

    def _tags_at(self, positions: Index) -> NDArray[np.uint64]:
        """Return the tags of the rows at these positions."""
        runs = runs_of(np.unique(positions))
        parts = [self._tags.read(begin, end) for begin, end in runs]
        return np.concatenate(parts) if parts else np.empty((0, 2), np.uint64)

    def _read(self, tag: NDArray[Any]) -> tuple[FileArray, NDArray[Any]]:
        """Return the part of a bucket that a tag belongs to, and its entries."""
        bucket, part = int(_bucket(tag)[0]), int(_part(tag)[0])
        begin, end = self._begins[bucket, part : part + 2].tolist()
        path = _bucket_path(self._folder, bucket)
        entries = FileArray(path, begin * ENTRY.itemsize, ENTRY, (end - begin,))
        if begin == end:
            return entries, np.empty(0, dtype=ENTRY)
        return entries, entries.read(0, end - begin)


def find_all(people: People, owners: Iterable[str]) -> tuple[Index, set[str]]:
    """Return the positions of these people's rows, and who has none."""
    by_person: list[Index] = []
    missing: set[str] = set()
    for owner in sorted(owners):
        positions = people.find(owner)
        by_person.append(positions)
        if not len(positions):
            missing.add(owner)
    positions = np.concatenate(by_person) if by_person else np.empty(0, np.intp)
    return positions.astype(np.intp), missing


def _bucket(tags: NDArray[Any]) -> Index:
    """Return the bucket of each tag: its first byte."""
    return (tags[:, 0] & np.uint64(BUCKETS - 1)).astype(np.intp)


def _part(tags: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the part of its bucket that each tag belongs to: its second byte."""
    return (tags[:, 0] >> np.uint64(8)).astype(np.uint8)


def _bucket_path(folder: Path, bucket: int) -> Path:
    return folder / f"people-{bucket:03d}"


def _create(path: Path) -> BinaryIO:
    return path.open("xb")
