# SPDX-License-Identifier: Apache-2.0
"""What was forgotten is gone from disk: rows, ids, tags and the keys that sealed them.

SQLite's files must hold none of it. PostgreSQL keeps deleted pages and its log, so
there the sealed bytes may stay and every key to them must be destroyed.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from expunge.exceptions import Busy
from expunge.registry import Registry
from tests.postgres import Missing, Server, connect
from tests.registries import (
    beginnings,
    everything,
    found,
    keys_around_rows,
    keys_to_rows,
    reading,
    registry_at,
    sealed_rows,
    spelled,
    tags_of,
    traces_of_rows,
)
from tests.stores import without_postgres

PERSON, MODELS = "person 3", ("all", "half")


def keys_of(registry: Registry, name: str) -> tuple[list[bytes], list[bytes]]:
    """Return the keys to a person's rows, and those to everything of the models."""
    of_rows = [key for one in MODELS for key in keys_to_rows(registry, name, one)]
    of_state = [key for one in MODELS for key in keys_around_rows(registry, name, one)]
    return of_rows, of_state


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


def test_keys_of_the_next_checkpoint_are_drawn_in_advance(tmp_path: Path) -> None:
    """So that the file is written once for each request, after the commit."""
    with registry_at(tmp_path / "registry") as registry:
        vault = tmp_path / "registry/keys/vault.json"
        before = json.loads(vault.read_text())["keys"]["all"]
        registry.forget([PERSON])
        after = json.loads(vault.read_text())["keys"]["all"]
    assert after["generation"] == before["generation"] + 1
    assert after["present"] == before["next"]
    assert before["present"] not in json.dumps(after)
