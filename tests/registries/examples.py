# SPDX-License-Identifier: Apache-2.0
"""A small registry, its people, what they ask, and what must hold of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from expunge import Budget, LogisticRegression
from expunge.ledger import (
    Receipt,
    RecordsExpired,
    RequestCompleted,
    check_export,
    check_receipt,
)
from expunge.linear_model.base import private_model
from expunge.registry import Delivery, Registry, Request, RequestStatus
from expunge.registry.deliveries import PendingEvents
from expunge.rights.standing import Right

from .clocks import now
from .stored import folder_of, private_model_of

# Wide enough that answers fit without a look at the rows: the anchor stays.
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=10.0)
N_PEOPLE, N_FEATURES = 60, 4
A_REQUEST = "0123456789abcdef0123456789abcdef"


def data(n_people: int = N_PEOPLE) -> tuple[Any, Any, list[str]]:
    """Return features, labels and whose each row is: every person has two rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2 * n_people, N_FEATURES))
    y = (X[:, 0] + rng.standard_normal(len(X)) > 0).astype(int)
    return X, y, [f"person {row // 2}" for row in range(len(X))]


def data_without(*names: str) -> tuple[Any, Any, list[str]]:
    """Return the data of everybody but these."""
    X, y, owners = data()
    stay = [row for row, owner in enumerate(owners) if owner not in names]
    return X[stay], y[stay], [owners[row] for row in stay]


def by_name(rows: tuple[Any, Any, list[str]]) -> dict[str, Any]:
    """Return such data under the names that ``Registry.fit`` has for them."""
    return dict(zip(("X", "y", "subjects"), rows, strict=True))


def estimator(**changes: Any) -> LogisticRegression:
    """Return an estimator under the usual contract."""
    settings: dict[str, Any] = {"alpha": 0.05, "budget": BUDGET} | changes
    return LogisticRegression(**settings)


def registry_at(folder: Path, url: str | None = None) -> Registry:
    """Return a registry with two models: one of everybody, one of the first half."""
    X, y, owners = data()
    half = len(X) // 2
    registry = Registry.create(folder, url=url)
    registry.fit("all", estimator(), X, y, subjects=owners)
    registry.fit(
        "half", estimator(alpha=0.1), X[:half], y[:half], subjects=owners[:half]
    )
    return registry


def retrained(names: Sequence[str], *, half: bool = False) -> Any:
    """Return the noise-free parameters that a fit without these people has."""
    X, y, owners = data()
    size = len(X) // (2 if half else 1)
    stay = [row for row in range(size) if owners[row] not in set(names)]
    model = estimator(alpha=0.1 if half else 0.05, budget=None)
    model.fit(X[stay], y[stay])
    return private_model(model).answer.draft.theta


def ask(registry: Registry, right: Right, *names: str, **details: Any) -> Receipt:
    """Send a request, have it applied, and return the receipt."""
    asked = Request(names, right=right, **details)
    registry.requests.accept([asked])
    registry.requests.apply()
    return receipt_of(registry, asked.request)


def hold(registry: Registry, *names: str, until: str) -> Receipt:
    """Have people's rows held until a day, and return the receipt."""
    return ask(registry, "hold", *names, reason="legal-claims", until=until)


def queue_message(registry: Registry, endpoint: str, request: str) -> None:
    """Put a message for an endpoint at hooks.example.org into the queue."""
    message = Delivery(
        "",
        form="webhook",
        event="request.completed",
        subject=request,
        host="hooks.example.org",
        address=endpoint,
        since=now(),
        payload="{}",
    )
    registry.deliveries.queue(PendingEvents(), [message])


def status_of(request: str = "0" * 32, **changes: Any) -> RequestStatus:
    """Return a request to erase one person as it would be accepted, or otherwise."""
    asked: dict[str, Any] = {
        "request": request,
        "accepted": 0,
        "opens": 0,
        "closes": 0,
        "deadline": 0,
        "n_subjects": 1,
        "right": "erase",
        "regime": "gdpr",
        "submitted": "1970-01-01",
        "sender": "",
        "details": "{}",
        "fingerprint": "",
        "wants": "",
        "grace_days": 0,
    }
    return RequestStatus(**asked | changes)


def stages_of(registry: Registry, *asked: Request) -> list[str]:
    """Return how far requests are."""
    return [registry.requests.status(one.request).stage for one in asked]


def count_releases(registry: Registry) -> dict[str, int]:
    """Return how many releases of each model there were."""
    return {one.name: one.number for one in registry.status().models}


def n_releases(registry: Registry, name: str) -> int:
    """Return how many releases a model has made."""
    (found,) = (one for one in registry.status().models if one.name == name)
    return found.certificate.n_releases


def reopen(registry: Registry) -> Registry:
    """Return the same registry as another process has it."""
    return Registry.open(folder_of(registry))


def receipt_of(registry: Registry, request: str) -> Receipt:
    """Return a valid receipt."""
    text = registry.requests.receipt(request)
    assert text is not None
    verdict = check_receipt(text, registry.keys.public_pem())
    assert verdict.valid, verdict.says
    return Receipt.from_json(text)


def require_retrained(registry: Registry, *names: str) -> None:
    """See that both models are as if they had been fitted without these people."""
    for name in ("all", "half"):
        model = private_model_of(registry, name)
        gap = model.answer.draft.theta - retrained(names, half=name == "half")
        assert np.linalg.norm(gap) <= model.answer.radius.value


def rows_of(name: str) -> list[int]:
    """Return the positions of a person's rows in the data."""
    return [row for row, owner in enumerate(data()[2]) if owner == name]


def features_of(name: str) -> Any:
    """Return the features of a person in the data."""
    return data()[0][rows_of(name)]


def require_fitted_to(registry: Registry, X: Any, y: Any) -> None:
    """See that the model of everybody is as if it had been fitted to these rows."""
    other = estimator(budget=None)
    other.fit(X, y)
    model = private_model_of(registry, "all")
    gap = model.answer.draft.theta - private_model(other).answer.draft.theta
    assert np.linalg.norm(gap) <= model.answer.radius.value


def require_consistent(registry: Registry) -> None:
    """See that the ledger is valid, and that each completed request has its receipt."""
    pem = registry.keys.public_pem()
    verdict = check_export(registry.ledger.export(), pem)
    assert verdict.valid, verdict.says
    done = [
        entry
        for entry in registry.ledger.entries()
        if isinstance(entry, RequestCompleted)
    ]
    assert len({entry.request for entry in done}) == len(done)
    expired = max(
        (
            entry.requests
            for entry in registry.ledger.find(RecordsExpired)
            if isinstance(entry, RecordsExpired)
        ),
        default="",
    )
    there = registry.requests.statuses([entry.request for entry in done])
    assert all(one.request in there or one.day < expired for one in done)
    done = [entry for entry in done if entry.request in there]
    for entry in done:
        receipt = registry.requests.receipt(entry.request)
        assert receipt is not None
        assert check_receipt(receipt, pem).valid
    assert registry.status().n_completed == len(done)
