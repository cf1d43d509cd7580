# SPDX-License-Identifier: Apache-2.0
"""Cancelling waits for nobody, and a request is cancelled or answered, never both."""

import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Barrier, Thread

import pytest

from expunge import LinearRegression
from expunge.exceptions import (
    InvalidInput,
    NeedsRestore,
    RequestConflict,
    UnknownRequest,
)
from expunge.ledger import RequestExtended
from expunge.registry import NewRows, Registry, Request
from tests.registries import (
    A_REQUEST,
    BUDGET,
    IN_USE,
    NOTHING,
    back_up,
    before,
    before_each,
    checkpoints_in,
    crash_at,
    crash_with_a_line_in_the_journal_alone,
    data,
    dump_of,
    folder_of,
    journal_of,
    kept_of_request,
    keys_of_new_rows,
    on_failure,
    put_back,
    require_consistent,
    require_retrained,
    set_batch,
    stages_of,
    today,
    where,
    work_without_lock,
    working,
)

TAKEN_BACK, OTHER = "person 3", "person 5"
BEFORE_THE_COMMIT = ("catching up", "settling", "writing a checkpoint", "committing")
AFTER_THE_COMMIT = ("erasing", "destroying keys", "stating")


def rectification() -> Request:
    """Return a request that brings rows."""
    X, y, _ = data()
    rows = {"all": NewRows(X[:1] + 1.0, y[:1])}
    return Request((TAKEN_BACK,), right="rectify", rows=rows)


@pytest.fixture
def second(registry: Registry, tmp_path: Path) -> Iterator[Registry]:
    """Lend the same registry, opened by another process."""
    with Registry.open(tmp_path / "registry") as second:
        yield second


class TestBesideAWorker:
    def test_waits_for_nobody(self, registry: Registry, second: Registry) -> None:
        asked = Request((TAKEN_BACK,))
        registry.requests.accept([asked])
        with working(registry):
            assert second.requests.cancel(asked.request).stage == "cancelled"
        registry.requests.apply()
        assert where(registry, TAKEN_BACK) == IN_USE

    @pytest.mark.parametrize("place", BEFORE_THE_COMMIT)
    @pytest.mark.parametrize("right", ["erase", "rectify"])
    def test_a_batch_goes_on_without_it(
        self, registry: Registry, second: Registry, place: str, right: str
    ) -> None:
        gone = rectification() if right == "rectify" else Request((TAKEN_BACK,))
        other = Request((OTHER,))
        registry.requests.accept([gone, other])
        with before(place, lambda: second.requests.cancel(gone.request)):
            registry.requests.apply()
        assert stages_of(registry, gone, other) == ["cancelled", "completed"]
        assert where(registry, TAKEN_BACK) == IN_USE
        assert not where(registry, OTHER)
        assert kept_of_request(registry, gone.request) == NOTHING
        assert not keys_of_new_rows(registry)
        there = [name.split(".")[0] for name in checkpoints_in(folder_of(registry))]
        assert there.count("all") == 1  # and not what was computed in vain
        require_retrained(registry, OTHER)
        require_consistent(registry)

    @pytest.mark.parametrize("place", AFTER_THE_COMMIT)
    def test_it_comes_too_late(
        self, registry: Registry, second: Registry, place: str
    ) -> None:
        asked = Request((TAKEN_BACK,))
        registry.requests.accept([asked])
        refusals = []

        def cancel() -> None:
            with pytest.raises(InvalidInput, match="is applied, and only") as refusal:
                second.requests.cancel(asked.request)
            refusals.append(refusal)

        with before(place, cancel):
            registry.requests.apply()
        assert refusals and stages_of(registry, asked) == ["completed"]
        assert not any("cancelled" in line for line in journal_of(registry))
        require_consistent(registry)

    def test_one_after_another_until_none_is_left(
        self, registry: Registry, second: Registry
    ) -> None:
        """Each time that the worker is about to commit, another one is cancelled."""
        asked = [Request((f"person {i}",)) for i in range(4)]
        registry.requests.accept(asked)
        left = iter(asked)

        def cancel_one() -> None:
            for one in islice(left, 1):
                second.requests.cancel(one.request)

        with before_each("committing", cancel_one):
            registry.requests.apply()
        assert {*stages_of(registry, *asked)} == {"cancelled"}
        registry.forget([OTHER])
        require_retrained(registry, OTHER)
        require_consistent(registry)

    def test_a_lift_is_settled_without_its_restriction(
        self, registry: Registry, second: Registry
    ) -> None:
        restrict = Request((TAKEN_BACK,), right="restrict")
        lift = Request((TAKEN_BACK,), right="lift")
        registry.requests.accept([restrict, lift])
        with before("committing", lambda: second.requests.cancel(restrict.request)):
            registry.requests.apply()
        status = registry.requests.status(lift.request)
        assert (status.outcome, status.reason) == ("refused", "not-restricted")
        assert where(registry, TAKEN_BACK) == IN_USE

    def test_nobody_is_told_that_it_failed(
        self, registry: Registry, second: Registry
    ) -> None:
        """A model of one person cannot lose that person, and need not."""
        X, _, owners = data()
        regression = LinearRegression(alpha=0.1, budget=BUDGET)
        registry.fit("single", regression, X[:2], X[:2, 1], subjects=owners[:2])
        bad, good = Request(("person 0",)), Request((OTHER,))
        registry.requests.accept([bad, good])
        # First both fail together, and then one of them alone.
        with on_failure(
            "applying a batch", lambda: second.requests.cancel(bad.request), nth=2
        ):
            registry.requests.apply()
        assert stages_of(registry, bad, good) == ["cancelled", "completed"]
        assert not registry.requests.status(bad.request).error

    def test_who_forgets_is_told(self, registry: Registry, second: Registry) -> None:
        with before("committing", lambda: second.requests.cancel(A_REQUEST)):
            with pytest.raises(InvalidInput, match="was cancelled; to forget these"):
                registry.forget([TAKEN_BACK], A_REQUEST)
        with pytest.raises(InvalidInput, match="was cancelled"):
            registry.forget([TAKEN_BACK], A_REQUEST)

    @pytest.mark.parametrize("seed", range(3))
    def test_at_any_moment(
        self,
        registry: Registry,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        seed: int,
    ) -> None:
        """Three cancel what a fourth applies: who was told so is cancelled."""
        asked = [Request((f"person {i}",)) for i in range(24)]
        registry.requests.accept(asked)
        some = random.Random(seed).sample(asked, 15)
        told: list[str] = []
        begin = Barrier(4)

        def cancel(mine: list[Request]) -> None:
            with Registry.open(tmp_path / "registry") as other:
                begin.wait()
                for one in mine:
                    with suppress(InvalidInput):
                        other.requests.cancel(one.request)
                        told.append(one.request)

        threads = [Thread(target=cancel, args=(some[i::3],)) for i in range(3)]
        for thread in threads:
            thread.start()
        set_batch(monkeypatch, 4)  # so that some come too late
        begin.wait()
        registry.requests.apply()
        for thread in threads:
            thread.join()
        stages = stages_of(registry, *asked)
        pairs = list(zip(asked, stages, strict=True))
        cancelled = [one for one, stage in pairs if stage == "cancelled"]
        answered = [one for one, stage in pairs if stage == "completed"]
        assert sorted(told) == sorted(one.request for one in cancelled)
        assert len(cancelled) + len(answered) == len(asked)
        assert all(where(registry, *one.subjects) == IN_USE for one in cancelled)
        assert not any(where(registry, *one.subjects) for one in answered)
        require_retrained(registry, *(one.subjects[0] for one in answered))
        require_consistent(registry)


