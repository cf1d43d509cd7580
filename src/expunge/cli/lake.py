# SPDX-License-Identifier: Apache-2.0
"""Tables that stay in their files: how ``fit`` reads them, and ``expunge lake``."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .common import (
    DONE,
    CommonOptions,
    ConfirmOptions,
    RegistryOptions,
    describe_promise,
    explain_near,
    format_count,
    format_pairs,
    model_to_json,
    print_json,
    print_note,
    print_text,
    require_file,
    show_named_progress,
    show_pace,
    show_progress,
)
from .estimators import EstimatorOptions, ModelKind, parse_classes

if TYPE_CHECKING:
    from ..long import LongTable
    from ..registry import LeftOut, ModelStatus, Registry, SourceStatus

MEBIBYTE = 1 << 20
FIT_LABELS = ("looking for people who left", "fitting", "storing", "erasing")


class KeepRows(StrEnum):
    """What the registry keeps of the rows."""

    registry = "registry"
    lake = "lake"
    never = "never"


@dataclass(frozen=True, kw_only=True)
class LakeOptions(CommonOptions, EstimatorOptions):
    """Options of tables that may stay in their files."""

    keep_rows: Annotated[
        KeepRows,
        typer.Option(
            help="registry: keep the rows, sealed. lake: keep only where each "
            "person's rows are, and read your Parquet files when an answer needs them. "
            "never: the same, and read nothing again but the rows of those who leave."
        ),
    ] = KeepRows.registry
    source: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Public name of the files: receipts say that this source still holds "
            "people who left (default: the name of the model).",
        ),
    ] = None
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="MIB",
            min=1,
            help="How many MiB of rows may be in memory while files are read (default: "
            "256).",
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Fit on the workers of a Dask cluster, at dask://HOST:PORT. They must "
            "see the files under the same paths. With --keep-rows lake or never.",
        ),
    ] = None


@dataclass(frozen=True)
class LongFit:
    """A fit to Parquet files that are read block by block.

    Attributes
    ----------
    name, files
        Of the model, and the files or folders.
    columns
        The columns ``target``, ``subject`` and ``weight``, by these names.
    drop, classes
        Columns to leave out, and the classes that are declared, as they were typed.
    options
        What else was asked for.
    """

    name: str
    files: Sequence[Path]
    columns: dict[str, Any]
    drop: Sequence[str]
    classes: str | None
    options: LakeOptions

    def open_table(self) -> "LongTable":
        """Look through the files once, and return them as a table."""
        from ..long import open_parquet
        from ..long.raw_table import DEFAULT_MEMORY

        for path in self.files:
            require_file(path)
        mebibytes = self.options.memory
        memory = DEFAULT_MEMORY if mebibytes is None else mebibytes * MEBIBYTE
        with show_pace("reading", "rows") as report:
            return open_parquet(
                list(self.files),
                features=self._choose_features(),
                memory=memory,
                # Workers read the files themselves.
                cache=self.options.engine is None,
                on_progress=report,
                **self.columns,
            )

    def build_model(self, table: "LongTable") -> tuple[ModelKind, Any]:
        """Return the kind of model for a table, and the unfitted estimator."""
        import numpy as np

        from ..tables.training import guess_task

        counted = table.count_targets()
        targets = np.array([0.5]) if counted is None else np.array(list(counted))
        task = self.options.choose_task()
        if task is None:
            task = "regression" if counted is None else guess_task(targets)
        classes = None if self.classes is None else parse_classes(self.classes, targets)
        kind = self.options.choose_kind(task, len(classes or targets))
        model = self.options.build_estimator(kind)
        if classes is not None:
            model.set_params(classes=classes)
        return kind, model

    def fit(
        self, registry: "Registry", table: "LongTable", *, model: Any, **choices: Any
    ) -> "LeftOut":
        """Fit and store the model; say what to do about people who were forgotten."""
        from ..registry import ForgottenInData, Lake

        replace = choices.pop("replace")
        fit = registry.models.refit if replace else registry.fit
        options = self.options
        lake = Lake(table, options.keep_rows.value, options.source, options.engine)
        try:
            with show_named_progress("fitting") as report:

                def tell(done: int, total: int) -> None:
                    report(FIT_LABELS[min(done, total - 1)], done, total)

                return fit(self.name, model, lake, on_progress=tell, **choices)
        except ForgottenInData as error:
            people = format_count(error.n_people, "person", plural="people")
            rows = format_count(len(error.rows), "row")
            raise InvalidInput(
                f"the files hold {rows} of {people} who were forgotten; a fit would "
                "bring them back: leave them out with --without-forgotten, or state "
                f"with --readmit that they came back{explain_near(error)}"
            ) from None

    def _choose_features(self) -> list[str] | None:
        """Return the columns that the model sees; None for all that are left."""
        if not self.drop:
            return None
        from ..long.parquet import find_files, read_names

        names = read_names(find_files(list(self.files))[0])
        others = {*self.drop, *(one for one in self.columns.values() if one)}
        for name in self.drop:
            if name not in names:
                raise InvalidInput(f"--drop {name}: the files have no such column")
        return [name for name in names if name not in others]


def readmit_owners(registry: "Registry", table: "LongTable") -> None:
    """State that everybody in a table who was forgotten came back."""
    for _, owners, _ in table.read_owners():
        back = registry.requests.find_forgotten(owners)
        if back:
            registry.requests.readmit(back)


def print_long_fit(
    fitted: "ModelStatus",
    asked: LongFit,
    *,
    kind: ModelKind,
    n_rows: int,
    left_out: "LeftOut",
) -> None:
    """Print what was fitted, and what is promised."""
    keep = asked.options.keep_rows
    source = asked.options.source or asked.name
    if asked.options.as_json:
        more = {"kind": kind.value, "n_rows": n_rows, "left_out": left_out._asdict()}
        kept = {"keep_rows": keep.value, "source": source}
        print_json(model_to_json(fitted) | more | kept)
        return
    people = format_count(fitted.n_people, "person", plural="people")
    whose = f"of {people}" if asked.columns["subject"] else "without owners"
    lines: list[tuple[str, object]] = [
        ("model", fitted.name),
        ("kind", kind.value),
        ("rows", f"{n_rows} {whose}"),
        ("release", fitted.number),
        ("promise", describe_promise(fitted.certificate)),
    ]
    if keep is not KeepRows.registry:
        lines.append(("rows stay in", f"the files of source {source}"))
    print_text(format_pairs(lines))
    if left_out.n_rows:
        rows = format_count(left_out.n_rows, "row")
        print_note(f"left out: {rows} of people who left before")
    print_note("columns are used as they are: nothing was encoded or scaled")
    if keep is not KeepRows.registry:
        print_note(
            "expunge does not change these files when people leave; expunge lake "
            f"rewrite {asked.name} does, when you ask for it"
        )


@dataclass(frozen=True)
class LakeStatusCommand(RegistryOptions):
    """Show whether a model's files still hold people who left it."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]

    def perform(self) -> int:
        """Print how many files hold people who left."""
        with self.open_registry() as registry:
            found = registry.lake.status(self.name)
        if self.as_json:
            print_json(asdict(found))
            return DONE
        lines: list[tuple[str, object]] = [
            ("source", found.source),
            ("files", found.n_files),
            ("people who left", describe_left(found, self.name)),
        ]
        print_text(format_pairs(lines))
        return DONE


