# SPDX-License-Identifier: Apache-2.0
"""LoadedModel: a model as the worker holds it, to and from a checkpoint's bytes.

A checkpoint is the private model without its rows. These lie apart, sealed for each
person, and are fetched when an answer needs them. Places number the rows at the fit and
never change, so the rows that are left always come in the same order.

The rows may lie in files that the registry only reads. Then what is sealed for a person
is the places of their rows, and the checkpoint says where the files are. Rows that come
later, or come back, are sealed like others, under keys with higher numbers.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_array

from ..core.arrays import Design, Index
from ..core.packing import pack, unpack
from ..core.rows import Rows, RowSource
from ..core.values import STORED_LATER, Private, stored
from ..exceptions import Unsupported
from ..files.folder import (
    frame,
    frame_public,
    import_safetensors,
    unframe,
    unframe_public,
)
from ..long.source import Source
from ..preprocessing.balance import Balanced
from ..preprocessing.learned import Learned
from ..private_model.model import PrivateModel, require_optimised
from ..private_model.people_model import PeopleModel
from ..private_model.snapshot import PublicModel, Snapshot
from ..private_model.training_rows import NO_ROWS, TrainingRows
from ..selection.fold_chooser import FoldChooser
from .storage.releases_table import check_content

# What models in checkpoints are made of; importing it lets them be read.
PARTS = (PrivateModel, Learned, Balanced, FoldChooser)
# scikit-learn takes a second to import: only models that have these parts wait for it.
OTHER_PARTS = (
    *("linear_model.recommenders", "linear_model.naive_bayes", "linear_model.moments"),
    "private_model.exact",
    *(f"preprocessing.{part}" for part in ("fixed_map", "hashed", "inputs", "mapped")),
    "preprocessing.pairs",
)
STORED_LATER += [f"expunge.{part}" for part in OTHER_PARTS]
# How many people's rows are joined at once, and the length of a header before it.
AT_ONCE, LENGTH_BYTES = 4096, 8
# Arrays of sparse rows that do not have one value for each row.
ENTRIES = ("numbers", "columns", "width")

# What begins the places of rows in files: no value of safetensors is so long.
IN_FILES = b"\xff" * 8


class ReadRows(Protocol):
    """How to get at the rows of a model's people, as they were sealed."""

    def __call__(self, first: int = 0) -> Iterable[bytes]:
        """Return rows in use, those that are sealed under this key or a later one."""


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FilesOfModel(Private):
    """The rows of a model that lie in files.

    Attributes
    ----------
    source
        Where they are.
    end
        Rows that are sealed under this key, or a later one, are not there.
    """

    source: Source
    end: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LoadedModel(Private):
    """A model in the worker's hands.

    Attributes
    ----------
    name
        Of the model.
    key
        The number of the key of its checkpoint.
    number
        Of its newest release.
    snapshot
        The model itself.
    files
        Where the rows are, if they lie in files.
    """

    name: str
    key: int
    number: int
    snapshot: Snapshot
    files: FilesOfModel | None = None

    @property
    def private(self) -> PeopleModel:
        """The private model."""
        assert self.snapshot.private is not None
        return self.snapshot.private

    def keep(self, private: PeopleModel) -> "LoadedModel":
        """Return the model with another private model, and nothing released."""
        return replace(self, snapshot=self.snapshot.keep(private))


def dump_checkpoint(
    snapshot: Snapshot, *, files: FilesOfModel | None
) -> list[memoryview]:
    """Return the private model as bytes, in parts, to be sealed."""
    arrays: dict[str, NDArray[Any]] = {}
    content = snapshot.dump(arrays)
    if files is not None:
        content["files"] = pack(files, "files", arrays=arrays)
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
    files: FilesOfModel | None = unpack(content.get("files"), arrays)
    # The store knows whose rows these are: no digests are needed.
    snapshot = public.load(content, arrays)
    private = snapshot.private
    assert private is not None
    private = with_fetch(private, read_rows, files=files)
    if private.needs_training_rows:
        kept = _place_rows(read_rows(), private.n_samples)
        private = replace(private, training_rows=kept)
    return LoadedModel(
        line.name,
        line.key,
        line.number,
        snapshot.keep(private),
        files,
    )


def require_passes(loaded: LoadedModel) -> RowSource:
    """Return the remaining rows of a model, as kept, or raise Unsupported."""
    rows = loaded.private.kept_rows()
    if rows is None:
        raise Unsupported(
            f"the rows of model {loaded.name!r} are not to be read again "
            "(keep_rows='never'), and this takes all of them; fit the model again with "
            "keep_rows='lake' or 'registry'"
        )
    return rows


def dump_public(public: PublicModel) -> bytes:
    """Return what may be shipped of a release as bytes, with a hash before them."""
    data = frame_public(public)
    return sha256(data).digest() + data


