# SPDX-License-Identifier: Apache-2.0
"""What a registry keeps of callbacks and webhooks, on both stores."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.registry import Callback, Delivery, Outcome, Registry, Request
from expunge.registry.deliveries import STEPS, PendingEvents, after_attempt
from expunge.registry.web_address import parse_web_address
from tests.registries import (
    DAY,
    PATIENCE,
    SECOND,
    back_up,
    count_callbacks,
    folder_of,
    now,
    registry_at,
    searches_of_database,
)

URL = "https://hooks.example.com/ada@example.org"
SECRET = "a bearer token of Ada's"
DONE = Outcome(204)
FAILED = Outcome(503)
FIRST = Delivery(
    "msg_1", "webhook", "request.completed", "0" * 32, "a", "waiting", 0, "", 0, 0
)


@pytest.fixture
def registry(tmp_path: Path, registry_url: str | None) -> Iterator[Registry]:
    """Lend a registry without models: to whom it says what, they do not matter."""
    with Registry.create(tmp_path / "registry", url=registry_url) as registry:
        yield registry


def file_request(registry: Registry, *urls: str, person: str = "person 1") -> str:
    """Send a request with callbacks; return its id."""
    asked = Request((person,))
    registry.deliveries.add_callbacks(
        [Callback(asked.request, url, "opendsr", SECRET) for url in urls]
    )
    registry.requests.accept([asked], strangers=True)
    return asked.request


def tell(registry: Registry, state: str, *, last: bool, moment: int = 0) -> None:
    """Queue a state for every callback that has to be looked at."""
    moment = moment or now()
    pending = registry.deliveries.pending(moment)
    news = [
        Delivery(
            "",
            one.form,
            state,
            one.status.request,
            one.host,
            address=one.id,
            since=moment,
        )
        for one in pending.callbacks
    ]
    look = None if last else moment + 1
    looks = {one.id: (state, look) for one in pending.callbacks}
    registry.deliveries.queue(pending, news, looks=looks)


def claim_all(registry: Registry, moment: int = 0) -> list[Delivery]:
    moment = moment or now()
    return [
        one
        for host in registry.deliveries.due_hosts(moment)
        for one in registry.deliveries.claim(host, now=moment, most=100)
    ]


def counts(registry: Registry) -> dict[str, int]:
    """Return how many deliveries there are in each state that any is in."""
    found = registry.deliveries.count()
    assert {*found} == {"waiting", "delivered", "given_up"}
    return {state: n for state, n in found.items() if n}


def watched(registry: Registry, moment: int = 0) -> list[str]:
    found = registry.deliveries.pending(moment or now()).callbacks
    return [one.status.request for one in found]


class TestCallbacks:
    def test_they_are_there_before_their_request(self, registry: Registry) -> None:
        asked = Request(("person 1",))
        registry.deliveries.add_callbacks([Callback(asked.request, URL, "opendsr")])
        assert (count_callbacks(registry), watched(registry)) == (1, [])
        registry.requests.accept([asked], strangers=True)
        assert watched(registry) == [asked.request]

    def test_nobody_listens_to_the_request_of_another(self, registry: Registry) -> None:
        request = file_request(registry, URL)
        late = Callback(request, "https://evil.example.com/", "opendsr")
        registry.deliveries.add_callbacks([late])
        assert count_callbacks(registry) == 1

    def test_nobody_listens_who_knew_the_id_first(self, registry: Registry) -> None:
        asked = Request(("person 1",), sender="privacy desk")
        mine = Callback(asked.request, URL, "opendsr", sender="privacy desk")
        early = Callback(asked.request, "https://evil.example.com/", "opendsr")
        registry.deliveries.add_callbacks([early, mine])
        registry.requests.accept([asked], strangers=True)
        (seen,) = registry.deliveries.pending(now()).callbacks
        assert seen.host == parse_web_address(URL).host
        pending = registry.deliveries.pending(now() + 2 * DAY)
        registry.deliveries.queue(pending)
        assert count_callbacks(registry) == 1

    def test_sent_again_they_are_one(self, registry: Registry) -> None:
        callback = Callback(Request(("person 1",)).request, URL, "opendsr")
        registry.deliveries.add_callbacks([callback, callback])
        registry.deliveries.add_callbacks([callback])
        assert count_callbacks(registry) == 1

    def test_without_a_request_they_are_deleted_after_a_day(
        self, registry: Registry
    ) -> None:
        registry.deliveries.add_callbacks(
            [Callback(Request(("person 1",)).request, URL, "opendsr")]
        )
        file_request(registry, URL)
        for day, left in ((0, 2), (2, 1)):
            pending = registry.deliveries.pending(now() + day * DAY)
            assert pending.day
            registry.deliveries.queue(pending)
            assert count_callbacks(registry) == left

    @pytest.mark.parametrize(
        "callback",
        [
            Callback("17", URL, "opendsr"),
            Callback("0" * 32, "https://ada@example.org/", "opendsr"),
        ],
    )
    def test_odd_ones_are_refused_without_showing_them(
        self, registry: Registry, callback: Callback
    ) -> None:
        with pytest.raises(InvalidInput) as refusal:
            registry.deliveries.add_callbacks([callback])
        assert "ada@" not in str(refusal.value)
        assert "ada@" not in repr(callback)

    def test_a_request_that_is_cancelled_is_looked_at_next(
        self, registry: Registry
    ) -> None:
        request = file_request(registry, URL)
        moment = now()
        pending = registry.deliveries.pending(moment)
        later = {one.id: ("", moment + DAY) for one in pending.callbacks}
        registry.deliveries.queue(pending, looks=later)
        assert watched(registry, moment) == []
        registry.requests.cancel(request)
        assert watched(registry, moment) == [request]


class TestAddressesAtRest:
    def whole(self, registry: Registry) -> bytes:
        """Return every byte of a registry's folder."""
        folder = folder_of(registry)
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return b"".join(path.read_bytes() for path in files)

    def test_they_are_sealed(self, tmp_path: Path) -> None:
        with Registry.create(tmp_path / "registry") as registry:
            file_request(registry, URL)
            registry.deliveries.add_endpoint("https://hooks.example.com/ada@")
            tell(registry, "completed", last=True)
            (one,) = claim_all(registry)
            assert (one.url, one.secret, one.host) == (URL, SECRET, "hooks.example.com")
            assert "ada@" not in repr(one) and "bearer" not in repr(one)
            registry.requests.apply()
            stored = self.whole(registry)
            assert b"hooks.example.com" in stored
            for piece in (b"ada@", b"bearer", b"whsec"):
                assert piece not in stored
            assert b"ada@" not in registry.ledger.export()

    def test_they_are_deleted_when_everything_was_told(
        self, registry: Registry
    ) -> None:
        file_request(registry, URL)
        tell(registry, "in_progress", last=False)
        (one,) = claim_all(registry)
        registry.deliveries.note({one.id: DONE}, now=now())
        assert count_callbacks(registry) == 1
        tell(registry, "completed", last=True, moment=now() + 2)
        (one,) = claim_all(registry, now() + 2)
        registry.deliveries.note({one.id: DONE}, now=now())
        assert count_callbacks(registry) == 0

    def test_they_are_deleted_when_given_up(self, registry: Registry) -> None:
        file_request(registry, URL)
        tell(registry, "completed", last=True)
        (one,) = claim_all(registry)
        registry.deliveries.note({one.id: FAILED}, now=now() + PATIENCE)
        assert count_callbacks(registry) == 0
        (shown,) = registry.deliveries.page("given_up").lines
        assert (shown.host, shown.last, shown.url) == (one.host, "status 503", "")
        with pytest.raises(InvalidInput, match="address was removed"):
            registry.deliveries.replay(one.id)

    def test_a_lost_key_gives_them_up(self, registry: Registry) -> None:
        file_request(registry, URL)
        tell(registry, "completed", last=True)
        (folder_of(registry) / "keys/outbox").unlink()
        assert claim_all(registry) == []
        (shown,) = registry.deliveries.page().lines
        assert (shown.state, shown.last) == ("given_up", "its address is gone")


