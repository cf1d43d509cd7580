# SPDX-License-Identifier: Apache-2.0
"""Commands that bring rows to a model that is fitted: add and rectify."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .models import choose_schema, read_columns
from .options import (
    FOLDER,
    Drop,
    Folder,
    ModelName,
    OthersIds,
    Unchecked,
    WithoutForgotten,
    Yes,
    open_registry,
    require_file,
)
from .output import (
    Result,
    confirm,
    format_count,
    format_people,
    model_to_json,
)
from .requests import AnswerOptions, answer_requests, look_up

if TYPE_CHECKING:
    from ..linear_model.rows import UnseenCategory
    from ..registry import ForgottenInData, Registry
    from ..tables import TrainingTable

Table = Annotated[
    Path, typer.Argument(metavar="FILE", help="The table: CSV, Parquet or Arrow.")
]


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
    exposure: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of exposures of counts or amounts (default: as at the fit).",
        ),
    ] = None
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of offsets (default: as at the fit)."
        ),
    ] = None
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of times of survival (default: as at the fit).",
        ),
    ] = None
    drop: Drop = None

    def read_rows(
        self, registry: "Registry", name: str, *, file: Path
    ) -> "tuple[TrainingTable, str | None]":
        """Return the rows of a table for a model, and the column of ids.

        What no option says is as it was at the fit, which the registry knows.
        """
        from ..tables import Roles, read_table
        from ..tables.schema import ROLES

        require_file(file)
        schema = choose_schema(registry, name, given=self.schema)
        kept = read_columns(registry, name)
        known = dict.fromkeys(ROLES) if kept is None else kept.roles
        columns: dict[str, Any] = {
            name: getattr(self, name) or known[name] for name in ROLES
        }
        roles = Roles(
            target=self.target or schema.target,
            **columns,
            drop=tuple(self.drop or ()),
            more=True,
        )
        table = read_table(file, roles, schema=schema)
        return label_rows(registry.model(name), table), roles.subject


def label_rows(model: Any, table: "TrainingTable") -> "TrainingTable":
    """Return a table with labels and weights as a registry takes them.

    ``model`` is the estimator, fitted or not, which knows what exposures make of them,
    and that somebody who is seen until a time is a row for each interval.
    """
    import numpy as np

    if table.time is not None:
        if table.exposure is not None or table.offset is not None:
            raise InvalidInput(
                "--time with --exposure or --offset; the times are the exposures: "
                "leave the others out"
            )
        seen = np.column_stack([table.time, table.y])
        X, labels, places, weight = model.spread(
            table.X, seen, range(len(seen)), table.weight
        )
        return table.take(np.array(places, dtype=int), X=X, y=labels, weight=weight)
    if not hasattr(model, "label"):
        if table.exposure is None and table.offset is None:
            return table
        given = "offset" if table.exposure is None else "exposure"
        raise InvalidInput(
            f"--{given} is for counts, amounts and quantiles; fit with --loss poisson, "
            "gamma, tweedie, negative-binomial or quantile"
        )
    labels, weight = model.label(
        table.y,
        sample_weight=table.weight,
        exposure=table.exposure,
        offset=table.offset,
    )
    return replace(table, y=labels, weight=weight)


def explain_forgotten(
    error: "ForgottenInData", table: "TrainingTable", *, advice: str
) -> InvalidInput:
    """Return the error about people in a table who were forgotten, with its lines."""
    assert table.file is not None
    return InvalidInput(
        f"{table.file.path}, {table.locate(error.rows)}: rows of "
        f"{format_people(error.n_people)} who were forgotten, and would come back: "
        f"leave them out with --without-forgotten, or {advice}{explain_near(error)}"
    )


def explain_near(error: "ForgottenInData") -> str:
    """Return what to do about ids that are spelled almost as those who left."""
    if not error.n_near:
        return ""
    return (
        f"; {format_people(error.n_near)} of them by an id that differs only in case, "
        "spacing, width or zeros: give --exact if these are others"
    )


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


def add(
    name: ModelName,
    file: Table,
    *,
    without_forgotten: WithoutForgotten = False,
    exact: OthersIds = False,
    unchecked: Unchecked = False,
    columns: TableOptions,
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Add the rows of a table to a model, and release it.

    The model is then what a fit to all its rows would be. People may be new or have
    rows in the model already. People who were forgotten are refused, or left out.
    """
    from ..linear_model.rows import UnseenCategory
    from ..registry import ForgottenInData

    with open_registry(registry) as opened:
        table, _ = columns.read_rows(opened, name, file=file)
        try:
            left_out = opened.add(
                name,
                table.X,
                table.y,
                subjects=table.subjects,
                sample_weight=table.weight,
                without_forgotten=without_forgotten,
                exact=exact,
                unchecked=unchecked,
            )
        except ForgottenInData as error:
            advice = "fit again with --readmit if they came back; nothing was changed"
            raise explain_forgotten(error, table, advice=advice) from None
        except UnseenCategory as error:
            # Its rows are counted without those that were left out.
            kept: Sequence[int] = range(len(table.y))
            if without_forgotten and table.subjects is not None:
                gone = {*opened.requests.find_forgotten(table.subjects, near=not exact)}
                kept = [row for row in kept if table.subjects[row] not in gone]
            rows = [kept[row] for row in error.rows]
            raise explain_category(error, table, rows=rows) from None
        model = {model.name: model for model in opened.status().models}[name]
    n_rows = len(table.y) - left_out.n_rows
    added = format_count(n_rows, "row")
    notes = []
    if left_out.n_rows:
        gone_rows = format_count(left_out.n_rows, "row")
        notes.append(f"left out: {gone_rows} of people who were forgotten")
    return Result(
        model_to_json(model) | {"n_rows_added": n_rows},
        f"{added} added to {name}, which has release {model.number} now",
        notes,
    )


def rectify(
    person: Annotated[
        str, typer.Argument(metavar="ID", help="The person whose rows are wrong.")
    ],
    name: ModelName,
    *,
    file: Table,
    columns: TableOptions,
    asked: AnswerOptions,
) -> Result:
    """Replace the rows of a person in a model by those of a table.

    The old rows leave and the new ones come, in one release. The table holds all rows
    that the person should have in the model, and nobody else's: its column of ids must
    name the person in every row.
    """
    from ..linear_model.rows import UnseenCategory
    from ..registry import NewRows, Request

    with open_registry(asked.registry) as registry:
        table, subject = columns.read_rows(registry, name, file=file)
        if subject is None:
            raise InvalidInput(
                "whose rows are these? name the column of ids with --subject; "
                "every row must be of the person whose rows are wrong"
            )
        meant = look_up(registry, [person], exact=True)
        kind = registry.models.subject_kind(name)
        require_owner(table, meant.ids, column=subject, kind=kind)
        n_rows = format_count(len(table.y), "row")
        confirm(f"Replace their rows in {name} by {n_rows}?", yes=asked.yes)
        ids = registry.aliases.choose_holders(meant.ids, [name])
        request = Request(
            tuple(id_ for id_ in ids if id_ in meant.ids),
            right="rectify",
            regime=asked.regime,
            submitted=asked.submitted,
            rows={name: NewRows(table.X, table.y, table.weight)},
        )
        try:
            return answer_requests(
                registry,
                [asked.name_request(request)],
                meant=meant,
                asked=asked,
                advice="check the id; to add the rows of somebody who is in no "
                "model, use expunge add",
            )
        except UnseenCategory as error:
            raise explain_category(error, table, rows=error.rows) from None


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
