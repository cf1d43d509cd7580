# SPDX-License-Identifier: Apache-2.0
"""Opened: all that the keys of a registry can open, with every key that is kept.

Rows in the files are sealed, so a search for rows that should be gone has to try the
keys first.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from expunge.ledger import subject_tags
from tests.registries import rows_that_open, states_that_open, tag_keys_of

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
        The content of every checkpoint, each with its model.
    rows
        The rows of each person, by model and whether they are apart from it.
    """

    def __init__(self, folder: Path, people: Sequence[str]) -> None:
        keys = tag_keys_of(folder)
        owners = {tag: one for one in people for tag in subject_tags(one, keys)}
        self.states = [(model, state) for model, _, state in states_that_open(folder)]
        self.rows: dict[tuple[str, bool], dict[str, bytes]] = {}
        for one in rows_that_open(folder):
            there = self.rows.setdefault((one.model, one.is_apart), {})
            there[owners[one.tag]] = one.content

    def using(self, model: str) -> Iterator[bytes]:
        """Yield all that is open to who has a model's checkpoints and their keys."""
        yield from (content for name, content in self.states if name == model)
        yield from self.rows.get((model, False), {}).values()

    def everything(self) -> bytes:
        """Return all of it."""
        blobs = [blob for there in self.rows.values() for blob in there.values()]
        states = [content for _, content in self.states]
        return b"\n".join([*states, *blobs])


def traces_of(rows: Sample) -> list[bytes]:
    """Return what gives away rows, one value of each, as their bytes."""
    return [np.float64(value).tobytes() for value in rows.X[:, 0]]
