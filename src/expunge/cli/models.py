# SPDX-License-Identifier: Apache-2.0
"""Commands on a model that is there: schema, predict, release, reanchor, remove."""

import csv
import json
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exceptions import InvalidInput
from .options import (
    FOLDER,
    Folder,
    ModelName,
    Yes,
    note,
    open_registry,
    operator,
    require_file,
)
from .output import Result, confirm, format_count, release_to_json, show_progress
from .status import describe_set_aside

if TYPE_CHECKING:
    from ..registry import Registry
    from ..tables import Schema
    from ..tables.schema import TableSchema


def schema(name: ModelName, *, registry: Folder = FOLDER) -> Result:
    """Print the schema of a model: what the columns of its table are.

    It says what fit was told, or guessed, and does not change when people leave.
    Categories and classes are in it if they were declared; what a model learns from
    rows is not. Columns of a row are in this order, without those that are left out.
    """
    with open_registry(registry) as opened:
        kept = read_columns(opened, name)
        kind = opened.models.subject_kind(name)
    if kept is None:
        raise InvalidInput(
            f"model {name!r} was not fitted by expunge fit to a table in "
            "memory, so the registry has no schema of it; look where it was fitted"
        )
    text = kept.schema.to_json()
    about = {"model": name, "subject_kind": kind}
    notes = []
    if kept.subject is not None:
        notes.append(f"ids: column {kept.subject!r}, of kind {kind}")
    if kept.weight is not None:
        notes.append(f"weights: column {kept.weight!r}")
    for name, column in (
        ("exposures", kept.exposure),
        ("offsets", kept.offset),
        ("times", kept.time),
    ):
        if column is not None:
            notes.append(f"{name}: column {column!r}")
    return Result(
        about | kept.roles | {"schema": json.loads(text)}, text.rstrip(), notes
    )


def choose_schema(registry: "Registry", name: str, *, given: Path | None) -> "Schema":
    """Return the schema in the file that is given, or else that of a model's fit."""
    from ..tables import read_schema

    if given is not None:
        require_file(given)
        return read_schema(given)
    kept = read_columns(registry, name)
    if kept is None:
        raise InvalidInput(
            f"model {name!r} was not fitted by expunge fit to a table in memory, so "
            "the registry does not know what its columns are; say it with --schema"
        )
    return kept.schema


def read_columns(registry: "Registry", name: str) -> "TableSchema | None":
    """Return what the columns of a model's table are; None if nobody said it."""
    from ..tables.schema import TableSchema

    text = registry.models.columns(name)
    return TableSchema.from_json(text) if text else None


