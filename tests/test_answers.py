# SPDX-License-Identifier: Apache-2.0
"""Requests that are cancelled, refused, extended, late, or of strangers; receipts."""

import json
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from expunge.exceptions import InvalidInput, UnknownRequest, UnknownSubject
from expunge.ledger import RequestExtended, check_receipt
from expunge.registry import ForgottenInData, Registry, Request
from expunge.rights import add_months, deadline, extended_deadline, regime_named
from expunge.rights.standing import BY_OPERATOR, RIGHTS, Right
from tests.registries import (
    A_REQUEST,
    HELD,
    IN_USE,
    NOTHING,
    ask,
    by_name,
    crash_with_a_line_in_the_journal_alone,
    data,
    data_without,
    estimator,
    hold,
    journal_of,
    kept_of_request,
    receipt_of,
    registry_at,
    require_consistent,
    require_retrained,
    set_clock,
    tags_of,
    today,
    where,
)

PERSON, OTHER, STRANGER = "person 3", "person 5", "nobody 1"
DAY = timedelta(days=1)
UNTIL = str(today() + 400 * DAY)
WITHOUT_ROWS = [one for one in RIGHTS if one != "rectify"]


def asked_as(right: Right, *names: str, **details: Any) -> Request:
    """Return a request with what its right needs."""
    if right == "hold":
        details |= {"reason": "legal-claims", "until": UNTIL}
    return Request(names, right=right, **details)


@pytest.fixture
def waiting(registry: Registry) -> str:
    """Return a request that waits."""
    (status,) = registry.requests.accept([Request((PERSON,))])
    return status.request


