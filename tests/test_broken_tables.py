# SPDX-License-Identifier: Apache-2.0
"""Broken tables: ``fit`` says in one line what is wrong and where, and writes nothing.

Columns that teach nothing are no reason to refuse a table with others: they are left
out, and a line says so.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from expunge.cli.output import DATA_MISSING, DONE, WRONG_INPUT
from tests.calling import call, copied, make_registry, whole

HEADER = "who,age,colour,y"
ROWS = [
    f"p{i // 2:02d},{20 + i * 37 % 41},{'red' if i % 3 else 'blue'},{i * i % 3 % 2}"
    for i in range(60)
]
ABOUT = ("--target", "y", "--subject", "who", "--no-trial")


def table(*, header: str = HEADER, **lines: str) -> bytes:
    """Return the table with other lines in the place of some, ``_4`` for line 4."""
    rows = [header, *ROWS]
    for number, line in lines.items():
        rows[int(number[1:]) - 1] = line
    return ("\n".join(rows) + "\n").encode()


def with_column(name: str, values: list[str]) -> bytes:
    """Return the table with one more column before the target."""
    lines = [HEADER, *ROWS]
    cells = [name, *values]
    pairs = zip((line.rsplit(",", 1) for line in lines), cells, strict=True)
    return "".join(f"{left},{cell},{y}\n" for (left, y), cell in pairs).encode()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a registry once."""
    return make_registry(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the registry to change, which is the default."""
    return copied(made, tmp_path, monkeypatch)


@pytest.fixture
def unchanged(folder: Path, tmp_path: Path) -> Callable[[], bool]:
    """Return a function that tells whether nothing was written anywhere."""
    before = whole(folder)

    def test() -> bool:
        schemas = list(tmp_path.glob("*.schema.json"))
        return whole(folder) == before and not schemas

    return test


MILLION = 1_000_000
REFUSED: dict[str, tuple[bytes, str]] = {
    "too many values": (
        table(_7="p02,33,red,1,1"),
        "line 7: 5 values, but 4 names in the header",
    ),
    "too few values": (table(_7="p02,33,red"), "line 7: 3 values, but 4 names"),
    "words among numbers": (
        table(_9="p03,forty,red,1"),
        "column 'age', line 9: it is not a number, as most of the column is",
    ),
    "one class": (
        b"who,age,y\na,1,yes\nb,2,yes\nc,3,yes\n",
        "column 'y': the same target in every row",
    ),
    "a name twice": (
        table(header="who,age,age,y"),
        "column 'age': several columns have this name, number 2 and 3",
    ),
    "an empty file": (b"", "is empty; give a file with a header and rows"),
    "nothing but a mark": (b"\xef\xbb\xbf\r\n", "is empty; give a file with a header"),
    "nothing but a header": (b"who,age,colour,y\n", "has no rows"),
    "no target": (table(header="who,age,colour,z"), "no column 'y'; its columns are"),
    "no subject": (table(header="whom,age,colour,y"), "did you mean 'whom'?"),
    "most targets missing": (
        b"who,age,y\na,1,yes\nb,2,\nc,3,NA\nd,4,\n",
        "column 'y': 3 of 4 rows have no target",
    ),
    "a row of nobody": (
        table(_5=",33,red,1", _8="NA,33,red,1"),
        "column 'who', line 5: it is empty",
    ),
    "one person": (
        b"who,age,y\na,1,yes\na,2,no\na,3,yes\n",
        "column 'who': every row belongs to the same person",
    ),
    "ids as floats": (
        b"who,age,y\n1.0,1,yes\n2.0,2,no\n3.0,3,yes\n",
        "column 'who', lines 2, 3, 4: the id is written as a float",
    ),
    "another separator": (
        table().replace(b",", b"|"),
        "line 1: it holds vertical bars, and no commas, semicolons or tabs",
    ),
    "no text": (bytes(range(256)) * 20, "line 2: not UTF-8"),
    "another encoding": (
        table(_6="p02,33,r\u00f6t,1").decode().encode("latin-1"),
        "line 6: not UTF-8; save it as UTF-8",
    ),
    "two bytes a letter": (table().decode().encode("utf-16"), "line 1: not UTF-8"),
    "a NUL byte": (table(_6="p02,33,r\0d,1"), "line 6: a NUL byte, which no text has"),
    "an open quote": (
        table(_11='p04,33,"red,1'),
        "line 11: a quote is opened and never closed",
    ),
    "an infinite number": (
        table(_12="p05,inf,red,1"),
        "column 'age', line 12: an infinite number",
    ),
    "an infinite target": (
        b"who,age,y\na,1,0.5\nb,2,inf\nc,3,1.5\n",
        "column 'y', line 3: an infinite number",
    ),
    "too large a number": (
        table(_12="p05,1e999,red,1"),
        "column 'age', line 12: an infinite number",
    ),
    "dates and words": (
        b"who,day,y\na,2020-01-01,0\nb,2020-01-02,1\nc,soon,0\n",
        "column 'day', line 4: it is not a date, as most of the column is",
    ),
    "nothing to learn from": (
        b"who,age,y\na,7,0\nb,7,1\nc,7,0\n",
        "no column is left as a feature; left out are 'age' (it is constant)",
    ),
    "no feature": (b"who,y\na,0\nb,1\n", "no column is left as a feature; drop fewer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_in_one_line(
    name: str, tmp_path: Path, unchanged: Callable[[], bool]
) -> None:
    data, said = REFUSED[name]
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    done = call("fit", "new", path, *ABOUT)
    assert done.code == WRONG_INPUT
    assert done.out == ""
    lines = done.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"expunge: {path}")
    assert said in lines[0]
    assert unchanged()


@pytest.mark.slow
def test_million_categories_are_no_feature(
    tmp_path: Path, unchanged: Callable[[], bool]
) -> None:
    path = tmp_path / "rows.csv"
    lines = (f"p{i % 40},{i:x}q,{i * i % 3 % 2}\n" for i in range(MILLION))
    path.write_text("who,code,y\n" + "".join(lines))
    done = call("fit", "new", path, *ABOUT)
    assert done.code == WRONG_INPUT
    (line,) = done.err.splitlines()
    assert "no column is left as a feature; left out are 'code' (it tells" in line
    assert unchanged()


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ("-1", "column 'count', line 4: a negative weight"),
        ("", "column 'count', line 4: a value is missing"),
        ("lots", "column 'count', line 4: it is not a number"),
    ],
)
def test_weight_in_doubt(
    weight: str, said: str, tmp_path: Path, unchanged: Callable[[], bool]
) -> None:
    weights = ["1"] * 60
    weights[2] = weight
    path = tmp_path / "rows.csv"
    path.write_bytes(with_column("count", weights))
    done = call("fit", "new", path, *ABOUT, "--weight", "count")
    assert done.code == WRONG_INPUT
    assert said in done.err
    assert unchanged()


def test_file_that_is_none(tmp_path: Path, unchanged: Callable[[], bool]) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "rows.xlsx").write_bytes(table())
    for name, code, said in (
        ("folder.csv", WRONG_INPUT, "a folder holds no file that ends in .parquet"),
        ("none.csv", DATA_MISSING, "does not exist; check the path"),
        ("rows.xlsx", WRONG_INPUT, "ends in '.xlsx'; give a .csv, .tsv,"),
    ):
        done = call("fit", "new", tmp_path / name, *ABOUT)
        assert done.code == code
        assert said in done.err
        assert len(done.err.splitlines()) == 1
    assert unchanged()


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("flat", ["7"] * 60, "it is constant"),
        ("gap", [""] * 60, "it is empty in every row"),
        ("code", [f"{i:x}q" for i in range(60)], "it tells whose row it is"),
        ("order_id", [str(i * i) for i in range(60)], "it looks like an id"),
        ("nr", [str(i + 1) for i in range(60)], "it looks like an id"),
        ("mail", [f"p{i // 2}@x.org" for i in range(60)], "it tells whose row it is"),
        ("", [str(i) for i in range(60)], "an index, or a column without a name"),
    ],
)
def test_column_is_left_out_with_a_line(
    name: str, values: list[str], why: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(with_column(name, values))
    done = call("fit", "new", path, *ABOUT)
    assert done.code == DONE
    assert "60 of 30 people, 2 features" in done.words
    (line,) = (line for line in done.out.splitlines() if " left out " in line)
    assert line.startswith(f"{name} ")
    assert why in line
    assert "left out" not in done.err


def test_mark_and_line_ends_are_no_fault(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + table().replace(b"\n", b"\r\n"))
    done = call("fit", "new", path, *ABOUT)
    assert done.code == DONE
    assert "60 of 30 people, 2 features" in done.words