def predict(
    name: ModelName,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The table: CSV, Parquet or Arrow.")
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="CSV file to write."),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--beside",
            metavar="COLUMN",
            help="Column of the table to write beside its predictions; may be "
            "repeated.",
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What each column is (default: as at the fit)."
        ),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Predict the rows of a table with the newest release of a model.

    Prints CSV: a line for each row, in order, with the prediction and, where the model
    has them, the probability of each class. The table has the columns of the fit, in
    any order; the target, ids and other columns may be there and are not read. Of a
    model with exposures it predicts rates: responses for an exposure of one. Of
    survival it predicts the hazard in the first interval, and for each break the
    probability of no event until then.
    """
    from ..tables import read_features

    require_file(file)
    with open_registry(registry) as opened:
        described = choose_schema(opened, name, given=schema)
        model = opened.model(name)
    X, columns = read_features(file, described, beside=beside or ())
    found = model.predict(X)
    heads = [*(beside or ()), "prediction"]
    columns.append(found.tolist())
    probabilities: dict[str, list[float]] = {}
    if hasattr(model, "predict_proba"):
        shares, labels = model.predict_proba(X), map(str, model.classes_.tolist())
        probabilities = dict(zip(labels, shares.T.tolist(), strict=True))
        heads += [f"probability of {label}" for label in probabilities]
        columns += probabilities.values()
    survival: dict[str, list[float]] = {}
    if hasattr(model, "predict_survival"):
        breaks = [float(one) for one in model.get_params()["breaks"]]
        curves = model.predict_survival(X, breaks).T.tolist()
        survival = dict(zip((f"{one:g}" for one in breaks), curves, strict=True))
        heads += [f"no event until {one}" for one in survival]
        columns += survival.values()
    written = StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(zip(*columns, strict=True))
    data = {
        "model": name,
        "predictions": found.tolist(),
        "probabilities": probabilities or None,
        "survival": survival or None,
    }
    if output is None:
        return Result(data, written.getvalue().rstrip("\n"))
    output.write_text(written.getvalue(), encoding="utf-8", newline="")
    n_rows = format_count(len(found), "row")
    return Result(data, f"wrote {output}: predictions of {n_rows} by {name}")


def release(
    name: ModelName,
    *,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write: .safetensors or .onnx."),
    ] = None,
    float32: Annotated[
        bool,
        typer.Option("--float32", help="Write an .onnx file in single precision."),
    ] = False,
    withdraw: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="State that no copy of release N is in use."
        ),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Write a release to a file, or withdraw one.

    The file holds the noised parameters and their certificate, nothing private. The
    registry remembers the file: status lists releases that are outdated and still in
    use.
    """
    if to is not None and withdraw is None:
        with open_registry(registry) as opened:
            dtype = "float32" if float32 else "float64"
            made = opened.models.ship(name, to, dtype=dtype)
            note(opened, "download release", name)
        wrote = f"wrote {to}: release {made.number} of {name}"
        return Result(release_to_json(made), wrote)
    if to is None and withdraw is not None:
        with open_registry(registry) as opened:
            opened.models.withdraw(name, withdraw, by=operator())
            note(opened, "withdraw release", f"{name} {withdraw}")
        withdrawn = f"release {withdraw} of {name} is withdrawn"
        return Result({"model": name, "withdrawn": withdraw}, withdrawn)
    raise InvalidInput(
        "give either --to FILE, to write the release to a file, or --withdraw "
        "N, once no copy of release N is in use"
    )


def reanchor(name: ModelName, *, registry: Folder = FOLDER) -> Result:
    """Rebuild a model's private state from the remaining rows.

    The old state was fitted to everyone, so anyone who opens it could learn about
    removed rows. This reads all rows once, and releases nothing.
    """
    with open_registry(registry) as opened, show_progress("reading all rows"):
        opened.models.reanchor(name)
    rebuilt = f"{name}: private state rebuilt from the remaining rows"
    return Result({"reanchored": name}, rebuilt)


def remove(name: ModelName, *, yes: Yes = False, registry: Folder = FOLDER) -> Result:
    """Retire a model, and destroy its rows and keys.

    Rows that are restricted or held stay sealed apart. The ledger says that the model
    was removed, and receipts stay valid. The name cannot be used again. Releases that
    left stay listed in the status until you withdraw them.
    """
    with open_registry(registry) as opened:
        confirm(f"Remove model {name}, and destroy its rows and keys?", yes=yes)
        with show_progress("erasing"):
            opened.models.remove(name, by=operator())
        note(opened, "remove model", name)
        status = opened.status()
    numbers = [old.number for old in status.outstanding if old.model == name]
    text = [f"{name} removed; its rows and keys are destroyed"]
    apart = describe_set_aside(status)
    if apart:
        text = [f"{text[0]}, except rows that are restricted or held", apart]
    notes = []
    if numbers:
        releases = format_count(len(numbers), "release")
        notes.append(
            f"{releases} left and may be in use: take back every copy, then run "
            f"expunge release {name} --withdraw {numbers[0]}"
        )
    told = {"outstanding": numbers, "set_aside": asdict(status.set_aside)}
    return Result({"removed": name} | told, text, notes)
