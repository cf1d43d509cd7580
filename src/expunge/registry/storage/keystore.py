# SPDX-License-Identifier: Apache-2.0
"""Keystore: a file of keys, one for everything that may have to be erased.

**Numbers.** The keys lie one after the other, 32 bytes each. The number of a key is its
place, and is never used again. The database keeps it beside what the key seals: the
rows of a person in a model, a model's checkpoint, new rows that wait for a request.

**Sealing** is AES-256-GCM (NIST SP 800-38D) with a random nonce. What is sealed is
bound to the number of its key and to what it is: in another place it is refused.

**Erasing** is to overwrite a key with zeros. Then every copy of what it sealed is
noise: in freed blocks, in logs, on other disks. Nothing else in the file moves. What
the file system keeps of the overwritten 32 bytes is out of reach, as is a copy of the
file: a backup has its own.

**In which order.** A key is on disk before anything refers to it. The transaction that
lets go of what a key sealed writes its number into the table ``shred``. The number is
deleted there once the key is overwritten on disk, so the next process after a crash
goes on with what is left. Keys that were made for a transaction that never was
committed are found by how many keys the database knows of, and go the same way.

**A file that was put back** has fewer keys than the database knows of, or they were
destroyed fewer times: the first 32 bytes count that. It is refused. That is as much as
can be told: if the database is put back with it, both look as they did that day, and
the log of requests shows it; if it is exchanged between the destruction of a key and
the next commit, the key is destroyed again, for its number is still in ``shred``.

**A file of another registry** is refused: the first 32 bytes say whose it is. Its keys
have the same numbers, and would be taken for leftovers, and destroyed.
"""

import fcntl
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    exists,
    select,
    text,
    union_all,
)

from ...core.values import Private
from ...disk import denied_message, find_inode, replace_file
from ...exceptions import NeedsRestore, StoreFailed, needing
from ...ledger.keys import OTHERS, UnusableKey, read_or_create_secret
from ...promise.noise import random_bytes
from .engine import chunks, translate_errors
from .tables import (
    MADE,
    SHREDDED,
    metadata,
    models,
    rows,
    shred,
    unstated,
    write_later,
)

KEY_BYTES, NONCE_BYTES = 32, 12
CHUNK = 1 << 20
DEAD = bytes(KEY_BYTES)
FORMAT = b"expunge keys 1\n"
OWNER_BYTES = 9  # of the first key of the ledger
COUNT_AT = len(FORMAT) + OWNER_BYTES
FIRST = 1
"""The number of the first key; before it the file says what it is."""
SPARSE = 64
"""Keys are read at once if the file has at most so many for each that is wanted."""


def new_key() -> bytes:
    """Return a new key."""
    return random_bytes(KEY_BYTES)


def seal(data: bytes, key: bytes, *, place: str) -> bytes:
    """Return the data sealed under a key, for this place alone."""
    nonce = random_bytes(NONCE_BYTES)
    sealed: bytes = _aead()(key).encrypt(nonce, data, place.encode())
    return nonce + sealed


def unseal(sealed: bytes, key: bytes, *, place: str) -> bytes:
    """Return the data that was sealed, or raise StoreFailed."""
    from cryptography.exceptions import InvalidTag

    nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        data: bytes = _aead()(key).decrypt(nonce, rest, place.encode())
    except (InvalidTag, ValueError):
        kind = place.partition(" ")[0].rstrip(",")  # and not whose
        raise StoreFailed(
            f"what the store holds as {kind} was altered, or has a different key; put "
            "database and keys back from the same backup and run expunge restore"
        ) from None
    return data


