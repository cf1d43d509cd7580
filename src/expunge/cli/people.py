# SPDX-License-Identifier: Apache-2.0
"""People of a command: who is named, who is known, and what a request would change."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exceptions import UnknownSubject
from .common import (
    TextTable,
    count_releases_left,
    describe_releases_left,
    format_count,
    format_ids,
    print_note,
)

if TYPE_CHECKING:
    from ..promise.certificate import Certificate
    from ..registry import Registry, Request


@dataclass(frozen=True, slots=True)
class RequestedPeople:
    """The people to forget.

    Parameters
    ----------
    ids
        Normalised, in the order given, each once.
    listed
        All ids of a file, repetitions included; None if the ids are from the command
        line. People on the command line share a request; people in a file have a
        request each.
    """

    ids: tuple[str, ...]
    listed: tuple[str, ...] | None = None

    def resolve_aliases(self, registry: "Registry") -> "RequestedPeople":
        """Return these people by their ids; what is no alias is an id."""
        meant = dict(zip(self.ids, registry.aliases.resolve(self.ids), strict=True))
        listed = self.listed and tuple(meant[one] for one in self.listed)
        return RequestedPeople(tuple(dict.fromkeys(meant.values())), listed)

    def make_requests(self, asked: "Request") -> "tuple[Request, ...]":
        """Return the requests to send: what is asked, for these people."""
        from ..registry import Request

        if self.listed is None:
            return (replace(asked, subjects=self.ids),)
        return tuple(
            replace(asked, subjects=(one,), request=Request(()).request)
            for one in self.ids
        )

    def match_requests(self, asked: "Sequence[Request]") -> tuple[str | None, ...]:
        """Return the request of each line of the file; empty without a file."""
        requests = {one.subjects[0]: one.request for one in asked}
        return tuple(requests.get(one) for one in self.listed or ())

    def split_known(
        self, registry: "Registry"
    ) -> "tuple[RequestedPeople, UnknownPeople]":
        """Return the people that some model holds, and the others."""
        models = registry.requests.find_models(self.ids)
        known = tuple(one for one in self.ids if models[one])
        others = tuple(one for one in self.ids if not models[one])
        return RequestedPeople(known, self.listed), sort_unknown(registry, others)


def take_people(ids: Sequence[str]) -> RequestedPeople:
    """Return the people named on the command line."""
    from ..private_model.subjects import people

    return RequestedPeople(people(ids))


def read_people(path: Path, column: str | None) -> RequestedPeople:
    """Return the people listed in a file."""
    from ..private_model.subjects import people
    from ..tables import read_ids

    ids = read_ids(path, column)
    return RequestedPeople(people(ids), tuple(ids))


@dataclass(frozen=True, slots=True)
class UnknownPeople:
    """Ids that no model holds.

    The difference is for the operator's eyes: exit codes and documents do not tell it.

    Parameters
    ----------
    forgotten
        Of people who were forgotten before.
    strangers
        The others. They may have been in a model that was replaced since.
    """

    forgotten: tuple[str, ...]
    strangers: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.forgotten) + len(self.strangers)

    def describe(self, *, named: bool) -> str:
        """Return in words how many there are of each kind, with the first few ids."""
        parts = []
        for ids, words in (
            (self.strangers, "not known here"),
            (self.forgotten, "already forgotten"),
        ):
            if ids:
                shown = f" ({format_ids(ids)})" if named else ""
                parts.append(f"{format_count(len(ids), 'id')} {words}{shown}")
        return ", ".join(parts)


def sort_unknown(registry: "Registry", ids: Sequence[str]) -> UnknownPeople:
    """Tell people who were forgotten before from people who are not known."""
    # Reading the journal takes as long for the one as for the other.
    forgotten = registry.requests.find_forgotten(ids) if ids else ()
    strangers = tuple(one for one in ids if one not in {*forgotten})
    return UnknownPeople(forgotten, strangers)


def refuse_unknown(unknown: UnknownPeople) -> None:
    """Raise if there are ids that no model holds."""
    if unknown:
        raise UnknownSubject(
            f"in no model: {unknown.describe(named=True)}; nothing was accepted; check "
            "the ids, or leave out such ids with --skip-unknown"
        )


@dataclass(frozen=True, slots=True)
class DryRun:
    """What forgetting people would change.

    Parameters
    ----------
    n_people
        How many people there are.
    unknown
        Those whom no model holds.
    models
        For each model that would change, how many of the people it holds and the
        certificate of its release.
    """

    n_people: int
    unknown: UnknownPeople
    models: "dict[str, tuple[int, Certificate]]"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data, which names nobody."""
        return {
            "n_people": self.n_people,
            "n_unknown": len(self.unknown),
            "n_forgotten": len(self.unknown.forgotten),
            "models": {
                name: {"n_people": n, "releases_left": count_releases_left(certificate)}
                for name, (n, certificate) in self.models.items()
            },
        }

    def print(self) -> None:
        """Print it as a table."""
        lines = [
            (str(n), describe_releases_left(certificate), name)
            for name, (n, certificate) in self.models.items()
        ]
        TextTable(("people", "releases left", "model"), tuple(lines)).print()
        people = format_count(self.n_people, "person", plural="people")
        missing = self.unknown.describe(named=False) or "nobody"
        print_note(f"{people}, in no model: {missing}; nothing was changed")


def dry_run(registry: "Registry", people: RequestedPeople) -> DryRun:
    """Find out what forgetting these people would change. This changes nothing."""
    held = registry.requests.find_models(people.ids)
    counts = Counter(name for names in held.values() for name in names)
    certificates = {model.name: model.certificate for model in registry.status().models}
    models = {name: (counts[name], certificates[name]) for name in sorted(counts)}
    others = [one for one in people.ids if not held[one]]
    return DryRun(len(people.ids), sort_unknown(registry, others), models)
