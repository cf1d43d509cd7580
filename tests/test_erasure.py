# SPDX-License-Identifier: Apache-2.0
"""What was forgotten is gone from disk: rows, ids, tags and the keys that sealed them.

SQLite's files must hold none of it. PostgreSQL keeps deleted pages and its log, so
there the sealed bytes may stay and every key to them must be destroyed.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from expunge.exceptions import Busy, NeedsRestore
from expunge.registry import Registry
from tests.postgres import Missing, Server, connect
from tests.registries import (
    N_PEOPLE,
    ask,
    beginnings,
    by_name,
    crash_at,
    data,
    estimator,
    everything,
    found,
    keys_to_rows,
    leftovers_of,
    live_keys,
    reading,
    registry_at,
    rows_that_open,
    sealed_rows,
    spelled,
    state_key,
    states_that_open,
    tags_of,
    traces_of_rows,
    unused_keys,
)
from tests.stores import without_postgres

PERSON, MODELS = "person 3", ("all", "half")


def keys_of(registry: Registry, name: str) -> tuple[list[bytes], list[bytes]]:
    """Return the keys to a person's rows, and those to the states of the models."""
    of_rows = [key for one in MODELS for key in keys_to_rows(registry, name, one)]
    return of_rows, [state_key(registry, one) for one in MODELS]


def sealed_of_person(registry: Registry) -> list[bytes]:
    """Return the sealed rows of the person, to look for them."""
    return beginnings(
        [one for model in MODELS for one in sealed_rows(registry, PERSON, model)]
    )


