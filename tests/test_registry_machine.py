# SPDX-License-Identifier: Apache-2.0
"""Whatever happens in whatever order, a registry does what a few sets would do.

Hypothesis sends requests, again and altered, applies them, gives people aliases,
restarts, rotates keys, ships, refits, crashes at many places, and restores backups.
After each step the registry must agree with a model of it that fits on a page.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from expunge.exceptions import (
    InvalidInput,
    NeedsDecision,
    RequestConflict,
    UnknownRequest,
    UnknownSubject,
)
from expunge.ledger import RequestCompleted, check_export
from expunge.linear_model.base import private_model
from expunge.registry import Decider, Registry, Request, RequestRule
from expunge.rights import Identifier
from expunge.rights.standing import Right
from tests.registries import (
    Crash,
    accepted_in_journal,
    estimator,
    journal_of,
    perhaps_crashing_at,
    private_model_of,
)
from tests.thorough import either

N = 12
STAY = (0, 1)  # nobody asks for these: a model needs a row of each class

rng = np.random.default_rng(0)
X = rng.standard_normal((N, 2))
Y = np.arange(N) % 2


POINTS = (
    "writing the journal",
    "writing to the database",
    "erasing",
    "writing keys",
    "writing a checkpoint",
    "destroying keys",
)
Place = tuple[str, bool, int]


def crashes(n_places: int, n_calls: int) -> st.SearchStrategy[Place | None]:
    """Draw where a step crashes, if it does: which of the first calls, and when."""
    which = st.sampled_from(POINTS[:n_places])
    return st.none() | st.tuples(which, st.booleans(), st.integers(1, n_calls))


def crashing(place: Place | None) -> AbstractContextManager[None]:
    """Crash before or after a point, at the first time or later."""
    if place is None:
        return nullcontext()
    point, after, nth = place
    return perhaps_crashing_at(point, after=after, nth=nth)


def small_model(**changes: Any) -> Any:
    """Return an estimator that can do with a few rows."""
    return estimator(alpha=0.2, penalize_intercept=True, **changes)


def alias(person: int) -> Identifier:
    """Return what a person is known by elsewhere."""
    return Identifier("email", f"{person}@example.org")


people_asked = st.sets(st.integers(2, N - 1), min_size=1, max_size=3).map(frozenset)


class RegistryMachine(RuleBasedStateMachine):
    """A registry and what it should be: who was fitted, who asked, what was said."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="expunge-machine-"))
        self.folder, self.backup = self.place / "registry", self.place / "backup"
        self.fitted: dict[str, frozenset[int]] = {}
        self.asked: dict[str, frozenset[int]] = {}  # accepted, whatever became of them
        self.owed: list[Request] = []  # a crash left them in the journal alone
        self.receipts: dict[str, str] = {}
        self.shipped: dict[tuple[str, int], int] = {}
        self.withdrawn: set[tuple[str, int]] = set()
        self.named: set[int] = set()  # who was given an alias, whatever became of them
        self.named_before: set[int] = set()  # by the time of the backup
        self.restorable = False
        self.n_requests = 0
        self.registry = Registry.create(self.folder)
        create = self.registry.access.create
        self.secrets = {
            who: create(who, ["operate"], owner=who)[1] for who in ("ada", "bob")
        }
        self.registry.rules.set("object", RequestRule(four_eyes=True))
        self.approved: dict[str, set[str]] = {}  # by request that wants two people
        self.idle: set[str] = set()  # their operator lets them wait
        for name, size in (("a", N), ("b", N // 2)):
            self.fit(self.registry.fit, name, range(size))
        self.restart_and_take_backup()

    def teardown(self) -> None:
        self.apply()
        for name in self.fitted:
            left = sorted(self.members(name))
            oracle = small_model(budget=None).fit(X[left], Y[left])
            private = private_model_of(self.registry, name)
            theirs = private_model(oracle).answer.draft.theta
            gap = private.answer.draft.theta - theirs
            assert np.linalg.norm(gap) <= private.answer.radius.value
        self.registry.close()
        shutil.rmtree(self.place)

    # What must be so.

    def stages(self) -> dict[str, str]:
        for one in [*self.owed]:
            with suppress(UnknownRequest):
                self.registry.requests.status(one.request)
                self.owed.remove(one)
                self.note(one)
        return {one: self.registry.requests.status(one).stage for one in self.asked}

    def forgotten(self) -> set[int]:
        stages = self.stages()
        done = [self.asked[one] for one in self.asked if stages[one] != "accepted"]
        return set().union(*done)

    def members(self, name: str) -> set[int]:
        return set(self.fitted[name]) - self.forgotten()

    @invariant()
    def people_are_where_they_should_be(self) -> None:
        held = {name: self.members(name) for name in self.fitted}
        expected = {
            str(one): tuple(sorted(name for name in held if one in held[name]))
            for one in range(N)
        }
        assert self.registry.requests.find_models(range(N)) == expected
        counts = {one.name: one.n_people for one in self.registry.status().models}
        assert counts == {name: len(held[name]) for name in held}

    @invariant()
    def aliases_lead_to_those_who_are_not_forgotten(self) -> None:
        expected = {alias(one): str(one) for one in self.named - self.forgotten()}
        assert self.registry.aliases.find(map(alias, range(N))) == expected
        assert self.registry.aliases.count() == len(expected)

    @invariant()
    def requests_wait_or_have_one_receipt(self) -> None:
        stages = self.stages()
        status = self.registry.status()
        waiting = {one.request for one in status.pending}
        assert waiting == {one for one in stages if stages[one] != "completed"}
        assert status.n_requests == len(stages)
        for request, receipt in self.receipts.items():
            assert self.registry.requests.receipt(request) == receipt
        log = self.registry.ledger.entries()
        done = [entry.request for entry in log if isinstance(entry, RequestCompleted)]
        assert sorted(done) == sorted(set(stages) - waiting)

    @invariant()
    def nothing_is_applied_before_two_approve(self) -> None:
        for request, people in self.approved.items():
            status = self.registry.requests.status(request)
            made = self.registry.requests.decisions(request)
            assert {one.person for one in made if one.step == "approval"} == people
            assert status.stage == "accepted" or len(people) == len(self.secrets)
            assert bool(status.missing) == (len(people) < len(self.secrets))
        for request in self.idle:
            assert self.registry.requests.status(request).stage == "accepted"

    @invariant()
    def the_ledger_stands(self) -> None:
        verdict = check_export(
            self.registry.ledger.export(), self.registry.keys.public_pem()
        )
        assert verdict.valid, verdict.says

    @invariant()
    def what_left_is_known(self) -> None:
        status = self.registry.status()
        newest = {one.name: one.number for one in status.models}
        expected = {
            pair: times
            for pair, times in self.shipped.items()
            if pair[1] < newest[pair[0]] and pair not in self.withdrawn
        }
        out = {(one.model, one.number): len(one.shipped) for one in status.outstanding}
        assert out == expected

    # Steps on the way.

    def settle(self) -> None:
        """Take down the receipts of whatever is completed by now."""
        for request, stage in self.stages().items():
            if stage == "completed" and request not in self.receipts:
                receipt = self.registry.requests.receipt(request)
                assert receipt is not None
                self.receipts[request] = receipt

    def drawn(self, wanted: frozenset[int]) -> list[Request]:
        """Return a new request about people who are there; none if nobody is left."""
        self.n_requests += 1
        there = {one for name in self.fitted for one in self.members(name)}
        people = sorted(wanted & there) or sorted(there - {*STAY})[:1]
        if not people:
            return []
        return [Request(tuple(map(str, people)), f"{self.n_requests:032x}")]

    def fit(self, how: Callable[..., object], name: str, people: Sequence[int]) -> None:
        rows, words = list(people), [str(one) for one in people]
        how(name, small_model(), X[rows], Y[rows], subjects=words)
        self.fitted[name] = frozenset(people)

    def note(self, asked: Request) -> None:
        self.asked[asked.request] = frozenset(map(int, asked.subjects))

    def after_crash(self, asked: Sequence[Request] = ()) -> None:
        """Come back; a request that was under way is owed if the journal has it."""
        self.registry.close()
        self.registry = Registry.open(self.folder)
        written = accepted_in_journal(self.registry)
        self.owed += [one for one in asked if one.request in written]
        self.settle()

    # What may happen.

    @rule(
        wanted=st.lists(people_asked, min_size=1, max_size=3),
        place=crashes(n_places=2, n_calls=1),
    )
    def accept(self, wanted: list[frozenset[int]], place: Place | None) -> None:
        asked = [one for people in wanted for one in self.drawn(people)]
        try:
            with crashing(place):
                answers = self.registry.requests.accept(asked)
        except Crash:
            self.after_crash(asked)
        else:
            assert {answer.stage for answer in answers} <= {"accepted"}
            for one in asked:
                self.note(one)

    @rule(wanted=people_asked, place=crashes(n_places=6, n_calls=3))
    def forget(self, wanted: frozenset[int], place: Place | None) -> None:
        for asked in self.drawn(wanted):
            try:
                with crashing(place):
                    receipt = self.registry.forget(asked.subjects, asked.request)
            except Crash:
                self.after_crash([asked])
            else:
                self.receipts[asked.request] = receipt
                self.note(asked)
        self.settle()

    @rule(
        wanted=people_asked,
        two=st.booleans(),
        idle=st.booleans(),
        place=crashes(n_places=2, n_calls=2),
    )
    def ask_with_time_to_think(
        self, wanted: frozenset[int], two: bool, idle: bool, place: Place | None
    ) -> None:
        for asked in self.drawn(wanted):
            one = replace(asked, right="object" if two else "erase")
            self.registry.requests.accept([one])
            self.note(one)
            if two:
                self.approved[one.request] = set()
            if not idle:
                continue
            try:
                with crashing(place):
                    self.registry.requests.wait(one.request)
            except Crash:
                self.after_crash()
                self.registry.requests.wait(one.request)
            self.idle.add(one.request)

    def still_wanting(self, who: str) -> list[str]:
        return sorted(one for one, people in self.approved.items() if who not in people)

    @precondition(lambda self: self.still_wanting("ada") or self.still_wanting("bob"))
    @rule(
        data=st.data(),
        who=st.sampled_from(["ada", "bob"]),
        place=crashes(n_places=2, n_calls=1),
    )
    def approve(self, data: st.DataObject, who: str, place: Place | None) -> None:
        left = self.still_wanting(who)
        if not left:
            return
        request = data.draw(st.sampled_from(left))
        by = Decider(shown=self.secrets[who])
        try:
            with crashing(place):
                self.registry.requests.approve(request, by=by)
        except Crash:
            self.after_crash()
            with suppress(NeedsDecision, RequestConflict):  # the journal may have it
                self.registry.requests.approve(request, by=by)
        self.approved[request].add(who)
        with pytest.raises((NeedsDecision, RequestConflict)):
            self.registry.requests.approve(request, by=by)

    @rule()
    def apply(self) -> None:
        for request in self.idle:
            self.registry.requests.proceed(request)
        self.idle.clear()
        for who, secret in self.secrets.items():
            for request in self.still_wanting(who):
                self.registry.requests.approve(request, by=Decider(shown=secret))
                self.approved[request].add(who)
        self.registry.requests.apply()
        assert set(self.stages().values()) <= {"completed"}
        assert self.owed == []
        self.settle()

    @rule(
        name=st.sampled_from(
            ["requests.apply", "keys.rotate_signing_key", "keys.rotate_tag_key"]
        ),
        place=crashes(n_places=6, n_calls=3),
    )
    def work(self, name: str, place: Place | None) -> None:
        try:
            with crashing(place):
                attrgetter(name)(self.registry)()
        except Crash:
            self.after_crash()
        self.settle()

    @rule(wanted=people_asked, place=crashes(n_places=2, n_calls=2))
    def give_aliases(self, wanted: frozenset[int], place: Place | None) -> None:
        try:
            with crashing(place):
                self.registry.aliases.add([(one, alias(one)) for one in wanted])
        except Crash:
            self.after_crash()
            found = self.registry.aliases.find(map(alias, wanted))
            if not found.keys() >= {alias(one) for one in wanted - self.forgotten()}:
                self.settle()
                return  # none of them: what must be so is checked next
        self.named |= wanted
        self.settle()

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), other=people_asked)
    def send_again(self, data: st.DataObject, other: frozenset[int]) -> None:
        request = data.draw(st.sampled_from(sorted(self.asked)))
        subjects = tuple(map(str, sorted(self.asked[request], reverse=True)))
        before = self.registry.requests.status(request)
        right: Right = "object" if request in self.approved else "erase"
        again = Request(subjects, request, right=right)
        assert self.registry.requests.accept([again]) == (before,)
        if request in self.receipts and right == "erase":
            assert self.registry.forget(subjects, request) == self.receipts[request]
        if other != self.asked[request]:
            with pytest.raises(InvalidInput, match="something else"):
                self.registry.forget(map(str, other), request)

    @rule(wanted=people_asked)
    def ask_for_strangers(self, wanted: frozenset[int]) -> None:
        asked = Request((*map(str, wanted), "stranger"), "f" * 32)
        with pytest.raises(UnknownSubject):
            self.registry.requests.accept([asked])
        with pytest.raises(UnknownRequest):
            self.registry.requests.status(asked.request)

    @rule(name=st.sampled_from("ab"), place=crashes(n_places=2, n_calls=1))
    def ship(self, name: str, place: Place | None) -> None:
        models = {one.name: one for one in self.registry.status().models}
        number, before = models[name].number, self.said("shipped")
        try:
            with crashing(place):
                self.registry.models.ship(name, self.place / "m.safetensors")
        except Crash:
            self.after_crash()
            self.apply()  # takes in what only the journal has
        if self.said("shipped") > before:
            self.shipped[name, number] = self.shipped.get((name, number), 0) + 1
            self.withdrawn.discard((name, number))  # it is out there again

    def said(self, what: str) -> int:
        """Return how many lines of the journal are about something."""
        return sum(what in line for line in journal_of(self.registry))

    @precondition(lambda self: self.shipped)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(sorted(self.shipped)))
        self.registry.models.withdraw(*pair)
        self.withdrawn.add(pair)

    @rule(wanted=people_asked, place=crashes(n_places=6, n_calls=3))
    def refit(self, wanted: frozenset[int], place: Place | None) -> None:
        # Nobody who was forgotten is fitted again.
        before, after = self.fitted["b"], {*STAY, *wanted} - self.forgotten()
        try:
            with crashing(place):
                self.fit(self.registry.models.refit, "b", sorted(after))
        except Crash:
            self.after_crash()
            known = self.registry.requests.find_models(range(N))
            held = {int(one) for one, names in known.items() if "b" in names}
            for whole in (before, frozenset(after)):
                if held == whole - self.forgotten():
                    self.fitted["b"] = whole
        self.settle()
        self.restorable = False  # rows that a backup has not cannot come back

    @rule()
    def restart_and_take_backup(self) -> None:
        self.registry.close()
        shutil.rmtree(self.backup, ignore_errors=True)
        shutil.copytree(self.folder, self.backup)
        self.registry = Registry.open(self.folder)
        self.named_before = set(self.named)
        self.restorable = True

    @precondition(lambda self: self.restorable)
    @rule(place=crashes(n_places=6, n_calls=3), twice=st.booleans())
    def restore(self, place: Place | None, twice: bool) -> None:
        self.registry.close()
        for path in self.folder.glob("expunge.db*"):
            path.unlink()
        try:
            with crashing(place):
                self.registry = Registry.restore(self.folder, self.backup)
        except Crash:
            self.registry = Registry.restore(self.folder, self.backup)
        if twice:
            self.registry.close()
            self.registry = Registry.restore(self.folder, self.backup)
        self.named = set(self.named_before)
        self.settle()


TestRegistryMachine = RegistryMachine.TestCase
TestRegistryMachine.settings = settings(
    max_examples=either(4, thorough=20),
    stateful_step_count=25,
    deadline=None,
    phases=[Phase.generate],  # every step is on disk: shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
