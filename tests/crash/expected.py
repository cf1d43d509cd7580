# SPDX-License-Identifier: Apache-2.0
"""Expected: what a story comes to, by the rules of docs/rights.md and nothing else.

An oracle that asked the package for its rules would agree with whatever they say.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from expunge.registry import Request

from .story import APPLYING, FIRST, FITS, Sample, Step, Story, as_sample, join_samples

DONE, NOTHING = ("done", ""), ("nothing found", "")
HELD = "hold"
# A person who asked for one of these is kept out of fits, until readmitted.
FOR_GOOD = ("erase", "object", "hold")


@dataclass(frozen=True)
class Apart:
    """Rows of a person that are sealed apart.

    ``fit`` is which fit of the model they belong to; ``reason`` and ``until`` are those
    of a hold.
    """

    place: str
    rows: Sample
    fit: int
    reason: str = ""
    until: str = ""


@dataclass(frozen=True)
class Answer:
    """What a request must be answered with.

    ``retained`` says why rows of its people are kept sealed after it, and until when.
    """

    outcome: str
    reason: str = ""
    retained: tuple[str, str] = ("", "")


class Expected:
    """What a registry must have come to after the steps of a story, in order.

    Attributes
    ----------
    rows
        By model and person, the rows in use.
    apart
        By model and person, the rows that are sealed apart.
    answers
        For each request that was answered, how.
    changed
        For each of these, the models whose newest release its receipt names.
    removed
        Models that were removed.
    extended
        For each request whose deadline was extended, why.
    waiting
        Requests that wait.
    """

    def __init__(self, story: Story) -> None:
        self._story = story
        begun = [name for name in FIRST if name in story.samples]
        self.rows = {name: story.samples[name].by_owner() for name in begun}
        self.apart: dict[str, dict[str, Apart]] = {}
        self.answers: dict[str, Answer] = {}
        self.changed: dict[str, set[str]] = {}
        self.removed: set[str] = set()
        self.extended: dict[str, str] = {}
        self.waiting: list[Request] = []
        self._fits = dict.fromkeys(begun, 1)
        self._out_for_good: set[str] = set()
        self._out_while_restricted: set[str] = set()
        for step in story.steps:
            self.take(step)
        self._apply(self.waiting)

    @property
    def people(self) -> dict[str, set[str]]:
        """Who is in each model."""
        return {name: {*there} for name, there in self.rows.items()}

    @property
    def kept_out(self) -> set[str]:
        """Who is refused by a fit."""
        return self._out_for_good | self._out_while_restricted

    @property
    def forgotten(self) -> set[str]:
        """Who is kept out, and of whom no row is left."""
        return {one for one in self.kept_out if not self.models_of(one)}

    def models_of(self, person: str) -> set[str]:
        """Return the models that have rows of a person, in use or sealed apart."""
        in_use = {name for name, there in self.rows.items() if person in there}
        return in_use | {name for name, there in self.apart.items() if person in there}

    def left_rows(self) -> list[Sample]:
        """Return all rows that are kept."""
        in_use = [rows for there in self.rows.values() for rows in there.values()]
        return in_use + [
            one.rows for there in self.apart.values() for one in there.values()
        ]

    def take(self, step: Step) -> None:
        """Take in one step."""
        self.waiting += step.asked
        if step.how == "forget":
            self._apply(self._own(step.asked))
        elif step.how in APPLYING:
            self._apply(self.waiting)
        elif step.how in FITS:
            sample = self._story.samples[step.model].of(step.people)
            self.rows[step.model] = sample.by_owner()
            self._fits[step.model] = self._fits.get(step.model, 0) + 1
        elif step.how == "add":
            there = self.rows[step.model]
            for person, new in step.rows.by_owner().items():
                there[person] = join_samples(
                    [there[person], new] if person in there else [new]
                )
        elif step.how == "remove":
            del self.rows[step.model]
            self.removed.add(step.model)
        elif step.how == "readmit":
            self._out_for_good -= {*step.people}
            self._out_while_restricted -= {*step.people}
        elif step.how in ("cancel", "refuse"):
            self.waiting = [one for one in self.waiting if one.request != step.request]
            if step.how == "refuse":
                self.answers[step.request] = Answer("refused", step.reason)
                self.changed[step.request] = set()
        elif step.how == "extend":
            self.extended[step.request] = step.reason

    def _own(self, asked: Sequence[Request]) -> list[Request]:
        """Return these requests, and what the same people asked for before them."""
        ids = {one.request for one in asked}
        about: set[str] = set()
        own: list[Request] = []
        for one in reversed(self.waiting):
            if one.request in ids or not about.isdisjoint(one.subjects):
                about |= {*one.subjects}
                own.insert(0, one)
        return own

    def _apply(self, chosen: Sequence[Request]) -> None:
        """Settle what is chosen, in order; only the difference changes models."""
        before = {name: {**there} for name, there in self.rows.items()}
        for one in chosen:
            started = {name: {**there} for name, there in self.rows.items()}
            judged = [self._settle(one, person) for person in one.subjects]
            outcome, reason = _joined(judged)
            self.answers[one.request] = Answer(
                outcome, reason, self._retained(one.subjects)
            )
            self.changed[one.request] = self._differing(started)
            if outcome != "refused":
                self._keep_out(one)
        released = self._differing(before)
        for one in chosen:
            self.changed[one.request] &= released
        done = {one.request for one in chosen}
        self.waiting = [one for one in self.waiting if one.request not in done]

    def _differing(self, before: dict[str, dict[str, Sample]]) -> set[str]:
        """Return the models whose rows in use are not those from before."""
        return {
            name
            for name, there in self.rows.items()
            if there.keys() != before[name].keys()
            or any(there[one] is not before[name][one] for one in there)
        }

    def _keep_out(self, one: Request) -> None:
        if one.right in FOR_GOOD:
            self._out_for_good |= {*one.subjects}
        elif one.right == "restrict":
            self._out_while_restricted |= {*one.subjects}
        elif one.right == "lift":
            self._out_while_restricted -= {*one.subjects}

    def _settle(self, one: Request, person: str) -> tuple[str, str]:
        """Move the rows of a person; return outcome and reason."""
        models = self.models_of(person)
        if one.right == "rectify":
            models &= one.rows.keys()
        if not models:
            return NOTHING
        held = any(self._is_apart(name, person, "held") for name in models)
        restricted = any(self._is_apart(name, person, "restricted") for name in models)
        match one.right:
            case "erase" | "object":
                for name in models:
                    self.rows.get(name, {}).pop(person, None)
                    if self._is_apart(name, person, "restricted"):
                        del self.apart[name][person]
                return ("partly", HELD) if held else DONE
            case "rectify" | "lift" if held:
                return "refused", HELD
            case "rectify":
                self._rectify(one, person, models)
            case "lift":
                if not restricted:
                    return "refused", "not-restricted"
                return self._lift(person, models)
            case "restrict":
                self._set_aside(one, person, "restricted")
            case "hold":
                self._set_aside(one, person, "held")
            case "end-hold":
                if not held:
                    return "refused", "not-held"
                for name in models:
                    del self.apart[name][person]
        return DONE

    def _is_apart(self, name: str, person: str, place: str) -> bool:
        found = self.apart.get(name, {}).get(person)
        return found is not None and found.place == place

    def _rectify(self, one: Request, person: str, models: Iterable[str]) -> None:
        for name in models:
            new = as_sample(one.rows[name], person)
            if person in self.rows.get(name, {}):
                self.rows[name][person] = new
            else:
                old = self.apart[name][person]
                self.apart[name][person] = Apart(old.place, new, old.fit)

    def _lift(self, person: str, models: Iterable[str]) -> tuple[str, str]:
        """Put restricted rows back, where their model was not fitted again."""
        outcome = DONE
        for name in models:
            if person not in self.apart.get(name, {}):
                continue
            one = self.apart[name].pop(person)
            if name in self.rows and self._fits[name] == one.fit:
                self.rows[name][person] = one.rows
            else:
                outcome = ("partly", "fitted-again")
        return outcome

    def _set_aside(self, one: Request, person: str, place: str) -> None:
        until = str(one.until)
        for name, there in self.rows.items():
            if person in there:
                self.apart.setdefault(name, {})[person] = Apart(
                    place, there.pop(person), self._fits[name], one.reason, until
                )
        if place == "restricted":
            return  # what is sealed apart stays as it is
        for apart in self.apart.values():
            if person in apart:
                was = apart[person]
                apart[person] = Apart(place, was.rows, was.fit, one.reason, until)

    def _retained(self, people: Sequence[str]) -> tuple[str, str]:
        kept = [
            there[person]
            for there in self.apart.values()
            for person in people
            if person in there
        ]
        for one in kept:
            if one.place == "held":
                return one.reason, one.until
        return ("restriction", "") if kept else ("", "")


def _joined(judged: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return what became of a request about several people.

    Those of whom nothing is held do not matter beside others.
    """
    found = {one for one in judged if one != NOTHING}
    if not found:
        return NOTHING
    if len(found) == 1:
        return found.pop()
    return "partly", next(reason for _, reason in sorted(found) if reason)
