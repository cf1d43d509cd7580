# SPDX-License-Identifier: Apache-2.0
"""Commands on a model that is there: schema, release, reanchor and remove."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exceptions import InvalidInput
from .common import (
    DONE,
    ConfirmOptions,
    RegistryOptions,
    format_count,
    print_json,
    print_note,
    print_text,
    release_to_json,
    show_progress,
)
from .status import describe_set_aside

if TYPE_CHECKING:
    from ..registry import Registry
    from ..tables.schema import TableSchema


@dataclass(frozen=True)
class SchemaCommand(RegistryOptions):
    """Print the schema of a model: what the columns of its table are.

    It says what fit was told, or guessed, and does not change when people leave.
    Categories and classes are in it if they were declared; what a model learns from
    rows is not. Columns of a row are in this order, without those that are left out.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]

    def perform(self) -> int:
        """Print what the registry keeps."""
        with self.open_registry() as registry:
            kept = read_columns(registry, self.name)
            kind = registry.models.subject_kind(self.name)
        if kept is None:
            raise InvalidInput(
                f"model {self.name!r} was not fitted by expunge fit to a table in "
                "memory, so the registry has no schema of it; look where it was fitted"
            )
        if self.as_json:
            roles = {"subject": kept.subject, "weight": kept.weight}
            schema = json.loads(kept.schema.to_json())
            about = {"model": self.name, "subject_kind": kind}
            print_json({**about, **roles, "schema": schema})
            return DONE
        print_text(kept.schema.to_json().rstrip())
        if kept.subject is not None:
            print_note(f"ids: column {kept.subject!r}, of kind {kind}")
        if kept.weight is not None:
            print_note(f"weights: column {kept.weight!r}")
        return DONE


def read_columns(registry: "Registry", name: str) -> "TableSchema | None":
    """Return what the columns of a model's table are; None if nobody said it."""
    from ..tables.schema import TableSchema

    text = registry.models.columns(name)
    return TableSchema.from_json(text) if text else None


@dataclass(frozen=True)
class ReleaseCommand(RegistryOptions):
    """Write a release to a file, or withdraw one.

    The file holds the noised parameters and their certificate, nothing private. The
    registry remembers the file: status lists releases that are outdated and still in
    use.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write: .safetensors or .onnx."),
    ] = None
    float32: Annotated[
        bool,
        typer.Option("--float32", help="Write an .onnx file in single precision."),
    ] = False
    withdraw: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="State that no copy of release N is in use."
        ),
    ] = None

    def perform(self) -> int:
        """Write the release, or withdraw an earlier one."""
        if (self.to is None) == (self.withdraw is None):
            raise InvalidInput(
                "give either --to FILE, to write the release to a file, or --withdraw "
                "N, once no copy of release N is in use"
            )
        with self.open_registry() as registry:
            if self.withdraw is not None:
                registry.models.withdraw(self.name, self.withdraw)
                answer = {"model": self.name, "withdrawn": self.withdraw}
                text = f"release {self.withdraw} of {self.name} is withdrawn"
            elif self.to is not None:
                dtype = "float32" if self.float32 else "float64"
                release = registry.models.ship(self.name, self.to, dtype=dtype)
                answer = release_to_json(release)
                text = f"wrote {self.to}: release {release.number} of {self.name}"
        if self.as_json:
            print_json(answer)
        else:
            print_text(text)
        return DONE


@dataclass(frozen=True)
class ReanchorCommand(RegistryOptions):
    """Rebuild a model's private state from the remaining rows.

    The old state was fitted to everyone, so anyone who opens it could learn about
    removed rows. This reads all rows once, and releases nothing.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]

    def perform(self) -> int:
        """Rebuild the state."""
        with self.open_registry() as registry:
            with show_progress("reading all rows"):
                registry.models.reanchor(self.name)
        if self.as_json:
            print_json({"reanchored": self.name})
        else:
            print_text(f"{self.name}: private state rebuilt from the remaining rows")
        return DONE


@dataclass(frozen=True)
class RemoveCommand(RegistryOptions, ConfirmOptions):
    """Retire a model, and destroy its rows and keys.

    Rows that are restricted or held stay sealed apart. The ledger says that the model
    was removed, and receipts stay valid. The name cannot be used again. Releases that
    left stay listed in the status until you withdraw them.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]

    def perform(self) -> int:
        """Remove the model and print what is still out there."""
        with self.open_registry() as registry:
            self.confirm(f"Remove model {self.name}, and destroy its rows and keys?")
            with show_progress("erasing"):
                registry.models.remove(self.name)
            status = registry.status()
        numbers = [one.number for one in status.outstanding if one.model == self.name]
        if self.as_json:
            print_json(
                {
                    "removed": self.name,
                    "outstanding": numbers,
                    "set_aside": asdict(status.set_aside),
                }
            )
            return DONE
        removed = f"{self.name} removed; its rows and keys are destroyed"
        apart = describe_set_aside(status)
        if apart:
            print_text(f"{removed}, except rows that are restricted or held", apart)
        else:
            print_text(removed)
        if numbers:
            releases = format_count(len(numbers), "release")
            print_note(
                f"{releases} left and may be in use: take back every copy, then run "
                f"expunge release {self.name} --withdraw {numbers[0]}"
            )
        return DONE