@lru_cache(maxsize=1)
def _aead() -> Any:
    with needing("registry,files", "a registry"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM


class Keystore(Private):
    """The file of keys. It is read each time: another process may have changed it.

    Parameters
    ----------
    path
        Of the file.
    """

    __slots__ = ("_owner", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owner = b""

    def create(self, owner: str = "") -> None:
        """Make the file, with no key in it, unless it exists."""
        if not self.path.exists():
            head = FORMAT + _short(owner) + bytes(8)
            read_or_create_secret(self.path, lambda: head)

    def require_owner(self, owner: str) -> None:
        """Refuse the file of another registry, now and later.

        An owner is its ledger's first key. A file that is lost is refused by those who
        need it.
        """
        self._owner = _short(owner)
        with suppress(UnusableKey):
            self.end()

    def end(self) -> int:
        """Return the number that the next key will have."""
        with self._open() as descriptor:
            return _end(descriptor)

    def add(self, n: int = 1) -> dict[int, bytes]:
        """Make keys, which are on disk when this returns; return them by number."""
        content = random_bytes(n * KEY_BYTES)
        with self._open(change=True) as descriptor:
            first = _end(descriptor)
            _write_at(descriptor, content, start=first * KEY_BYTES)
            os.fsync(descriptor)
        return {first + place: key for place, key in enumerate(_split(content))}

    def load(self, numbers: Iterable[int]) -> dict[int, bytes]:
        """Return the keys that have these numbers, without those that are destroyed."""
        wanted = sorted(one for one in set(numbers) if one >= FIRST)
        found: dict[int, bytes] = {}
        while wanted and not found:
            first, n = wanted[0], wanted[-1] - wanted[0] + 1
            with self._open() as descriptor:
                if n <= SPARSE * len(wanted):
                    read = os.pread(descriptor, n * KEY_BYTES, first * KEY_BYTES)
                    starts = ((one, (one - first) * KEY_BYTES) for one in wanted)
                    found = {one: read[at : at + KEY_BYTES] for one, at in starts}
                else:
                    found = {
                        one: os.pread(descriptor, KEY_BYTES, one * KEY_BYTES)
                        for one in wanted
                    }
                if find_inode(self.path) != os.fstat(descriptor).st_ino:
                    found = {}  # a file that is replaced is erased: read the new one
        return {
            one: key
            for one, key in found.items()
            if len(key) == KEY_BYTES and key != DEAD
        }

    def shred(self, numbers: Iterable[int]) -> int:
        """Destroy keys; on return nothing opens what they sealed.

        Returns how often keys of this file were destroyed.
        """
        with self._open(change=True) as descriptor:
            end, count = _end(descriptor), _count(descriptor) + 1
            for first, n in _runs(one for one in numbers if FIRST <= one < end):
                _write_at(descriptor, bytes(n * KEY_BYTES), start=first * KEY_BYTES)
            _write_at(descriptor, count.to_bytes(8, "big"), start=COUNT_AT)
            os.fsync(descriptor)
        return count

    def require_current(
        self, *, made: int, shredded: int, used: Mapping[str, int]
    ) -> None:
        """Refuse a file that is older than the database, or newer.

        Parameters
        ----------
        made, shredded
            How many keys the database knows of, and how often some were destroyed.
        used
            The number of the key of each model's checkpoint.
        """
        with self._open() as descriptor:
            end, count = _end(descriptor), _count(descriptor)
        if end < made or count < shredded:
            raise NeedsRestore(
                f"{self.path} is older than the database: it has {end - FIRST} keys, "
                f"destroyed {count} times, and the database knows of {made - FIRST}, "
                f"destroyed {shredded} times; put its newest copy back, or both from "
                "the same backup with expunge restore BACKUP"
            )
        there = self.load(used.values())
        for model, number in used.items():
            if number not in there:
                raise destroyed_error(f"the state of model {model!r}")

    def replace(self, backup: "Keystore", *, end: int = FIRST) -> None:
        """Put the keys of a backup in the place of these; no number is used twice.

        Nor is any before ``end``, which is known to have been used.
        """
        with backup._open() as descriptor:
            content = os.pread(descriptor, _end(descriptor) * KEY_BYTES, 0)
            head, count = content[:COUNT_AT], _count(descriptor)
        try:
            with self._open() as descriptor:
                end, count = max(end, _end(descriptor)), max(count, _count(descriptor))
        except UnusableKey:
            pass  # it was lost, or damaged
        body = content[KEY_BYTES:].ljust((end - FIRST) * KEY_BYTES, b"\0")
        replace_file(self.path, head + count.to_bytes(8, "big") + body)

    @contextmanager
    def _open(self, *, change: bool = False) -> Iterator[int]:
        """Open the file; to change it, alone."""
        access = os.O_RDWR if change else os.O_RDONLY
        while True:
            try:
                descriptor = os.open(self.path, access | os.O_CLOEXEC)
            except PermissionError:
                said = denied_message(self.path)
                raise UnusableKey(f"a key cannot be read: {said}") from None
            except OSError as error:
                raise UnusableKey(
                    f"key file {self.path} cannot be read ({error.strerror}); put it "
                    "back from its newest copy: what its keys sealed is lost without it"
                ) from None
            try:
                if change:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                found = os.fstat(descriptor)
                if find_inode(self.path) != found.st_ino:
                    continue  # it was replaced while we waited
                is_file = stat.S_ISREG(found.st_mode)
                if is_file and os.name == "posix" and found.st_mode & OTHERS:
                    raise UnusableKey(
                        f"key file {self.path} has mode "
                        f"{stat.S_IMODE(found.st_mode):04o}: others may have read it; "
                        f"run chmod 600 {self.path}, and fit the models again if they "
                        "could"
                    )
                head = os.pread(descriptor, KEY_BYTES, 0) if is_file else b""
                if len(head) < KEY_BYTES or not head.startswith(FORMAT):
                    raise UnusableKey(
                        f"key file {self.path} is damaged; put its newest copy back, "
                        "or run expunge restore BACKUP"
                    )
                if self._owner not in (b"", head[len(FORMAT) : COUNT_AT]):
                    raise StoreFailed(
                        f"key file {self.path} is of another registry; put the newest "
                        "copy of this registry's own in its place"
                    )
                with translate_errors():
                    yield descriptor
                return
            finally:
                os.close(descriptor)


def place_of(number: int, what: str) -> str:
    """Return what something sealed is bound to."""
    return f"{what}, under key {number}"


def destroyed_error(what: str) -> NeedsRestore:
    """Return the error that a key was destroyed whose number the database has."""
    return NeedsRestore(
        f"the key of {what} is destroyed: the database was put back from a backup; run "
        "expunge restore BACKUP, so that nobody comes back with it"
    )


def seal_to(
    file: IO[bytes], parts: Iterable[memoryview], *, key: bytes, place: str
) -> None:
    """Write what ``seal`` would return for the joined parts, without copying them."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    nonce = random_bytes(NONCE_BYTES)
    cipher: Any = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    cipher.authenticate_additional_data(place.encode())
    buffer = bytearray(CHUNK)
    _write(file, nonce)
    for part in parts:
        for start in range(0, len(part), CHUNK):
            piece = part[start : start + CHUNK]
            size = cipher.update_into(piece, buffer)
            _write(file, memoryview(buffer)[:size])
    _write(file, cipher.finalize() + cipher.tag)


def _write(file: IO[bytes], data: bytes | memoryview) -> None:
    """Write all of the data: an unbuffered file may take less at a time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _write_at(descriptor: int, data: bytes, *, start: int) -> None:
    left = memoryview(data)
    while left:
        n = os.pwrite(descriptor, left, start)
        left, start = left[n:], start + n


def _short(owner: str) -> bytes:
    """Return what a file of keys says of its owner."""
    return bytes.fromhex(owner)[:OWNER_BYTES].ljust(OWNER_BYTES, b"\0")


def _end(descriptor: int) -> int:
    # A part of a key, which a full disk left, belongs to nobody.
    return os.fstat(descriptor).st_size // KEY_BYTES


def _count(descriptor: int) -> int:
    return int.from_bytes(os.pread(descriptor, 8, COUNT_AT), "big")


def _split(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), KEY_BYTES):
        yield content[start : start + KEY_BYTES]


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield numbers as runs: the first of each, and how many there are."""
    first, n = 0, 0
    for number in sorted(set(numbers)):
        if n and number == first + n:
            n += 1
            continue
        if n:
            yield first, n
        first, n = number, 1
    if n:
        yield first, n


# What the database says of keys.

_COUNTS = select(
    *(
        select(metadata.c.value).where(metadata.c.name == name).scalar_subquery()
        for name in (MADE, SHREDDED)
    ),
    *(exists().select_from(table) for table in (shred, unstated)),
)
_MARK = text("INSERT INTO shred (number) VALUES (:number) ON CONFLICT DO NOTHING")
_SHREDDED = delete(shred).where(
    shred.c.number.in_(bindparam("numbers", expanding=True))
)
_COUNT_MADE = text(
    f"UPDATE metadata SET value = :end WHERE name = '{MADE}' AND value = :first"
)


class Counts(NamedTuple):
    """What the database says of keys.

    Attributes
    ----------
    made, shredded
        The number after the last key, and how often keys were destroyed.
    is_left
        Whether keys must be destroyed, or entries stated in the ledger.
    """

    made: int
    shredded: int
    is_left: bool


def read_counts(connection: Connection) -> Counts:
    """Return what the database says of keys."""
    made, shredded, *left = connection.execute(_COUNTS).one()
    return Counts(int(made or FIRST), int(shredded or 0), any(left))


def count_made(connection: Connection, numbers: Iterable[int]) -> None:
    """Record keys that a transaction refers to.

    If a process was killed between others, or works beside this one, the keys before
    these are not counted, and neither are these: ``find_unused`` looks at all of them.
    """
    for first, n in _runs(numbers):
        counts = {"first": f"{first:020d}", "end": f"{first + n:020d}"}
        connection.execute(_COUNT_MADE, counts)


def find_unused(connection: Connection, numbers: range) -> list[int]:
    """Return those of the numbers under which the database has nothing."""
    some = (
        select(column).where(column >= numbers.start)
        for column in (rows.c.key, models.c.key)
    )
    used = {*connection.scalars(union_all(*some))}
    return [number for number in numbers if number not in used]


def mark_dead(connection: Connection, numbers: Collection[int]) -> None:
    """Record keys to destroy, for what they sealed is deleted."""
    lines = [{"number": number} for number in numbers if number]
    if lines:
        connection.execute(_MARK, lines)


def read_dead(connection: Connection) -> list[int]:
    """Return the keys to destroy."""
    return [*connection.scalars(select(shred.c.number))]


def note_shredded(
    connection: Connection, numbers: Sequence[int], *, count: int
) -> None:
    """Record that keys are destroyed, and how often some were by then."""
    for some in chunks(numbers):
        connection.execute(_SHREDDED, {"numbers": some})
    write_later(connection, SHREDDED, value=f"{count:020d}")