class TestQueue:
    def test_queued_twice_is_one_delivery(self, registry: Registry) -> None:
        file_request(registry, URL)
        pending = registry.deliveries.pending(now())
        (one,) = pending.callbacks
        news = Delivery(
            "", one.form, "completed", "x", one.host, address=one.id, since=now()
        )
        for _ in range(3):
            looks = {one.id: ("completed", None)}
            registry.deliveries.queue(pending, [news], looks=looks)
        assert len(registry.deliveries.page().lines) == 1
        assert len(claim_all(registry)) == 1

    def test_the_last_state_overtakes_the_one_before(self, registry: Registry) -> None:
        file_request(registry, URL)
        tell(registry, "in_progress", last=False)
        tell(registry, "completed", last=True, moment=now() + 2)
        assert [one.event for one in claim_all(registry, now() + 2)] == ["completed"]

    def test_what_is_claimed_is_nobody_elses_for_a_minute(
        self, registry: Registry
    ) -> None:
        file_request(registry, *(f"{URL}/{i}" for i in range(5)))
        tell(registry, "completed", last=True)
        moment = now()
        with Registry.open(folder_of(registry)) as other:
            first = registry.deliveries.claim("hooks.example.com", now=moment, most=3)
            second = other.deliveries.claim("hooks.example.com", now=moment, most=3)
            assert len({one.id for one in (*first, *second)}) == 5
            assert claim_all(other, moment + 59 * SECOND) == []
            registry.deliveries.note({first[0].id: DONE}, now=moment)
            again = claim_all(other, moment + 60 * SECOND)
        assert {one.id for one in again} == {
            one.id for one in (*first, *second) if one.id != first[0].id
        }

    def test_hosts_that_wait_longest_come_first(self, registry: Registry) -> None:
        for host in ("b.example.com", "a.example.com"):
            file_request(registry, f"https://{host}/")
            tell(registry, "completed", last=True, moment=now())
        assert registry.deliveries.due_hosts(now() - DAY) == []
        hosts = registry.deliveries.due_hosts(now())
        assert hosts == ["b.example.com", "a.example.com"]


