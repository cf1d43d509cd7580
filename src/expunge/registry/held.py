# SPDX-License-Identifier: Apache-2.0
"""Held: a model as the worker holds it, to and from the bytes of a checkpoint.

A checkpoint is the private state without rows: those lie apart, sealed for each person,
and are fetched when an answer needs them. Places number the rows at the fit and never
change, so that whatever was removed since, the rows that are left come in their order.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Private
from ..core.rows import Rows
from ..exceptions import ScheduleExhausted, StoreFailed
from ..files.format import packed, unpacked
from ..files.model import (
    Beside,
    Content,
    Loaded,
    custody_content,
    framed,
    give_custody,
    read_release,
    release_content,
    safetensors,
    unframed,
)
from ..private_model.holdings import Fetch, Holdings
from ..private_model.snapshot import Shown, Snapshot
from ..private_model.training_rows import Kept, Roster
from ..selection.tuned_model import TunedHoldings
from .storage.people_table import PageKeys

HASH_BYTES = 32


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Held(Private):
    """A model in the worker's hands.

    Attributes
    ----------
    name
        Of the model.
    generation, checkpoint
        Of its private state, and the file that this is in.
    number, digest
        Of its newest release, and of that release's certificate.
    model
        The estimator with its private state.
    page_keys
        The keys of the pages that hold the keys of people's rows.
    """

    name: str
    generation: int
    checkpoint: str
    number: int
    digest: str
    model: Loaded
    page_keys: PageKeys

    @property
    def holdings(self) -> Holdings:
        """What the estimator holds in private."""
        holdings: Holdings = self.model._private_state()
        return holdings


Everybody = Callable[[PageKeys], Iterable[bytes]]
"""The page keys of a model, to the rows of each of its people."""


def checkpoint(model: Any, snapshot: Snapshot, page_keys: PageKeys) -> list[memoryview]:
    """Return the private state as bytes, in parts, to be sealed."""
    holdings, record = snapshot.holdings, snapshot.record
    assert holdings is not None and record is not None
    arrays: dict[str, NDArray[Any]] = {}
    bounds = holdings.bounds if isinstance(holdings, TunedHoldings) else None
    content = custody_content(model, holdings, record, bounds, arrays)
    content["page_keys"] = packed(page_keys, "page_keys", arrays)
    return framed(content, arrays)


def shippable(model: Any, shown: Shown) -> bytes:
    """Return what may be shipped of a release, as bytes, with a hash before them."""
    arrays: dict[str, NDArray[Any]] = {}
    data = b"".join(framed(release_content(model, shown, arrays), arrays))
    return sha256(data).digest() + data


def released(line: Any) -> Loaded:
    """Return the estimator that carries a release alone.

    ``line`` is as ``releases_table.find_release`` returns it.
    """
    return read_release(*unframed(_checked(line.content, line.model)))


def take_up(line: Any, data: bytes, everybody: Everybody) -> Held:
    """Return a model from its checkpoint and the content of its release.

    Parameters
    ----------
    line
        As ``releases_table.read_newest`` returns it.
    data
        The checkpoint.
    everybody
        How to get at people's rows.
    """
    content = _checked(line.content, line.name)  # or say that there is none any more
    model = read_release(*unframed(content))
    parts = _parts(data)
    page_keys: PageKeys = parts.pop("page_keys")
    fetch = fetching(everybody, page_keys)
    kept = None
    if parts["tuned"] is not None:
        kept = _kept(everybody(page_keys), parts["custody"].n_samples)
    # Whose rows these are the store knows: no roster is needed.
    beside = Beside(Roster(Counter(), b""), kept, fetch)
    give_custody(model, parts, beside)
    return Held(
        line.name,
        line.generation,
        line.checkpoint,
        line.number,
        line.digest,
        model,
        page_keys,
    )


def fetching(everybody: Everybody, page_keys: PageKeys) -> Fetch:
    """Return how to get the remaining rows, under these keys."""
    return partial(_remaining, everybody, page_keys)


def rows_as_bytes(rows: Rows, places: Index) -> bytes:
    """Return rows with their places as bytes."""
    arrays = {
        "X": np.ascontiguousarray(rows.dense()),
        "y": np.ascontiguousarray(rows.y),
        "weight": np.ascontiguousarray(rows.weight),
        "places": np.asarray(places, dtype=np.int64),
    }
    data: bytes = safetensors().save(arrays)
    return data


def rows_of(people: Iterable[bytes]) -> tuple[Rows, Index]:
    """Return the rows of some people in the order of their places, and these."""
    load = safetensors().load
    parts = [load(data) for data in people]
    places = np.concatenate([part["places"] for part in parts])
    order = np.argsort(places)
    X, y, weight = (
        np.concatenate([part[name] for part in parts])[order]
        for name in ("X", "y", "weight")
    )
    return Rows(X, y, weight), places[order]


def by_person(rows: Rows, owners: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield each person's id with their rows as bytes, in the order of first rows."""
    places: dict[str, list[int]] = {}
    for position, owner in enumerate(owners):
        places.setdefault(owner, []).append(position)
    for owner, theirs in places.items():
        index = np.array(theirs, dtype=np.intp)
        yield owner, rows_as_bytes(rows.take(index), index)


def _checked(content: bytes | None, name: str) -> bytes:
    """Return what may be shipped, without the hash before it, once that agrees."""
    if content is None:
        raise ScheduleExhausted(
            f"model {name!r} has no release: its contract was spent when it was "
            "restored; fit it anew"
        )
    said, data = content[:HASH_BYTES], content[HASH_BYTES:]
    if sha256(data).digest() != said:
        raise StoreFailed(
            f"the release of model {name!r} was altered in the database; put it back "
            "from a backup and run expunge restore"
        )
    return data


def _parts(data: bytes) -> Content:
    content, arrays = unframed(data)
    return {name: unpacked(content[name], arrays) for name in content}


def _remaining(everybody: Everybody, page_keys: PageKeys, gone: Index) -> Rows:
    """Return all rows but those at some places."""
    rows, places = rows_of(everybody(page_keys))
    return rows.take(~np.isin(places, gone))


def _kept(people: Iterable[bytes], n_places: int) -> Kept:
    """Return the rows at their places, with nothing where rows were removed."""
    rows, places = rows_of(people)
    X = np.zeros((n_places, rows.X.shape[1]))
    y = np.zeros((n_places, *rows.y.shape[1:]))
    weight = np.zeros(n_places)
    X[places], y[places], weight[places] = rows.dense(), rows.y, rows.weight
    kept = Kept(Rows(X, y, weight), [""] * n_places)
    kept.alive[:] = False
    kept.alive[places] = True
    return kept
