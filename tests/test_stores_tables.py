# SPDX-License-Identifier: Apache-2.0
"""What a store keeps in tables, on SQLite and PostgreSQL, and who may write there."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import raises
from sqlalchemy import bindparam, delete, insert, select, text, update
from sqlalchemy.exc import OperationalError

from expunge.exceptions import (
    Busy,
    InvalidInput,
    LedgerCorrupt,
    NeedsRestore,
    OtherSchema,
    StoreFailed,
)
from expunge.ledger import Ledger, ModelRegistered, check_export, open_signing_key
from expunge.ledger.documents import DAY, day_of
from expunge.ledger.ledger import hash_entry
from expunge.ledger.merkle import includes
from expunge.registry import Registry
from expunge.registry.recovery.backup import require_sound_backup
from expunge.registry.request import (
    find_requests,
    insert_requests,
    mark_applied,
    mark_completed,
    read_receipts,
    to_line,
)
from expunge.registry.storage import (
    Keystore,
    Store,
    hold_worker_lock,
    ledger_table,
    people_table,
    releases_table,
    tables,
)
from expunge.registry.storage.engine import Collision, write_exactly
from expunge.registry.storage.keystore import (
    count_made,
    find_unused,
    mark_dead,
    note_shredded,
    read_counts,
    read_dead,
)
from expunge.registry.storage.tables import write_metadata
from tests.registries import set_schema, status_of
from tests.stores import rows_in, store_at


class TestWrites:
    NEW = insert(tables.metadata)
    CHANGE = update(tables.metadata).where(tables.metadata.c.name == bindparam("of"))

    def names(self, store: Store) -> list[str]:
        with store.read() as connection:
            found = connection.scalars(select(tables.metadata.c.name))
            return sorted({*found} - {tables.SCHEMA, tables.MADE})

    @pytest.mark.parametrize("changed", [["a"], ["a", "b"], ["a", "b", "c"]])
    def test_lines_are_counted(self, store: Store, changed: list[str]) -> None:
        rows = [{"of": name, "value": "2"} for name in changed]
        for n in (len(rows) + 1, len(rows)):
            expected = raises(Busy) if n > len(rows) else nullcontext()
            with expected, store.write() as connection:
                for name in "abc":
                    connection.execute(self.NEW, {"name": name, "value": "1"})
                write_exactly(connection, self.CHANGE, rows=rows, n=n, refusal=Busy())
                connection.execute(self.NEW, {"name": "d", "value": "1"})
            assert self.names(store) == ([] if n > len(rows) else [*"abcd"])

    def test_collisions_are_told_as_such(self, store: Store) -> None:
        with raises(Collision), store.write() as connection:
            for name in "aab":
                connection.execute(self.NEW, {"name": name, "value": "1"})
        assert self.names(store) == []


class TestPeople:
    N = 600

    @pytest.fixture
    def enrolled(self, store: Store, keystore: Keystore) -> None:
        """Enrol everybody in "m", and the first five in "n" as well."""
        with store.write() as connection:
            for name, n in (("m", self.N), ("n", 5)):
                new = {"name": name, "created": 0, "number": 1, "key": 0}
                releases_table.insert_model(connection, new)
                people_table.insert_people(
                    connection, keystore, model=name, fit=1, people=self.members(n)
                )

    @pytest.fixture
    def keystore(self, tmp_path: Path) -> Keystore:
        made = Keystore(tmp_path / "sealing")
        made.create()
        return made

    def members(self, n: int) -> list[tuple[str, bytes]]:
        return [(f"tag {number}", b"row %d" % number) for number in range(n)]

    def remove(
        self, store: Store, keystore: Keystore, numbers: Sequence[int]
    ) -> list[people_table.PersonRows]:
        with store.write() as connection:
            found = rows_in(connection, "m", tags=[f"tag {one}" for one in numbers])
            mark_dead(connection, [one.key for one in found])
            people_table.delete_rows(connection, found)
            gone = [one.subject for one in found]
            people_table.delete_unused_tags(connection, gone)
        with store.write() as connection:
            dead = read_dead(connection)
            assert dead == sorted(one.key for one in found)
            note_shredded(connection, dead, count=keystore.shred(dead))
            assert not read_dead(connection)
        return found

    def left(self, store: Store, keystore: Keystore, model: str = "m") -> list[bytes]:
        with store.read() as connection:
            found = people_table.read_rows_in_use(connection, model)
        return [*people_table.unseal_rows_in_use(keystore, model, found=found)]

    @pytest.mark.parametrize(
        "gone", [[300], [0, 255, 256, 599], [*range(256, 512)], [*range(600)]]
    )
    def test_some_go_and_no_key_opens_their_rows(
        self, store: Store, keystore: Keystore, enrolled: None, gone: list[int]
    ) -> None:
        found = self.remove(store, keystore, gone)
        rest = [one for one in range(self.N) if one not in gone]
        assert self.left(store, keystore) == [b"row %d" % one for one in rest]
        assert self.left(store, keystore, "n") == [b"row %d" % one for one in range(5)]
        with pytest.raises(NeedsRestore, match="somebody's rows is destroyed"):
            [*people_table.unseal_rows(keystore, found[-1:])]

    def test_a_person_in_two_models_stays_in_the_other(
        self, store: Store, keystore: Keystore, enrolled: None
    ) -> None:
        self.remove(store, keystore, [3, 7])
        with store.read() as connection:
            assert people_table.models_by_tag(connection, ["tag 3", "tag 7"]) == {
                "tag 3": {"n"}
            }
            assert connection.scalar(people_table.count_people("m")) == self.N - 2
            tags = set(connection.scalars(select(tables.subjects.c.tag)))
            assert "tag 3" in tags and "tag 7" not in tags

    def test_rows_that_are_exchanged_do_not_open(
        self, store: Store, keystore: Keystore, enrolled: None
    ) -> None:
        with store.read() as connection:
            one, other = rows_in(connection, "m", tags=["tag 1", "tag 2"])
            (again,) = rows_in(connection, "n", tags=["tag 1"])
        for changed in (
            replace(one, sealed=other.sealed),
            replace(one, key=other.key, sealed=other.sealed),  # whose they are
            replace(one, key=again.key, sealed=again.sealed),  # of which model
        ):
            with pytest.raises(StoreFailed, match="was altered"):
                [*people_table.unseal_rows(keystore, [changed])]

    def test_clearing_a_model_leaves_the_other_and_what_is_set_aside(
        self, store: Store, keystore: Keystore, enrolled: None
    ) -> None:
        with store.write() as connection:
            (one,) = rows_in(connection, "m", tags=["tag 9"])
            people_table.say_where(connection, [replace(one, place="restricted")])
            people_table.delete_all_people(connection, "m")
        with store.read() as connection:
            assert connection.scalar(people_table.count_people("m")) == 0
            assert connection.scalar(people_table.count_people("n")) == 5
            tags = set(connection.scalars(select(tables.subjects.c.tag)))
            assert tags == {f"tag {one}" for one in (*range(5), 9)}
            assert people_table.read_tags_apart(connection) == {"tag 9"}
            assert {*read_dead(connection)} == {*range(1, self.N + 1)} - {one.key}

    def test_keys_that_were_made_for_nothing_are_found(
        self, store: Store, keystore: Keystore, enrolled: None
    ) -> None:
        used = range(1, self.N + 6)
        with store.write() as connection:
            count_made(connection, used)
            assert read_counts(connection)[:2] == (keystore.end(), 0)
        lost, mine = keystore.add(3), keystore.add()
        with store.write() as connection:
            (one,) = rows_in(connection, "m", tags=["tag 1"])
            new = replace(one, key=next(iter(mine)))
            people_table.insert_rows(connection, [new])
            count_made(connection, mine)  # others come before, so this is not counted
            made = read_counts(connection).made
            assert made == used.stop
            unused = find_unused(connection, range(made, keystore.end()))
        assert unused == [*lost]


class TestChain:
    def entry(self, sequence: int) -> ModelRegistered:
        return ModelRegistered(
            sequence=sequence,
            day=day_of(sequence * DAY),
            model="m",
            certificate=f"{sequence:064x}",
        )

    def grown(self, store: Store, path: Path, sizes: Sequence[int]) -> str:
        """Append in batches and check every proof; return the public key."""
        key = open_signing_key(path / "signing.pem")
        with store.write() as connection:
            write_metadata(
                connection, ledger_table.FIRST_KEY, value=key.public.raw.hex()
            )
        for start, size in zip((0, *sizes), sizes, strict=False):
            with store.write() as connection:
                batch = ledger_table.LedgerBatch(ledger_table.read_ledger(connection))
                new = [self.entry(sequence) for sequence in range(start, size)]
                for entry in new:
                    batch.append(entry)
                head = batch.ledger.head(key, day_of(size * DAY))
                for entry in new:
                    proof = batch.proof(entry)
                    assert includes(
                        head.tree, entry.sequence, leaf=hash_entry(entry), proof=proof
                    )
                batch.write(connection, head)
            with store.read() as connection:
                fresh = Ledger.empty(key.public)
                whole = reduce(Ledger.append, map(self.entry, range(size)), fresh)
                assert ledger_table.read_ledger(connection) == whole
                last = ledger_table.export_lines(connection).decode().splitlines()[-1]
                assert last == head.to_json()
        with store.read() as connection:
            verdict = check_export(
                ledger_table.export_lines(connection), key.public.to_pem()
            )
            assert verdict.valid, verdict.says
            numbers = [
                one.sequence
                for one in ledger_table.read_entries(connection, 3, most=100)
            ]
        assert numbers == list(range(3, sizes[-1]))
        return key.public.to_pem()

    @pytest.mark.parametrize("seed", range(3))
    def test_proofs_are_right_however_it_grew(
        self, store: Store, tmp_path: Path, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        steps = np.cumsum(rng.integers(1, 9, 70))
        self.grown(store, tmp_path, [int(size) for size in steps if size <= 70])

    def test_one_entry_at_a_time(self, store: Store, tmp_path: Path) -> None:
        self.grown(store, tmp_path, range(1, 20))

    def test_missing_hashes_are_noticed(self, store: Store, tmp_path: Path) -> None:
        self.grown(store, tmp_path, [7])
        with store.write() as connection:
            gone = tables.nodes.c.level == 1, tables.nodes.c.place == 2
            assert connection.execute(delete(tables.nodes).where(*gone)).rowcount == 1
        with store.read() as connection:
            with pytest.raises(LedgerCorrupt, match="lacks hashes"):
                ledger_table.read_ledger(connection)

    def test_altered_entries_are_noticed(self, store: Store, tmp_path: Path) -> None:
        pem = self.grown(store, tmp_path, [3, 7])
        where = tables.entries.c.sequence == 1
        other = self.entry(1).to_json().replace('"m"', '"n"')
        with store.write() as connection:
            connection.execute(update(tables.entries).where(where).values(text=other))
        with store.read() as connection:
            assert not check_export(ledger_table.export_lines(connection), pem).valid
        with store.write() as connection:
            connection.execute(update(tables.entries).where(where).values(text="{"))
        with store.read() as connection:
            with pytest.raises(LedgerCorrupt, match="altered"):
                ledger_table.read_entries(connection, 0, most=100)


def test_a_request_moves_on_once_from_each_stage(store: Store) -> None:
    """A worker that was overtaken finds it at another stage, and writes nothing."""
    one, other = status_of("a"), status_of("b")
    with store.write() as connection:
        lines = [to_line(each, ["tag"], near=[]) for each in (one, other)]
        insert_requests(connection, lines)
    done = [{"of": "a", "time": 2, "text": "first"}]
    with pytest.raises(Busy), store.write() as connection:
        mark_completed(connection, done)
    answered = replace(one, outcome="done")
    with store.write() as connection:
        mark_applied(connection, [answered])
    with pytest.raises(Busy), store.write() as connection:
        mark_applied(connection, [answered, other])
    with store.write() as connection:
        mark_completed(connection, done)
    with pytest.raises(Busy), store.write() as connection:
        mark_completed(connection, [done[0] | {"text": "second"}])
    with store.read() as connection:
        assert read_receipts(connection, ["a", "b"]) == {"a": "first"}
        found = find_requests(connection, ["a", "b"])
    assert found == {
        "a": replace(answered, stage="completed", completed=2),
        "b": other,
    }


def test_only_what_was_made_from_it_replaces_a_checkpoint(store: Store) -> None:
    first = {"name": "m", "created": 0, "number": 1, "key": 5}
    with store.write() as connection:
        releases_table.insert_model(connection, first)
        after = {"key": 8, "number": 2}
        releases_table.advance_model(connection, "m", before=5, after=after)
        for other in (4, 5, 7):
            with pytest.raises(Busy, match="'m' meanwhile"):
                releases_table.advance_model(
                    connection, "m", before=other, after={"key": 9, "number": 3}
                )
        assert releases_table.read_keys(connection) == {"m": 8}
        assert releases_table.newest_number(connection, "m") == 2


# Holds the worker's lock until it is killed: a folder, and a URL or nothing.
HOLDER = """
import sys, time
from pathlib import Path
from expunge.registry.storage import hold_worker_lock
from tests.stores import store_at
folder, url = Path(sys.argv[1]), sys.argv[2] or None
with hold_worker_lock(store_at(folder, url), folder / "lock", wait=5.0):
    print("held", flush=True)
    time.sleep(60)
