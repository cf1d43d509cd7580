# SPDX-License-Identifier: Apache-2.0
"""``expunge log``: what the ledger says, for reading or for handing over."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .exits import DONE
from .options import OnRegistry
from .printing import Table, counted, say, say_json

if TYPE_CHECKING:
    from ..ledger import Entry


@dataclass(frozen=True)
class Log(OnRegistry):
    """Print the ledger, or export it.

    An export is a file that anybody can verify. Nobody is named in it. This changes
    nothing.
    """

    start: Annotated[
        int, typer.Option("--from", metavar="N", min=0, help="Begin at this entry.")
    ] = 0
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all entries and signed heads there."),
    ] = None

    def perform(self) -> int:
        """Print the entries, or export them."""
        with self.opened() as registry:
            if self.export is not None:
                return self._export(self.export, registry.export())
            entries = list(registry.log(self.start))
        if self.as_json:
            say_json([entry.parts() for entry in entries])
        else:
            lines = tuple(line(entry) for entry in entries)
            Table(("entry", "day (UTC)", "what", "about"), lines).show()
        return DONE

    def _export(self, path: Path, lines: bytes) -> int:
        """Write the export and say how to check it."""
        path.write_bytes(lines)
        if self.as_json:
            say_json({"export": str(path)})
        else:
            key = self.registry / "public.pem"
            say(f"wrote {path}; check it with", f"  expunge verify {path} --key {key}")
        return DONE


def line(entry: "Entry") -> tuple[str, ...]:
    """Return an entry as cells of a table."""
    return str(entry.sequence), entry.day, entry.kind, about(entry.parts())


def about(parts: dict[str, object]) -> str:
    """Return what an entry is about, from the fields that it has."""
    if "request" in parts:
        return str(parts["request"])
    if "model" in parts:
        superseded = parts.get("certificates")
        more = f": {len(superseded)}" if isinstance(superseded, tuple) else ""
        return f"{parts['model']}{more}"
    if "n_replayed" in parts:
        n = parts["n_replayed"]
        assert isinstance(n, int)
        return f"{counted(n, 'request')} carried out again"
    return ""
