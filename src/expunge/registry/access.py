# SPDX-License-Identifier: Apache-2.0
"""Access: tokens of those who may call a service, and the trail of what they did.

A token is 32 random bytes. It is shown once, and the store has only its hash. A session
in a browser is a token too, which expires in minutes.

A token may say which person it belongs to. Where two people must decide something, it
vouches for them (``decisions``). One that is made while anything wants two counts for
that only once two have agreed to it, or if its owner shows another that counts.

**The trail** says who did what to what, see ``trail``. Once a day the ledger records
how many lines there are and the hash of the last one (``TrailSealed``). From then on
no line before it can be changed or dropped unnoticed.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from ..exceptions import InvalidInput
from ..ledger import Ledger, TrailSealed, read_entry
from ..ledger.documents import DAY, day_of
from ..promise.noise import random_bytes
from ..promise.verification import Verdict
from .clock import read_clock
from .completion import state_entry
from .context import WAIT, RegistryPart, next_entry_time, read_ledger
from .decisions import any_two, is_same, list_names, read_rules
from .now import now
from .recovery.losses import ISSUED
from .statements import SESSION, delete_token
from .storage.engine import Collision
from .storage.ledger_table import LedgerBatch
from .storage.tables import entries, tokens, trail
from .trail import (
    Note,
    TrailLine,
    TrailWanted,
    append_notes,
    read_last_line,
    read_lines,
)
from .worker import recover

SCOPES = ("request", "operate", "audit", "admin")
"""Send requests; answer them and ship releases; see everything; manage tokens."""
INCLUDED = {"admin": SCOPES, "operate": ("request",)}
"""What else a scope allows."""
TOKEN = "token"  # the other kind is a session
PREFIX = "expunge_"
SECRET_BYTES, ID_BYTES = 32, 8
MINUTE = 60_000
LONGEST_SESSION = 12 * 60 * MINUTE  # then one signs in again, however busy one is
LONGEST_NAME = 80
PAGE = 1000
ATTEMPTS = 20  # to write to the trail beside other processes
_FIND = select(tokens).where(
    tokens.c.hash == bindparam("hash"), tokens.c.expires > bindparam("now")
)
_SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")


@dataclass(frozen=True, slots=True)
class Token:
    """What a caller may do, and until when. The secret is not in it.

    Parameters
    ----------
    id
        16 hexadecimal digits.
    name
        Whose it is, such as "consent desk". Requests that come with it have this
        sender, and a new token of the same name sees them too.
    scopes
        Some of "request", "operate", "audit", "admin".
    created, expires
        In milliseconds since 1970. A session whose end is fixed counts as created so
        early that it is then at its oldest.
    owner
        Which person it belongs to, by all names that they go by here, with ``|``
        between; empty if that was not said.
    decides
        Whether it counts where two people must decide, if it has an owner.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    created: int
    expires: int
    owner: str = ""
    decides: bool = True

    def may(self, scope: str) -> bool:
        """Return whether the token has a scope, or one that includes it."""
        return any(
            scope == one or scope in INCLUDED.get(one, ()) for one in self.scopes
        )


