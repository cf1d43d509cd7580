# SPDX-License-Identifier: Apache-2.0
"""``expunge reanchor``: private state that has never seen those who left."""

from dataclasses import dataclass
from typing import Annotated

import typer

from .exits import DONE
from .options import OnRegistry
from .printing import say, say_json


@dataclass(frozen=True)
class Reanchor(OnRegistry):
    """Make the private state of a model anew from the rows that are left.

    The old one was fitted with everybody, and whoever opens it could learn of removed
    rows. It takes a pass over all rows, and releases nothing.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]

    def perform(self) -> int:
        """Do it and say so."""
        with self.opened() as registry:
            registry.reanchor(self.name)
        if self.as_json:
            say_json({"reanchored": self.name})
        else:
            say(f"{self.name}: the private state knows nobody who left")
        return DONE
