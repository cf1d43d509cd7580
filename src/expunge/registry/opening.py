# SPDX-License-Identifier: Apache-2.0
"""Opening: a registry's folder is made, or found to be whole, before anything is done.

A folder, a database and the keys that belong together make a registry. What a killed
process left half made is finished. What is lost, or belongs to another registry, is
refused with what to do about it.
"""

import os
from contextlib import closing, suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path

from sqlalchemy import Connection

from ..disk import (
    delete_draft,
    delete_leftovers,
    find_leftovers,
    has_draft,
    is_allowed,
    write_new_file,
)
from ..exceptions import (
    Busy,
    InvalidInput,
    JournalDamaged,
    NeedsRestore,
    NoRegistry,
    StoreFailed,
)
from .context import (
    WAIT,
    Context,
    Paths,
    Settings,
    keep_head,
    read_settings,
    require_keys,
    require_safe_folder,
    write_settings,
)
from .keys import (
    create_first_keys,
    require_tag_keys,
    require_unused_keys,
    tidy_keys,
    write_tag_key_ids,
)
from .log import read_position, write_beginning
from .recovery.new_log import begin_new_log
from .storage import (
    create_tables,
    hold_worker_lock,
    ledger_table,
    require_tables,
)
from .storage.engine import translate_errors
from .storage.tables import read_metadata, write_metadata


def create_context(paths: Paths, settings: Settings) -> Context:
    """Return a new registry, or the one that is there."""
    require_safe_folder(paths)
    try:
        existing = read_settings(paths)
    except NoRegistry:
        return _create_new(paths, settings)
    if settings.url is not None and settings.url != existing.url:
        raise InvalidInput(
            f"{paths.folder} holds a registry on another database; open it, or make "
            "this one elsewhere"
        )
    context = open_context(paths)
    with context.close_on_error():
        if settings.head_file not in (None, existing.head_file):
            _keep_heads(context, settings)
    return context


def _keep_heads(context: Context, settings: Settings) -> None:
    """Keep the last head in another place from now on."""
    context.settings = replace(context.settings, head_file=settings.head_file)
    with context.store.read() as connection:
        first = read_metadata(connection, ledger_table.FIRST_KEY)
    _require_head_file(context, first)
    with context.hold_lock(WAIT):
        keep_head(context, accept=True)
        write_settings(context.paths, context.settings)


def _require_head_file(context: Context, first_key: str) -> None:
    """Refuse a place for heads that protects from nothing, or is somebody else's."""
    if context.head_file is not None:
        context.head_file.require_outside(context.paths.folder, first_key)


def _create_new(paths: Paths, settings: Settings) -> Context:
    """Make a registry; finish one that a crash left half made."""
    context = Context.in_folder(paths, settings)
    with context.close_on_error():
        with translate_errors():
            paths.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = create_first_keys(paths)
            _require_head_file(context, key.public.raw.hex())
            if settings.url is None and not paths.database.exists():
                write_new_file(paths.database, b"")  # for its owner alone
        context.checkpoints.create(key.public.raw.hex())
        require_unused_keys(context)
        create_tables(context.store)
        with context.store.write() as connection:
            write_beginning(connection)
        with context.hold_lock(WAIT), translate_errors():
            with context.log.batch() as connection:
                _write_first_key(connection, key.public.raw.hex())
                write_tag_key_ids(connection, paths)
            context.checkpoints.require_owner(key.public.raw.hex())
            require_current_store(context)
            tidy_keys(context)
            keep_head(context, accept=True)
            write_settings(paths, settings)  # last: now it is a registry
    return context


def _write_first_key(connection: Connection, first: str) -> None:
    """Record the first key of the ledger; refuse a database that has another one."""
    if read_metadata(connection, ledger_table.FIRST_KEY, default=first) != first:
        raise InvalidInput(
            "the database holds another registry; give each a database of its own"
        )
    write_metadata(connection, ledger_table.FIRST_KEY, value=first)


def open_context(paths: Paths) -> Context:
    """Return the registry in a folder, without what killed processes left."""
    context = open_unchecked(paths)
    with context.close_on_error():
        require_current_store(context)
        if context.head_file is not None:
            with context.store.read() as connection:
                context.head_file.require_extended(connection)
        _delete_leftovers(context)
    return context


def open_unchecked(paths: Paths) -> Context:
    """Return the registry in a folder, not compared with its journal and keys."""
    settings = read_settings(paths)
    require_safe_folder(paths)
    _require_database(paths, settings)
    context = Context.in_folder(paths, settings)
    with context.close_on_error():
        require_tables(context.store)
        _require_same_registry(context)
    return context


def _require_database(paths: Paths, settings: Settings) -> None:
    """Refuse to make a new database where one was lost."""
    if settings.url is None and not paths.database.exists():
        raise NeedsRestore(
            f"{paths.database} is missing: it was lost; put it back from a backup with "
            "expunge restore BACKUP"
        )


def _require_same_registry(context: Context) -> None:
    """Refuse checkpoints and keys of another registry than the database's."""
    with context.store.read() as connection:
        owner = read_metadata(connection, ledger_table.FIRST_KEY)
    context.checkpoints.require_owner(owner)


def require_current_store(context: Context) -> None:
    """Refuse a store that is older than log or keys, and a damaged log.

    Nothing is changed, except that a new log that a killed process began is finished.
    Others may write between two of the reads; then all of them are repeated.
    """
    log = context.log
    with suppress(StoreFailed):  # who can only read finds the log as it is
        log.settle_draft()
    while True:
        with context.store.read() as connection:
            known = read_position(connection)
        try:
            with context.store.read() as connection:
                require_tag_keys(connection, context.paths)
            log.require_newest(known)
            # Only now: what the log says of a model is in the store by then.
            with context.store.read() as connection:
                require_keys(context, connection)
        except (JournalDamaged, NeedsRestore):
            with context.store.read() as connection:
                if read_position(connection) == known and not log.draft.exists():
                    raise
        else:
            return


def _delete_leftovers(context: Context) -> None:
    """Delete what killed processes left, unless somebody is at work.

    A registry that can only be read in part keeps it: there is nothing to be done.
    """
    paths = context.paths
    folders = [one for one in paths.folders if is_allowed(one, os.W_OK)]
    with suppress(Busy, StoreFailed), translate_errors():
        if any(map(find_leftovers, folders)) or has_draft(paths.journal):
            with hold_worker_lock(context.store, paths.lock, wait=0.0):
                for folder in folders:
                    delete_leftovers(folder)
                # On another disk, among files that are none of ours.
                delete_draft(paths.journal)


def rebuild_journal(folder: str | PathLike[str]) -> int | None:
    """Write the damaged journal of a registry again, from the database in use.

    Returns for how many completed requests it can no longer name the people: backups
    from before them are then refused, and every fit warns. A journal that is sound
    stays as it is; then this returns None.
    """
    with closing(open_unchecked(Paths(Path(folder)))) as context:
        return begin_new_log(context)
