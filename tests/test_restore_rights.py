# SPDX-License-Identifier: Apache-2.0
"""A backup from before an answer: each right is answered again, and nobody returns."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge.exceptions import InvalidInput, JournalDamaged
from expunge.ledger import HoldEnded, Restored
from expunge.registry import (
    ForgottenInData,
    NewRows,
    Registry,
    Request,
    rebuild_journal,
)
from expunge.rights import Identifier
from tests.registries import (
    HELD,
    IN_USE,
    RESTRICTED,
    accepted_in_journal,
    ask,
    back_up,
    by_name,
    data,
    estimator,
    features_of,
    hold,
    journal_of,
    keys_apart,
    open_apart,
    registry_at,
    require_consistent,
    require_fitted_to,
    require_retrained,
    rows_of,
    set_clock,
    today,
    where,
)

PERSON, OTHER, THIRD = "person 3", "person 5", "person 7"
UNTIL = today() + timedelta(days=20)  # so soon that the clock is believed


def new_rows(name: str = PERSON) -> dict[str, NewRows]:
    """Return a correction of a person's rows in the model of everybody."""
    X, y, _ = data()
    mine = rows_of(name)
    return {"all": NewRows(X[mine] + 1.0, y[mine])}


def erase(registry: Registry) -> None:
    ask(registry, "erase", PERSON)


def object_(registry: Registry) -> None:
    ask(registry, "object", PERSON)


def restrict(registry: Registry) -> None:
    ask(registry, "restrict", PERSON)


def lift(registry: Registry) -> None:
    ask(registry, "lift", PERSON)


def put_on_hold(registry: Registry) -> None:
    hold(registry, PERSON, until=str(UNTIL))


def end_hold(registry: Registry) -> None:
    ask(registry, "end-hold", PERSON)


def refuse(registry: Registry) -> None:
    (status,) = registry.requests.accept([Request((PERSON,))])
    registry.requests.refuse(status.request, "legal-duty")


def cancel(registry: Registry) -> None:
    (status,) = registry.requests.accept([Request((PERSON,))])
    registry.requests.cancel(status.request)


Step = Callable[[Registry], None]
# What happens before the backup, what after it, and where the rows are in the end.
STORIES: dict[str, tuple[list[Step], list[Step], dict[str, str]]] = {
    "erase": ([], [erase], {}),
    "object": ([], [object_], {}),
    "restrict": ([], [restrict], RESTRICTED),
    "restrict and lift": ([], [restrict, lift], IN_USE),
    "lift": ([restrict], [lift], IN_USE),
    "erase what is restricted": ([restrict], [erase], {}),
    "restrict and erase": ([], [restrict, erase], {}),
    "hold": ([], [put_on_hold], HELD),
    "erase what is held": ([put_on_hold], [erase], HELD),
    "hold and erase": ([], [put_on_hold, erase], HELD),
    "hold what is restricted": ([restrict], [put_on_hold], HELD),
    "lift what is held": ([restrict], [put_on_hold, lift], HELD),
    "end a hold": ([put_on_hold], [end_hold], {}),
    "hold and end it": ([], [put_on_hold, end_hold], {}),
    "refuse": ([], [refuse], IN_USE),
    "refuse, restricted": ([restrict], [refuse], RESTRICTED),
    "cancel": ([], [cancel], IN_USE),
    "nothing since": ([restrict], [], RESTRICTED),
}


def statuses(registry: Registry) -> dict[str, Any]:
    """Return all requests as an operator sees them, with receipts."""
    return {
        id_: (registry.requests.status(id_), registry.requests.receipt(id_))
        for id_ in accepted_in_journal(registry)
    }


class TestEachRight:
    @pytest.mark.parametrize("name", STORIES)
    def test_is_answered_again(
        self, registry: Registry, tmp_path: Path, name: str
    ) -> None:
        before, since, end = STORIES[name]
        for step in before:
            step(registry)
        backup = back_up(registry, tmp_path / "backup")
        for step in since:
            step(registry)
        assert where(registry, PERSON) == end
        told, export = statuses(registry), registry.ledger.export()
        registry.close()
        with backup.restore() as again:
            assert where(again, PERSON) == end
            assert statuses(again) == told
            assert again.ledger.export().startswith(export)
            require_retrained(again, *([] if end == IN_USE else [PERSON]))
            if end in (RESTRICTED, HELD):
                assert np.array_equal(open_apart(again, PERSON), features_of(PERSON))
            require_consistent(again)
            # It goes on from there.
            ask(again, "erase", OTHER)
            require_retrained(again, OTHER, *([] if end == IN_USE else [PERSON]))
            if end != IN_USE:
                with pytest.raises(ForgottenInData):
                    again.models.refit("all", estimator(), **by_name(data()))

    def test_a_lift_can_follow(self, registry: Registry, tmp_path: Path) -> None:
        backup = back_up(registry, tmp_path / "backup")
        restrict(registry)
        registry.close()
        with backup.restore() as again:
            lift(again)
            assert where(again, PERSON) == IN_USE
            require_retrained(again)


