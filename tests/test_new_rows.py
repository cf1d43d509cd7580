# SPDX-License-Identifier: Apache-2.0
"""New rows of a rectification wait, are used, or are gone, whatever happens."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge.exceptions import InvalidInput
from expunge.linear_model.base import private_model
from expunge.registry import NewRows, Registry, Request
from tests.registries import (
    before_each,
    crash_at,
    data,
    estimator,
    keys_of_new_rows,
    make_key_of_new_rows,
    private_model_of,
    registry_at,
    unused_keys,
)

ONE = "person 1"


@pytest.fixture
def registry(tmp_path: Path) -> Any:
    with registry_at(tmp_path / "registry") as registry:
        yield registry


def new_rows() -> NewRows:
    X, y, _ = data()
    return NewRows(X[:1] + 1.0, y[:1])


def rectify(person: str = ONE) -> Request:
    return Request((person,), right="rectify", rows={"all": new_rows()})


class TestKeys:
    """Of new rows: none outlives its request, whatever is killed."""

    def test_of_a_request_that_was_cancelled(self, registry: Registry) -> None:
        asked = rectify()
        registry.requests.accept([asked])
        with crash_at("destroying keys"):
            registry.requests.cancel(asked.request)
        assert keys_of_new_rows(registry)
        registry.requests.apply()
        assert not keys_of_new_rows(registry)

    def test_of_a_request_that_was_never_accepted(self, registry: Registry) -> None:
        asked = rectify()
        make_key_of_new_rows(registry, asked.request)
        assert keys_of_new_rows(registry)
        registry.requests.apply()
        assert not keys_of_new_rows(registry)

    def test_of_a_request_that_a_backup_brings_back(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        registry.requests.accept([rectify()])
        shutil.copytree(tmp_path / "registry", tmp_path / "backup")
        registry.requests.apply()
        registry.close()
        shutil.copy(tmp_path / "backup" / "expunge.db", tmp_path / "registry")
        with Registry.restore(tmp_path / "registry", tmp_path / "backup") as restored:
            assert not keys_of_new_rows(restored)

    def test_of_a_request_that_waits_stays(self, registry: Registry) -> None:
        asked = rectify()
        registry.requests.accept([asked])
        registry.models.reanchor("half")  # as everything does that holds the lock
        assert keys_of_new_rows(registry) == [asked.request]


class TestLostRows:
    """The journal knows of a rectification, and its new rows are lost."""

    @pytest.fixture(params=["the database", "all but the journal"])
    def asked(
        self, registry: Registry, tmp_path: Path, request: pytest.FixtureRequest
    ) -> Any:
        """Return a request that was accepted after the backup that was restored.

        What was lost beside the database: with the keys, their numbers are known from
        the journal alone, where new rows are.
        """
        folder, backup = tmp_path / "registry", tmp_path / "backup"
        shutil.copytree(folder, backup)
        asked = rectify()
        registry.requests.accept([asked])
        registry.close()
        if request.param == "the database":
            shutil.copy(backup / "expunge.db", folder)
        else:
            journal = (folder / "journal").read_bytes()
            shutil.rmtree(folder)
            shutil.copytree(backup, folder)
            (folder / "journal").write_bytes(journal)
        with Registry.restore(folder, backup) as restored:
            assert restored.losses.rectifications == (asked.request,)
            restored.forget(["person 7"])  # which makes keys
            assert not unused_keys(restored)
        return asked

    @pytest.fixture
    def restored(self, asked: Request, tmp_path: Path) -> Any:
        with Registry.open(tmp_path / "registry") as registry:
            yield registry

    def test_it_waits_and_says_why(self, restored: Registry, asked: Request) -> None:
        with pytest.raises(InvalidInput, match="rows of this rectification were lost"):
            restored.requests.apply()
        assert restored.requests.status(asked.request).stage == "accepted"
        assert restored.requests.find_models([ONE])[ONE] == ("all", "half")

    def test_later_requests_of_the_person_wait(
        self, restored: Registry, asked: Request
    ) -> None:
        later = Request((ONE,), right="restrict")
        restored.requests.accept([later])
        with pytest.raises(InvalidInput, match="lost"):
            restored.requests.apply()
        assert "an earlier request" in restored.requests.status(later.request).error
        restored.requests.cancel(asked.request)
        restored.requests.apply()
        assert restored.requests.status(later.request).outcome == "done"

    def test_rows_that_are_sent_again_are_taken(
        self, restored: Registry, asked: Request
    ) -> None:
        restored.requests.accept([asked])
        restored.requests.apply()
        assert restored.requests.status(asked.request).outcome == "done"
        model = private_model_of(restored, "all")
        X, y, owners = data()
        stay = [n for n, one in enumerate(owners) if one not in (ONE, "person 7")]
        new = new_rows()
        wanted = estimator().fit(
            np.concatenate([X[stay], new.X]), np.concatenate([y[stay], new.y])
        )
        retrained = private_model(wanted).answer.draft.theta
        distance = np.linalg.norm(model.answer.draft.theta - retrained)
        assert distance <= model.answer.radius.value + 1e-6

    def test_other_rows_under_its_id_are_refused(
        self, restored: Registry, asked: Request
    ) -> None:
        other = NewRows(new_rows().X + 1.0, new_rows().y)
        changed = Request((ONE,), asked.request, right="rectify", rows={"all": other})
        with pytest.raises(InvalidInput, match="asked for something else"):
            restored.requests.accept([changed])


def test_a_backup_from_between_has_the_new_rows(
    registry: Registry, tmp_path: Path
) -> None:
    """It was taken after a rectification was applied, and before it was completed."""
    asked = rectify()

    def copy_if_applied() -> None:
        if registry.requests.status(asked.request).stage == "applied":
            if not (tmp_path / "backup").exists():
                shutil.copytree(tmp_path / "registry", tmp_path / "backup")

    registry.requests.accept([asked])
    with before_each("finishing", copy_if_applied):
        registry.requests.apply()
    registry.close()
    assert (tmp_path / "backup").exists()
    with Registry.restore(tmp_path / "registry", tmp_path / "backup") as restored:
        assert restored.requests.find_models([ONE])[ONE] == ("all", "half")
