# SPDX-License-Identifier: Apache-2.0
"""EmbeddingCache: embeddings that forget with the person whose inputs they were of.

An encoder is slow and a head is fitted often, so embeddings are kept from one fit to
the next: in memory, or in a folder with one file for each person. A file is named by a
keyed hash of the id and holds, for each input, a keyed hash of it and of the encoder,
and its embedding. To forget somebody is to overwrite that file with zeros and to delete
it. An embedding is as personal as its input: guard the folder like the inputs.

Several processes may share a folder: one at a time changes it, and each adds to what is
there then, so that none writes back what another has forgotten.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Matrix, Vector
from ..disk import (
    delete_draft,
    destroy,
    make_folder,
    replace_file,
    store_failure,
)
from ..exceptions import InvalidInput, Unsupported
from ..private_model.subjects import person
from ..promise.noise import SECRET_BYTES, random_bytes

if os.name == "posix":
    import fcntl

KEY, ENDING = "key", ".embeddings"
NUMBER = np.dtype("<f8")


class EmbeddingCache:
    """Embeddings by person, in memory or in a folder.

    Parameters
    ----------
    folder
        Where they are kept; in memory, until the process ends, without it.
    """

    def __init__(self, folder: str | PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._held: dict[str, dict[bytes, Vector]] = {}
        self._key = random_bytes(SECRET_BYTES)
        if self._folder is None:
            return
        key = self._folder / KEY
        try:
            make_folder(self._folder)
            with self._alone():
                if not key.exists():
                    replace_file(key, self._key)
            self._key = key.read_bytes()
        except OSError as error:
            raise store_failure(error) from error
        if len(self._key) != SECRET_BYTES:
            raise InvalidInput(
                f"{key} is no key of an EmbeddingCache; name another folder, or delete "
                "this one: without its key nobody can be found in it"
            )

    def __repr__(self) -> str:
        return "EmbeddingCache(private)"

    def __reduce__(self) -> Any:
        """Refuse to be pickled: a copy would not forget."""
        raise TypeError("EmbeddingCache holds people's embeddings: it is not copied")

    def complete(
        self,
        inputs: Any,
        owners: Sequence[str],
        *,
        identity: str,
        embed: Callable[[Any], Matrix],
    ) -> Matrix:
        """Return the embedding of each input; those that are new are made and kept.

        Parameters
        ----------
        inputs, owners
            Texts or arrays, and whose each is.
        identity
            What tells the encoder from others.
        embed
            Makes embeddings of those inputs that are not here.
        """
        names = [self._hash(identity.encode() + _bytes_of(one)) for one in inputs]
        with self._alone():  # what is replaced while it is read is overwritten
            held = {owner: self._read(owner) for owner in dict.fromkeys(owners)}
        missing = [
            place
            for place, (owner, name) in enumerate(zip(owners, names, strict=True))
            if name not in held[owner]
        ]
        if missing:
            some = (
                inputs[np.array(missing)]
                if isinstance(inputs, np.ndarray)
                else [inputs[place] for place in missing]
            )
            made: dict[str, dict[bytes, Vector]] = {}
            for place, row in zip(missing, embed(some), strict=True):
                made.setdefault(owners[place], {})[names[place]] = row.copy()
            for owner, rows in made.items():
                held[owner].update(rows)
                self._keep(owner, rows)
        pairs = zip(owners, names, strict=True)
        return np.array([held[owner][name] for owner, name in pairs])

    def forget(self, people: Iterable[object]) -> None:
        """Overwrite and delete what is kept of people; unknown ones are no error.

        Parameters
        ----------
        people
            Their ids.
        """
        for owner in map(person, people):
            for row in self._held.pop(owner, {}).values():
                row[:] = 0.0
            if self._folder is not None:
                path = self._path(owner)
                with self._alone():
                    delete_draft(path)  # that a killed process left
                    destroy(path)

    def _hash(self, data: bytes) -> bytes:
        return blake2b(data, key=self._key, digest_size=SECRET_BYTES).digest()

    def _path(self, owner: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._hash(owner.encode()).hex()}{ENDING}"

    def _read(self, owner: str) -> dict[bytes, Vector]:
        if self._folder is None:
            return self._held.setdefault(owner, {})
        try:
            data = self._path(owner).read_bytes()
        except FileNotFoundError:
            return {}
        found, width = {}, int.from_bytes(data[:8], "little") * NUMBER.itemsize
        step = SECRET_BYTES + width
        if not width or (len(data) - 8) % step:
            raise InvalidInput(
                f"{self._path(owner)} is no file of an EmbeddingCache; delete it"
            )
        for begin in range(8, len(data), step):
            middle = begin + SECRET_BYTES
            found[data[begin:middle]] = np.frombuffer(
                data[middle : begin + step], NUMBER
            )
        return found

    def _keep(self, owner: str, made: dict[bytes, Vector]) -> None:
        """Add embeddings of a person to those that the folder has now."""
        if self._folder is None:
            return
        # Another encoder's rows may have another width: a file holds one width alone.
        width = len(next(iter(made.values())))
        parts = [width.to_bytes(8, "little")]
        with self._alone():
            for name, row in (self._read(owner) | made).items():
                if len(row) == width:
                    parts += [name, row.astype(NUMBER).tobytes()]
            replace_file(self._path(owner), b"".join(parts))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from changing the folder, where the system can."""
        if os.name != "posix" or self._folder is None:
            yield
            return
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _bytes_of(one: Any) -> bytes:
    """Return what tells an input from others."""
    if isinstance(one, str):
        return b"text" + one.encode("utf-8", "surrogatepass")
    if isinstance(one, np.ndarray) and one.dtype != object:
        return (
            f"{one.dtype.str}{one.shape}".encode() + np.ascontiguousarray(one).tobytes()
        )
    raise Unsupported(
        f"a cache of embeddings takes texts and arrays of numbers, and an input is of "
        f"{type(one).__name__}; leave cache out"
    )
