# SPDX-License-Identifier: Apache-2.0
"""A registry forgets people durably, once, in every model, and can prove it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from expunge import Budget, LogisticRegression, Newton, SoftmaxRegression
from expunge.exceptions import (
    ExpungeError,
    InvalidInput,
    NoRegistry,
    NotConverged,
    StoreFailed,
    UnknownRequest,
    UnknownSubject,
)
from expunge.ledger import (
    ModelRegistered,
    ReleaseMade,
    ReleasesSuperseded,
    ReleaseWithdrawn,
    RequestCompleted,
    check_receipt,
)
from expunge.linear_model.base import private_model
from expunge.linear_model.tuned import TunedClassifier
from expunge.registry import Registry, Request
from tests.registries import (
    A_REQUEST,
    BUDGET,
    by_name,
    data,
    estimator,
    overlooked_request,
    private_model_of,
    registry_at,
    releases_of,
    require_consistent,
    retrained,
)


def theta(registry: Registry, name: str) -> np.ndarray:
    return private_model_of(registry, name).answer.draft.theta


class TestForgetting:
    def test_every_model_that_holds_the_person_is_as_if_retrained(
        self, registry: Registry
    ) -> None:
        registry.forget(["person 3"])
        assert registry.requests.find_models(["person 3"]) == {"person 3": ()}
        for name, half in (("all", False), ("half", True)):
            oracle = retrained(["person 3"], half=half)
            radius = registry.models.record(name).radius
            assert radius is not None
            assert np.linalg.norm(theta(registry, name) - oracle) <= radius
        require_consistent(registry)

    def test_only_models_that_hold_the_person_change(self, registry: Registry) -> None:
        before = {model.name: model for model in registry.status().models}
        receipt = json.loads(registry.forget(["person 45"]))
        assert list(receipt["certificates"]) == ["all"]
        after = {model.name: model for model in registry.status().models}
        assert after["half"] == before["half"]
        assert after["all"].n_people == before["all"].n_people - 1

    def test_a_batch_changes_each_model_once(self, registry: Registry) -> None:
        asked = [Request((f"person {i}",)) for i in range(5)]
        registry.requests.accept(asked)
        registry.requests.apply()
        made = [e for e in registry.ledger.entries() if isinstance(e, ReleaseMade)]
        assert [entry.model for entry in made] == ["all", "half"]
        done = [e for e in registry.ledger.entries() if isinstance(e, RequestCompleted)]
        assert {entry.request for entry in done} == {one.request for one in asked}
        names = [f"person {i}" for i in range(5)]
        state = private_model_of(registry, "all")
        assert state.answer.radius.value >= np.linalg.norm(
            state.answer.draft.theta - retrained(names)
        )
        require_consistent(registry)

    def test_batch_equals_stream(self, tmp_path: Path) -> None:
        names = [f"person {i}" for i in range(6)]
        with (
            registry_at(tmp_path / "batch") as batch,
            registry_at(tmp_path / "stream") as stream,
        ):
            batch.forget(names)
            for name in names:
                stream.forget([name])
            for model in ("all", "half"):
                one, other = theta(batch, model), theta(stream, model)
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-11)

    def test_two_requests_about_one_person_are_both_answered(
        self, registry: Registry
    ) -> None:
        first, second = (
            Request(("person 1",)),
            Request(("person 1", "person 2")),
        )
        registry.requests.accept([first, second])
        registry.requests.apply()
        for one in (first, second):
            assert registry.requests.status(one.request).stage == "completed"
        assert private_model_of(registry, "all").n_removed == 4
        require_consistent(registry)

    def test_a_request_whose_people_are_gone_meanwhile_is_completed(
        self, registry: Registry
    ) -> None:
        late = Request(("person 1",))
        registry.requests.accept([late])
        with overlooked_request(registry, late.request):
            registry.forget(["person 1"])
        registry.requests.apply()
        receipt = registry.requests.receipt(late.request)
        assert receipt is not None and json.loads(receipt)["certificates"] == {}
        require_consistent(registry)


class TestIdempotence:
    def test_the_same_request_gets_the_same_receipt(self, registry: Registry) -> None:
        first = registry.forget(["person 7", "person 8"], A_REQUEST)
        assert registry.forget(["person 8", "person 7"], A_REQUEST) == first
        assert registry.status().n_requests == 1

    def test_the_same_id_for_other_people_is_refused(self, registry: Registry) -> None:
        registry.forget(["person 7"], A_REQUEST)
        with pytest.raises(InvalidInput, match="asked for something else"):
            registry.forget(["person 8"], A_REQUEST)
        assert registry.requests.find_models(["person 8"])["person 8"]

    def test_rotating_the_key_of_tags_changes_nothing_for_anybody(
        self, registry: Registry
    ) -> None:
        receipt = registry.forget(["person 7"], A_REQUEST)
        registry.keys.rotate_tag_key()
        assert registry.forget(["person 7"], A_REQUEST) == receipt
        registry.forget(["person 8"])
        X, y, owners = data()
        registry.fit("third", estimator(), X[20:40], y[20:40], subjects=owners[20:40])
        assert registry.requests.find_models(["person 12"]) == {
            "person 12": ("all", "half", "third")
        }
        registry.forget(["person 12"])
        assert registry.requests.find_models(["person 12"]) == {"person 12": ()}

    def test_concurrent_duplicates_are_one_request(
        self, tmp_path: Path, registry: Registry
    ) -> None:
        found: list[str] = []

        def send() -> None:
            with Registry.open(tmp_path / "registry") as other:
                found.append(other.forget(["person 9"], A_REQUEST))

        threads = [Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4 and len(set(found)) == 1
        assert registry.status().n_requests == 1
        require_consistent(registry)


class TestRefusals:
    @pytest.mark.parametrize(
        "subjects",
        [[], [""], ["  "], ["a\nb"], ["x" * 1025], ["x" * 10_000_000], ["\ud800"]],
        ids=["nobody", "empty", "blank", "newline", "long", "huge", "surrogate"],
    )
    def test_malformed_ids(self, registry: Registry, subjects: list[str]) -> None:
        with pytest.raises(InvalidInput) as refusal:
            registry.forget(subjects)
        assert len(str(refusal.value)) < 300
        assert registry.status().n_requests == 0

    @pytest.mark.parametrize(
        "subject", ["nobody", "' OR 1=1 --", "person 3'; DROP TABLE rows; --", "%"]
    )
    def test_strangers(self, registry: Registry, subject: str) -> None:
        with pytest.raises(UnknownSubject, match="nothing was accepted"):
            registry.forget(["person 3", subject])
        assert registry.requests.find_models(["person 3"])["person 3"] == (
            "all",
            "half",
        )
        assert registry.status().n_requests == 0

    @pytest.mark.parametrize("request_id", ["", "ticket 12", "A" * 32, "0" * 33, 7])
    def test_ids_of_requests(self, registry: Registry, request_id: object) -> None:
        with pytest.raises(InvalidInput, match="32 random hexadecimal digits"):
            registry.forget(["person 3"], request_id)  # type: ignore[arg-type]

    def test_requests_that_were_never_sent(self, registry: Registry) -> None:
        for look in (registry.requests.receipt, registry.requests.status):
            with pytest.raises(UnknownRequest, match="never accepted"):
                look(A_REQUEST)

    def test_a_name_that_is_taken(self, registry: Registry) -> None:
        with pytest.raises(InvalidInput, match="already"):
            registry.fit("all", estimator(), **by_name(data()))

    @pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "Jan\u00e9"])
    def test_names_that_the_ledger_does_not_take(
        self, registry: Registry, name: str
    ) -> None:
        with pytest.raises(InvalidInput, match="model"):
            registry.fit(name, estimator(), **by_name(data()))

    def test_models_that_are_not_there(self, registry: Registry) -> None:
        calls: list[Callable[[str], object]] = [
            registry.model,
            registry.models.record,
            registry.models.case,
            lambda name: registry.models.ship(name, "x.safetensors"),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match="the models are all, half"):
                call("other")

    def test_a_folder_without_a_registry(self, tmp_path: Path) -> None:
        with pytest.raises(NoRegistry, match="expunge init"):
            Registry.open(tmp_path)

    def test_a_damaged_settings_file(self, tmp_path: Path) -> None:
        registry_at(tmp_path / "registry").close()
        (tmp_path / "registry" / "registry.json").write_text("{")
        with pytest.raises(StoreFailed, match="damaged"):
            Registry.open(tmp_path / "registry")

    def test_another_database_for_the_same_folder(self, tmp_path: Path) -> None:
        registry_at(tmp_path / "registry").close()
        with pytest.raises(InvalidInput, match="another database"):
            Registry.create(tmp_path / "registry", url="postgresql://nowhere/x")

    def test_a_model_that_keeps_no_data(self, registry: Registry) -> None:
        with pytest.raises(InvalidInput, match="keep_data"):
            registry.fit("third", estimator(keep_data=False), **by_name(data()))
        assert len(registry.status().models) == 2


class TestReleases:
    def test_a_release_predicts_and_refuses_to_forget(self, registry: Registry) -> None:
        registry.forget(["person 3"])
        model = registry.model("all")
        assert model.certificate_.n_subjects_removed == 1
        assert model.predict(data()[0]).shape == (120,)
        with pytest.raises(ExpungeError, match="only the release"):
            model.forget(["person 4"])

    def test_earlier_releases_are_superseded_and_emptied(
        self, registry: Registry
    ) -> None:
        registry.forget(["person 3"])
        registry.forget(["person 4"])
        releases = releases_of(registry)
        assert len(releases) == 6
        for one in releases:
            assert (one.superseded is None) == one.has_content == (one.number == 3)
        chain = [
            e for e in registry.ledger.entries() if isinstance(e, ReleasesSuperseded)
        ]
        first = next(
            e for e in registry.ledger.entries() if isinstance(e, ModelRegistered)
        )
        assert first.certificate in chain[0].certificates

    def test_what_left_and_is_superseded_is_listed_until_withdrawn(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        left = registry.models.ship("all", tmp_path / "model.safetensors")
        assert (left.number, left.superseded) == (1, None)
        assert registry.status().outstanding == ()
        receipt = registry.forget(["person 3"])
        out = registry.status().outstanding
        assert [(one.model, one.number) for one in out] == [("all", 1)]
        assert out[0].shipped[0][1] == "model.safetensors"
        verdict = check_receipt(receipt, registry.keys.public_pem())
        assert any("superseded" in text for text in verdict.not_covered)
        assert any("backups" in text for text in verdict.not_covered)
        registry.models.withdraw("all", 1)
        assert registry.status().outstanding == ()
        *_, last = registry.ledger.entries()
        assert isinstance(last, ReleaseWithdrawn)
        assert (last.model, last.certificate) == ("all", left.digest)
        require_consistent(registry)
        with pytest.raises(InvalidInput, match="no release 9"):
            registry.models.withdraw("all", 9)
        with pytest.raises(InvalidInput, match="never shipped"):
            registry.models.withdraw("all", 2)

    def test_what_leaves_again_is_out_there_again(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        for name in ("one.safetensors", "two.safetensors"):
            registry.models.ship("all", tmp_path / name)
            registry.models.withdraw("all", 1)
        registry.models.ship("all", tmp_path / "three.safetensors")
        registry.forget(["person 3"])
        (out,) = registry.status().outstanding
        assert [name for _, name in out.shipped][-1] == "three.safetensors"

    def test_a_suffix_that_cannot_be_written_records_nothing(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        with pytest.raises(InvalidInput, match="onnx"):
            registry.models.ship("all", tmp_path / "model.pickle")
        registry.forget(["person 3"])
        assert registry.status().outstanding == ()

    def test_an_audit_finds_what_the_release_was_made_from(
        self, registry: Registry
    ) -> None:
        from expunge import verify

        registry.forget(["person 3"])
        certificate = registry.model("all").certificate_
        assert verify(certificate, registry.models.record("all")).valid
        case = registry.models.case("all")
        assert len(case.rows) == 118
        assert case.objective.alpha == pytest.approx(0.05)


class TestKindsOfModels:
    def test_tuned_models_choose_again(self, tmp_path: Path) -> None:
        X, y, owners = data()
        tuned = TunedClassifier(
            alphas=(1.0, 0.1, 0.01), budget=BUDGET, folds=3, fold_key="key"
        )
        same = TunedClassifier(
            alphas=(1.0, 0.1, 0.01), budget=BUDGET, folds=3, fold_key="key"
        ).fit(X, y, subjects=owners)
        with Registry.create(tmp_path / "registry") as registry:
            registry.fit("tuned", tuned, X, y, subjects=owners)
            for some in (["person 3"], ["person 7", "person 8"]):
                registry.forget(some)
                same.forget(some)
            held, kept = private_model_of(registry, "tuned"), private_model(same)
            assert registry.model("tuned").certificate_.selection == "certified"
            np.testing.assert_allclose(
                held.answer.draft.theta, kept.answer.draft.theta, atol=1e-12
            )
            require_consistent(registry)

    @pytest.mark.parametrize(
        ("kind", "n_matrices"), [(SoftmaxRegression, 9), (LogisticRegression, 3)]
    )
    def test_several_classes(self, kind: Any, n_matrices: int, tmp_path: Path) -> None:
        X, _, owners = data()
        y = np.array(["a", "b", "c"])[np.argmax(X[:, :3], axis=1)]
        model = kind(alpha=0.1, budget=replace(BUDGET, sigma=50.0))
        with Registry.create(tmp_path / "registry") as registry:
            registry.fit("three", model, X, y, subjects=owners)
            registry.forget(["person 3"])
            assert set(registry.model("three").predict(X)) <= {"a", "b", "c"}
            state: Any = private_model_of(registry, "three").answer.state
            hessian = state.sums.hessian
            assert hessian.n_numbers == n_matrices * (X.shape[1] + 1) ** 2

    def test_answers_that_need_the_rows_get_them(self, tmp_path: Path) -> None:
        """A narrow contract: polishing looks at all rows that are left."""
        X, y, owners = data()
        narrow = estimator(budget=Budget(sigma=0.02))
        with Registry.create(tmp_path / "registry") as registry:
            registry.fit("narrow", narrow, X, y, subjects=owners)
            seen = set()
            for start in range(0, 40, 8):
                registry.forget([f"person {i}" for i in range(start, start + 8)])
                seen |= set(registry.models.record("narrow").decisions)
            assert any("polished" in word or "rows" in word for word in seen)
            oracle = retrained([f"person {i}" for i in range(40)])
            radius = registry.models.record("narrow").radius
            assert radius is not None
            gap = np.linalg.norm(
                private_model_of(registry, "narrow").answer.draft.theta - oracle
            )
            assert gap <= radius

    def test_a_mechanism_that_refuses_gives_way_to_retraining(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The state in memory is overwritten by then, and the one on disk is not."""
        registry.forget(["person 1"])

        def refuse(*args: object, **settings: object) -> None:
            raise NotConverged("it did not; try another")

        monkeypatch.setattr(Newton, "step", refuse)
        registry.forget(["person 2"])
        assert registry.models.record("all").decisions == ("retrained",)
        oracle = retrained(["person 1", "person 2"])
        gap = np.linalg.norm(theta(registry, "all") - oracle)
        assert gap <= private_model_of(registry, "all").answer.radius.value
        require_consistent(registry)

    def test_replacing_a_model_deletes_its_people(self, registry: Registry) -> None:
        X, y, owners = data()
        registry.models.refit("half", estimator(), X[80:], y[80:], subjects=owners[80:])
        assert registry.requests.find_models(["person 0"]) == {"person 0": ("all",)}
        registry.forget(["person 50"])
        require_consistent(registry)


def test_keys_rotate_and_old_receipts_are_valid(
    registry: Registry, tmp_path: Path
) -> None:
    before = registry.forget(["person 3"])
    registry.keys.rotate_signing_key()
    after = registry.forget(["person 4"])
    pem = (tmp_path / "registry" / "public.pem").read_text()
    assert pem == registry.keys.public_pem()
    for receipt in (before, after):
        assert check_receipt(receipt, pem).valid
    keys = sorted(path.name for path in (tmp_path / "registry/keys").iterdir())
    assert keys == ["outbox", "sealing", "signing-1.pem", "tags-0"]
    require_consistent(registry)


def test_a_registry_is_found_again(tmp_path: Path, registry_url: str | None) -> None:
    folder = tmp_path / "registry"
    with registry_at(folder, registry_url) as first:
        first.forget(["person 3"])
        before = theta(first, "all")
    with Registry.create(folder, url=registry_url) as again:
        again.forget(["person 4"])
    with Registry.open(folder) as last:
        assert last.status().n_completed == 2
        assert private_model_of(last, "all").n_removed == 4
        assert not np.array_equal(theta(last, "all"), before)
        require_consistent(last)
