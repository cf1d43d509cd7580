# SPDX-License-Identifier: Apache-2.0
"""The command ``fit``, and what it did with each column of the table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import ExpungeError, InvalidInput
from .common import (
    DONE,
    ConfirmOptions,
    RegistryOptions,
    TextTable,
    describe_promise,
    explain_forgotten,
    format_count,
    format_pairs,
    model_to_json,
    print_json,
    print_note,
    print_text,
    require_file,
    warn_of_last_release,
)
from .estimators import ModelKind, parse_classes
from .lake import KeepRows, LakeOptions, LongFit, print_long_fit, readmit_owners
from .models import read_columns

if TYPE_CHECKING:
    from ..registry import LeftOut, ModelStatus, Registry
    from ..tables import Roles, Schema, TrainingTable
    from ..tables.trial import TrialScore


ENDING = ".schema.json"


@dataclass(frozen=True)
class FitCommand(RegistryOptions, ConfirmOptions, LakeOptions):
    """Fit a model to a table, and keep it so that it can forget.

    Text, dates and missing values are taken care of: it prints what it does with each
    column, and writes that to a schema file that you can edit and give back with
    --schema. The first release is made under a budget: what it promises, and the noise
    that pays for it, are fixed before the data are seen. With --no-budget nothing is
    promised.

    Several Parquet files, a folder of them, and a table with --keep-rows lake or never,
    are read block by block and may be larger than memory; their columns must be numbers
    and are used as they are.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="The table: CSV, Parquet or Arrow; or Parquet files, or their folder.",
        ),
    ]
    target: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column that the model predicts.")
    ]
    subject: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of ids that say whose row it is."),
    ] = None
    subject_kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="What the ids are, such as email or phone: they are kept in the one "
            "normal form of that kind, and people are found by it, raw or hashed. id: "
            "ids are compared as they are (default, unless they are addresses).",
        ),
    ] = None
    no_subject: Annotated[
        bool,
        typer.Option(
            "--no-subject",
            help="The rows belong to nobody: nobody can be forgotten from the model.",
        ),
    ] = False
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of weights; not a feature."),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="All classes that the target may have, separated by commas: declared "
            "in advance, so that a class without rows stays in the model. Without this "
            "option a class leaves the model with its last row.",
        ),
    ] = None
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Leave out a column; may be repeated."),
    ] = None
    category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Treat a column as words, even if it looks like numbers; may be "
            "repeated.",
        ),
    ] = None
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read from this file what each column is."),
    ] = None
    write_schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write to this file what each column is (default: beside the table, "
            "with the ending .schema.json).",
        ),
    ] = None
    no_trial: Annotated[
        bool,
        typer.Option(
            "--no-trial",
            help="Do not fit a second model to find out what accuracy to expect.",
        ),
    ] = False
    tuned_by: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="Declare what chose alpha, columns or the budget by looking at these "
            "rows, e.g. 'grid search'. Removals do not undo that choice, so nothing is "
            "promised. Not needed with --alphas, which chooses again.",
        ),
    ] = None
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the model of this name.")
    ] = False
    readmit: Annotated[
        bool,
        typer.Option(
            "--readmit",
            help="Accept people who were forgotten before, because they came back.",
        ),
    ] = False
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
        """Read the table, fit, and print what is promised and what to expect."""
        from ..tables import read_schema, read_table

        self._require_subjects()
        if self._is_long:
            return self._fit_long()
        require_file(self.file)
        if self.schema is not None:
            require_file(self.schema)
        written = None if self.write_schema is None else self._require_folder()
        given = None if self.schema is None else read_schema(self.schema)
        table = read_table(self.file, self._choose_roles(), schema=given)
        self._require_kind(table)
        kind, model = self._build_model(table)
        with self.open_registry() as registry:
            if self.no_subject and not self.exact:
                self._require_nobody_named(registry, [self.file])
            if self.replace:
                self.confirm(f"Replace model {self.name}, and erase its rows?")
            if self.readmit and table.subjects:
                registry.requests.readmit(table.subjects)
            left_out = self._fit(registry, model, table=table)
            fitted = {one.name: one for one in registry.status().models}[self.name]
        if given is None or written is not None:
            written = write_schema(table.schema, self.file, asked=written)
        report = FitReport(
            kind,
            table,
            written=written,
            trial=self._try(model, table),
            left_out=left_out,
        )
        if self.as_json:
            print_json(model_to_json(fitted) | report.to_json())
        else:
            self._print(fitted, report)
        warn_of_last_release(fitted)
        return DONE

    @property
    def file(self) -> Path:
        """The file, where there is one."""
        return self.files[0]

    @property
    def _is_long(self) -> bool:
        """Whether the table is read block by block."""
        kept = self.keep_rows is KeepRows.registry and self.engine is None
        return not kept or len(self.files) > 1 or self.file.is_dir()

    def _fit_long(self) -> int:
        """Fit to Parquet files that are read block by block."""
        from ..long.parquet import find_files

        for option in ("schema", "write_schema", "category", "alphas", "class_weight"):
            if getattr(self, option):
                raise InvalidInput(
                    f"--{option.replace('_', '-')} is for a table in memory; these "
                    "files are read block by block: give one file and --keep-rows "
                    "registry, or omit it"
                )
        columns = {
            name: getattr(self, name) for name in ("target", "subject", "weight")
        }
        asked = LongFit(
            self.name, self.files, columns, self.drop or (), self.classes, self
        )
        with self.open_registry() as registry, asked.open_table() as table:
            if self.no_subject and not self.exact:
                self._require_nobody_named(registry, find_files(self.files))
            kind, model = asked.build_model(table)
            if self.replace:
                self.confirm(f"Replace model {self.name}, and erase its rows?")
            if self.readmit:
                readmit_owners(registry, table)
            left_out = asked.fit(
                registry,
                table,
                model=model,
                replace=self.replace,
                search=self.tuned_by,
                without_forgotten=self.without_forgotten,
                subject_kind=self.subject_kind or "id",
                exact=self.exact,
            )
            fitted = {one.name: one for one in registry.status().models}[self.name]
            n_rows = len(table)
        print_long_fit(fitted, asked, kind=kind, n_rows=n_rows, left_out=left_out)
        warn_of_last_release(fitted)
        return DONE

    def _require_nobody_named(
        self, registry: "Registry", files: Sequence[Path]
    ) -> None:
        """Refuse tables without owners, if a column names people who left."""
        from ..tables.people import read_possible_ids

        kept = (read_columns(registry, one.name) for one in registry.status().models)
        known = {one.subject for one in kept if one is not None and one.subject}
        for file in files:
            for column, ids in read_possible_ids(file, self.target, known=known):
                back = registry.requests.find_forgotten(ids, near=True) if ids else ()
                if back:
                    people = format_count(len(back), "person", plural="people")
                    raise InvalidInput(
                        f"--no-subject, and column {column!r} of {file} names {people} "
                        "who were forgotten: their rows would come back; give "
                        f"--subject {column!r} --without-forgotten, or --exact if the "
                        "column does not say whose row it is"
                    )

    def _require_kind(self, table: "TrainingTable") -> None:
        """Raise if ids are addresses, and nobody said whether they are just ids.

        Hashes of such ids, which nothing tells from a stranger's, would find nobody.
        """
        from ..rights.identifiers import ADDRESSES, normal_form

        if self.subject_kind is not None or not table.subjects:
            return
        ids = dict.fromkeys(table.subjects)
        for kind in ADDRESSES:
            if all(normal_form(kind, one) is not None for one in ids):
                raise InvalidInput(
                    f"column {self.subject!r} of {self.file} has nothing but values of "
                    f"kind {kind}: give --subject-kind {kind}, and people are found by "
                    "any spelling of theirs, raw or hashed; or --subject-kind id, if "
                    "ids are compared as they are"
                )

    def _fit(
        self, registry: "Registry", model: Any, *, table: "TrainingTable"
    ) -> "LeftOut":
        """Fit and store the model; name the lines of people who were forgotten."""
        from ..registry import ForgottenInData

        fit = registry.models.refit if self.replace else registry.fit
        try:
            return fit(
                self.name,
                model,
                table.X,
                table.y,
                subjects=table.subjects,
                sample_weight=table.weight,
                search=self.tuned_by,
                without_forgotten=self.without_forgotten,
                subject_kind=self.subject_kind or "id",
                exact=self.exact,
                columns=self._describe_columns(table),
            )
        except ForgottenInData as error:
            advice = "state with --readmit that they came back"
            raise explain_forgotten(error, table, advice=advice) from None

    def _describe_columns(self, table: "TrainingTable") -> str:
        """Return what later tables for the model must look like."""
        from ..tables.schema import LEFT_OUT, TableSchema, make_column

        described = table.schema
        known = {one.name for one in described.columns}
        dropped = [
            make_column(name, LEFT_OUT, why="as you asked")
            for name in self.drop or ()
            if name not in known
        ]
        whole = replace(described, columns=(*described.columns, *dropped))
        return TableSchema(whole, self.subject, self.weight).to_json()

    def _choose_roles(self) -> "Roles":
        """Return what columns are, beside features."""
        from ..tables import Roles

        return Roles(
            target=self.target,
            subject=self.subject,
            weight=self.weight,
            drop=tuple(self.drop or ()),
            category=tuple(self.category or ()),
            task=self.choose_task(),
        )

    def _build_model(self, table: "TrainingTable") -> tuple[ModelKind, Any]:
        """Return the kind of model for a table, and the unfitted estimator."""
        classes = table.schema.classes
        if self.classes is not None:
            if classes is not None:
                raise InvalidInput("--classes, but the schema declares them; omit it")
            classes = tuple(parse_classes(self.classes, table.y))
        return self.build_for_table(table, classes)

    def _require_folder(self) -> Path:
        """Return where the schema goes; raise if nothing can be written there."""
        assert self.write_schema is not None
        if not self.write_schema.absolute().parent.is_dir():
            raise InvalidInput(
                f"--write-schema {self.write_schema}: there is no such folder; make it"
            )
        return self.write_schema

    def _try(self, model: Any, table: "TrainingTable") -> "TrialScore | str":
        """Return how well the model does on others, or why that is not known."""
        from ..tables.trial import try_model

        if self.no_trial:
            return "not tried, as you asked"
        try:
            return try_model(model, table)
        except ExpungeError as error:
            return f"not known: {error}"

    def _require_subjects(self) -> None:
        """Raise unless the options say, once, whose rows these are."""
        if self.subject is None and not self.no_subject:
            raise InvalidInput(
                "whose rows are these? name the column of ids with --subject, or give "
                "--no-subject if nobody needs to be forgotten from the model"
            )
        if self.no_subject and (self.subject is not None or self.readmit):
            other = "--readmit" if self.subject is None else "--subject"
            raise InvalidInput(f"--no-subject with {other}; give only one of them")
        if self.without_forgotten and (self.no_subject or self.readmit):
            other = "--no-subject" if self.no_subject else "--readmit"
            raise InvalidInput(
                f"--without-forgotten with {other}; give only one of them"
            )

    def _print(self, fitted: "ModelStatus", report: "FitReport") -> None:
        """Print what was fitted, what is promised, and what to expect."""
        table = report.table
        guessed = " (guessed from the target; choose with --task or --kind)"
        is_guess = self.kind is ModelKind.auto and self.schema is None
        people = format_count(fitted.n_people, "person", plural="people")
        whose = "without owners" if table.subjects is None else f"of {people}"
        n_features = format_count(len(table.schema.used), "feature")
        lines: list[tuple[str, object]] = [
            ("model", fitted.name),
            ("kind", f"{report.kind}{guessed if is_guess else ''}"),
            ("rows", f"{report.n_rows} {whose}, {n_features}"),
            ("release", fitted.number),
            ("promise", describe_promise(fitted.certificate)),
            ("expect", report.describe_trial()),
        ]
        report.print_columns()
        print_text("", format_pairs(lines))
        report.print_notes()
        if table.subjects is None:
            print_note("The model has no people: nobody can be forgotten from it.")
        if self.tuned_by is not None:
            print_note(
                "Removals do not undo a choice made by looking at the rows: nothing is "
                "promised."
            )
        if self.no_budget:
            print_note(
                "Without a budget nothing is promised about what a release reveals."
            )


