# SPDX-License-Identifier: Apache-2.0
"""Tables: what is read is what was written, and what is in doubt is refused."""

import gzip
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from expunge.exceptions import InvalidInput, MissingExtra
from expunge.tables import Roles, TrainingTable, read_ids, read_table
from expunge.tables.files import BLOCK_BYTES

CSV = "who,age,member,y\n007,41,true,yes\n08,52.5,false,no\n007,1e2,true,yes\n"


def written(folder: Path, text: str | bytes, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path, target: str = "y", **columns: Any) -> TrainingTable:
    return read_table(path, Roles(target=target, **columns))


def numbers_in(table: TrainingTable) -> list[list[float]]:
    """Return the features, all of them numbers, row by row."""
    return [list(row.values()) for row in table.X.to_pylist()]


def refusal(path: Path, target: str = "y", **columns: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(path, target, **columns)
    assert str(path) in str(caught.value)
    return str(caught.value).replace(str(path), path.name)


def assert_rows(table: TrainingTable) -> None:
    assert table.X.column_names == ["age", "member"]
    assert table.subjects == ["007", "08", "007"]
    assert numbers_in(table) == [[41.0, 1.0], [52.5, 0.0], [100.0, 1.0]]
    np.testing.assert_array_equal(table.y, ["yes", "no", "yes"])


class TestRows:
    def test_csv_is_read(self, tmp_path: Path) -> None:
        assert_rows(read(written(tmp_path, CSV), subject="who"))

    def test_compressed_csv_is_read(self, tmp_path: Path) -> None:
        for name in ("rows.csv.gz", "ROWS.CSV.GZ"):
            path = written(tmp_path, gzip.compress(CSV.encode()), name)
            assert_rows(read(path, subject="who"))

    def test_parquet_is_read(self, tmp_path: Path) -> None:
        frame = pd.DataFrame(
            {
                "who": pd.Categorical(["007", "08", "007"]),
                "age": np.array([41, 52.5, 100], dtype=np.float32),
                "member": [True, False, True],
                "y": ["yes", "no", "yes"],
            }
        )
        frame.to_parquet(tmp_path / "rows.parquet")
        assert_rows(read(tmp_path / "rows.parquet", subject="who"))

    def test_arrow_files_are_read(self, tmp_path: Path) -> None:
        frame = pd.DataFrame(
            {
                "who": ["007", "08", "007"],
                "age": [41, 52.5, 100],
                "member": [True, False, True],
                "y": ["yes", "no", "yes"],
            }
        )
        for name in ("rows.arrow", "rows.feather"):
            frame.to_feather(tmp_path / name)
            assert_rows(read(tmp_path / name, subject="who"))

    @pytest.mark.parametrize("separator", [";", "\t"])
    @pytest.mark.parametrize("point", [".", ","])
    def test_separators_and_decimal_commas(
        self, separator: str, point: str, tmp_path: Path
    ) -> None:
        text = CSV.replace(",", separator).replace("52.5", f"52{point}5")
        path = written(tmp_path, text)
        assert_rows(read(path, subject="who"))
        assert read_ids(path, "who") == ["007", "08", "007"]
        named = written(tmp_path, text, "rows.tsv")
        assert_rows(read(named, subject="who"))

    def test_commas_in_doubt_are_refused(self, tmp_path: Path) -> None:
        path = written(tmp_path, "x;y\n1,234;0\n5;1\n")
        said = "column 'x': its commas may separate decimals or thousands"
        assert said in refusal(path)

    def test_byte_order_mark_line_ends_and_quoted_breaks(self, tmp_path: Path) -> None:
        text = (
            '\ufeffwho,note,x,y\r\n"a, b","one\r\ntwo, ""three""",1,0\r\n\r\nc,,2,1\r\n'
        )
        table = read(written(tmp_path, text), subject="who", drop=("note",))
        assert table.subjects == ["a, b", "c"]
        assert numbers_in(table) == [[1.0], [2.0]]

    def test_spaces_around_names_and_values_do_not_count(self, tmp_path: Path) -> None:
        text = "who, x, colour, y\na, 1, red, no\nb, ?, blue , yes\nc, 2, NA, no\n"
        table = read(written(tmp_path, text), subject="who")
        assert table.y.tolist() == ["no", "yes", "no"]
        np.testing.assert_array_equal(table.X["x"].to_numpy(), [1.0, np.nan, 2.0])
        assert table.X["colour"].to_pylist() == ["red", "blue", "missing"]

    @pytest.mark.parametrize(
        ("spelled", "days"),
        [
            (("1970-01-02", "1971-01-01"), (1.0, 365.0)),
            (("1970-01-01T12:00:00Z", "1970-01-02T00:00:00Z"), (0.5, 1.0)),
            (("1970-01-01 06:00", "1970-01-03 18:00"), (0.25, 2.75)),
            (("06:00:00", "12:00:00"), (0.25, 0.5)),
        ],
    )
    def test_dates_are_days_since_1970(
        self, spelled: tuple[str, str], days: tuple[float, float], tmp_path: Path
    ) -> None:
        path = written(tmp_path, f"x,y\n{spelled[0]},0\n{spelled[1]},1\n,0\n")
        table = read(path)
        np.testing.assert_array_equal(table.X["x"].to_numpy(), [*days, np.nan])
        assert table.schema.columns[0].kind == "date"
        if ":" not in spelled[0] or "T" in spelled[0]:
            stamps = [pd.Timestamp(one) for one in spelled]
            frame = pd.DataFrame({"x": [*stamps, pd.NaT], "y": [0, 1, 0]})
            frame.to_parquet(tmp_path / "rows.parquet")
            typed = read(tmp_path / "rows.parquet").X["x"].to_numpy()
            np.testing.assert_array_equal(typed, [*days, np.nan])

    def test_rows_without_a_target_are_left_out(self, tmp_path: Path) -> None:
        # The row without a target has no person either, and that does not matter.
        path = written(tmp_path, "who,x,y\na,1,0\n,2,NA\nb,3,1\n,4,1\n")
        assert "column 'who', line 5: it is empty" in refusal(path, subject="who")
        path = written(tmp_path, "who,x,y\na,1,0\n,2,NA\nb,3,1\n")
        table = read(path, subject="who")
        assert table.n_without_target == 1
        assert table.y.tolist() == [0, 1]
        assert table.subjects == ["a", "b"]
        assert numbers_in(table) == [[1.0], [3.0]]

    def test_without_subjects_there_are_none(self, tmp_path: Path) -> None:
        table = read(written(tmp_path, CSV), drop=("who",))
        assert table.subjects is None
        assert table.X.column_names == ["age", "member"]

    @pytest.mark.parametrize(
        ("spelled", "kind", "values"),
        [
            (["0", "1", "2"], np.int64, [0, 1, 2]),
            (["-1", " 1", "007"], np.int64, [-1, 1, 7]),
            (["0.5", "1", "2"], np.float64, [0.5, 1.0, 2.0]),
            (["True", "false", "true"], np.int64, [1, 0, 1]),
            (["1", "a", "2"], np.str_, ["1", "a", "2"]),
            (["2020-01-01", "b", " c"], np.str_, ["2020-01-01", "b", "c"]),
            (["2020-01-01", "2020-01-02"], np.str_, ["2020-01-01", "2020-01-02"]),
        ],
    )
    def test_target_keeps_its_kind(
        self, spelled: list[str], kind: Any, values: list[Any], tmp_path: Path
    ) -> None:
        lines = "".join(f"{i},{word}\n" for i, word in enumerate(spelled))
        y = read(written(tmp_path, f"x,y\n{lines}")).y
        assert np.issubdtype(y.dtype, kind)
        np.testing.assert_array_equal(y, values)

    def test_parquet_target_keeps_its_kind(self, tmp_path: Path) -> None:
        kinds = {
            "int8": np.int64,
            "uint64": np.int64,
            "bool": np.int64,
            "float32": np.float64,
            "str": np.str_,  # words, though they look like numbers
        }
        for name, kind in kinds.items():
            frame = pd.DataFrame({"x": [1.0, 2.0], "y": pd.Series([0, 1], dtype=name)})
            frame.to_parquet(tmp_path / "rows.parquet")
            y = read(tmp_path / "rows.parquet").y
            assert np.issubdtype(y.dtype, kind), name
            assert (
                y.astype(str).tolist()
                == frame["y"].astype(y.dtype).astype(str).tolist()
            )

    def test_lines_far_behind_decide_too(self, tmp_path: Path) -> None:
        lines = "1,0,word\n" * (2 * BLOCK_BYTES // 9)
        path = written(tmp_path, f"x,y,who\n{lines}1.5,0.5,last\n")
        table = read(path, subject="who")
        assert table.X["x"][-1].as_py() == 1.5
        assert table.y.dtype == np.float64
        assert table.subjects is not None
        assert table.subjects[-1] == "last"

    @given(
        values=st.lists(
            st.floats(allow_nan=False, allow_infinity=False), min_size=2, unique=True
        )
    )
    def test_numbers_keep_every_bit(
        self, values: list[float], tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        lines = "".join(f"{value + 0.0!r},{i % 2}\n" for i, value in enumerate(values))
        path = written(tmp_path_factory.mktemp("rows"), f"x,y\n{lines}")
        # Whole numbers in a row look like an index; half of one more does not.
        path.write_text(path.read_text() + "0.5,1\n")
        table = read(path)
        np.testing.assert_array_equal(table.X["x"].to_numpy()[:-1], values)


class TestRefusedColumns:
    def test_missing_column_gets_a_hint(self, tmp_path: Path) -> None:
        path = written(tmp_path, CSV)
        said = refusal(path, "label")
        assert said == (
            "rows.csv: no column 'label'; its columns are 'who', 'age', 'member', 'y'"
        )
        assert "did you mean 'member'?" in refusal(path, subject="members")
        assert "did you mean 'age'?" in refusal(path, drop=("agee",))

    def test_other_separators_are_named(self, tmp_path: Path) -> None:
        path = written(tmp_path, "id|age|left\nada|1|1\nbob|2|0\n")
        said = "line 1: it holds vertical bars, and no commas, semicolons or tabs"
        with pytest.raises(InvalidInput, match=said):
            read(path, "left", subject="id")
        for column in ("id", None):
            with pytest.raises(InvalidInput, match=said):
                read_ids(path, column)

    def test_many_columns_are_not_all_listed(self, tmp_path: Path) -> None:
        header = ",".join(f"c{i}" for i in range(30))
        assert refusal(written(tmp_path, f"{header}\n")).endswith("'c19' and 10 more")

    def test_columns_with_two_jobs(self, tmp_path: Path) -> None:
        path = written(tmp_path, CSV)
        assert "is used twice" in refusal(path, subject="y")
        assert "is used twice" in refusal(path, drop=("y",))
        assert "is used twice" in refusal(path, subject="who", drop=("age", "who"))

    def test_names_given_twice(self, tmp_path: Path) -> None:
        path = written(tmp_path, "a,b,a,y,,\n1,2,3,4,,\n5,6,7,8,,\n")
        said = "column 'a': several columns have this name, number 1 and 3; give them"
        assert said in refusal(path, drop=("",))
        assert said in refusal(path, "a", drop=("",))
        assert said in refusal(path, subject="a", drop=("",))
        assert numbers_in(read(path, drop=("", "a"))) == [[2.0], [6.0]]
        assert read_ids(path, "b") == ["2", "6"]
        with pytest.raises(InvalidInput, match="several columns have this name"):
            read_ids(path, "a")

    def test_nothing_left_to_learn_from(self, tmp_path: Path) -> None:
        assert "no column is left" in refusal(written(tmp_path, "y\n1\n"))

    def test_index_without_a_name(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"x": [1, 2, 3], "y": [0, 1, 0]})
        frame.to_csv(tmp_path / "rows.csv")
        frame.iloc[[2, 0, 1]].to_parquet(tmp_path / "rows.parquet")
        for name, index in (("rows.csv", ""), ("rows.parquet", "__index_level_0__")):
            table = read(tmp_path / name)
            assert table.X.column_names == ["x"]
            assert [one.name for one in table.schema.left_out] == [index]

    def test_columns_without_names_are_left_out_together(self, tmp_path: Path) -> None:
        table = read(written(tmp_path, "x,y,,\n1,0,,\n2,1,,\n"))
        assert [one.name for one in table.schema.left_out] == [""]


class TestRefusedValues:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (
                "x,y\n1,0\n\nred,1\n",
                "column 'x', line 4: it is not a number, as most of the column is",
            ),
            ("x,y\n1,0\n2020-01-01,1\n", "line 3: it is not a number"),
            ("x,y\n2020-01-01,0\nsoon,1\n", "line 3: it is not a date, as most"),
            ("x,y\n1,0\n\nNA,1\nred,0\n", "column 'x', line 5: it is not a number"),
            ("x,y\n1,0\n,1\n", "no column is left as a feature; left out are 'x' (it"),
            ("x,y\n1,0\n-inf,1\n", "column 'x', line 3: an infinite number"),
            ("x,y\n1,0\n1e999,1\n", "column 'x', line 3: an infinite number"),
            ("x,y\n1,0\n2,inf\n", "column 'y', line 3: an infinite number"),
            ("x,y\n1,0\n2,\n3,0\n", "column 'y': the same target in every row"),
            ("x,y\n1,0\n2,\n3,\n", "column 'y': 2 of 3 rows have no target"),
            ('x,"y"\n"1\n",0\nred,1\n', "column 'x', line 4: it is not a number"),
        ],
    )
    def test_csv(self, text: str, said: str, tmp_path: Path) -> None:
        assert said in refusal(written(tmp_path, text))

    @pytest.mark.parametrize(
        ("values", "said"),
        [
            (["1", "b"], "column 'x', row 2: it is not a number, as most"),
            ([1.0, np.inf], "column 'x', row 2: an infinite number"),
            ([1.0, np.nan], "left out are 'x' (it is constant)"),
            ([None, None], "left out are 'x' (it is empty in every row)"),
            ([[1], [2]], "left out are 'x' (it holds list"),
            (pd.to_datetime(["2020-01-01"] * 2), "left out are 'x' (it is constant)"),
        ],
    )
    def test_parquet(self, values: Any, said: str, tmp_path: Path) -> None:
        path = tmp_path / "rows.parquet"
        pd.DataFrame({"x": values, "y": [0, 1]}).to_parquet(path)
        assert said in refusal(path)

    def test_parquet_targets(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.parquet"
        for values in (pd.to_datetime(["2020-01-01"] * 2), [b"a", b"b"]):
            pd.DataFrame({"x": [0, 1], "y": values}).to_parquet(path)
            assert "column 'y': it holds" in refusal(path)

    def test_long_values_are_shown_in_part(self, tmp_path: Path) -> None:
        said = refusal(written(tmp_path, f"x,y\n{'red' * 1000},1\n"))
        assert len(said) < 300

    def test_dropped_columns_are_not_looked_at(self, tmp_path: Path) -> None:
        path = written(tmp_path, b"x,odd,y\n1,\xe9,0\n2,,1\n")
        assert read(path, drop=("odd",)).X.column_names == ["x"]


class TestRefusedFiles:
    def test_file_that_is_not_there(self, tmp_path: Path) -> None:
        assert "is not a file; check the path" in refusal(tmp_path / "no.csv")
        (tmp_path / "folder.csv").mkdir()
        assert "is not a file" in refusal(tmp_path / "folder.csv")

    def test_file_of_another_kind(self, tmp_path: Path) -> None:
        said = refusal(written(tmp_path, CSV, "rows.xlsx"))
        assert "ends in '.xlsx'; give a .csv, .tsv, .csv.gz, .tsv.gz, .parquet," in said

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (b"", "is empty; give a file with a header and rows"),
            (b"x,y\n", "has no rows"),
            (b"x,y\n1,2\n\n3\n", "line 4: 1 values, but 2 names in the header"),
            (b"x,y\n1,2\n3,4,5\n", "line 3: 3 values, but 2 names in the header"),
            (b"x,y\n1,2\n\xe9,4\n", "line 3: not UTF-8; save it as UTF-8"),
            (b"x,y\n1,2\n3,\xe9\n", "line 3: not UTF-8"),
            (b"\xe9,y\n1,2\n", "line 1: not UTF-8"),
            ("x,y\n1,2\n".encode("utf-16"), "line 1: not UTF-8"),
        ],
    )
    def test_damaged_csv(self, text: bytes, said: str, tmp_path: Path) -> None:
        assert said in refusal(written(tmp_path, text))
        packed = written(tmp_path, gzip.compress(text), "rows.csv.gz")
        assert said in refusal(packed)

    def test_damaged_archives(self, tmp_path: Path) -> None:
        whole = gzip.compress(CSV.encode() * 1000)
        for data in (whole[: len(whole) // 2], CSV.encode(), whole[:20] + whole[30:]):
            assert "rows.csv.gz" in refusal(written(tmp_path, data, "rows.csv.gz"))
        path = tmp_path / "rows.parquet"
        pd.DataFrame({"x": [1.0], "y": [0]}).to_parquet(path)
        path.write_bytes(path.read_bytes()[:-10])
        assert "cannot be read" in refusal(path)

    def test_missing_library_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
        with pytest.raises(MissingExtra, match=r"expunge\[cli,registry,files\]"):
            read(written(tmp_path, CSV))


class TestSubjects:
    def test_parquet_integers_become_digits(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.parquet"
        ids = [7, -1, 2**62 + 1]
        pd.DataFrame({"who": ids, "x": [1, 2, 3], "y": [0, 1, 0]}).to_parquet(path)
        assert read(path, subject="who").subjects == [str(one) for one in ids]

    @pytest.mark.parametrize(
        ("ids", "said"),
        [
            ([1.0, 2.0], "column 'who': ids are stored as double; store text or"),
            ([True, False], "column 'who': ids are stored as bool"),
            (["a", None], "column 'who', row 2: it is missing; fill it in, or remove"),
            (pd.array([1, None], dtype="Int64"), "row 2: it is missing"),
            (["a", "nan"], "column 'who', row 2: it looks like a missing value"),
            (["a", "a\tb"], "column 'who', row 2: it holds control characters"),
        ],
    )
    def test_parquet_ids_in_doubt(self, ids: Any, said: str, tmp_path: Path) -> None:
        path = tmp_path / "rows.parquet"
        pd.DataFrame({"who": ids, "x": [1, 2], "y": [0, 1]}).to_parquet(path)
        assert said in refusal(path, subject="who")

    @pytest.mark.parametrize(
        ("one", "said"),
        [
            ("", "column 'who', line 3: it is empty; fill it in, or remove the row"),
            ("  ", "column 'who', line 3: it is empty"),
            ("x" * 1025, "column 'who', line 3: it has 1025 bytes; use at most 1024"),
            ("\u00e9" * 513, "line 3: it has 1026 bytes"),
            ("a\x7fb", "line 3: it holds control characters"),
            ("1003.0", "line 3: the id is written as a float; write integers"),
            (" 1003.0 ", "line 3: the id is written as a float"),
            ("-.5", "line 3: the id is written as a float"),
            ("1e+16", "line 3: the id is written as a float"),
        ],
    )
    def test_csv_ids_in_doubt(self, one: str, said: str, tmp_path: Path) -> None:
        path = written(tmp_path, f"who,x,y\na,1,0\n{one},2,1\n")
        assert said in refusal(path, subject="who")

    @pytest.mark.parametrize(
        "word", ["nan", "NaN", "<NA>", "None", "NaT", "NULL", "NA"]
    )
    def test_rows_of_nobody_are_not_one_person(self, word: str, tmp_path: Path) -> None:
        path = written(tmp_path, f"who,x,y\na,1,0\n {word},2,1\n{word},3,1\n")
        said = refusal(path, subject="who")
        assert "column 'who', lines 3, 4: it looks like a missing value; fill" in said
        frame = pd.DataFrame({"who": ["a", word], "x": [1, 2], "y": [0, 1]})
        frame.to_parquet(tmp_path / "rows.parquet")
        said = refusal(tmp_path / "rows.parquet", subject="who")
        assert "column 'who', row 2: it looks like a missing value" in said

    def test_missing_ids_of_a_frame_are_nobody(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"who": [7, None, 9], "x": [1, 2, 3], "y": [0, 1, 0]})
        for na_rep, said in (("", "line 3: it is empty"), ("nan", "line 3: it looks")):
            frame.to_csv(tmp_path / "rows.csv", index=False, na_rep=na_rep)
            assert said in refusal(tmp_path / "rows.csv", subject="who")
        frame.dropna().to_csv(tmp_path / "rows.csv", index=False)
        said = refusal(tmp_path / "rows.csv", subject="who")
        assert "lines 2, 3: the id is written as a float" in said

    def test_exponents_are_floats_among_numbers_alone(self, tmp_path: Path) -> None:
        path = written(tmp_path, "who,x,y\n12e4,1,0\n12f4,2,1\n")
        assert read(path, subject="who").subjects == ["12e4", "12f4"]
        path = written(tmp_path, "who,x,y\n1003,1,0\n1e3,2,1\n")
        said = refusal(path, subject="who")
        assert "line 3: the id is written as a float" in said

    def test_spellings_are_one_person(self, tmp_path: Path) -> None:
        path = written(tmp_path, "who,x,y\nZo\u00eb,1,0\n Zoe\u0308 ,2,1\nAl,3,0\n")
        assert read(path, subject="who").subjects == ["Zo\u00eb", "Zo\u00eb", "Al"]


class TestIds:
    IDS = ("007", "7", "1e3", "true", "Nat", "a, b", 'say "x"', "\u00e9", "1.2.3")

    def test_ids_stay_as_spelled(self, tmp_path: Path) -> None:
        ids = list(self.IDS)
        frame = pd.DataFrame({"who": ids, "x": range(len(ids))})
        frame[["who"]].to_csv(tmp_path / "one.csv", index=False)
        frame.to_csv(tmp_path / "two.csv", index=False)
        frame.to_csv(tmp_path / "two.csv.gz", index=False)
        frame[["who"]].to_parquet(tmp_path / "one.parquet")
        assert read_ids(tmp_path / "one.csv") == ids
        assert read_ids(tmp_path / "one.parquet") == ids
        assert read_ids(tmp_path / "two.csv", "who") == ids
        assert read_ids(tmp_path / "two.csv.gz", "who") == ids
        assert read_ids(written(tmp_path, "\n".join(ids), "ids.txt")) == ids
        text = "\ufeff" + "\r\n\r\n".join(ids) + "\r\n\n"
        assert read_ids(written(tmp_path, text, "ids.txt")) == ids

    def test_parquet_text_may_look_like_floats(self, tmp_path: Path) -> None:
        ids = ["12.3", "7.0"]
        pd.DataFrame({"who": ids}).to_parquet(tmp_path / "ids.parquet")
        assert read_ids(tmp_path / "ids.parquet") == ids

    def test_lists_are_taken_at_their_word(self, tmp_path: Path) -> None:
        path = written(tmp_path, " NA \n7.0\t\nZoe\u0308\n", "ids.txt")
        assert read_ids(path) == ["NA", "7.0", "Zo\u00eb"]

    @pytest.mark.parametrize("first", ["17", "patient-17", "ada@example.org"])
    def test_first_id_is_not_lost_as_a_header(self, first: str, tmp_path: Path) -> None:
        path = written(tmp_path, f"{first}\n18\n")
        with pytest.raises(InvalidInput, match="may be a header or an id"):
            read_ids(path)
        assert read_ids(path, first) == ["18"]
        assert read_ids(path.rename(tmp_path / "ids.txt")) == [first, "18"]

    @pytest.mark.parametrize(
        ("name", "text", "column", "said"),
        [
            (
                "ids.csv",
                "who,x\na,1\n",
                None,
                "several columns, 'who', 'x'; say with",
            ),
            ("ids.csv", "who,x\na,1\n", "whom", "did you mean 'who'?"),
            ("ids.csv", "who\n", None, "has no rows"),
            ("ids.csv", 'who\na\n""\n', None, "column 'who', line 3: it is empty"),
            ("ids.csv", "who\na\nNaN\n", None, "line 3: it looks like a missing value"),
            ("ids.csv", "who\na\n7.0\n", None, "line 3: the id is written as a float"),
            ("ids.csv", "who\na\nb, c\n", None, "line 3: 2 values, but 1 names"),
            ("ids.txt", "\n \n", None, "lists no ids; write one per line"),
            ("ids.txt", "a\n", "who", "has no columns; omit --column 'who'"),
            ("ids.txt", b"a\n\xe9\n", None, "line 2: not UTF-8"),
            ("ids.txt", f"a\n{'b' * 1025}", None, "line 2: it has 1025 bytes"),
            ("ids.txt", "a\nb\x00\n", None, "line 2: it holds control characters"),
            ("ids.json", "[]", None, "give a .txt, .csv, .tsv, .csv.gz,"),
        ],
    )
    def test_lists_in_doubt(
        self,
        name: str,
        text: str | bytes,
        column: str | None,
        said: str,
        tmp_path: Path,
    ) -> None:
        path = written(tmp_path, text, name)
        with pytest.raises(InvalidInput) as caught:
            read_ids(path, column)
        assert str(path) in str(caught.value)
        assert said in str(caught.value)

    def test_list_that_is_not_there(self, tmp_path: Path) -> None:
        for name in ("no.txt", "no.csv"):
            with pytest.raises(InvalidInput, match="is not a file; check the path"):
                read_ids(tmp_path / name)
