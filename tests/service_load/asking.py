# SPDX-License-Identifier: Apache-2.0
"""What is asked for, what was promised, and whether it was kept."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from expunge import verify
from expunge.ledger import (
    ReleaseMade,
    RequestCompleted,
    check_export,
    check_receipt,
)
from expunge.registry import Registry
from tests.registries import private_model_of

from .crowd import MODEL, Crowd, address_of, name_person

PATH = "/api/v1/requests"
MOST_RECEIPTS = 5000  # checked, of requests with random ids


@dataclass(frozen=True)
class Ask:
    """A request about one person."""

    id: str
    person: int
    is_known: bool
    by_address: bool

    @property
    def body(self) -> bytes:
        """The request as it is sent."""
        who = (
            {"email": address_of(self.person)}
            if self.by_address
            else {"id": name_person(self.person)}
        )
        return json.dumps({"id": self.id, "people": [who]}).encode()


def draw_asks(crowd: Crowd, count: int, *, seed: int, stay: float = 0.2) -> list[Ask]:
    """Return requests about known and unknown people in turns, some about one twice.

    A share of the known people is never asked for.
    """
    chance = Random(seed)
    known = crowd.known[: round((1 - stay) * crowd.n_people)]
    people = [
        (chance.choice(known if place % 2 else crowd.unknown), bool(place % 2))
        for place in range(count)
    ]
    chance.shuffle(people)
    return [
        Ask(f"{chance.getrandbits(128):032x}", who, is_known, chance.random() < 0.5)
        for who, is_known in people
    ]


@dataclass
class Promises:
    """What a service was asked for, and what it answered.

    Attributes
    ----------
    asked
        All requests that were sent, by id.
    accepted
        Ids that were answered with 201.
    cancelled
        Ids whose cancelling was answered with 200.
    doubtful
        Ids whose cancelling had no answer.
    """

    asked: dict[str, Ask] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)

    def require_kept(self, registry: Registry, crowd: Crowd) -> None:
        """See that everything promised was done, once, and nothing else."""
        complaints = list(self.list_broken(registry, crowd))
        assert not complaints, complaints[:10]

    def list_lost(self, registry: Registry) -> Iterator[str]:
        """Yield what was accepted or cancelled and is not."""
        found = registry.requests.statuses(sorted(self.accepted))
        for lost in self.accepted - found.keys():
            yield f"request {lost} was accepted and is lost"
        for id_, status in found.items():
            if id_ in self.cancelled and status.stage != "cancelled":
                yield f"request {id_} was cancelled and is {status.stage}"

    def list_broken(self, registry: Registry, crowd: Crowd) -> Iterator[str]:
        """Yield every promise that was not kept."""
        yield from self.list_lost(registry)
        found = registry.requests.statuses(sorted(self.asked))
        if registry.status().n_requests != len(found):
            yield "the registry has requests that nobody sent"
        done = {id_ for id_, one in found.items() if one.stage == "completed"}
        for id_, status in found.items():
            if status.stage not in ("completed", "cancelled"):
                yield f"request {id_} is {status.stage}"
            if (
                status.stage == "cancelled"
                and id_ not in self.cancelled | self.doubtful
            ):
                yield f"request {id_} is cancelled, and nobody asked for it"
        yield from list_ledger_faults(registry, done)
        gone = {self.asked[id_].person for id_ in done if self.asked[id_].is_known}
        yield from list_model_faults(registry, crowd, gone=gone)


def list_ledger_faults(registry: Registry, done: set[str]) -> Iterator[str]:
    """Yield what is wrong with ledger, receipts and releases."""
    pem = registry.keys.public_pem()
    verdict = check_export(registry.ledger.export(), pem)
    if not verdict.valid:
        yield verdict.says
    entries = list(registry.ledger.entries())
    stated = [one.request for one in entries if isinstance(one, RequestCompleted)]
    if len(stated) != len(set(stated)):
        yield "the ledger states a request twice"
    if set(stated) != done:
        yield "the ledger states other requests than those that are completed"
    made = [one.certificate for one in entries if isinstance(one, ReleaseMade)]
    (model,) = registry.status().models
    if not len(set(made)) + 1 == len(made) + 1 == model.number:
        yield f"release {model.number}, and the ledger has {len(made)} after the first"
    if model.certificate.n_releases != model.number:
        yield "the certificate counts other releases"
    if made and made[-1] != model.certificate.digest():
        yield "the newest release is not the last in the ledger"
    for id_ in sorted(done)[:MOST_RECEIPTS]:
        text = registry.requests.receipt(id_)
        if text is None or not check_receipt(text, pem).valid:
            yield f"the receipt of {id_} is not valid"


def list_model_faults(
    registry: Registry, crowd: Crowd, *, gone: set[int]
) -> Iterator[str]:
    """Yield what is wrong with the model, which forgot some people and no others."""
    held = registry.requests.find_models(map(name_person, crowd.known))
    stay = {one for one in crowd.known if held[name_person(one)]}
    if stay & gone:
        yield f"{len(stay & gone)} people are in the model who left"
    if stay | gone != set(crowd.known):
        yield "people are not in the model who never left"
    model = private_model_of(registry, MODEL)
    gap = np.linalg.norm(model.answer.draft.theta - crowd.retrain_without(gone))
    if not gap <= model.answer.radius.value:
        yield "the model is not what a fit without these people gives"
    (status,) = registry.status().models
    if status.n_people != crowd.n_people - len(gone):
        yield f"the model has {status.n_people} people"
    if not verify(status.certificate).valid:
        yield "the certificate is not valid"


def quantiles(values: Sequence[float], *parts: float) -> list[Any]:
    """Return some quantiles, in milliseconds."""
    return [round(1000 * one, 2) for one in np.quantile(values, parts)]
