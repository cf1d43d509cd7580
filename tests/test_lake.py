# SPDX-License-Identifier: Apache-2.0
"""Models of a registry whose rows stay in files: they forget as those in memory do."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge import Budget
from expunge.exceptions import CapacityExceeded, InvalidInput, Unsupported
from expunge.ledger import Receipt, check_receipt
from expunge.long import open_npy
from expunge.long.source import SourceTable
from expunge.promise.scope import ROWS_NOT_KEPT, describe_source
from expunge.registry import ForgottenInData, Lake, NewRows, Registry, Request
from tests.lakes import (
    fit_lake,
    fit_memory,
    make_lake,
    model,
    named,
    open_lake,
    require_close,
    retrained,
    theta,
    touch,
)
from tests.long_tables import NAMES
from tests.registries import ask, require_consistent, set_most_in_memory

IN_SOURCE = describe_source("orders")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Give the folder of a lake."""
    make_lake(tmp_path / "lake")
    return tmp_path / "lake"


def test_a_model_is_that_of_memory_to_the_bit(
    tmp_path: Path, registry_url: str | None
) -> None:
    """Before requests and after, in this process and in a later one."""
    columns = make_lake(tmp_path / "lake")
    with Registry.create(tmp_path / "registry", url=registry_url) as registry:
        fit_lake(registry, tmp_path / "lake")
        fit_lake(registry, tmp_path / "lake", "kept", keep_rows="registry")
        fit_memory(registry, columns)
        _require_equal(registry)
        assert {one.n_people for one in registry.status().models} == {1501}
        registry.forget(["person 7", "person 1400"])
        _require_equal(registry)
    with Registry.open(tmp_path / "registry") as registry:
        registry.forget(["person 0"])
        _require_equal(registry)
        gone = ("person 7", "person 1400", "person 0")
        for name in ("late", "memory"):
            registry.models.reanchor(name)
            require_close(registry, name, retrained(columns, *gone))
        require_consistent(registry)


def _require_equal(registry: Registry) -> None:
    expected = theta(registry, "memory")
    for name in ("late", "kept"):
        assert np.array_equal(theta(registry, name), expected)


def test_certificates_and_receipts_name_the_source(tmp_path: Path, lake: Path) -> None:
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        text = registry.forget(["person 3"])
        verdict = check_receipt(text, registry.keys.public_pem())
        assert verdict.valid and IN_SOURCE in verdict.not_covered
        receipt = Receipt.from_json(text)
        # The registry has destroyed no row: it had none.
        assert "rows" not in receipt.handling.destroyed
        assert "keys of rows" in receipt.handling.destroyed
        assert str(lake) not in text and ".parquet" not in text
        certificate = registry.status().models[0].certificate
        assert IN_SOURCE in certificate.not_covered
        assert ROWS_NOT_KEPT not in certificate.not_covered
        with open_lake(lake) as table:
            registry.fit("plain", model(), table, without_forgotten=True)
    ended = describe_source("plain")
    with Registry.open(tmp_path / "registry") as registry:
        found = {one.name: one.certificate for one in registry.status().models}
        assert ended in found["plain"].not_covered


def test_the_registry_holds_no_row_and_no_path(tmp_path: Path, lake: Path) -> None:
    columns = make_lake(lake)
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        registry.forget(["person 5"])
    held = b"".join(
        path.read_bytes()
        for path in (tmp_path / "registry").rglob("*")
        if path.is_file()
    )
    assert str(lake).encode() not in held and b"parquet" not in held
    for row in (15, 16, 17, 40):
        assert columns.X[row, :2].tobytes() not in held
    assert b"person 5" not in held


@pytest.mark.parametrize("keep_rows", ["lake", "never", "registry"])
def test_noise_is_small_where_rows_can_be_read_again(
    tmp_path: Path, lake: Path, keep_rows: Any
) -> None:
    with Registry.create(tmp_path / "registry") as registry, open_lake(lake) as table:
        budget = Budget(delta=1e-6)
        registry.fit("late", model(budget=budget), Lake(table, keep_rows, "orders"))
        for person in ("person 5", "person 6"):
            fitted = registry.model("late")
            sigma = 0.1 if keep_rows == "never" else 1e-3
            assert fitted.certificate_.sigma == fitted.budget.sigma == sigma
            registry.forget([person])


