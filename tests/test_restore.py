# SPDX-License-Identifier: Apache-2.0
"""A backup brings models back, and nobody with them."""

import errno
import json
import os
import shutil
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any, ClassVar

import numpy as np
import pytest

from expunge import verify
from expunge.exceptions import (
    Busy,
    ExpungeError,
    InvalidInput,
    JournalDamaged,
    LedgerCorrupt,
    NeedsRestore,
    RequestConflict,
    ScheduleExhausted,
    StoreFailed,
    UnknownRequest,
)
from expunge.ledger import ModelRegistered, ReleaseMade, Restored, check_export
from expunge.linear_model.tuned import TunedClassifier
from expunge.promise.scope import OTHER_RELEASES
from expunge.registry import Registry, Request, rebuild_journal
from tests.registries import (
    BUDGET,
    before_each,
    by_name,
    data,
    data_without,
    dump_of,
    estimator,
    is_sound,
    lose_database,
    private_model_of,
    reading,
    registry_at,
    require_consistent,
    retrained,
)
from tests.registries import put_back as put_back_database
from tests.thorough import either
from tests.users import killed_at

ONE = "a" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a registry that was copied after one request."""
    folder = tmp_path / "registry"
    with registry_at(folder) as registry:
        registry.forget(["person 1"])
    shutil.copytree(folder, tmp_path / "backup")
    return folder


def put_back(folder: Path, backup: Path, *names: str) -> None:
    for name in names:
        shutil.copy(backup / name, folder / name)


def has_request(registry: Registry, request: str) -> bool:
    try:
        return bool(registry.requests.status(request))
    except UnknownRequest:
        return False


def untouched(folder: Path) -> dict[str, bytes]:
    """Return the files that a refused backup must leave as they are."""
    names = ("expunge.db", "keys/sealing", "journal")
    files = [*(folder / name for name in names), *(folder / "checkpoints").iterdir()]
    return {str(path): path.read_bytes() for path in files}


class TestNobodyComesBack:
    def test_after_a_lost_database(self, folder: Path, tmp_path: Path) -> None:
        with Registry.open(folder) as registry:
            receipts = {
                json.loads(text)["entry"]["request"]: text
                for text in (
                    registry.forget(["person 2"]),
                    registry.forget(["person 3"]),
                )
            }
            waiting = Request(("person 4",))
            registry.requests.accept([waiting])
            size = registry.status().ledger_size
            export = registry.ledger.export()
        lose_database(folder)
        with Registry.restore(folder, tmp_path / "backup") as registry:
            names = [f"person {i}" for i in (1, 2, 3)]
            assert set(registry.requests.find_models(names).values()) == {()}
            for request, text in receipts.items():
                assert registry.requests.receipt(request) == text
            assert registry.ledger.export().startswith(export)
            assert registry.requests.status(waiting.request).stage == "accepted"
            registry.requests.apply()
            assert registry.requests.find_models(["person 4"]) == {"person 4": ()}
            custody = private_model_of(registry, "all")
            gap = custody.answer.draft.theta - retrained([*names, "person 4"])
            assert np.linalg.norm(gap) <= custody.answer.radius.value
            read_metadata = next(
                e for e in registry.ledger.entries(size) if isinstance(e, Restored)
            )
            assert read_metadata.n_replayed == 2
            require_consistent(registry)

    def test_a_database_put_back_by_hand_is_refused(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        put_back(folder, tmp_path / "backup", "expunge.db")
        with pytest.raises(NeedsRestore, match="put back from a backup"):
            Registry.open(folder)
        put_back(folder, tmp_path / "backup", "keys/sealing")
        with pytest.raises(NeedsRestore, match="put back from a backup"):
            Registry.open(folder)
        with Registry.restore(folder, tmp_path / "backup") as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}

    def test_twice_from_the_same_backup(self, folder: Path, tmp_path: Path) -> None:
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        Registry.restore(folder, tmp_path / "backup").close()
        with Registry.open(folder) as registry:
            registry.forget(["person 3"])
            numbers = [model.number for model in registry.status().models]
        with Registry.restore(folder, tmp_path / "backup") as registry:
            assert set(
                registry.requests.find_models(["person 2", "person 3"]).values()
            ) == {()}
            assert [m.number for m in registry.status().models] == [
                number + 1 for number in numbers
            ]
            require_consistent(registry)

    def test_a_backup_that_is_not_older(self, folder: Path, tmp_path: Path) -> None:
        with Registry.restore(folder, tmp_path / "backup") as registry:
            assert registry.requests.find_models(["person 1"]) == {"person 1": ()}
            registry.forget(["person 2"])
            require_consistent(registry)

    def test_after_the_signing_key_was_rotated(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with Registry.open(folder) as registry:
            registry.keys.rotate_signing_key()
            registry.forget(["person 2"])
        with Registry.restore(folder, tmp_path / "backup") as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)

    def test_on_postgresql(self, tmp_path: Path, database_url: str) -> None:
        """The database goes back by its own means, copied row by row here."""
        folder = tmp_path / "registry"
        with registry_at(folder, database_url) as registry:
            registry.forget(["person 1"])
            dump = dump_of(registry)
            shutil.copytree(folder, tmp_path / "backup")
            registry.forget(["person 2"])
        with Registry.open(folder) as registry:
            put_back_database(registry, dump)
        with pytest.raises(NeedsRestore):
            Registry.open(folder)
        with Registry.restore(folder, tmp_path / "backup") as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)


class TestOneBackupAfterAnother:
    """Older and newer ones in turn: every release that was ever made counts."""

    KINDS: ClassVar[dict[str, Any]] = {
        "plain": estimator(),
        "tuned": TunedClassifier(alphas=(1.0, 0.1), budget=BUDGET, folds=3),
    }

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("between", [False, True])
    def test_models_go_on(self, tmp_path: Path, kind: str, between: bool) -> None:
        folder, gone = tmp_path / "registry", ["person 2"]
        with Registry.create(folder) as registry:
            registry.fit("model", self.KINDS[kind], **by_name(data()))
        shutil.copytree(folder, tmp_path / "older")
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        shutil.copytree(folder, tmp_path / "newer")
        for turn, name in enumerate(("older", "newer", "older", "newer", "newer")):
            with Registry.restore(folder, tmp_path / name) as registry:
                if between:
                    gone.append(f"person {turn + 10}")
                    registry.forget(gone[-1:])
                self.require_counted(registry, gone)
        with Registry.open(folder) as registry:
            registry.forget(["person 4"])
            self.require_counted(registry, [*gone, "person 4"])
            registry.models.refit(
                "model", self.KINDS[kind], **by_name(data_without(*gone, "person 4"))
            )
            registry.forget(["person 5"])
            require_consistent(registry)

    def require_counted(self, registry: Registry, gone: list[str]) -> None:
        """See that store, ledger and account speak of the same releases."""
        made = [
            entry.certificate
            for entry in registry.ledger.entries()
            if isinstance(entry, ModelRegistered | ReleaseMade)
        ]
        (model,) = registry.status().models
        private = private_model_of(registry, "model")
        certificate = registry.model("model").certificate_
        assert certificate.n_releases == private.accountant.n_releases == len(made)
        assert (model.number, certificate.digest()) == (len(made), made[-1])
        assert set(registry.requests.find_models(gone).values()) == {()}
        assert verify(certificate, registry.models.record("model")).valid
        require_consistent(registry)

    def test_one_that_may_not_be_released_again_is_emptied(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / "registry"
        budget = replace(BUDGET, releases=3, sigma=100.0)
        with Registry.create(folder) as registry:
            registry.fit("model", estimator(budget=budget), **by_name(data()))
        shutil.copytree(folder, tmp_path / "older")
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        shutil.copytree(folder, tmp_path / "newer")
        Registry.restore(folder, tmp_path / "older").close()
        with Registry.restore(folder, tmp_path / "newer") as registry:
            (model,) = registry.status().models
            assert (model.number, model.n_people) == (3, 0)
            require_consistent(registry)


class TestKilled:
    """At calls to the system, by a signal that nobody can catch."""

    @pytest.mark.parametrize("rebuilt", [False, True])
    def test_anywhere(self, folder: Path, tmp_path: Path, rebuilt: bool) -> None:
        backup, journal = tmp_path / "backup", folder / "journal"
        with Registry.open(folder) as registry:
            receipt = registry.forget(["person 2"], ONE)
        if rebuilt:
            journal.write_bytes(journal.read_bytes()[:-9])
            assert rebuild_journal(folder) == 0
        latest = Path(shutil.copytree(folder, tmp_path / "latest"))
        place = 0
        while killed_at(place, lambda: Registry.restore(folder, backup).close()):
            try:
                Registry.open(folder).close()
            except ExpungeError:
                Registry.restore(folder, backup).close()
            with Registry.open(folder) as registry:
                assert registry.requests.receipt(ONE) == receipt
                assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
                require_consistent(registry)
            assert not list(folder.rglob(".*"))
            shutil.rmtree(folder)
            shutil.copytree(latest, folder)
            place += either(31, thorough=7)
        assert place > 60


class TestOthersAtWork:
    def test_requests_that_arrive_meanwhile_are_carried_out(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        sender = Registry.open(folder)
        sent = Request(("person 3",))
        with ThreadPoolExecutor(1) as threads:
            waiting: list[Future[str]] = []

            def send(done: int, total: int) -> None:
                if done == 1:  # all is read, and nothing replaced
                    sender.requests.accept([sent])
                    waiting.append(threads.submit(sender.forget, ["person 4"], ONE))
                    while not has_request(sender, ONE):
                        sleep(0.01)

            with Registry.restore(folder, tmp_path / "backup", on_progress=send) as now:
                assert has_request(now, sent.request)
                assert waiting[0].result() == now.requests.receipt(ONE)
                now.requests.apply()
                assert now.requests.receipt(sent.request)
                people = ["person 2", "person 3", "person 4"]
                assert set(now.requests.find_models(people).values()) == {()}
                require_consistent(now)
        sender.close()

    def test_the_log_of_the_old_database_is_not_taken_for_the_new_ones(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another process opens the old one right before it is replaced."""
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        sent = [Request((f"person {i}",)) for i in range(20, 40)]
        senders = []

        def send() -> None:
            senders.append(Registry.open(folder))
            senders[-1].requests.accept(sent)

        with (
            before_each("erasing the replaced database", send),
            Registry.restore(folder, tmp_path / "backup") as now,
        ):
            assert len(senders) == 1
            assert now.requests.find_models(["person 2"]) == {"person 2": ()}
            now.requests.apply()
            assert all(now.requests.receipt(one.request) for one in sent)
            require_consistent(now)
            assert is_sound(now)
        senders[0].close()

    @pytest.mark.parametrize("replaced", [True, False])
    def test_a_look_at_a_database_that_is_being_replaced_is_busy(
        self, folder: Path, tmp_path: Path, replaced: bool
    ) -> None:
        shutil.copy(folder / "expunge.db", tmp_path / "new")
        with Registry.open(folder) as registry:
            with pytest.raises(Busy if replaced else StoreFailed), reading(registry):
                if replaced:
                    os.replace(tmp_path / "new", folder / "expunge.db")
                raise sqlite3.DatabaseError("database disk image is malformed")


