# SPDX-License-Identifier: Apache-2.0
"""Opened: all that the keys of a registry can open, with every key that is kept.

Rows in the files are sealed, so a search for rows that should be gone has to try the
keys first.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from expunge.exceptions import ExpungeError
from expunge.ledger import subject_tags
from expunge.registry.answering.pending_rows import MARK
from expunge.registry.context import Context, Paths, read_settings
from expunge.registry.keys import read_tag_keys
from expunge.registry.loaded_model import split_parts
from expunge.registry.storage import aside_table, people_table, releases_table
from expunge.registry.storage.aside_table import is_aside, model_of
from expunge.registry.storage.people_table import PageKeys

from .story import Sample


class Opened:
    """What a registry's keys open.

    Parameters
    ----------
    folder
        Of the registry.
    people
        Everybody who may have rows in it.

    Attributes
    ----------
    states
        The content of every checkpoint, by file name.
    rows
        The rows of each person, by the name they are under.
    """

    def __init__(self, folder: Path, people: Sequence[str]) -> None:
        places = Paths(folder)
        context = Context.in_folder(places, read_settings(places))
        keys = read_tag_keys(places)
        owners = {tag: one for one in people for tag in subject_tags(one, keys)}
        self.states: dict[str, bytes] = {}
        self.rows: dict[str, dict[str, bytes]] = {}
        try:
            for path in places.checkpoints.iterdir():
                with suppress(ExpungeError):
                    self.states[path.name] = context.checkpoints.read(path.name)
            for name, tag, blob in _rows(context):
                self.rows.setdefault(name, {})[owners[tag]] = blob
        finally:
            context.store.close()

    def using(self, model: str) -> Iterator[bytes]:
        """Yield all that is open to who has a model's checkpoints and their keys."""
        for name, content in self.states.items():
            if name.rsplit(".", 2)[0] == model:
                yield content
        yield from self.rows.get(model, {}).values()

    def everything(self) -> bytes:
        """Return all of it."""
        blobs = [blob for there in self.rows.values() for blob in there.values()]
        return b"\n".join([*self.states.values(), *blobs])


def _rows(context: Context) -> Iterator[tuple[str, str, bytes]]:
    """Yield the rows of each person with the name they are under, and the tag."""
    with context.store.read() as connection:
        for name, file in releases_table.read_all_checkpoints(connection).items():
            if not file:
                continue  # the model was removed
            page_keys: PageKeys
            if is_aside(name):
                page_keys = aside_table.read_file(
                    connection, context.checkpoints, model=model_of(name)
                ).page_keys
            else:
                page_keys = context.load_model(name).page_keys
            found = people_table.read_all_rows(connection, name)
            pages = people_table.read_pages(
                connection, name, found=found, page_keys=page_keys
            )
            blobs = people_table.unseal_rows(name, found, pages=pages)
            for one, blob in zip(found, blobs, strict=True):
                data = b"".join(split_parts(blob)) if is_aside(name) else blob
                yield name, one.tag, data


def traces_of(rows: Sample) -> list[bytes]:
    """Return what gives away rows, one value of each, as their bytes."""
    return [np.float64(value).tobytes() for value in rows.X[:, 0]]


def keys_of_new_rows(folder: Path) -> list[str]:
    """Return the requests whose new rows have a key."""
    kept = json.loads(Paths(folder).vault.read_text())["keys"]
    return [name.removeprefix(MARK) for name in kept if name.startswith(MARK)]
