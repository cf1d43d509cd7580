# SPDX-License-Identifier: Apache-2.0
"""Commands on a model that is there: plan, release, reanchor and remove."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

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


@dataclass(frozen=True)
class PlanCommand(RegistryOptions):
    """Show how many rows may be removed under a model's budget.

    It also shows how much accuracy the noise costs. A plan reads the rows in the
    registry, so no certificate covers a budget that you choose from it. Keep the
    figures private.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]

    def perform(self) -> int:
        """Plan on the rows in the registry and print the tables."""
        from ..plan import PlanOptions

        with self.open_registry() as registry:
            # The note below and the table say it, so no Python warning does.
            report = registry.models.plan(self.name, PlanOptions(silent=True))
        if self.as_json:
            print_json(asdict(report))
        else:
            print_note("this plan was made from the rows: keep it private")
            print_text(report.table().rstrip())
        return DONE


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
