# SPDX-License-Identifier: Apache-2.0
"""Asking: requests are accepted a thousand at a time and applied together.

What was accepted is kept whatever happens then. So a failure is not the end: receipts
that are there are handed out, and the rest is named together with what went wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..exceptions import Busy, ExpungeError
from .exits import Failed, exit_code, reason
from .people import chunks
from .printing import counted, progress

if TYPE_CHECKING:
    from ..registry import Asked, Registry

GO_ON = "expunge forget --pending goes on"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of requests.

    Parameters
    ----------
    receipts
        Of those that are completed, by request.
    late
        Those that are accepted and not completed.
    n_refused
        How many were not accepted.
    failure
        What went wrong, if anything did.
    """

    receipts: dict[str, str]
    late: tuple[str, ...]
    n_refused: int
    failure: ExpungeError | None

    def require_complete(self, where: str) -> None:
        """Raise unless every request is completed; ``where`` lists the others."""
        if not self.late and not self.n_refused:
            return
        failure = self.failure or Busy("somebody else is at work")
        words = [reason(failure)]
        if len(self.late) == 1:
            words.append(f"request {self.late[0]} is accepted and kept; {GO_ON}")
        elif self.late:
            kept = f"{len(self.late)} requests are accepted and kept"
            words.append(f"{kept}, {where} lists them; {GO_ON}")
        if self.n_refused:
            refused = counted(self.n_refused, "request was", "requests were")
            words.append(f"{refused} not accepted, send them again")
        raise Failed("; ".join(words), exit_code(failure)) from failure


def forgotten(registry: "Registry", asked: "Sequence[Asked]", wait: float) -> Outcome:
    """Accept requests and apply all that wait; return what became of them."""
    accepted: list[str] = []
    failure: ExpungeError | None = None
    try:
        with progress("accepting") as watch:
            for several in chunks(asked):
                registry.accept(several)
                accepted += [one.request for one in several]
                watch(len(accepted), len(asked))
        apply(registry, wait)
    except ExpungeError as error:
        if not accepted:
            raise
        failure = error
    receipts: dict[str, str] = {}
    try:
        for request in accepted:
            receipt = registry.receipt(request)
            if receipt is not None:
                receipts[request] = receipt
    except ExpungeError as error:
        failure = failure or error
    late = tuple(request for request in accepted if request not in receipts)
    return Outcome(receipts, late, len(asked) - len(accepted), failure)


def apply(registry: "Registry", wait: float) -> None:
    """Apply everything accepted, with a bar."""
    with progress("forgetting") as watch:
        registry.apply(wait, tell=watch)
