# SPDX-License-Identifier: Apache-2.0
"""Crashes, races and mistakes in a row: no request is lost, and nobody comes back."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expunge.exceptions import (
    ExpungeError,
    InvalidInput,
    NeedsRestore,
    RequestConflict,
    ScheduleExhausted,
)
from expunge.ledger import UnusableKey, check_receipt
from expunge.registry import Registry, Request
from tests.registries import (
    BUDGET,
    after,
    before,
    by_name,
    crash_at,
    crash_with_a_line_in_the_journal_alone,
    data,
    data_without,
    estimator,
    lose_database,
    private_model_of,
    registry_at,
    require_consistent,
    set_batch,
    work_without_lock,
)

# A person who is forgotten in these tests is not fitted again.
REST = data_without("person 1", "person 2")
ONE, OTHER = "a" * 32, "b" * 32


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """Return a registry that forgot person 1, and was copied to ``backup`` then."""
    shutil.copytree(template, tmp_path / "backup")
    return Path(shutil.copytree(template, tmp_path / "registry"))


@pytest.fixture
def backup(folder: Path) -> Path:
    return folder.with_name("backup")


def take_backup(folder: Path) -> None:
    shutil.rmtree(folder.with_name("backup"))
    shutil.copytree(folder, folder.with_name("backup"))


class TestRequestsThatOnlyTheJournalHas:
    """Promised to nobody; but a person did ask."""

    def half_accept(self, folder: Path, asked: Request) -> None:
        with Registry.open(folder) as registry:
            with crash_with_a_line_in_the_journal_alone():
                registry.requests.accept([asked])

    @pytest.mark.parametrize("between", ["nothing", "fit", "refit", "rotate"])
    def test_are_taken_in_whatever_comes_first(
        self, folder: Path, between: str
    ) -> None:
        self.half_accept(folder, Request(("person 2",), ONE))
        with Registry.open(folder) as registry:
            steps: dict[str, Callable[[], object]] = {
                "nothing": lambda: None,
                "fit": lambda: registry.fit("third", estimator(), **by_name(REST)),
                "refit": lambda: registry.models.refit(
                    "half", estimator(), **by_name(REST)
                ),
                "rotate": registry.keys.rotate_tag_key,
            }
            steps[between]()
            registry.requests.apply()
            assert registry.requests.status(ONE).stage == "completed"
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)

    def test_and_whose_id_is_used_again(self, folder: Path, backup: Path) -> None:
        """It is taken in before anybody else can write, and counts."""
        self.half_accept(folder, Request(("person 2",), ONE))
        with Registry.open(folder) as registry:
            with pytest.raises(RequestConflict, match="asked for something else"):
                registry.forget(["person 3"], ONE)
            registry.requests.apply()
        lose_database(folder)
        with Registry.restore(folder, backup) as registry:
            held = registry.requests.find_models(["person 2", "person 3"])
            assert held == {"person 2": (), "person 3": ("all", "half")}
            require_consistent(registry)

    def test_while_another_process_writes_the_ledger(
        self, folder: Path, backup: Path
    ) -> None:
        """One crashed after the journal; a second concludes; a backup is taken."""
        asked = Request(("person 2",), ONE)
        meanwhile = before("erasing", lambda: self.half_accept(folder, asked))
        with Registry.open(folder) as registry, meanwhile:
            registry.forget(["person 5"])
            take_backup(folder)
            receipt = registry.forget(["person 2"], ONE)
        lose_database(folder)
        with Registry.restore(folder, backup) as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            assert registry.requests.receipt(ONE) == receipt
            require_consistent(registry)

    def test_while_another_process_writes_the_ledger_twice(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One crashed after the journal, between two batches of a second."""
        requests = [Request((f"person {i}",)) for i in (5, 6)]
        asked = Request(("person 2",), ONE)
        meanwhile = before("stating", lambda: self.half_accept(folder, asked))
        with Registry.open(folder) as registry, meanwhile:
            registry.requests.accept(requests)
            set_batch(monkeypatch, 1)
            registry.requests.apply()
            registry.requests.apply()
            assert registry.requests.status(ONE).stage == "completed"
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)


