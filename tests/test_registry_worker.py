# SPDX-License-Identifier: Apache-2.0
"""One process applies, others wait; what cannot be applied holds up nobody."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from expunge import LinearRegression
from expunge.exceptions import (
    Busy,
    CannotRemove,
    ExpungeError,
    RequestConflict,
    ScheduleExhausted,
    Unforeseen,
    WindowOpen,
)
from expunge.registry import Registry, Request
from tests.opendsr_service import Clock
from tests.registries import (
    A_REQUEST,
    BUDGET,
    apply_and_stop,
    break_model,
    crash_at,
    crash_with_a_statement_in_the_journal_alone,
    data,
    estimator,
    hold,
    n_releases,
    now,
    prepare_change,
    private_model_of,
    receipt_of,
    reopen,
    require_consistent,
    require_retrained,
    set_batch,
    set_clock,
    stages_of,
    today,
    unstated_in,
    work_without_lock,
    working,
)


class TestWhatMustBeStated:
    ENTRIES = ["release made", "releases superseded"] * 2 + ["request completed"]

    def test_it_is_written_where_it_is_done(self, registry: Registry) -> None:
        size = len([*registry.ledger.entries()])
        with crash_at("preparing a statement"):
            registry.forget(["person 1"])
        assert unstated_in(registry) == self.ENTRIES
        assert len([*registry.ledger.entries()]) == size
        registry.requests.apply()
        assert unstated_in(registry) == []
        stated = [one.kind for one in registry.ledger.entries(size)]
        assert stated == self.ENTRIES
        require_consistent(registry)

    def test_a_statement_in_the_log_alone_leaves_nothing_to_state(
        self, registry: Registry
    ) -> None:
        with crash_with_a_statement_in_the_journal_alone():
            registry.forget(["person 1"])
        assert unstated_in(registry) == self.ENTRIES
        registry.requests.apply()
        assert unstated_in(registry) == []
        require_consistent(registry)

    def test_holds_and_models_that_end(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        day = today()
        hold(registry, "person 2", until=day.isoformat())
        with crash_at("preparing a statement"):
            registry.models.remove("half")
        assert unstated_in(registry) == ["model removed"]
        set_clock(monkeypatch, day + timedelta(days=1))
        registry.requests.apply()
        assert unstated_in(registry) == []
        ends = [one.kind for one in registry.ledger.entries()][-2:]
        assert ends == ["model removed", "hold ended"]
        require_consistent(registry)


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


class TestUnforeseenErrors:
    """They stop one request, which waits; nobody else, and no other model."""

    @pytest.mark.parametrize(
        "error",
        [
            IndexError("person 40 weighs 17 kg"),
            MemoryError("person 40 weighs 17 kg"),
            np.linalg.LinAlgError("person 40 weighs 17 kg"),
        ],
    )
    def test_one_request_waits_and_all_others_are_done(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        asked = [Request((f"person {n}",)) for n in range(38, 46)]
        bad = asked[2]
        break_model(monkeypatch, registry, "all", "person 40", error=error)
        registry.requests.accept(asked)
        with pytest.raises(Unforeseen, match="did not foresee") as raised:
            registry.requests.apply()
        assert raised.value.__cause__ is raised.value.__context__ is None
        later = Request(("person 50",))
        registry.requests.accept([later])
        with reopen(registry) as again, pytest.raises(Unforeseen):
            again.requests.apply()
        done = [one for one in (*asked, later) if one is not bad]
        assert {*stages_of(registry, *done)} == {"completed"}
        waiting = registry.requests.status(bad.request)
        assert (waiting.stage, waiting.outcome) == ("accepted", "")
        assert waiting.is_open and waiting in registry.status().pending
        assert "17" not in waiting.error and type(error).__name__ not in waiting.error
        assert registry.requests.receipt(bad.request) is None
        assert registry.requests.find_models(["person 40"])["person 40"] == ("all",)
        monkeypatch.undo()
        registry.requests.apply()  # such as after an upgrade
        assert receipt_of(registry, bad.request).entry.outcome == "done"
        require_consistent(registry)

    def test_it_costs_others_one_release_at_a_time(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad = Request(("person 40",))
        break_model(monkeypatch, registry, "all", "person 40", error=IndexError())
        registry.requests.accept([bad])
        with pytest.raises(Unforeseen):
            registry.requests.apply()
        before = n_releases(registry, "all")
        registry.requests.accept([Request((f"person {n}",)) for n in range(41, 50)])
        with pytest.raises(Unforeseen):
            registry.requests.apply()
        assert n_releases(registry, "all") == before + 1

    def test_other_models_change_and_the_request_is_answered_in_part(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad, good = Request(("person 3",)), Request(("person 4",))
        break_model(monkeypatch, registry, "half", "person 3", error=IndexError())
        registry.requests.accept([bad, good])
        with pytest.raises(Unforeseen):
            registry.requests.apply()
        assert stages_of(registry, bad, good) == ["accepted", "completed"]
        status = registry.requests.status(bad.request)
        assert (status.outcome, status.completed) == ("partly", None)
        assert registry.requests.receipt(bad.request) is None
        assert registry.requests.find_models(["person 3"])["person 3"] == ("half",)
        for take_back in (
            registry.requests.cancel,
            lambda one: registry.requests.refuse(one, "unfounded"),
        ):
            with pytest.raises(RequestConflict, match="applied to some models"):
                take_back(bad.request)
        monkeypatch.undo()
        registry.requests.apply()
        receipt = receipt_of(registry, bad.request)
        assert receipt.entry.outcome == "done"
        assert {*receipt.certificates} == {"half"}
        require_retrained(registry, "person 3", "person 4")
        require_consistent(registry)

    def test_a_model_that_always_fails_costs_the_others_nothing(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = [Request((f"person {n}",)) for n in (3, 4, 5, 6, 40)]
        break_model(monkeypatch, registry, "half", error=IndexError())
        registry.requests.accept(asked)
        with pytest.raises(Unforeseen):
            registry.requests.apply()
        assert stages_of(registry, *asked) == ["accepted"] * 4 + ["completed"]
        assert n_releases(registry, "all") == 2
        assert n_releases(registry, "half") == 1

    def test_what_was_done_before_is_not_answered_as_nothing_held(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad = Request(("person 3",))
        break_model(monkeypatch, registry, "half", error=IndexError())
        registry.requests.accept([bad])
        with pytest.raises(Unforeseen):
            registry.requests.apply()
        registry.models.remove("half")
        registry.requests.apply()
        assert receipt_of(registry, bad.request).entry.outcome == "done"

    def test_later_requests_of_the_person_wait_behind_it(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        restrict = Request(("person 40",), right="restrict")
        lift = Request(("person 40",), right="lift")
        break_model(monkeypatch, registry, "all", "person 40", error=IndexError())
        registry.requests.accept([restrict])
        with pytest.raises(Unforeseen):
            registry.requests.apply()
        registry.requests.accept([lift])
        with pytest.raises(ExpungeError):
            registry.requests.apply()
        assert stages_of(registry, restrict, lift) == ["accepted", "accepted"]
        monkeypatch.undo()
        for _ in range(2):
            with suppress(ExpungeError):
                registry.requests.apply()
        assert stages_of(registry, restrict, lift) == ["completed", "completed"]
        assert registry.requests.find_models(["person 40"])["person 40"] == ("all",)

    @pytest.mark.parametrize("error", [OSError(5, "I/O"), KeyboardInterrupt()])
    def test_trouble_of_the_machine_stops_the_process_and_is_no_fault_of_a_request(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch, error: BaseException
    ) -> None:
        asked = [Request((f"person {n}",)) for n in (40, 41)]
        break_model(monkeypatch, registry, "all", "person 40", error=error)
        registry.requests.accept(asked)
        with pytest.raises(type(error)):
            registry.requests.apply()
        assert stages_of(registry, *asked) == ["accepted", "accepted"]
        assert not any(one.error for one in registry.status().pending)
        monkeypatch.undo()
        registry.requests.apply()
        assert stages_of(registry, *asked) == ["completed", "completed"]


class TestWindows:
    """A request is applied when its own window has closed, and in its turn."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        clock = Clock(now())
        clock.install(monkeypatch)
        return clock

    def test_requests_wait_for_their_window(
        self, registry: Registry, clock: Clock
    ) -> None:
        short, long = (
            Request((person,), window=seconds)
            for person, seconds in (("person 3", 60), ("person 4", 3600))
        )
        first, second = registry.requests.accept([short, long])
        assert registry.requests.next_close() == first.window.close
        registry.requests.apply()
        assert stages_of(registry, short, long) == ["accepted", "accepted"]
        clock.time = first.window.close
        registry.requests.apply()
        assert stages_of(registry, short, long) == ["completed", "accepted"]
        assert registry.requests.next_close() == second.window.close
        registry.requests.apply(before=second.window.close)
        assert stages_of(registry, short, long) == ["completed", "completed"]
        require_consistent(registry)

    def test_a_command_applies_its_own(self, registry: Registry, clock: Clock) -> None:
        others = Request(("person 4",), window=900), Request(("person 5",))
        registry.requests.accept(others)
        registry.forget(["person 3"])
        assert stages_of(registry, *others) == ["accepted", "accepted"]
        assert registry.requests.cancel(others[0].request).stage == "cancelled"
        registry.requests.apply()
        assert stages_of(registry, others[1]) == ["completed"]

    @pytest.mark.parametrize("person", ["person 3", "stranger"])
    def test_nobody_overtakes_their_own_request(
        self, registry: Registry, clock: Clock, person: str
    ) -> None:
        """Whether anything is held of them or not: it would tell which."""
        early = Request((person,), right="restrict", window=900)
        late, other = Request((person,)), Request(("person 5",))
        registry.requests.accept([early, late, other], strangers=True)
        with pytest.raises(WindowOpen, match="waits until its window closes, at 20"):
            registry.requests.apply()
        assert stages_of(registry, early, late, other) == [
            "accepted",
            "accepted",
            "completed",
        ]
        assert "window" in registry.requests.status(late.request).error
        clock.time += 900_000
        registry.requests.apply()
        assert stages_of(registry, early, late) == ["completed", "completed"]
        assert not registry.requests.status(late.request).error
        require_consistent(registry)

    def test_forget_waits_with_an_earlier_request_of_the_person(
        self, registry: Registry, clock: Clock
    ) -> None:
        early = Request(("person 3",), window=900)
        registry.requests.accept([early])
        with pytest.raises(WindowOpen, match="this one is kept"):
            registry.forget(["person 3"], A_REQUEST)
        assert registry.requests.find_models(["person 3"])["person 3"]
        clock.time += 900_000
        assert registry.forget(["person 3"], A_REQUEST)
        assert stages_of(registry, early) == ["completed"]

    def test_what_the_same_people_asked_before_comes_first(
        self, registry: Registry
    ) -> None:
        """Of two requests about one person the first is applied, and then the other."""
        restrict = Request(("person 3", "person 4"), right="restrict")
        lift = Request(("person 4",), right="lift")
        other = Request(("person 6",))
        registry.requests.accept([restrict, other, lift])
        registry.requests.apply(only=[lift.request])
        assert stages_of(registry, restrict, other, lift) == [
            "completed",
            "accepted",
            "completed",
        ]
        assert registry.requests.find_models(["person 4"])["person 4"]
        assert not registry.requests.find_models(["person 3"])["person 3"]

    def test_what_another_process_left_is_finished(self, registry: Registry) -> None:
        """Before or after the moment: it is applied already."""
        asked = Request(("person 3",))
        (status,) = registry.requests.accept([asked])
        apply_and_stop(registry)
        registry.requests.apply(before=status.accepted)
        assert registry.requests.status(asked.request).stage == "completed"


class TestOneWorker:
    def test_others_wait_and_then_say_so(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        asked = Request(("person 3",))
        with (
            working(registry),
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

        with working(registry):
            thread = Thread(target=send)
            thread.start()
            while not registry.status().n_requests:
                continue
            work_without_lock(registry)  # it holds it
            thread.join(10.0)  # while the lock is held
            assert found
        assert found == [registry.requests.receipt(A_REQUEST)]

    def test_progress_is_told_by_models_and_batches(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[tuple[int, int]] = []
        set_batch(monkeypatch, 2)
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
        first = Request(("person 3",))
        registry.requests.accept([first])
        commit = prepare_change(registry, first.request, "all")
        with Registry.open(tmp_path / "registry") as other:
            other.requests.apply()
        with pytest.raises(ExpungeError):
            commit()
        assert private_model_of(registry, "all").n_removed == 2
        require_consistent(registry)