class TestSqlite:
    @pytest.fixture
    def registry(self, tmp_path: Path) -> Iterator[Registry]:
        with registry_at(tmp_path / "registry") as registry:
            yield registry

    def test_nothing_of_the_person_is_left(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        folder = tmp_path / "registry"
        (kept_tag,) = tags_of(registry, "person 4")
        (tag,) = tags_of(registry, PERSON)
        of_rows, of_state = keys_of(registry, PERSON)
        before = everything(folder)
        # The search itself can find: the tag, and the key of the checkpoint.
        assert found([tag.encode()], before) and found(spelled(of_state), before)
        sealed = sealed_of_person(registry)
        assert found(sealed, before)

        registry.forget([PERSON])
        after = everything(folder)
        assert not found(traces_of_rows(PERSON), after)
        assert not found([PERSON.encode()], after)
        assert not found(spelled(of_rows + of_state), after)
        assert not found(sealed, after)  # secure_delete, and the log is cut
        journal = str(folder / "journal")
        assert found([tag.encode()], after) == [journal]  # as documented
        assert str(folder / "expunge.db") in found([kept_tag.encode()], after)

    def test_rows_are_never_there_in_the_clear(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        files = everything(tmp_path / "registry")
        assert not found(traces_of_rows("person 7"), files)
        assert not found([b"person 7"], files)

    def test_a_reader_holds_up_completion_and_not_the_request(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        with Registry.open(tmp_path / "registry") as other:
            with reading(other):
                with pytest.raises(Busy, match="finishes the erasure"):
                    registry.forget([PERSON], wait=0.2)
                (pending,) = registry.status().pending
                assert pending.stage == "applied"
                assert registry.requests.receipt(pending.request) is None
            other.requests.apply()
        assert registry.requests.status(pending.request).stage == "completed"
        assert (tmp_path / "registry/expunge.db-wal").stat().st_size < 200_000


@pytest.mark.slow
def test_postgresql_keeps_bytes_and_no_key_to_them(tmp_path: Path) -> None:
    try:
        server = Server()
    except Missing as reason:
        without_postgres(reason)
    with server:
        folder = tmp_path / "registry"
        with registry_at(folder, server.database()) as registry:
            of_rows, of_state = keys_of(registry, PERSON)
            sealed = sealed_of_person(registry)
            registry.forget([PERSON])
            registry.forget(["person 5"])
        with connect(server.url) as session:
            session.execute("CHECKPOINT")
        files = everything(folder, Path(server.folder))
    assert found(sealed, files)  # the server does keep them
    assert not found(traces_of_rows(PERSON), files)
    assert not found([PERSON.encode()], files)
    assert not found(spelled(of_rows + of_state), files)


class TestAnOldCopy:
    """Of the database, with the keys of today: what was forgotten stays unreadable."""

    def test_opens_no_rows_of_the_person_and_no_state_of_before(
        self, tmp_path: Path
    ) -> None:
        folder, old = tmp_path / "registry", tmp_path / "old"
        with registry_at(folder) as registry:
            before = state_key(registry, "all")
        shutil.copytree(folder, old)
        with Registry.open(folder) as registry:
            registry.forget([PERSON])
        assert PERSON in owners_of_open_rows(old)
        shutil.copy(folder / "keys/sealing", old / "keys/sealing")
        open_now = owners_of_open_rows(old)
        assert PERSON not in open_now and "person 4" in open_now
        assert not [*states_that_open(old)]
        assert before not in live_keys(folder).values()
        with pytest.raises(NeedsRestore, match="is destroyed"):
            Registry.open(old)

    def test_of_the_keys_is_refused_until_the_new_ones_are_back(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / "registry"
        keys = folder / "keys/sealing"
        with registry_at(folder) as registry:
            before = keys.read_bytes()
            ask(registry, "restrict", PERSON)
            middle = keys.read_bytes()
            ask(registry, "erase", PERSON)  # no key is made, and two are destroyed
        newest = keys.read_bytes()
        assert len(newest) == len(middle)
        for older in (before, middle):
            keys.write_bytes(older)
            with pytest.raises(NeedsRestore, match="is older than the database"):
                Registry.open(folder)
        keys.write_bytes(newest)
        with Registry.open(folder) as registry:
            registry.forget(["person 5"])

    def test_of_the_keys_from_before_they_were_counted_is_destroyed_again(
        self, tmp_path: Path
    ) -> None:
        """It was put back in the moment between a destruction and its commit."""
        folder = tmp_path / "registry"
        keys = folder / "keys/sealing"
        with registry_at(folder) as registry:
            of_rows, _ = keys_of(registry, PERSON)
            ask(registry, "restrict", PERSON)
            before = keys.read_bytes()
            with crash_at("stating"):
                ask(registry, "erase", PERSON)
        keys.write_bytes(before)
        assert {*of_rows} <= {*live_keys(folder).values()}
        with Registry.open(folder) as registry:
            registry.requests.apply()
        assert not {*of_rows} & {*live_keys(folder).values()}


@pytest.mark.parametrize(
    ("point", "late"),
    [
        ("making a key", True),
        ("writing keys", False),
        ("writing a checkpoint", True),
        ("committing", False),
        ("committing", True),
        ("destroying keys", False),
        ("destroying keys", True),
        ("deleting files of destroyed keys", False),
        ("stating", False),
        ("stating", True),
    ],
)
def test_a_crash_leaves_no_key_that_nothing_needs(
    tmp_path: Path, point: str, late: bool
) -> None:
    folder = tmp_path / "registry"
    with registry_at(folder) as registry:
        of_rows, of_state = keys_of(registry, PERSON)
        with crash_at(point, after=late):
            registry.forget([PERSON])
    with Registry.open(folder) as registry:
        registry.requests.apply()
        assert not unused_keys(registry)
        assert not {*of_rows, *of_state} & {*live_keys(folder).values()}
    assert not [*leftovers_of(folder)]


def test_a_restore_destroys_the_keys_that_a_backup_brings_back(tmp_path: Path) -> None:
    folder, backup = tmp_path / "registry", tmp_path / "backup"
    with registry_at(folder) as registry:
        of_rows, of_state = keys_of(registry, PERSON)
    shutil.copytree(folder, backup)
    with Registry.open(folder) as registry:
        registry.forget([PERSON])
        last = max(live_keys(folder))
    shutil.copy(backup / "expunge.db", folder / "expunge.db")
    with Registry.restore(folder, backup) as registry:
        assert not unused_keys(registry)
    live = live_keys(folder)
    assert not {*of_rows, *of_state} & {*live.values()}
    assert max(live) > last  # no number is used twice
    assert not [*leftovers_of(folder)]


def test_a_crash_of_a_fit_leaves_no_key(tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    with registry_at(folder) as registry:
        with crash_at("writing a checkpoint", after=True):
            registry.models.refit("all", estimator(), **by_name(data()))
        assert len(unused_keys(registry)) == N_PEOPLE + 1
    with Registry.open(folder) as registry:
        registry.forget([PERSON])
        assert not unused_keys(registry)
    assert not [*leftovers_of(folder)]


def owners_of_open_rows(folder: Path) -> set[str]:
    """Return whose rows the keys in a folder open."""
    people = [f"person {n}" for n in range(N_PEOPLE)]
    names = {tag: one for one in people for tag in tags_of(folder, one)}
    return {names[one.tag] for one in rows_that_open(folder)}
