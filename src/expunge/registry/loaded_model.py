# SPDX-License-Identifier: Apache-2.0
"""LoadedModel: a model as the worker holds it, to and from a checkpoint's bytes.

A checkpoint is the private model without its rows. These lie apart, sealed for each
person, and are fetched when an answer needs them. Places number the rows at the fit and
never change, so the rows that are left always come in the same order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Private
from ..core.objective import Rows
from ..core.packing import pack, unpack
from ..exceptions import ScheduleExhausted, StoreFailed
from ..files.folder import (
    frame,
    frame_public,
    import_safetensors,
    unframe,
    unframe_public,
)
from ..preprocessing import pipeline_model
from ..private_model.model import Fetch, PrivateModel
from ..private_model.snapshot import PublicModel, Snapshot
from ..private_model.training_rows import TrainingRows
from ..selection import tuned_model, tuned_pipeline
from .storage.people_table import PageKeys

# Checkpoints hold models of these kinds; importing a kind lets it be read.
KINDS = (
    PrivateModel,
    pipeline_model.PipelineModel,
    tuned_model.TunedModel,
    tuned_pipeline.TunedPipelineModel,
)
HASH_BYTES = 32

ReadRows = Callable[[PageKeys], Iterable[bytes]]
"""From the page keys of a model, to the rows of each of its people."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LoadedModel(Private):
    """A model in the worker's hands.

    Attributes
    ----------
    name
        Of the model.
    generation, checkpoint
        Of its private model, and the file that this is in.
    number
        Of its newest release.
    snapshot
        The model itself.
    page_keys
        The keys of the pages that hold the keys of people's rows.
    """

    name: str
    generation: int
    checkpoint: str
    number: int
    snapshot: Snapshot
    page_keys: PageKeys

    @property
    def private(self) -> PrivateModel:
        """The private model."""
        assert self.snapshot.private is not None
        return self.snapshot.private

    def keep(self, private: PrivateModel) -> "LoadedModel":
        """Return the model with another private model, and nothing released."""
        return replace(self, snapshot=self.snapshot.keep(private))


def dump_checkpoint(snapshot: Snapshot, page_keys: PageKeys) -> list[memoryview]:
    """Return the private model as bytes, in parts, to be sealed."""
    arrays: dict[str, NDArray[Any]] = {}
    content = snapshot.dump(arrays)
    content["page_keys"] = pack(page_keys, "page_keys", arrays=arrays)
    return frame(content, arrays)


def load_checkpoint(line: Any, data: bytes, *, read_rows: ReadRows) -> LoadedModel:
    """Return a model from its checkpoint and the content of its release.

    Parameters
    ----------
    line
        As ``releases_table.newest`` returns it.
    data
        The checkpoint.
    read_rows
        How to get at people's rows.
    """
    public = Snapshot(
        load_public(line.name, line.content)
    )  # or say that there is no release any more
    content, arrays = unframe(data)
    page_keys: PageKeys = unpack(content["page_keys"], arrays)
    # The store knows whose rows these are: no digests are needed.
    fetch = make_fetch(read_rows, page_keys)
    snapshot = public.load(content, arrays, fetch=fetch)
    private = snapshot.private
    assert private is not None
    if private.needs_training_rows:
        kept = _place_rows(read_rows(page_keys), private.n_samples)
        snapshot = snapshot.keep(replace(private, training_rows=kept))
    return LoadedModel(
        line.name, line.generation, line.checkpoint, line.number, snapshot, page_keys
    )


def dump_public(public: PublicModel) -> bytes:
    """Return what may be shipped of a release as bytes, with a hash before them."""
    data = frame_public(public)
    return sha256(data).digest() + data


def load_public(name: str, content: bytes | None) -> PublicModel:
    """Return what may be shipped of a model's release, once its hash agrees."""
    if content is None:
        raise ScheduleExhausted(
            f"model {name!r} has no release: its budget was spent when it was "
            "restored; fit it again"
        )
    said, data = content[:HASH_BYTES], content[HASH_BYTES:]
    if sha256(data).digest() != said:
        raise StoreFailed(
            f"the release of model {name!r} was altered in the database; put it back "
            "from a backup and run expunge restore"
        )
    return unframe_public(data)


def make_fetch(read_rows: ReadRows, page_keys: PageKeys) -> Fetch:
    """Return how to get the remaining rows, under these keys."""

    def fetch(gone: Index) -> Rows:
        rows, places = load_rows(read_rows(page_keys))
        return rows.take(~np.isin(places, gone))

    return fetch


def dump_rows(rows: Rows, places: Index) -> bytes:
    """Return rows with their places as bytes."""
    arrays = {
        "X": np.ascontiguousarray(rows.dense()),
        "y": np.ascontiguousarray(rows.y),
        "weight": np.ascontiguousarray(rows.weight),
        "places": np.asarray(places, dtype=np.int64),
    }
    data: bytes = import_safetensors().save(arrays)
    return data


def load_rows(people: Iterable[bytes]) -> tuple[Rows, Index]:
    """Return the rows of some people in the order of their places, and these."""
    load = import_safetensors().load
    parts = [load(data) for data in people]
    places = np.concatenate([part["places"] for part in parts])
    order = np.argsort(places)
    X, y, weight = (
        np.concatenate([part[name] for part in parts])[order]
        for name in ("X", "y", "weight")
    )
    return Rows(X, y, weight), places[order]


def dump_by_person(rows: Rows, owners: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield each person's id with their rows as bytes, in the order of first rows."""
    places: dict[str, list[int]] = {}
    for position, owner in enumerate(owners):
        places.setdefault(owner, []).append(position)
    for owner, theirs in places.items():
        index = np.array(theirs, dtype=np.intp)
        yield owner, dump_rows(rows.take(index), index)


def _place_rows(people: Iterable[bytes], n_places: int) -> TrainingRows:
    """Return the rows at their places, with nothing where rows were removed."""
    rows, places = load_rows(people)
    X = np.zeros((n_places, rows.X.shape[1]))
    y = np.zeros((n_places, *rows.y.shape[1:]))
    weight = np.zeros(n_places)
    X[places], y[places], weight[places] = rows.dense(), rows.y, rows.weight
    kept = TrainingRows(Rows(X, y, weight), [""] * n_places)
    kept.alive[:] = False
    kept.alive[places] = True
    return kept
