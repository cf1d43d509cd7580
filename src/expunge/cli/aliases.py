# SPDX-License-Identifier: Apache-2.0
"""``expunge alias``: what people are known by elsewhere, and which id that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exceptions import InvalidInput, UnknownSubject
from .common import (
    DONE,
    ConfirmOptions,
    RegistryOptions,
    format_count,
    print_json,
    print_note,
    print_text,
    require_file,
    show_progress,
)

if TYPE_CHECKING:
    from ..registry import AliasesAdded, Registry
    from ..rights import Identifier
    from ..tables.people import AliasTable

Aliases = Annotated[
    list[str],
    typer.Argument(
        metavar="KIND:VALUE", help="Such as email:ada@example.org or email:sha256:HASH."
    ),
]


@dataclass(frozen=True)
class AliasImportCommand(RegistryOptions):
    """Import aliases of people from a table, all of them or none.

    An alias is a kind, such as email or phone, and a value, raw or as sha256:HASH. It
    leads to one person. Aliases of people who were forgotten are left out.
    """

    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A CSV, Parquet or Arrow file.")
    ]
    person_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the people's ids.")
    ] = "person"
    kind_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the kinds.")
    ] = "kind"
    value_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the values.")
    ] = "value"

    def perform(self) -> int:
        """Read the table, add its aliases, and print how many there were."""
        from ..tables.people import AliasColumns, read_aliases

        require_file(self.file)
        columns = AliasColumns(self.person_column, self.kind_column, self.value_column)
        table = read_aliases(self.file, columns)
        with self.open_registry() as registry:
            added = add_aliases(registry, table)
        if self.as_json:
            print_json(added._asdict())
            return DONE
        print_text(f"{format_count(added.n_added, 'alias', plural='aliases')} added")
        if added.n_known:
            print_note(f"{added.n_known} known already")
        if added.n_left_out:
            print_note(f"{added.n_left_out} left out, of people who were forgotten")
        return DONE


def add_aliases(registry: "Registry", table: "AliasTable") -> "AliasesAdded":
    """Add the aliases of a table; an error names its lines."""
    from ..registry import AmbiguousAlias

    try:
        with show_progress("importing") as report:
            return registry.aliases.add(table.pairs(), on_progress=report)
    except AmbiguousAlias as error:
        place = table.locate(error.positions)
        n = format_count(len(error.positions), "line")
        raise InvalidInput(
            f"{table.file.path}, {place}: {n} with an alias that leads to somebody "
            "else as well; nothing was imported; let each alias lead to one person, or "
            "remove the old one first (expunge alias remove)"
        ) from None


@dataclass(frozen=True)
class AliasFindCommand(RegistryOptions):
    """Print the id that each alias leads to, one per line.

    Whether somebody is known here is for you alone.
    """

    aliases: Aliases

    def perform(self) -> int:
        """Look the aliases up and print ids."""
        wanted = parse_aliases(self.aliases)
        with self.open_registry() as registry:
            found = registry.aliases.find(wanted)
        missing = sum(one not in found for one in wanted)
        if missing:
            raise UnknownSubject(
                f"{missing} of {len(wanted)} aliases are not known here; check them, "
                "or import them with expunge alias import"
            )
        if self.as_json:
            print_json({"ids": [found[one] for one in wanted]})
        else:
            print_text(*(found[one] for one in wanted))
        return DONE


@dataclass(frozen=True)
class AliasCountCommand(RegistryOptions):
    """Print how many aliases there are."""

    def perform(self) -> int:
        """Count and print."""
        with self.open_registry() as registry:
            n = registry.aliases.count()
        if self.as_json:
            print_json({"n_aliases": n})
        else:
            print_text(format_count(n, "alias", plural="aliases"))
        return DONE


@dataclass(frozen=True)
class AliasRemoveCommand(RegistryOptions, ConfirmOptions):
    """Delete aliases, for instance of a number that changed hands.

    Their people stay; to forget people, use forget, which deletes their aliases too.
    """

    aliases: Aliases

    def perform(self) -> int:
        """Delete the aliases and print how many there were."""
        wanted = parse_aliases(self.aliases)
        with self.open_registry() as registry:
            n = format_count(len(wanted), "alias", plural="aliases")
            self.confirm(f"Delete {n}?")
            n_removed = registry.aliases.remove(wanted)
        if self.as_json:
            print_json({"n_removed": n_removed})
        else:
            removed = format_count(n_removed, "alias", plural="aliases")
            print_text(f"{removed} removed, {len(wanted) - n_removed} not known here")
        return DONE


def parse_aliases(words: Sequence[str]) -> "list[Identifier]":
    """Return the identifiers that words spell, each once; refuse a bare id."""
    from ..rights import parse_identifier
    from ..rights.identifiers import ID

    found = {word: parse_identifier(word) for word in words}
    aliases = [one for one in found.values() if one is not None and one.kind != ID]
    if len(aliases) < len(found):
        raise InvalidInput(
            f"{len(found) - len(aliases)} of {len(found)} words are not aliases; write "
            "a kind and a value, such as email:ada@example.org"
        )
    return list(dict.fromkeys(aliases))
