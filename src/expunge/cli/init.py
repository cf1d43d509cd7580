# SPDX-License-Identifier: Apache-2.0
"""``expunge init``: a registry is made, or brought up to date."""

from dataclasses import dataclass
from typing import Annotated

import typer

from .exits import DONE
from .options import OnRegistry
from .printing import facts, paragraph, say, say_json

ADVICE = (
    "A backup is a copy of the whole folder; with PostgreSQL, and a dump beside it. "
    "Whoever has one can read every model in it, and people who were forgotten since. "
    "Never copy one back over the folder: the journal in the folder knows who was "
    "forgotten after the backup, and expunge restore forgets them again."
)


@dataclass(frozen=True)
class Init(OnRegistry):
    """Make a registry, or bring an older one up to date.

    A registry keeps models, requests and the ledger: in SQLite within its folder, or
    in PostgreSQL. Keys are made on first use and stay in the folder.
    """

    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="EXPUNGE_STORE",
            help="A PostgreSQL database, postgresql+psycopg://...; SQLite unless said.",
        ),
    ] = None
    deadline_days: Annotated[
        int, typer.Option(min=1, help="How long a request may take by law.")
    ] = 30

    def perform(self) -> int:
        """Make it and say what to take care of."""
        from ..registry import Registry

        with Registry.create(
            self.registry, url=self.store, deadline_days=self.deadline_days
        ) as registry:
            status = registry.status()
        folder = self.registry
        if self.as_json:
            say_json(
                {"registry": str(folder), "store": status.store, "key": status.key}
            )
            return DONE
        places = [
            ("registry", folder),
            ("store", status.store),
            ("keys", f"{folder / 'keys'}: secret; without them nothing can go on"),
            ("public key", f"{folder / 'public.pem'}: publish it"),
            ("journal", f"{folder / 'journal'}: secret; what a backup would lack"),
        ]
        say(facts(places), "", paragraph(ADVICE))
        return DONE