class TestAttempts:
    def test_steps_grow_and_end(self) -> None:
        delivery, moment, waits = FIRST, 0, []
        while True:
            after = after_attempt(delivery, FAILED, now=moment)
            if after.state == "given_up":
                break
            waits.append(after.due - moment)
            moment = after.due
            delivery = replace(delivery, attempts=delivery.attempts + 1)
        assert tuple(waits[: len(STEPS)]) == STEPS
        assert set(waits[len(STEPS) :]) == {DAY}
        assert PATIENCE - DAY < moment <= PATIENCE

    @given(st.integers(0, 20), st.integers(0, 10**9), st.integers(0, 599))
    def test_it_is_tried_again_in_time(
        self, attempts: int, wait: int, status: int
    ) -> None:
        delivery = replace(FIRST, attempts=attempts)
        after = after_attempt(delivery, Outcome(status, wait=wait), now=1000)
        if after.state == "waiting":
            assert STEPS[0] <= after.due - 1000 <= DAY
        assert (after.state == "delivered") == (200 <= status < 300)

    def test_a_receiver_may_ask_for_time(self) -> None:
        patient = after_attempt(FIRST, Outcome(429, wait=3600), now=0)
        assert patient.due == 3600 * SECOND
        greedy = after_attempt(FIRST, Outcome(429, wait=10**9), now=0)
        assert greedy.due == DAY

    @pytest.mark.parametrize(
        ("form", "state"), [("webhook", "given_up"), ("opendsr", "waiting")]
    )
    def test_gone_ends_our_own_webhooks_alone(self, form: str, state: str) -> None:
        delivery = replace(FIRST, form=form)
        assert after_attempt(delivery, Outcome(410), now=0).state == state

    def test_outcomes_are_noted(self, registry: Registry) -> None:
        file_request(registry, URL)
        tell(registry, "completed", last=True)
        (one,) = claim_all(registry)
        moment = now()
        registry.deliveries.note({one.id: Outcome(None, "too slow")}, now=moment)
        (shown,) = registry.deliveries.page("waiting").lines
        assert (shown.attempts, shown.last) == (1, "too slow")
        assert shown.due == moment + STEPS[0]
        (one,) = claim_all(registry, shown.due)
        registry.deliveries.note({one.id: DONE}, now=shown.due)
        # A process that was slow says later that it failed: it was delivered.
        registry.deliveries.note({one.id: FAILED}, now=shown.due)
        (shown,) = registry.deliveries.page("delivered").lines
        assert (shown.attempts, shown.last) == (2, "status 204")
        assert counts(registry) == {"delivered": 1}


