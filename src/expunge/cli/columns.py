# SPDX-License-Identifier: Apache-2.0
"""What ``fit`` did with each column: printed as a table, and written to a schema."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import TextTable, format_count, print_note
from .estimators import ModelKind

if TYPE_CHECKING:
    from ..registry import LeftOut
    from ..tables import Schema, TrainingTable
    from ..tables.trial import TrialScore

ENDING = ".schema.json"


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
        from ..tables.training import ON_REQUEST

        for one in self.table.schema.left_out:
            if self.table.guessed and one.why != ON_REQUEST:
                print_note(f"left out: column {one.name!r}, {one.why}")
        n_left = self.table.n_without_target
        if n_left:
            rows = format_count(n_left, "row")
            target = self.table.schema.target
            print_note(f"left out: {rows} without a target, column {target!r}")
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
