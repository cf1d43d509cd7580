# SPDX-License-Identifier: Apache-2.0
"""The worker's lock is lost while its holder lives on: no harm comes of it."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from expunge.exceptions import Busy, ExpungeError, StoreFailed
from expunge.registry import Registry, Request
from tests.registries import (
    before,
    before_each,
    by_name,
    crash_at,
    data_without,
    dump_of,
    estimator,
    forget_loaded_models,
    is_on_sqlite,
    lose_lock,
    lose_sessions,
    private_model_of,
    put_back,
    read_only_server,
    registry_at,
    require_consistent,
    set_patience,
    without_fences,
    working,
    writing_in_turn,
)

ONE, OTHER = "a" * 32, "b" * 32
REST = data_without("person 1", "person 2", "person 3")
# Where a worker is overtaken.
POINTS = (
    "catching up",
    "writing a checkpoint",
    "committing",
    "erasing",
    "destroying keys",
    "stating",
)


@pytest.fixture
def folder(registry: Registry, tmp_path: Path) -> Path:
    """Return a registry that forgot person 1 and was copied to ``backup`` then."""
    registry.forget(["person 1"])
    shutil.copytree(tmp_path / "registry", tmp_path / "backup")
    return tmp_path / "registry"


class TestOvertaken:
    @pytest.mark.parametrize("place", POINTS)
    def test_while_forgetting(
        self, registry: Registry, folder: Path, place: str
    ) -> None:
        """Both have work to do, and each is done once."""
        receipts: dict[str, str] = {}

        def second_works() -> None:
            lose_lock(second)
            receipts[OTHER] = second.forget(["person 3"], OTHER)

        with Registry.open(folder) as second, before(place, second_works):
            try:
                receipts[ONE] = registry.forget(["person 2"], ONE)
            except ExpungeError as error:
                assert isinstance(error, Busy | StoreFailed), error
        assert OTHER in receipts
        if place == "writing a checkpoint":  # what was computed in vain must not stay
            there = [path.name for path in (folder / "checkpoints").iterdir()]
            assert sum(name.startswith("all.") for name in there) == 1, there
        self.require_done(folder, receipts)

    def test_in_the_middle_of_a_transaction(
        self, tmp_path: Path, database_url: str
    ) -> None:
        """All sessions end at once, and the journal alone can tell who was first."""
        folder = tmp_path / "registry"
        registry = registry_at(folder, database_url)
        registry.forget(["person 1"])
        shutil.copytree(folder, tmp_path / "backup")
        dump = dump_of(registry)
        receipts: dict[str, str] = {}

        def second_works() -> None:
            lose_sessions(second)
            receipts[OTHER] = second.forget(["person 3"], OTHER)

        with (
            Registry.open(folder) as second,
            before("stating", second_works),
        ):
            # Or the receipt, which the other made.
            with suppress(Busy, StoreFailed):
                receipts[ONE] = registry.forget(["person 2"], ONE)
        self.require_done(folder, receipts)
        put_back(registry, dump)
        registry.close()
        with Registry.restore(folder, folder.with_name("backup")) as restored:
            assert restored.requests.receipt(OTHER) == receipts[OTHER]
            require_consistent(restored)

    @pytest.mark.parametrize(
        "what", ["fit", "refit", "remove", "reanchor", "ship", "rotate"]
    )
    def test_while_something_else_is_done(
        self, registry: Registry, folder: Path, what: str, tmp_path: Path
    ) -> None:
        receipts: dict[str, str] = {}

        def second_works() -> None:
            lose_lock(second)
            receipts[OTHER] = second.forget(["person 3"], OTHER)

        steps: dict[str, tuple[str, Callable[[], object]]] = {
            "fit": (
                "asking who may be in a fit",
                lambda: registry.fit("third", estimator(), **by_name(REST)),
            ),
            "refit": (
                "asking who may be in a fit",
                lambda: registry.models.refit("half", estimator(), **by_name(REST)),
            ),
            "remove": ("finding a model", lambda: registry.models.remove("half")),
            "reanchor": (
                "writing a checkpoint",
                lambda: registry.models.reanchor("all"),
            ),
            "ship": (
                "finding a model",
                lambda: registry.models.ship("all", tmp_path / "m.safetensors"),
            ),
            "rotate": ("stating a signing key", registry.keys.rotate_signing_key),
        }
        point, step = steps[what]
        with Registry.open(folder) as second, before(point, second_works):
            with pytest.raises((Busy, StoreFailed)):
                step()
        self.require_done(folder, receipts)

    def test_a_key_that_is_about_to_sign_is_not_destroyed(
        self, registry: Registry, folder: Path
    ) -> None:
        """Another process tidies up while a rotation is about to be stated."""

        def second_works() -> None:
            lose_lock(second)
            second.requests.apply()

        with (
            Registry.open(folder) as second,
            before("stating a signing key", second_works),
        ):
            with pytest.raises((Busy, StoreFailed)):
                registry.keys.rotate_signing_key()
        self.require_done(folder, {})

    def test_a_key_that_was_taken_for_a_leftover_signs_nothing(
        self, registry: Registry, folder: Path
    ) -> None:
        """Another process tidies the new key away, and does nothing else."""

        def tidy() -> None:
            max((folder / "keys").glob("signing-*.pem")).unlink()

        with before("stating a signing key", tidy):
            with pytest.raises(Busy, match="run the command again"):
                registry.keys.rotate_signing_key()
        registry.keys.rotate_signing_key()
        self.require_done(folder, {})

    def require_done(self, folder: Path, receipts: dict[str, str]) -> None:
        """See that all is finished, that it is right, and that a backup comes back."""
        with Registry.open(folder) as registry:
            for request, person in ((ONE, "person 2"), (OTHER, "person 3")):
                handed = receipts.get(request)
                assert registry.forget([person], request) == (
                    handed or registry.requests.receipt(request)
                )
            assert private_model_of(registry, "all").n_removed == 6
            known = registry.requests.find_models([f"person {n}" for n in (1, 2, 3)])
            assert set(known.values()) == {()}
            require_consistent(registry)
            final = {one: registry.requests.receipt(one) for one in (ONE, OTHER)}
            sqlite = is_on_sqlite(registry)
        assert not list(folder.rglob(".*"))
        if sqlite:
            with Registry.restore(folder, folder.with_name("backup")) as registry:
                assert {one: registry.requests.receipt(one) for one in final} == final
                require_consistent(registry)


def test_a_request_refused_to_a_read_only_role_is_not_carried_out_later(
    tmp_path: Path, database_url: str
) -> None:
    folder = tmp_path / "registry"
    with registry_at(folder, database_url) as registry:
        registry.forget(["person 1"])
        journal = (folder / "journal").read_bytes()
        with read_only_server(registry), Registry.open(folder) as reader:
            assert reader.status().n_completed == 1
            changes: list[Callable[[], object]] = [
                lambda: reader.forget(["person 2"], ONE),
                lambda: reader.models.ship("all", tmp_path / "m.safetensors"),
                lambda: reader.requests.readmit(["person 1"]),
                lambda: reader.fit("third", estimator(), **by_name(REST)),
            ]
            for change in changes:
                with pytest.raises(StoreFailed):
                    change()
        assert (folder / "journal").read_bytes() == journal
        assert not (tmp_path / "m.safetensors").exists()
    with Registry.open(folder) as registry:
        registry.requests.apply()
        assert registry.requests.find_models(["person 2"]) == {
            "person 2": ("all", "half")
        }
        require_consistent(registry)


def test_many_senders_of_one_request_all_get_its_status(
    registry: Registry, folder: Path
) -> None:
    """Each attempt to accept finds that somebody else was faster, several times."""
    asked = [Request((f"person {n}",), f"{n:032x}") for n in range(2, 7)]
    senders = iter(asked[:-1])
    with Registry.open(folder) as other:

        def meanwhile() -> None:
            for one in islice(senders, 1):
                other.requests.accept([one])

        with before_each("dating a request", meanwhile):
            statuses = registry.requests.accept(asked)
    assert [one.request for one in statuses] == [one.request for one in asked]
    registry.requests.apply()
    require_consistent(registry)


def test_a_request_sent_under_a_new_key_is_the_same_request(
    registry: Registry, folder: Path
) -> None:
    """Another process rotates the key of tags and sends it, at the same time."""
    asked = Request(("person 2",), ONE)

    def second_sends() -> None:
        second.keys.rotate_tag_key()
        second.requests.accept([asked])

    with Registry.open(folder) as second, before("accepting", second_sends):
        (status,) = registry.requests.accept([asked])
    assert status.request == ONE and status.n_subjects == 1


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_person_who_gets_another_tag_meanwhile_is_forgotten(
    registry: Registry, folder: Path, when: str
) -> None:
    """The model is fitted again, after the key of tags was rotated."""
    person = "person 40"  # in one of the models alone

    def second_fits() -> None:
        if when == "meanwhile":
            second.keys.rotate_tag_key()
        second.models.refit("all", estimator(), **by_name(REST))

    with Registry.open(folder) as second:
        if when == "before":
            second.keys.rotate_tag_key()
        with before("finding people", second_fits):
            receipt = json.loads(registry.forget([person], ONE))
    assert [*receipt["entry"]["certificates"]] == ["all"]
    assert registry.requests.find_models([person]) == {person: ()}


def test_a_process_that_hangs_in_a_transaction_does_not_hold_up_others_for_ever(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_patience(monkeypatch, 0.1)
    with registry_at(tmp_path / "registry", database_url) as registry:
        with Registry.open(tmp_path / "registry") as second:
            with writing_in_turn(registry):
                with pytest.raises(Busy, match="another process holds the database"):
                    second.forget(["person 3"], OTHER)
            assert second.forget(["person 3"], OTHER)
            require_consistent(second)


def test_a_transaction_ends_with_the_session_that_holds_the_lock(
    tmp_path: Path, database_url: str
) -> None:
    with registry_at(tmp_path / "registry", database_url) as registry:
        with Registry.open(tmp_path / "registry") as second:
            with (
                pytest.raises((Busy, StoreFailed)),
                working(registry),
                writing_in_turn(registry),
            ):
                lose_lock(second)
                assert second.forget(["person 3"], OTHER)
            require_consistent(second)
        assert registry.forget(["person 4"], ONE)


def test_a_request_that_another_process_answers_meanwhile_is_found(
    registry: Registry, folder: Path
) -> None:
    """It was not there at the first look, and at the second its people are gone."""

    def second_forgets() -> None:
        with suppress(Busy):  # SQLite erases nothing while somebody still reads
            second.forget(["person 2"], ONE, wait=0.2)

    with Registry.open(folder) as second, before("finding tags", second_forgets):
        receipt = registry.forget(["person 2"], ONE)
    assert receipt == registry.requests.receipt(ONE)
    require_consistent(registry)


def test_nothing_is_called_done_that_another_process_is_still_doing(
    registry: Registry, folder: Path
) -> None:
    """It applied the request after we looked, and did not complete it yet."""
    registry.requests.accept([Request(("person 2",), ONE)])

    def second_applies() -> None:
        lose_lock(second)
        with crash_at("erasing"):
            second.requests.apply()

    with Registry.open(folder) as second, before("tidying keys", second_applies):
        with pytest.raises((Busy, StoreFailed)):
            registry.requests.apply()
    registry.requests.apply()
    assert registry.requests.receipt(ONE) is not None
    require_consistent(registry)


def test_what_fails_for_being_overtaken_is_told_as_such(
    tmp_path: Path, database_url: str
) -> None:
    """The key of the checkpoint that it was about to read is destroyed by now."""
    folder = tmp_path / "registry"

    def second_works() -> None:
        lose_lock(second)
        second.forget(["person 3"], OTHER)

    with registry_at(folder, database_url) as registry:
        forget_loaded_models(registry)
        with (
            Registry.open(folder) as second,
            before("reading a checkpoint", second_works),
        ):
            with pytest.raises(Busy, match="another process took over"):
                registry.forget(["person 2"], ONE)
        assert registry.forget(["person 2"], ONE)
        require_consistent(registry)


def test_opening_while_another_process_works_asks_for_no_restore(
    tmp_path: Path, database_url: str
) -> None:
    """Between two looks a request is done, and the key of the first look is gone."""
    folder = tmp_path / "registry"
    with registry_at(folder, database_url) as registry:
        with before(
            "finding the keys of checkpoints",
            lambda: registry.forget(["person 3"], OTHER),
        ):
            with Registry.open(folder) as second:
                assert second.requests.receipt(OTHER) == registry.requests.receipt(
                    OTHER
                )


def test_threads_of_one_registry_never_work_at_once(
    registry: Registry, folder: Path
) -> None:
    """They share models in memory, whatever becomes of the lock between processes."""
    outcome: list[str] = []

    def try_to_work() -> None:
        try:
            registry.requests.apply(wait=0.2)
            outcome.append("worked")
        except Busy:
            outcome.append("waited")

    def meanwhile() -> None:
        lose_lock(second)
        thread = Thread(target=try_to_work)
        thread.start()
        thread.join()

    with Registry.open(folder) as second, before("committing", meanwhile):
        with suppress(StoreFailed):  # on PostgreSQL the work ends with the lock
            registry.forget(["person 2"], ONE)
    assert outcome == ["waited"]
    assert registry.forget(["person 2"], ONE)
    require_consistent(registry)


class TestRestoring:
    """The lock is lost on the way, and another process opens the registry."""

    def test_anywhere(
        self, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The other one asks from within the restore, which cannot let go meanwhile.
        set_patience(monkeypatch, 0.2)
        folder, latest = tmp_path / "registry", tmp_path / "latest"
        shutil.copytree(template, latest)
        with Registry.open(latest) as registry:
            receipt = registry.forget(["person 2"], ONE)
        place = 0
        while self.was_overtaken(place, latest, folder, template):
            try:
                Registry.open(folder).close()
            except ExpungeError:
                Registry.restore(folder, template).close()
            with Registry.open(folder) as registry:
                assert registry.requests.receipt(ONE) == receipt
                assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
                require_consistent(registry)
            assert not list(folder.rglob(".*"))
            place += 7
        assert place > 30

    def was_overtaken(
        self, place: int, latest: Path, folder: Path, backup: Path
    ) -> bool:
        """Restore, overtaken before a call to the system; return if there are so many.

        Nothing but Busy comes of it.
        """
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(latest, folder)
        left = iter(range(place, -1, -1))

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                if next(left, -1) == 0:
                    (folder / "worker.lock").unlink(missing_ok=True)
                    with suppress(ExpungeError):
                        Registry.open(folder).close()
                return real(*arguments, **options)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for name in ("fsync", "replace", "rename", "link", "unlink", "pwrite"):
                patch.setattr(os, name, counted(getattr(os, name)))
            with suppress(Busy):
                Registry.restore(folder, backup).close()
        return next(left, -1) < 0


@pytest.mark.parametrize("place", POINTS)
def test_without_turns_marks_and_sequences_still_hold(
    registry: Registry, folder: Path, place: str
) -> None:
    """No single fence stands alone: what one lets through, the next one stops."""
    with without_fences():
        TestOvertaken().test_while_forgetting(registry, folder, place)