class TestPages:
    def fill(self, registry: Registry, n: int) -> list[str]:
        endpoint, _ = registry.deliveries.add_endpoint(URL)
        moment = now()
        news = [
            Delivery(
                "",
                "webhook",
                "release.made",
                f"all/{i}",
                "hooks.example.com",
                address=endpoint.id,
                since=moment - i // 2,
                payload="{}",
            )
            for i in range(n)
        ]
        registry.deliveries.queue(PendingEvents(), news)
        return [one.subject for one in news]

    def test_pages_hold_everything_once(self, registry: Registry) -> None:
        subjects = self.fill(registry, 7)
        seen: list[Delivery] = []
        after = ""
        for _ in range(4):
            page = registry.deliveries.page(after=after, most=2)
            seen += page.lines
            after = page.next
        assert not after
        assert sorted(one.subject for one in seen) == subjects
        assert [one.since for one in seen] == sorted(
            (one.since for one in seen), reverse=True
        )
        assert {one.request for one in seen} == {""}

    def test_states_are_told_apart(self, registry: Registry) -> None:
        self.fill(registry, 3)
        first, *_ = claim_all(registry)
        registry.deliveries.note({first.id: DONE}, now=now())
        assert len(registry.deliveries.page("waiting").lines) == 2
        assert [one.id for one in registry.deliveries.page("delivered").lines] == [
            first.id
        ]
        assert counts(registry) == {"waiting": 2, "delivered": 1}

    def test_what_may_not_be_seen_yet_is_not_shown(self, registry: Registry) -> None:
        file_request(registry, URL)
        tell(registry, "completed", last=True, moment=now() + DAY)
        assert registry.deliveries.page().lines == ()
        assert counts(registry) == {}

    @pytest.mark.parametrize(
        "after", ["x", "1", ".a", "-1.a", "٣.a", "9" * 19 + ".a", "1" * 90 + ".a"]
    )
    def test_a_place_that_is_none_is_refused(
        self, registry: Registry, after: str
    ) -> None:
        with pytest.raises(InvalidInput, match="where a page ended"):
            registry.deliveries.page(after=after)

    @pytest.mark.parametrize("most", [0, 1001])
    def test_pages_have_a_size(self, registry: Registry, most: int) -> None:
        with pytest.raises(InvalidInput, match="1 to 1000"):
            registry.deliveries.page(most=most)

    def test_replayed_is_due_again(self, registry: Registry) -> None:
        self.fill(registry, 1)
        (one,) = claim_all(registry)
        registry.deliveries.note({one.id: Outcome(410)}, now=now())
        assert claim_all(registry, now() + DAY) == []
        registry.deliveries.replay(one.id)
        (again,) = claim_all(registry)
        assert (again.id, again.attempts, again.payload) == (one.id, 0, "{}")

    def test_only_what_is_there_is_replayed(self, registry: Registry) -> None:
        with pytest.raises(InvalidInput, match="no delivery"):
            registry.deliveries.replay("msg_1")


class TestEndpoints:
    def test_they_are_kept(self, registry: Registry) -> None:
        endpoint, secret = registry.deliveries.add_endpoint(URL, ["release.made"])
        assert secret.startswith("whsec_") and len(secret) == 6 + 44
        assert registry.deliveries.endpoints() == [endpoint]
        assert (endpoint.url, endpoint.events) == (URL, ("release.made",))
        registry.deliveries.remove_endpoint(endpoint.id)
        assert registry.deliveries.endpoints() == []
        with pytest.raises(InvalidInput, match="no endpoint"):
            registry.deliveries.remove_endpoint(endpoint.id)

    @pytest.mark.parametrize("events", [(), ("request.created",)])
    def test_events_are_those_that_exist(
        self, registry: Registry, events: Sequence[str]
    ) -> None:
        with pytest.raises(InvalidInput, match=r"request\.completed"):
            registry.deliveries.add_endpoint(URL, events)

    def test_what_a_removed_one_was_to_be_told_is_given_up(
        self, registry: Registry
    ) -> None:
        TestPages().fill(registry, 2)
        (endpoint,) = registry.deliveries.endpoints()
        registry.deliveries.remove_endpoint(endpoint.id)
        assert claim_all(registry) == []
        assert counts(registry) == {"given_up": 2}


