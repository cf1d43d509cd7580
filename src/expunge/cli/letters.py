# SPDX-License-Identifier: Apache-2.0
"""``expunge letter``: what to write to a person or a recipient about a request."""

from pathlib import Path
from typing import Annotated

import typer

from .options import FOLDER, Folder, RequestId, open_registry
from .output import Result


def letter(
    request: RequestId,
    *,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="acknowledgement, identity, extended, done, nothing-found, refused or "
            "recipient (default: what the request calls for now).",
        ),
    ] = None,
    language: Annotated[
        str, typer.Option(metavar="CODE", help="Such as en or de.")
    ] = "en",
    recipient: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Of a notice to a recipient: whom it is for."
        ),
    ] = "",
    to: Annotated[
        Path | None,
        typer.Option("--to", "-o", metavar="FILE", help="Write it to a new file."),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Write a letter about a request, as one HTML file for a screen and for print.

    It says what the request and its receipt say, and no more: you add whom it is for.
    Templates in the folder letters of the registry count before those of expunge.
    Nothing is sent.
    """
    from ..disk import write_new_file
    from ..letters import choose_kind, gather_facts, write_letter

    with open_registry(registry) as opened:
        status = opened.requests.status(request)
        receipt = opened.requests.receipt(request)
    chosen = kind or ("recipient" if recipient else choose_kind(status))
    facts = gather_facts(status, receipt, kind=chosen, recipient=recipient)
    text = write_letter(facts, registry, language=language)
    notes = []
    if chosen == "acknowledgement" and facts.acknowledge_by:
        notes.append(f"send it by {facts.acknowledge_by}, the tenth working day")
    data = {"request": request, "kind": chosen, "language": language}
    if to is None:
        return Result(data | {"html": text}, text, notes)
    write_new_file(to, text.encode())
    return Result(data | {"file": str(to)}, f"{chosen} in {to}", notes)
