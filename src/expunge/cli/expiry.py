# SPDX-License-Identifier: Apache-2.0
"""``expunge expire``: what was kept for a time ends with that time."""

from typing import Annotated

import typer

from .options import FOLDER, Folder, Yes, open_registry
from .output import Result, confirm, format_count

STAYS = (
    "what stays: the ledger, since proofs rest on it; requests whose rows are held or "
    "restricted; what recognises people, until the day that their receipts state"
)


def expire(
    *,
    days: Annotated[
        int, typer.Option(min=1, help="For how many days records are kept.")
    ] = 730,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what would go.")
    ] = False,
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Destroy records that were kept long enough, and enter it in the ledger.

    Records of requests that were answered or taken back so many days ago, with their
    receipts; lines of the access log, up to a seal; and by what people are recognised
    once the day that their receipts state is past. Records are kept for 24 months by
    default, as California asks, and never shorter than backups.
    """
    with open_registry(registry) as opened:
        found = opened.expiry.find(days)
        data = {
            "before": found.before,
            "n_requests": found.n_requests,
            "n_lines": found.n_lines,
            "n_exclusions": found.n_exclusions,
        }
        said = (
            f"{format_count(found.n_requests, 'request')} from before {found.before}, "
            f"{format_count(found.n_lines, 'line')} of the access log, and what "
            f"recognises the people of {format_count(found.n_exclusions, 'answer')}"
        )
        if not found:
            opened.expiry.tidy()
            return Result(data, f"nothing has expired before {found.before}")
        if dry_run:
            return Result(data, said, ["nothing was changed", STAYS])
        confirm(f"Destroy {said}?", yes=yes)
        opened.expiry.expire(days)
    return Result(data, f"destroyed: {said}", [STAYS])
