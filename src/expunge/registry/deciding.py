# SPDX-License-Identifier: Apache-2.0
"""Deciding: an operator shows who they are, and what they decide is written down.

Who decides may be named by the caller, as the command line does; that is for the trail.
Where two people must decide, a name that a caller gives is worth nothing: each of them
shows the secret of a token, or of a session, that says whose it is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from sqlalchemy import Connection, Row, select

from ..exceptions import InvalidInput, NeedsDecision, OneAgreed, RequestConflict
from ..rights.regimes import regime_named
from .access import ATTEMPTS, TOKEN, find_token
from .context import Context, RegistryPart
from .decisions import (
    ACTS,
    AGREE,
    APPROVAL,
    IDENTITY,
    NO_RULE,
    TWO,
    Decision,
    RequestRule,
    are_two,
    counting,
    find_rule,
    is_same,
    list_agreed,
    loosening,
    read_decisions,
    read_rules,
    require_rule_for,
    rules_line,
)
from .now import now
from .request import RequestStatus
from .storage.engine import Collision
from .storage.tables import tokens
from .trail import Note

SHORTEST_MONTH = date(2026, 2, 1)  # where every period of the law is shortest
WHO = (
    "show a token that says whose it is, made with --owner: on the command line in "
    "EXPUNGE_TOKEN, in a browser by signing in with it"
)


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decides something, as far as the caller knows.

    Parameters
    ----------
    name
        For the access log, where no token is shown: a token says who it is.
    shown
        The secret of a token or a session. Where two people must decide, each shows one
        that says whose it is.
    via, reason
        By which way in, and why, for the access log.
    """

    name: str = ""
    shown: str = field(default="", repr=False)
    via: str = ""
    reason: str = ""


NOBODY = Decider()


def name_actor(context: Context, by: Decider) -> str:
    """Return the name of somebody for the trail."""
    return make_decision(context, by, about="", step="").actor


def make_decision(
    context: Context, by: Decider, *, about: str, step: str, detail: str = ""
) -> Decision:
    """Return what somebody decides, with the person that their token vouches for."""
    name, person = by.name, ""
    if by.shown:
        with context.store.read(snapshot=False) as connection:
            token = find_token(connection, by.shown)
        if token is None:
            raise InvalidInput("the token is unknown or expired; show another one")
        person = token.owner if token.decides else ""
        name = token.name  # whatever the caller says
    return Decision(
        about=about,
        step=step,
        actor=name or "unknown",
        person=person,
        detail=detail,
        via=by.via,
        reason=by.reason,
    )


def record_decision(
    context: Context, decision: Decision, *, check: Callable[[Connection], None]
) -> None:
    """Write a decision that the check does not refuse; on return it is on disk."""
    for left in reversed(range(ATTEMPTS)):
        try:
            with context.log.record(decision.to_line()) as connection:
                check(connection)
            return
        except Collision:  # another process wrote a line of the trail meanwhile
            if not left:
                raise


def require_wanted(
    one: RequestStatus, decision: Decision, *, made: Iterable[Row[Any]]
) -> None:
    """Refuse an approval that a request does not want, or not yet, or not from them."""
    made, missing = [*made], one.missing
    if decision.step == IDENTITY and IDENTITY not in missing:
        raise RequestConflict(f"request {one.request} needs no check of who asks")
    if decision.step != APPROVAL:
        return
    if missing in ("", IDENTITY):
        raise RequestConflict(f"request {one.request} needs no approval, or no further")
    if IDENTITY in missing:
        raise RequestConflict(
            f"nobody has stated who asks for request {one.request}; check that first "
            "(expunge approve --identity)"
        )
    if TWO in one.wants:
        before = [row.person for row in made if row.step == APPROVAL]
        _require_second(decision.person, before)


def _require_second(person: str, before: Iterable[str]) -> None:
    """Refuse somebody who cannot be told from those who decided before."""
    if not person:
        raise NeedsDecision(f"two different people must decide this; {WHO}")
    if any(is_same(person, one) for one in before if one):
        raise NeedsDecision(
            "somebody else must decide, too: this token belongs to the person who "
            "decided before, or to one of the same name"
        )


