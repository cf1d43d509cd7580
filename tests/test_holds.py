# SPDX-License-Identifier: Apache-2.0
"""Held rows: kept sealed for a stated reason, and gone on the day that this ends."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge.exceptions import InvalidInput
from expunge.ledger import HoldEnded, RequestCompleted
from expunge.registry import ForgottenInData, NewRows, Registry, Request
from expunge.rights.standing import FOR_HOLDS, Right
from tests.registries import (
    HELD,
    IN_USE,
    ask,
    by_name,
    count_releases,
    crash_at,
    data,
    data_without,
    estimator,
    features_of,
    hold,
    keys_apart,
    keys_to_rows,
    open_apart,
    registry_at,
    require_consistent,
    require_erased,
    require_retrained,
    rows_of,
    said_of_rows_apart,
    set_clock,
    tags_of,
    today,
    where,
)

PERSON, OTHER = "person 3", "person 5"
UNTIL = today() + timedelta(days=20)  # so soon that the clock is believed
LATER = UNTIL + timedelta(days=1)


def ended(registry: Registry) -> list[str]:
    """Return the requests whose hold ended, by the ledger."""
    return [
        one.request for one in registry.ledger.entries() if isinstance(one, HoldEnded)
    ]


class TestHold:
    def test_models_forget_and_the_rows_stay(self, registry: Registry) -> None:
        receipt = hold(registry, PERSON, until=str(UNTIL))
        assert receipt.entry.outcome == "done"
        assert {*receipt.entry.certificates} == {"all", "half"}
        said = receipt.handling.retained, receipt.handling.retained_until
        assert said == ("legal-claims", str(UNTIL))
        assert "rows" not in receipt.handling.destroyed
        assert where(registry, PERSON) == HELD
        assert np.array_equal(open_apart(registry, PERSON), features_of(PERSON))
        assert registry.requests.find_models([PERSON]) == {PERSON: ()}
        require_retrained(registry, PERSON)
        require_consistent(registry)

    def test_a_fit_leaves_them_out(self, registry: Registry) -> None:
        hold(registry, PERSON, until=str(UNTIL))
        with pytest.raises(ForgottenInData):
            registry.models.refit("all", estimator(), **by_name(data()))
        registry.models.refit("all", estimator(), **by_name(data_without(PERSON)))
        registry.models.remove("half")
        assert where(registry, PERSON) == HELD
        assert np.array_equal(open_apart(registry, PERSON), features_of(PERSON))

    @pytest.mark.parametrize("right", ["erase", "object"])
    def test_an_erasure_is_answered_in_part(
        self, registry: Registry, right: Right
    ) -> None:
        hold(registry, PERSON, until=str(UNTIL))
        before = count_releases(registry)
        receipt = ask(registry, right, PERSON)
        assert (receipt.entry.outcome, receipt.entry.reason) == ("partly", "hold")
        assert receipt.entry.right == right and not receipt.entry.certificates
        said = receipt.handling.retained, receipt.handling.retained_until
        assert said == ("legal-claims", str(UNTIL))
        assert not receipt.handling.destroyed and not receipt.handling.backups_until
        assert where(registry, PERSON) == HELD and count_releases(registry) == before

    def test_an_erasure_of_rows_that_came_later(self, registry: Registry) -> None:
        """Held from one model; another was fitted since they were readmitted."""
        hold(registry, PERSON, until=str(UNTIL))
        registry.requests.readmit([PERSON])
        registry.fit("new", estimator(), **by_name(data()))
        receipt = ask(registry, "erase", PERSON)
        assert (receipt.entry.outcome, receipt.entry.reason) == ("partly", "hold")
        assert {*receipt.entry.certificates} == {"new"}
        assert receipt.handling.destroyed[:2] == ("rows", "keys of rows")
        assert where(registry, PERSON) == HELD

    @pytest.mark.parametrize("right", ["lift", "rectify"])
    def test_evidence_does_not_change(self, registry: Registry, right: Right) -> None:
        hold(registry, PERSON, until=str(UNTIL))
        X, y, _ = data()
        mine = rows_of(PERSON)
        new = {"rows": {"all": NewRows(X[mine] + 1, y[mine])}}
        details: dict[str, Any] = new if right == "rectify" else {}
        receipt = ask(registry, right, PERSON, **details)
        assert (receipt.entry.outcome, receipt.entry.reason) == ("refused", "hold")
        assert not receipt.handling.destroyed and not receipt.entry.certificates
        assert np.array_equal(open_apart(registry, PERSON), features_of(PERSON))

    def test_to_restrict_what_is_held_is_done(self, registry: Registry) -> None:
        hold(registry, PERSON, until=str(UNTIL))
        receipt = ask(registry, "restrict", PERSON)
        assert receipt.entry.outcome == "done" and not receipt.entry.certificates
        assert where(registry, PERSON) == HELD

    def test_again_sets_another_end(self, registry: Registry) -> None:
        first = hold(registry, PERSON, until=str(UNTIL))
        later = UNTIL + timedelta(days=400)
        second = hold(registry, PERSON, until=str(later))
        assert second.handling.retained_until == str(later)
        lines = said_of_rows_apart(registry)
        assert {line.until for line in lines} == {str(later)}
        assert first.entry.request not in {line.request for line in lines}

    @pytest.mark.parametrize(
        ("details", "said"),
        [
            ({}, "give one of legal-claims"),
            ({"reason": "because", "until": str(UNTIL)}, "give one of legal-claims"),
            ({"reason": "unfounded", "until": str(UNTIL)}, "give one of"),
            ({"reason": "research"}, "is not a day"),
            ({"reason": "research", "until": "soon"}, "is not a day"),
            (
                {"reason": "research", "until": str(today() - timedelta(days=1))},
                "which is past",
            ),
        ],
    )
    def test_needs_a_reason_and_an_end(
        self, tmp_path: Path, details: dict[str, Any], said: str
    ) -> None:
        with registry_at(tmp_path / "registry") as registry:
            with pytest.raises(InvalidInput, match=said):
                registry.requests.accept([Request((PERSON,), right="hold", **details)])
            assert registry.status().n_requests == 0

    @pytest.mark.parametrize("reason", FOR_HOLDS)
    def test_reasons(self, tmp_path: Path, reason: str) -> None:
        with registry_at(tmp_path / "registry") as registry:
            receipt = ask(registry, "hold", PERSON, reason=reason, until=str(UNTIL))
            assert receipt.handling.retained == reason

    @pytest.mark.parametrize("right", ["erase", "restrict", "lift", "end-hold"])
    def test_others_have_neither(self, tmp_path: Path, right: Right) -> None:
        with registry_at(tmp_path / "registry") as registry:
            for details in ({"reason": "research"}, {"until": str(UNTIL)}):
                with pytest.raises(InvalidInput, match="only a hold has them"):
                    asked = Request((PERSON,), right=right, **details)  # type: ignore[arg-type]
                    registry.requests.accept([asked])


class TestEndHold:
    def test_destroys_what_was_held(self, registry: Registry) -> None:
        hold(registry, PERSON, OTHER, until=str(UNTIL))
        before = count_releases(registry)
        keys, others = (
            keys_apart(registry, "all"),
            keys_to_rows(registry, OTHER, "all", apart=True),
        )
        receipt = ask(registry, "end-hold", PERSON)
        assert receipt.entry.outcome == "done" and not receipt.entry.certificates
        assert receipt.handling.destroyed == ("rows", "keys of rows")
        assert not receipt.handling.retained
        assert where(registry, PERSON) == {} and where(registry, OTHER) == HELD
        assert count_releases(registry) == before
        assert len(keys) == 2 and keys_apart(registry, "all") == {*others} < keys
        assert np.array_equal(open_apart(registry, OTHER), features_of(OTHER))
        assert not ended(registry)  # by its day, that is: the request says it
        require_consistent(registry)

    def test_of_nothing_held_is_refused(self, registry: Registry) -> None:
        receipt = ask(registry, "end-hold", PERSON)
        assert (receipt.entry.outcome, receipt.entry.reason) == ("refused", "not-held")
        assert where(registry, PERSON) == IN_USE

    def test_keeps_people_out_of_fits(self, registry: Registry) -> None:
        hold(registry, PERSON, until=str(UNTIL))
        ask(registry, "end-hold", PERSON)
        with pytest.raises(ForgottenInData):
            registry.models.refit("all", estimator(), **by_name(data()))


class TestEndByItself:
    def test_on_the_day_after(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = hold(registry, PERSON, until=str(UNTIL))
        second = hold(registry, OTHER, until=str(UNTIL + timedelta(days=1)))
        set_clock(monkeypatch, UNTIL)
        registry.requests.apply()
        assert where(registry, PERSON) == HELD and not ended(registry)
        keys = keys_apart(registry, "all")
        set_clock(monkeypatch, LATER)
        registry.requests.apply()
        assert where(registry, PERSON) == {} and where(registry, OTHER) == HELD
        assert ended(registry) == [first.entry.request]
        # Each has a key of its own, and one is left.
        assert len(keys) == 2 and len(keys & keys_apart(registry, "all")) == 1
        assert np.array_equal(open_apart(registry, OTHER), features_of(OTHER))
        registry.requests.apply()
        assert ended(registry) == [first.entry.request]  # said once
        set_clock(monkeypatch, LATER + timedelta(days=365))
        registry.confirm_clock()
        registry.forget(["person 9"])
        assert ended(registry) == [first.entry.request, second.entry.request]
        require_retrained(registry, PERSON, OTHER, "person 9")
        require_consistent(registry)

    def test_before_anything_else_is_applied(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hold(registry, PERSON, until=str(UNTIL))
        asked = Request((PERSON,))
        registry.requests.accept([asked])
        set_clock(monkeypatch, LATER)
        registry.requests.apply()
        assert registry.requests.status(asked.request).outcome == "nothing found"
        kinds = [
            type(one)
            for one in registry.ledger.entries()
            if isinstance(one, HoldEnded | RequestCompleted)
        ]
        assert kinds == [RequestCompleted, HoldEnded, RequestCompleted]

    def test_leaves_no_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "registry"
        with registry_at(folder) as registry:
            hold(registry, PERSON, until=str(UNTIL))

            def end() -> None:
                set_clock(monkeypatch, LATER)
                registry.requests.apply()

            require_erased(registry, folder, person=PERSON, erase=end)

    def test_is_stated_after_a_crash(
        self, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rows are deleted, and the process ends before the ledger says so."""
        receipt = hold(registry, PERSON, until=str(UNTIL))
        keys = keys_apart(registry, "all")
        set_clock(monkeypatch, LATER)
        with crash_at("finishing", nth=2):
            registry.requests.apply()
        registry.close()
        with Registry.open(tmp_path / "registry") as again:
            assert where(again, PERSON) == {} and not ended(again)
            again.requests.apply()
            assert ended(again) == [receipt.entry.request]
            assert keys and keys_apart(again, "all").isdisjoint(keys)
            require_consistent(again)

    def test_names_nobody(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        receipt = hold(registry, PERSON, until=str(UNTIL))
        set_clock(monkeypatch, LATER)
        registry.requests.apply()
        (entry,) = (
            one for one in registry.ledger.entries() if isinstance(one, HoldEnded)
        )
        assert entry.request == receipt.entry.request
        assert entry.day == str(LATER)
        text = registry.ledger.export().decode()
        assert PERSON not in text
        assert not any(tag in text for tag in tags_of(registry, PERSON))
