# SPDX-License-Identifier: Apache-2.0
"""``expunge lake``: the files that models read their rows from."""

from dataclasses import asdict

from .options import FOLDER, Folder, ModelName, Yes, open_registry
from .output import Result, confirm, format_count, format_pairs, show_progress


def lake_status(name: ModelName, *, registry: Folder = FOLDER) -> Result:
    """Show whether a model's files still hold people who left it."""
    with open_registry(registry) as opened:
        found = opened.lake.status(name)
    left = "none is in these files"
    if found.n_to_rewrite:
        files = format_count(found.n_to_rewrite, "file")
        left = f"still in {files}; run expunge lake rewrite {name}"
    pairs = [
        ("source", found.source),
        ("files", found.n_files),
        ("people who left", left),
    ]
    return Result(asdict(found), format_pairs(pairs))


def lake_rewrite(
    name: ModelName, *, yes: Yes = False, registry: Folder = FOLDER
) -> Result:
    """Rewrite a model's files without the people who left.

    Forgetting changes the model and never your files. This command changes them: each
    Parquet file that still holds somebody who left is written again without their rows,
    and takes the place of the old one at once. Schema, row groups, compression and
    metadata stay, and so do all rows of people of whom the registry still holds
    something. You can run it again after a crash. Backups and old versions of the files
    are yours to delete.
    """
    with open_registry(registry) as opened:
        before = opened.lake.status(name)
        if before.n_to_rewrite:
            files = format_count(before.n_to_rewrite, "file")
            confirm(f"Rewrite {files} of source {before.source}?", yes=yes)
        with show_progress("rewriting files") as report:
            n_written = opened.lake.rewrite(name, on_progress=report)
        after = opened.lake.status(name)
    notes = []
    if after.n_to_rewrite:
        left = format_count(after.n_to_rewrite, "file")
        notes.append(f"{left} left as they are: another model still reads the rows")
    return Result(
        asdict(after) | {"n_rewritten": n_written},
        f"source {after.source}: {format_count(n_written, 'file')} rewritten",
        notes,
    )