def require_two(context: Context, about: str, *, by: Decider) -> None:
    """Note that somebody agrees to an act; go on if that makes two different people.

    Otherwise raises OneAgreed, or NeedsDecision if it is not clear who they are.
    """
    decision = make_decision(context, by, about=about, step=AGREE)
    with context.store.read(snapshot=False) as connection:
        people = list_agreed(read_decisions(connection, about), decision.time)
    if are_two(people):
        return  # it was interrupted
    _require_second(decision.person, people)

    def check(connection: Connection) -> None:
        nonlocal people
        people = list_agreed(read_decisions(connection, about), decision.time)
        _require_second(decision.person, people)

    record_decision(context, decision, check=check)
    if not are_two([*people, decision.person]):
        raise OneAgreed(
            f"noted that {decision.actor} agrees; nothing is done until a second "
            "person does the same"
        )


def require_act(context: Context, act: str, *, about: str, by: Decider) -> None:
    """Refuse an act whose rule wants two people, unless this is the second."""
    with context.store.read(snapshot=False) as connection:
        rule = find_rule(read_rules(connection), act)
    if rule.four_eyes:
        require_two(context, about, by=by)


class RegistryRules(RegistryPart):
    """What requests pass before they are applied, as ``Registry.rules``."""

    def read(self) -> dict[str, RequestRule]:
        """Return the rules of all rights and acts that have one."""
        with self._context.store.read() as connection:
            return read_rules(connection)

    def set(self, name: str, rule: RequestRule, *, by: Decider = NOBODY) -> None:
        """Set the rule of a right, or of an act, for what comes from now on.

        Two people must do it where the rule before wants two and this one does not:
        the first of them gets OneAgreed.

        Parameters
        ----------
        name
            A right, or "remove" or "withdraw", which know four eyes alone.
        rule
            What it is from now on.
        by
            Who does it.
        """
        require_rule_for(name)
        if name in ACTS and rule != RequestRule(four_eyes=rule.four_eyes):
            raise InvalidInput(
                f"{name} is no request; of a rule it knows only four eyes"
            )
        self._require_grace(rule.grace_days)
        context, about = self._context, loosening(name)
        before = self.read().get(name, NO_RULE)
        if before.four_eyes and not rule.four_eyes:
            require_two(context, about, by=by)
        elif rule.four_eyes and not before.four_eyes:
            self._require_people()
        actor = make_decision(context, by, about=about, step=AGREE).actor
        note = Note(actor, "set rule", name, by.via, by.reason)
        line: dict[str, Any] = {}
        with context.log.record(line) as connection:
            rules = read_rules(connection)
            if rules.get(name, NO_RULE) != before:
                raise NeedsDecision("somebody else set this rule meanwhile; look again")
            line |= rules_line(connection, {**rules, name: rule}, note=note, time=now())

    def _require_grace(self, days: int) -> None:
        """Refuse days of grace that leave none to answer."""
        regime = regime_named(self._context.settings.regime)
        whole = (regime.first.add_to(SHORTEST_MONTH) - SHORTEST_MONTH).days
        if not 0 <= days < whole:
            raise InvalidInput(
                f"grace_days={days}; give 0 to {whole - 1}: by {regime.name} an answer "
                f"may be due {whole} days after somebody asked"
            )

    def _require_people(self) -> None:
        """Refuse to want two people where nobody could tell that there are two."""
        with self._context.store.read() as connection:
            query = select(tokens.c.owner).where(
                tokens.c.kind == TOKEN, tokens.c.decides == 1, tokens.c.expires > now()
            )
            owners = [*connection.scalars(query)]
        if not are_two(owners):
            raise InvalidInput(
                "nothing can want two people before there are two: make a token for "
                "each of them first, with expunge token create NAME --owner PERSON"
            )

    def trust_token(self, token: str, *, by: Decider = NOBODY) -> None:
        """Let a token count where two people must decide, if two agree to it.

        Needed for tokens that are made while anything wants two people. The first of
        them gets OneAgreed.

        Parameters
        ----------
        token
            Its id.
        by
            Who does it; not whom it belongs to.
        """
        with self._context.store.read() as connection:
            query = select(tokens).where(tokens.c.id == token, tokens.c.kind == TOKEN)
            found = connection.execute(query).first()
        if found is None or not found.owner:
            raise InvalidInput("there is no token with this id that says whose it is")
        if not found.decides:
            require_two(self._context, counting(token), by=by)
