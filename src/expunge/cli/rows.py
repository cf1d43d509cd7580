# SPDX-License-Identifier: Apache-2.0
"""Commands that bring rows to a model that is fitted: add and rectify."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exceptions import InvalidInput
from .answering import take_people
from .common import (
    DONE,
    ConfirmOptions,
    RegistryOptions,
    explain_forgotten,
    format_count,
    model_to_json,
    print_json,
    print_note,
    print_text,
    require_file,
)
from .models import read_columns
from .requests import AnswerOptions

if TYPE_CHECKING:
    from ..linear_model.rows import UnseenCategory
    from ..registry import LeftOut, Registry
    from ..tables import TrainingTable


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options that say what the columns of a table with more rows are."""

    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that the model predicts (default: as at the fit).",
        ),
    ] = None
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What each column is (default: as at the fit)."
        ),
    ] = None
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of ids that say whose row it is (default: as at the fit).",
        ),
    ] = None
    weight: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of weights (default: as at the fit)."
        ),
    ] = None
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Leave out a column; may be repeated."),
    ] = None

    def read_rows(
        self, registry: "Registry", name: str, *, file: Path
    ) -> "tuple[TrainingTable, str | None]":
        """Return the rows of a table for a model, and the column of ids.

        What no option says is as it was at the fit, which the registry knows.
        """
        from ..tables import Roles, read_schema, read_table

        require_file(file)
        kept = read_columns(registry, name)
        if self.schema is not None:
            require_file(self.schema)
            schema = read_schema(self.schema)
        elif kept is not None:
            schema = kept.schema
        else:
            raise InvalidInput(
                f"model {name!r} was not fitted by expunge fit to a table in memory, "
                "so the registry does not know what its columns are; say it with "
                "--schema"
            )
        subject, weight = self.subject, self.weight
        if kept is not None:
            subject, weight = subject or kept.subject, weight or kept.weight
        roles = Roles(
            target=self.target or schema.target,
            subject=subject,
            weight=weight,
            drop=tuple(self.drop or ()),
            more=True,
        )
        return read_table(file, roles, schema=schema), subject


@dataclass(frozen=True)
class AddCommand(RegistryOptions, ConfirmOptions, TableOptions):
    """Add the rows of a table to a model, and release it.

    The model is then what a fit to all its rows would be. People may be new or have
    rows in the model already. People who were forgotten are refused, or left out.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The table: CSV, Parquet or Arrow.")
    ]
    without_forgotten: Annotated[
        bool,
        typer.Option(
            "--without-forgotten",
            help="Leave out the rows of people who were forgotten before.",
        ),
    ] = False

    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Ids that differ from those of forgotten people only in case, "
            "spacing, width or zeros are other people's.",
        ),
    ] = False

    def perform(self) -> int:
        """Read the table, add its rows, and print what the model is now."""
        with self.open_registry() as registry:
            table, _ = self.read_rows(registry, self.name, file=self.file)
            left_out = self._add(registry, table)
            found = {one.name: one for one in registry.status().models}[self.name]
        n_rows = len(table.y) - left_out.n_rows
        if self.as_json:
            print_json(model_to_json(found) | {"n_rows_added": n_rows})
            return DONE
        rows = format_count(n_rows, "row")
        print_text(f"{rows} added to {self.name}, which has release {found.number} now")
        if left_out.n_rows:
            gone = format_count(left_out.n_rows, "row")
            print_note(f"left out: {gone} of people who were forgotten")
        return DONE

    def _add(self, registry: "Registry", table: "TrainingTable") -> "LeftOut":
        """Add the rows; name the lines of those that cannot be added."""
        from ..linear_model.rows import UnseenCategory
        from ..registry import ForgottenInData

        try:
            return registry.add(
                self.name,
                table.X,
                table.y,
                subjects=table.subjects,
                sample_weight=table.weight,
                without_forgotten=self.without_forgotten,
                exact=self.exact,
            )
        except ForgottenInData as error:
            advice = "fit again with --readmit if they came back; nothing was changed"
            raise explain_forgotten(error, table, advice=advice) from None
        except UnseenCategory as error:
            kept = self._find_kept(registry, table)
            rows = [kept[row] for row in error.rows]
            raise explain_category(error, table, rows=rows) from None

    def _find_kept(self, registry: "Registry", table: "TrainingTable") -> list[int]:
        """Return the places of the rows that are added, in the table."""
        owners = table.subjects
        if owners is None or not self.without_forgotten:
            return list(range(len(table.y)))
        gone = {*registry.requests.find_forgotten(owners, near=not self.exact)}
        return [row for row, owner in enumerate(owners) if owner not in gone]


def explain_category(
    error: "UnseenCategory", table: "TrainingTable", *, rows: Sequence[int]
) -> InvalidInput:
    """Return the error about a category that a model does not have, with its lines."""
    assert table.file is not None and table.rows is not None
    return table.file.make_error(
        error.column,
        "a category, or a missing value, that no row of the model has",
        rows=table.rows[list(rows)].tolist(),
        advice="correct it, or fit again with all categories of the column in the "
        "schema; nothing was changed",
    )


@dataclass(frozen=True)
class RectifyCommand(AnswerOptions, TableOptions):
    """Replace the rows of a person in a model by those of a table.

    The old rows leave and the new ones come, in one release. The table holds all rows
    that the person should have in the model, and nobody else's: its column of ids must
    name the person in every row.
    """

    person: Annotated[
        str, typer.Argument(metavar="ID", help="The person whose rows are wrong.")
    ]
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The table: CSV, Parquet or Arrow.")
    ]

    def perform(self) -> int:
        """File the request, apply it, and hand out the receipt."""
        from ..linear_model.rows import UnseenCategory
        from ..registry import NewRows, Request

        with self.open_registry() as registry:
            table, subject = self.read_rows(registry, self.name, file=self.file)
            if subject is None:
                raise InvalidInput(
                    "whose rows are these? name the column of ids with --subject; "
                    "every row must be of the person whose rows are wrong"
                )
            rows = {self.name: NewRows(table.X, table.y, table.weight)}
            people = take_people([self.person]).resolve_aliases(registry)
            require_owner(
                table,
                people.ids,
                column=subject,
                kind=registry.models.subject_kind(self.name),
            )
            n_rows = format_count(len(table.y), "row")
            self.confirm(f"Replace their rows in {self.name} by {n_rows}?")
            ids = registry.aliases.choose_holders(people.ids, [self.name])
            asked = Request(
                tuple(one for one in ids if one in people.ids),
                right="rectify",
                regime=self.regime,
                submitted=self.submitted,
                rows=rows,
            )
            try:
                self.answer(
                    registry,
                    people,
                    asked=[self.named(asked)],
                    advice="check the id; to add the rows of somebody who is in no "
                    "model, use expunge add",
                )
            except UnseenCategory as error:
                raise explain_category(error, table, rows=error.rows) from None
        return DONE


def require_owner(
    table: "TrainingTable", ids: Sequence[str], *, column: str, kind: str
) -> None:
    """Raise unless every row of a table is of the one person who has these ids.

    An id may be spelled as its kind allows. The error quotes none: it is of others.
    """
    from ..rights.identifiers import ID, normal_form

    assert table.file is not None and table.rows is not None
    assert table.subjects is not None
    strange = [
        row
        for row, owner in enumerate(table.subjects)
        if (owner if kind == ID else normal_form(kind, owner)) not in ids
    ]
    if strange:
        raise table.file.make_error(
            column,
            "an id that is not the person's",
            rows=table.rows[strange].tolist(),
            advice="keep the rows of the person whom you named, and nobody else's; "
            "nothing was changed",
        )
