# SPDX-License-Identifier: Apache-2.0
"""Rehearsal: what forgetting people would do, without doing it."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .people import People
from .printing import Table, counted, note
from .words import left, left_in_words

if TYPE_CHECKING:
    from ..certificate import Certificate
    from ..registry import Registry


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Whom which model holds, whom none does, and what the contracts have left.

    Parameters
    ----------
    people
        Everybody asked for.
    unknown
        Those whom no model holds.
    models
        For each model that would change, how many of them it holds, and the
        certificate of its release.
    """

    people: People
    unknown: tuple[str, ...]
    models: "dict[str, tuple[int, Certificate]]"

    def in_json(self) -> dict[str, Any]:
        """Return it as JSON data; nobody is named."""
        return {
            "n_people": len(self.people.ids),
            "n_unknown": len(self.unknown),
            "models": {
                name: {"n_people": n, "releases_left": left(certificate)}
                for name, (n, certificate) in self.models.items()
            },
        }

    def show(self) -> None:
        """Print it."""
        lines = [
            (str(n), left_in_words(certificate), name)
            for name, (n, certificate) in self.models.items()
        ]
        Table(("people", "releases left", "model"), tuple(lines)).show()
        asked = counted(len(self.people.ids), "person", "people")
        note(f"{asked}, {len(self.unknown)} in no model; nothing was changed")


def rehearse(registry: "Registry", people: People) -> Rehearsal:
    """Return what forgetting these people would do. This changes nothing."""
    held = people.held(registry)
    counts = Counter(name for names in held.values() for name in names)
    certificates = {model.name: model.certificate for model in registry.status().models}
    models = {name: (counts[name], certificates[name]) for name in sorted(counts)}
    unknown = tuple(one for one in people.ids if not held[one])
    return Rehearsal(people, unknown, models)
