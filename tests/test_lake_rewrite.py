# SPDX-License-Identifier: Apache-2.0
"""Files that are rewritten without people who left: models follow, also after kills."""

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from expunge.exceptions import InvalidInput
from expunge.long import rewriting
from expunge.long.parquet import Identity
from expunge.long.rewriting import put_in_place, write_draft
from expunge.long.source import Version
from expunge.registry import NewRows, Registry
from expunge.registry.lake import Reader
from tests.lakes import (
    fit_lake,
    fit_memory,
    make_lake,
    model,
    named,
    open_lake,
    require_close,
    retrained,
    touch,
)
from tests.long_tables import make_columns
from tests.registries import ask, hold, private_model_of, require_consistent
from tests.thorough import either
from tests.users import killed_at

GONE = ("person 0", "person 3", "person 499", "person 1500")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Give the folder of a lake."""
    make_lake(tmp_path / "lake")
    return tmp_path / "lake"


def people_in(lake: Path) -> set[str]:
    """Return who is in the files of a lake."""
    tables = [pq.read_table(path, columns=["id"]) for path in lake.glob("*.parquet")]
    return {*pa.concat_tables(tables).column("id").to_pylist()}


def require_rewritten(registry: Registry, lake: Path, name: str = "late") -> None:
    """See that nobody who left is in the files, and that all others are."""
    assert registry.lake.status(name).n_to_rewrite == 0
    columns = make_lake(lake.with_name("other"))
    assert people_in(lake) == {*columns.subjects} - {*GONE}
    assert not list(lake.glob(".*"))


def test_a_model_follows_its_files(
    tmp_path: Path, lake: Path, registry_url: str | None
) -> None:
    columns = make_lake(lake)
    with Registry.create(tmp_path / "registry", url=registry_url) as registry:
        fit_lake(registry, lake)
        assert registry.lake.status("late").n_to_rewrite == 0
        registry.forget(GONE)
        status = registry.lake.status("late")
        assert (status.source, status.n_files, status.n_to_rewrite) == ("orders", 3, 2)
        before = (lake / "1.parquet").stat()
        passed = _sums(registry)
        assert registry.lake.rewrite("late") == 2
        # A file without any of them is not touched, and passes have the same bits.
        assert (lake / "1.parquet").stat() == before
        assert np.array_equal(_sums(registry), passed)
        require_rewritten(registry, lake)
        assert registry.lake.rewrite("late") == 0
    with Registry.open(tmp_path / "registry") as registry:
        registry.forget(["person 4", "person 1400"])
        gone = (*GONE, "person 4", "person 1400")
        require_close(registry, "late", retrained(columns, *gone))
        assert registry.lake.rewrite("late") == 2
        assert people_in(lake) == {*columns.subjects} - {*gone}
        registry.models.reanchor("late")
        require_close(registry, "late", retrained(columns, *gone))
        require_consistent(registry)


def _sums(registry: Registry) -> Any:
    """Return sums over the remaining rows of a model, made by a pass."""
    rows = private_model_of(registry, "late").remaining_rows()
    assert rows is not None
    (found,) = rows.sum_blocks(lambda block: (block.weight * block.y @ block.X,))
    return found


def test_files_keep_their_shape(tmp_path: Path) -> None:
    columns = make_lake(tmp_path / "other")
    lake = tmp_path / "lake"
    lake.mkdir()
    whole = pa.concat_tables(map(pq.read_table, sorted((tmp_path / "other").glob("*"))))
    whole = whole.replace_schema_metadata({"made by": "a pipeline"})
    codecs = {name: "zstd" for name in whole.column_names} | {"id": "gzip"}
    options: dict[str, Any] = {"compression": codecs, "use_dictionary": ["id"]}
    pq.write_table(whole, lake / "a.parquet", row_group_size=700, **options)
    (lake / "a.parquet").chmod(0o640)
    before = pq.ParquetFile(lake / "a.parquet")
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        registry.forget(["person 0", "person 300"])
        assert registry.lake.rewrite("late") == 1
    after = pq.ParquetFile(lake / "a.parquet")
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
    assert after.schema_arrow.metadata[b"made by"] == b"a pipeline"
    assert (lake / "a.parquet").stat().st_mode & 0o777 == 0o640
    sizes = [[_n_rows(one, group) for group in range(7)] for one in (before, after)]
    assert sizes[0] == [700] * 6 + [301]
    assert sizes[1] == [697, 697, *[700] * 4, 301]
    for place, name in enumerate(whole.column_names):
        chunk = after.metadata.row_group(0).column(place)
        assert chunk.compression == ("GZIP" if name == "id" else "ZSTD")
        assert chunk.has_dictionary_page == (name == "id")
    stay = [one not in ("person 0", "person 300") for one in columns.subjects]
    assert after.read().equals(whole.filter(pa.array(stay)))


def test_dictionaries_forget_the_words_of_those_who_left(tmp_path: Path) -> None:
    """A data frame writes all categories of a column, into every row group."""
    make_lake(tmp_path / "other", 600)
    whole = pa.concat_tables(map(pq.read_table, sorted((tmp_path / "other").glob("*"))))
    ids = whole.column("id").combine_chunks().dictionary_encode()
    words = pa.DictionaryArray.from_arrays(ids.indices, ids.dictionary, ordered=True)
    kinds = pa.array(["car", None, "van"] * 200).dictionary_encode()
    times = pa.array(np.arange(600).astype("datetime64[ns]"))
    more = {"who": words, "kind": kinds, "time": times}
    for name, column in more.items():
        whole = whole.append_column(name, column)
    lake = tmp_path / "lake"
    lake.mkdir()
    options: dict[str, Any] = {"use_deprecated_int96_timestamps": True}
    path = lake / "a.parquet"
    pq.write_table(whole, path, row_group_size=100, compression="none", **options)
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        registry.forget(["person 33"])
        assert b"person 33" in path.read_bytes()
        assert registry.lake.rewrite("late") == 1
    assert b"person 33" not in path.read_bytes()
    after = pq.ParquetFile(path)
    assert after.schema_arrow.equals(whole.schema)
    assert after.metadata.row_group(0).column(11).physical_type == "INT96"
    stay = pa.array([row // 3 != 33 for row in range(600)])
    assert after.read().to_pylist() == whole.filter(stay).to_pylist()


@pytest.mark.parametrize("inside", ["list", "struct"])
def test_dictionaries_inside_columns_are_refused(tmp_path: Path, inside: str) -> None:
    words = pa.array(["a", "b"]).dictionary_encode()
    column = (
        pa.StructArray.from_arrays([words], ["word"])
        if inside == "struct"
        else pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), words)
    )
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"words": column}), path)
    with pytest.raises(InvalidInput, match="column 'words' holds dictionaries inside"):
        write_draft(path, np.array([1]))
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]


def _n_rows(file: Any, group: int) -> int:
    return int(file.metadata.row_group(group).num_rows)


def test_a_row_that_another_model_uses_stays(tmp_path: Path, lake: Path) -> None:
    columns = make_lake(lake)
    with Registry.create(tmp_path / "registry") as registry:
        fit_memory(registry, columns)
        registry.forget(["person 5"])
        with open_lake(lake) as table:
            registry.fit("late", model(), table, without_forgotten=True)
        registry.requests.readmit(["person 5"])
        fit_lake(registry, lake, "other")
        registry.forget(["person 6"])
        assert registry.lake.rewrite("late") == 1
        # person 5 is in use by the other model; person 6 left both.
        assert people_in(lake) == {*columns.subjects} - {"person 6"}
        for name in ("late", "other"):
            assert registry.lake.status(name).n_to_rewrite == 0
        registry.forget(["person 5", "person 7"])
        require_close(
            registry, "other", retrained(columns, "person 5", "person 6", "person 7")
        )
        assert registry.lake.rewrite("other") == 1
        gone = {"person 5", "person 6", "person 7"}
        assert people_in(lake) == {*columns.subjects} - gone
        for name in ("late", "other"):
            assert registry.lake.status(name).n_to_rewrite == 0
            registry.models.reanchor(name)
            require_close(registry, name, retrained(columns, *gone))


def test_who_did_not_leave_stays_in_the_files(tmp_path: Path, lake: Path) -> None:
    """Restricted, held, with more rows or corrected ones: until they are erased."""
    columns = make_lake(lake)
    others = ("person 8", "person 9", "person 10", "person 11")
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        ask(registry, "restrict", "person 8")
        hold(registry, "person 9", until="2999-01-01")
        X, y, weight = named(columns.X[:1]), columns.words[:1], columns.weight[:1]
        of_rows: Any = {"subjects": ["person 10"], "sample_weight": weight}
        registry.add("late", X, y, **of_rows)
        rows = {"late": NewRows(X, y, weight)}
        ask(registry, "rectify", "person 11", rows=rows)
        assert registry.lake.status("late").n_to_rewrite == 0
        assert registry.lake.rewrite("late") == 0
        registry.forget(["person 12"])
        assert registry.lake.rewrite("late") == 1
        assert people_in(lake) == {*columns.subjects} - {"person 12"}
        ask(registry, "lift", "person 8")
        ask(registry, "end-hold", "person 9")
        registry.forget([one for one in others if one != "person 9"])
        assert registry.lake.rewrite("late") == 1
        assert people_in(lake) == {*columns.subjects} - {*others, "person 12"}
        registry.models.reanchor("late")
        require_close(registry, "late", retrained(columns, *others, "person 12"))


def test_ids_are_spelled_as_at_the_fit(tmp_path: Path) -> None:
    """Times with a zone have two spellings; who is restricted stays by either."""
    make_lake(tmp_path / "other", 600)
    whole = pa.concat_tables(map(pq.read_table, sorted((tmp_path / "other").glob("*"))))
    days = pa.array(np.arange(600) // 3 * 86_400_000_000, pa.timestamp("us", "UTC"))
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(whole.drop(["id"]).append_column("id", days), lake / "a.parquet")
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        ask(registry, "restrict", "1970-01-08 00:00:00")
        assert registry.lake.status("late").n_to_rewrite == 0
        assert registry.lake.rewrite("late") == 0
        registry.forget(["1970-01-08 00:00:00"])
        assert registry.lake.rewrite("late") == 1


def test_whole_files_and_blocks_can_leave(tmp_path: Path, lake: Path) -> None:
    """Of a file nobody is left in, nothing but its schema stays."""
    columns = make_lake(lake)
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        first = pq.read_table(lake / "0.parquet").column("id").to_pylist()
        gone = sorted({*first})
        registry.forget(gone)
        assert registry.lake.rewrite("late") == 1
        assert pq.read_metadata(lake / "0.parquet").num_rows == 0
        registry.models.reanchor("late")
        require_close(registry, "late", retrained(columns, *gone))
        registry.forget(["person 800"])
        registry.lake.rewrite("late")
        require_close(registry, "late", retrained(columns, *gone, "person 800"))


def test_everybody_in_the_files_can_leave(tmp_path: Path, lake: Path) -> None:
    """Then the model has the rows that came later, and passes over nothing else."""
    columns, later = make_lake(lake, 90), make_columns(60)
    new = [f"new {row // 3}" for row in range(60)]
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        of_rows: Any = {"subjects": new, "sample_weight": later.weight}
        registry.add("late", named(later.X), later.words, **of_rows)
        registry.forget(sorted({*columns.subjects}))
        assert registry.lake.rewrite("late") == 3
        registry.models.reanchor("late")
        registry.forget(["new 3"])
        registry.models.reanchor("late")
        expected = retrained(replace(later, subjects=new), "new 3")
        require_close(registry, "late", expected)


def test_what_is_refused(tmp_path: Path, lake: Path) -> None:
    columns = make_lake(lake)
    with Registry.create(tmp_path / "registry") as registry:
        fit_memory(registry, columns)
        with pytest.raises(InvalidInput, match="kept in the registry, sealed"):
            registry.lake.rewrite("memory")
        fit_lake(registry, lake)
        registry.forget(GONE)
        touch(lake / "2.parquet")
        changed = (lake / "2.parquet").read_bytes()
        with pytest.raises(InvalidInput, match="file 2 of source 'orders' changed"):
            registry.lake.rewrite("late")
        assert (lake / "2.parquet").read_bytes() == changed


def test_files_that_came_back_are_not_vouched_for(tmp_path: Path, lake: Path) -> None:
    """Somebody puts old files in place, with those who left: nobody says they are not.

    So it is with files that are gone.
    """
    kept = shutil.copytree(lake, tmp_path / "kept")
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        registry.forget(GONE)
        registry.lake.rewrite("late")
        shutil.copy2(kept / "0.parquet", lake / "0.parquet")
        for ask_about in (registry.lake.status, registry.lake.rewrite):
            with pytest.raises(InvalidInput, match="file 0 of source 'orders' changed"):
                ask_about("late")
        (lake / "0.parquet").unlink()
        with pytest.raises(InvalidInput, match="file 0 of source 'orders' changed"):
            registry.lake.status("late")


def test_nobody_else_reads_a_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file for its owner alone is not laid open while it is rewritten."""
    path, modes = tmp_path / "a.parquet", []
    pq.write_table(pa.table({"x": [1, 2, 3]}), path)
    path.chmod(0o600)
    copy = rewriting._copy_rights

    def look(old: Path, draft: Path) -> None:
        modes.append(draft.stat().st_mode & 0o777)
        copy(old, draft)

    monkeypatch.setattr(rewriting, "_copy_rights", look)
    before = os.umask(0o022)
    try:
        write_draft(path, np.array([1]))
    finally:
        os.umask(before)
    assert modes == [0o600]


