# SPDX-License-Identifier: Apache-2.0
"""Decisions: what operators must decide before a request is applied, and what they did.

    received -> identity checked -> approved, by one or by two -> applied

A *rule* says for each right which of these steps a request passes, and after how many
days of grace it is applied. It belongs to the requests that come while it holds: what
they want is written down with them. Some acts that no request asks for can want two
people as well: to retire a model, to state that a release was taken back, to loosen a
rule that wants two, and to let a new token count.

A decision is a line of the log, and a line of the trail with it. It says who decided,
and which person vouches for it: the owner of the token that was shown. Two people are
two owners that have no name in common; a token without an owner vouches for nobody.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import combinations
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from ..exceptions import InvalidInput
from ..ledger.documents import DAY
from ..rights.identifiers import loosest
from ..rights.standing import RIGHTS, Right
from .log import Content
from .now import now
from .request import ACCEPTED, find_requests, requests
from .storage.tables import decisions, read_metadata, tokens, write_metadata
from .trail import Note, append_notes

RULES = "rules"  # in the table ``metadata``
REMOVE, WITHDRAW = "remove", "withdraw"
ACTS = (REMOVE, WITHDRAW)
"""What a rule may be for beside rights: to retire a model, to take a release back."""
AS_ERASE: tuple[Right, ...] = ("object", "hold")
"""Rights that make models forget as an erasure does: where that wants two, so do they.
"""
IDENTITY, APPROVAL, AGREE = "identity", "approval", "agree"
WAITS, GO_ON = "wait", "go on"
TWO, SECOND = "two approvals", "a second approval"
# How the trail says each.
ACTIONS = {
    IDENTITY: "check identity",
    APPROVAL: "approve request",
    WAITS: "let request wait",
    GO_ON: "let request go on",
    AGREE: "agree",
}
AGREED = 7 * DAY  # how long it counts that somebody agrees to an act
METHODS = ("account", "message", "document", "in-person", "sender")
"""How somebody's identity was checked: codes that say nothing of them."""


@dataclass(frozen=True, slots=True)
class RequestRule:
    """What requests for a right pass before they are applied.

    Parameters
    ----------
    identity
        Whether an operator must have checked who asks.
    approval
        Whether an operator must approve it.
    four_eyes
        Whether two different people must approve it.
    grace_days
        After how many days it is applied; until then it can be taken back.
    """

    identity: bool = False
    approval: bool = False
    four_eyes: bool = False
    grace_days: int = 0

    @property
    def steps(self) -> str:
        """What a request wants, as it is written down with it."""
        approval = TWO if self.four_eyes else APPROVAL if self.approval else ""
        return ", ".join(filter(None, (IDENTITY * self.identity, approval)))


NO_RULE = RequestRule()
Rules = Mapping[str, RequestRule]


def read_rules(connection: Connection) -> dict[str, RequestRule]:
    """Return the rules of each right and act that has one."""
    text = read_metadata(connection, RULES).partition(" ")[2]
    return {name: RequestRule(**one) for name, one in json.loads(text or "{}").items()}


def find_rule(rules: Rules, right: str) -> RequestRule:
    """Return the rule of a right or an act."""
    own, erase = rules.get(right, NO_RULE), rules.get("erase", NO_RULE)
    if right in AS_ERASE and erase.four_eyes:
        return RequestRule(own.identity, own.approval, True, own.grace_days)
    return own


def any_two(rules: Rules) -> bool:
    """Return whether anything wants two people."""
    return any(one.four_eyes for one in rules.values())


def rules_line(
    connection: Connection, rules: Rules, *, note: Note, time: int
) -> Content:
    """Return the line that puts rules in place of those that hold."""
    serial = int(read_metadata(connection, RULES, default="0").partition(" ")[0]) + 1
    said = {name: asdict(one) for name, one in rules.items() if one != NO_RULE}
    return {RULES: {"serial": serial, "of": said, "note": note, "time": time}}


def write_rules(connection: Connection, said: Mapping[str, Any]) -> None:
    """Put rules in place, unless they or later ones are there."""
    before = int(read_metadata(connection, RULES, default="0").partition(" ")[0])
    if said["serial"] <= before:
        return
    value = f"{said['serial']:012d} {json.dumps(said['of'], sort_keys=True)}"
    write_metadata(connection, RULES, value=value)
    note = Note(*said["note"])
    append_notes(connection, [note], time=said["time"])
    use_agreement(connection, loosening(note.target))


def read_rules_line(connection: Connection) -> Content | None:
    """Return the rules that hold as a line of the log; None if there are none."""
    serial, _, text = read_metadata(connection, RULES).partition(" ")
    if not serial:
        return None
    note = Note("", "keep rules")
    said = {"serial": int(serial), "of": json.loads(text), "note": note, "time": now()}
    return {RULES: said}


def loosening(right: str) -> str:
    """Return what two people agree to who let a rule want two no longer."""
    return f"loosen {right}"


def removing(model: str) -> str:
    """Return what two people agree to who retire a model."""
    return f"{REMOVE} {model}"


