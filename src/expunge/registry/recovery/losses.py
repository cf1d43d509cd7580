# SPDX-License-Identifier: Apache-2.0
"""Losses: what came after a backup and cannot come back with it.

The journal says that it was there, and no more: rows, aliases and secrets of tokens are
in the database alone. After a restore the operator sends or makes them again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..log import Content

ADDED, ISSUED, ALIASED, UNALIASED = "added", "issued", "aliased", "unaliased"
"""Keys of journal lines that are written for this page alone."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What must be sent or made again after a restore.

    Attributes
    ----------
    rectifications
        Requests whose new rows are lost: the old ones are gone, or the request waits.
    additions
        How often rows were added, by model.
    tokens
        The ids of tokens that were made, and not revoked since.
    n_aliases
        How many aliases were added.
    n_returned
        How many aliases were removed, and are there again.
    """

    rectifications: tuple[str, ...] = ()
    additions: Mapping[str, int] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    n_aliases: int = 0
    n_returned: int = 0

    def __bool__(self) -> bool:
        aliases = self.n_aliases, self.n_returned
        return any((self.rectifications, self.additions, self.tokens, *aliases))


def find_losses(lines: Iterable[Content], *, rectified: Iterable[str]) -> Losses:
    """Return what the lines after a backup tell of.

    Parameters
    ----------
    lines
        Of the log; some may be older than the backup, if a new log was begun since.
    rectified
        Requests whose new rows the backup does not have.
    """
    added: Counter[str] = Counter()
    tokens: dict[str, None] = {}
    n_aliases = n_returned = 0
    for line in lines:
        if ADDED in line:
            added[line[ADDED]["model"]] += 1
        if ISSUED in line:
            tokens[line[ISSUED]["token"]] = None
        if "revoked" in line:
            tokens.pop(line["revoked"]["token"], None)
        n_aliases += line.get(ALIASED, 0)
        n_returned += line.get(UNALIASED, 0)
    additions = dict(sorted(added.items()))
    return Losses(tuple(rectified), additions, (*tokens,), n_aliases, n_returned)
