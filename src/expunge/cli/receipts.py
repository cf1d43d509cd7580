# SPDX-License-Identifier: Apache-2.0
"""Receipts as the command line hands them out: in a folder, as text, or as JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..exceptions import InvalidInput
from .common import format_count, print_note, print_text

INDEX = "index.csv"


@dataclass(frozen=True, slots=True)
class ReceiptFolder:
    """A folder of receipts, with one file for each, named after its request.

    For a file of ids there is also an index, written before the first request is
    accepted. It says which line of the file became which request, and names nobody.
    """

    path: Path

    @property
    def index(self) -> Path:
        """The path of the index."""
        return self.path / INDEX

    def create(self, listed: Sequence[str | None]) -> None:
        """Create the folder, and write the index if ids are from a file."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not listed:
            return
        lines = [f"{place},{one or ''}" for place, one in enumerate(listed, start=1)]
        try:
            with self.index.open("x", encoding="utf-8") as file:
                file.write("\n".join(["place,request", *lines]) + "\n")
        except FileExistsError:
            raise InvalidInput(
                f"{self.index} is the index of an earlier file; give another folder"
            ) from None

    def write(self, receipts: Mapping[str, str]) -> dict[str, Path]:
        """Write the receipts, byte for byte, and return their paths by request."""
        files = {request: self.path / f"{request}.json" for request in receipts}
        for request, file in files.items():
            file.write_text(receipts[request], encoding="utf-8")
        return files


@dataclass(frozen=True, slots=True)
class IssuedReceipts:
    """Receipts by request, and where they were written.

    ``listed`` has the request of each line of a file, in order; None for lines that
    were left out.
    """

    receipts: Mapping[str, str]
    listed: Sequence[str | None] = ()
    folder: ReceiptFolder | None = None
    files: Mapping[str, Path] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return them as JSON data; spelled by RFC 8785 a receipt has its bytes again.

        Those bytes are what is signed, and what ``verify`` takes.
        """
        files = self.files or {}
        read = {request: json.loads(text) for request, text in self.receipts.items()}
        requests = [
            {
                "request": request,
                "receipt": receipt,
                "file": str(files[request]) if request in files else None,
            }
            for request, receipt in read.items()
        ]
        n_people, models = count_changed(read.values())
        totals = {"n_people": n_people, "models": models}
        return {**totals, "requests": requests, "listed": self.listed}

    def print(self) -> None:
        """Print a sentence, after the receipts if there is no folder for them."""
        said = describe_answers([json.loads(one) for one in self.receipts.values()])
        if self.folder is None or self.files is None:
            print_text(*self.receipts.values())
            # Not to stdout: redirected to a file, that is the receipt alone.
            print_note(said)
        elif self.listed:
            receipts = format_count(len(self.files), "receipt")
            print_text(
                f"{said}; {receipts} in {self.folder.path}",
                f"{self.folder.index} says which id became which request",
            )
        else:
            (file,) = self.files.values()
            print_text(f"{said}; receipt in {file}")


def count_changed(receipts: Iterable[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Return how many people receipts are about, and the models that were changed."""
    n_people = 0
    models: set[str] = set()
    for receipt in receipts:
        n_people += receipt["entry"]["n_subjects"]
        models |= receipt["entry"]["certificates"].keys()
    return n_people, sorted(models)


def describe_answers(receipts: Sequence[Mapping[str, Any]]) -> str:
    """Return in a few words what became of requests."""
    n_people, models = count_changed(receipts)
    people = format_count(n_people, "person", plural="people")
    changed = format_count(len(models), "model") if models else "no model"
    answers = {(one["entry"]["right"], one["entry"]["outcome"]) for one in receipts}
    if answers == {("erase", "done")}:
        return f"{people} removed from {changed}"
    outcomes = Counter(one["entry"]["outcome"] for one in receipts)
    found = ", ".join(
        outcome if len(outcomes) == 1 else f"{outcome} {n} times"
        for outcome, n in sorted(outcomes.items())
    )
    rights = ", ".join(sorted({right for right, _ in answers}))
    return f"{rights}, {people}: {found}; {changed} changed"
