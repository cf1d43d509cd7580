# SPDX-License-Identifier: Apache-2.0
"""Fits to a lake: the table without people who left, and what is stored of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from ...disk import scratch_folder
from ...exceptions import InvalidInput
from ...promise.scope import Scope
from ..answering.returning import ForgottenInData, LeftOut, read_forgotten
from ..context import Context
from ..loaded_model import FilesOfModel, dump_places
from .keeping import Lake
from .people import PlacesByPerson, find_places


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
    context: Context, lake: Lake, *, without_forgotten: bool
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
    forgotten = read_forgotten(context)
    # For its owner alone, and with tags that are worth nothing without their key.
    with scratch_folder() as folder:
        people, back, n_people = find_places(
            context, table, folder=folder, forgotten=forgotten
        )
        if len(back) and not without_forgotten:
            raise ForgottenInData(back.tolist(), n_people)
        if len(back) == len(table):
            raise InvalidInput(
                f"all rows ({len(back)}) are of people who were forgotten; nothing is "
                "left to fit"
            )
        if len(back):
            table.erase(back)
        yield LakeRows(lake, people), LeftOut(len(back), n_people)