class TestCancel:
    def test_nothing_happens_then(self, registry: Registry, waiting: str) -> None:
        status = registry.requests.cancel(waiting)
        assert status.stage == "cancelled" and not status.is_open
        assert not status.outcome and status.completed is None
        assert {"cancelled": {"request": waiting}} in journal_of(registry)
        registry.requests.apply()
        assert where(registry, PERSON) == IN_USE
        assert registry.requests.receipt(waiting) is None
        found = registry.status()
        assert (found.n_requests, found.n_completed, found.pending) == (1, 0, ())
        require_consistent(registry)

    def test_a_fit_may_hold_the_person(self, registry: Registry, waiting: str) -> None:
        registry.requests.cancel(waiting)
        registry.models.refit("all", estimator(), **by_name(data()))
        assert registry.requests.find_forgotten([PERSON]) == ()

    def test_sent_again_it_stays_cancelled(
        self, registry: Registry, waiting: str
    ) -> None:
        registry.requests.cancel(waiting)
        (status,) = registry.requests.accept([Request((PERSON,), waiting)])
        assert status.stage == "cancelled"

    def test_only_what_waits(self, registry: Registry, waiting: str) -> None:
        registry.requests.cancel(waiting)
        done = ask(registry, "erase", OTHER).entry.request
        for request, stage in ((waiting, "cancelled"), (done, "completed")):
            with pytest.raises(InvalidInput, match=f"is {stage}, and only one that"):
                registry.requests.cancel(request)
            with pytest.raises(InvalidInput, match=f"is {stage}"):
                registry.requests.refuse(request, "unfounded")
            with pytest.raises(InvalidInput, match=f"is {stage}"):
                registry.requests.extend(request, "many", notified=today())
        with pytest.raises(UnknownRequest):
            registry.requests.cancel(A_REQUEST)

    def test_what_only_the_journal_has_counts(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        """The process is killed after the line, before the commit."""
        (status,) = registry.requests.accept([Request((PERSON,))])
        with crash_with_a_line_in_the_journal_alone():
            registry.requests.cancel(status.request)
        registry.close()
        with Registry.open(tmp_path / "registry") as again:
            again.requests.apply()
            assert again.requests.status(status.request).stage == "cancelled"
            assert where(again, PERSON) == IN_USE

    def test_tags_leave_the_store(self, registry: Registry, waiting: str) -> None:
        assert kept_of_request(registry, waiting).n_tags
        registry.requests.cancel(waiting)
        assert kept_of_request(registry, waiting) == NOTHING


class TestRefuse:
    def test_is_an_answer(self, registry: Registry, waiting: str) -> None:
        registry.requests.refuse(waiting, "legal-duty")
        receipt = receipt_of(registry, waiting)
        said = receipt.entry.outcome, receipt.entry.reason
        assert said == ("refused", "legal-duty")
        assert not receipt.handling.destroyed and not receipt.entry.certificates
        assert where(registry, PERSON) == IN_USE
        status = registry.requests.status(waiting)
        assert (status.stage, status.outcome) == ("completed", "refused")
        says = check_receipt(receipt.to_json(), registry.keys.public_pem()).says
        assert "Outcome: refused (a legal duty requires the processing)" in says
        registry.models.refit("all", estimator(), **by_name(data()))
        require_consistent(registry)

    def test_others_are_applied(self, registry: Registry, waiting: str) -> None:
        registry.requests.accept([Request((OTHER,))])
        registry.requests.refuse(waiting, "unfounded")
        registry.requests.apply()
        require_retrained(registry, OTHER)

    @pytest.mark.parametrize("reason", ["", "hold", "not-held", "because", "fitted"])
    def test_needs_a_reason_of_the_law(self, tmp_path: Path, reason: str) -> None:
        with registry_at(tmp_path / "registry") as registry:
            (status,) = registry.requests.accept([Request((PERSON,))])
            with pytest.raises(InvalidInput, match="give one of legal-duty"):
                registry.requests.refuse(status.request, reason)
            assert registry.requests.status(status.request).stage == "accepted"

    def test_every_reason(self, tmp_path: Path) -> None:
        with registry_at(tmp_path / "registry") as registry:
            for reason in BY_OPERATOR:
                (status,) = registry.requests.accept([Request((PERSON,))])
                registry.requests.refuse(status.request, reason)
                assert receipt_of(registry, status.request).entry.reason == reason


class TestExtend:
    def test_once_and_stated(self, registry: Registry, waiting: str) -> None:
        before = registry.requests.status(waiting)
        status = registry.requests.extend(waiting, "complex", notified=today())
        law = regime_named("gdpr")
        assert status.deadline > before.deadline and status.stage == "accepted"
        later = extended_deadline(today(), law)
        *_, entry = registry.ledger.entries()
        assert isinstance(entry, RequestExtended)
        assert (entry.request, entry.reason) == (waiting, "complex")
        assert (entry.notified, entry.deadline) == (str(today()), str(later))
        with pytest.raises(InvalidInput, match="no law extends it twice"):
            registry.requests.extend(waiting, "many", notified=today())
        registry.requests.proceed(waiting)
        registry.requests.apply()
        receipt = receipt_of(registry, waiting)
        assert receipt.entry.deadline == str(later)
        said = receipt.handling.extended, receipt.handling.notified
        assert said == ("complex", str(today()))
        require_consistent(registry)

    def test_by_a_day_in_time(self, tmp_path: Path) -> None:
        asked = today() - 10 * DAY
        first = deadline(asked, regime_named("ccpa"))
        with registry_at(tmp_path / "registry") as registry:
            (status,) = registry.requests.accept(
                [Request((PERSON,), submitted=asked, regime="ccpa")]
            )
            for day in (asked - DAY, first + DAY):
                with pytest.raises(InvalidInput, match="must be told between"):
                    registry.requests.extend(status.request, "many", notified=day)
            with pytest.raises(InvalidInput, match="'complex', or because"):
                registry.requests.extend(status.request, "busy", notified=today())
            with pytest.raises(InvalidInput, match="is not a day"):
                registry.requests.extend(status.request, "many", notified="soon")
            assert registry.requests.status(status.request) == status
            registry.requests.extend(status.request, "many", notified=str(asked))
            *_, entry = registry.ledger.entries()
            assert isinstance(entry, RequestExtended)
            assert entry.deadline == str(asked + 90 * DAY)

    def test_is_not_possible_in_advance(self, tmp_path: Path) -> None:
        """The person was told, so the day is not to come."""
        with registry_at(tmp_path / "registry") as registry:
            (status,) = registry.requests.accept([Request((PERSON,))])
            with pytest.raises(InvalidInput):
                registry.requests.extend(
                    status.request, "many", notified=today() + 5 * DAY
                )
            assert registry.requests.status(status.request) == status
            registry.requests.apply()  # and nothing is stuck


class TestDeadlines:
    def test_submitted_in_the_past(self, registry: Registry) -> None:
        asked = today() - 20 * DAY
        receipt = ask(registry, "erase", PERSON, submitted=asked)
        assert receipt.entry.submitted == str(asked)
        assert receipt.entry.accepted == str(today())
        assert receipt.entry.deadline == str(add_months(asked, 1))

    def test_long_past_it_is_overdue_at_once(self, registry: Registry) -> None:
        asked = today() - 100 * DAY
        (status,) = registry.requests.accept([Request((PERSON,), submitted=asked)])
        assert status.is_open and status.is_overdue and status.is_due(today())
        registry.requests.apply()
        done = registry.requests.status(status.request)
        assert not done.is_open and not done.is_overdue and not done.is_due(today())
        text = registry.requests.receipt(status.request) or ""
        assert "AFTER its deadline" in (
            check_receipt(text, registry.keys.public_pem()).says
        )

    def test_the_last_day_is_in_time(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (status,) = registry.requests.accept([Request((PERSON,))])
        last = deadline(today(), regime_named("gdpr"))
        set_clock(monkeypatch, last)
        assert not registry.requests.status(status.request).is_overdue
        assert status.is_due(last) and not status.is_due(last - DAY)
        set_clock(monkeypatch, last + DAY)
        assert registry.requests.status(status.request).is_overdue

    def test_days_to_come_are_refused(self, registry: Registry) -> None:
        with pytest.raises(InvalidInput, match="which is after today"):
            registry.requests.accept([Request((PERSON,), submitted=today() + DAY)])

    def test_regimes(self, tmp_path: Path) -> None:
        with Registry.create(tmp_path / "r", regime="ccpa") as registry:
            registry.fit("all", estimator(), **by_name(data()))
            (own,) = registry.requests.accept([Request((PERSON,))])
            (other,) = registry.requests.accept([Request((OTHER,), regime="uk-gdpr")])
            assert (own.regime, other.regime) == ("ccpa", "uk-gdpr")
            registry.requests.apply()
            assert receipt_of(registry, own.request).entry.deadline == str(
                today() + 45 * DAY
            )
            with pytest.raises(InvalidInput, match="there is no regime"):
                registry.requests.accept([Request((OTHER,), regime="law")])
        with pytest.raises(InvalidInput, match="there is no regime"):
            Registry.create(tmp_path / "s", regime="law")


class TestStrangers:
    @pytest.mark.parametrize("right", WITHOUT_ROWS)
    def test_are_answered_like_anybody(self, tmp_path: Path, right: Right) -> None:
        with registry_at(tmp_path / "registry") as registry:
            if right in ("lift", "end-hold"):
                setting = asked_as("restrict" if right == "lift" else "hold", PERSON)
                registry.requests.accept([setting])
                registry.requests.apply()
            known, stranger = asked_as(right, PERSON), asked_as(right, STRANGER)
            with pytest.raises(UnknownSubject):
                registry.requests.accept([known, stranger])
            first, second = registry.requests.accept([known, stranger], strangers=True)
            assert shape(first) == shape(second)
            *_, line = journal_of(registry)
            one, other = line["accepted"]
            assert one.keys() == other.keys() and len(one["tags"]) == len(other["tags"])
            registry.requests.apply()
            receipts = [receipt_of(registry, r.request) for r in (first, second)]
            told = [json.loads(one.to_json()) for one in receipts]
            for part in ("entry", "handling"):
                assert told[0][part].keys() == told[1][part].keys()
            assert [one.entry.outcome for one in receipts] == ["done", "nothing found"]
            assert not receipts[1].entry.certificates
            assert not receipts[1].handling.destroyed
            require_consistent(registry)

    def test_are_kept_out_of_fits_once_they_asked(self, registry: Registry) -> None:
        registry.requests.accept([Request((STRANGER,))], strangers=True)
        registry.requests.apply()
        X, y, owners = data()
        with pytest.raises(ForgottenInData):
            registry.models.refit(
                "all", estimator(), X, y, subjects=[STRANGER, *owners[1:]]
            )

    def test_beside_others_do_not_matter(self, registry: Registry) -> None:
        asked = Request((PERSON, STRANGER))
        registry.requests.accept([asked], strangers=True)
        registry.requests.apply()
        receipt = receipt_of(registry, asked.request)
        assert receipt.entry.outcome == "done" and receipt.entry.n_subjects == 2


def shape(status: Any) -> dict[str, Any]:
    """Return what a status says, beside which request it is."""
    told = {name: getattr(status, name) for name in type(status).__slots__}
    return told | {name: len(told[name]) for name in ("request", "fingerprint")}


class TestHandling:
    @pytest.fixture
    def registry(self, tmp_path: Path) -> Iterator[Registry]:
        folder = tmp_path / "registry"
        with Registry.create(folder, regime="gdpr", backup_days=35) as registry:
            registry.fit("all", estimator(), **by_name(data()))
            registry.fit("half", estimator(), **by_name(data_without("person 50")))
            yield registry

    @pytest.mark.parametrize(
        ("right", "basis"),
        [
            ("erase", "GDPR Art. 17"),
            ("object", "GDPR Art. 21"),
            ("restrict", "GDPR Art. 18"),
            ("hold", ""),
        ],
    )
    def test_every_field(self, registry: Registry, right: Right, basis: str) -> None:
        asked = asked_as(right, PERSON)
        registry.requests.accept([asked])
        registry.requests.apply()
        receipt = receipt_of(registry, asked.request)
        handling = receipt.handling
        assert handling.basis == basis
        models = ("private states", "parameters of superseded releases")
        erased = ("rows", "keys of rows") if right in ("erase", "object") else ()
        assert handling.destroyed == (*erased, *models)
        assert handling.backups_until == str(today() + 35 * DAY)
        kept = {"restrict": ("restriction", ""), "hold": ("legal-claims", UNTIL)}
        said = handling.retained, handling.retained_until
        assert said == kept.get(right, ("", ""))
        assert handling.copies == {"all": (), "half": ()}
        assert (handling.extended, handling.notified) == ("", "")
        assert "right at most 73.2 %" in handling.guarantee
        assert "(epsilon 1, delta 1e-05)" in handling.guarantee

    def test_copies_of_superseded_releases(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        registry.models.ship("all", tmp_path / "churn.safetensors")
        receipt = ask(registry, "erase", PERSON)
        assert receipt.handling.copies == {"all": ("churn.safetensors",), "half": ()}
        says = check_receipt(receipt.to_json(), registry.keys.public_pem()).says
        assert "taken back: churn.safetensors" in says
        registry.models.withdraw("all", 1)
        later = ask(registry, "erase", OTHER)
        assert later.handling.copies == {"all": (), "half": ()}

    def test_of_a_model_that_promises_nothing(self, registry: Registry) -> None:
        registry.fit("bare", estimator(budget=None), **by_name(data()))
        receipt = ask(registry, "erase", PERSON)
        assert "nothing is promised" in receipt.handling.guarantee

    def test_without_a_model(self, registry: Registry) -> None:
        ask(registry, "restrict", PERSON)
        receipt = ask(registry, "erase", PERSON)
        assert "No model was changed" in receipt.handling.guarantee
        assert receipt.handling.copies == {}

    def test_without_a_stated_age_of_backups(self, tmp_path: Path) -> None:
        with registry_at(tmp_path / "other") as registry:
            receipt = ask(registry, "erase", PERSON)
            assert not receipt.handling.backups_until
            says = check_receipt(receipt.to_json(), registry.keys.public_pem()).says
            assert "has not stated until when backups hold them" in says

    @pytest.mark.parametrize("right", WITHOUT_ROWS)
    def test_names_nobody(self, registry: Registry, right: Right) -> None:
        if right == "end-hold":
            hold(registry, PERSON, until=UNTIL)
        asked = asked_as(right, PERSON)
        registry.requests.accept([asked])
        registry.requests.apply()
        text = receipt_of(registry, asked.request).to_json()
        assert PERSON not in text and repr(asked).find(PERSON) < 0
        assert not any(tag in text for tag in tags_of(registry, PERSON))
        assert not {"n_rows", "radius"} & json.loads(text)["handling"].keys()


def test_an_objection_has_a_name_of_its_own(registry: Registry) -> None:
    receipt = ask(registry, "object", PERSON)
    assert (receipt.entry.right, receipt.entry.outcome) == ("object", "done")
    assert where(registry, PERSON) == {}
    require_retrained(registry, PERSON)
    with pytest.raises(ForgottenInData):
        registry.models.refit("all", estimator(), **by_name(data()))


def test_one_id_asks_for_one_thing(registry: Registry) -> None:
    registry.requests.accept([Request((PERSON,), A_REQUEST)])
    for other in (
        Request((PERSON,), A_REQUEST, right="restrict"),
        Request((OTHER,), A_REQUEST),
        asked_as("hold", PERSON, request=A_REQUEST),
    ):
        with pytest.raises(InvalidInput, match="asked for something else"):
            registry.requests.accept([other])
    (again,) = registry.requests.accept([Request((PERSON,), A_REQUEST)])
    assert again.right == "erase"


def test_held_people_are_counted_apart(registry: Registry) -> None:
    hold(registry, PERSON, until=UNTIL)
    ask(registry, "restrict", OTHER)
    assert where(registry, PERSON) == HELD
    for model in registry.status().models:
        assert model.n_people == (58 if model.name == "all" else 28)
    assert date.fromisoformat(UNTIL) > today()
