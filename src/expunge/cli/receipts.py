# SPDX-License-Identifier: Apache-2.0
"""Receipts: where the answers to requests go.

To stdout, one a line, or into a folder. For a file of ids there is an index beside
them, written before the first request is accepted: whatever happens then, it says which
id of the file became which request, by its place. It names nobody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..exceptions import InvalidInput
from .printing import say

INDEX = "index.csv"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder for receipts: one file for each, named by its request."""

    path: Path

    @property
    def index(self) -> Path:
        """Which id of a file became which request."""
        return self.path / INDEX

    def begin(self, listed: Sequence[str | None]) -> None:
        """Make the folder; write the index if a file lists anybody."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not listed:
            return
        lines = [f"{place},{one or ''}" for place, one in enumerate(listed, start=1)]
        try:
            with self.index.open("x", encoding="ascii") as file:
                file.write("\n".join(["place,request", *lines]) + "\n")
        except FileExistsError:
            raise InvalidInput(
                f"{self.index} is that of an earlier file; give another folder"
            ) from None

    def keep(self, receipts: Mapping[str, str]) -> dict[str, Path]:
        """Write receipts, byte for byte, and return where they are."""
        files = {request: self.path / f"{request}.json" for request in receipts}
        for request, file in files.items():
            file.write_text(receipts[request], encoding="ascii")
        return files


@dataclass(frozen=True, slots=True)
class Answers:
    """Receipts by request, and where they were written.

    ``listed`` holds for each id of a file, in order, the request that it became; None
    for those that were left out.
    """

    receipts: Mapping[str, str]
    listed: Sequence[str | None] = ()
    folder: Folder | None = None
    files: Mapping[str, Path] | None = None

    def in_json(self) -> dict[str, Any]:
        """Return them as JSON data; a receipt is text, since every byte counts."""
        files = self.files or {}
        requests = [
            {
                "request": request,
                "receipt": receipt,
                "file": str(files[request]) if request in files else None,
            }
            for request, receipt in self.receipts.items()
        ]
        return {"requests": requests, "listed": self.listed}

    def show(self) -> None:
        """Print the receipts, or where they are."""
        if self.folder is None or self.files is None:
            say(*self.receipts.values())
        elif self.listed:
            say(f"{len(self.files)} receipts in {self.folder.path}")
            say(f"{self.folder.index} says which id became which request")
        else:
            say(*map(str, self.files.values()))
