# SPDX-License-Identifier: Apache-2.0
"""Models whose rows stay in files, killed and restored: nobody comes back."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from expunge.exceptions import InvalidInput, NeedsRestore, ScheduleExhausted
from expunge.ledger import check_receipt
from expunge.registry import Registry, Request
from tests.lakes import (
    fit_lake,
    fit_memory,
    make_lake,
    model,
    open_lake,
    require_close,
    retrained,
    theta,
)
from tests.registries import A_REQUEST, ask, require_consistent
from tests.thorough import either
from tests.users import killed_at

N_ROWS = 600
PERSON, OTHER, LATER = "person 3", "person 60", "person 150"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Give the folder of a small lake."""
    make_lake(tmp_path / "lake", N_ROWS)
    return tmp_path / "lake"


def back_up(tmp_path: Path, lake: Path) -> Path:
    """Fit a model to a lake and one to memory; return a backup from then."""
    with Registry.create(tmp_path / "registry") as registry:
        fit_lake(registry, lake)
        fit_memory(registry, make_lake(tmp_path / "other", N_ROWS))
    return Path(shutil.copytree(tmp_path / "registry", tmp_path / "backup"))


def lose(folder: Path, backup: Path) -> None:
    """Put an old database in the place of the one in use."""
    shutil.copy(backup / "expunge.db", folder / "expunge.db")
    with pytest.raises(NeedsRestore):
        Registry.open(folder)


def test_a_restore_forgets_again(tmp_path: Path, lake: Path) -> None:
    columns = make_lake(lake, N_ROWS)
    folder, backup = tmp_path / "registry", back_up(tmp_path, lake)
    with Registry.open(folder) as registry:
        registry.forget([PERSON])
    lose(folder, backup)
    with Registry.restore(folder, backup) as registry:
        assert registry.requests.find_models([PERSON]) == {PERSON: ()}
        for name in ("late", "memory"):
            require_close(registry, name, retrained(columns, PERSON))
        registry.forget([LATER])
        registry.models.reanchor("late")
        require_close(registry, "late", retrained(columns, PERSON, LATER))
        assert registry.lake.status("late").n_to_rewrite == 2
        require_consistent(registry)


@pytest.mark.parametrize("right", ["erase", "restrict"])
def test_rows_that_a_rewrite_dropped_empty_the_model(
    tmp_path: Path, lake: Path, right: str
) -> None:
    columns = make_lake(lake, N_ROWS)
    folder, backup = tmp_path / "registry", back_up(tmp_path, lake)
    with Registry.open(folder) as registry:
        ask(registry, right, PERSON)  # type: ignore[arg-type]
        registry.forget([OTHER])  # who is restricted stays in the file
        assert registry.lake.rewrite("late") == 1
    lose(folder, backup)
    with Registry.restore(folder, backup) as registry:
        held = registry.requests.find_models([PERSON, LATER])
        assert held[LATER] == ("memory",) and "late" not in held[PERSON]
        with pytest.raises(ScheduleExhausted, match="fit it again"):
            registry.model("late")
        require_close(registry, "memory", retrained(columns, PERSON, OTHER))
        with open_lake(lake) as table:
            registry.models.refit("late", model(), table, without_forgotten=True)
        require_close(registry, "late", retrained(columns, PERSON, OTHER))
        registry.forget([LATER])
        require_close(registry, "late", retrained(columns, PERSON, OTHER, LATER))


def test_a_backup_from_after_a_rewrite_goes_on(tmp_path: Path, lake: Path) -> None:
    columns = make_lake(lake, N_ROWS)
    folder = tmp_path / "registry"
    back_up(tmp_path, lake)
    with Registry.open(folder) as registry:
        registry.forget([PERSON])
        registry.lake.rewrite("late")
    newer = Path(shutil.copytree(folder, tmp_path / "newer"))
    with Registry.open(folder) as registry:
        registry.forget([LATER])
    lose(folder, newer)
    with Registry.restore(folder, newer) as registry:
        require_close(registry, "late", retrained(columns, PERSON, LATER))
        assert registry.lake.rewrite("late") == 1


def test_a_missing_file_holds_up_a_restore(tmp_path: Path, lake: Path) -> None:
    folder, backup = tmp_path / "registry", back_up(tmp_path, lake)
    with Registry.open(folder) as registry:
        registry.forget([PERSON])
    lose(folder, backup)
    lake.rename(tmp_path / "unmounted")
    with pytest.raises(InvalidInput, match="file 0 of source 'orders' is missing"):
        Registry.restore(folder, backup)
    (tmp_path / "unmounted").rename(lake)
    with Registry.restore(folder, backup) as registry:
        assert registry.requests.find_models([PERSON]) == {PERSON: ()}
        assert registry.model("late") is not None


def _fit(folder: Path, lake: Path) -> None:
    with Registry.open(folder) as registry:
        fit_lake(registry, lake)


def _forget(folder: Path) -> None:
    with Registry.open(folder) as registry:
        registry.requests.accept([Request((PERSON,), A_REQUEST)])
        registry.requests.apply()


def test_a_killed_fit_leaves_nothing_or_all(tmp_path: Path, lake: Path) -> None:
    columns, folder = make_lake(lake, N_ROWS), tmp_path / "registry"
    Registry.create(tmp_path / "made").close()
    expected, without = retrained(columns), retrained(columns, PERSON)
    place = n_fitted = 0
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "made", folder)
        killed = killed_at(place, partial(_fit, folder, lake))
        with Registry.open(folder) as registry:
            if registry.models.names():
                n_fitted += 1
            else:
                fit_lake(registry, lake)
            require_close(registry, "late", expected)
            registry.forget([PERSON])
            require_close(registry, "late", without)
        if not killed:
            break
        place += either(61, thorough=23)
    assert place > 40 and n_fitted > 1


def test_a_killed_request_is_applied_once(tmp_path: Path, lake: Path) -> None:
    columns, folder = make_lake(lake, N_ROWS), tmp_path / "registry"
    made = back_up(tmp_path, lake)
    place = n_accepted = 0
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
        killed = killed_at(place, partial(_forget, folder))
        with Registry.open(folder) as registry:
            registry.requests.apply()
            if registry.status().n_requests:
                n_accepted += 1
                receipt = registry.requests.receipt(A_REQUEST)
                assert receipt is not None
                assert check_receipt(receipt, registry.keys.public_pem()).valid
                require_close(registry, "late", retrained(columns, PERSON))
                assert registry.status().models[0].number == 2
                found = theta(registry, "late")
                assert (found == theta(registry, "memory")).all()
            else:
                require_close(registry, "late", retrained(columns))
        if not killed:
            break
        place += either(11, thorough=5)
    assert place > 20 and n_accepted > 2
