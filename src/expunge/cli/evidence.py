# SPDX-License-Identifier: Apache-2.0
"""``expunge evidence``: receipts, proofs and the page that checks them, in one file."""

from pathlib import Path
from typing import Annotated

import typer

from ..exceptions import InvalidInput
from .options import FOLDER, Folder, open_registry
from .output import Result, format_count


def evidence(
    requests: Annotated[
        list[str] | None,
        typer.Argument(metavar="REQUEST", help="Ids of answered requests."),
    ] = None,
    *,
    since: Annotated[
        str, typer.Option("--from", metavar="DAY", help="First day of a period.")
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="DAY", help="Last day of a period.")
    ] = "",
    to: Annotated[
        Path, typer.Option("--to", "-o", metavar="FILE", help="The new ZIP to write.")
    ] = Path("evidence.zip"),
    language: Annotated[
        str, typer.Option(metavar="CODE", help="Of the letters, such as en or de.")
    ] = "en",
    registry: Folder = FOLDER,
) -> Result:
    """Put together what shows an authority how requests were answered.

    One ZIP about some requests, or about all that were answered in a period: receipts,
    certificates, keys, entries of the ledger with proofs, releases withdrawn, who was
    told, the access log, a line for the record of processing, the letters, and
    verify.html, a page that checks all of it offline.
    """
    from ..disk import open_new
    from ..evidence import pack_evidence, requests_between

    is_period = bool(since) and bool(until)
    if bool(requests) == is_period or bool(since) != bool(until):
        raise InvalidInput(
            "of what? give ids of requests, or a period with --from and --until"
        )
    with open_registry(registry) as opened:
        wanted = requests or requests_between(opened, since, until=until)
        if not wanted:
            raise InvalidInput(f"no request was answered from {since} to {until}")
        descriptor = open_new(to)
        try:
            with open(descriptor, "wb") as file:
                pack = pack_evidence(
                    opened, wanted, to=file, since=since, until=until, language=language
                )
        except Exception:
            to.unlink(missing_ok=True)
            raise
    n = format_count(len(pack.requests), "request")
    data = {"file": str(to), "n_requests": len(pack.requests), "day": pack.day}
    return Result(data, f"evidence about {n} in {to}")
