# SPDX-License-Identifier: Apache-2.0
"""Making a registry, and coming back to one."""

import os
from contextlib import suppress

from sqlalchemy import Connection

from ..durable import leftovers, sweep, write_new
from ..exceptions import Busy, InvalidInput, NeedsRestore, NoRegistry
from ..rights import may
from ..stores import alone, chain, require_made, require_newest, upgrade
from ..stores.engine import translated
from ..stores.notes import note, write_note
from .catching_up import require_current
from .keys import first_keys, note_tag_keys
from .rotating import tidy
from .settings import (
    Places,
    Settings,
    read_settings,
    require_safe,
    write_settings,
)
from .site import WAIT, Site


def make(places: Places, settings: Settings) -> Site:
    """Return a new registry, or one that exists with its tables up to date."""
    require_safe(places)
    try:
        made = read_settings(places)
    except NoRegistry:
        return _made(places, settings)
    if settings.url is not None and settings.url != made.url:
        raise InvalidInput(
            f"{places.folder} holds a registry on another database; open it, or make "
            "this one elsewhere"
        )
    _require_database(places, made)
    site = Site.at(places, made)
    with site.unless_it_fails():
        require_made(site.store)
        upgrade(site.store)
        _require_one_registry(site)
        require_current(site)
    return site


def come_back(places: Places) -> Site:
    """Return the registry in a folder."""
    site = opened(places)
    with site.unless_it_fails():
        require_current(site)
        _tidy_up(site)
    return site


def opened(places: Places) -> Site:
    """Return the registry in a folder, not compared with its journal and keys."""
    settings = read_settings(places)
    require_safe(places)
    _require_database(places, settings)
    site = Site.at(places, settings)
    with site.unless_it_fails():
        require_newest(site.store)
        _require_one_registry(site)
    return site


def _made(places: Places, settings: Settings) -> Site:
    """Make a registry; one that a crash left half made is finished."""
    site = Site.at(places, settings)
    with site.unless_it_fails():
        with translated():
            places.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = first_keys(places.keys)
            if settings.url is None and not places.database.exists():
                write_new(places.database, b"")  # for its owner alone
        site.checkpoints.begin()
        upgrade(site.store)
        with site.working(WAIT), translated():
            with site.changing() as connection:
                _begin_ledger(connection, key.public.raw.hex())
                note_tag_keys(connection, places.keys)
            site.checkpoints.belong_to(key.public.raw.hex())
            require_current(site)
            tidy(site)
            write_settings(places, settings)  # last: now it is one
    return site


def _tidy_up(site: Site) -> None:
    """Remove what killed processes left, unless somebody is at work."""
    folders = [folder for folder in site.places.folders if may(folder, os.W_OK)]
    if any(map(leftovers, folders)):
        with suppress(Busy), alone(site.store, site.places.lock, 0.0), translated():
            for folder in folders:
                sweep(folder)


def _begin_ledger(connection: Connection, first: str) -> None:
    """Note the first key of the ledger; refuse a database that has another one."""
    if note(connection, chain.FIRST_KEY, first) != first:
        raise InvalidInput(
            "the database holds another registry; give each a database of its own"
        )
    write_note(connection, chain.FIRST_KEY, first)


def _require_database(places: Places, settings: Settings) -> None:
    """Refuse to make a new database where one was lost."""
    if settings.url is None and not places.database.exists():
        raise NeedsRestore(
            f"{places.database} is missing: it was lost; put it back from a backup "
            "with expunge restore BACKUP"
        )


def _require_one_registry(site: Site) -> None:
    """Refuse a folder of checkpoints that is another registry's than the database."""
    with site.store.reading() as connection:
        site.checkpoints.belong_to(note(connection, chain.FIRST_KEY))
