# SPDX-License-Identifier: Apache-2.0
"""``expunge release``: a model leaves as one file, and copies of it come back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..exceptions import InvalidInput
from .exits import DONE
from .options import OnRegistry
from .printing import say, say_json
from .words import release_json


@dataclass(frozen=True)
class Release(OnRegistry):
    """Write a release to a file, or withdraw one.

    The file holds the noised parameters and their certificate, nothing private. What
    left is remembered: status lists releases that are out of date and still out there.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to: .safetensors or .onnx."),
    ] = None
    withdraw: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Every copy of release N was taken back."
        ),
    ] = None

    def perform(self) -> int:
        """Ship the release, or withdraw an earlier one."""
        if (self.to is None) == (self.withdraw is None):
            raise InvalidInput(
                "give either --to FILE, to write the release there, or --withdraw N, "
                "once every copy of release N was taken back"
            )
        with self.opened() as registry:
            if self.withdraw is not None:
                registry.withdraw(self.name, self.withdraw)
                answer = {"model": self.name, "withdrawn": self.withdraw}
                words = f"release {self.withdraw} of {self.name} is withdrawn"
            elif self.to is not None:
                shipped = registry.ship(self.name, self.to)
                answer = release_json(shipped)
                words = f"wrote {self.to}: release {shipped.number} of {self.name}"
        if self.as_json:
            say_json(answer)
        else:
            say(words)
        return DONE
