# SPDX-License-Identifier: Apache-2.0
"""Backups: copies of a registry, its database included, and how they are put back.

PostgreSQL's tables are dumped row by row into a file beside the copied folder.
"""

import pickle
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.registries import Dump, dump_of, is_on_sqlite
from tests.registries import put_back as put_tables_back

# Locks come and go, and SQLite's files change when their log is moved: what is in them
# is compared as tables.
NOT_COMPARED = ("expunge.db", "expunge.db-wal", "expunge.db-shm", "worker.lock")
LONGEST_PAUSE = 0.01


def back_up(folder: Path, backup: Path) -> None:
    """Copy a registry in which nobody works; a copy is whole or not there."""
    draft = backup.with_name(f"{backup.name}.draft")
    for path in (draft, backup):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder, draft)
    write_dump(folder, backup)
    draft.rename(backup)


def back_up_live(
    folder: Path, backup: Path, chance: random.Random, dump: Callable[[], object]
) -> None:
    """Copy a registry file by file while others work, and call for its dump."""
    backup.mkdir()
    places = [folder, folder / "keys", folder / "checkpoints"]
    chance.shuffle(places)
    dumping = chance.choice(places)
    for place in places:
        target = backup / place.relative_to(folder)
        target.mkdir(exist_ok=True)
        files = sorted(path for path in place.iterdir() if path.is_file())
        chance.shuffle(files)
        if place == dumping:
            dump()
        for path in files:
            time.sleep(chance.uniform(0.0, LONGEST_PAUSE))
            with suppress(FileNotFoundError):
                shutil.copy(path, target / path.name)


def put_back(folder: Path, backup: Path) -> None:
    """Put a whole registry back as it was, outside its own means."""
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    put_database_back(folder, backup)


def write_dump(folder: Path, backup: Path) -> None:
    """Dump the tables of a registry on PostgreSQL beside a backup."""
    if not is_on_sqlite(folder):
        _dump_of(backup).write_bytes(pickle.dumps(dump_of(folder)))


def put_database_back(folder: Path, backup: Path) -> None:
    """Put the tables of a registry on PostgreSQL back from a backup's dump."""
    if not _dump_of(backup).exists():
        return
    dumped: Dump = pickle.loads(_dump_of(backup).read_bytes())
    put_tables_back(folder, dumped)


def state(folder: Path) -> dict[str, object]:
    """Return what must be as before where nothing was to be changed."""
    lost = is_on_sqlite(folder) and not (folder / "expunge.db").exists()
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in NOT_COMPARED
    }
    return {**files, "tables": None if lost else dump_of(folder)}


def hidden(folder: Path) -> list[str]:
    """Return what has a dot in front of its name: it was being written, or replaced."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".*"))


def _dump_of(backup: Path) -> Path:
    return backup.with_name(f"{backup.name}.dump")
