# SPDX-License-Identifier: Apache-2.0
"""``expunge alias``: what people are known by elsewhere, and which id that is."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exceptions import InvalidInput, UnknownSubject
from .options import FOLDER, Folder, Yes, note, open_registry, require_file
from .output import Result, confirm, format_count, show_progress

if TYPE_CHECKING:
    from ..rights import Identifier

Aliases = Annotated[
    list[str],
    typer.Argument(
        metavar="KIND:VALUE", help="Such as email:ada@example.org or email:sha256:HASH."
    ),
]


def alias_import(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A CSV, Parquet or Arrow file.")
    ],
    *,
    person_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the people's ids.")
    ] = "person",
    kind_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the kinds.")
    ] = "kind",
    value_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the values.")
    ] = "value",
    registry: Folder = FOLDER,
) -> Result:
    """Import aliases of people from a table, all of them or none.

    An alias is a kind, such as email or phone, and a value, raw or as sha256:HASH. It
    leads to one person. Aliases of people who were forgotten are left out.
    """
    from ..registry import AmbiguousAlias
    from ..tables.people import AliasColumns, read_aliases

    require_file(file)
    columns = AliasColumns(person_column, kind_column, value_column)
    table = read_aliases(file, columns)
    try:
        with open_registry(registry) as opened, show_progress("importing") as report:
            added = opened.aliases.add(table.pairs(), on_progress=report)
            note(opened, "import aliases")
    except AmbiguousAlias as error:
        n = format_count(len(error.positions), "line")
        raise InvalidInput(
            f"{table.file.path}, {table.locate(error.positions)}: {n} with an alias "
            "that leads to somebody else as well; nothing was imported; let each alias "
            "lead to one person, or remove the old one first (expunge alias remove)"
        ) from None
    notes = []
    if added.n_known:
        notes.append(f"{added.n_known} known already")
    if added.n_left_out:
        notes.append(f"{added.n_left_out} left out, of people who were forgotten")
    return Result(added._asdict(), f"{format_aliases(added.n_added)} added", notes)


def alias_find(aliases: Aliases, *, registry: Folder = FOLDER) -> Result:
    """Print the id that each alias leads to, one per line.

    Whether somebody is known here is for you alone.
    """
    wanted = parse_aliases(aliases)
    with open_registry(registry) as opened:
        note(opened, "find aliases", f"{len(wanted)} named")
        found = opened.aliases.find(wanted)
    missing = sum(alias not in found for alias in wanted)
    if missing:
        raise UnknownSubject(
            f"{missing} of {len(wanted)} aliases are not known here; check them, "
            "or import them with expunge alias import"
        )
    ids = [found[alias] for alias in wanted]
    return Result({"ids": ids}, ids)


def alias_count(*, registry: Folder = FOLDER) -> Result:
    """Print how many aliases there are."""
    with open_registry(registry) as opened:
        n = opened.aliases.count()
    return Result({"n_aliases": n}, format_aliases(n))


def alias_remove(
    aliases: Aliases, *, yes: Yes = False, registry: Folder = FOLDER
) -> Result:
    """Delete aliases, for instance of a number that changed hands.

    Their people stay; to forget people, use forget, which deletes their aliases too.
    """
    wanted = parse_aliases(aliases)
    with open_registry(registry) as opened:
        confirm(f"Delete {format_aliases(len(wanted))}?", yes=yes)
        n = opened.aliases.remove(wanted)
        note(opened, "remove aliases", f"{len(wanted)} named")
    return Result(
        {"n_removed": n},
        f"{format_aliases(n)} removed, {len(wanted) - n} not known here",
    )


def format_aliases(n: int) -> str:
    """Return how many aliases there are."""
    return format_count(n, "alias", plural="aliases")


def parse_aliases(words: Sequence[str]) -> "list[Identifier]":
    """Return the identifiers that words spell, each once; refuse a bare id."""
    from ..rights import parse_identifier
    from ..rights.identifiers import ID

    parsed = {word: parse_identifier(word) for word in words}
    aliases = [alias for alias in parsed.values() if alias and alias.kind != ID]
    if len(aliases) < len(parsed):
        raise InvalidInput(
            f"{len(parsed) - len(aliases)} of {len(parsed)} words are not aliases; "
            "write a kind and a value, such as email:ada@example.org"
        )
    return list(dict.fromkeys(aliases))
