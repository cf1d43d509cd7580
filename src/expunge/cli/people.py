# SPDX-License-Identifier: Apache-2.0
"""People: whom a command line or a file asks to forget, and who of them is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..exceptions import UnknownSubject
from .printing import counted, some

if TYPE_CHECKING:
    from ..registry import Asked, Registry

Item = TypeVar("Item")

CHUNK = 1000


@dataclass(frozen=True, slots=True)
class People:
    """Ids in the order given, each once.

    Parameters
    ----------
    ids
        In their one spelling.
    listed
        As a file lists them, repetitions included; None for the command line. People
        on the command line ask together, people in a file each for themselves.
    """

    ids: tuple[str, ...]
    listed: tuple[str, ...] | None = None

    def asked(self, request: str | None) -> "tuple[Asked, ...]":
        """Return the requests to make."""
        from ..registry import Asked

        if self.listed is not None:
            return tuple(Asked((one,)) for one in self.ids)
        if request is None:
            return (Asked(self.ids),)
        return (Asked(self.ids, request),)

    def places(self, asked: "Sequence[Asked]") -> tuple[str | None, ...]:
        """Return for each place of the file its request; nothing without a file."""
        requests = {one.subjects[0]: one.request for one in asked}
        return tuple(requests.get(one) for one in self.listed or ())

    def held(self, registry: "Registry") -> dict[str, tuple[str, ...]]:
        """Return for each person the models that hold them. This changes nothing."""
        held: dict[str, tuple[str, ...]] = {}
        for several in chunks(self.ids):
            held |= registry.known(several)
        return held

    def known(self, registry: "Registry") -> "tuple[People, tuple[str, ...]]":
        """Return those whom some model holds, and the others."""
        held = self.held(registry)
        known = tuple(one for one in self.ids if held[one])
        unknown = tuple(one for one in self.ids if not held[one])
        return People(known, self.listed), unknown


def typed(ids: Sequence[str]) -> People:
    """Return the people that the command line names."""
    from ..ids import people

    return People(people(ids))


def filed(path: Path, column: str | None) -> People:
    """Return the people that a file lists."""
    from ..ids import people
    from .tables import read_ids

    ids = read_ids(path, column)
    return People(people(ids), tuple(ids))


def refuse_unknown(unknown: Sequence[str]) -> None:
    """Refuse a request about people whom no model holds."""
    if unknown:
        raise UnknownSubject(
            f"{counted(len(unknown), 'id is', 'ids are')} in no model: "
            f"{some(unknown)}; nothing was accepted; correct them, or leave them out "
            "with --skip-unknown"
        )


def chunks(items: Sequence[Item], size: int = CHUNK) -> Iterator[tuple[Item, ...]]:
    """Yield the items a few at a time."""
    rest = iter(items)
    while several := tuple(islice(rest, size)):
        yield several
