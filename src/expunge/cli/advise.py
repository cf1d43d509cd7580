# SPDX-License-Identifier: Apache-2.0
"""The command that suggests a budget: which sigma to take, and what it means."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .common import (
    DONE,
    CommonOptions,
    print_json,
    print_note,
    print_text,
    require_file,
)
from .estimators import EstimatorOptions

if TYPE_CHECKING:
    from ..plan import Advice


@dataclass(frozen=True)
class AdviseCommand(CommonOptions, EstimatorOptions):
    """Suggest a budget, from a table like the one you will fit.

    It tries a model like yours with more and more noise, lets people leave it, and
    prints the budget with the most noise whose loss of accuracy you accept. Give public
    or older data: no certificate covers a budget that was chosen from the rows of the
    model itself.
    """

    file: Annotated[
        Path, typer.Argument(metavar="TABLE", help="The table: CSV or Parquet.")
    ]
    target: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column that the model predicts.")
    ]
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of ids that say whose row it is; without it each request "
            "removes one row.",
        ),
    ] = None
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Leave out a column; may be repeated."),
    ] = None
    max_loss: Annotated[
        float,
        typer.Option(
            help="How much accuracy, or R2, the noise may cost: 0.01 is one point."
        ),
    ] = 0.01
    requests: Annotated[
        int,
        typer.Option(min=1, help="How many requests you expect before you fit again."),
    ] = 1000
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw what was found into this file."),
    ] = None

    delta: Annotated[
        float | None,
        typer.Option(
            help="Privacy parameter delta (default 1e-5, or less for many people)."
        ),
    ] = field(default=None, kw_only=True)
    # What the command finds out is no option of it.
    sigma: Annotated[float | None, typer.Option(hidden=True)] = field(
        default=None, kw_only=True
    )
    no_budget: Annotated[bool, typer.Option("--no-budget", hidden=True)] = field(
        default=False, kw_only=True
    )

    def perform(self) -> int:
        """Read the table, try budgets, and print the one to take."""
        from ..plan import suggest_budget

        if self.sigma is not None or self.no_budget:
            given = "--no-budget" if self.no_budget else "--sigma"
            raise InvalidInput(f"{given}, but sigma is what advise finds out; omit it")
        require_file(self.file)
        X, y, subjects, model = self._prepare()
        advice = suggest_budget(
            X,
            y,
            model,
            subjects=subjects,
            max_loss=self.max_loss,
            requests=self.requests,
            **self._choose_promise(),
        )
        if self.plot is not None:
            advice.plot(self.plot)
        self._print(advice)
        return DONE

    def _prepare(self) -> tuple[Any, Any, list[str] | None, Any]:
        """Return the features, the target, whose rows they are, and the estimator."""
        from ..tables import Roles, read_table

        roles = Roles(
            target=self.target,
            subject=self.subject,
            drop=tuple(self.drop or ()),
            task=self.choose_task(),
        )
        table = read_table(self.file, roles)
        # What is not promised here is chosen for as many people as there are.
        _, model = self.build_for_table(table, table.schema.classes)
        return table.X, table.y, table.subjects, model.set_params(budget=None)

    def _choose_promise(self) -> dict[str, Any]:
        """Return what the options say of the budget."""
        stated = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "releases": self.releases,
            "row_norm": self.row_norm,
        }
        return {name: value for name, value in stated.items() if value is not None}

    def _print(self, advice: "Advice") -> None:
        """Print the advice, and how to follow it."""
        if self.as_json:
            words = {"line": advice.line, "sentences": advice.sentences}
            print_json(words | {"options": list_options(advice)} | asdict(advice))
            return
        print_text(str(advice).rstrip())
        print_note(f"To fit with it: expunge fit ... {list_options(advice)}")


def list_options(advice: "Advice") -> str:
    """Return the budget as options of ``expunge fit``."""
    budget = advice.budget
    named = {"epsilon": budget.epsilon, "delta": budget.delta, "sigma": budget.sigma}
    options = [f"--{name} {value!r}" for name, value in named.items()]
    if budget.releases is not None:
        options.append(f"--releases {budget.releases}")
    if budget.row_norm is not None:
        options.append(f"--row-norm {budget.row_norm!r}")
    return " ".join(options)