class TestTwice:
    def test_one_of_two_is_told_so(self, registry: Registry, tmp_path: Path) -> None:
        asked = Request((TAKEN_BACK,))
        registry.requests.accept([asked])
        told: list[str] = []
        begin = Barrier(4)

        def cancel() -> None:
            with Registry.open(tmp_path / "registry") as other:
                begin.wait()
                try:
                    told.append(other.requests.cancel(asked.request).stage)
                except InvalidInput as error:
                    told.append(str(error))

        threads = [Thread(target=cancel) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told.count("cancelled") == 1
        assert sum("is cancelled, and only one" in said for said in told) == 3
        assert sum("cancelled" in line for line in journal_of(registry)) == 1

    def test_what_nobody_asked_is_unknown(self, registry: Registry) -> None:
        with pytest.raises(UnknownRequest):
            registry.requests.cancel(A_REQUEST)
        with pytest.raises(InvalidInput, match="is 32 hexadecimal digits"):
            registry.requests.cancel("ticket 7")


class TestBesideOtherAnswers:
    """Somebody refuses or extends a request, and it is cancelled just before."""

    @pytest.fixture
    def asked(self, registry: Registry) -> Request:
        asked = Request((TAKEN_BACK,))
        registry.requests.accept([asked])
        return asked

    def test_refuse(self, registry: Registry, second: Registry, asked: Request) -> None:
        with before("refusing", lambda: second.requests.cancel(asked.request)):
            with pytest.raises(InvalidInput, match="is cancelled, and only one"):
                registry.requests.refuse(asked.request, "unfounded")
        assert registry.requests.receipt(asked.request) is None
        require_consistent(registry)

    def test_extend(self, registry: Registry, second: Registry, asked: Request) -> None:
        """The ledger says that it was extended, as if that had come first."""
        with before("stating", lambda: second.requests.cancel(asked.request)):
            status = registry.requests.extend(asked.request, "many", notified=today())
        assert status.stage == "cancelled"
        *_, entry = registry.ledger.entries()
        assert isinstance(entry, RequestExtended)
        registry.requests.apply()
        assert where(registry, TAKEN_BACK) == IN_USE
        require_consistent(registry)


class TestKilled:
    """After the line of the journal, before the commit."""

    def test_a_worker_that_has_it_applies_it(
        self, registry: Registry, second: Registry, tmp_path: Path
    ) -> None:
        """Nobody was told that it was cancelled, and it stays answered ever after."""
        asked = Request((TAKEN_BACK,))
        backup = back_up(registry, tmp_path / "backup")
        registry.requests.accept([asked])

        def cancel_and_die() -> None:
            with crash_with_a_line_in_the_journal_alone():
                second.requests.cancel(asked.request)

        with before("committing", cancel_and_die):
            registry.requests.apply()
        receipt = registry.requests.receipt(asked.request)
        assert receipt and stages_of(registry, asked) == ["completed"]
        registry.requests.apply()  # reads the line
        assert stages_of(registry, asked) == ["completed"]
        require_consistent(registry)
        second.close()
        registry.close()
        with backup.restore() as restored:
            assert restored.requests.receipt(asked.request) == receipt
            assert not where(restored, TAKEN_BACK)
            require_consistent(restored)

    def test_asked_again_it_is_told_as_cancelled(self, registry: Registry) -> None:
        asked = Request((TAKEN_BACK,))
        registry.requests.accept([asked])
        with crash_with_a_line_in_the_journal_alone():
            registry.requests.cancel(asked.request)
        assert stages_of(registry, asked) == ["accepted"]
        with pytest.raises(RequestConflict, match="is cancelled"):
            registry.requests.cancel(asked.request)
        registry.requests.apply()
        assert stages_of(registry, asked) == ["cancelled"]
        assert where(registry, TAKEN_BACK) == IN_USE

    def test_before_the_key_of_new_rows_is_destroyed(self, registry: Registry) -> None:
        asked = rectification()
        registry.requests.accept([asked])
        with crash_at("destroying keys"):
            registry.requests.cancel(asked.request)
        assert keys_of_new_rows(registry)
        assert kept_of_request(registry, asked.request) == NOTHING
        registry.requests.apply()
        assert not keys_of_new_rows(registry)


class TestNewRows:
    def test_their_key_goes_at_once(self, registry: Registry) -> None:
        asked = rectification()
        registry.requests.accept([asked])
        registry.requests.cancel(asked.request)
        assert not keys_of_new_rows(registry)

    @pytest.mark.parametrize("place", ["writing what was accepted", "making a key"])
    def test_sent_again_meanwhile_they_do_not_stay(
        self, registry: Registry, second: Registry, place: str
    ) -> None:
        asked = rectification()
        registry.requests.accept([asked])
        with before(place, lambda: second.requests.cancel(asked.request)):
            registry.requests.accept([asked])
        assert stages_of(registry, asked) == ["cancelled"]
        assert kept_of_request(registry, asked.request) == NOTHING
        registry.requests.apply()
        assert not keys_of_new_rows(registry)
        assert where(registry, TAKEN_BACK) == IN_USE

    def test_a_worker_about_to_read_them_goes_on(
        self, registry: Registry, second: Registry
    ) -> None:
        """It saw the request wait, and the key is gone when it reads the rows."""
        asked, other = rectification(), Request((OTHER,))
        registry.requests.accept([asked, other])
        # Afterwards: the worker's transaction to read began before.
        with before("reading new rows", lambda: second.requests.cancel(asked.request)):
            registry.requests.apply()
        assert stages_of(registry, asked, other) == ["cancelled", "completed"]


class TestAStoreThatWasPutBack:
    def test_refuses(self, registry: Registry) -> None:
        """There the request still waits, and its receipt is out."""
        asked = Request((TAKEN_BACK,))
        registry.requests.accept([asked])
        dump = dump_of(registry)
        registry.requests.apply()
        put_back(registry, dump)
        with pytest.raises(NeedsRestore, match="put back from a backup"):
            registry.requests.cancel(asked.request)
        assert not any("cancelled" in line for line in journal_of(registry))

    def test_lines_of_others_that_are_about_to_commit_do_no_harm(
        self, registry: Registry, second: Registry
    ) -> None:
        """As of a process that was killed: its request is in the journal alone."""
        asked, lost = Request((TAKEN_BACK,)), Request((OTHER,))
        registry.requests.accept([asked])
        with crash_with_a_line_in_the_journal_alone():
            second.requests.accept([lost])
        assert registry.requests.cancel(asked.request).stage == "cancelled"
        registry.requests.apply()
        assert stages_of(registry, asked, lost) == ["cancelled", "completed"]


def test_two_workers_and_one_who_cancels(
    registry: Registry, second: Registry, tmp_path: Path
) -> None:
    """The lock is lost, another process applies everything but what is cancelled."""
    gone, other = Request((TAKEN_BACK,)), Request((OTHER,))
    registry.requests.accept([gone, other])

    def overtaken() -> None:
        with Registry.open(tmp_path / "registry") as third:
            third.requests.cancel(gone.request)
        work_without_lock(second)

    with before("committing", overtaken):
        with pytest.raises(Exception, match="another process"):
            registry.requests.apply()
    assert stages_of(registry, gone, other) == ["cancelled", "completed"]
    require_consistent(registry)
