# SPDX-License-Identifier: Apache-2.0
"""The example: a registry with two months behind it, for a first look at a service.

It has two models of patients, requests for most rights with their answers, one that is
overdue because its model has no release left, rows that are held, and a copy of a
release that must be taken back. Each start sends one more request, so that something
waits.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from math import sqrt
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from ..core.arrays import Matrix
from ..exceptions import InvalidInput, ScheduleExhausted
from ..ledger.documents import DAY, midnight
from ..linear_model import LogisticRegression
from ..promise.budget import Budget
from ..registry import Registry, Request
from ..registry.now import CLOCK, today
from ..rights import Identifier
from ..rights.standing import Right
from .run import shuffle

# Every row has length one, and the intercept adds a column of ones. The declared bound
# is a little larger so that it also holds in floating point.
ROW_NORM = sqrt(2.0) + 1e-9
N_LEFT_OUT = 169
REGISTRY, COPY = "registry", "cancer.safetensors"
FIRST, SECOND = "cancer", "screening"
N_FIRST = 300  # patients of the first model; the others are in the second
ALPHA = 0.01
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=0.1, row_norm=ROW_NORM)
# A fit and two requests use it up.
SMALL_BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=0.3, row_norm=ROW_NORM, releases=3)
SENDER = "consent desk"
DESKS = {SENDER: "request", "operator": "operate", "auditor": "audit"}
HELD_FOR = timedelta(days=365)
WINDOW = 60  # seconds, as with serve --demo


@dataclass(frozen=True, slots=True)
class Patients:
    """People in the models, X (n, d) with labels and ids."""

    X: Matrix
    y: Any
    ids: tuple[str, ...]


def load_patients() -> Patients:
    """Return people in scikit-learn's breast cancer data, one row each.

    Features take their scale from people who are left out, and each row is then divided
    by its own length.
    """
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    order = shuffle("split", len(X))
    outside, inside = order[:N_LEFT_OUT], sorted(order[N_LEFT_OUT:])
    X = (X - X[outside].mean(axis=0)) / X[outside].std(axis=0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    ids = tuple(f"patient-{position:04d}" for position in inside)
    return Patients(X[inside], y[inside], ids)


def prepare_example(
    folder: Path,
    announce: Callable[[str], None] = lambda text: None,
    *,
    window: int = WINDOW,
) -> Path:
    """Return the registry in a folder, made on the first call, with a new request.

    Parameters
    ----------
    folder
        New, empty, or from an earlier call.
    announce
        Called with a remark before what takes a while.
    window
        The length in seconds of the window that the new request falls into.
    """
    found = folder / REGISTRY
    if not found.exists():
        _write_example(folder, announce)
    with Registry.open(found) as registry:
        send_next(registry, window)
    return found


def _write_example(folder: Path, announce: Callable[[str], None]) -> None:
    """Make the folder, whole or not at all."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} is in use for something else; give a new folder")
    announce(f"making an example in {folder}, which takes some seconds")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write_history(draft)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def send_next(registry: Registry, window: int = WINDOW) -> None:
    """Send a request about a patient of the first model who is still in it."""
    held = registry.requests.find_models(load_patients().ids)
    there = [one for one, models in held.items() if FIRST in models]
    chosen = there[shuffle("next", len(there))[0]]
    asked = Request((chosen,), sender=SENDER, window=window)
    registry.requests.accept([asked], strangers=True)


