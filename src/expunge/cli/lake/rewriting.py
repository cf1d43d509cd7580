# SPDX-License-Identifier: Apache-2.0
"""Commands on the files that a model reads its rows from: status and rewrite."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ..common import (
    DONE,
    ConfirmOptions,
    RegistryOptions,
    format_count,
    format_pairs,
    print_json,
    print_note,
    print_text,
    show_progress,
)

if TYPE_CHECKING:
    from ...registry import SourceStatus


@dataclass(frozen=True)
class LakeStatusCommand(RegistryOptions):
    """Show whether a model's files still hold people who left it."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]

    def perform(self) -> int:
        """Print how many files hold people who left."""
        with self.open_registry() as registry:
            found = registry.lake.status(self.name)
        if self.as_json:
            print_json(asdict(found))
            return DONE
        lines: list[tuple[str, object]] = [
            ("source", found.source),
            ("files", found.n_files),
            ("people who left", describe_left(found, self.name)),
        ]
        print_text(format_pairs(lines))
        return DONE


@dataclass(frozen=True)
class LakeRewriteCommand(RegistryOptions, ConfirmOptions):
    """Rewrite a model's files without the people who left.

    Forgetting changes the model and never your files. This command changes them: each
    Parquet file that still holds somebody who left is written again without their rows,
    and takes the place of the old one at once. Schema, row groups, compression and
    metadata stay, and so do all rows of people of whom the registry still holds
    something. You can run it again after a crash. Backups and old versions of the files
    are yours to delete.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]

    def perform(self) -> int:
        """Rewrite the files and print how many."""
        with self.open_registry() as registry:
            before = registry.lake.status(self.name)
            if before.n_to_rewrite:
                files = format_count(before.n_to_rewrite, "file")
                self.confirm(f"Rewrite {files} of source {before.source}?")
            with show_progress("rewriting files") as report:
                n_written = registry.lake.rewrite(self.name, on_progress=report)
            after = registry.lake.status(self.name)
        if self.as_json:
            print_json(asdict(after) | {"n_rewritten": n_written})
            return DONE
        files = format_count(n_written, "file")
        print_text(f"source {after.source}: {files} rewritten")
        if after.n_to_rewrite:
            left = format_count(after.n_to_rewrite, "file")
            print_note(f"{left} left as they are: another model still reads the rows")
        return DONE


def describe_left(found: "SourceStatus", name: str) -> str:
    """Return whether files still hold people who left."""
    if not found.n_to_rewrite:
        return "none is in these files"
    files = format_count(found.n_to_rewrite, "file")
    return f"still in {files}; run expunge lake rewrite {name}"
