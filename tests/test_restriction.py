# SPDX-License-Identifier: Apache-2.0
"""Restricted rows: no release contains them, and they are sealed apart until lifted."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from expunge.exceptions import InvalidInput, ScheduleExhausted
from expunge.ledger import HoldEnded
from expunge.ledger.documents import day_of
from expunge.registry import (
    ForgottenInData,
    NewRows,
    Registry,
    Request,
    rebuild_journal,
)
from expunge.rights.standing import Right
from tests.registries import (
    BUDGET,
    HELD,
    IN_USE,
    RESTRICTED,
    JournalIncomplete,
    ask,
    by_name,
    count_releases,
    count_rows,
    data,
    data_without,
    estimator,
    everything,
    features_of,
    found,
    hold,
    keys_apart,
    keys_in_use,
    open_apart,
    opens_apart,
    registry_at,
    require_consistent,
    require_erased,
    require_fitted_to,
    require_retrained,
    retrained,
    rows_of,
    said_of_rows_apart,
    sealed_rows,
    set_clock,
    today,
    traces_of_rows,
    where,
)

PERSON, OTHER = "person 3", "person 5"
UNTIL = "2999-12-31"


class TestRestrict:
    def test_models_are_served_without_the_person(self, registry: Registry) -> None:
        receipt = ask(registry, "restrict", PERSON)
        assert receipt.entry.outcome == "done" and not receipt.entry.reason
        assert {*receipt.entry.certificates} == {"all", "half"}
        assert registry.requests.find_models([PERSON]) == {PERSON: ()}
        assert where(registry, PERSON) == RESTRICTED
        require_retrained(registry, PERSON)
        for model in registry.status().models:
            assert model.certificate.digest() == receipt.entry.certificates[model.name]
            assert model.certificate.n_subjects_removed == 1
        require_consistent(registry)

    def test_rows_are_sealed_under_keys_of_their_own(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON)
        of_model, own = keys_in_use(registry, "all"), keys_apart(registry, "all")
        for key in of_model:
            assert not opens_apart(registry, PERSON, "all", key=key)
        assert any(opens_apart(registry, PERSON, "all", key=key) for key in own)
        assert own.isdisjoint(of_model)
        assert np.array_equal(open_apart(registry, PERSON), features_of(PERSON))

    def test_again_changes_nothing(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON)
        before = count_releases(registry)
        there = sealed_rows(registry, PERSON, "all", apart=True)
        receipt = ask(registry, "restrict", PERSON)
        assert receipt.entry.outcome == "done" and not receipt.entry.certificates
        assert count_releases(registry) == before
        assert sealed_rows(registry, PERSON, "all", apart=True) == there != []

    def test_a_fit_leaves_them_out_and_leaves_what_is_sealed(
        self, registry: Registry
    ) -> None:
        ask(registry, "restrict", PERSON)
        there = sealed_rows(registry, PERSON, "all", apart=True)
        with pytest.raises(ForgottenInData):
            registry.models.refit("all", estimator(), **by_name(data()))
        left = registry.models.refit(
            "all", estimator(), **by_name(data()), without_forgotten=True
        )
        assert (left.n_rows, left.n_people) == (2, 1)
        assert where(registry, PERSON) == RESTRICTED
        assert sealed_rows(registry, PERSON, "all", apart=True) == there != []
        with pytest.raises(ForgottenInData):
            X, y, owners = data()
            registry.add("all", X[:8], y[:8], subjects=owners[:8])

    def test_the_model_may_go_and_the_rows_stay(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON)
        registry.models.remove("half")
        assert where(registry, PERSON) == RESTRICTED
        assert ask(registry, "erase", PERSON).entry.outcome == "done"
        assert where(registry, PERSON) == {}
        require_consistent(registry)

    def test_others_are_answered_beside_it(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON, "person 40")
        ask(registry, "erase", OTHER)
        assert where(registry, "person 40") == {"all": "restricted"}
        require_retrained(registry, PERSON, "person 40", OTHER)
        status = registry.status()
        assert [one.name for one in status.models] == ["all", "half"]

    def test_survives_that_the_registry_is_opened_again(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        ask(registry, "restrict", PERSON)
        with Registry.open(tmp_path / "registry") as again:
            assert where(again, PERSON) == RESTRICTED
            ask(again, "erase", PERSON)
            require_consistent(again)
        assert where(registry, PERSON) == {}

    @pytest.mark.parametrize("right", ["restrict", "hold"])
    def test_a_lost_journal_brings_nobody_into_a_fit(
        self, registry: Registry, tmp_path: Path, right: Right
    ) -> None:
        """The store knows whose rows are sealed apart, if the journal does not."""
        if right == "hold":
            hold(registry, PERSON, until=UNTIL)
        else:
            ask(registry, right, PERSON)
        registry.close()
        (tmp_path / "registry/journal").unlink()
        assert rebuild_journal(tmp_path / "registry") == 1
        with Registry.open(tmp_path / "registry") as again:
            with pytest.warns(JournalIncomplete), pytest.raises(ForgottenInData):
                again.models.refit("all", estimator(), **by_name(data()))

    def test_a_tag_of_an_older_key_is_found(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON, OTHER)
        registry.keys.rotate_tag_key()
        with pytest.raises(ForgottenInData):
            registry.models.refit("half", estimator(), **by_name(data()))
        ask(registry, "lift", PERSON)
        ask(registry, "erase", OTHER)
        assert (where(registry, PERSON), where(registry, OTHER)) == (IN_USE, {})
        require_retrained(registry, OTHER)


class TestErasedLater:
    @pytest.mark.parametrize("right", ["erase", "object"])
    def test_restricted_rows_go_too(self, registry: Registry, right: Right) -> None:
        ask(registry, "restrict", PERSON)
        keys, releases = keys_apart(registry, "all"), count_releases(registry)
        receipt = ask(registry, right, PERSON)
        assert receipt.entry.outcome == "done" and not receipt.entry.certificates
        assert receipt.handling.destroyed == ("rows", "keys of rows")
        assert where(registry, PERSON) == {} and count_releases(registry) == releases
        assert not said_of_rows_apart(registry)
        assert not count_rows(registry, "all", apart=True)
        assert not count_rows(registry, "half", apart=True)
        # No copy of the rows can be opened.
        assert keys and keys_apart(registry, "all").isdisjoint(keys)

    def test_no_bytes_are_left(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"
        with registry_at(folder) as registry:
            ask(registry, "restrict", PERSON)
            assert not found(traces_of_rows(PERSON), everything(folder))
            erase = partial(ask, registry, "erase", PERSON)
            require_erased(registry, folder, person=PERSON, erase=erase)

    def test_the_other_restricted_person_stays(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON, OTHER)
        ask(registry, "erase", PERSON)
        assert where(registry, OTHER) == RESTRICTED
        assert np.array_equal(open_apart(registry, OTHER), features_of(OTHER))


class TestLift:
    def test_models_are_as_if_nothing_had_happened(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON, OTHER)
        receipt = ask(registry, "lift", PERSON)
        assert receipt.entry.outcome == "done"
        assert {*receipt.entry.certificates} == {"all", "half"}
        assert where(registry, PERSON) == IN_USE
        assert where(registry, OTHER) == RESTRICTED
        require_retrained(registry, OTHER)
        ask(registry, "lift", OTHER)
        require_retrained(registry)
        ask(registry, "erase", PERSON)
        require_retrained(registry, PERSON)
        require_consistent(registry)

    def test_at_once_makes_no_release(self, registry: Registry) -> None:
        before = count_releases(registry)
        for right in ("restrict", "lift"):
            registry.requests.accept([Request((PERSON,), right=right)])
        registry.requests.apply()
        assert count_releases(registry) == before
        assert where(registry, PERSON) == IN_USE
        registry.models.refit("half", estimator(), **by_name(data()))

    @pytest.mark.parametrize("attempt", range(4))  # ids are random
    def test_of_one_call_comes_in_the_order_given(
        self, registry: Registry, attempt: int
    ) -> None:
        rights: tuple[Right, ...] = ("restrict", "lift", "erase", "lift")
        sent = [Request((PERSON,), right=right) for right in rights]
        sent.insert(attempt, Request((OTHER,)))
        registry.requests.accept(sent)
        registry.requests.apply()
        found = [
            registry.requests.status(one.request).outcome
            for one in sent
            if one.subjects == (PERSON,)
        ]
        assert found == ["done", "done", "done", "nothing found"]

    @pytest.mark.parametrize("ahead", [0, 2])
    def test_requests_of_one_millisecond_keep_their_order(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch, ahead: int
    ) -> None:
        """Also after one that came when the clock was ahead."""
        set_clock(monkeypatch, today() + timedelta(days=ahead))
        registry.requests.accept([Request((OTHER,), right="restrict")])
        set_clock(monkeypatch, today())  # it stands still
        rights: tuple[Right, ...] = ("restrict", "lift", "restrict", "lift")
        asked = [
            Request((PERSON,), right=right, request=digit * 32)
            for right, digit in zip(rights, "fe10", strict=True)
        ]
        for one in asked:
            registry.requests.accept([one])
        registry.requests.apply()
        for one in asked:
            assert registry.requests.status(one.request).outcome == "done"

    def test_a_clock_that_was_ahead_delays_no_request(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_clock(monkeypatch, today() + timedelta(days=2))
        registry.requests.accept([Request((OTHER,), right="restrict")])
        set_clock(monkeypatch, today() + timedelta(days=1))
        (status,) = registry.requests.accept([Request((PERSON,), right="restrict")])
        assert day_of(status.accepted) == str(today() + timedelta(days=1))

    def test_puts_people_into_fits_again(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON)
        ask(registry, "lift", PERSON)
        registry.models.refit("half", estimator(), **by_name(data()))
        assert where(registry, PERSON) == IN_USE

    def test_brings_nobody_back_who_was_erased(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON)
        ask(registry, "erase", PERSON)
        asked = Request((PERSON,), right="lift")
        registry.requests.accept([asked], strangers=True)
        registry.requests.apply()
        assert registry.requests.status(asked.request).outcome == "nothing found"
        with pytest.raises(ForgottenInData):
            registry.models.refit("all", estimator(), **by_name(data()))
        assert registry.requests.find_forgotten([PERSON]) == (PERSON,)
        registry.requests.readmit([PERSON])
        registry.models.refit("all", estimator(), **by_name(data()))

    def test_of_nothing_restricted_is_refused(self, registry: Registry) -> None:
        receipt = ask(registry, "lift", PERSON)
        said = receipt.entry.outcome, receipt.entry.reason
        assert said == ("refused", "not-restricted")
        assert not receipt.handling.destroyed and not receipt.entry.certificates
        assert where(registry, PERSON) == IN_USE

    def test_after_another_fit_destroys_what_it_cannot_put_back(
        self, registry: Registry
    ) -> None:
        ask(registry, "restrict", PERSON)
        registry.models.refit("all", estimator(), **by_name(data_without(PERSON)))
        receipt = ask(registry, "lift", PERSON)
        said = receipt.entry.outcome, receipt.entry.reason
        assert said == ("partly", "fitted-again")
        assert {*receipt.entry.certificates} == {"half"}
        assert where(registry, PERSON) == {"half": "in use"}
        X, y, _ = data()
        mine = rows_of(PERSON)
        registry.add("all", X[mine], y[mine], subjects=[PERSON] * len(mine))
        require_retrained(registry)

    def test_into_a_model_that_is_gone(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON)
        registry.models.remove("half")
        receipt = ask(registry, "lift", PERSON)
        said = receipt.entry.outcome, receipt.entry.reason
        assert said == ("partly", "fitted-again")
        assert where(registry, PERSON) == {"all": "in use"}
        require_consistent(registry)

    def test_rows_that_came_back_are_read_again(self, registry: Registry) -> None:
        """They have other places now, and a pass over all rows finds them there."""
        ask(registry, "restrict", PERSON, OTHER)
        ask(registry, "lift", PERSON)
        registry.models.reanchor("all")
        require_retrained(registry, OTHER)
        ask(registry, "erase", PERSON)
        registry.models.reanchor("all")
        require_retrained(registry, PERSON, OTHER)

    def test_waits_for_a_budget_and_holds_up_what_comes_later(
        self, tmp_path: Path
    ) -> None:
        with Registry.create(tmp_path / "registry") as registry:
            spent = estimator(budget=replace(BUDGET, releases=2))
            registry.fit("model", spent, **by_name(data()))
            ask(registry, "restrict", PERSON)
            lift, again = (
                Request((PERSON,), right="lift"),
                Request((PERSON,), right="restrict"),
            )
            registry.requests.accept([lift])
            registry.requests.accept([again])
            with pytest.raises(ScheduleExhausted):
                registry.requests.apply()
            for one in (lift, again):
                assert registry.requests.status(one.request).stage == "accepted"
            assert where(registry, PERSON) == {"model": "restricted"}
            registry.requests.accept([Request((PERSON,))])  # which waits for nothing
            with pytest.raises(ScheduleExhausted):
                registry.requests.apply()
            assert where(registry, PERSON) == {}
            registry.requests.apply()
            for one in (lift, again):
                status = registry.requests.status(one.request)
                assert status.outcome == "nothing found"


class TestRectify:
    def test_a_model_is_as_if_fitted_to_the_new_rows(self, registry: Registry) -> None:
        X, y, _ = data()
        mine = rows_of(PERSON)
        new = NewRows(X[mine] + 1.0, 1 - y[mine])
        receipt = ask(registry, "rectify", PERSON, rows={"all": new, "half": new})
        assert receipt.entry.outcome == "done"
        assert {*receipt.entry.certificates} == {"all", "half"}
        X[mine], y[mine] = new.X, new.y
        require_fitted_to(registry, X, y)
        ask(registry, "erase", PERSON)
        require_retrained(registry, PERSON)
        require_consistent(registry)

    def test_of_restricted_rows_stays_sealed(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON)
        X, y, _ = data()
        mine = rows_of(PERSON)
        releases = count_releases(registry)
        receipt = ask(
            registry, "rectify", PERSON, rows={"all": NewRows(X[mine] + 1.0, y[mine])}
        )
        assert receipt.entry.outcome == "done" and count_releases(registry) == releases
        assert receipt.handling.retained == "restriction"
        assert where(registry, PERSON) == RESTRICTED
        now = open_apart(registry, PERSON)
        assert np.array_equal(now, features_of(PERSON) + 1.0)
        require_retrained(registry, PERSON)
        ask(registry, "lift", PERSON)
        X[mine] += 1.0
        require_fitted_to(registry, X, y)

    def test_needs_rows_and_only_it_has_them(self, registry: Registry) -> None:
        X, y, _ = data()
        new = {"all": NewRows(X[:1], y[:1])}
        for wrong in (
            Request((PERSON,), right="rectify"),
            Request((PERSON,), rows=new),
            Request((PERSON,), right="restrict", rows=new),
        ):
            with pytest.raises(InvalidInput, match="rectification needs new rows"):
                registry.requests.accept([wrong])
        with pytest.raises(InvalidInput):
            asked = Request((PERSON, OTHER), right="rectify", rows=new)
            registry.requests.accept([asked])
        assert registry.status().n_requests == 0


def test_a_hold_of_restricted_rows_keeps_them(registry: Registry) -> None:
    ask(registry, "restrict", PERSON)
    releases = count_releases(registry)
    receipt = hold(registry, PERSON, until=UNTIL)
    assert receipt.entry.outcome == "done" and count_releases(registry) == releases
    assert receipt.handling.retained_until == UNTIL
    assert where(registry, PERSON) == HELD
    refused = ask(registry, "lift", PERSON)
    assert (refused.entry.outcome, refused.entry.reason) == ("refused", "hold")
    assert not [one for one in registry.ledger.entries() if isinstance(one, HoldEnded)]
    require_retrained(registry, PERSON)


def test_retraining_tells_people_apart() -> None:
    assert np.linalg.norm(retrained([]) - retrained([PERSON])) > 1e-4