@dataclass(frozen=True, slots=True)
class ExampleHistory:
    """What happened to the registry of the example.

    Parameters
    ----------
    registry
        Where it happens.
    patients
        To whom.
    folder
        Where the copy of a release goes.
    """

    registry: Registry
    patients: Patients
    folder: Path

    def fit(self) -> None:
        """Fit two models to different patients."""
        for name, budget, rows in (
            (FIRST, BUDGET, slice(N_FIRST)),
            (SECOND, SMALL_BUDGET, slice(N_FIRST, None)),
        ):
            self.registry.fit(
                name,
                LogisticRegression(alpha=ALPHA, budget=budget),
                self.patients.X[rows],
                self.patients.y[rows],
                subjects=self.patients.ids[rows],
            )

    def add_aliases(self) -> None:
        """Let everybody be known by an address too."""
        pairs = [
            (one, Identifier("email", f"{one}@example.org"))
            for one in self.patients.ids
        ]
        self.registry.aliases.add(pairs)

    def ask(self, right: Right, *places: int, **fields: Any) -> None:
        """Ask for patients at some places, negative ones from the end; apply it."""
        ids = tuple(self.patients.ids[place] for place in places)
        self.send(Request(ids, right=right, sender=SENDER, **fields))
        with suppress(ScheduleExhausted):  # one waits in vain from some day on
            self.registry.requests.apply()

    def send(self, request: Request) -> str:
        """Send a request, and return its id."""
        self.registry.requests.accept([request], strangers=True)
        return request.request

    def hold(self, place: int) -> None:
        """Hold a patient's rows for a year."""
        until = today() + HELD_FOR
        self.ask("hold", place, reason="legal-claims", until=until)

    def ask_as_stranger(self) -> None:
        """Ask for somebody of whom nothing is held."""
        self.send(Request(("nobody",), sender=SENDER))
        with suppress(ScheduleExhausted):
            self.registry.requests.apply()

    def refuse(self, place: int) -> None:
        """Refuse a request, for a reason."""
        ids = (self.patients.ids[place],)
        request = self.send(Request(ids, sender=SENDER))
        self.registry.requests.refuse(request, "unidentified")
        self.registry.access.record([("operator", "refuse", request)])

    def cancel(self, place: int) -> None:
        """Take a request back."""
        ids = (self.patients.ids[place],)
        request = self.send(Request(ids, sender=SENDER))
        self.registry.requests.cancel(request)
        self.registry.access.record([(SENDER, "cancel", request)])

    def ship(self) -> None:
        """Let a copy of the first model leave."""
        self.registry.models.ship(FIRST, self.folder / COPY)
        self.registry.access.record([("operator", "download release", FIRST)])

    def seal_trail(self) -> None:
        """Let the ledger seal the trail."""
        self.registry.access.seal_trail()


# How many days ago, and what happened then.
HISTORY: tuple[tuple[int, Callable[[ExampleHistory], None]], ...] = (
    (75, ExampleHistory.fit),
    (74, ExampleHistory.add_aliases),
    (62, lambda it: it.ask("erase", 0, 1, 2)),
    (58, lambda it: it.ask("erase", -1)),
    (52, lambda it: it.ask("object", -2)),
    (50, ExampleHistory.ship),
    (45, lambda it: it.ask("erase", -3)),  # no release is left for it
    (40, lambda it: it.ask("restrict", 3)),
    (30, lambda it: it.hold(4)),
    (26, lambda it: it.ask("erase", 5, regime="ccpa")),
    (20, ExampleHistory.ask_as_stranger),
    (15, lambda it: it.refuse(11)),
    (12, lambda it: it.cancel(12)),
    (9, lambda it: it.ask("erase", 6, 7, 8, 9, 10)),
    (3, ExampleHistory.seal_trail),
)


def write_history(folder: Path) -> None:
    """Write a registry in which everything happened on its day, and tokens of today."""
    with _days_ago(HISTORY[0][0]):
        registry = Registry.create(folder / REGISTRY, backup_days=35)
    with registry:
        history = ExampleHistory(registry, load_patients(), folder)
        for days, step in HISTORY:
            with _days_ago(days):
                step(history)
        for name, scope in DESKS.items():
            registry.access.create(name, [scope])


@contextmanager
def _days_ago(days: int) -> Iterator[None]:
    """Let it be noon of an earlier day for the registry that is written here."""
    noon = midnight(today().isoformat()) - days * DAY + DAY // 2
    before = CLOCK.set(lambda: noon)
    try:
        yield
    finally:
        CLOCK.reset(before)
