# SPDX-License-Identifier: Apache-2.0
"""``expunge exclusions`` and ``expunge check``: for models outside the registry."""

from pathlib import Path
from typing import Annotated

import typer

from .options import FOLDER, Folder, OthersIds, open_registry, read_file, require_file
from .output import NOT_VALID, CommandFailed, Result, format_count, format_people

SHOWN = 10  # rows in a message


def exclusions(
    *,
    to: Annotated[
        Path, typer.Option("--to", "-o", metavar="FILE", help="The new file to write.")
    ],
    registry: Folder = FOLDER,
) -> Result:
    """Write the tags that every later fit is checked against to a file.

    For expunge check where there is no registry, before a model outside it is trained.
    The file holds the tag keys, with which anyone can test a guess: keep it as secret
    as the folder of keys, and write a new one after every answer.
    """
    from ..disk import write_new_file

    with open_registry(registry) as opened:
        found = opened.exclusions.collect()
    write_new_file(to, found.to_json().encode())
    n = len(found.forgotten.tags)
    data = {"file": str(to), "n_tags": n}
    return Result(data, f"{format_count(n, 'tag')} in {to}; keep it secret")


def check(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="A table, or a .txt file of ids."),
    ],
    *,
    subject: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the people's ids.")
    ] = None,
    tags: Annotated[
        Path | None,
        typer.Option(
            "--exclusions", metavar="FILE", help="Tags that expunge exclusions wrote."
        ),
    ] = None,
    exact: OthersIds = False,
    registry: Folder = FOLDER,
) -> Result:
    """Check whether a table holds people who may be in no fit.

    Against a registry, or against the file that expunge exclusions wrote. Exits with 6
    if it does, and says in which rows; nobody is named.
    """
    from ..registry.exclusions import Exclusions
    from ..tables import read_ids

    require_file(table)
    if tags is not None:
        known = Exclusions.from_json(read_file(tags))
    else:
        with open_registry(registry) as opened:
            known = opened.exclusions.collect()
    ids = read_ids(table, subject)
    found = known.find(ids, exact=exact)
    rows = [row for row, one in enumerate(ids) if one in found]
    n_bare = known.count_bare(one for one in ids if one not in found)
    data = {"n_people": len(found), "rows": rows, "n_bare": n_bare}
    notes = []
    if n_bare:
        notes.append(
            f"{format_people(n_bare)} have bare ids that cannot be compared with "
            "deletion lists"
        )
    if not found:
        return Result(data, f"{table} holds nobody who is kept out", notes)
    shown = ", ".join(map(str, rows[:SHOWN]))
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return Result(
        data,
        [],
        notes,
        error=CommandFailed(
            f"{table} holds {format_people(len(found))} who must be in no fit: rows "
            f"{shown}{more}, counted from 0; leave them out",
            NOT_VALID,
        ),
    )
