# SPDX-License-Identifier: Apache-2.0
"""``expunge fit`` with files that stay where they are, and ``expunge lake``."""

from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from expunge.cli.output import DONE, WRONG_INPUT
from expunge.display.progress import ProgressBar
from expunge.registry import Registry
from tests.calling import call, whole
from tests.clusters import local_client
from tests.lakes import make_lake, theta
from tests.long_tables import NAMES

ABOUT = ("--target", "label", "--subject", "id", "--weight", "weight", "--sigma", "10")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a lake beside an empty registry, in the working folder."""
    monkeypatch.chdir(tmp_path)
    make_lake(tmp_path / "lake")
    assert call("init").code == DONE
    return tmp_path / "lake"


def registry() -> Registry:
    return Registry.open("expunge-registry")


def test_files_and_folders_give_the_same_model(lake: Path) -> None:
    files = sorted(lake.glob("*.parquet"))
    done = call("fit", "a", *files, *ABOUT, "--keep-rows", "lake", "--source", "orders")
    assert done.code == DONE
    assert "rows 4501 of 1501 people" in done.words
    assert "rows stay in the files of source orders" in done.words
    assert "nothing was encoded or scaled" in done.err
    assert call("fit", "b", lake, *ABOUT, "--keep-rows", "never").code == DONE
    kept = call("fit", "c", lake, *ABOUT, "--memory", "64", "--json")
    assert kept.json["keep_rows"] == "registry" and kept.json["n_rows"] == 4501
    assert call("forget", "person 7", "--yes").code == DONE
    with registry() as found:
        thetas = [theta(found, name) for name in "abc"]
        assert all(np.array_equal(one, thetas[0]) for one in thetas)


def test_people_who_left_are_named_to_nobody(lake: Path) -> None:
    assert call("fit", "a", lake, *ABOUT, "--keep-rows", "lake").code == DONE
    assert call("forget", "person 7", "--yes").code == DONE
    again = ("fit", "b", lake, *ABOUT, "--keep-rows", "lake")
    refused = call(*again)
    assert refused.code == WRONG_INPUT
    assert "the files hold 3 rows of 1 person who were forgotten" in refused.err
    left_out = call(*again, "--without-forgotten")
    assert left_out.code == DONE and "left out: 3 rows" in left_out.err
    back = call("fit", "c", lake, *ABOUT, "--keep-rows", "lake", "--readmit", "--json")
    assert back.json["n_people"] == 1501


def test_columns_can_be_left_out(lake: Path) -> None:
    about = ("--target", "label", "--no-subject", "--keep-rows", "lake")
    drop = ("--drop", "id", "--drop", "weight", "--drop", NAMES[0])
    done = call("fit", "a", lake, *about, *drop)
    assert done.code == DONE and "rows 4501 without owners" in done.words
    with registry() as found:
        assert found.model("a").feature_names_in_.tolist() == list(NAMES[1:])
    refused = call("fit", "b", lake, *about, "--drop", "colour")
    assert "--drop colour: the files have no such column" in refused.err


def test_workers_of_a_cluster_can_fit(lake: Path) -> None:
    about = (lake, *ABOUT, "--keep-rows", "lake")
    with local_client(1, threads_per_worker=2, processes=False) as client:
        address = client.scheduler.address.replace("tcp://", "dask://")
        done = call("fit", "there", *about, "--engine", address)
    assert done.code == DONE, done.err
    assert call("fit", "here", *about).code == DONE
    with registry() as found:
        assert np.array_equal(theta(found, "there"), theta(found, "here"))
        found.forget(["person 3"])
        assert np.array_equal(theta(found, "there"), theta(found, "here"))


BAD = {
    "rows in memory": (
        "keep_rows='registry' reads",
        ("--keep-rows", "registry", "--engine", "dask://127.0.0.1:1"),
    ),
    "no cluster": ("engine='nowhere'; give dask://", ("--engine", "nowhere")),
    "missing column": ("no column 'size' in the table", ("--target", "size")),
    "schema": ("--schema is for a table in memory", ("--schema", "lake")),
    "too little memory": ("too little for blocks", ("--memory", "1")),
    "source": ("should say nothing about a person", ("--source", "a/b")),
}


@pytest.mark.parametrize("bad", list(BAD))
def test_bad_options_change_nothing(lake: Path, bad: str) -> None:
    said, options = BAD[bad]
    before = whole(Path("expunge-registry"))
    refused = call("fit", "a", lake, *ABOUT, "--keep-rows", "lake", *options)
    assert refused.code == WRONG_INPUT and said in refused.err
    assert whole(Path("expunge-registry")) == before


def _spoil(lake: Path, kind: str) -> None:
    """Make the second file of a lake unusable."""
    table = pq.read_table(lake / "1.parquet")
    if kind == "NaN":
        values = table.column(NAMES[1]).to_numpy().copy()
        values[-1] = np.nan
        table = table.set_column(1, NAMES[1], pa.array(values))
    elif kind == "schemas":
        table = table.drop_columns([NAMES[2]])
    pq.write_table(table, lake / "1.parquet", row_group_size=200)
    if kind == "no file":
        (lake / "1.parquet").write_bytes(b"PAR1 and nothing else")


SPOILT = {
    "NaN": "column 'f1' holds NaN, infinity or nothing, in file 1, row 749",
    "schemas": "file 1 has other columns, or columns of other types, than file 0",
    "no file": "file 1 is not a Parquet file",
}


@pytest.mark.parametrize("kind", list(SPOILT))
@pytest.mark.parametrize("keep", ["lake", "registry", "never"])
def test_bad_files_change_nothing(lake: Path, kind: str, keep: str) -> None:
    _spoil(lake, kind)
    before = whole(Path("expunge-registry"))
    refused = call("fit", "a", lake, *ABOUT, "--keep-rows", keep)
    assert refused.code == WRONG_INPUT and SPOILT[kind] in refused.err
    assert whole(Path("expunge-registry")) == before


def test_a_bar_shows_its_pace_in_a_terminal_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressBar("reading", shown=True, unit="rows") as bar:
        bar.report(50, 100)
    shown = capsys.readouterr().err
    assert "50/100, " in shown and "rows a second, " in shown and "s left" in shown
    with ProgressBar("forgetting", shown=True) as bar:
        bar.report(50, 100)
    assert "second" not in capsys.readouterr().err
    assert "second" not in str(getattr(bar._drawn, "_repr_html_", str)())


def test_files_are_rewritten_when_asked_for(lake: Path) -> None:
    assert call("fit", "a", lake, *ABOUT, "--keep-rows", "lake").code == DONE
    assert call("forget", "person 7", "--yes").code == DONE
    said = call("lake", "status", "a")
    assert said.code == DONE
    assert "people who left still in 1 file; run expunge lake rewrite a" in said.words
    assert "person 7" in pq.read_table(lake).column("id").to_pylist()
    done = call("lake", "rewrite", "a", "--yes")
    assert done.code == DONE and "source a: 1 file rewritten" in done.words
    assert "person 7" not in pq.read_table(lake).column("id").to_pylist()
    assert "none is in these files" in call("lake", "status", "a").words
    again = call("lake", "rewrite", "a", "--json")
    assert again.json == {
        "source": "a",
        "n_files": 3,
        "n_to_rewrite": 0,
        "n_rewritten": 0,
    }
    assert call("fit", "kept", lake, *ABOUT).code == DONE
    refused = call("lake", "rewrite", "kept")
    assert refused.code == WRONG_INPUT and "kept in the registry" in refused.err
