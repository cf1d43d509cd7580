# SPDX-License-Identifier: Apache-2.0
"""Fits to a lake: the table without people who left, and where each person's rows lie.

One pass over the column of owners writes, for each row, its place and the tag of its
owner into one of 256 files, by the tag. Each of these is small enough to be sorted in
memory, and holds all rows of the people in it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Index
from ...disk import scratch_folder
from ...exceptions import InvalidInput
from ...ledger import TagKey, subject_tags
from ...ledger.keys import near_tag
from ...long import LongTable
from ...promise.scope import Scope
from ..answering.returning import (
    FitOptions,
    ForgottenInData,
    ForgottenTags,
    LeftOut,
    choose_tags,
    read_forgotten,
)
from ..context import Context
from ..keys import read_tag_keys
from ..loaded_model import FilesOfModel, dump_places
from .keeping import Lake

BUCKETS = 256
NEAR_AT_ONCE = 10_000
WORDS = 4
# A tag is the name of its key, by number, and 32 bytes, as four numbers.
ENTRY = np.dtype([("key", "u1"), ("tag", "<u8", (WORDS,)), ("place", "<i8")])


class PlacesByPerson:
    """The places of each person's rows, in a folder that its owner deletes."""

    def __init__(self, folder: Path, keys: Sequence[TagKey]) -> None:
        self._folder = folder
        self._near = folder / "spellings"
        self._names = [key.id for key in keys]
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def add(self, tags: Sequence[str], codes: Index, *, places: Index) -> None:
        """Note the owners of some rows, by their number among tags."""
        parts = [tag.partition(":") for tag in tags]
        entries = np.empty(len(tags), dtype=ENTRY)
        entries["key"] = [self._numbers[name] for name, _, _ in parts]
        digits = bytes.fromhex("".join(digits for _, _, digits in parts))
        entries["tag"] = np.frombuffer(digits, "<u8").reshape(-1, WORDS)
        rows = entries[codes]
        rows["place"] = places
        buckets = rows["tag"][:, 0] % BUCKETS
        order = np.argsort(buckets, kind="stable")
        ends = np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
        for bucket in np.unique(buckets).tolist():
            some = rows[order[ends[bucket] : ends[bucket + 1]]]
            with self._path(bucket).open("ab") as file:
                file.write(some.tobytes())

    def note_spellings(self, tags: Sequence[str], near: Sequence[str]) -> None:
        """Note the tags of the loosest forms of people's ids; some may come again."""
        with self._near.open("a", encoding="ascii") as file:
            file.writelines(map("{} {}\n".format, tags, near))

    def spellings(self) -> Iterator[dict[str, str]]:
        """Yield the tags of loosest forms by those of people, some at a time."""
        if self._near.exists():
            with self._near.open(encoding="ascii") as file:
                while lines := list(islice(file, NEAR_AT_ONCE)):
                    yield dict(line.split() for line in lines)

    def people(self) -> Iterator[tuple[str, Index]]:
        """Yield the tag of each person, with the sorted places of their rows."""
        for bucket in range(BUCKETS):
            if self._path(bucket).exists():
                yield from self._sort(np.fromfile(self._path(bucket), dtype=ENTRY))

    def _sort(self, entries: NDArray[Any]) -> Iterator[tuple[str, Index]]:
        words = [entries["tag"][:, word] for word in range(WORDS)]
        entries = entries[np.lexsort((entries["place"], entries["key"], *words))]
        who = np.column_stack([entries["key"].astype(np.uint64), entries["tag"]])
        cuts = np.flatnonzero((who[1:] != who[:-1]).any(axis=1)) + 1
        for theirs in np.split(entries, cuts):
            name, digits = self._names[theirs["key"][0]], theirs["tag"][0].tobytes()
            yield f"{name}:{digits.hex()}", theirs["place"].astype(np.intp)

    def _path(self, bucket: int) -> Path:
        return self._folder / f"places-{bucket:03d}"


def find_places(
    context: Context,
    table: LongTable,
    *,
    folder: Path,
    forgotten: ForgottenTags,
    exact: bool,
) -> tuple[PlacesByPerson, Index, tuple[int, int]]:
    """Return whose rows lie where, but those of people who were forgotten.

    Beside them the places of the rows of those people, how many people they are, and
    how many of these by an id that is only spelled almost so.

    Parameters
    ----------
    context
        The registry.
    table
        The table; rows that are absent in it are left out.
    folder
        Where to sort them: a private folder that the caller deletes.
    forgotten
        Tags of people who may be in no fit.
    exact
        Whether to look for these very ids alone.
    """
    keys = read_tag_keys(context.paths)
    found = PlacesByPerson(folder, keys)
    back: list[Index] = []
    people: dict[str, str] = {}
    for begin, owners, codes in table.read_owners():
        answers = [forgotten.find(owner, keys, exact=exact) for owner in owners]
        left = np.array([answer is not None for answer in answers])
        tags = [subject_tags(owner, keys[:1])[0] for owner in owners]
        if len(keys) > 1:  # one that is in use already, if there is one
            with context.store.read() as connection:
                tags = choose_tags(connection, owners, keys=keys)
        people |= {
            tag: answer for tag, answer in zip(tags, answers, strict=True) if answer
        }
        found.note_spellings(tags, [near_tag(owner, keys[0]) for owner in owners])
        places = begin + np.arange(len(codes))
        present = np.isin(places, table.absent, invert=True)
        back.append(places[left[codes] & present])
        stays = ~left[codes] & present
        found.add(tags, codes[stays], places=places[stays])
    n_near = list(people.values()).count("near")
    gone = np.concatenate([table.absent[:0], *back])
    return found, gone, (len(people), n_near)


class LakeRows(NamedTuple):
    """What is stored of a lake: whose rows lie where; None if they are nobody's."""

    lake: Lake
    people: PlacesByPerson | None

    def dump_people(self) -> Iterator[tuple[str, bytes]]:
        """Yield the tag of each person, with the places of their rows as bytes."""
        if self.people is not None:
            for tag, places in self.people.people():
                yield tag, dump_places(places)

    def describe(self, *, n_pages: int) -> FilesOfModel:
        """Return where the rows of a model lie, which has so many pages of keys."""
        return FilesOfModel(self.lake.make_source(), n_pages)

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, with where the rows lie."""
        return replace(
            scope,
            has_people=self.people is not None,
            rows_kept=self.lake.passes,
            source=self.lake.source or "",
        )


@contextmanager
def open_lake(
    context: Context, lake: Lake, *, given: FitOptions
) -> Iterator[tuple[LakeRows, LeftOut]]:
    """Find out whose rows lie where, and leave out those of people who left.

    Raises ForgottenInData if there are some and they shall not be left out. Rows that
    are left out are absent from the table from then on.
    """
    table = lake.table
    lake.make_source()  # or refuse, before anything is read
    if table.people is None:
        yield LakeRows(lake, None), LeftOut()
        return
    forgotten = read_forgotten(context, exact=given.exact)
    # For its owner alone, and with tags that are worth nothing without their key.
    with scratch_folder() as folder:
        people, back, (n_people, n_near) = find_places(
            context, table, folder=folder, forgotten=forgotten, exact=given.exact
        )
        if len(back) and not given.without_forgotten:
            raise ForgottenInData(back.tolist(), n_people, n_near=n_near)
        if len(back) == len(table):
            raise InvalidInput(
                f"all rows ({len(back)}) are of people who were forgotten; nothing is "
                "left to fit"
            )
        if len(back):
            table.erase(back)
        yield LakeRows(lake, people), LeftOut(len(back), n_people)
