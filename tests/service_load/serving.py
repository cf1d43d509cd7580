# SPDX-License-Identifier: Apache-2.0
"""The command ``expunge``, with a route to compare with, or with a fault.

    python -m tests.service_load.serving WORDS serve REGISTRY ...

``WORDS`` are some of ``EXTRAS``, with commas, or "none".
"""

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from fastapi import FastAPI

from expunge.cli import main
from expunge.exceptions import RequestConflict
from expunge.registry import Registry
from expunge.service import app
from expunge.service.auth import CanSend
from expunge.service.documents import RequestIn
from expunge.service.intake import Intake, Submission
from expunge.service.settings import ServiceSettings
from expunge.service.windows import ShownRequest
from expunge.service.workers import GroupWriter
from tests.registries import database_like_a_registrys, folder_of, now, status_of

LEAK_SECONDS = 100e-6
Groups = Sequence[tuple[Submission, ...]]
Accept = Callable[[Intake, Groups], list[list[ShownRequest]]]


class Rows:
    """A table of its own, written as a plain program would write it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def write(self, ids: Sequence[str]) -> list[None]:
        """Write a line for each id, in one transaction."""
        if self._connection is None:  # in the thread that writes
            self._connection = self._open()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO plain VALUES (?)", zip(ids))
        self._connection.execute("COMMIT")
        return [None] * len(ids)

    def _open(self) -> sqlite3.Connection:
        connection = database_like_a_registrys(self._path)
        connection.execute("CREATE TABLE IF NOT EXISTS plain (id TEXT PRIMARY KEY)")
        return connection


def add_baseline() -> None:
    """Add a route that takes the same body and only writes one row."""
    make: Any = vars(app)["create_app"]

    def create_app(registry: Registry, settings: ServiceSettings) -> FastAPI:
        built: FastAPI = make(registry, settings)
        rows = Rows(folder_of(registry).parent / "baseline.db")
        writer: GroupWriter[str, None] = GroupWriter(rows.write, "baseline")
        writer.start()

        @built.post("/baseline", status_code=201, include_in_schema=False)
        async def write_row(given: RequestIn, caller: CanSend) -> dict[str, str]:
            assert given.id is not None
            await writer.write(given.id)
            return {"id": given.id}

        # It is looked at first: the last of many routes takes longer to be found.
        built.router.routes.insert(0, built.router.routes.pop())
        return built

    vars(app)["create_app"] = create_app


def change_accepting(change: Callable[[Intake, Groups, Accept], Any]) -> None:
    """Let the intake accept requests in another way."""
    accept = Intake._accept
    Intake._accept = lambda self, groups: change(self, groups, accept)  # type: ignore[method-assign]


def is_known(intake: Intake, groups: Groups) -> bool:
    """Return whether any request of some groups is about somebody in a model."""
    people = [who for group in groups for one in group for who in one.people]
    found = intake.registry.aliases.find(
        [one for who in people for named in who for one in named]
    )
    return any(intake.registry.requests.find_models(found.values()).values())


def accept_slowly(intake: Intake, groups: Groups, accept: Accept) -> Any:
    """Take a moment longer for known people."""
    shown = accept(intake, groups)
    known = is_known(intake, groups)
    end = perf_counter() + (LEAK_SECONDS if known else 0.0)
    while perf_counter() < end:
        pass
    return shown


def accept_strangers(intake: Intake, groups: Groups, accept: Accept) -> Any:
    """Refuse known people."""
    shown = accept(intake, groups)
    if is_known(intake, groups):
        raise RequestConflict("this person is known")
    return shown


def answer_early() -> None:
    """Answer before anything is on disk."""

    async def accept(
        self: Intake, submissions: Sequence[Submission], *, size: int
    ) -> Any:
        waits = self._writer.write(tuple(submissions))
        kept.append(asyncio.ensure_future(waits))
        from expunge.service.windows import show_at

        time = now()
        return [
            show_at(
                status_of(
                    one.asked.request,
                    accepted=time,
                    deadline=time,
                    n_subjects=len(one.people),
                    opens=self.current_window().start,
                    closes=self.current_window().close,
                ),
                time,
            )
            for one in submissions
        ]

    kept: list[Any] = []  # or they would be collected
    Intake.accept = accept  # type: ignore[method-assign]


EXTRAS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "baseline": add_baseline,
    "slow": lambda: change_accepting(accept_slowly),
    "refusing": lambda: change_accepting(accept_strangers),
    "early": answer_early,
}


def run(extras: str, *words: str) -> None:
    """Run the command with some extras."""
    for extra in extras.split(","):
        EXTRAS[extra]()
    sys.argv = ["expunge", *words]
    main()


if __name__ == "__main__":
    run(*sys.argv[1:])
