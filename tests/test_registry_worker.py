# SPDX-License-Identifier: Apache-2.0
"""One process applies, others wait; what cannot be applied holds up nobody."""

from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from expunge import LinearRegression
from expunge.exceptions import Busy, CannotRemove, ExpungeError, ScheduleExhausted
from expunge.registry import Registry, Request, context
from expunge.registry.answering import worker as working_module
from tests.registries import (
    A_REQUEST,
    BUDGET,
    data,
    estimator,
    private_model_of,
    require_consistent,
)


class TestRequestsThatCannotBeApplied:
    def test_they_stay_accepted_and_do_not_hold_up_others(
        self, registry: Registry
    ) -> None:
        """A model of one person cannot lose that person."""
        X, _, owners = data()
        regression = LinearRegression(alpha=0.1, budget=replace(BUDGET, sigma=1e3))
        registry.fit("single", regression, X[:2], X[:2, 1], subjects=owners[:2])
        bad, good = Request(("person 0",)), Request(("person 5",))
        registry.requests.accept([bad, good])
        with pytest.raises(CannotRemove):
            registry.requests.apply()
        assert registry.requests.status(good.request).stage == "completed"
        waiting = registry.requests.status(bad.request)
        assert waiting.stage == "accepted" and waiting.error
        assert registry.requests.find_models(["person 0"])["person 0"] == (
            "all",
            "half",
            "single",
        )
        with pytest.raises(CannotRemove):
            registry.forget(["person 0"], bad.request)
        require_consistent(registry)

    def test_a_spent_contract_applies_to_the_next_fit(self, registry: Registry) -> None:
        X, y, owners = data()
        contract = replace(BUDGET, releases=2, sigma=100.0)
        registry.fit(
            "short", estimator(budget=contract), X[:60], y[:60], subjects=owners[:60]
        )
        registry.forget(["person 1"])
        waiting = Request(("person 2",))
        registry.requests.accept([waiting])
        with pytest.raises(ScheduleExhausted, match="fit it again"):
            registry.requests.apply()
        again = estimator(budget=contract)
        registry.models.refit("short", again, X[4:60], y[4:60], subjects=owners[4:60])
        registry.requests.apply()
        assert registry.requests.status(waiting.request).stage == "completed"
        assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
        require_consistent(registry)


class TestBeforeAMoment:
    def test_later_requests_stay_waiting(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        early, late = Request(("person 3",)), Request(("person 4",), right="restrict")
        (first,) = registry.requests.accept([early])
        later = first.accepted + 60_000
        monkeypatch.setattr(context, "time_ns", lambda: later * 1_000_000)
        registry.requests.accept([late])
        registry.requests.apply(before=later)
        assert registry.requests.status(early.request).stage == "completed"
        assert registry.requests.status(late.request).stage == "accepted"
        assert registry.requests.find_models(["person 4"])["person 4"]
        registry.requests.apply(before=later + 1)
        assert registry.requests.status(late.request).stage == "completed"
        require_consistent(registry)

    def test_nothing_is_overtaken(self, registry: Registry) -> None:
        """Of two requests about one person the first is applied, and then the other."""
        restrict = Request(("person 3",), right="restrict")
        lift = Request(("person 3",), right="lift")
        first, second = registry.requests.accept([restrict, lift])
        assert first.accepted < second.accepted
        registry.requests.apply(before=second.accepted)
        assert registry.requests.find_models(["person 3"]) == {"person 3": ()}
        registry.requests.apply()
        assert registry.requests.find_models(["person 3"])["person 3"]

    def test_what_another_process_left_is_finished(self, registry: Registry) -> None:
        """Before or after the moment: it is applied already."""
        asked = Request(("person 3",))
        (status,) = registry.requests.accept([asked])
        with registry._context.hold_lock(1.0):
            waiting = working_module.recover(registry._context, 1.0)
            working_module.apply_batch(registry._context, waiting)
        registry.requests.apply(before=status.accepted)
        assert registry.requests.status(asked.request).stage == "completed"


class TestOneWorker:
    def test_others_wait_and_then_say_so(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        asked = Request(("person 3",))
        with (
            registry._context.hold_lock(1.0),
            Registry.open(tmp_path / "registry") as other,
        ):
            other.requests.accept([asked])
            with pytest.raises(Busy, match="what was accepted is safe"):
                other.forget(["person 3"], asked.request, wait=0.05)
        registry.requests.apply()
        assert registry.requests.status(asked.request).stage == "completed"

    def test_who_waits_is_done_when_the_worker_did_the_work(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        found: list[str] = []

        def send() -> None:
            with Registry.open(tmp_path / "registry") as other:
                found.append(other.forget(["person 3"], A_REQUEST))

        with registry._context.hold_lock(1.0):
            thread = Thread(target=send)
            thread.start()
            while not registry.status().n_requests:
                continue
            working_module.apply_waiting(
                registry._context, 1.0, on_progress=lambda done, total: None
            )
            thread.join(10.0)  # while the lock is held
            assert found
        assert found == [registry.requests.receipt(A_REQUEST)]

    def test_progress_is_told_by_models_and_batches(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[tuple[int, int]] = []
        monkeypatch.setattr(working_module, "BATCH", 2)
        asked = [Request((f"person {i}",)) for i in (3, 4, 5, 50)]
        registry.requests.accept(asked)
        registry.requests.apply(on_progress=lambda *step: told.append(step))
        # Two models and the rest, for each of two batches.
        first = [(0, 6), (1, 6), (2, 6)]
        assert told == [*first, (3, 6), (4, 6), (5, 6), (2, 2)]
        told.clear()
        registry.requests.apply(on_progress=lambda *step: told.append(step))
        assert told == [(1, 1)]

    def test_whoever_was_overtaken_is_refused(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        """As when a session with PostgreSQL broke and another got the lock."""
        from expunge.registry.answering.changes import Move, change_model, read_moves
        from expunge.registry.answering.worker import commit_changes
        from expunge.registry.storage import people_table

        first = Request(("person 3",))
        registry.requests.accept([first])
        with registry._context.store.read() as connection:
            asked = people_table.find_asked_rows(connection, [first.request])
            moves = {"all": Move([one for _, name, one in asked if name == "all"])}
            reading = read_moves(registry._context, connection, moves=moves)
        change = change_model(registry._context, "all", reading=reading)
        with Registry.open(tmp_path / "registry") as other:
            other.requests.apply()
        with pytest.raises(ExpungeError):
            commit_changes(registry._context, [change], made={})
        assert private_model_of(registry, "all").n_removed == 2
        require_consistent(registry)
