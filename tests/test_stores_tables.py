# SPDX-License-Identifier: Apache-2.0
"""What a store keeps in tables, on SQLite and PostgreSQL, and who may write there."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
    OtherSchema,
    StoreFailed,
)
from expunge.ledger import Ledger, ModelRegistered, check_export, open_signing_key
from expunge.ledger.documents import DAY, day_of
from expunge.ledger.ledger import hash_entry
from expunge.ledger.merkle import includes
from expunge.registry import Registry
from expunge.registry.recovery.backup import require_sound_backup
from expunge.registry.storage import (
    Store,
    hold_worker_lock,
    ledger_table,
    people_table,
    releases_table,
    requests_table,
    tables,
)
from expunge.registry.storage.engine import Collision, write_exactly
from expunge.registry.storage.requests_table import Answered
from expunge.registry.storage.tables import write_metadata
from expunge.registry.storage.vault import KEY_BYTES
from tests.registries import set_schema
from tests.stores import rows_in, store_at


class TestWrites:
    NEW = insert(tables.metadata)
    CHANGE = update(tables.metadata).where(tables.metadata.c.name == bindparam("of"))

    def names(self, store: Store) -> list[str]:
        with store.read() as connection:
            found = connection.scalars(select(tables.metadata.c.name))
            return sorted({*found} - {tables.SCHEMA})

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
    N = 2 * people_table.PAGE + 3

    @pytest.fixture
    def keys(self, store: Store) -> dict[str, people_table.PageKeys]:
        """Enrol everybody in "m", and the first five in "n" as well."""
        with store.write() as connection:
            for name in ("m", "n"):
                releases_table.insert_model(
                    connection,
                    {
                        "name": name,
                        "created": 0,
                        "number": 1,
                        "generation": 1,
                        "checkpoint": "",
                    },
                )
            return {
                "m": people_table.insert_people(
                    connection, "m", people=self.members(range(self.N))
                ),
                "n": people_table.insert_people(
                    connection, "n", people=self.members(range(5))
                ),
            }

    def members(self, numbers: Sequence[int]) -> list[tuple[str, bytes]]:
        return [(f"tag {number}", b"row %d" % number) for number in numbers]

    def remove(
        self, store: Store, keys: people_table.PageKeys, numbers: Sequence[int]
    ) -> people_table.PageKeys:
        with store.write() as connection:
            found = rows_in(connection, "m", tags=[f"tag {one}" for one in numbers])
            pages = people_table.read_pages(
                connection, "m", found=found, page_keys=keys
            )
            remaining = people_table.keys_without(
                "m", found, pages=pages, page_keys=keys
            )
            people_table.delete_rows(connection, "m", remaining=remaining)
            gone = [one.subject for one in found]
            people_table.delete_unused_tags(connection, gone)
        return remaining.page_keys

    def left(self, store: Store, keys: people_table.PageKeys) -> list[bytes]:
        with store.read() as connection:
            found = people_table.read_all_rows(connection, "m")
        return self.opened(store, "m", found, keys)

    def opened(
        self,
        store: Store,
        model: str,
        found: Sequence[people_table.SealedRows],
        keys: people_table.PageKeys,
    ) -> list[bytes]:
        with store.read() as connection:
            pages = people_table.read_pages(
                connection, model, found=found, page_keys=keys
            )
        return list(people_table.unseal_rows(model, found, pages=pages))

    def test_people_at_the_borders_of_pages(
        self, store: Store, keys: dict[str, people_table.PageKeys]
    ) -> None:
        border = [0, 255, 256, 257, 511, 512, self.N - 1]
        assert keys["m"].shape == (3, KEY_BYTES)
        after = self.remove(store, keys["m"], border)
        rest = [one for one in range(self.N) if one not in border]
        assert self.left(store, after) == [b"row %d" % one for one in rest]
        assert not np.any(np.all(after == keys["m"], axis=1))  # each page was renewed
        with store.read() as connection:
            some = rows_in(connection, "m", tags=["tag 1"])
        with pytest.raises(StoreFailed, match="page 0 of m"):
            self.opened(store, "m", some, keys["m"])

    def test_a_page_without_the_removed_keeps_its_key(
        self, store: Store, keys: dict[str, people_table.PageKeys]
    ) -> None:
        after = self.remove(store, keys["m"], [300])
        same = np.all(after == keys["m"], axis=1)
        assert same.tolist() == [True, False, True]

    def test_everybody_of_a_page(
        self, store: Store, keys: dict[str, people_table.PageKeys]
    ) -> None:
        after = self.remove(store, keys["m"], range(256, 512))
        rest = [*range(256), *range(512, self.N)]
        assert self.left(store, after) == [b"row %d" % one for one in rest]

    def test_a_person_in_two_models_stays_in_the_other(
        self, store: Store, keys: dict[str, people_table.PageKeys]
    ) -> None:
        self.remove(store, keys["m"], [3, 7])
        with store.read() as connection:
            assert people_table.models_by_tag(connection, ["tag 3", "tag 7"]) == {
                "tag 3": {"n"}
            }
            assert people_table.count_people(connection, "m") == self.N - 2
            tags = set(connection.scalars(select(tables.subjects.c.tag)))
            assert "tag 3" in tags and "tag 7" not in tags
            found = rows_in(connection, "n", tags=["tag 3"])
        assert self.opened(store, "n", found, keys["n"]) == [b"row 3"]

    def test_clearing_a_model_leaves_the_other(
        self, store: Store, keys: dict[str, people_table.PageKeys]
    ) -> None:
        with store.write() as connection:
            people_table.delete_all_people(connection, "m")
        with store.read() as connection:
            assert people_table.count_people(connection, "m") == 0
            assert people_table.count_people(connection, "n") == 5
            tags = set(connection.scalars(select(tables.subjects.c.tag)))
        assert tags == {f"tag {one}" for one in range(5)}

    def test_a_page_that_is_missing(
        self, store: Store, keys: dict[str, people_table.PageKeys]
    ) -> None:
        with store.write() as connection:
            connection.execute(delete(tables.pages).where(tables.pages.c.page == 1))
        with store.read() as connection:
            found = rows_in(connection, "m", tags=["tag 300"])
        with pytest.raises(StoreFailed, match="lacks pages of keys of model 'm'"):
            self.opened(store, "m", found, keys["m"])


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
    lines = [
        {"id": id_, "stage": requests_table.ACCEPTED, "accepted": 0, "deadline": 1}
        | {"n_subjects": 1, "fingerprint": ""}
        for id_ in ("a", "b")
    ]
    with store.write() as connection:
        requests_table.insert_requests(
            connection, lines, tags=[("a", "tag"), ("b", "tag")]
        )
    done = [{"request": "a", "time": 2, "text": "first"}]
    made = {"a": Answered({})}
    with pytest.raises(Busy), store.write() as connection:
        requests_table.mark_completed(connection, done)
    with store.write() as connection:
        requests_table.mark_applied(connection, made)
    with pytest.raises(Busy), store.write() as connection:
        requests_table.mark_applied(connection, made | {"b": Answered({})})
    with store.write() as connection:
        requests_table.mark_completed(connection, done)
    with pytest.raises(Busy), store.write() as connection:
        requests_table.mark_completed(connection, [done[0] | {"text": "second"}])
    with store.read() as connection:
        assert requests_table.read_receipt(connection, "a") == "first"
        stages = {
            id_: line.stage
            for id_, line in requests_table.find_requests(
                connection, ["a", "b"]
            ).items()
        }
    assert stages == {"a": requests_table.COMPLETED, "b": requests_table.ACCEPTED}


def test_only_the_next_generation_replaces_a_checkpoint(store: Store) -> None:
    first = {"name": "m", "created": 0, "number": 1, "generation": 5}
    with store.write() as connection:
        releases_table.insert_model(connection, {**first, "checkpoint": "five"})
        after = {"checkpoint": "six", "number": 2}
        releases_table.advance_model(connection, "m", generation=5, after=after)
        for other in (4, 5, 7):
            with pytest.raises(Busy, match="'m' meanwhile"):
                releases_table.advance_model(
                    connection, "m", generation=other, after={"number": 3}
                )
        assert releases_table.read_checkpoints(connection) == {"m": "six"}
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
    sealed: Any = None
    with pytest.raises(told, match="it is down"):
        require_sound_backup(context, sealed)
