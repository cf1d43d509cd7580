# SPDX-License-Identifier: Apache-2.0
"""Facts: what a letter may say of a request.

Before the answer that is what the person knows anyway: what they asked for, when, and
by when they hear. After it, it is what the receipt says. Who they are is written by the
operator, since no part of the registry can tell.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from ..exceptions import InvalidInput
from ..ledger import Receipt
from ..ledger.documents import day_of
from ..promise.scope import state_limit
from ..registry import RequestStatus
from ..rights.calendar import add_working_days
from ..rights.regimes import legal_basis, regime_named

KINDS = (
    "acknowledgement",
    "identity",
    "extended",
    "done",
    "nothing-found",
    "refused",
    "recipient",
)
"""What a letter is about."""
BEFORE = ("acknowledgement", "identity", "extended")
ACKNOWLEDGE: Mapping[str, int] = {"ccpa": 10}
"""Working days within which a law wants a request to be acknowledged."""
_SHARE = re.compile(r"[0-9]+\.[0-9] %")


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    """What templates see as ``letter``; days are texts, as YYYY-MM-DD, or empty.

    Parameters
    ----------
    kind
        One of ``KINDS``.
    request, right, regime, law, basis
        Its id, what was asked, the law by its short name and its title, and where it
        grants the right; empty if it does not.
    is_known
        Whether the law itself gives the time to answer.
    submitted, accepted, deadline, answered
        When it was asked, came in, is due, and was answered.
    acknowledge_by
        By when the law wants it to be acknowledged; empty if it does not say.
    extended, notified
        Why the deadline was extended, and when the person was told.
    outcome, reason
        What became of it, and the code of a reason.
    method, exclusion, excluded_until
        As the receipt has them.
    models, statuses
        The models that were changed, and the status of each certificate.
    share, epsilon, delta
        How often a guess between two even chances is right at most, such as "73.2 %",
        and what it follows from; empty if nothing of the kind is promised.
    destroyed, backups_until, retained, retained_until, copies, recipients
        As the receipt has them.
    recipient
        To whom a notice to a recipient goes.
    """

    kind: str
    request: str
    right: str
    regime: str
    law: str
    basis: str
    is_known: bool
    submitted: str
    accepted: str
    deadline: str
    answered: str = ""
    acknowledge_by: str = ""
    extended: str = ""
    notified: str = ""
    outcome: str = ""
    reason: str = ""
    method: str = ""
    exclusion: str = ""
    excluded_until: str = ""
    models: Sequence[str] = ()
    statuses: Mapping[str, str] = field(default_factory=dict)
    share: str = ""
    epsilon: str = ""
    delta: str = ""
    destroyed: Sequence[str] = ()
    backups_until: str = ""
    retained: str = ""
    retained_until: str = ""
    copies: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recipients: Sequence[str] = ()
    recipient: str = ""


def choose_kind(status: RequestStatus) -> str:
    """Return which letter a request calls for now."""
    if status.stage != "completed":
        return "extended" if status.extended else "acknowledgement"
    if status.outcome == "nothing found":
        return "nothing-found"
    return "refused" if status.outcome == "refused" else "done"


def gather_facts(
    status: RequestStatus, receipt: str | None, *, kind: str, recipient: str = ""
) -> LetterFacts:
    """Return what a letter may say; refuse one that the request does not call for.

    Parameters
    ----------
    status, receipt
        The request, and its receipt if it is answered.
    kind
        One of ``KINDS``.
    recipient
        Of a notice to a recipient: whom it is for, as the receipt names them.
    """
    if kind not in KINDS:
        raise InvalidInput(f"no letter {kind!r}; give one of {', '.join(KINDS)}")
    asked: dict[str, Any] = _describe_asked(status)
    if kind in BEFORE:
        if status.stage != "accepted":
            raise InvalidInput(
                f"request {status.request} is {status.stage}, so there is nothing to "
                f"write about what is to come; give {choose_kind(status)}"
            )
        if (kind == "extended") != bool(status.extended) and kind != "identity":
            raise InvalidInput(
                f"the deadline of request {status.request} was "
                f"{'extended' if status.extended else 'not extended'}; give "
                f"{choose_kind(status)}"
            )
        return LetterFacts(kind=kind, **asked)
    if receipt is None:
        raise InvalidInput(
            f"request {status.request} is not answered, so no letter can say how; "
            f"give {choose_kind(status)}"
        )
    found = Receipt.from_json(receipt)
    if kind == "recipient":
        if recipient not in found.handling.recipients:
            names = ", ".join(found.handling.recipients) or "nobody"
            raise InvalidInput(
                f"recipient {recipient!r}; by the receipt these are told: {names}"
            )
    elif kind != choose_kind(status):
        raise InvalidInput(
            f"the outcome of request {status.request} is {status.outcome!r}; give "
            f"{choose_kind(status)}"
        )
    return LetterFacts(
        kind=kind, recipient=recipient, **asked | _describe_answer(found)
    )


def _describe_asked(status: RequestStatus) -> dict[str, Any]:
    law = regime_named(status.regime)
    days = ACKNOWLEDGE.get(law.name)
    asked = date.fromisoformat(status.submitted)
    by = add_working_days(asked, days) if days else ""
    return {
        "request": status.request,
        "right": status.right,
        "regime": law.name,
        "law": law.title,
        "basis": legal_basis(status.right, law) or "",
        "is_known": law.is_known,
        "submitted": status.submitted,
        "accepted": day_of(status.accepted),
        "deadline": day_of(status.deadline),
        "acknowledge_by": str(by),
        "extended": status.extended,
        "notified": status.notified,
    }


def _describe_answer(found: Receipt) -> dict[str, Any]:
    """Return what a receipt says, and no more."""
    entry, handling = found.entry, found.handling
    held = found.certificates
    noisy = [one for one in held.values() if one.status == "certified"]
    share = epsilon = delta = ""
    if noisy:
        most = max(one.epsilon or 0.0 for one in noisy)
        rest = max(one.delta or 0.0 for one in noisy)
        said = _SHARE.search(state_limit(most, rest))
        assert said is not None
        share, epsilon, delta = said[0], f"{most:g}", f"{rest:g}"
    return {
        "answered": entry.day,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "method": handling.method,
        "exclusion": handling.exclusion,
        "excluded_until": handling.excluded_until,
        "models": tuple(held),
        "statuses": {name: one.status for name, one in held.items()},
        "share": share,
        "epsilon": epsilon,
        "delta": delta,
        "destroyed": handling.destroyed,
        "backups_until": handling.backups_until,
        "retained": handling.retained,
        "retained_until": handling.retained_until,
        "copies": {name: files for name, files in handling.copies.items() if files},
        "recipients": handling.recipients,
        "extended": handling.extended,
        "notified": handling.notified,
    }