class TestNewRows:
    def test_that_came_after_the_backup_are_lost_and_the_old_ones_too(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        backup = back_up(registry, tmp_path / "backup")
        ask(registry, "rectify", PERSON, rows=new_rows())
        registry.close()
        with backup.restore() as again:
            assert where(again, PERSON) == {"half": "in use"}
            X, y, _ = data()
            stay = np.delete(np.arange(len(X)), rows_of(PERSON))
            require_fitted_to(again, X[stay], y[stay])
            (new,) = new_rows().values()
            again.add("all", new.X, new.y, subjects=[PERSON] * len(new.y))
            X[rows_of(PERSON)] += 1.0
            require_fitted_to(again, X, y)
            require_consistent(again)

    def test_that_came_before_it_are_there(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        ask(registry, "rectify", PERSON, rows=new_rows())
        backup = back_up(registry, tmp_path / "backup")
        ask(registry, "erase", OTHER)
        registry.close()
        with backup.restore() as again:
            X, y, _ = data()
            X[rows_of(PERSON)] += 1.0
            stay = np.delete(np.arange(len(X)), rows_of(OTHER))
            require_fitted_to(again, X[stay], y[stay])

    def test_that_wait_are_in_the_backup(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        asked = Request((PERSON,), right="rectify", rows=new_rows())
        registry.requests.accept([asked])
        backup = back_up(registry, tmp_path / "backup")
        registry.requests.accept([Request((OTHER,))])
        registry.close()
        with backup.restore() as again:
            again.requests.apply()
            assert again.requests.status(asked.request).outcome == "done"
            X, y, _ = data()
            X[rows_of(PERSON)] += 1.0
            stay = np.delete(np.arange(len(X)), rows_of(OTHER))
            require_fitted_to(again, X[stay], y[stay])


class TestWaiting:
    def test_a_cancelled_request_is_not_applied(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        """It waits in the backup, and was cancelled since."""
        (status,) = registry.requests.accept([Request((PERSON,))])
        backup = back_up(registry, tmp_path / "backup")
        registry.requests.cancel(status.request)
        registry.close()
        with backup.restore() as again:
            assert again.requests.status(status.request).stage == "cancelled"
            again.requests.apply()
            assert where(again, PERSON) == IN_USE

    def test_an_extension_is_kept(self, registry: Registry, tmp_path: Path) -> None:
        (status,) = registry.requests.accept([Request((PERSON,))])
        backup = back_up(registry, tmp_path / "backup")
        extended = registry.requests.extend(status.request, "many", notified=today())
        registry.close()
        with backup.restore() as again:
            assert again.requests.status(status.request) == extended
            with pytest.raises(InvalidInput, match="no law extends it twice"):
                again.requests.extend(status.request, "many", notified=today())
            again.requests.apply()
            require_consistent(again)

    def test_what_only_the_journal_knows_is_applied(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        backup = back_up(registry, tmp_path / "backup")
        asked = Request((PERSON,), right="hold", reason="research", until=str(UNTIL))
        registry.requests.accept([asked])
        registry.close()
        with backup.restore() as again:
            again.requests.apply()
            assert where(again, PERSON) == HELD
            assert again.requests.status(asked.request).outcome == "done"


class TestEndedHolds:
    @pytest.mark.parametrize("backed_up", ["before the hold", "while it lasts"])
    def test_stay_ended(
        self,
        registry: Registry,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        backed_up: str,
    ) -> None:
        if backed_up == "while it lasts":
            put_on_hold(registry)
        backup = back_up(registry, tmp_path / "backup")
        if backed_up == "before the hold":
            put_on_hold(registry)
        set_clock(monkeypatch, UNTIL + timedelta(days=1))
        registry.requests.apply()
        assert where(registry, PERSON) == {}
        registry.close()
        with backup.restore() as again:
            assert where(again, PERSON) == {}
            kinds = [type(one) for one in again.ledger.entries()]
            assert HoldEnded in kinds and Restored in kinds
            require_retrained(again, PERSON)
            require_consistent(again)
            again.requests.apply()
            assert where(again, PERSON) == {}


class TestDamagedJournals:
    @pytest.mark.parametrize("damage", ["a bit", "all but the beginning"])
    def test_all_kinds_of_lines_are_written_again(
        self, registry: Registry, tmp_path: Path, damage: str
    ) -> None:
        folder = tmp_path / "registry"
        restrict(registry)
        hold(registry, OTHER, until=str(UNTIL))
        (extended, cancelled, refused, waiting) = registry.requests.accept(
            [Request((f"person {i}",)) for i in (10, 11, 12, 13)]
        )
        registry.requests.extend(extended.request, "complex", notified=today())
        registry.requests.cancel(cancelled.request)
        registry.requests.refuse(refused.request, "unfounded")
        left = registry.models.ship("all", tmp_path / "model.safetensors")
        ask(registry, "erase", THIRD)
        registry.models.withdraw("all", left.number)
        ask(registry, "lift", PERSON)
        after = Request(("person 14",))
        registry.requests.accept([after])
        told, export = statuses(registry), registry.ledger.export()
        before = kinds_of(registry)
        registry.close()
        journal = folder / "journal"
        content = bytearray(journal.read_bytes())
        content[300] ^= 1
        journal.write_bytes(content[: 400 if damage != "a bit" else None])
        with pytest.raises(JournalDamaged):
            Registry.open(folder)
        assert rebuild_journal(folder) is not None
        with Registry.open(folder) as again:
            assert kinds_of(again) >= before
            assert again.ledger.export() == export
            for id_, found in told.items():
                assert found == (
                    again.requests.status(id_),
                    again.requests.receipt(id_),
                )
            again.requests.apply()
            for id_ in (waiting.request, after.request):
                assert again.requests.status(id_).stage == "completed"
            assert again.requests.status(cancelled.request).stage == "cancelled"
            assert where(again, "person 11") == IN_USE
            assert where(again, "person 12") == IN_USE
            assert where(again, OTHER) == HELD
            require_consistent(again)

    @pytest.mark.parametrize("kept", ["nothing", "everything"])
    def test_a_rebuilt_journal_restores_a_later_backup(
        self, registry: Registry, tmp_path: Path, kept: str
    ) -> None:
        folder = tmp_path / "registry"
        restrict(registry)
        (status,) = registry.requests.accept([Request((OTHER,))])
        backup = back_up(registry, tmp_path / "backup")
        registry.requests.cancel(status.request)
        registry.close()
        journal = folder / "journal"
        content = journal.read_bytes()
        lost = content[: len(content) // 2] if kept == "nothing" else content[:-3]
        journal.write_bytes(lost)
        assert rebuild_journal(folder) is not None
        with backup.restore() as again:
            assert where(again, PERSON) == RESTRICTED
            assert again.requests.status(status.request).stage == "cancelled"
            again.requests.apply()
            assert where(again, OTHER) == IN_USE
            require_consistent(again)


def kinds_of(registry: Registry) -> set[str]:
    """Return what the lines of a journal are about."""
    words = ("accepted", "receipts", "cancelled", "shipped", "withdrawn")
    lines = journal_of(registry)
    return {word for line in lines for word in words if line.get(word)}


def test_a_backup_of_keys_opens_nothing_that_was_erased(tmp_path: Path) -> None:
    """What was sealed apart when the backup was taken has another key since."""
    with registry_at(tmp_path / "registry") as registry:
        restrict(registry)
        keys = keys_apart(registry, "all")
        ask(registry, "restrict", OTHER)
        ask(registry, "erase", PERSON)
        assert keys and keys_apart(registry, "all").isdisjoint(keys)
        assert np.array_equal(open_apart(registry, OTHER), features_of(OTHER))


class TestLosses:
    """What came after the backup, and is in the database alone, is told."""

    def test_nothing_is_lost(self, registry: Registry, tmp_path: Path) -> None:
        ask(registry, "rectify", PERSON, rows=new_rows())
        self.add(registry)
        backup = back_up(registry, tmp_path / "backup")
        ask(registry, "erase", OTHER)
        registry.close()
        with backup.restore() as again:
            assert not again.losses

    def test_everything_is_lost(self, registry: Registry, tmp_path: Path) -> None:
        self.add(registry)
        backup = back_up(registry, tmp_path / "backup")
        done = Request((PERSON,), right="rectify", rows=new_rows())
        registry.requests.accept([done])
        registry.requests.apply()
        waits = Request((PERSON,), right="rectify", rows=new_rows())
        cancelled = Request((PERSON,), right="rectify", rows=new_rows())
        registry.requests.accept([waits, cancelled])
        registry.requests.cancel(cancelled.request)
        self.add(registry)
        token, _ = registry.access.create("desk", ["request"])
        gone, _ = registry.access.create("desk", ["request"])
        registry.access.revoke(gone.id)
        # Of a number that changed hands: it leads to whom it was taken from again.
        former = Identifier("email", "new0@example.org")
        assert registry.aliases.remove([former]) == 1
        registry.close()
        with backup.restore() as again:
            found = again.losses
            assert found.rectifications == (done.request, waits.request)
            assert found.additions == {"all": 1}
            assert found.tokens == (token.id,)
            assert found.n_aliases == 1
            assert found.n_returned == 1
            assert again.aliases.find([former])
            require_consistent(again)

    def add(self, registry: Registry) -> None:
        (new,) = new_rows().values()
        n = registry.aliases.count()
        who = f"new {n}"
        registry.add("all", new.X, new.y, subjects=[who] * len(new.y))
        registry.aliases.add([(who, Identifier("email", f"new{n}@example.org"))])
