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

from expunge.cli.tables import BLOCK_BYTES, TrainingTable, read_ids, read_table
from expunge.exceptions import InvalidInput, MissingExtra

CSV = "who,age,member,y\n007,41,true,yes\n08,52.5,false,no\n007,1e2,true,yes\n"


def written(folder: Path, text: str | bytes, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path, target: str = "y", **columns: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_table(path, target, **columns)
    assert str(path) in str(caught.value)
    return str(caught.value).replace(str(path), path.name)


def assert_rows(table: TrainingTable) -> None:
    assert table.features == ("age", "member")
    assert table.subjects == ["007", "08", "007"]
    np.testing.assert_array_equal(table.X, [[41.0, 1.0], [52.5, 0.0], [100.0, 1.0]])
    np.testing.assert_array_equal(table.y, ["yes", "no", "yes"])
    assert table.X.dtype == np.float64
    assert table.X.flags.c_contiguous


class TestRows:
    def test_csv_is_read(self, tmp_path: Path) -> None:
        assert_rows(read_table(written(tmp_path, CSV), "y", subject="who"))

    def test_compressed_csv_is_read(self, tmp_path: Path) -> None:
        for name in ("rows.csv.gz", "ROWS.CSV.GZ"):
            path = written(tmp_path, gzip.compress(CSV.encode()), name)
            assert_rows(read_table(path, "y", subject="who"))

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
        assert_rows(read_table(tmp_path / "rows.parquet", "y", subject="who"))

    def test_byte_order_mark_line_ends_and_quoted_breaks(self, tmp_path: Path) -> None:
        text = (
            '\ufeffwho,note,x,y\r\n"a, b","one\r\ntwo, ""three""",1,0\r\n\r\nc,,2,1\r\n'
        )
        table = read_table(written(tmp_path, text), "y", subject="who", drop=["note"])
        assert table.subjects == ["a, b", "c"]
        np.testing.assert_array_equal(table.X, [[1.0], [2.0]])

    def test_without_subjects_there_are_none(self, tmp_path: Path) -> None:
        table = read_table(written(tmp_path, CSV), "y", drop=["who"])
        assert table.subjects is None
        assert table.features == ("age", "member")

    @pytest.mark.parametrize(
        ("spelled", "kind", "values"),
        [
            (["0", "1", "2"], np.int64, [0, 1, 2]),
            (["-1", " 1", "007"], np.int64, [-1, 1, 7]),
            (["0.5", "1", "2"], np.float64, [0.5, 1.0, 2.0]),
            (["True", "false", "true"], np.int64, [1, 0, 1]),
            (["1", "a", "2"], np.str_, ["1", "a", "2"]),
            (["2020-01-01", "b", " c"], np.str_, ["2020-01-01", "b", " c"]),
            (["2020-01-01"] * 3, np.str_, ["2020-01-01"] * 3),
        ],
    )
    def test_target_keeps_its_kind(
        self, spelled: list[str], kind: Any, values: list[Any], tmp_path: Path
    ) -> None:
        lines = "".join(f"1,{word}\n" for word in spelled)
        y = read_table(written(tmp_path, f"x,y\n{lines}"), "y").y
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
            y = read_table(tmp_path / "rows.parquet", "y").y
            assert np.issubdtype(y.dtype, kind), name
            assert (
                y.astype(str).tolist()
                == frame["y"].astype(y.dtype).astype(str).tolist()
            )

    def test_lines_far_behind_decide_too(self, tmp_path: Path) -> None:
        lines = "1,0,word\n" * (2 * BLOCK_BYTES // 9)
        path = written(tmp_path, f"x,y,who\n{lines}1.5,0.5,last\n")
        table = read_table(path, "y", subject="who")
        assert table.X[-1, 0] == 1.5
        assert table.y.dtype == np.float64
        assert table.subjects is not None
        assert table.subjects[-1] == "last"

    @given(
        numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1)
    )
    def test_numbers_keep_every_bit(
        self, numbers: list[float], tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        lines = "".join(f"{number!r},1\n" for number in numbers)
        path = written(tmp_path_factory.mktemp("rows"), f"x,y\n{lines}")
        np.testing.assert_array_equal(read_table(path, "y").X[:, 0], numbers)


class TestRefusedColumns:
    def test_missing_column_gets_a_hint(self, tmp_path: Path) -> None:
        path = written(tmp_path, CSV)
        said = refusal(path, "label")
        assert said == (
            "rows.csv: no column 'label'; its columns are 'who', 'age', 'member', 'y'"
        )
        assert "did you mean 'member'?" in refusal(path, subject="members")
        assert "did you mean 'age'?" in refusal(path, drop=["agee"])

    @pytest.mark.parametrize("value", ["0.5", "0,5"])
    @pytest.mark.parametrize(
        ("separator", "word"), [(";", "semicolons"), ("\t", "tabs")]
    )
    def test_other_separators_are_named(
        self, separator: str, word: str, value: str, tmp_path: Path
    ) -> None:
        lines = (("id", "age", "left"), ("ada", value, "1"), ("bob", value, "0"))
        text = "".join(f"{separator.join(line)}\n" for line in lines)
        path = written(tmp_path, text)
        said = f"the first line holds {word} and no commas; save the file with commas"
        with pytest.raises(InvalidInput, match=said):
            read_table(path, "left", subject="id")
        for column in ("id", None):
            with pytest.raises(InvalidInput, match=said):
                read_ids(path, column)

    def test_many_columns_are_not_all_listed(self, tmp_path: Path) -> None:
        header = ",".join(f"c{i}" for i in range(30))
        assert refusal(written(tmp_path, f"{header}\n")).endswith("'c19' and 10 more")

    def test_columns_with_two_jobs(self, tmp_path: Path) -> None:
        path = written(tmp_path, CSV)
        assert "is used twice" in refusal(path, subject="y")
        assert "is used twice" in refusal(path, drop=["y"])
        assert "is used twice" in refusal(path, subject="who", drop=["age", "who"])

    def test_names_given_twice(self, tmp_path: Path) -> None:
        path = written(tmp_path, "a,b,a,y,,\n1,2,3,4,,\n5,6,7,8,,\n")
        said = "column 'a': several columns have this name; give them different names"
        assert said in refusal(path, drop=[""])
        assert said in refusal(path, "a", drop=[""])
        assert said in refusal(path, subject="a", drop=[""])
        assert read_table(path, "y", drop=["", "a"]).X.tolist() == [[2.0], [6.0]]
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
            said = refusal(tmp_path / name)
            assert "an index or an unnamed column; give it a name, or" in said
            assert read_table(tmp_path / name, "y", drop=[index]).features == ("x",)


class TestRefusedValues:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (
                "x,y\n1,0\n\nred,1\n",
                "column 'x', line 4: it is not a number; encode",
            ),
            ("x,y\n1,0\n2020-01-01,1\n", "line 3: it is not a number"),
            ("x,y\n2020-01-01,1\n", "line 2: it is not a number"),
            ("x,y\n1,0\n,1\n", "column 'x', line 3: a value is missing; fill it in"),
            ("x,y\n1,0\nNA,1\n", "column 'x', line 3: a value is missing"),
            ("x,y\nnan,0\n", "column 'x', line 2: a value is missing"),
            ("x,y\n1,0\n\nNA,1\nred,0\n", "column 'x', line 4: a value is missing"),
            ("x,y\n1,0\n-inf,1\n", "column 'x', line 3: an infinite number"),
            ("x,y\n1,0\n1e999,1\n", "column 'x', line 3: an infinite number"),
            ("x,y\n1,0\n2,\n", "column 'y', line 3: a value is missing"),
            ("x,y\n1,yes\n2,NA\n", "column 'y', line 3: a value is missing"),
            ("x,y\n1,0\n2,inf\n", "column 'y', line 3: an infinite number"),
            ('x,"y"\n"1\n",0\nred,1\n', "column 'x', line 2: it is not a number"),
        ],
    )
    def test_csv(self, text: str, said: str, tmp_path: Path) -> None:
        assert said in refusal(written(tmp_path, text))

    @pytest.mark.parametrize(
        ("values", "said"),
        [
            (["a", "b"], "column 'x', row 1: it is not a number; encode"),
            (["1", "2"], "column 'x': its numbers are"),
            ([1.0, np.nan], "column 'x', row 2: a value is missing"),
            ([1.0, np.inf], "column 'x', row 2: an infinite number"),
            ([None, None], "column 'x', row 1: a value is missing"),
            ([[1], [2]], "column 'x', row 1: it is not a number"),
            (pd.to_datetime(["2020-01-01"] * 2), "row 1: it is not a number"),
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
            assert "column 'y', row 1" in refusal(path)
        pd.DataFrame({"x": [0, 1], "y": ["a", None]}).to_parquet(path)
        assert "column 'y', row 2: a value is missing" in refusal(path)

    def test_long_values_are_shown_in_part(self, tmp_path: Path) -> None:
        said = refusal(written(tmp_path, f"x,y\n{'red' * 1000},1\n"))
        assert len(said) < 300

    def test_dropped_columns_are_not_looked_at(self, tmp_path: Path) -> None:
        path = written(tmp_path, b"x,odd,y\n1,\xe9,0\n2,,1\n")
        assert read_table(path, "y", drop=["odd"]).features == ("x",)


class TestRefusedFiles:
    def test_file_that_is_not_there(self, tmp_path: Path) -> None:
        assert "is not a file; check the path" in refusal(tmp_path / "no.csv")
        (tmp_path / "folder.csv").mkdir()
        assert "is not a file" in refusal(tmp_path / "folder.csv")

    def test_file_of_another_kind(self, tmp_path: Path) -> None:
        said = refusal(written(tmp_path, CSV, "rows.xlsx"))
        assert "ends in '.xlsx'; give a .csv, .csv.gz, .parquet file" in said

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (b"", "cannot be read"),
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
            read_table(written(tmp_path, CSV), "y")


class TestSubjects:
    def test_parquet_integers_become_digits(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.parquet"
        ids = [7, -1, 2**62 + 1]
        pd.DataFrame({"who": ids, "x": [1, 2, 3], "y": [0, 1, 0]}).to_parquet(path)
        assert read_table(path, "y", subject="who").subjects == [
            str(one) for one in ids
        ]

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
        assert "column 'who', line 3: it looks like a missing value; fill it in" in said
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
        assert "line 2: the id is written as a float" in said

    def test_exponents_are_floats_among_numbers_alone(self, tmp_path: Path) -> None:
        path = written(tmp_path, "who,x,y\n12e4,1,0\n12f4,2,1\n")
        assert read_table(path, "y", subject="who").subjects == ["12e4", "12f4"]
        path = written(tmp_path, "who,x,y\n1003,1,0\n1e3,2,1\n")
        said = refusal(path, subject="who")
        assert "line 3: the id is written as a float" in said

    def test_spellings_are_one_person(self, tmp_path: Path) -> None:
        path = written(tmp_path, "who,x,y\nZo\u00eb,1,0\n Zoe\u0308 ,2,1\n")
        assert read_table(path, "y", subject="who").subjects == ["Zo\u00eb", "Zo\u00eb"]


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
            ("ids.json", "[]", None, "give a .txt, .csv, .csv.gz, .parquet file"),
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
