# SPDX-License-Identifier: Apache-2.0
"""A shorter journal: what younger backups need is there, and older ones are refused."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from expunge.exceptions import InvalidInput
from expunge.registry import (
    ForgottenInData,
    Registry,
    Request,
    rebuild_journal,
)
from tests.registries import (
    ask,
    by_name,
    crash_at,
    data,
    data_without,
    estimator,
    journal_file,
    lose_database,
    require_consistent,
    set_clock,
    stages_of,
    today,
)

WAITS = Request(("person 9",), "9" * 32, window=86_400 * 20)


@pytest.fixture
def old(template: Path, tmp_path: Path) -> Path:
    """Return a folder with backups of two days, ``older`` and ``younger``.

    Person 2 was forgotten between them and person 3 after both; person 4 came back, and
    somebody has waited all the time.
    """
    folder = Path(shutil.copytree(template, tmp_path / "registry"))
    with Registry.open(folder) as registry:
        registry.requests.accept([WAITS])
    shutil.copytree(folder, tmp_path / "older")
    with pytest.MonkeyPatch.context() as patch, Registry.open(folder) as registry:
        set_clock(patch, today() + timedelta(days=1))
        registry.forget(["person 2"])
        registry.forget(["person 4"])
        registry.requests.readmit(["person 4"])
        ask(registry, "restrict", "person 5")
    shutil.copytree(folder, tmp_path / "younger")
    with pytest.MonkeyPatch.context() as patch, Registry.open(folder) as registry:
        set_clock(patch, today() + timedelta(days=9))
        registry.forget(["person 3"])
    return folder


@pytest.fixture(autouse=True)
def later(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ten days later."""
    set_clock(monkeypatch, today() + timedelta(days=10))


def require_right(registry: Registry) -> None:
    """See who is held, who may be fitted, and who still waits."""
    held = registry.requests.find_models([f"person {n}" for n in (2, 3, 4, 9)])
    assert held == {
        **{f"person {n}": () for n in (2, 3, 4)},
        "person 9": ("all", "half"),
    }
    assert stages_of(registry, WAITS) == ["accepted"]
    require_consistent(registry)


def test_the_rest_goes_on(old: Path) -> None:
    before = journal_file(old).stat().st_size
    with Registry.open(old) as registry:
        receipts = [entry.to_json() for entry in registry.ledger.entries()]
        assert registry.compact_journal(5) == before - journal_file(old).stat().st_size
        assert journal_file(old).stat().st_size < before
        with pytest.raises(InvalidInput, match="every line of the journal"):
            registry.compact_journal(5)
        assert [one.to_json() for one in registry.ledger.entries()] == receipts
        require_right(registry)
        registry.forget(["person 6"])
    Registry.open(old).close()
    assert rebuild_journal(old) is None


def test_a_younger_backup_forgets_again(old: Path) -> None:
    with Registry.open(old) as registry:
        registry.compact_journal(5)
    lose_database(old)
    with Registry.restore(old, old.with_name("younger")) as registry:
        require_right(registry)


def test_an_older_one_is_refused_by_its_day(old: Path) -> None:
    with Registry.open(old) as registry:
        registry.compact_journal(5)
    day = today() + timedelta(days=1)
    refusal = f"last of {today()}, and .* before entry .*, of {day}; take a newer"
    with pytest.raises(InvalidInput, match=refusal):
        Registry.restore(old, old.with_name("older"))
    with Registry.open(old) as registry:
        require_right(registry)


def test_without_compaction_the_older_one_comes_back(old: Path) -> None:
    lose_database(old)
    with Registry.restore(old, old.with_name("older")) as registry:
        require_right(registry)


@pytest.mark.parametrize("n_times", [1, 2])
def test_fits_go_on_to_refuse_who_was_forgotten(old: Path, n_times: int) -> None:
    with Registry.open(old) as registry:
        registry.compact_journal(5)
        if n_times == 2:
            registry.compact_journal(0)
        with pytest.raises(ForgottenInData) as caught:
            registry.fit("again", estimator(), **by_name(data()))
        assert caught.value.n_people == 4  # 1 of the template, 2, 3 and 5
        gone = [f"person {n}" for n in (1, 2, 3, 5)]
        registry.fit("again", estimator(), **by_name(data_without(*gone)))
        require_consistent(registry)


def test_one_that_is_lost_later_is_begun_anew(old: Path) -> None:
    with Registry.open(old) as registry:
        registry.compact_journal(5)
    journal = journal_file(old)
    journal.write_bytes(journal.read_bytes()[:-9])
    assert rebuild_journal(old) == 0
    with Registry.open(old) as registry:
        require_right(registry)
    lose_database(old)
    with Registry.restore(old, old.with_name("younger")) as registry:
        require_right(registry)


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_leaves_the_old_one_or_the_new_one(old: Path, after: bool) -> None:
    with Registry.open(old) as registry:
        with crash_at("placing a new journal", after=after):
            registry.compact_journal(5)
    with Registry.open(old) as registry:
        require_right(registry)
        registry.compact_journal(5)
        require_right(registry)
    assert not list(old.rglob(".*"))


def test_needs_to_know_how_old_backups_are(old: Path, tmp_path: Path) -> None:
    with Registry.open(old) as registry:
        with pytest.raises(InvalidInput, match="say how many days old"):
            registry.compact_journal()
    with Registry.create(tmp_path / "told", backup_days=30) as registry:
        with pytest.raises(InvalidInput, match="kept for 30 days"):
            registry.compact_journal(7)