class TestFoldersAmongCheckpoints:
    def test_are_left_alone(self, folder: Path, tmp_path: Path) -> None:
        """A disk of its own has one for what was lost and found."""
        (tmp_path / "backup/checkpoints/lost+found").mkdir()
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        with Registry.restore(folder, tmp_path / "backup") as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)


class TestTheContract:
    def test_releases_that_were_lost_still_count(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"
        contract = replace(BUDGET, releases=4, sigma=100.0)
        with Registry.create(folder) as registry:
            registry.fit("model", estimator(budget=contract), **by_name(data()))
        shutil.copytree(folder, tmp_path / "backup")
        with Registry.open(folder) as registry:
            registry.forget(["person 1"])
            registry.forget(["person 2"])
        with Registry.restore(folder, tmp_path / "backup") as registry:
            assert registry.model("model").certificate_.n_releases == 4
            with pytest.raises(ScheduleExhausted):
                registry.forget(["person 3"])
            require_consistent(registry)

    def test_a_second_restore_knows_what_the_first_released(
        self, tmp_path: Path
    ) -> None:
        folder, backup = tmp_path / "registry", tmp_path / "backup"
        contract = replace(BUDGET, releases=3, sigma=100.0)
        with Registry.create(folder) as registry:
            registry.fit("model", estimator(budget=contract), **by_name(data()))
        shutil.copytree(folder, backup)
        with Registry.open(folder) as registry:
            registry.forget(["person 1"])
        Registry.restore(folder, backup).close()
        with Registry.restore(folder, backup) as registry:
            (model,) = registry.status().models
            assert (model.number, model.estimator) == (3, "")
            require_consistent(registry)

    def test_a_model_that_may_not_be_released_again_is_given_up(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / "registry"
        contract = replace(BUDGET, releases=2, sigma=100.0)
        with Registry.create(folder) as registry:
            registry.fit("model", estimator(budget=contract), **by_name(data()))
        shutil.copytree(folder, tmp_path / "backup")
        with Registry.open(folder) as registry:
            registry.forget(["person 1"])
        with Registry.restore(folder, tmp_path / "backup") as registry:
            assert registry.requests.find_models(["person 1", "person 2"]) == {
                "person 1": (),
                "person 2": (),
            }
            (model,) = registry.status().models
            assert (model.estimator, model.n_people, model.number) == ("", 0, 2)
            for look in (registry.model, registry.models.record, registry.models.case):
                with pytest.raises(ScheduleExhausted, match="fit it again"):
                    look("model")
            rest = data_without("person 1")
            registry.models.refit("model", estimator(budget=contract), **by_name(rest))
            paper = registry.model("model").certificate_
            assert OTHER_RELEASES in paper.not_covered
            registry.forget(["person 3"])
            require_consistent(registry)

    def test_shipments_and_withdrawals_come_back(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with Registry.open(folder) as registry:
            registry.models.ship("all", tmp_path / "one.safetensors")
            registry.models.ship("half", tmp_path / "two.safetensors")
            registry.forget(["person 2"])
            registry.models.withdraw("half", 2)
            before = registry.status().outstanding
        with Registry.restore(folder, tmp_path / "backup") as registry:
            after = registry.status().outstanding
        assert [(one.model, one.number) for one in after] == [("all", 2)]
        assert [one.shipped for one in after] == [one.shipped for one in before]


class TestWithoutAJournal:
    def test_a_registry_that_has_none_yet_comes_back(self, tmp_path: Path) -> None:
        Registry.create(tmp_path / "registry").close()
        shutil.copytree(tmp_path / "registry", tmp_path / "backup")
        with Registry.restore(tmp_path / "registry", tmp_path / "backup") as registry:
            require_consistent(registry)

    def test_one_that_lost_it_is_refused(self, folder: Path, tmp_path: Path) -> None:
        """Its newest copy may be that in the backup."""
        lose_database(folder)
        for name in ("journal", "journal.mark"):
            (folder / name).unlink()
        with pytest.raises(JournalDamaged, match="is missing"):
            Registry.restore(folder, tmp_path / "backup")
        put_back(folder, tmp_path / "backup", "journal")
        with Registry.restore(folder, tmp_path / "backup") as registry:
            require_consistent(registry)


class TestRefusals:
    def test_a_lost_database_is_not_made_anew(self, folder: Path) -> None:
        lose_database(folder)
        for call in (Registry.open, Registry.create):
            with pytest.raises(NeedsRestore, match="lost"):
                call(folder)
        assert not list(folder.glob("expunge.db*"))

    def test_a_database_from_before_a_fit_is_not_opened(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with Registry.open(folder) as registry:
            registry.models.refit(
                "half", estimator(), **by_name(data_without("person 1"))
            )
        put_back(folder, tmp_path / "backup", "expunge.db", "keys/sealing")
        for call in (Registry.open, Registry.create):
            with pytest.raises(NeedsRestore, match="put back from a backup"):
                call(folder)

    def test_a_backup_whose_checkpoints_cannot_be_read(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that no model needs, even: everything is read before it is replaced."""
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        bad = tmp_path / "backup/checkpoints/all.999"
        bad.write_bytes(b"noise")
        real = Path.read_bytes

        def read_bytes(path: Path) -> bytes:
            if path == bad:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return real(path)

        before = untouched(folder)
        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        with pytest.raises(StoreFailed, match="cannot be used"):
            Registry.restore(folder, tmp_path / "backup")
        monkeypatch.undo()
        assert untouched(folder) == before
        assert not list(folder.glob(".*"))

    def test_a_backup_without_keys(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "backup/keys/sealing").unlink()
        with pytest.raises(InvalidInput, match="keys/sealing"):
            Registry.restore(folder, tmp_path / "backup")
        Registry.open(folder).close()

    def test_a_folder_where_the_file_of_keys_belongs(
        self, folder: Path, tmp_path: Path
    ) -> None:
        keys = folder / "keys/sealing"
        keys.rename(tmp_path / "sealing")
        keys.mkdir()
        database = (folder / "expunge.db").read_bytes()
        with pytest.raises(StoreFailed, match="move it away"):
            Registry.restore(folder, tmp_path / "backup")
        assert (folder / "expunge.db").read_bytes() == database
        keys.rmdir()
        (tmp_path / "sealing").rename(keys)
        Registry.open(folder).close()

    def test_itself(self, folder: Path) -> None:
        before = untouched(folder)
        with pytest.raises(InvalidInput, match="is the registry itself"):
            Registry.restore(folder, folder)
        assert untouched(folder) == before

    def test_a_backup_without_a_database(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "backup/expunge.db").unlink()
        with pytest.raises(InvalidInput, match=r"expunge\.db"):
            Registry.restore(folder, tmp_path / "backup")
        Registry.open(folder).close()

    def test_a_backup_from_before_a_fit(self, folder: Path, tmp_path: Path) -> None:
        with Registry.open(folder) as registry:
            registry.fit("third", estimator(), **by_name(data_without("person 1")))
        before = untouched(folder)
        with pytest.raises(InvalidInput, match="older than the fit of third"):
            Registry.restore(folder, tmp_path / "backup")
        assert untouched(folder) == before

    def test_a_backup_of_another_registry(self, folder: Path, tmp_path: Path) -> None:
        with registry_at(tmp_path / "other") as other:
            other.forget(["person 5"])
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        before = untouched(folder)
        with pytest.raises(LedgerCorrupt, match="not of the same registry"):
            Registry.restore(folder, tmp_path / "other")
        assert untouched(folder) == before

    def test_an_altered_journal(self, folder: Path, tmp_path: Path) -> None:
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
            registry.forget(["person 3"])
        journal = folder / "journal"
        altered = journal.read_text().replace(
            '\\"n_subjects\\":1', '\\"n_subjects\\":2'
        )
        journal.write_text(altered)
        with pytest.raises(StoreFailed, match="damaged at byte"):
            Registry.restore(folder, tmp_path / "backup")


def test_the_ledger_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    """Heads that others hold from before the loss agree with it afterwards."""
    with Registry.open(folder) as registry:
        receipt = json.loads(registry.forget(["person 2"]))
    from expunge.ledger import Head

    head = Head.from_json(json.dumps(receipt["head"], separators=(",", ":")))
    with Registry.restore(folder, tmp_path / "backup") as registry:
        verdict = check_export(
            registry.ledger.export(), registry.keys.public_pem(), seen=[head]
        )
    assert verdict.valid, verdict.says


def test_requests_that_come_during_a_restore_are_carried_out_after_it(
    folder: Path, tmp_path: Path
) -> None:
    """The log alone has them meanwhile; and none is taken for another one."""
    asked = [Request((f"person {n}",)) for n in range(13, 19)]
    left = iter(asked)

    def send(done: int, total: int) -> None:
        """Once before the database is replaced, and then before it is complete."""
        if done == 0:
            return
        one = next(left)
        (status,) = sender.requests.accept([one])
        assert status.stage == "accepted"
        if done == 3:  # under way
            other = Request(("person 20",), one.request)
            with pytest.raises((Busy, RequestConflict)):
                sender.requests.accept([other])

    with Registry.open(folder) as sender:
        for n in (11, 12):
            sender.forget([f"person {n}"])
        Registry.restore(folder, tmp_path / "backup", on_progress=send).close()
        waiting = [*left]
        for one in asked[: len(asked) - len(waiting)]:
            assert sender.requests.status(one.request).stage != "cancelled"
        sender.requests.apply()
        held = sender.requests.find_models([f"person {n}" for n in range(11, 21)])
        gone = {name for name, models in held.items() if not models}
        sent = {one.subjects[0] for one in asked} - {one.subjects[0] for one in waiting}
        assert len(sent) >= 3 and gone == {"person 11", "person 12", *sent}
        require_consistent(sender)
