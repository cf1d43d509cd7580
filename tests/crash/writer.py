# SPDX-License-Identifier: Apache-2.0
"""The writer of stories: everything in them follows from a seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from expunge.registry import NewRows, Request
from expunge.rights.standing import Right

from .expected import Expected
from .story import APPLYING, FITS, NEW, REQUESTS, Sample, Step, Story, draw_sample

STAYING = 12
WITHOUT_ROWS: tuple[Right, ...] = (
    "erase",
    "object",
    "restrict",
    "lift",
    "hold",
    "end-hold",
)
"""Rights that bring no rows: with these alone, any backup can be restored."""
RIGHTS: tuple[Right, ...] = (*WITHOUT_ROWS, "rectify")
ASK_AGAIN = "ask again"
"""A wish, beside commands: somebody who asked before asks for something."""
ON_WAITING = ("cancel", "refuse", "extend")
LAST_DAY = "2099-12-31"
# How often people ask who are not known, where answers may tell who is.
SHARE_OF_STRANGERS = 0.3
# Of those who ask again: how many have rows left, and how many take the last step back.
SHARE_OF_HELD, SHARE_OF_RETURNS = 0.8, 0.4


class Theme(NamedTuple):
    """What stories are about.

    ``wishes`` happen beside requests of people who did not ask before: commands, or
    ``ASK_AGAIN``. ``rights`` are what people ask for; with erasure alone everybody is
    known.
    """

    wishes: Sequence[str] = ()
    rights: Sequence[Right] = ("erase",)


ERASURES = Theme()


def tell(seed: int, n_steps: int, theme: Theme = ERASURES) -> Story:
    """Return the story of a seed: requests, and some wishes of the theme among them."""
    chance, (wishes, rights) = random.Random(seed), theme
    asking = [_asking(chance, place, rights) for place in range(n_steps)]
    others = [
        chance.choice(wishes) if wishes and chance.random() < 0.5 else ""
        for _ in range(n_steps)
    ]
    steps = [step for step, other in zip(asking, others, strict=True) if not other]
    leaving = [p for step in steps for one in step.asked for p in one.subjects]
    known = [person for person in leaving if not person.startswith("nobody")]
    people = known + [f"stays-{i}" for i in range(STAYING)]
    both, first = people[::2], people[1::4]
    samples = {
        "churn": draw_sample(seed, [*both, *first]),
        "spend": draw_sample(seed + 1, [p for p in people if p not in set(first)]),
        **{
            name: draw_sample(seed + 2 + place, people[place::3])
            for place, name in enumerate(NEW)
        },
    }
    writer = _Writer(chance, samples, rights)
    for step, other in zip(asking, others, strict=True):
        writer.write(other, step)
    return Story(samples, tuple(writer.steps), four_eyes=seed % 3 == 1)


def _asking(chance: random.Random, place: int, rights: Sequence[Right]) -> Step:
    """Return a step in which people ask who did not before; rows come later."""
    plain = tuple(rights) == ("erase",)
    (how,) = chance.choices(REQUESTS, weights=(6, 1, 3) if plain else (3, 3, 4))
    n_requests = 1 if how == "forget" else chance.randint(1, 3)
    asked = []
    for i in range(n_requests):
        right = "erase" if how == "forget" else _draw_right(chance, rights)
        n_people = 1 if right == "rectify" else chance.randint(1, 3)
        people = tuple(f"asks-{place}-{i}-{j}" for j in range(n_people))
        asked.append(_request(chance, people, right))
    strange = not plain and how != "forget" and chance.random() < SHARE_OF_STRANGERS
    if strange:
        right = _draw_right(chance, rights)
        asked.append(_request(chance, (f"nobody-{place}",), right))
    twice = chance.random() < 0.25
    return Step(place, how, tuple(asked), twice=twice, strangers=strange)


def _draw_right(chance: random.Random, rights: Sequence[Right]) -> Right:
    """Return what somebody asks for; mostly what changes something."""
    useless = ("lift", "end-hold")
    return chance.choices(rights, [1 if one in useless else 4 for one in rights])[0]


def _request(chance: random.Random, people: tuple[str, ...], right: Right) -> Request:
    asked = Request(people, request=chance.randbytes(16).hex(), right=right)
    if right != "hold":
        return asked
    reason = chance.choice(("legal-claims", "legal-duty"))
    return replace(asked, reason=reason, until=LAST_DAY)


class _Writer:
    """Turns wishes into steps that are possible where they stand.

    Attributes
    ----------
    steps
        What was written so far.
    """

    def __init__(
        self,
        chance: random.Random,
        samples: Mapping[str, Sample],
        rights: Sequence[Right],
    ) -> None:
        self.steps: list[Step] = []
        self._chance = chance
        self._rights = rights
        self._now = Expected(Story(samples, ()))
        self._samples = samples
        self._new = list(NEW)
        self._asked: list[str] = []
        self._shipped: list[str] = []
        self._backed_up = False

    def write(self, wish: str, asking: Step) -> None:
        """Write a step: what is wished for, or people who ask."""
        place = asking.place
        if wish in ON_WAITING:
            step = self._on_waiting(wish, place)
        elif wish == ASK_AGAIN:
            step = self._ask_again(place, REQUESTS[1:])
        else:
            step = self._command(wish, place) if wish else asking
        step = replace(step, asked=tuple(map(self._with_rows, step.asked)))
        self._asked += [person for one in step.asked for person in one.subjects]
        waiting = [*self._now.waiting, *step.asked]
        comes = step.how in (*FITS, "add")
        if step.how in APPLYING:
            comes = any(one.right == "rectify" for one in waiting)
        if comes or any(one.rows for one in step.asked):
            self._backed_up = False  # rows that come are in no backup from before
        self._now.take(step)
        self.steps.append(step)

    def _on_waiting(self, how: str, place: int) -> Step:
        """Return a command about a request that waits, or let somebody ask."""
        waiting = [
            one.request
            for one in self._now.waiting
            if how != "extend" or one.request not in self._now.extended
        ]
        if not waiting:
            return self._ask_again(place, ("accept",))
        reasons = {
            "cancel": ("",),
            "refuse": ("legal-duty", "unfounded"),
            "extend": ("complex", "many"),
        }[how]
        return Step(
            place,
            how,
            request=self._chance.choice(waiting),
            reason=self._chance.choice(reasons),
        )

    def _ask_again(self, place: int, ways: Sequence[str]) -> Step:
        """Let people who asked before ask for anything, most of those with rows."""
        known = list(dict.fromkeys(self._asked))
        held = [person for person in known if self._now.models_of(person)]
        if held and self._chance.random() < SHARE_OF_HELD:
            known = held
        if not known:
            return Step(place, "look")
        people = self._chance.sample(known, k=min(2, len(known)))
        asked = tuple(
            _request(self._chance, (person,), self._wanted(person)) for person in people
        )
        return Step(place, self._chance.choice(ways), asked, strangers=True)

    def _wanted(self, person: str) -> Right:
        """Return what somebody asks for who asked before."""
        places = {
            there[person].place for there in self._now.apart.values() if person in there
        }
        fitting = {"restricted": "lift", "held": "end-hold"}
        likely = [one for one in self._rights if one in map(fitting.get, places)]
        if likely and self._chance.random() < SHARE_OF_RETURNS:
            return likely[0]
        return self._chance.choice(self._rights)

    def _with_rows(self, one: Request) -> Request:
        """Return a request with the rows that it brings, of models that are there."""
        if one.right != "rectify":
            return one
        (person,) = one.subjects
        there = sorted(self._now.models_of(person) & self._now.rows.keys())
        if not there:
            there = sorted(self._now.rows)
        models = there if self._chance.random() < 0.5 else [self._chance.choice(there)]
        rows = {}
        for name in models:
            new = self._draw([person])
            rows[name] = NewRows(new.X, new.y)
        return replace(one, rows=rows)

    def _draw(self, people: Sequence[str]) -> Sample:
        return draw_sample(self._chance.randrange(1 << 30), people)

    def _command(self, how: str, place: int) -> Step:
        """Return a command, or what has to come before it."""
        models = list(self._now.rows)
        # Those who ask are in one of the first models, so that these stay.
        later = [name for name in models if name in NEW]
        busy = {person for one in self._now.waiting for person in one.subjects}
        gone = sorted(self._now.forgotten - busy)
        if how == "remove" and not later:
            how = "fit"
        if how == "fit" and not self._new:
            how = "refit"
        if how == "restore" and not self._backed_up:
            how = "back up"
        if how == "withdraw" and not self._shipped:
            how = "ship"
        if how == "readmit" and not gone:
            how = "look"
        model = self._chance.choice(later if how == "remove" else models)
        people: tuple[str, ...] = ()
        rows = Step.rows
        if how in FITS:
            model = self._new.pop(0) if how == "fit" else model
            owners = dict.fromkeys(self._samples[model].owners)
            out = busy | self._now.kept_out
            people = tuple(person for person in owners if person not in out)
        elif how == "add":
            there = [one for one in self._now.rows[model] if one.startswith("stays")]
            rows = self._draw([f"new-{place}", self._chance.choice(there)])
        elif how == "readmit":
            people = (self._chance.choice(gone),)
        elif how == "ship":
            self._shipped.append(model)
        elif how == "withdraw":
            model = self._shipped[-1]
        elif how == "back up":
            self._backed_up = True
        return Step(place, how, model=model, people=people, rows=rows)
