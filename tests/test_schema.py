# SPDX-License-Identifier: Apache-2.0
"""Schemas: what columns are taken for, what a file may say, and what becomes of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from expunge import LogisticRegression
from expunge.exceptions import InvalidInput
from expunge.linear_model.base import public_model
from expunge.preprocessing.description import FitRange, Preprocessing
from expunge.tables import (
    ColumnSchema,
    Roles,
    Schema,
    TrainingTable,
    build_transformer,
    describe_preprocessing,
    read_schema,
    read_table,
)
from expunge.tables.schema import make_column, parse_schema

N = 120
ROLES = Roles(target="y", subject="who")


def people(rows_each: int = 2) -> list[str]:
    return [f"p{i // rows_each:03d}" for i in range(N)]


def read(tmp_path: Path, **columns: Any) -> TrainingTable:
    """Return a table of these columns, read from a CSV file."""
    rows = {"who": people(), "y": np.arange(N) % 2} | columns
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return read_table(path, ROLES)


def found(tmp_path: Path, values: Any, name: str = "x") -> ColumnSchema:
    """Return what a column beside one of numbers is taken for."""
    plain = np.arange(N) % 7 / 2
    table = read(tmp_path, plain=plain, **{name: values})
    return next(one for one in table.schema.columns if one.name == name)


class TestKinds:
    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            (np.linspace(0, 1, N) ** 2, "number"),
            (np.arange(N) ** 2, "number"),
            ([1, None] * (N // 2 - 1) + [2, 3], "number"),
            (["red", "blue", "red"] * (N // 3), "category"),
            (["red", None] * (N // 2), "category"),
            ([True, False] * (N // 2), "boolean"),
            (["TRUE", "", "false"] * (N // 3), "boolean"),
            (pd.date_range("2020-01-01", periods=N).strftime("%Y-%m-%d"), "date"),
            (["1 a", "2 b", "17 c"] * (N // 3), "category"),
            ([f"I have {i} complaints to make" for i in range(N)], "text"),
        ],
    )
    def test_are_told_apart(self, values: Any, kind: str, tmp_path: Path) -> None:
        assert found(tmp_path, values).kind == kind

    @pytest.mark.parametrize(
        ("name", "values", "why"),
        [
            ("x", [5] * N, "constant"),
            ("x", ["five"] * N, "constant"),
            ("x", [5, None] * (N // 2), "constant"),
            ("x", [None] * N, "empty"),
            ("x", range(1000, 1000 + N), "counts the rows"),
            ("order_id", np.arange(N) ** 2, "an id"),
            ("orderID", np.arange(N) ** 2, "an id"),
            ("x", [f"{i * 7919 % 1000:x}-q" for i in range(N)], "whose row"),
            ("x", [f"{one}@mail" for one in people()], "whose row"),
            ("x", np.repeat(np.arange(N // 2), 2) ** 2, "whose row"),
            ("x", [f"{i // 4:02d}q" for i in range(N)][::-1], "fewer than 10 rows"),
            ("x", [f"{1 + i % 28}.{1 + i % 12}.2020" for i in range(N)], "misread"),
        ],
    )
    def test_columns_that_are_left_out(
        self, name: str, values: Any, why: str, tmp_path: Path
    ) -> None:
        column = found(tmp_path, values, name)
        assert not column.is_used
        assert why in column.describe()

    def test_ids_of_rows_without_people(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        words = [f"{i:x}q" for i in range(N)]
        pd.DataFrame({"x": words, "z": np.arange(N) % 5, "y": [0, 1] * 60}).to_csv(
            path, index=False
        )
        table = read_table(path, Roles(target="y"))
        assert [one.name for one in table.schema.used] == ["z"]
        assert "every row has its own" in table.schema.left_out[0].describe()

    def test_long_tails_share_a_column(self, tmp_path: Path) -> None:
        values = ["a", "b", "c"] * 30 + [f"q{i}" for i in range(30)]
        assert found(tmp_path, values).rare_below == 10
        assert found(tmp_path, ["a", "b", "c"] * 40).rare_below is None

    def test_too_many_categories(self, tmp_path: Path) -> None:
        n = 300 * 12
        frame = pd.DataFrame(
            {
                "who": np.arange(n) % 50,
                "x": [f"q{i // 12}" for i in range(n)],
                "z": np.arange(n) % 7,
                "y": np.arange(n) % 2,
            }
        )
        frame.to_csv(tmp_path / "rows.csv", index=False)
        schema = read_table(tmp_path / "rows.csv", ROLES).schema
        assert "more than 200 categories" in schema.left_out[0].describe()

    def test_numbers_as_text_are_named(self, tmp_path: Path) -> None:
        values = [str(i * i % 97) for i in range(N)]
        frame = pd.DataFrame({"who": people(), "x": values, "z": np.arange(N) % 5})
        frame["y"] = np.arange(N) % 2
        frame.to_parquet(tmp_path / "rows.parquet")
        schema = read_table(tmp_path / "rows.parquet", ROLES).schema
        assert schema.left_out[0].why == "its numbers are stored as text"

    def test_words_on_request(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text("code,size,y\n01,1,0\n2,2,1\n3b,3,0\n01,4,1\n")
        with pytest.raises(InvalidInput, match="column 'code', line 4: it is not a n"):
            read_table(path, Roles(target="y"))
        table = read_table(path, Roles(target="y", category=("code",)))
        assert table.X["code"].to_pylist() == ["01", "2", "3b", "01"]

    @pytest.mark.parametrize(
        ("y", "task"),
        [
            ([0, 1] * 60, "classification"),
            (["a", "b", "c"] * 40, "classification"),
            ([0.5, 2.5] * 60, "classification"),
            (range(N), "regression"),
            (np.arange(N) % 9, "classification"),
            (np.linspace(0, 1, N), "regression"),
        ],
    )
    def test_target_decides_the_task(self, y: Any, task: str, tmp_path: Path) -> None:
        assert read(tmp_path, x=np.arange(N) % 7, y=y).schema.task == task


EVERY = Schema(
    target="y",
    task="classification",
    classes=("no", "yes"),
    columns=(
        make_column("age", "number", range=(0.0, 120.0), impute="median"),
        make_column("dose", "number", impute=0.0, indicator=True, scale="minmax"),
        make_column("since", "date"),
        make_column("member", "boolean"),
        make_column("colour", "category", rare_below=5),
        make_column("size", "category", encode="ordinal", categories=("s", "m", "l")),
        make_column("town", "category", categories=("Jena", "Ulm")),
        make_column("notes", "left out", why="it looks like free text"),
    ),
)


class TestFile:
    def test_says_what_it_said(self, tmp_path: Path) -> None:
        path = tmp_path / "schema.json"
        path.write_text(EVERY.to_json())
        assert read_schema(path) == EVERY

    def test_is_easy_to_edit(self) -> None:
        lines = EVERY.to_json().splitlines()
        assert len(lines) == 6 + len(EVERY.columns)
        for one in EVERY.columns:
            assert any(f'"name": "{one.name}", "kind"' in line for line in lines)

    def test_holds_no_value_of_a_row(self, tmp_path: Path) -> None:
        values = ["Timbuktu", "Ouagadougou"] * (N // 2)
        table = read(tmp_path, town=values, x=np.arange(N) % 7 * 123456, y=values)
        text = table.schema.to_json()
        assert "Timbuktu" not in text
        assert "123456" not in text

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"format": "other"}, 'it needs "format": "expunge schema 1"'),
            ({"column": []}, "the schema has no 'column'; it may have 'format'"),
            ({"target": {"name": "y", "task": "guess"}}, '"task" of "target" is'),
            ({"target": {"task": "regression"}}, '"target" needs the "name"'),
            (
                {"target": {"name": "y", "task": "classification", "classes": ["a"]}},
                '"classes" needs at least two',
            ),
            ({"columns": {}}, '"columns" a list'),
            ({"columns": [{"kind": "number"}]}, 'every column needs a "name"'),
        ],
    )
    def test_that_makes_no_sense(self, change: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            parse_schema(json.loads(EVERY.to_json()) | change)
        assert said in str(caught.value)

    @pytest.mark.parametrize(
        ("column", "said"),
        [
            ({"kind": "numeric"}, "\"kind\" of column 'x' is 'numeric'; give one of"),
            ({"kind": "number", "map": "sinh"}, "\"map\" of column 'x' is 'sinh'"),
            (
                {"kind": "number", "map": "log", "scale": "minmax", "range": [1, 2]},
                'cannot be the scale of those after it; give another "scale"',
            ),
            ({"kind": "number", "encode": "one-hot"}, "a number has no 'encode'; it m"),
            ({"kind": "number", "impute": "mode"}, 'give one of "mean", "median"'),
            ({"kind": "number", "impute": float("nan")}, "\"impute\" of column 'x'"),
            ({"kind": "number", "scale": "log"}, "\"scale\" of column 'x' is 'log'"),
            ({"kind": "number", "range": [3, 1]}, "must be [lowest, highest], or null"),
            ({"kind": "number", "range": 7}, "must be [lowest, highest], or null"),
            ({"kind": "number", "indicator": 1}, "must be true or false"),
            ({"kind": "category", "encode": "hash"}, "\"encode\" of column 'x'"),
            ({"kind": "category", "encode": "ordinal"}, 'give its "categories" from'),
            ({"kind": "category", "categories": ["a", "a"]}, "different values, or"),
            ({"kind": "category", "categories": [1, 2]}, "different values, or null"),
            ({"kind": "category", "categories": []}, "different values, or null"),
            ({"kind": "category", "rare_below": 1}, "must be 2 or more, or null"),
            ({"kind": "category", "rare_below": 2.5}, "must be 2 or more, or null"),
            (
                {"kind": "category", "categories": ["a"], "rare_below": 3},
                "has declared categories",
            ),
            ({"kind": "number", "name": "age"}, "column 'age' is described twice"),
            ({"kind": "number", "name": "y"}, "column 'y' is described twice"),
        ],
    )
    def test_column_that_makes_no_sense(
        self, column: dict[str, Any], said: str, tmp_path: Path
    ) -> None:
        data = json.loads(EVERY.to_json())
        data["columns"].append({"name": "x"} | column)
        path = tmp_path / "schema.json"
        path.write_text(json.dumps(data))
        with pytest.raises(InvalidInput) as caught:
            read_schema(path)
        assert str(path) in str(caught.value)
        assert said in str(caught.value)

    def test_that_is_no_json(self, tmp_path: Path) -> None:
        path = tmp_path / "schema.json"
        path.write_text('{\n "format": oops\n}')
        with pytest.raises(InvalidInput, match=r"line 2: not JSON"):
            read_schema(path)
        with pytest.raises(InvalidInput, match="cannot be read"):
            read_schema(tmp_path / "none.json")


CSV = """who,age,dose,since,member,colour,size,town,notes,y
a,30,1.5,2020-01-01,true,red,s,Jena,x,no
b,,,2020-01-03,,blue,l,Ulm,y,yes
c,50,2.5,,false,red,m,,z,no
d,70,3.5,2020-01-05,true,,s,Jena,w,yes
"""


class TestDeclared:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "rows.csv"
        path.write_text(CSV)
        return path

    def test_is_obeyed(self, path: Path) -> None:
        table = read_table(path, ROLES, schema=EVERY)
        assert table.schema is EVERY
        assert table.X.column_names == [one.name for one in EVERY.used]
        encoded = build_transformer(EVERY).fit_transform(table.X)
        # age; dose and where it is missing; since; member; the rare colours; size;
        # two towns and none
        assert encoded.shape == (4, 1 + 2 + 1 + 1 + 1 + 1 + 3)

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("a,30", "a,130", "column 'age', line 2: a number outside the declared ra"),
            (",l,", ",xl,", "column 'size', line 3: none of the declared categories"),
            (",Ulm,", ",Kiel,", "column 'town', line 3: none of the declared categor"),
            (
                "c,50",
                "c,old",
                "column 'age', line 4: it is not a number; correct it",
            ),
            ("dose", "doze", "no column 'dose'; did you mean 'doze'?"),
            ("since,", "since,new", "no column 'member'"),
        ],
    )
    def test_is_not_exceeded(self, path: Path, old: str, new: str, said: str) -> None:
        path.write_text(CSV.replace(old, new))
        with pytest.raises(InvalidInput) as caught:
            read_table(path, ROLES, schema=EVERY)
        assert said in str(caught.value)

    def test_columns_beyond_it_are_named(self, path: Path) -> None:
        lines = CSV.splitlines()
        path.write_text("\n".join([f"{lines[0]},more", *(f"{x},1" for x in lines[1:])]))
        with pytest.raises(InvalidInput, match="does not describe, 'more'; add them"):
            read_table(path, ROLES, schema=EVERY)
        roles = Roles(target="y", subject="who", drop=("more",))
        assert len(read_table(path, roles, schema=EVERY).y) == 4

    @pytest.mark.parametrize(
        ("roles", "said"),
        [
            (Roles(target="who"), "the schema is about the target 'y', not 'who'"),
            (Roles(target="y", drop=("age",)), "uses column 'age', which has another"),
            (Roles(target="y", weight="age"), "uses column 'age', which has another"),
            (Roles(target="y", category=("age",)), "--category with a schema"),
        ],
    )
    def test_roles_that_contradict_it(
        self, path: Path, roles: Roles, said: str
    ) -> None:
        with pytest.raises(InvalidInput, match=said):
            read_table(path, roles, schema=EVERY)


class TestTransformer:
    def test_is_unfitted_and_can_be_cloned(self) -> None:
        transformer = build_transformer(EVERY)
        assert not hasattr(transformer, "transformers_")
        clone(transformer)

    def test_frames_and_tables_are_encoded_alike(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text(CSV)
        schema = Schema("y", "classification", EVERY.columns[:1] + EVERY.columns[4:])
        table = read_table(path, ROLES, schema=_leave_rest(schema))
        transformer = build_transformer(schema).fit(table.X)
        frame = pd.read_csv(path)[table.X.column_names]
        np.testing.assert_array_equal(
            transformer.transform(frame), transformer.transform(table.X)
        )

    def test_models_take_tables_as_they_take_frames(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        size = np.where(rng.random(N) < 0.1, np.nan, rng.normal(size=N))
        colour = rng.choice(["red", "blue", ""], size=N)
        y = (np.nan_to_num(size) + (colour == "red") > 0.3).astype(int)
        table = read(tmp_path, size=size, colour=colour, y=y)
        frame = pd.read_csv(tmp_path / "rows.csv")[["size", "colour"]]
        fits = [
            LogisticRegression(
                alpha=1e-2, preprocessing=build_transformer(table.schema)
            ).fit(X, table.y, subjects=table.subjects)
            for X in (table.X, frame)
        ]
        np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
        np.testing.assert_array_equal(
            fits[0].decision_function(frame), fits[1].decision_function(table.X)
        )
        fits[0].forget(X=table.X.slice(0, 2), y=table.y[:2])
        fits[1].forget(["p000"])
        np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)

    def test_functions_come_before_everything(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        size = np.where(rng.random(N) < 0.1, np.nan, rng.exponential(90.0, size=N))
        y = (np.nan_to_num(size) > 60.0).astype(int)
        columns = (
            make_column("size", "number", map="log1p", scale="robust"),
            make_column("other", "number", map="sqrt", bins=4, quantum=0.5),
        )
        schema = parse_schema(
            json.loads(Schema("y", "classification", columns).to_json())
        )
        assert schema.columns[0].describe().startswith("its log1p, missing becomes")
        read(tmp_path, size=size, other=rng.random(N) * 9.0, y=y)
        table = read_table(tmp_path / "rows.csv", ROLES, schema=schema)
        described = describe_preprocessing(table)
        model = LogisticRegression(alpha=1e-2, preprocessing=described)
        model.fit(table.X, table.y, subjects=table.subjects).forget(["p003"])
        names = model.get_feature_names_out().tolist()
        assert names[:2] == ["log1p(size)", "sqrt(other)"]
        left = np.arange(N) // 2 != 3
        expected = np.log1p(size[left])
        fitted = public_model(model).preprocessing.features  # type: ignore[union-attr]
        filled = np.where(np.isnan(expected), np.nanmean(expected), expected)
        centre, ends = np.median(filled), np.percentile(filled, [25, 75])
        assert fitted.centre[0] == pytest.approx(centre, rel=1e-12)
        assert fitted.scale[0] == pytest.approx(ends[1] - ends[0], rel=1e-12)

    def test_columns_treated_alike_share_a_step(self) -> None:
        features = (
            make_column("a", "number"),
            make_column("b", "category"),
            make_column("c", "number", range=(0.0, 1.0)),
            make_column("d", "number", scale="none"),
        )
        schema = Schema("y", "regression", features)
        groups = [names for _, _, names in build_transformer(schema).transformers]
        assert groups == [["a", "c"], ["b"], ["d"]]

    def test_unknown_categories_are_zeros(self) -> None:
        schema = Schema("y", "regression", (make_column("a", "category"),))
        transformer = build_transformer(schema)
        transformer.fit(pd.DataFrame({"a": ["x", "z", "x"]}))
        row = transformer.transform(pd.DataFrame({"a": ["new"]}))
        assert np.asarray(row).tolist() == [[0.0, 0.0]]


def _leave_rest(schema: Schema) -> Schema:
    """Return a schema that describes the other columns too, and leaves them out."""
    known = {one.name for one in schema.columns}
    rest = tuple(
        make_column(one.name, "left out")
        for one in EVERY.columns
        if one.name not in known
    )
    return Schema(schema.target, schema.task, schema.columns + rest)


def test_declared_range_is_the_scale(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(
        "who,age,y\n" + "".join(f"p{i},{i * i % 97},{i % 2}\n" for i in range(40))
    )
    guessed = read_table(path, Roles(target="y", subject="who")).schema
    age = make_column("age", "number", scale="minmax", range=(0.0, 120.0))
    schema = replace(guessed, columns=(age,))
    table = read_table(path, Roles(target="y", subject="who"), schema=schema)
    described = describe_preprocessing(table)
    assert isinstance(described, Preprocessing)
    (group,) = described.groups
    assert group.scale == FitRange(ends=(0.0, 120.0))