class RegistryAccess(RegistryPart):
    """Tokens and trail of a registry, as ``Registry.access``."""

    def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        days: int = 90,
        owner: str = "",
        shown: str = "",
    ) -> tuple[Token, str]:
        """Make a token; return it with its secret, which is kept nowhere.

        Parameters
        ----------
        name
            Whose it is.
        scopes
            What it allows.
        days
            After how many it expires.
        owner
            The person whom it belongs to, by the name that they sign in with. Several
            tokens of one owner are one person's.
        shown
            The secret of another token of the owner. Needed for a token that counts
            at once where anything wants two people.
        """
        if days < 1:
            raise InvalidInput(f"days={days}; a token is valid for at least a day")
        if owner and not list_names(_require_name(owner)):
            raise InvalidInput(
                f"owner={owner!r}, in which there is no name; give the name that the "
                "person signs in with"
            )
        time = now()
        with self._context.store.read(snapshot=False) as connection:
            decides = not any_two(read_rules(connection))
        if shown and not decides:
            known = self.find(shown)
            if known is not None:
                decides = known.decides and is_same(known.owner, owner)
        return self._create(
            Token("", name, tuple(scopes), time, time + days * DAY, owner, decides),
            kind=TOKEN,
        )

    def create_session(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        minutes: int,
        until: int | None = None,
        owner: str = "",
        decides: bool = False,
    ) -> tuple[Token, str]:
        """Make the token of a session in a browser; see ``create``.

        Parameters
        ----------
        name, scopes
            Of the token that was shown.
        minutes
            After how many without use it expires.
        until
            When that token expires, which the session does not outlive.
        owner, decides
            Of that token, or as the identity provider vouches for them.
        """
        time = now()
        longest = time + LONGEST_SESSION
        end = longest if until is None else min(longest, until)
        lasts = end - LONGEST_SESSION, min(time + minutes * MINUTE, end)
        asked = Token("", name, tuple(scopes), *lasts, owner, decides)
        return self._create(asked, kind=SESSION)

    def _create(self, asked: Token, *, kind: str) -> tuple[Token, str]:
        secret = PREFIX + _encode(random_bytes(SECRET_BYTES))
        token = replace(
            asked,
            id=random_bytes(ID_BYTES).hex(),
            name=_require_name(asked.name),
            scopes=_require_scopes(asked.scopes),
        )
        line = {
            "id": token.id,
            "kind": kind,
            "name": token.name,
            "scopes": " ".join(token.scopes),
            "created": token.created,
            "expires": token.expires,
            "hash": _hash(secret),
            "owner": token.owner,
            "decides": int(token.decides),
        }
        note = {ISSUED: {"token": token.id}} if kind == TOKEN else {}
        with self._context.log.record(note) as connection:
            if read_clock(connection).is_believed:
                expired = tokens.c.expires <= token.created
                connection.execute(delete(tokens).where(expired))
            connection.execute(insert(tokens), line)
        return token, secret

    def find(self, secret: str) -> Token | None:
        """Return the token with a secret; None if there is none, or no longer."""
        with self._context.store.read(snapshot=False) as connection:
            return find_token(connection, secret)

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens that did not expire, without sessions."""
        query = (
            select(tokens)
            .where(tokens.c.kind == TOKEN, tokens.c.expires > now())
            .order_by(tokens.c.created, tokens.c.id)
        )
        with self._context.store.read(snapshot=False) as connection:
            return tuple(map(_read_token, connection.execute(query)))

    def revoke(self, token: str) -> None:
        """Make a token useless, with all sessions of its name, or end a session.

        The journal knows of tokens that were revoked: a backup from before does not
        bring them back.
        """
        said: dict[str, Any] = {"token": token}
        line: dict[str, Any] = {}
        with self._context.log.record(line) as connection:
            this = select(tokens).where(tokens.c.id == token)
            found = connection.execute(this).first()
            if found is None:
                raise InvalidInput(
                    "there is no token with this id; list them, and give its id, not "
                    "its secret"
                )
            delete_token(connection, said)
            if found.kind == TOKEN:
                line["revoked"] = said

    def prolong(self, session: str, *, minutes: int) -> None:
        """Let a session, and no other token, expire so many minutes from now.

        No session grows older than twelve hours.
        """
        with self._context.store.write() as connection:
            this = (tokens.c.id == session) & (tokens.c.kind == SESSION)
            created = connection.scalar(select(tokens.c.created).where(this))
            if created is None:
                return
            expires = min(now() + minutes * MINUTE, created + LONGEST_SESSION)
            later = update(tokens).where(this, tokens.c.expires < expires)
            connection.execute(later.values(expires=expires))

    def record(self, notes: Sequence[tuple[str, ...]]) -> None:
        """Write lines of the trail: each an actor, an action and a target, see Note."""
        for left in reversed(range(ATTEMPTS)):
            try:
                with self._context.store.write() as connection:
                    append_notes(connection, [Note(*one) for one in notes])
                return
            except Collision:  # another process wrote a line meanwhile
                if not left:
                    raise

    def trail(self, start: int = 0, most: int = 100) -> list[TrailLine]:
        """Return at most so many lines of the trail, from one on."""
        found = select(trail).where(trail.c.sequence >= start)
        query = found.order_by(trail.c.sequence).limit(most)
        with self._context.store.read(snapshot=False) as connection:
            return [TrailLine(**line._mapping) for line in connection.execute(query)]

    def read_trail(self, wanted: TrailWanted) -> list[TrailLine]:
        """Return lines of the trail, the newest first."""
        with self._context.store.read(snapshot=False) as connection:
            return read_lines(connection, wanted)

    def seal_trail(self) -> bool:
        """Tell the ledger where the trail stands, at most once a day.

        Returns whether there was anything to tell.
        """
        context = self._context
        with context.hold_lock(WAIT):
            recover(context, WAIT)
            with context.store.read() as connection:
                batch = LedgerBatch(read_ledger(context, connection))
                time = next_entry_time(batch.ledger)
                seal = _find_due_seal(connection, batch.ledger, day=day_of(time))
            if seal is not None:
                state_entry(context, batch, entry=seal, time=time)
        return seal is not None

    def check_trail(self) -> Verdict:
        """Return whether the trail is whole, by its own hashes and by the ledger.

        A store that was put back from a backup lacks the lines since then. Seals from
        before the restore that it cannot match any more are counted, and fail nothing.
        """
        with self._context.store.read() as connection:
            seals = _read_seals(connection)
            last_restore = select(func.max(entries.c.sequence)).where(
                entries.c.kind == "restored"
            )
            restored = connection.scalar(last_restore)
            restored = -1 if restored is None else restored
        hashes, failures = {}, []
        before, n_lines = "", 0
        with self._context.store.read(snapshot=False) as connection:
            begin = int(connection.scalar(select(func.min(trail.c.sequence))) or 0)
            expired = connection.scalars(
                select(entries.c.text).where(entries.c.kind == "records expired")
            )
            cuts = {getattr(read_entry(text), "n_lines", 0) for text in expired}
        if begin in cuts:  # the lines before it have expired, up to a seal
            before = next((one.last for one in seals if one.n_lines == begin), "")
            n_lines = begin
            hashes[begin] = before
            seals = [one for one in seals if one.n_lines >= begin]
        for line in self._all_lines():
            if line.sequence != n_lines or line.hash != line.hash_after(before):
                failures.append(f"line {n_lines} of the trail was changed or dropped")
                break
            before, n_lines = line.hash, n_lines + 1
            hashes[n_lines] = before
        unmatched = [one for one in seals if hashes.get(one.n_lines) != one.last]
        lost = [one for one in unmatched if one.sequence < restored]
        if not failures and len(unmatched) > len(lost):
            first = next(one for one in unmatched if one not in lost)
            failures.append(
                f"the ledger sealed {first.n_lines} lines, and they are not these"
            )
        if failures:
            says = f"The trail is not valid: {'; '.join(failures)}."
            return Verdict((), tuple(failures), says)
        says = f"The trail has {n_lines} lines, and none was changed."
        if lost:
            says += (
                f" Later lines were lost when a backup was restored: {len(lost)} of "
                f"{len(seals)} seals are about these."
            )
        n_checked = len(seals) - len(lost)
        found = (f"{n_lines} lines are a chain, sealed {n_checked} times",)
        return Verdict(found, (), says)

    def _all_lines(self) -> Iterator[TrailLine]:
        start = 0
        while page := self.trail(start, PAGE):
            yield from page
            start = page[-1].sequence + 1


def find_token(connection: Connection, secret: str) -> Token | None:
    """Return the token with a secret; None if there is none, or no longer."""
    if not _SECRET.fullmatch(secret):
        return None
    given = {"hash": _hash(secret), "now": now()}
    found = connection.execute(_FIND, given).first()
    return None if found is None else _read_token(found)


def _find_due_seal(
    connection: Connection, ledger: Ledger, *, day: str
) -> TrailSealed | None:
    """Return the entry that seals the trail on a day; None if none is due.

    None is due on a day that has one, nor without a line since the last one. After a
    restore the trail may be shorter than it was sealed, so hashes are compared.
    """
    n_lines, last = read_last_line(connection)
    seals = _read_seals(connection)[-1:]
    if not n_lines or any(one.last == last or one.day == day for one in seals):
        return None
    return TrailSealed(sequence=ledger.size, day=day, n_lines=n_lines, last=last)


def _read_seals(connection: Connection) -> list[TrailSealed]:
    """Return the entries of the ledger that seal the trail, in order."""
    query = select(entries.c.text).where(entries.c.kind == "trail sealed")
    found = map(read_entry, connection.scalars(query.order_by(entries.c.sequence)))
    return [entry for entry in found if isinstance(entry, TrailSealed)]


def _read_token(line: Any) -> Token:
    return Token(
        line.id,
        line.name,
        tuple(line.scopes.split()),
        line.created,
        line.expires,
        line.owner,
        bool(line.decides),
    )


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _hash(secret: str) -> str:
    """Return what the store keeps of a secret, which is random: no salt is needed."""
    return sha256(secret.encode()).hexdigest()


def _require_name(name: str) -> str:
    if (
        not 1 <= len(name) <= LONGEST_NAME
        or not name.isprintable()
        or name != name.strip()
    ):
        raise InvalidInput(
            f"a token's name has 1 to {LONGEST_NAME} printable characters and no "
            "surrounding spaces; give one that says whose it is, such as 'consent desk'"
        )
    return name


def _require_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    unknown = [one for one in scopes if one not in SCOPES]
    if unknown or not scopes or isinstance(scopes, str):
        raise InvalidInput(f"scopes {scopes!r}; give some of {', '.join(SCOPES)}")
    return tuple(one for one in SCOPES if one in scopes)
