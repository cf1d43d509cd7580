# SPDX-License-Identifier: Apache-2.0
"""What two people must decide, one person cannot do: by no way in that there is.

Anna has two tokens, signs in by one of them in a browser, is an admin, has the folder's
command line, and tries everything. Bob is another person.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from expunge.cli.output import BUSY, DONE
from expunge.exceptions import (
    InvalidInput,
    NeedsDecision,
    OneAgreed,
)
from expunge.registry import Decider, Registry, Request, RequestRule, rebuild_journal
from tests.registries import (
    SECOND,
    ask,
    back_up,
    crash_with_a_line_in_the_journal_alone,
    folder_of,
    now,
    set_clock,
    today,
)

from .calling import call
from .services import InProcess, serve_in_process
from .visitors import post, sign_in

TWO = RequestRule(four_eyes=True)
PERSON, OTHER = "person 3", "person 5"
FAR = 1 << 60  # every window has closed


class Desk:
    """A registry in which an erasure wants two people, with one request that waits."""

    def __init__(self, service: InProcess, patch: pytest.MonkeyPatch) -> None:
        self.service, self.registry, self.patch = service, service.registry, patch
        self.folder = folder_of(self.registry)
        create = self.registry.access.create
        self.anna = create("anna's desk", ["admin"], owner="anna")[1]
        self.anna_too = create("anna at home", ["admin"], owner="Anna@example.org")[1]
        self.bob = create("bob", ["operate"], owner="bob")[1]
        self.nobody = create("consent desk", ["admin"])[1]
        for name in ("erase", "end-hold", "remove", "withdraw"):
            self.registry.rules.set(name, TWO)
        asked = Request((PERSON,))
        self.registry.requests.accept([asked])
        self.request = asked.request
        patch.setenv("EXPUNGE_REGISTRY", str(self.folder))

    @property
    def stage(self) -> str:
        return self.registry.requests.status(self.request).stage

    def as_anna(self, secret: str = "") -> Decider:
        return Decider("anna", secret or self.anna)

    def approve(self, secret: str, request: str = "") -> None:
        by = Decider(shown=secret)
        self.registry.requests.approve(request or self.request, by=by)

    def api(self, method: str, path: str, secret: str, **given: Any) -> Any:
        headers = {"Authorization": f"Bearer {secret}"}
        return self.service.http.request(method, path, headers=headers, **given)

    def held(self, who: str = PERSON) -> tuple[str, ...]:
        return self.registry.requests.find_models([who])[who]


@pytest.fixture
def desk(sqlite_registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with serve_in_process(sqlite_registry) as service:
        yield Desk(service, monkeypatch)


Way = Callable[[Desk], object]


def apply(desk: Desk) -> None:
    desk.registry.requests.apply()


def apply_later(desk: Desk) -> None:
    desk.registry.requests.apply(before=now() + 365 * 86400 * SECOND)


def apply_only_this(desk: Desk) -> None:
    with pytest.raises(NeedsDecision, match="approval"):
        desk.registry.requests.apply(only=[desk.request])


def approve_alone(desk: Desk) -> None:
    desk.approve(desk.anna)


def approve_twice(desk: Desk) -> None:
    with pytest.raises(NeedsDecision, match="somebody else"):
        desk.approve(desk.anna)


def approve_by_another_token(desk: Desk) -> None:
    with pytest.raises(NeedsDecision, match="somebody else"):
        desk.approve(desk.anna_too)


def approve_under_another_name(desk: Desk) -> None:
    with pytest.raises(NeedsDecision, match="somebody else"):
        by = Decider("bob", desk.anna)
        desk.registry.requests.approve(desk.request, by=by)
    said = desk.registry.access.trail(0, 1000)
    assert "bob" not in {one.actor for one in said}  # nor does the access log say so


def approve_without_a_token(desk: Desk) -> None:
    with pytest.raises(NeedsDecision, match="token that says whose"):
        desk.registry.requests.approve(desk.request, by=Decider("bob"))


def approve_by_a_token_of_nobody(desk: Desk) -> None:
    with pytest.raises(NeedsDecision, match="token that says whose"):
        desk.approve(desk.nobody)


def approve_by_a_token_made_for_it(desk: Desk) -> None:
    """Anna makes a token for Bob, or for somebody invented, and uses it herself."""
    for owner in ("bob", "carl"):
        _, secret = desk.registry.access.create("x", ["operate"], owner=owner)
        with pytest.raises(NeedsDecision):
            desk.approve(secret)
        shown = desk.registry.access.create(
            "x", ["operate"], owner=owner, shown=desk.anna
        )[1]
        with pytest.raises(NeedsDecision):
            desk.approve(shown)


def let_that_token_count(desk: Desk) -> None:
    token, secret = desk.registry.access.create("x", ["admin"], owner="carl")
    with pytest.raises(OneAgreed):
        desk.registry.rules.trust_token(token.id, by=desk.as_anna())
    for by in (desk.as_anna(desk.anna_too), Decider("carl", secret)):
        with pytest.raises(NeedsDecision):
            desk.registry.rules.trust_token(token.id, by=by)
    with pytest.raises(NeedsDecision):
        desk.approve(secret)


def approve_by_api(desk: Desk) -> None:
    path = f"/api/v1/requests/{desk.request}/approve"
    for secret in (desk.anna, desk.anna_too, desk.nobody):
        assert desk.api("POST", path, secret).status_code == 409
    made = desk.api(
        "POST",
        "/api/v1/tokens",
        desk.anna,
        json={"name": "bob", "scopes": ["operate"], "owner": "bob"},
    ).json()
    assert not made["decides"]
    assert desk.api("POST", path, made["secret"]).status_code == 409


def approve_by_page(desk: Desk) -> None:
    for secret in (desk.anna, desk.anna_too):
        desk.service.tokens["anna"] = secret
        sign_in(desk.service, "anna")
        answer = post(desk.service, f"/requests/{desk.request}/approve")
        assert answer.status_code == 409, answer.text
    desk.service.http.cookies.clear()


def approve_by_a_session_made_for_it(desk: Desk) -> None:
    create = desk.registry.access.create_session
    _, secret = create("bob", ["operate"], minutes=5, owner="bob")
    with pytest.raises(NeedsDecision):
        desk.approve(secret)


def approve_by_command(desk: Desk) -> None:
    for secret in ("", desk.anna, desk.anna_too):
        desk.patch.setenv("EXPUNGE_TOKEN", secret)
        for actor in ("anna", "bob"):
            done = call("approve", desk.request, "--actor", actor)
            assert done.code == BUSY, done.err
    desk.patch.delenv("EXPUNGE_TOKEN")


def make_a_token_by_command(desk: Desk) -> None:
    words = ("token", "create", "bob", "--owner", "bob", "--scope", "operate")
    secret = call(*words).out.strip()
    desk.patch.setenv("EXPUNGE_TOKEN", secret)
    assert call("approve", desk.request).code == BUSY
    desk.patch.delenv("EXPUNGE_TOKEN")


def forget_pending(desk: Desk) -> None:
    assert call("forget", "--pending").code == DONE


def forget_again(desk: Desk) -> None:
    """Send another request about the person, by every word for it."""
    for words in (
        ("forget", PERSON),
        ("request", "object", PERSON),
        ("request", "erase", PERSON),
        (
            "request",
            "hold",
            PERSON,
            "--reason",
            "legal-claims",
            "--until",
            str(today()),
        ),
    ):
        done = call(*words, "--yes")
        assert done.code == BUSY and "two approvals" in done.err, words
    with pytest.raises(NeedsDecision):
        desk.registry.forget([PERSON])
    with pytest.raises(NeedsDecision):
        desk.registry.forget([PERSON], desk.request)


def send_by_api(desk: Desk) -> None:
    body = {"people": [{"id": PERSON}]}
    sent = desk.api("POST", "/api/v1/requests", desk.anna, json=body)
    assert sent.status_code == 201
    sent = desk.api(
        "POST", "/api/v1/requests", desk.anna, json=body | {"right": "object"}
    )
    assert sent.status_code == 201
    desk.registry.requests.apply(before=FAR)


def loosen_the_rule(desk: Desk) -> None:
    rules = desk.registry.rules
    with pytest.raises(OneAgreed):
        rules.set("erase", RequestRule(), by=desk.as_anna())
    for by in (desk.as_anna(), desk.as_anna(desk.anna_too), Decider("bob")):
        with pytest.raises(NeedsDecision):
            rules.set("erase", RequestRule(approval=True), by=by)
    done = call("rules", "erase", "--no-four-eyes", "--actor", "bob")
    assert done.code == BUSY
    path, given = "/api/v1/rules/erase", {"four_eyes": False}
    assert desk.api("PUT", path, desk.anna_too, json=given).status_code == 409
    assert rules.read()["erase"] == TWO


def let_it_go_on(desk: Desk) -> None:
    for step in ("wait", "proceed"):
        getattr(desk.registry.requests, step)(desk.request, by=desk.as_anna())
    desk.registry.requests.apply()


def extend_it(desk: Desk) -> None:
    with suppress(InvalidInput):  # once is enough
        desk.registry.requests.extend(desk.request, "many", notified=today())
    desk.registry.requests.proceed(desk.request)
    desk.registry.requests.apply()


def open_it_again(desk: Desk) -> None:
    with Registry.open(desk.folder) as other:
        other.requests.apply()


def create_it_again(desk: Desk) -> None:
    with Registry.create(desk.folder) as other:
        other.requests.apply()


def wait_for_its_deadline(desk: Desk) -> None:
    set_clock(desk.patch, today() + timedelta(days=29))


def replay_a_notification(desk: Desk) -> None:
    path = f"/api/v1/deliveries/msg_{desk.request}/replay"
    assert desk.api("POST", path, desk.anna).status_code >= 400
    desk.registry.requests.apply(before=FAR)


WAYS: tuple[Way, ...] = (
    apply,
    apply_later,
    apply_only_this,
    approve_without_a_token,
    approve_by_a_token_of_nobody,
    approve_by_a_token_made_for_it,
    approve_alone,
    approve_twice,
    approve_by_another_token,
    approve_under_another_name,
    approve_by_a_token_made_for_it,
    let_that_token_count,
    approve_by_api,
    approve_by_page,
    approve_by_a_session_made_for_it,
    approve_by_command,
    make_a_token_by_command,
    forget_pending,
    forget_again,
    send_by_api,
    loosen_the_rule,
    let_it_go_on,
    extend_it,
    open_it_again,
    create_it_again,
    replay_a_notification,
    wait_for_its_deadline,
    apply_only_this,
)


def test_one_person_applies_nothing_by_any_way(desk: Desk) -> None:
    for way in WAYS:
        way(desk)
        desk.registry.requests.apply()
        assert desk.stage == "accepted", way.__name__
        assert desk.held() == ("all", "half"), way.__name__
    desk.approve(desk.bob)
    desk.registry.requests.apply()
    assert desk.stage == "completed" and desk.held() == ()


def test_an_approval_that_only_the_journal_has_counts_once(desk: Desk) -> None:
    with crash_with_a_line_in_the_journal_alone():
        desk.approve(desk.anna)
    for secret in (desk.anna, desk.anna_too):
        with pytest.raises(NeedsDecision, match="somebody else"):
            desk.approve(secret)
    assert len(desk.registry.requests.decisions(desk.request)) == 1
    with crash_with_a_line_in_the_journal_alone():
        desk.approve(desk.bob)
    desk.registry.requests.apply()
    assert desk.stage == "completed"
    assert desk.registry.access.check_trail().valid


def test_acts_that_no_request_asks_for_want_two_as_well(
    desk: Desk, tmp_path: Path
) -> None:
    models, anna, bob = desk.registry.models, desk.as_anna(), Decider(shown=desk.bob)
    number = models.ship("half", tmp_path / "m.safetensors").number
    acts: tuple[Callable[[Decider], None], ...] = (
        lambda by: models.withdraw("half", number, by=by),
        lambda by: models.remove("half", by=by),
        lambda by: desk.registry.rules.set("withdraw", RequestRule(), by=by),
    )
    for act in acts:
        for by in (Decider("bob"), Decider("bob", desk.nobody)):
            with pytest.raises(NeedsDecision, match="token that says whose"):
                act(by)
        with pytest.raises(OneAgreed):
            act(anna)
        for secret in (desk.anna, desk.anna_too):
            with pytest.raises(NeedsDecision, match="somebody else"):
                act(desk.as_anna(secret))
        act(bob)
    assert [one.name for one in desk.registry.status().models] == ["all"]
    assert "withdraw" not in desk.registry.rules.read()
    done = [line.action for line in desk.registry.access.trail(0, 100)]
    assert done.count("agree") == 6 and "set rule" in done


def test_an_agreement_counts_for_one_act_and_one_week(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, bob = desk.registry.rules, Decider(shown=desk.bob)
    with pytest.raises(OneAgreed):
        rules.set("withdraw", RequestRule(), by=desk.as_anna())
    with monkeypatch.context() as patch:
        set_clock(patch, today() + timedelta(days=8))
        with pytest.raises(OneAgreed):
            rules.set("withdraw", RequestRule(), by=bob)
        rules.set("withdraw", RequestRule(), by=desk.as_anna())
        rules.set("withdraw", TWO, by=bob)
        with pytest.raises(OneAgreed):
            rules.set("withdraw", RequestRule(), by=bob)


def test_a_second_person_comes_in_by_two(desk: Desk) -> None:
    """Whose own token counts, or for whom two others vouch."""
    access, rules = desk.registry.access, desk.registry.rules
    token, secret = access.create("carl", ["operate"], owner="carl")
    for shown in (desk.anna, desk.bob):
        with suppress(OneAgreed):
            rules.trust_token(token.id, by=Decider(shown=shown))
    assert access.find(secret).decides  # type: ignore[union-attr]
    again, _ = access.create("carl 2", ["operate"], owner="carl", shown=secret)
    assert again.decides
    desk.approve(desk.bob)
    desk.approve(secret)
    desk.registry.requests.apply()
    assert desk.stage == "completed"


@pytest.mark.parametrize("lost", ["nothing", "database", "journal"])
def test_approvals_come_back_as_they_were(
    registry: Registry, tmp_path: Path, lost: str
) -> None:
    """A backup from before the rule, and a journal that was lost, change no count."""
    folder = folder_of(registry)
    secrets = [
        registry.access.create(who, ["operate"], owner=who)[1]
        for who in ("anna", "bob", "carl")
    ]
    backup = back_up(registry, tmp_path / "backup")
    registry.rules.set("erase", TWO)
    asked = [Request((who,)) for who in (PERSON, OTHER)]
    first, second = registry.requests.accept(asked)
    anna, bob, carl = (Decider(shown=one) for one in secrets)
    registry.requests.approve(first.request, by=anna)
    for by in (bob, carl):
        registry.requests.approve(second.request, by=by)
    registry.requests.apply()
    registry.close()
    if lost == "database":
        backup.restore().close()
    elif lost == "journal":
        (folder / "journal").unlink()
        rebuild_journal(folder)
    with Registry.open(folder) as again:
        assert again.rules.read() == {"erase": TWO}
        again.requests.apply()
        stages = [again.requests.status(one.request).stage for one in asked]
        assert stages == ["accepted", "completed"]
        with pytest.raises(NeedsDecision, match="somebody else"):
            again.requests.approve(first.request, by=anna)
        again.requests.approve(first.request, by=bob)
        again.requests.apply()
        assert again.requests.status(first.request).stage == "completed"
        assert again.access.check_trail().valid


def test_a_shorter_journal_and_a_restore_change_no_count(
    sqlite_registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = sqlite_registry
    anna, bob = (
        Decider(shown=registry.access.create(who, ["operate"], owner=who)[1])
        for who in ("anna", "bob")
    )
    registry.rules.set("erase", TWO)
    (one,) = registry.requests.accept([Request((PERSON,))])
    registry.requests.approve(one.request, by=anna)
    ask(registry, "restrict", OTHER)
    set_clock(monkeypatch, today() + timedelta(days=1))
    backup = back_up(registry, tmp_path / "backup")
    registry.compact_journal(0)
    registry.close()
    with backup.restore() as again:
        assert again.rules.read() == {"erase": TWO}
        with pytest.raises(NeedsDecision, match="somebody else"):
            again.requests.approve(one.request, by=anna)
        again.requests.approve(one.request, by=bob)
        again.requests.apply()
        assert again.requests.status(one.request).stage == "completed"