def test_a_file_that_cannot_be_replaced_is_not_named(tmp_path: Path) -> None:
    folder = tmp_path / "person 3"
    with pytest.raises(InvalidInput, match="it is as it was") as refused:
        put_in_place(folder / "a.parquet")
    assert "person" not in str(refused.value)


STRIDE = either(29, thorough=13)


@pytest.mark.parametrize("first", [0, STRIDE // 2])
def test_a_killed_rewrite_goes_on(tmp_path: Path, first: int) -> None:
    """At calls to the system, by a signal that nobody can catch."""
    made, lake = tmp_path / "made", tmp_path / "lake"
    columns = make_lake(lake, 600)
    gone = ("person 0", "person 100", "person 199")
    with Registry.create(made) as registry:
        fit_lake(registry, lake)
        fit_lake(registry, lake, "other")
        registry.forget(gone)
    kept = shutil.copytree(lake, tmp_path / "kept")
    expected = retrained(columns, *gone)

    def rewrite(folder: Path) -> None:
        with Registry.open(folder) as registry:
            registry.lake.rewrite("late")

    place, n_killed = first, 0
    while True:
        folder = tmp_path / "registry"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
        for path in kept.iterdir():
            shutil.copy2(path, lake / path.name)
        killed = killed_at(place, partial(rewrite, folder))
        with Registry.open(folder) as registry:
            # Each file is the old one or the new one, and can be read.
            for name in ("late", "other"):
                require_close(registry, name, expected)
                registry.models.reanchor(name)
                require_close(registry, name, expected)
            registry.forget(["person 50"])
            registry.lake.rewrite("late")
            assert people_in(lake) == {*columns.subjects} - {*gone, "person 50"}
            assert not list(lake.glob(".*"))
            for name in ("late", "other"):
                assert registry.lake.status(name).n_to_rewrite == 0
        if not killed:
            break
        n_killed += 1
        place += STRIDE
    assert n_killed > 3


def test_numbers_of_dropped_rows_are_those_of_the_fit() -> None:
    rng = np.random.default_rng(5)
    identity = Identity(1, 2, b"")
    for _ in range(200):
        n_rows = int(rng.integers(1, 30))
        dropped = np.flatnonzero(rng.random(n_rows) < rng.random())
        there = np.setdiff1d(np.arange(n_rows), dropped)
        gone = np.flatnonzero(rng.random(len(there)) < 0.5)
        absent = np.union1d(dropped, there[gone])
        reader = Reader("late", 0, Version(identity, dropped), absent, True, "id")
        assert np.array_equal(reader.unused, gone)
        assert np.array_equal(reader.drop(gone, identity).dropped, absent)