def load_public(name: str, content: bytes | None) -> PublicModel:
    """Return what may be shipped of a model's release, once its hash agrees."""
    return unframe_public(check_content(name, content))


def with_fetch(
    private: PeopleModel,
    read_rows: ReadRows,
    *,
    files: FilesOfModel | None,
) -> PeopleModel:
    """Return a private model that can get its remaining rows.

    If they lie in files that are not to be read again, it cannot.
    """

    def fetch(gone: Index) -> RowSource:
        if files is None:
            return load_rows(read_rows(), without=gone)[0]
        objective = require_optimised(private).objective
        there = files.source.rows(objective, private.labels, gone=gone)
        come = list(read_rows(files.end))
        return there.followed_by(load_rows(come, without=gone)[0]) if come else there

    may = files is None or files.source.passes
    return replace(private, fetch=fetch if may else None)


def dump_places(places: Index) -> bytes:
    """Return the places of a person's rows in files as bytes."""
    return IN_FILES + np.asarray(places, dtype="<i8").tobytes()


def read_from_files(loaded: LoadedModel, people: Iterable[bytes]) -> list[bytes]:
    """Return the rows of people as bytes, those that lie in files read from there."""
    found = list(people)
    if loaded.files is None:
        return found
    apart = [place for place, data in enumerate(found) if data.startswith(IN_FILES)]
    if not apart:
        return found
    places = [
        np.frombuffer(found[at], "<i8", offset=len(IN_FILES)).astype(np.intp)
        for at in apart
    ]
    private, source = require_optimised(loaded.private), loaded.files.source
    rows = source.take(
        private.objective, private.labels, positions=np.concatenate(places)
    )
    ends = np.cumsum([len(theirs) for theirs in places])
    for at, theirs, end in zip(apart, places, ends.tolist(), strict=True):
        found[at] = dump_rows(rows, theirs, at=np.arange(end - len(theirs), end))
    return found


def places_of(people: Iterable[bytes]) -> Index:
    """Return the places of people's rows."""
    load = import_safetensors().load
    found = [NO_ROWS, *(load(data)["places"] for data in people)]
    return np.concatenate(found).astype(np.intp)