@pytest.mark.parametrize("keep_rows", ["lake", "never"])
def test_a_file_that_changed_leaves_all_as_it_was(
    tmp_path: Path, lake: Path, keep_rows: str
) -> None:
    kept = shutil.copytree(lake, tmp_path / "kept")
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake, keep_rows=keep_rows)
        before = theta(registry, "late")
        # The person's rows are in the first file; any change stops a request.
        touch(lake / "2.parquet")
        with pytest.raises(InvalidInput, match="file 2 of source 'orders' changed"):
            registry.forget(["person 3"])
        assert np.array_equal(theta(registry, "late"), before)
        (waiting,) = registry.status().pending
        assert "file 2 of source" in waiting.error and str(lake) not in waiting.error
        (lake / "2.parquet").unlink()
        with pytest.raises(InvalidInput, match="file 2 of source 'orders' changed"):
            registry.forget(["person 3"], waiting.request)
        shutil.copy2(kept / "2.parquet", lake / "2.parquet")
        assert registry.forget(["person 3"], waiting.request)
        assert registry.status().models[0].number == 2


def test_a_file_that_changes_while_a_person_is_read(
    tmp_path: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read may be of the new file: nothing is subtracted."""
    read = SourceTable.read_design

    def read_and_touch(table: SourceTable, *place: int, intercept: bool) -> Any:
        found = read(table, *place, intercept=intercept)
        touch(lake / "0.parquet")
        return found

    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        before = theta(registry, "late")
        monkeypatch.setattr(SourceTable, "read_design", read_and_touch)
        with pytest.raises(InvalidInput, match="changed"):
            registry.forget(["person 3"])
        assert np.array_equal(theta(registry, "late"), before)


def test_an_unreadable_file_is_an_error(tmp_path: Path, lake: Path) -> None:
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        before = theta(registry, "late")
        status = (lake / "1.parquet").stat()
        data = bytearray((lake / "1.parquet").read_bytes())
        data[200:20_000] = bytes(19_800)  # the footer is sound
        (lake / "1.parquet").write_bytes(data)
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(lake / "1.parquet", ns=times)
        with pytest.raises(InvalidInput, match="a file of source 'orders'"):
            registry.models.reanchor("late")
        assert np.array_equal(theta(registry, "late"), before)


def test_what_is_never_read_again(tmp_path: Path, lake: Path) -> None:
    columns = make_lake(lake)
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake, keep_rows="never")
        certificate = registry.status().models[0].certificate
        assert ROWS_NOT_KEPT in certificate.not_covered
        registry.forget(["person 2"])
        require_close(registry, "late", retrained(columns, "person 2"))
        for ask_for_all in (registry.models.reanchor, registry.models.case):
            with pytest.raises(Unsupported, match="not to be read again"):
                ask_for_all("late")


def test_people_who_left_stay_out(tmp_path: Path, lake: Path) -> None:
    columns = make_lake(lake)
    with Registry.create(tmp_path / "registry") as registry:
        fit_memory(registry, columns)
        registry.forget(["person 4", "person 900"])
        registry.keys.rotate_tag_key()
        with open_lake(lake) as table:
            with pytest.raises(ForgottenInData) as refused:
                registry.fit("late", model(), table)
            assert refused.value.rows == (12, 13, 14, 2700, 2701, 2702)
            assert refused.value.n_people == 2
            assert registry.models.names() == ["memory"]
            left_out = registry.fit("late", model(), table, without_forgotten=True)
            assert left_out[:2] == (6, 2)
        found = registry.requests.find_models(["person 4", "person 5"])
        assert found == {"person 4": (), "person 5": ("late", "memory")}
        require_close(registry, "late", retrained(columns, "person 4", "person 900"))
        registry.forget(["person 5"])
        gone = ("person 4", "person 5", "person 900")
        require_close(registry, "late", retrained(columns, *gone))
        registry.models.reanchor("late")
        require_close(registry, "late", retrained(columns, *gone))


def test_another_spelling_is_noticed_in_files_too(tmp_path: Path, lake: Path) -> None:
    make_lake(lake)
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake, "first")
        assert registry.requests.find_near(["PERSON 4"]) == {"PERSON 4": "person 4"}
        # A stranger by that word; the person is held under another spelling.
        registry.requests.accept([Request(("PERSON 4",))], strangers=True)
        registry.requests.apply()
        with open_lake(lake) as table:
            with pytest.raises(ForgottenInData) as refused:
                registry.fit("late", model(), table)
            assert (refused.value.n_people, refused.value.n_near) == (1, 1)
            registry.fit("late", model(), table, exact=True)


def test_rows_come_and_come_back(tmp_path: Path, lake: Path) -> None:
    """Those that come after the fit are kept by the registry, beside the files."""
    columns = make_lake(lake)
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        fit_memory(registry, columns)
        ask(registry, "restrict", "person 8")
        require_close(registry, "late", retrained(columns, "person 8"))
        ask(registry, "lift", "person 8")
        new: dict[str, Any] = {"subjects": ["person 9", "new"]}
        new["sample_weight"] = np.ones(2)
        for name in ("late", "memory"):
            registry.add(name, named(columns.X[:2]), columns.words[:2], **new)
        mine = [row for row, one in enumerate(columns.subjects) if one == "person 11"]
        corrected = NewRows(
            named(columns.X[mine] + 0.5), columns.words[mine], columns.weight[mine]
        )
        rows = {"late": corrected, "memory": corrected}
        ask(registry, "rectify", "person 11", rows=rows)
        for name in ("late", "memory"):
            registry.models.reanchor(name)
        np.testing.assert_allclose(theta(registry, "late"), theta(registry, "memory"))
        # All of it can leave again, from files and registry alike.
        registry.forget(["person 8", "person 9", "person 11", "new"])
        for name in ("late", "memory"):
            registry.models.reanchor(name)
        gone = ("person 8", "person 9", "person 11")
        require_close(registry, "late", retrained(columns, *gone))
        np.testing.assert_allclose(theta(registry, "late"), theta(registry, "memory"))
        require_consistent(registry)


def test_rows_of_nobody(tmp_path: Path, lake: Path) -> None:
    with Registry.create(tmp_path / "registry") as registry:
        with open_lake(lake, subject=None) as table:
            registry.fit("late", model(), table)
        assert registry.status().models[0].n_people == 0
        registry.models.reanchor("late")


def test_what_is_refused(
    tmp_path: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry.create(tmp_path / "registry") as registry:
        with open_lake(lake) as table:
            with pytest.raises(InvalidInput, match="keep_rows='maybe'"):
                Lake(table, keep_rows="maybe")  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="should say nothing about a person"):
                Lake(table, source="no/name")
            with pytest.raises(InvalidInput, match="leave y out"):
                registry.fit("late", model(), table, np.ones(3))
            with pytest.raises(InvalidInput, match="y is missing"):
                registry.fit("late", model(), np.ones((3, 2)))
            set_most_in_memory(monkeypatch, 1 << 16)
            with pytest.raises(Unsupported, match="leave them in their files"):
                registry.fit("late", model(), Lake(table, keep_rows="registry"))
        np.save(tmp_path / "X.npy", np.eye(30))
        with open_npy(tmp_path / "X.npy", target=np.arange(30) % 2) as arrays:
            with pytest.raises(Unsupported, match="Parquet files"):
                registry.fit("late", model(), arrays)
        with pytest.raises(InvalidInput, match="made of a long table"):
            Lake(np.eye(2))  # type: ignore[arg-type]
        assert registry.models.names() == []


def test_features_keep_their_names(tmp_path: Path, lake: Path) -> None:
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        fit_lake(registry, lake, "kept", keep_rows="registry")
        for name in ("late", "kept"):
            assert registry.model(name).feature_names_in_.tolist() == list(NAMES)


def test_what_does_not_fit_without_a_look_waits(tmp_path: Path, lake: Path) -> None:
    """Where rows are never read again, and the budget is too small without that."""
    columns = make_lake(lake)
    budget = Budget(epsilon=1.0, delta=1e-5, sigma=1e-5)
    with Registry.create(tmp_path / "registry") as registry:
        for name, keep in (("late", "lake"), ("never", "never")):
            with open_lake(lake) as table:
                kept = Lake(table, keep_rows=keep)  # type: ignore[arg-type]
                registry.fit(name, model(budget=budget), kept)
        before = theta(registry, "never")
        with pytest.raises(CapacityExceeded):
            registry.forget(["person 3"])
        (waiting,) = registry.status().pending
        assert np.array_equal(theta(registry, "never"), before)
        assert [one.number for one in registry.status().models] == [1, 1]
        registry.models.remove("never")
        assert registry.forget(["person 3"], waiting.request)
        require_close(registry, "late", retrained(columns, "person 3"))


def test_a_file_that_changes_before_the_fit(tmp_path: Path, lake: Path) -> None:
    with Registry.create(tmp_path / "registry") as registry:
        for keep in ("lake", "never", "registry"):
            with open_lake(lake) as table:
                touch(lake / "0.parquet")
                kept = Lake(table, keep_rows=keep)
                with pytest.raises(InvalidInput, match="file 0 changed, or is gone"):
                    registry.fit("late", model(), kept)
        assert registry.models.names() == []
