# SPDX-License-Identifier: Apache-2.0
"""``expunge restore``: the store comes back from a backup, and nobody with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from .exits import DONE
from .options import OnRegistry, require_file
from .printing import counted, progress, say, say_json


@dataclass(frozen=True)
class Restore(OnRegistry):
    """Put the store back from a backup; forget again.

    People who were forgotten after the backup was made are in it. The journal in the
    registry's folder knows the requests; they are carried out again.
    """

    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="Folder of the backup.")
    ]

    def perform(self) -> int:
        """Restore and say where things stand."""
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
