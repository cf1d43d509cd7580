# SPDX-License-Identifier: Apache-2.0
"""``expunge fit``: a table becomes a model that can forget, kept by the registry."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .exits import DONE
from .kinds import Kind, Terms
from .options import OnRegistry, require_file
from .printing import counted, facts, note, say, say_json
from .words import model_json, promise

if TYPE_CHECKING:
    from ..registry import ModelStatus
    from .tables import Table


@dataclass(frozen=True)
class Fit(OnRegistry, Terms):
    """Fit a model to a table and keep it, so that it can forget.

    The first release is made under a contract: what it promises, and the noise that
    pays for it, are fixed before the data are seen. --no-budget makes no promise.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The table: CSV or Parquet.")
    ]
    target: Annotated[
        str, typer.Option(metavar="COLUMN", help="What the model predicts.")
    ]
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Whose row it is: by these ids people are forgotten.",
        ),
    ] = None
    no_subject: Annotated[
        bool,
        typer.Option(
            "--no-subject",
            help="The rows are nobody's: the model has no people, and nobody can be "
            "forgotten from it.",
        ),
    ] = False
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="What a row weighs; not a feature then."),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Every class that the target may have, with commas between: part of "
            "the contract, so that a class without rows stays. Without it, a class "
            "leaves the model with its last row.",
        ),
    ] = None
    penalize_intercept: Annotated[
        bool,
        typer.Option(
            "--penalize-intercept",
            help="Penalise the intercept too: without it no model exists for a "
            "declared class that has no rows.",
        ),
    ] = False
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Leave out a column; may be repeated."),
    ] = None
    tuned_by: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="What chose alpha, columns or the contract by looking at these rows, "
            "'grid search' say. Removal does not undo the choice, so that nothing is "
            "promised. --alphas chooses removably, and needs no such words.",
        ),
    ] = None
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the model of that name.")
    ] = False
    readmit: Annotated[
        bool,
        typer.Option(
            "--readmit",
            help="Take in people who were forgotten: they came back.",
        ),
    ] = False

    def perform(self) -> int:
        """Read the table, fit, and say what is promised."""
        from .tables import read_table

        self._require_owners()
        require_file(self.file)
        table = read_table(
            self.file, self.target, self.subject, tuple(self.drop or ()), self.weight
        )
        kind = self.kind_for(table.y)
        model = self.estimator(kind)
        model.set_params(penalize_intercept=self.penalize_intercept)
        if self.classes is not None:
            model.set_params(classes=_classes(self.classes, table.y))
        with self.opened() as registry:
            if self.readmit and table.subjects:
                registry.readmit(table.subjects)
            fit = registry.refit if self.replace else registry.fit
            fit(
                self.name,
                model,
                frame(table),
                table.y,
                subjects=table.subjects,
                sample_weight=table.weight,
                search=self.tuned_by,
            )
            kept = {one.name: one for one in registry.status().models}[self.name]
        if self.as_json:
            say_json(model_json(kept) | {"kind": kind.value, "n_rows": len(table.X)})
        else:
            self._say(kept, kind, table)
        return DONE

    def _require_owners(self) -> None:
        """Refuse a fit that does not say whose the rows are, or says it twice."""
        if self.subject is None and not self.no_subject:
            raise InvalidInput(
                "whose rows are these? name the column of ids with --subject, or say "
                "--no-subject: nobody can be forgotten from such a model"
            )
        if self.no_subject and (self.subject is not None or self.readmit):
            other = "--readmit" if self.subject is None else "--subject"
            raise InvalidInput(f"--no-subject beside {other}; choose one of them")

    def _say(self, kept: "ModelStatus", kind: Kind, table: "Table") -> None:
        """Print what was fitted and what is promised."""
        n_rows, n_features = table.X.shape
        chosen = " (by its target; --kind says otherwise)"
        people = counted(kept.n_people, "person", "people")
        if table.subjects is None:
            people = "nobody"
        lines: list[tuple[str, object]] = [
            ("model", kept.name),
            ("kind", f"{kind}{chosen if self.kind is Kind.auto else ''}"),
            ("rows", f"{n_rows} of {people}, {counted(n_features, 'feature')}"),
            ("release", kept.number),
            ("promise", promise(kept.certificate)),
        ]
        say(facts(lines))
        if table.subjects is None:
            note("The model has no people: nobody can be forgotten from it.")
        if self.tuned_by is not None:
            note(
                "Removal does not undo a choice made on the rows: nothing is promised."
            )
        if self.no_budget:
            note("Without a budget no claim is made about what the model reveals.")


def _classes(words: str, y: Any) -> list[Any]:
    """Return the classes in a list like "no,yes", of the type that the target has."""
    import numpy as np

    given = [word.strip() for word in words.split(",")]
    kind = np.asarray(y).dtype
    if kind.kind not in "iufb":
        return given
    try:
        return [kind.type(float(word)).item() for word in given]
    except ValueError:
        raise InvalidInput(
            f"--classes {words!r}; the target holds numbers: give numbers with commas "
            "between"
        ) from None


def frame(table: "Table") -> Any:
    """Return the features under their names, which then travel with the model."""
    columns = zip(table.features, table.X.T, strict=True)
    return import_module("pyarrow").table(dict(columns))
