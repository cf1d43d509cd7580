# SPDX-License-Identifier: Apache-2.0
"""Writing a Parquet file again without some of its rows.

The new file is written beside the old one, a row group at a time, and flushed to disk.
It has the schema, the row groups, the compression and the metadata of the old one, as
far as pyarrow can carry them over. Nothing here touches the old file: ``put_in_place``
lets the new one take its place at once.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Index
from ..disk import hidden_path, open_new, sync_folder
from ..exceptions import InvalidInput
from ..private_model.subjects import person
from .parquet import (
    BUFFER_BYTES,
    Identity,
    import_arrow_errors,
    import_parquet,
    to_numpy,
)


def draft_path(path: Path) -> Path:
    """Return where the new content of a file waits, under a name that nobody reads."""
    return hidden_path(path, "new")


def write_draft(path: Path, gone: Index) -> Identity:
    """Write a file without these rows, beside it; return what tells the new content.

    Parameters
    ----------
    path
        The file, which stays as it is.
    gone
        Sorted numbers of the rows to leave out, from 0.
    """
    draft = draft_path(path)
    with _explain(draft):
        draft.unlink(missing_ok=True)
        _copy_rows(path, draft, gone=gone)
        _copy_rights(path, draft)
        return Identity.of(draft)


def put_in_place(path: Path) -> None:
    """Let the new content of a file take the place of the old one, for good."""
    with _explain(draft_path(path)):
        draft_path(path).replace(path)
    sync_folder(path.parent)


@contextmanager
def _explain(draft: Path) -> Iterator[None]:
    """Say why a file could not be rewritten, without its name, and drop the draft."""
    unreadable: tuple[type[Exception], ...] = (OSError, *import_arrow_errors())
    try:
        yield
    except unreadable as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidInput(
            f"a file could not be written again without some rows ({reason}); it is as "
            "it was: make room, or check that its folder can be written to"
        ) from None


def read_owners_at(path: Path, subject: str, *, rows: Index) -> list[str]:
    """Return who owns some rows of a file, which are sorted and counted from 0."""
    parquet, owners = import_parquet(), []
    with parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
        begin = 0
        for batch in file.iter_batches(columns=[subject], use_threads=False):
            some = slice(*np.searchsorted(rows, [begin, begin + batch.num_rows]))
            # Spelled as at the fit.
            owners += to_numpy(batch.column(0).take(rows[some] - begin)).tolist()
            begin += batch.num_rows
    return [person(one) for one in owners]


def _copy_rows(path: Path, draft: Path, *, gone: Index) -> None:
    """Write the other rows of a file to a new one, group by group."""
    pa: Any = import_module("pyarrow")
    parquet = import_parquet()
    small = {"buffer_size": BUFFER_BYTES, "pre_buffer": False}
    with parquet.ParquetFile(path, **small) as old:
        schema, n_left = old.schema_arrow, old.metadata.num_rows - len(gone)
        _require_plain_dictionaries(schema)
        with (
            os.fdopen(open_new(draft), "wb") as file,
            parquet.ParquetWriter(file, schema, **_describe(old.metadata)) as new,
        ):
            begin = 0
            for number in range(old.metadata.num_row_groups):
                group = old.read_row_group(number, use_threads=False)
                some = slice(*np.searchsorted(gone, [begin, begin + len(group)]))
                stay = np.ones(len(group), dtype=bool)
                stay[gone[some] - begin] = False
                begin += len(group)
                if not stay.all():
                    group = group.filter(pa.array(stay))
                if len(group):
                    group = _without_unused_words(group)
                    new.write_table(group, row_group_size=len(group))
                del group
                pa.default_memory_pool().release_unused()
    with draft.open("rb") as written_file:
        os.fsync(written_file.fileno())
    with parquet.ParquetFile(draft, pre_buffer=False) as new:
        written = new.metadata.num_rows
        if written != n_left or not new.schema_arrow.equals(schema):
            raise OSError(f"{written} rows were written where {n_left} are left")


def _without_unused_words(group: Any) -> Any:
    """Return rows whose dictionaries list only the words that are in the rows.

    A dictionary is written as it is, with the words of rows that are gone.
    """
    types: Any = import_module("pyarrow.types")
    for index, field in enumerate(group.schema):
        if types.is_dictionary(field.type):
            group = group.set_column(index, field, _list_used(group.column(index)))
    return group


def _require_plain_dictionaries(schema: Any) -> None:
    """Refuse dictionaries inside lists or structs: their words cannot be sorted out."""
    types: Any = import_module("pyarrow.types")

    def inside(kind: Any) -> bool:
        children = [kind.field(index).type for index in range(kind.num_fields)]
        return any(types.is_dictionary(one) or inside(one) for one in children)

    for field in schema:
        if inside(field.type):
            raise InvalidInput(
                f"column {field.name!r} holds dictionaries inside lists or structs, "
                "and these list words of rows that are gone; nothing was written: "
                "write the file with plain words in that column, and fit again"
            )


def _list_used(column: Any) -> Any:
    """Return a column with the words in use as its dictionary, in their order."""
    pa: Any = import_module("pyarrow")
    compute: Any = import_module("pyarrow.compute")
    whole = column.unify_dictionaries().combine_chunks()
    used = compute.unique(whole.indices.drop_null())
    used = used.take(compute.sort_indices(used))
    codes = compute.index_in(whole.indices, value_set=used).cast(column.type.index_type)
    return pa.DictionaryArray.from_arrays(
        codes, whole.dictionary.take(used), ordered=column.type.ordered
    )


def _describe(metadata: Any) -> dict[str, Any]:
    """Return how a file was written, as a writer takes it."""
    options: dict[str, Any] = {"version": metadata.format_version}
    if not metadata.num_row_groups:
        return options
    group = metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    options["compression"] = {
        one.path_in_schema: one.compression.lower().replace("uncompressed", "none")
        for one in columns
    }
    options["use_dictionary"] = [
        one.path_in_schema for one in columns if one.has_dictionary_page
    ]
    options["write_statistics"] = [
        one.path_in_schema for one in columns if one.is_stats_set
    ]
    options["use_deprecated_int96_timestamps"] = any(
        one.physical_type == "INT96" for one in columns
    )
    if group.sorting_columns:
        options["sorting_columns"] = group.sorting_columns
    return options


def _copy_rights(path: Path, draft: Path) -> None:
    """Give a new file the owner and the mode of the old one."""
    there = path.stat()
    with suppress(PermissionError):
        os.chown(draft, there.st_uid, there.st_gid)
    os.chmod(draft, there.st_mode & 0o7777)
