# SPDX-License-Identifier: Apache-2.0
"""What a registry lets out is what its contracts count, and nothing else."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from expunge import Budget, LogisticRegression
from expunge.exceptions import (
    ExpungeError,
    InvalidInput,
    ScheduleExhausted,
    Unsupported,
)
from expunge.ledger import ReleaseMade
from expunge.linear_model.base import private_model, snapshot_of
from expunge.linear_model.tuned import TunedClassifier
from expunge.registry import ForgottenInData, Registry, Request
from tests.registries import (
    BUDGET,
    by_name,
    crash_at,
    data,
    data_without,
    estimator,
    has_keys,
    live_keys,
    models_changed,
    opens_state,
    private_model_of,
    require_consistent,
    require_may_return,
    retrained,
    state_key,
)

pa = import_module("pyarrow")
SEEDED = Budget(sigma=10.0, allow_seeded=True)


def made(registry: Registry, name: str) -> int:
    """Return how many releases the ledger knows of a model beside the first."""
    entries = (e for e in registry.ledger.entries() if isinstance(e, ReleaseMade))
    return sum(entry.model == name for entry in entries)


def noise_of(registry: Registry, name: str) -> Any:
    """Return the noise on the newest release of a model."""
    draft = private_model_of(registry, name).answer.draft.theta
    return np.asarray(snapshot_of(registry.model(name)).public.release.theta) - draft


def test_the_callers_estimator_holds_nothing(tmp_path: Path) -> None:
    """It would have the rows, and could make releases that nobody counts."""
    model = LogisticRegression(alpha=0.05, budget=replace(BUDGET, releases=2))
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("model", model, **by_name(data()))
    assert not hasattr(model, "_snapshot")


def test_a_slow_reader_of_the_log_sees_and_holds_up_nothing(tmp_path: Path) -> None:
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("model", estimator(), **by_name(data()))
        entries = registry.ledger.entries()
        next(entries)
        registry.forget(["person 1"])
        assert registry.requests.find_models(["person 1"]) == {"person 1": ()}


class TestWhoeverWasForgotten:
    """The table that a model was fitted to still exists, with everybody in it."""

    def test_is_not_fitted_again_by_oversight(self, tmp_path: Path) -> None:
        with Registry.create(tmp_path / "registry") as registry:
            registry.fit("model", estimator(), **by_name(data()))
            registry.forget(["person 1", "person 2"])
            before = registry.ledger.export()
            for fit, name in (
                (registry.models.refit, "model"),
                (registry.fit, "other"),
            ):
                with pytest.raises(InvalidInput, match=r"were forgotten \(2\)"):
                    fit(name, estimator(), **by_name(data()))
            assert registry.ledger.export() == before
            registry.models.refit(
                "model", estimator(), **by_name(data_without("person 1", "person 2"))
            )

    @pytest.mark.parametrize("kind", ["array", "list", "pandas", "arrow", "polars"])
    def test_are_left_out_on_request(self, tmp_path: Path, kind: str) -> None:
        X, y, owners = data()
        weight = np.linspace(1.0, 2.0, len(y))
        make: dict[str, Callable[[Any], Any]] = {
            "array": np.asarray,
            "list": lambda rows: rows.tolist(),
            "pandas": lambda rows: pd.DataFrame(rows).add_prefix("x"),
            "arrow": lambda rows: pa.table({f"x{i}": c for i, c in enumerate(rows.T)}),
            "polars": lambda rows: pl.DataFrame(rows),
        }
        given: dict[str, Any] = {"subjects": owners, "sample_weight": weight}
        with Registry.create(tmp_path / "registry") as registry:
            told: list[tuple[int, int]] = []
            left = registry.fit(
                "model",
                estimator(),
                make[kind](X),
                y,
                on_progress=lambda *step: told.append(step),
                **given,
            )
            assert left == (0, 0, 0)
            assert told == [(step, 4) for step in range(5)]
            registry.forget(["person 1", "person 2"])
            registry.requests.accept([Request(("person 3",))])
            with pytest.raises(ForgottenInData, match="rows 2, 3, 4, 5, counted") as no:
                registry.models.refit("model", estimator(), make[kind](X), y, **given)
            assert (no.value.rows, no.value.n_people) == ((2, 3, 4, 5), 2)
            assert "person" not in str(no.value)
            for fit, name in (
                (registry.models.refit, "model"),
                (registry.fit, "other"),
            ):
                left = fit(
                    name,
                    estimator(),
                    make[kind](X),
                    y,
                    without_forgotten=True,
                    **given,
                )
                assert left == (4, 2, 0)
            registry.requests.apply()  # who only asked is in the fit until then
            held = registry.requests.find_models(set(owners))
            gone = {"person 1", "person 2", "person 3"}
            assert {one for one, models in held.items() if not models} == gone
            stay = [row for row, owner in enumerate(owners) if owner not in gone]
            rows = registry.models.case("other").rows
            assert np.allclose(rows.dense()[:, : X.shape[1]], X[stay])
            assert np.allclose(rows.weight, weight[stay])
            require_consistent(registry)

    def test_of_whom_nobody_is_left_cannot_be_fitted(self, tmp_path: Path) -> None:
        X, y, owners = data()
        with Registry.create(tmp_path / "registry") as registry:
            registry.fit("model", estimator(), X, y, subjects=owners)
            registry.forget(["person 1", "person 2"])
            before = registry.ledger.export()
            for rows, whose, said in (
                (slice(2, 6), slice(2, 6), r"all rows \(4\)"),
                (slice(40), slice(6), "subjects has 6 ids and X has 40 rows"),
            ):
                with pytest.raises(InvalidInput, match=said):
                    registry.fit(
                        "other",
                        estimator(),
                        X[rows],
                        y[rows],
                        subjects=owners[whose],
                        without_forgotten=True,
                    )
            assert registry.ledger.export() == before

    def test_may_come_back(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"
        with Registry.create(folder) as registry:
            registry.fit("model", estimator(), **by_name(data()))
            registry.forget(["person 1", "person 2"])
            registry.keys.rotate_tag_key()
            with pytest.raises(InvalidInput, match=r"were forgotten \(1\)"):
                require_may_return(registry, "person 1", "person 5")
            registry.requests.readmit(["person 1"])
        with Registry.open(folder) as registry:
            registry.models.refit(
                "model", estimator(), **by_name(data_without("person 2"))
            )
            assert registry.requests.find_models(["person 1"]) == {
                "person 1": ("model",)
            }
            registry.forget(["person 1"])
            both = ["person 1", "person 2"]
            with pytest.raises(InvalidInput, match=r"were forgotten \(2\)"):
                require_may_return(registry, *both)
            require_consistent(registry)


def lower(part: Any) -> Any:
    """Return a vector, or the triangle of a matrix that counts."""
    return np.tril(part.lower) if hasattr(part, "lower") else np.asarray(part)


class TestAnchoringAnew:
    def test_leaves_a_state_that_never_saw_those_who_left(self, tmp_path: Path) -> None:
        rest = data_without("person 1", "person 2")
        with Registry.create(tmp_path / "registry") as registry:
            registry.fit("model", estimator(), **by_name(data()))
            registry.forget(["person 1", "person 2"])
            public = snapshot_of(registry.model("model")).public.release
            old = private_model_of(registry, "model")
            registry.models.reanchor("model")
            held = private_model_of(registry, "model")
            never = private_model(estimator().fit(*rest[:2]))
            for name in ("theta", "gradient", "hessian", "moment"):
                one, other = (
                    lower(getattr(c.answer.state.sums, name)) for c in (held, never)
                )
                np.testing.assert_allclose(one, other, atol=1e-7)
            one, other = (lower(c.answer.state.preconditioner) for c in (held, never))
            np.testing.assert_allclose(one, other, atol=1e-9)
            assert (
                np.abs(held.answer.state.anchor - old.answer.state.anchor).max() > 1e-4
            )
            shown = snapshot_of(registry.model("model")).public.release
            assert np.array_equal(shown.theta, public.theta)
            registry.forget(["person 3"])
            custody = private_model_of(registry, "model")
            gone = ["person 1", "person 2", "person 3"]
            gap = np.linalg.norm(custody.answer.draft.theta - retrained(gone))
            assert gap <= custody.answer.radius.value
            require_consistent(registry)

    def test_can_be_interrupted(self, tmp_path: Path) -> None:
        """The new state counts, and the key of the old one is still there."""
        folder = tmp_path / "registry"

        with Registry.create(folder) as registry:
            registry.fit("model", estimator(), **by_name(data()))
            registry.forget(["person 1"])
            before = state_key(registry, "model")
            with crash_at("destroying keys"):
                registry.models.reanchor("model")
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
            assert before not in live_keys(folder).values()
            rest = data_without("person 1", "person 2")
            registry.models.refit("model", estimator(), **by_name(rest))
            require_consistent(registry)

    def test_is_refused_for_tuned_models(self, tmp_path: Path) -> None:
        tuned = TunedClassifier(alphas=(1.0, 0.1), folds=2, budget=BUDGET)
        with Registry.create(tmp_path / "registry") as registry:
            registry.fit("tuned", tuned, **by_name(data()))
            with pytest.raises(Unsupported, match="fit it again"):
                registry.models.reanchor("tuned")


class TestSeededNoise:
    """It repeats itself, so that no two states may get the same."""

    def test_goes_on_after_a_reload(self, tmp_path: Path) -> None:
        seen = []
        for turn in range(4):
            with Registry.create(tmp_path / "registry") as registry:
                if not turn:
                    model = estimator(budget=SEEDED, random_state=3)
                    registry.fit("model", model, **by_name(data()))
                else:
                    registry.forget([f"person {turn}"])
                seen.append(noise_of(registry, "model"))
        assert all(
            np.abs(seen[i] - seen[j]).min() > 1e-6 for i in range(4) for j in range(i)
        )

    def test_goes_on_after_a_restore(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"
        seen = []
        with Registry.create(folder) as registry:
            model = estimator(budget=SEEDED, random_state=3)
            registry.fit("model", model, **by_name(data()))
            seen.append(noise_of(registry, "model"))
        shutil.copytree(folder, tmp_path / "backup")
        with Registry.open(folder) as registry:
            for person in ("person 1", "person 2"):
                registry.forget([person])
                seen.append(noise_of(registry, "model"))
        with Registry.restore(folder, tmp_path / "backup") as registry:
            seen.append(noise_of(registry, "model"))
            registry.forget(["person 3"])
            seen.append(noise_of(registry, "model"))
        assert all(
            np.abs(seen[i] - seen[j]).min() > 1e-6 for i in range(5) for j in range(i)
        )


class TestSpentContracts:
    def test_cost_the_others_nothing(self, tmp_path: Path) -> None:
        X, y, owners = data()
        with Registry.create(tmp_path / "registry") as registry:
            registry.fit("all", estimator(), X, y, subjects=owners)
            spent = estimator(budget=replace(BUDGET, releases=1))
            registry.fit("spent", spent, X[:40], y[:40], subjects=owners[:40])
            asked = [Request((f"person {i}",)) for i in range(30)]
            registry.requests.accept(asked)
            with models_changed() as computed:
                with pytest.raises(ScheduleExhausted, match="'spent'"):
                    registry.requests.apply()
            assert computed == ["all"] and made(registry, "all") == 1
            stages = [registry.requests.status(one.request).stage for one in asked]
            assert stages == ["accepted"] * 20 + ["completed"] * 10
            registry.forget(["person 45"])
            assert made(registry, "all") == 2
            require_consistent(registry)

    def test_can_be_given_up_with_an_interruption(self, tmp_path: Path) -> None:
        """Restored and committed, and the old keys not destroyed yet."""
        folder, backup = tmp_path / "registry", tmp_path / "backup"
        spent = estimator(budget=replace(BUDGET, releases=2))
        with Registry.create(folder) as registry:
            registry.fit("model", spent, **by_name(data()))
        shutil.copytree(folder, backup)
        with Registry.open(folder) as registry:
            registry.forget(["person 1"])
        with crash_at("destroying keys"):
            Registry.restore(folder, backup)
        with Registry.open(folder) as registry:
            registry.models.refit("model", spent, **by_name(data_without("person 1")))
            registry.forget(["person 2"])
            require_consistent(registry)

    def test_leave_no_state_behind_when_restored(self, tmp_path: Path) -> None:
        folder, backup = tmp_path / "registry", tmp_path / "backup"
        with Registry.create(folder) as registry:
            spent = estimator(budget=replace(BUDGET, releases=2))
            registry.fit("model", spent, **by_name(data()))
            key_then = state_key(registry, "model")
        shutil.copytree(folder, backup)
        with Registry.open(folder) as registry:
            registry.forget(["person 1"])
        with Registry.restore(folder, backup) as registry:
            with pytest.raises(ScheduleExhausted):
                private_model_of(registry, "model")
            assert not has_keys(registry, "model")
            for path in (backup / "checkpoints").glob("model.[0-9]*"):
                assert opens_state(path, key_then)
                for key in live_keys(folder).values():
                    assert not opens_state(path, key)
            with pytest.raises(ExpungeError):
                registry.models.record("model")
            log = folder / "expunge.db-wal"
            before = (backup / "expunge.db").stat().st_size
            assert not log.exists() or log.stat().st_size < before / 2