"""


class TestLock:
    def test_one_at_a_time(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        with hold_worker_lock(store, path, wait=0.0) as locked:
            assert locked
            with pytest.raises(Busy, match=r"did not finish within 0\.05 s"):
                with hold_worker_lock(store, path, wait=0.05):
                    pytest.fail("two hold the lock")
            with hold_worker_lock(
                store, path, wait=5.0, is_done=lambda: True
            ) as second:
                assert not second
        with hold_worker_lock(store, path, wait=0.0) as again:
            assert again

    def test_an_error_lets_go(self, store: Store, tmp_path: Path) -> None:
        with (
            pytest.raises(ZeroDivisionError),
            hold_worker_lock(store, tmp_path / "lock", wait=0.0),
        ):
            raise ZeroDivisionError
        with hold_worker_lock(store, tmp_path / "lock", wait=0.0) as locked:
            assert locked

    def test_a_killed_process_lets_go(
        self, store: Store, tmp_path: Path, registry_url: str | None
    ) -> None:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, tmp_path, registry_url or ""],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
        with holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with (
                pytest.raises(Busy),
                hold_worker_lock(store, tmp_path / "lock", wait=0.0),
            ):
                pytest.fail("two hold the lock")
            holder.kill()
        with hold_worker_lock(store, tmp_path / "lock", wait=30.0) as locked:
            assert locked


class TestSchema:
    def test_making_them_again_changes_nothing(self, store: Store) -> None:
        with store.write() as connection:
            write_metadata(connection, "name", value="value")
        tables.create_tables(store)
        with store.read() as connection:
            assert tables.read_metadata(connection, "name") == "value"

    @pytest.mark.parametrize("version", ["0", "9999"])
    def test_another_one_is_refused(
        self, tmp_path: Path, registry_url: str | None, version: str
    ) -> None:
        with Registry.create(tmp_path / "registry", url=registry_url) as registry:
            set_schema(registry, version)
        for come_back in (Registry.open, Registry.create):
            with raises(OtherSchema, match=f"tables of version {version} and .* new"):
                come_back(tmp_path / "registry")


class TestEngine:
    def pragma(self, store: Store, name: str) -> object:
        with store.read() as connection:
            return connection.exec_driver_sql(f"PRAGMA {name}").scalar()

    def test_sqlite_is_durable_and_overwrites_what_is_deleted(
        self, tmp_path: Path
    ) -> None:
        store = store_at(tmp_path, None)
        tables.create_tables(store)
        found = {
            name: self.pragma(store, name)
            for name in ("journal_mode", "synchronous", "secure_delete", "foreign_keys")
        }
        store.close()
        assert found == {
            "journal_mode": "wal",
            "synchronous": 2,  # FULL
            "secure_delete": 1,
            "foreign_keys": 1,
        }

    def test_postgresql_is_durable_whatever_its_default(
        self, tmp_path: Path, database_url: str
    ) -> None:
        store = store_at(tmp_path, database_url)
        with store.write() as connection:
            name = connection.scalar(text("SELECT current_database()"))
            connection.execute(
                text(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
            )
        store.close()
        store = store_at(tmp_path, database_url)
        with store.read() as connection:
            assert connection.scalar(text("SHOW synchronous_commit")) == "on"
        store.close()

    def test_a_transaction_that_raises_leaves_nothing(self, store: Store) -> None:
        with pytest.raises(ZeroDivisionError), store.write() as connection:
            write_metadata(connection, "name", value="value")
            raise ZeroDivisionError
        with store.read() as connection:
            assert not tables.read_metadata(connection, "name")

    def test_erasing_cuts_the_log_or_says_who_is_in_the_way(
        self, tmp_path: Path
    ) -> None:
        store, reader = store_at(tmp_path, None), store_at(tmp_path, None)
        tables.create_tables(store)
        patience = self.pragma(store, "busy_timeout")
        with reader.read() as connection:
            connection.execute(select(tables.metadata)).all()
            with store.write() as other:
                write_metadata(other, "name", value="value")
            with pytest.raises(Busy, match="another process reads"):
                store.erase_deleted(0.05)
        # A writer that waited in vain must wait as long as before for the next writer.
        assert self.pragma(store, "busy_timeout") == patience
        store.erase_deleted(5.0)
        assert (tmp_path / "expunge.db-wal").stat().st_size == 0
        for one in (reader, store):
            one.close()


@pytest.mark.parametrize(
    ("dialect", "told"), [("postgresql", StoreFailed), ("sqlite", InvalidInput)]
)
def test_a_server_that_fails_says_nothing_of_a_backup(
    dialect: str, told: type[Exception]
) -> None:
    class Failing:
        @contextmanager
        def read(self) -> Iterator[None]:
            raise StoreFailed("it is down") from OperationalError("", {}, Exception())
            yield

    store = Failing()
    store.dialect = dialect  # type: ignore[attr-defined]
    context: Any = SimpleNamespace(store=store)
    with pytest.raises(told, match="it is down"):
        require_sound_backup(context)