def dump_by_person(rows: Rows, owners: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield each person's id with their rows as bytes, in the order of first rows."""
    places: dict[str, list[int]] = {}
    for position, owner in enumerate(owners):
        places.setdefault(owner, []).append(position)
    left = iter(places.items())
    while members := list(islice(left, AT_ONCE)):
        if sparse.issparse(rows.X):
            for owner, theirs in members:
                at = np.array(theirs, dtype=np.intp)
                yield owner, dump_rows(rows, at, at=at)
            continue
        alike: dict[int, list[int]] = {}
        for i, (_, theirs) in enumerate(members):
            alike.setdefault(len(theirs), []).append(i)
        dumped = [b""] * len(members)
        for some in alike.values():
            at = np.array([members[i][1] for i in some], dtype=np.intp)
            for i, data in zip(some, _dump_alike(rows, at), strict=True):
                dumped[i] = data
        yield from zip((owner for owner, _ in members), dumped, strict=True)


def _dump_alike(rows: Rows, at: Index) -> Iterator[bytes]:
    """Yield what ``dump_rows`` returns of people with as many rows, at (n, rows)."""
    first = dump_rows(rows, at[0], at=at[0])
    end = LENGTH_BYTES + int.from_bytes(first[:LENGTH_BYTES], "little")
    header, stated = first[:end], json.loads(first[LENGTH_BYTES:end])
    content = np.empty((len(at), len(first) - end), dtype=np.uint8)
    arrays = {
        "X": np.asarray(rows.X)[at],
        "y": rows.y[at],
        "weight": rows.weight[at],
        "places": at.astype(np.int64),
    }
    for name, array in arrays.items():
        begin, end = stated[name]["data_offsets"]
        flat = np.ascontiguousarray(array).reshape(len(at), -1)
        content[:, begin:end] = flat.view(np.uint8)
    for line in content:
        yield header + line.tobytes()


def dump_rows(
    rows: Rows, places: Index | None = None, *, at: Index | None = None
) -> bytes:
    """Return rows as bytes, with their places; sparse ones by what they store.

    ``at`` says where in ``rows`` they are; by default these are all of them. Without
    places they are numbered from 0.
    """
    at = np.arange(len(rows)) if at is None else at
    places = np.arange(len(at)) if places is None else places
    arrays = {
        **_dump_design(rows.X, at),
        "y": np.ascontiguousarray(rows.y[at]),
        "weight": rows.weight[at],
        "places": np.asarray(places, dtype=np.int64),
    }
    data: bytes = import_safetensors().save(arrays)
    return data


def load_rows(
    people: Iterable[bytes], *, without: Index | None = None
) -> tuple[Rows, Index]:
    """Return the rows of some people in the order of their places, and these.

    Parameters
    ----------
    people
        The rows of each; they are joined while they come from the store.
    without
        Places of rows to leave out.
    """
    left = iter(people)
    parts: list[dict[str, NDArray[Any]]] = []
    while members := list(islice(left, AT_ONCE)):
        parts += _join_people(members)
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if without is not None and len(without):
        arrays = _leave_out(arrays, without)
    rows = Rows(_load_design(arrays), arrays["y"], arrays["weight"])
    places = arrays["places"]
    if (np.diff(places) > 0).all():
        return rows, places
    order = np.argsort(places)
    return rows.take(order), places[order]


def _join_people(people: Iterable[bytes]) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the arrays of people, those of the same shapes joined at once.

    These have the same header in the format of safetensors, so that each array is at
    the same place in all of them.
    """
    alike: dict[bytes, list[bytes]] = {}
    for data in people:
        end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
        alike.setdefault(data[:end], []).append(data[end:])
    for header, contents in alike.items():
        n, stated = len(contents), json.loads(header[LENGTH_BYTES:])
        first = import_safetensors().load(header + contents[0])
        joined = np.frombuffer(b"".join(contents), dtype=np.uint8).reshape(n, -1)
        arrays = {}
        for name, like in first.items():
            begin, end = stated[name]["data_offsets"]
            array = np.ascontiguousarray(joined[:, begin:end]).reshape(-1)
            shape = n * len(like), *like.shape[1:]
            arrays[name] = array.view(like.dtype).reshape(shape)
        yield arrays


def _dump_design(X: Design, at: Index) -> dict[str, NDArray[Any]]:
    """Return some rows of a design by arrays that can be joined to those of others."""
    if not sparse.issparse(X):
        return {"X": np.ascontiguousarray(X[at])}
    begins, ends = X.indptr[at], X.indptr[at + 1]
    entries = [np.arange(*pair) for pair in zip(begins, ends, strict=True)]
    where = np.concatenate([NO_ROWS, *entries])
    return {
        "numbers": X.data[where],
        "columns": X.indices[where],
        "lengths": np.asarray(ends - begins, dtype=np.int64),
        "width": np.array([X.shape[1]], dtype=np.int64),
    }


def _load_design(arrays: dict[str, NDArray[Any]]) -> Design:
    """Return the design of rows that were dumped, dense or sparse as they were."""
    if "X" in arrays:
        return arrays["X"]
    numbers, columns, width = (arrays[n] for n in ("numbers", "columns", "width"))
    return _make_csr(numbers, columns, lengths=arrays["lengths"], width=int(width[0]))


def _make_csr(
    numbers: NDArray[Any], columns: NDArray[Any], *, lengths: NDArray[Any], width: int
) -> csr_array[Any, tuple[int, int]]:
    """Return the sparse rows that have so many of the entries, each in its turn."""
    pointers = np.concatenate([[0], np.cumsum(lengths)]).astype(columns.dtype)
    return csr_array((numbers, columns, pointers), shape=(len(lengths), width))


def _leave_out(arrays: dict[str, NDArray[Any]], gone: Index) -> dict[str, NDArray[Any]]:
    """Return the arrays of rows without those at some places."""
    stay = ~np.isin(arrays["places"], gone)
    kept = {name: array[stay] for name, array in arrays.items() if name not in ENTRIES}
    if "X" in arrays:
        return kept
    entries = np.repeat(stay, arrays["lengths"])
    kept |= {name: arrays[name][entries] for name in ("numbers", "columns")}
    return kept | {"width": arrays["width"]}


def _place_rows(people: Iterable[bytes], n_places: int) -> TrainingRows:
    """Return the rows at their places, with nothing where rows were removed."""
    rows, places = load_rows(people)
    y = np.zeros((n_places, *rows.y.shape[1:]))
    weight = np.zeros(n_places)
    y[places], weight[places] = rows.y, rows.weight
    X = _place_design(rows.X, places, n_places=n_places)
    kept = TrainingRows(Rows(X, y, weight), [""] * n_places)
    kept.alive[:] = False
    kept.alive[places] = True
    return kept


def _place_design(X: Design, places: Index, *, n_places: int) -> Design:
    """Return a design with these rows at these places, and zeros at others."""
    if not sparse.issparse(X):
        dense = np.zeros((n_places, X.shape[1]))
        dense[places] = X
        return dense
    lengths = np.zeros(n_places, dtype=np.int64)
    lengths[places] = np.diff(X.indptr)
    return _make_csr(X.data, X.indices, lengths=lengths, width=X.shape[1])