def withdrawing(certificate: str) -> str:
    """Return what two people agree to who state that a release was taken back."""
    return f"{WITHDRAW} {certificate}"


def counting(token: str) -> str:
    """Return what two people agree to who let a token count."""
    return f"token {token}"


def require_rule_for(name: str) -> None:
    """Refuse a rule of what is neither a right nor an act."""
    if name not in (*RIGHTS, *ACTS):
        raise InvalidInput(
            f"there is no rule for {name!r}; give one of {', '.join((*RIGHTS, *ACTS))}"
        )


# People.


def list_names(owner: str) -> frozenset[str]:
    """Return the names that a person goes by; who shares one with them is the same."""
    parts = (loosest(one.partition("@")[0]) for one in owner.split("|"))
    return frozenset(filter(None, parts))


def are_two(people: Iterable[str]) -> bool:
    """Return whether two of these are different people for certain."""
    every = [names for names in map(list_names, people) if names]
    return any(one.isdisjoint(other) for one, other in combinations(every, 2))


def is_same(one: str, other: str) -> bool:
    """Return whether two owners may be one person."""
    return not list_names(one).isdisjoint(list_names(other))


# Decisions.


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What somebody decided.

    Parameters
    ----------
    about
        A request, or what two people must agree to.
    step
        "identity", "approval", "wait" or "go on" of a request; "agree" to an act.
    actor
        Who did it, as the trail says.
    person
        The owner of the token that was shown; empty if nobody vouches for it.
    detail
        How the identity was checked, or until which day the request waits.
    via, reason
        By which way in, and why.
    time
        When, in milliseconds since 1970.
    """

    about: str
    step: str
    actor: str
    person: str = ""
    detail: str = ""
    via: str = ""
    reason: str = ""
    time: int = field(default_factory=now)

    @classmethod
    def of(cls, row: Row[Any]) -> "Decision":
        """Return the decision in a row of the store."""
        return cls(**{name: row._mapping[name] for name in _KEPT})

    def to_line(self) -> Content:
        """Return it as a line of the log."""
        return {"decided": asdict(self)}


_KEPT = tuple(one.name for one in fields(Decision))


def write_decision(connection: Connection, said: Mapping[str, Any]) -> None:
    """Write a decision with what follows from it, unless it is there."""
    one = Decision(**said)
    if any(
        (row.step, row.actor, row.time) == (one.step, one.actor, one.time)
        for row in read_decisions(connection, one.about, used=True)
    ):
        return
    connection.execute(insert(decisions), asdict(one))
    note = Note(one.actor, ACTIONS[one.step], one.about, one.via, one.reason)
    append_notes(connection, [note], time=one.time)
    made = read_decisions(connection, one.about)
    if one.step == AGREE:
        name, _, token = one.about.partition(" ")
        if name == "token" and are_two(list_agreed(made, one.time)):
            this = update(tokens).where(tokens.c.id == token)
            connection.execute(this.values(decides=1))
            use_agreement(connection, one.about)
        return
    found = find_requests(connection, [one.about]).get(one.about)
    if found is None or found.stage != ACCEPTED:
        return
    changed = {"missing": find_missing(found.wants, made)}
    if one.step == IDENTITY:
        changed["identity"] = one.detail
    elif one.step in (WAITS, GO_ON):
        changed["waits"] = one.detail
    this = update(requests).where(requests.c.request == one.about)
    connection.execute(this.values(**changed))


def read_decisions(
    connection: Connection, about: str, *, used: bool = False
) -> list[Row[Any]]:
    """Return the decisions about something, in order; with ``used`` also old ones."""
    query = select(decisions).where(decisions.c.about == about)
    if not used:
        query = query.where(decisions.c.used == 0)
    return list(connection.execute(query.order_by(decisions.c.id)))


def find_missing(wants: str, made: Iterable[Row[Any]]) -> str:
    """Return which steps a request still wants, after some decisions."""
    there = [*made]
    steps = {row.step for row in there}
    left = [one for one in wants.split(", ") if one and one not in steps]
    if TWO in left:
        people = [row.person for row in there if row.step == APPROVAL and row.person]
        left.remove(TWO)
        left += [] if are_two(people) else [SECOND if people else TWO]
    return ", ".join(left)


def list_agreed(made: Iterable[Row[Any]], time: int) -> list[str]:
    """Return the people who agree to an act at a moment."""
    return [row.person for row in made if row.time > time - AGREED]


def use_agreement(connection: Connection, about: str) -> None:
    """Note that an act was done to which two people agreed; none other follows."""
    this = update(decisions).where(decisions.c.about == about)
    connection.execute(this.values(used=1))


def read_decision_lines(connection: Connection) -> list[Content]:
    """Return all decisions that something may still follow from, as lines of the log.

    Those about requests that wait, and agreements to what is not done yet.
    """
    waiting = select(requests.c.request).where(requests.c.stage == ACCEPTED)
    is_open = decisions.c.about.in_(waiting) | (decisions.c.step == AGREE)
    query = select(decisions).where(is_open, decisions.c.used == 0)
    rows = connection.execute(query.order_by(decisions.c.id))
    return [Decision.of(row).to_line() for row in rows]
