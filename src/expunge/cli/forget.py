# SPDX-License-Identifier: Apache-2.0
"""``expunge forget``: people ask, every model forgets them, receipts prove it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exceptions import InvalidInput
from .asking import apply, forgotten
from .exits import DONE
from .options import OnRegistry, require_file
from .people import People, filed, refuse_unknown, typed
from .printing import counted, note, say, say_json
from .receipts import Answers, Folder
from .rehearsal import rehearse

if TYPE_CHECKING:
    from ..registry import Registry


@dataclass(frozen=True)
class Forget(OnRegistry):
    """Forget people, in every model that holds them.

    Ids on the command line are one request about all of them. Each line of a file is a
    request of its own. Whatever was accepted is applied together. Receipts are
    printed, one a line, or written into a folder.
    """

    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Whom to forget.")
    ] = None
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A file of ids, one a line."),
    ] = None
    column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Where the ids are, in a table."),
    ] = None
    pending: Annotated[
        bool, typer.Option("--pending", help="Only apply what was accepted before.")
    ] = False
    request: Annotated[
        str | None,
        typer.Option(
            metavar="HEX",
            help="Name the request, by 32 hexadecimal digits: given again it is "
            "answered again, and done once.",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; say what would happen.")
    ] = False
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out ids that no model holds.")
    ] = False
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, help="How long to wait for others."),
    ] = 30.0
    receipts: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write receipts there, and for a file an index."
        ),
    ] = None

    def perform(self) -> int:
        """Accept and apply the requests, and hand out receipts."""
        people = self._people()
        with self.opened() as registry:
            if people is None:
                self._apply_pending(registry)
            elif self.dry_run:
                self._rehearse(registry, people)
            else:
                self._forget(registry, self._wanted(registry, people))
        return DONE

    def _people(self) -> People | None:
        """Return whom the command line asks to forget; None for nobody new."""
        if [bool(self.ids), self.source is not None, self.pending].count(True) != 1:
            raise InvalidInput(
                "whom to forget? give ids, or a file with --from, or --pending"
            )
        if self.request is not None and not self.ids:
            raise InvalidInput("--request names one request; give its ids beside it")
        if self.pending and self.dry_run:
            raise InvalidInput("--pending beside --dry-run; expunge status lists it")
        if self.source is not None:
            require_file(self.source)
            return filed(self.source, self.column)
        return typed(self.ids) if self.ids else None

    def _wanted(self, registry: "Registry", people: People) -> People:
        """Return the people to ask for: all of them, or those whom a model holds."""
        if people.listed is None and not self.skip_unknown:
            # Accepting refuses strangers, unless it knows the request.
            return people
        known, unknown = people.known(registry)
        if not self.skip_unknown:
            refuse_unknown(unknown)
        elif unknown:
            note(f"left out {counted(len(unknown), 'id')} that no model holds")
        return known

    def _rehearse(self, registry: "Registry", people: People) -> None:
        """Say what would happen; change nothing."""
        found = rehearse(registry, people)
        if self.as_json:
            say_json(found.in_json())
        else:
            found.show()
        if not self.skip_unknown:
            refuse_unknown(found.unknown)

    def _forget(self, registry: "Registry", people: People) -> None:
        """Make the requests and hand out their receipts."""
        if not people.ids:
            note("no model holds any of them; nothing was changed")
            self._answer(Answers({}))
            return
        asked = people.asked(self.request)
        listed = people.places(asked)
        folder = None if self.receipts is None else Folder(self.receipts)
        if folder is not None:
            folder.begin(listed)
        outcome = forgotten(registry, asked, self.wait)
        receipts = outcome.receipts
        files = None if folder is None else folder.keep(receipts)
        self._answer(Answers(receipts, listed, folder, files))
        where = folder.index if folder is not None and listed else "expunge status"
        outcome.require_complete(str(where))

    def _answer(self, answers: Answers) -> None:
        """Print receipts, or where they are."""
        if self.as_json:
            say_json(answers.in_json())
        elif answers.receipts:
            answers.show()

    def _apply_pending(self, registry: "Registry") -> None:
        """Apply what was accepted before."""
        before = registry.status().n_completed
        apply(registry, self.wait)
        done = registry.status().n_completed - before
        if self.as_json:
            say_json({"n_completed": done})
        else:
            say(f"{counted(done, 'request')} completed")
