# SPDX-License-Identifier: Apache-2.0
"""Standing: where a person's rows are, and where each right moves them.

    in use       a model has learnt from them
    restricted   sealed apart, and no release contains them, until the person lifts it
    held         sealed apart for a stated reason, and erased on the day that this ends
    gone         erased

A request moves the rows of each person by one table. What it says of rows that are
already sealed apart are the rules for conflicts:

    erase while restricted     the sealed rows are erased too
    erase while held           models forget, the sealed rows stay until the hold ends:
                               the outcome is "partly", for the reason "hold"
    rectify while restricted   the sealed rows are replaced, and stay sealed
    rectify, lift while held   refused: what is kept as evidence must not change
    restrict while held        nothing is left to restrict: done
    hold while restricted      the sealed rows are held, and a lift is refused from then

A hold, and its end, are acts of the controller and not rights of the person. They are
requests like the others here, since they move rows in the same way.

Requests that wait together are settled in the order in which they were accepted. All of
this is pure: what it means for models and files is the registry's business.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from ..exceptions import InvalidInput

Right: TypeAlias = Literal[
    "erase", "rectify", "restrict", "lift", "object", "hold", "end-hold"
]
Place: TypeAlias = Literal["in use", "restricted", "held", "gone"]
Outcome: TypeAlias = Literal["done", "nothing found", "partly", "refused"]

RIGHTS: tuple[Right, ...] = get_args(Right)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

MOVES: Mapping[Right, Mapping[Place, Place]] = {
    "erase": {"in use": "gone", "restricted": "gone"},
    "object": {"in use": "gone", "restricted": "gone"},
    "restrict": {"in use": "restricted"},
    "lift": {"restricted": "in use"},
    "hold": {"in use": "held", "restricted": "held"},
    "end-hold": {"held": "gone"},
    "rectify": {},
}
"""Where each right moves rows; they stay at any other place."""

REASONS: Mapping[str, str] = {
    "": "",
    "hold": "rows of the person are kept sealed under a legal hold",
    "not-restricted": "nothing of the person was restricted",
    "not-held": "nothing of the person was held",
    "fitted-again": "the model was fitted again since; add the rows to it yourself",
    "legal-duty": "a legal duty requires the processing",
    "public-interest": "the processing is in the public interest",
    "research": "the processing is for research or statistics",
    "legal-claims": "the data are needed for legal claims",
    "unidentified": "the person could not be identified",
    "unfounded": "the request was manifestly unfounded or excessive",
    "not-applicable": "the law that the request refers to gives no such right here",
}
"""Codes of reasons, each in words. They are public, so they say nothing of a person."""

RIGHT_WORDS: Mapping[str, str] = {
    "hold": "hold, an act of the controller",
    "end-hold": "end of a hold, an act of the controller",
}
"""What is asked for that is no right of the person."""
OUTCOME_WORDS: Mapping[str, str] = {
    "nothing found": "we found nothing under what you gave us"
}
"""Outcomes that are said in other words than their code."""

KEPT_OUT: tuple[Right, ...] = ("erase", "object", "restrict", "hold")
"""Rights that keep people out of later fits."""
BY_OPERATOR = tuple(REASONS)[5:]
"""Reasons for which an operator refuses a request."""
FOR_HOLDS = ("legal-claims", "legal-duty", "public-interest", "research")
"""Reasons for which rows may be held."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a request: its outcome, with the code of a reason."""

    outcome: Outcome
    reason: str = ""


def describe_outcome(outcome: str, reason: str) -> str:
    """Return what became of a request, with the words for the code of the reason."""
    said = OUTCOME_WORDS.get(outcome, outcome)
    return f"{said} ({REASONS[reason]})" if reason else said


DONE, NOTHING_FOUND = Judgement("done"), Judgement("nothing found")


def require_right(right: object) -> Right:
    """Return the name of a right; refuse any other word."""
    for known in RIGHTS:
        if right == known:
            return known
    raise InvalidInput(f"right={right!r}; give one of {', '.join(RIGHTS)}")


def move_rows(right: Right, place: Place) -> Place:
    """Return where rows are after a request."""
    return MOVES[right].get(place, place)


def judge(right: Right, places: Iterable[Place]) -> Judgement:
    """Return what a request means for a person with rows at these places before it."""
    there = set(places) - {"gone"}
    if not there:
        return NOTHING_FOUND
    if right in ("erase", "object"):
        return Judgement("partly", "hold") if "held" in there else DONE
    if right == "rectify":
        if "held" not in there:
            return DONE
        return Judgement("partly" if len(there) > 1 else "refused", "hold")
    if right == "lift":
        if "restricted" in there:
            return DONE
        return Judgement("refused", "hold" if "held" in there else "not-restricted")
    if right == "end-hold" and "held" not in there:
        return Judgement("refused", "not-held")
    return DONE


def must_follow(right: str, earlier: Iterable[str]) -> bool:
    """Return whether a request must wait for earlier ones about the same person.

    An erasure ends in the same place whatever comes before it, except that a hold keeps
    the rows.
    """
    return right not in ("erase", "object") or "hold" in earlier


def forgets(right: str, outcome: str) -> bool:
    """Return whether nothing of a person is kept after such an answer."""
    asked = right in ("erase", "object", "end-hold")
    return asked and outcome in ("done", "nothing found")


def join_judgements(judgements: Sequence[Judgement]) -> Judgement:
    """Return what became of a request that is about several people.

    Those of whom nothing is held do not matter beside others.
    """
    found = [one for one in judgements if one != NOTHING_FOUND]
    if not found:
        return NOTHING_FOUND
    reason = next((one.reason for one in found if one.reason), "")
    outcomes = {one.outcome for one in found}
    return Judgement(outcomes.pop() if len(outcomes) == 1 else "partly", reason)
