# SPDX-License-Identifier: Apache-2.0
"""``expunge plan``: how many people may go under a model's contract."""

import warnings
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from .exits import DONE
from .options import OnRegistry
from .printing import note, say, say_json


@dataclass(frozen=True)
class Plan(OnRegistry):
    """Say how many rows may go under a contract.

    And what its noise costs. It looks at the rows that are kept: a contract chosen
    from its figures is not covered by any certificate. Keep them to yourself.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]

    def perform(self) -> int:
        """Plan on the rows kept and print the tables."""
        from ..plan import PlanningLooksAtData

        with self.opened() as registry, warnings.catch_warnings():
            # The table says it too, as a sentence rather than as a line of code.
            warnings.simplefilter("ignore", PlanningLooksAtData)
            report = registry.plan(self.name)
        if self.as_json:
            say_json(asdict(report))
        else:
            note("this looked at the rows that are kept: keep it to yourself")
            say(report.table().rstrip())
        return DONE