class TestEvents:
    @pytest.fixture
    def registry(self, tmp_path: Path, registry_url: str | None) -> Iterator[Registry]:
        with registry_at(tmp_path / "registry", registry_url) as registry:
            yield registry

    def events(self, registry: Registry, day: int = 0) -> list[tuple[str, str]]:
        """Return what is new, and note that it was told."""
        pending = registry.deliveries.pending(now() + day * DAY)
        registry.deliveries.queue(pending)
        return [(one.event, one.subject) for one in pending.events]

    def test_the_past_is_not_told(self, registry: Registry) -> None:
        registry.forget(["person 1"])
        registry.deliveries.add_endpoint(URL)
        assert self.events(registry) == []

    def test_without_an_endpoint_nothing_is_noted(self, registry: Registry) -> None:
        request = file_request(registry)
        registry.requests.cancel(request)
        assert self.events(registry) == []
        registry.deliveries.add_endpoint(URL)
        assert self.events(registry) == []

    def test_answers_and_releases_are_told(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        registry.deliveries.add_endpoint(URL)
        registry.models.ship("all", tmp_path / "all.safetensors")
        request = file_request(registry)
        registry.requests.apply()
        pending = registry.deliveries.pending(now())
        assert sorted(self.events(registry)) == [
            ("release.made", "all/2"),
            ("release.made", "half/2"),
            ("release.recalled", "all/1"),
            ("request.completed", request),
        ]
        assert self.events(registry) == []
        by_event = {one.event: one for one in pending.events}
        recalled = by_event["release.recalled"].data
        made = next(one for one in pending.events if one.subject == "all/2").data
        assert recalled["successor"] == made["certificate"]
        assert {*recalled} == {"model", "release", "certificate", "successor", "day"}

    def test_the_copies_of_a_removed_model_are_recalled(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        registry.deliveries.add_endpoint(URL)
        registry.models.ship("half", tmp_path / "half.safetensors")
        registry.models.remove("half")
        assert self.events(registry) == [("release.recalled", "half/1")]

    def test_cancelled_ones_are_told_once(self, registry: Registry) -> None:
        registry.deliveries.add_endpoint(URL)
        request = file_request(registry)
        registry.requests.cancel(request)
        assert self.events(registry) == [("request.cancelled", request)]
        assert self.events(registry) == []

    def test_overdue_ones_are_looked_for_once_a_day(self, registry: Registry) -> None:
        registry.deliveries.add_endpoint(URL)
        long_ago = datetime.now(UTC).date() - timedelta(days=90)
        late = Request(("person 1",), submitted=long_ago)
        registry.requests.accept([late])
        file_request(registry)
        assert self.events(registry) == [("request.overdue", late.request)]
        assert self.events(registry) == []
        assert self.events(registry, day=1) == [("request.overdue", late.request)]

    def test_a_restored_registry_tells_again(self, tmp_path: Path) -> None:
        with registry_at(tmp_path / "registry") as registry:
            registry.deliveries.add_endpoint(URL)
            backup = back_up(registry, tmp_path / "backup")
            registry.forget(["person 1"])
            told = self.events(registry)
        with backup.restore() as restored:
            again = self.events(restored)
            assert {*told} - {("release.made", "half/2")} <= {*again}
            assert restored.deliveries.endpoints()


def test_nothing_searches_the_finished_requests(tmp_path: Path) -> None:
    with Registry.create(tmp_path / "registry") as registry:
        registry.deliveries.add_endpoint(URL)
        moment = now()
        daily = registry.deliveries.pending(moment)
        registry.deliveries.queue(daily)
        with searches_of_database(registry) as plans:
            registry.deliveries.pending(moment)
            registry.deliveries.due_hosts(moment)
            registry.deliveries.claim("a.example.com", now=moment, most=5)
            registry.deliveries.page("given_up")
            registry.deliveries.page()
    assert len(plans) > 7
    scanned = [one for one in plans if one.startswith("SCAN") and "INDEX" not in one]
    assert {one.split()[1] for one in scanned} <= {"endpoints", "events"}
