# SPDX-License-Identifier: Apache-2.0
"""A saved folder: altered it is refused, interrupted it is whole."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from expunge.core.values import dumps
from expunge.exceptions import InvalidInput, NothingSaved
from expunge.files import CorruptFiles, folder
from expunge.linear_model import LogisticRegression
from expunge.linear_model.fitting import load
from tests.test_files import CANCER, FILES, WORDS, contents, draft


@pytest.mark.parametrize("name", FILES)
class TestTampering:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        LogisticRegression(alpha=1e-2).fit(*WORDS).save(tmp_path)
        return tmp_path

    def test_flipped_byte_is_refused(self, name: str, place: Path) -> None:
        good = (place / name).read_bytes()
        for at in np.linspace(0, len(good) - 1, 60).astype(int):
            bad = bytearray(good)
            bad[at] ^= 1
            (place / name).write_bytes(bad)
            with pytest.raises(CorruptFiles, match=name.partition(".")[0]):
                load(place)
        (place / name).write_bytes(good)
        load(place)

    def test_truncated_file_is_refused(self, name: str, place: Path) -> None:
        good = (place / name).read_bytes()
        for length in (0, 1, 8, len(good) // 2, len(good) - 1):
            (place / name).write_bytes(good[:length])
            with pytest.raises(CorruptFiles):
                load(place)
        (place / name).write_bytes(good + b"\n")
        with pytest.raises(CorruptFiles):
            load(place)

    def test_missing_file_is_refused(self, name: str, place: Path) -> None:
        (place / name).unlink()
        with pytest.raises(CorruptFiles, match=f"{name} is missing"):
            load(place)

    def test_file_of_another_save_is_refused(
        self, name: str, place: Path, tmp_path: Path
    ) -> None:
        LogisticRegression(alpha=1e-1).fit(*WORDS).save(tmp_path / "other")
        (place / name).write_bytes((tmp_path / "other" / name).read_bytes())
        with pytest.raises(CorruptFiles):
            load(place)

    def test_half_of_another_save_is_refused(
        self, name: str, place: Path, tmp_path: Path
    ) -> None:
        LogisticRegression(alpha=1e-1).fit(*WORDS).save(tmp_path / "other")
        half = name.partition(".")[0]
        for end in ("json", "safetensors"):
            other = (tmp_path / "other" / f"{half}.{end}").read_bytes()
            (place / f"{half}.{end}").write_bytes(other)
        with pytest.raises(CorruptFiles, match="not saved together"):
            load(place)


@pytest.mark.parametrize("name", ["release.json", "private.json"])
def test_another_version_is_refused(name: str, tmp_path: Path) -> None:
    LogisticRegression().fit(*CANCER).save(tmp_path)
    manifest = json.loads((tmp_path / name).read_bytes())
    (tmp_path / name).write_text(dumps(manifest | {"version": 2}))
    with pytest.raises(CorruptFiles, match="version 2 and this expunge reads 1"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["release", "private"])
def test_sealed_nonsense_is_refused(kind: str, tmp_path: Path) -> None:
    LogisticRegression().fit(*CANCER).save(tmp_path)
    content = folder.open_manifest(kind, (tmp_path / f"{kind}.json").read_bytes())
    forgeries: list[Any] = [{"class": "Popen", "fields": {}}, {}, None]
    for forged in forgeries:
        forgery = folder.seal_manifest(kind, content | {"model": forged})
        (tmp_path / f"{kind}.json").write_bytes(forgery)
        with pytest.raises(CorruptFiles, match="does not contain"):
            load(tmp_path)


def test_nothing_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingSaved, match="nowhere: no such folder; check the path"):
        load(tmp_path / "nowhere")
    assert issubclass(NothingSaved, FileNotFoundError)
    with pytest.raises(CorruptFiles, match=r"release\.json is missing"):
        load(tmp_path)


def test_files_are_not_taken_for_folders(tmp_path: Path) -> None:
    model, file = LogisticRegression().fit(*CANCER), tmp_path / "model"
    file.write_text("mine")
    for path in (file, file / "below", file / "far" / "below"):
        for call in (model.save, load):
            with pytest.raises(InvalidInput, match="model is a file, and a"):
                call(path)
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


class TestInterruption:
    """A save is stopped at each of its calls to the disk."""

    @pytest.mark.parametrize("call", range(1, 7))
    def test_before_the_decision_the_old_model_is_left(
        self, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = LogisticRegression().fit(*CANCER)
        model.save(tmp_path)
        before = contents(tmp_path)
        model.forget(rows=[3])
        stop(monkeypatch, "fsync" if call < 6 else "rename", 1 if call == 6 else call)
        with pytest.raises(KeyboardInterrupt):
            model.save(tmp_path)
        monkeypatch.undo()
        assert contents(tmp_path) == before
        model.save(tmp_path)
        assert draft(load(tmp_path)).tobytes() == draft(model).tobytes()

    @pytest.mark.parametrize("call", [1, 2, 3, 4])
    def test_after_the_decision_the_new_model_is_there(
        self, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = LogisticRegression().fit(*CANCER)
        model.save(tmp_path)
        model.forget(rows=[3])
        stop(monkeypatch, "replace", call)
        with pytest.raises(KeyboardInterrupt):
            model.save(tmp_path)
        monkeypatch.undo()
        loaded = load(tmp_path)
        np.testing.assert_array_equal(draft(loaded), draft(model))
        loaded.save(tmp_path)
        assert sorted(os.listdir(tmp_path)) == FILES
        load(tmp_path)

    def test_killed_before_the_decision(self, tmp_path: Path) -> None:
        model = LogisticRegression().fit(*CANCER)
        model.save(tmp_path)
        (tmp_path / folder.SAVING).mkdir()
        (tmp_path / folder.SAVING / "private.json").write_bytes(b"half")
        load(tmp_path)
        model.save(tmp_path)
        assert sorted(os.listdir(tmp_path)) == FILES


def stop(monkeypatch: pytest.MonkeyPatch, name: str, at: int) -> None:
    """Interrupt the program at a call of this name: of os, or of a path."""
    owner = os if name == "fsync" else Path
    real, calls = getattr(owner, name), [0]

    def interrupted(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(owner, name, interrupted)


def test_private_files_that_are_links_are_refused(tmp_path: Path) -> None:
    model = LogisticRegression().fit(*CANCER)
    model.save(tmp_path / "a")
    model.save(tmp_path / "b")
    private = tmp_path / "a" / "private.json"
    private.unlink()
    private.symlink_to(tmp_path / "b" / "private.json")
    with pytest.raises(InvalidInput, match="is a link"):
        model.save(tmp_path / "a")
    load(tmp_path / "b")


def reseal(place: Path, kind: str, change: dict[str, Any]) -> None:
    """Change fields of a model as somebody would who can also write the hash."""
    content = json.loads((place / f"{kind}.json").read_bytes())["content"]
    content["model"]["fields"] |= change
    (place / f"{kind}.json").write_bytes(folder.seal_manifest(kind, content))


ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1e300,
    2**63,
    "a",
    "\ud800",
    [],
    [[]],
    {},
    {"a": [1]},
]


@pytest.mark.parametrize("kind", ["release", "private"])
def test_odd_types_are_refused(kind: str, tmp_path: Path) -> None:
    LogisticRegression().fit(*CANCER).save(tmp_path)
    good = (tmp_path / f"{kind}.json").read_bytes()
    fields = json.loads(good)["content"]["model"]["fields"]
    n_refused = 0
    for field in fields:
        for odd in ODD:
            (tmp_path / f"{kind}.json").write_bytes(good)
            try:
                reseal(tmp_path, kind, {field: odd})
            except (ValueError, UnicodeError):
                continue  # it has no canonical spelling, so no file holds it
            try:
                load(tmp_path)
            except CorruptFiles:
                n_refused += 1
    assert n_refused > 5 * len(fields)


@pytest.mark.parametrize(
    "path",
    [
        "feature_names.words.list.1",
        "preprocessing.fields.columns.tuple.1",
        "preprocessing.fields.columns.tuple.1.fields.source",
        "preprocessing.fields.features.fields.centre",
        "preprocessing.fields.features.fields.layout.fields.names.tuple.1",
        "preprocessing.fields.features.fields.layout.fields.columns",
        "preprocessing.fields.features.fields.layout.fields.codes.tuple.1",
    ],
)
def test_odd_preprocessing_is_refused(path: str, tmp_path: Path) -> None:
    X, y = WORDS
    table = pd.DataFrame(X, columns=[f"column {i}" for i in range(X.shape[1])])
    LogisticRegression(preprocessing=StandardScaler()).fit(table, y).save(tmp_path)
    for name in ("private.json", "private.safetensors"):
        (tmp_path / name).unlink()
    good = (tmp_path / "release.json").read_bytes()
    *way, last = [int(one) if one.isdigit() else one for one in path.split(".")]
    for odd in (*ODD, 7, "column 99"):
        fields: Any = json.loads(good)["content"]["model"]["fields"]
        inner = fields
        for one in way:
            inner = inner[one]
        if odd == inner[last] or odd == "\ud800":
            continue
        if odd is None and last == 1:  # a number has no codes
            continue
        inner[last] = odd
        (tmp_path / "release.json").write_bytes(good)
        try:
            reseal(tmp_path, "release", fields)
        except (ValueError, UnicodeError):
            continue  # no file holds it
        try:
            load(tmp_path).predict(table)
        except CorruptFiles:
            pass


@pytest.mark.parametrize("given", [0, 29, 31, 10**9])
def test_another_number_of_features_is_refused(given: int, tmp_path: Path) -> None:
    LogisticRegression().fit(*CANCER).save(tmp_path)
    for name in ("private.json", "private.safetensors"):
        (tmp_path / name).unlink()
    reseal(tmp_path, "release", {"n_features": given})
    with pytest.raises(CorruptFiles, match="does not contain a model"):
        load(tmp_path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("what", ["link", "pipe", "folder", "dangling link"])
def test_what_is_no_plain_file_is_refused(name: str, what: str, tmp_path: Path) -> None:
    place = tmp_path / "model"
    LogisticRegression().fit(*CANCER).save(place)
    (place / name).rename(tmp_path / "elsewhere")
    if what == "link":
        (place / name).symlink_to(tmp_path / "elsewhere")
    elif what == "dangling link":
        (place / name).symlink_to(tmp_path / "nowhere")
    elif what == "pipe":
        os.mkfifo(place / name)
    else:
        (place / name).mkdir()
    with pytest.raises(CorruptFiles, match=name):
        load(place)