@dataclass(frozen=True)
class FitReport:
    """How a table was read, and what to expect of its model.

    Attributes
    ----------
    kind
        Which kind of model was fitted.
    table
        The table.
    written
        Where its schema was written; None if nowhere.
    trial
        How well the model does on others, or in words why that is not known.
    left_out
        The rows of people who were forgotten before.
    """

    kind: ModelKind
    table: "TrainingTable"
    written: Path | None
    trial: "TrialScore | str"
    left_out: "LeftOut"

    @property
    def n_rows(self) -> int:
        """How many rows were fitted."""
        return len(self.table.y) - self.left_out.n_rows

    def print_columns(self) -> None:
        """Print what was done with each column."""
        schema = self.table.schema
        lines = [(one.name, one.kind, one.describe()) for one in schema.columns]
        TextTable(("column", "kind", "what is done"), tuple(lines)).print()

    def print_notes(self) -> None:
        """Print what a person should look at, a line each."""
        n_left = self.table.n_without_target
        if n_left:
            rows = format_count(n_left, "row")
            target = self.table.schema.target
            print_note(f"left out: {rows} without a target, column {target!r}")
        if self.left_out.n_merged:
            n = format_count(self.left_out.n_merged, "id")
            print_note(
                f"merged: {n} that other ids are spellings of, by the kind of the ids"
            )
        if self.left_out.n_rows:
            rows = format_count(self.left_out.n_rows, "row")
            n_people = self.left_out.n_people
            people = format_count(n_people, "person", plural="people")
            print_note(f"left out: {rows} of {people} who left before")
        if self.written is not None:
            print_note(
                f"{self.written} says what each column is, as guessed from the rows; "
                "edit it and fit with --schema to declare it yourself"
            )

    def describe_trial(self) -> str:
        """Return what to expect of the model."""
        return self.trial if isinstance(self.trial, str) else self.trial.describe()

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        columns = [
            {"name": one.name, "kind": one.kind, "done": one.describe()}
            for one in self.table.schema.columns
        ]
        trial = None
        if not isinstance(self.trial, str):
            trial = {
                "score": self.trial.score,
                "guess": self.trial.guess,
                "noise": self.trial.noise,
            }
        return {
            "kind": self.kind.value,
            "task": self.table.schema.task,
            "n_rows": self.n_rows,
            "left_out": self.left_out._asdict(),
            "n_without_target": self.table.n_without_target,
            "columns": columns,
            "schema": None if self.written is None else str(self.written),
            "trial": trial,
        }


def write_schema(schema: "Schema", table: Path, *, asked: Path | None) -> Path | None:
    """Write a schema where it was asked for, or beside its table; return where.

    A file beside the table that says something else is left as it is, because somebody
    may have edited it. The model is fitted by now, so a folder that cannot be written
    to is no failure.
    """
    text = schema.to_json()
    if asked is not None:
        asked.write_text(text, encoding="utf-8")
        return asked
    path = table.with_name(_remove_suffix(table.name) + ENDING)
    try:
        if path.exists() and path.read_text(encoding="utf-8") != text:
            print_note(
                f"{path} is another schema, which was not used and stays as it is; "
                "use it with --schema, or write this one with --write-schema"
            )
            return None
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print_note(f"{path} was not written ({error.strerror}); use --write-schema")
        return None
    return path


def _remove_suffix(name: str) -> str:
    """Return the name of a table without .csv, .csv.gz and the like."""
    from ..tables.files import SUFFIXES

    ends = [len(one) for one in SUFFIXES if name.lower().endswith(one)]
    return name[: -max(ends)]
