# SPDX-License-Identifier: Apache-2.0
"""Traces of people: what would give them away, and in which files it is."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from expunge.registry import Registry

from .examples import features_of
from .stored import keys_apart, sealed_rows, tags_of


def everything(*folders: Path) -> dict[str, bytes]:
    """Return the content of all files below some folders."""
    files = [path for folder in folders for path in folder.rglob("*")]
    return {str(path): path.read_bytes() for path in files if path.is_file()}


def found(traces: Sequence[bytes], files: dict[str, bytes]) -> list[str]:
    """Return the files that hold any of some traces."""
    return [name for name, data in files.items() if any(t in data for t in traces)]


def traces_of_rows(name: str) -> list[bytes]:
    """Return how the features of a person could be written: binary and as text."""
    traces = []
    for value in features_of(name).ravel():
        traces += [
            np.float64(value).tobytes(),
            np.float32(value).tobytes(),
            np.float64(value).astype(">f8").tobytes(),
            repr(float(value)).encode(),
            f"{value:.6f}".encode(),
        ]
    return traces


def spelled(keys: Sequence[bytes]) -> list[bytes]:
    """Return how keys could be written."""
    return [*keys, *(key.hex().encode() for key in keys)]


def beginnings(sealed: Sequence[bytes]) -> list[bytes]:
    """Return what is looked for of sealed rows, which a database may cut up."""
    return [one[:64] for one in sealed]


def require_erased(
    registry: Registry, folder: Path, *, person: str, erase: Callable[[], object]
) -> None:
    """See that rows set aside, and their keys, are on disk before and not after."""
    (tag,) = tags_of(registry, person)
    sealed = beginnings(
        [
            one
            for model in ("all", "half")
            for one in sealed_rows(registry, person, model, apart=True)
        ]
    )
    keys = spelled([*keys_apart(registry, "all")])
    before = everything(folder)
    assert found(sealed, before) and found(keys, before)
    erase()
    after = everything(folder)
    assert not found(sealed, after) and not found(keys, after)
    assert not found(traces_of_rows(person), after)
    assert found([tag.encode()], after) == [str(folder / "journal")]
