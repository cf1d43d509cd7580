# SPDX-License-Identifier: Apache-2.0
"""Delivery: what is told to an address, and when it is tried again.

Everything here is a value or a pure function. Steps between attempts are fixed and
follow from nothing but how many there were, so when something is sent tells nobody
anything about a person.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from .answering.accepting import RequestStatus
from .storage.deliveries_table import DELIVERED, GIVEN_UP

SECOND = 1000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
DAY = 24 * HOUR
STEPS = (5 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY)
"""How long to wait after the first failure, the second and so on; then the last."""
PATIENCE = 7 * DAY
"""How long a delivery is tried."""
GONE = 410

WEBHOOK = "webhook"
"""The form of our own webhooks; callbacks have other forms."""
REQUEST_EVENTS = ("request.completed", "request.cancelled", "request.overdue")
RELEASE_EVENTS = ("release.made", "release.recalled")
EVENTS = (*REQUEST_EVENTS, *RELEASE_EVENTS)
"""What our own webhooks can be told."""

DeliveryState: TypeAlias = Literal["waiting", "delivered", "given_up"]


@dataclass(frozen=True, slots=True, repr=False)
class Callback:
    """An address that the sender of a request gave, to be told how far it is.

    Parameters
    ----------
    request
        The request's id.
    url
        What to call.
    form
        How a message to it looks: "opendsr", "opengdpr" or "fides".
    secret
        What the receiver wants to see, such as a bearer token.
    sender
        Who gave it; it is told of requests of the same sender alone.
    """

    request: str
    url: str
    form: str
    secret: str = ""
    sender: str = ""

    def __repr__(self) -> str:
        return f"Callback(request={self.request!r}, form={self.form!r})"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of our own webhooks.

    Parameters
    ----------
    id
        Its name here.
    url
        What is called.
    events
        What it is told.
    created
        When it was added, in milliseconds since 1970.
    """

    id: str
    url: str
    events: tuple[str, ...]
    created: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to one address.

    Parameters
    ----------
    id
        Its name, the same at each attempt: a receiver can tell that it had it before.
    form
        "webhook", or the form of a callback.
    event
        Of a webhook, one of ``EVENTS``; of a callback, the state of the request.
    subject
        What it is about: the id of a request, or a release as model/number.
    host
        Whom it goes to.
    state
        "waiting", "delivered" or "given_up".
    attempts, last
        How often it was tried, and what the last attempt came to.
    since, due
        From when on it may be seen, and when it is tried next, in milliseconds since
        1970.
    payload, url, secret, claimed
        Of a delivery that was claimed to be sent: the body of a webhook, the address
        and its secret, and the moment. Otherwise empty.
    """

    id: str
    form: str
    event: str
    subject: str
    host: str
    state: DeliveryState
    attempts: int
    last: str
    since: int
    due: int
    payload: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    claimed: int = 0

    @property
    def request(self) -> str:
        """The id of the request that it is about; empty if it is about a release."""
        return "" if self.event in RELEASE_EVENTS else self.subject


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Some deliveries, newest first, and where the next page begins, if there is one.

    Parameters
    ----------
    lines
        The deliveries; no address is in them.
    next
        To be given as ``after``; empty on the last page.
    """

    lines: tuple[Delivery, ...]
    next: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to.

    Parameters
    ----------
    status
        The code of the answer; None if there was none.
    failure
        Why there was none, in a few fixed words; empty if there was one.
    wait
        For how many seconds the receiver asked to be left alone.
    """

    status: int | None
    failure: str = ""
    wait: int = 0

    @property
    def is_success(self) -> bool:
        """Whether the receiver took the message: any status from 200 to 299."""
        return self.status is not None and 200 <= self.status < 300

    def __str__(self) -> str:
        return self.failure if self.status is None else f"status {self.status}"


def after_attempt(delivery: Delivery, outcome: Outcome, *, now: int) -> Delivery:
    """Return a delivery as it is after an attempt.

    Parameters
    ----------
    delivery
        As it was before.
    outcome
        What the attempt came to.
    now
        When that was.
    """
    tried = replace(
        delivery, attempts=delivery.attempts + 1, due=now, last=str(outcome)
    )
    if outcome.is_success:
        return replace(tried, state=DELIVERED)
    step = STEPS[min(delivery.attempts, len(STEPS) - 1)]
    due = now + max(step, min(outcome.wait * SECOND, DAY))
    gone = outcome.status == GONE and delivery.form == WEBHOOK
    if gone or due > delivery.since + PATIENCE:
        return replace(tried, state=GIVEN_UP)
    return replace(tried, due=due)


@dataclass(frozen=True, slots=True)
class WatchedCallback:
    """A callback whose request has to be looked at.

    Parameters
    ----------
    id, form, host
        Its name, how a message to it looks, and whom it goes to.
    told
        The state that it was told last; empty at first.
    status
        How far its request is.
    """

    id: str
    form: str
    host: str
    told: str
    status: RequestStatus


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that our own webhooks may be told.

    Parameters
    ----------
    event, subject
        One of ``EVENTS``, and what it is about.
    status
        Of the request, if it is about one.
    data
        What is said of a release.
    """

    event: str
    subject: str
    status: RequestStatus | None = None
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Untold:
    """What changed, as far as nobody was told.

    Parameters
    ----------
    callbacks
        Those whose request has to be looked at.
    listeners
        The endpoints: id, host, and events.
    happenings
        What they may be told.
    reached
        The size of the ledger up to which happenings were read.
    day
        The day in UTC on which overdue requests were looked for; empty if they were
        looked for before on that day.
    """

    callbacks: tuple[WatchedCallback, ...] = ()
    listeners: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    happenings: tuple[Happening, ...] = ()
    reached: int = 0
    day: str = ""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A message to be queued; names as in ``Delivery``.

    Parameters
    ----------
    address
        The id of the callback or endpoint.
    """

    address: str
    form: str
    event: str
    subject: str
    host: str
    since: int
    payload: str = ""


@dataclass(frozen=True, slots=True)
class Queued:
    """What is queued at once.

    Parameters
    ----------
    deliveries
        The messages.
    told
        For each callback, the state it is told and when to look next; None: no more
        comes.
    untold
        What was found to be told; it need not be found again.
    """

    deliveries: Sequence[NewDelivery]
    told: Mapping[str, tuple[str, int | None]]
    untold: Untold