@dataclass(frozen=True)
class LakeRewriteCommand(RegistryOptions, ConfirmOptions):
    """Rewrite a model's files without the people who left.

    Forgetting changes the model and never your files. This command changes them: each
    Parquet file that still holds somebody who left is written again without their rows,
    and takes the place of the old one at once. Schema, row groups, compression and
    metadata stay, and so do all rows of people of whom the registry still holds
    something. You can run it again after a crash. Backups and old versions of the files
    are yours to delete.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]

    def perform(self) -> int:
        """Rewrite the files and print how many."""
        with self.open_registry() as registry:
            before = registry.lake.status(self.name)
            if before.n_to_rewrite:
                files = format_count(before.n_to_rewrite, "file")
                self.confirm(f"Rewrite {files} of source {before.source}?")
            with show_progress("rewriting files") as report:
                n_written = registry.lake.rewrite(self.name, on_progress=report)
            after = registry.lake.status(self.name)
        if self.as_json:
            print_json(asdict(after) | {"n_rewritten": n_written})
            return DONE
        files = format_count(n_written, "file")
        print_text(f"source {after.source}: {files} rewritten")
        if after.n_to_rewrite:
            left = format_count(after.n_to_rewrite, "file")
            print_note(f"{left} left as they are: another model still reads the rows")
        return DONE


def describe_left(found: "SourceStatus", name: str) -> str:
    """Return whether files still hold people who left."""
    if not found.n_to_rewrite:
        return "none is in these files"
    files = format_count(found.n_to_rewrite, "file")
    return f"still in {files}; run expunge lake rewrite {name}"