class TestRestoring:
    def test_after_a_withdrawal_that_was_refused(
        self, folder: Path, backup: Path
    ) -> None:
        with Registry.open(folder) as registry:
            for name, number in (("all", 9), ("other", 1)):
                with pytest.raises(InvalidInput):
                    registry.models.withdraw(name, number)
            registry.forget(["person 2"])
        lose_database(folder)
        with Registry.restore(folder, backup) as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}

    def test_after_a_release_left_that_no_ledger_knows(
        self, folder: Path, backup: Path
    ) -> None:
        with Registry.open(folder) as registry:
            with crash_at("erasing"):
                registry.forget(["person 2"], ONE)
            left = registry.models.ship("all", folder.with_name("model.safetensors"))
        lose_database(folder)
        with Registry.restore(folder, backup) as registry:
            registry.requests.apply()
            assert registry.requests.status(ONE).stage == "completed"
            require_consistent(registry)
            registry.forget(["person 4"])
            outstanding = registry.status().outstanding
        # It is out there, and holds person 4: somebody must be told.
        assert [one.shipped for one in outstanding] == [left.shipped]

    def test_lists_what_left_before_the_backup_once(
        self, folder: Path, backup: Path
    ) -> None:
        with Registry.open(folder) as registry:
            registry.models.ship("all", folder.with_name("model.safetensors"))
            take_backup(folder)
            registry.forget(["person 2"])
            before = registry.status().outstanding
        with Registry.restore(folder, backup) as registry:
            after = registry.status().outstanding
        assert [one.shipped for one in after] == [one.shipped for one in before]

    def test_of_a_spent_contract_leads_to_a_new_fit(self, tmp_path: Path) -> None:
        folder, backup = tmp_path / "registry", tmp_path / "backup"
        spent = estimator(budget=replace(BUDGET, releases=3, sigma=100.0))
        with Registry.create(folder) as registry:
            registry.fit("model", spent, **by_name(data()))
        shutil.copytree(folder, backup)
        with Registry.open(folder) as registry:
            receipts = [registry.forget([f"person {n}"], f"{n:032x}") for n in (1, 2)]
        lose_database(folder)
        try:
            Registry.restore(folder, backup).close()
        except ScheduleExhausted:
            pytest.fail("a registry that can be neither restored nor opened")
        with Registry.open(folder) as registry:
            assert registry.requests.find_models(["person 1"]) == {"person 1": ()}
            X, y, owners = data()
            registry.models.refit(
                "model", estimator(), X[6:], y[6:], subjects=owners[6:]
            )
            assert [registry.requests.receipt(f"{n:032x}") for n in (1, 2)] == receipts
            require_consistent(registry)

    @pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
    def test_of_a_backup_from_the_middle_of_a_fit(
        self, folder: Path, backup: Path, late: bool
    ) -> None:
        """It has the model, and its ledger does not say so yet."""
        with Registry.open(folder) as registry:
            with crash_at("writing the journal", after=late):
                registry.models.refit("half", estimator(), **by_name(REST))
        take_backup(folder)
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        lose_database(folder)
        with Registry.restore(folder, backup) as registry:
            people = ["person 2", "person 50"]
            assert registry.requests.find_models(people) == {
                people[0]: (),
                people[1]: ("all", "half"),
            }
            require_consistent(registry)

    @pytest.mark.parametrize("mistake", ["another registry", "before a fit"])
    def test_that_is_refused_changes_nothing(
        self, folder: Path, backup: Path, mistake: str
    ) -> None:
        if mistake == "another registry":
            backup = folder.with_name("other")
            with registry_at(backup) as other:
                other.forget(["person 5"])
        with Registry.open(folder) as registry:
            registry.forget(["person 2"], ONE)
            if mistake == "before a fit":
                registry.fit("third", estimator(), **by_name(REST))
        self.require_refused(folder, backup)

    @pytest.mark.parametrize("damaged", ["keys/sealing", "checkpoints", "expunge.db"])
    def test_of_a_damaged_backup_changes_nothing(
        self, folder: Path, backup: Path, damaged: str
    ) -> None:
        with Registry.open(folder) as registry:
            registry.forget(["person 2"], ONE)
        paths = [backup / damaged]
        for path in paths[0].iterdir() if paths[0].is_dir() else paths:
            path.write_bytes(bytes(path.stat().st_size))
        self.require_refused(folder, backup)

    def require_refused(self, folder: Path, backup: Path) -> None:
        """See a restore refused, and the registry as it was."""
        with Registry.open(folder) as registry:
            names = registry.models.names()
        files = {*folder.rglob("*")}
        with pytest.raises(ExpungeError):
            Registry.restore(folder, backup)
        assert {*folder.rglob(".*")} <= files  # no copy of the backup is left
        with Registry.open(folder) as registry:
            assert registry.models.names() == names
            registry.forget(["person 4"])
            require_consistent(registry)


class TestAnOldDatabase:
    """Put back by hand, it is refused however one comes to it."""

    @pytest.mark.parametrize("come_back", [Registry.open, Registry.create])
    @pytest.mark.parametrize("since", ["forget", "refit", "fit"])
    def test_is_refused(
        self,
        folder: Path,
        backup: Path,
        since: str,
        come_back: Callable[[Path], Registry],
    ) -> None:
        with Registry.open(folder) as registry:
            steps: dict[str, Callable[[], object]] = {
                "forget": lambda: registry.forget(["person 2"]),
                "refit": lambda: registry.models.refit(
                    "half", estimator(), **by_name(REST)
                ),
                "fit": lambda: registry.fit("third", estimator(), **by_name(REST)),
            }
            steps[since]()
        for name in ("registry.json", "journal"):
            shutil.copy(folder / name, backup / name)
        with pytest.raises(NeedsRestore, match="restore"):
            come_back(backup)

    def test_is_not_shown_by_who_has_it_open(self, folder: Path, backup: Path) -> None:
        looks: list[Callable[[], Any]] = []

        def look(done: int, total: int) -> None:
            if done in (2, total - 1):  # replaced, and then brought up to date
                for one in looks:
                    with pytest.raises(NeedsRestore) if done == 2 else nullcontext():
                        one()

        with Registry.open(folder) as registry:
            looks += [lambda: registry.model("all"), registry.status]
            registry.forget(["person 2"], ONE)
            lose_database(folder)
            shutil.copy(backup / "expunge.db", folder / "expunge.db")
            for one in looks:
                with pytest.raises(NeedsRestore, match="put back from a backup"):
                    one()
            Registry.restore(folder, backup, on_progress=look).close()
            look(3, 4)
            require_consistent(registry)

    def test_learns_from_the_journal_what_left(
        self, folder: Path, backup: Path
    ) -> None:
        """A crash while shipping looks the same, so it cannot be refused."""
        with Registry.open(folder) as registry:
            registry.models.ship("all", folder.with_name("model.safetensors"))
        for name in ("registry.json", "journal"):
            shutil.copy(folder / name, backup / name)
        with Registry.open(backup) as registry:
            registry.forget(["person 2"])
            (left,) = registry.status().outstanding
        assert [name for _, name in left.shipped] == ["model.safetensors"]


