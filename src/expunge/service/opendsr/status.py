# SPDX-License-Identifier: Apache-2.0
"""Status: how far a request is, as answers and callbacks say it.

The protocol has no word for a person who was not found or a request that was refused.
Such a request is completed with no results, and what there is to say beyond stands
under the processor's own domain among the extensions, once it is completed and not
before.
"""

import json
from dataclasses import dataclass
from typing import Any

from ...registry import Registry
from ..windows import ShownRequest, format_moment
from .answers import Answer, format_id


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Describes requests.

    Parameters
    ----------
    registry
        With the receipts.
    domain
        Of the processor.
    address
        Under which others reach the service.
    """

    registry: Registry
    domain: str
    address: str

    def describe(self, shown: ShownRequest) -> Answer:
        """Return how far a request is; every field is always there."""
        return {
            "controller_id": shown.status.sender,
            "expected_completion_time": format_moment(shown.window.answer),
            "subject_request_id": format_id(shown.request),
            "request_status": shown.state,
            "results_url": None,
            "results_count": count_results(shown),
            "extensions": self._describe_outcome(shown),
        }

    def _describe_outcome(self, shown: ShownRequest) -> dict[str, Any]:
        """Return what became of a completed request."""
        if shown.state != "completed":
            return {}
        receipt = json.loads(self.registry.requests.receipt(shown.request) or "{}")
        said = {
            "outcome": shown.status.outcome,
            "reason": shown.status.reason,
            "receipt_url": f"{self.address}/api/v1/requests/{shown.request}/receipt",
            "certificates": receipt["entry"]["certificates"],
        }
        return {self.domain: said}


def count_results(shown: ShownRequest) -> int | None:
    """Return 1 if anything was erased, 0 if not, None before it may be known."""
    if shown.state != "completed":
        return None
    return int(shown.status.outcome in ("done", "partly"))
