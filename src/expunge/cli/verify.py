# SPDX-License-Identifier: Apache-2.0
"""``expunge verify``: whether a receipt, an export or a certificate stands."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .exits import DOES_NOT_STAND, DONE
from .options import Options, content
from .printing import paragraph, points, say, say_json

if TYPE_CHECKING:
    from .checks import Finding


@dataclass(frozen=True)
class Verify(Options):
    """Say whether a receipt, a ledger export or a certificate stands.

    It works offline, from the file and the public key alone: no registry, no
    database. It exits with 0 if the file stands and with 6 if it does not.
    """

    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to check.")]
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="PEM",
            help="The operator's public keys; get them from the operator's site. "
            "A certificate bears no signature and needs none.",
        ),
    ] = None
    seen: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A receipt or an export from elsewhere that must be of the same "
            "ledger; may be repeated.",
        ),
    ] = None
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The private record of a certificate, once opened."
        ),
    ] = None

    def perform(self) -> int:
        """Check the file and print what that shows."""
        from .checks import Paper, check

        found = check(
            Paper(self.file, content(self.file)),
            None if self.key is None else content(self.key),
            [Paper(path, content(path)) for path in self.seen or ()],
            None if self.record is None else content(self.record),
        )
        if self.as_json:
            say_json(in_json(found))
        else:
            say(in_words(self.file, found))
        return DONE if found.verdict.stands else DOES_NOT_STAND


def in_json(found: "Finding") -> dict[str, Any]:
    """Return a finding as JSON data."""
    return {
        "kind": found.kind,
        "stands": found.verdict.stands,
        "says": found.says,
        "findings": found.verdict.findings,
        "failures": found.verdict.failures,
        "provided": found.provided,
        "not_covered": found.not_covered,
    }


def in_words(file: Path, found: "Finding") -> str:
    """Return a finding as text for a person to read."""
    stands = found.verdict.stands
    verdict = "STANDS" if stands else "DOES NOT STAND"
    parts = [f"{verdict}: {file}, {found.kind}", paragraph(found.says)]
    lists = {
        "Checked, and it holds:": found.verdict.findings,
        "It holds provided that": found.provided,
        "It says nothing about": found.not_covered,
    }
    parts += [f"{title}\n{points(texts)}" for title, texts in lists.items() if texts]
    return "\n\n".join(parts)