class TestOvertaken:
    """As when a session with PostgreSQL broke, and another process got the lock."""

    @pytest.mark.parametrize("point", ["writing a checkpoint", "destroying keys"])
    def test_a_worker_harms_nothing(self, folder: Path, point: str) -> None:
        overtaken: list[bool] = []

        def overtake() -> None:
            overtaken.append(True)
            second.requests.accept([Request(("person 3",), OTHER)])
            work_without_lock(second)

        with Registry.open(folder) as first, Registry.open(folder) as second:
            first.requests.accept([Request(("person 2",), ONE)])
            with before(point, overtake), suppress(ExpungeError):
                first.requests.apply()
        assert overtaken
        with Registry.open(folder) as registry:
            registry.forget(["person 4"])
            for one in (ONE, OTHER):
                assert registry.requests.status(one).stage == "completed"
            gone = [f"person {n}" for n in (1, 2, 3, 4)]
            assert set(registry.requests.find_models(gone).values()) == {()}
            assert private_model_of(registry, "all").n_removed == 8
            require_consistent(registry)


class TestKeys:
    @pytest.mark.parametrize(
        "point", ["publishing a signing key", "destroying a signing key"]
    )
    def test_a_crash_while_rotating_is_made_up_for(
        self, folder: Path, point: str
    ) -> None:
        with Registry.open(folder) as registry:
            with crash_at(point):
                registry.keys.rotate_signing_key()
        with Registry.open(folder) as registry:
            receipt = registry.forget(["person 2"])
            pem = registry.keys.public_pem()
        published = (folder / "public.pem").read_text()
        assert published == pem and check_receipt(receipt, published).valid
        keys = sorted(path.name for path in (folder / "keys").glob("signing-*"))
        assert keys == ["signing-1.pem"]  # the old secret one is destroyed

    def test_sign_no_second_ledger_where_the_first_was_lost(
        self, folder: Path, backup: Path
    ) -> None:
        """They may lie on a disk of their own."""
        lose_database(folder)
        for name in ("registry.json", "journal", "journal.mark"):
            (folder / name).unlink()
        with pytest.raises(NeedsRestore, match="its database is lost"):
            Registry.create(folder)
        for name in ("registry.json", "journal"):
            shutil.copy(backup / name, folder / name)
        with pytest.raises(NeedsRestore):
            Registry.create(folder)
        with Registry.restore(folder, backup) as registry:
            require_consistent(registry)

    def test_coming_back_makes_no_new_ones(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            registry.keys.rotate_signing_key()
            registry.keys.rotate_tag_key()
        before = sorted((folder / "keys").iterdir())
        Registry.create(folder).close()
        assert sorted((folder / "keys").iterdir()) == before


def test_the_order_of_people_does_not_make_another_request(folder: Path) -> None:
    with Registry.open(folder) as registry:
        first, again = registry.requests.accept(
            [
                Request(("person 2", "person 3"), ONE),
                Request(("person 3", "person 2"), ONE),
            ]
        )
        assert first == again
        assert registry.status().n_requests == 2  # with that of the template


def test_a_key_of_tags_is_noted_before_it_tags_anybody(folder: Path) -> None:
    """Rotating was killed between the file and the note."""
    with Registry.open(folder) as registry:
        with crash_at("noting a tag key"):
            registry.keys.rotate_tag_key()
        registry.fit("third", estimator(), **by_name(REST))
    (folder / "keys" / "tags-1").unlink()
    with pytest.raises(UnusableKey, match="cannot be found"):
        Registry.open(folder)


def test_a_tag_key_may_be_rotated_while_another_process_opens(
    folder: Path,
) -> None:
    """The id that the store records must not be newer than the files that were read."""
    with Registry.open(folder) as registry:
        rotations: list[bool] = []

        def rotate() -> None:
            rotations.append(True)
            registry.keys.rotate_tag_key()

        with after("finding the keys of tags", rotate):
            Registry.open(folder).close()
        assert rotations
