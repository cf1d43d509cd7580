# SPDX-License-Identifier: Apache-2.0
"""``expunge restore``: the store comes back from a backup, and nobody with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..exceptions import InvalidInput
from .exits import DONE
from .options import OnRegistry, require_file
from .printing import counted, progress, say, say_json


@dataclass(frozen=True)
class Restore(OnRegistry):
    """Put the store back from a backup; forget again.

    People who were forgotten after the backup was made are in it. The journal in the
    registry's folder knows the requests; they are carried out again. If the journal
    itself is damaged and no copy of it is left, --journal writes it again from the
    database in use.
    """

    backup: Annotated[
        Path | None, typer.Argument(metavar="BACKUP", help="Folder of the backup.")
    ] = None
    journal: Annotated[
        bool,
        typer.Option("--journal", help="Rebuild the journal, without a backup."),
    ] = False

    def perform(self) -> int:
        """Restore and say where things stand."""
        if (self.backup is None) != self.journal:
            raise InvalidInput("give either the folder of a backup or --journal")
        if self.backup is None:
            return self._rebuild()
        require_file(self.backup)
        from ..registry import Registry

        with progress("forgetting again") as watch:
            restored = Registry.restore(self.registry, self.backup, tell=watch)
        with restored as registry:
            status = registry.status()
        if self.as_json:
            completed = {"n_completed": status.n_completed}
            say_json({"registry": str(self.registry), **completed})
        else:
            requests = counted(status.n_completed, "request is", "requests are")
            say(f"restored {self.registry}: {requests} completed")
        return DONE

    def _rebuild(self) -> int:
        """Write the journal from the database, and say what is lost."""
        from ..registry import Registry

        n_unnamed = Registry.rebuild_journal(self.registry)
        if self.as_json:
            say_json({"registry": str(self.registry), "n_unnamed": n_unnamed})
            return DONE
        say(f"the journal of {self.registry} is whole")
        if n_unnamed:
            requests = counted(n_unnamed, "completed request")
            say(
                f"it cannot say whom {requests} named: take a backup now, since older",
                "ones are refused, and see that these people are in no table you fit",
            )
        return DONE
