# SPDX-License-Identifier: Apache-2.0
"""Points of what a registry does: crash there, or do something right before.

A point is the call of a function, by what it does; ``POINTS`` has them in the order in
which a request comes to them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, TypeAlias

import pytest

from expunge.files import export
from expunge.private_model.model import PrivateModel
from expunge.registry import (
    adding,
    aliases,
    changes,
    completion,
    fits,
    keys,
    log,
    models,
    requests,
    worker,
)
from expunge.registry.access import RegistryAccess
from expunge.registry.context import Context
from expunge.registry.head_file import HeadFile
from expunge.registry.log import STATEMENT, Log
from expunge.registry.models import RegistryModels
from expunge.registry.recovery import backup, new_log, restore
from expunge.registry.requests import RegistryRequests
from expunge.registry.storage import (
    Checkpoints,
    Keystore,
    Store,
    engine,
    keystore,
    lock,
    releases_table,
)

Function: TypeAlias = Callable[..., Any]

# Where each function is looked up when it is called.
POINTS: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "finding the keys of checkpoints": ((Keystore, "require_current"),),
    "finding the keys of tags": ((keys, "_read_tag_key_ids"), (keys, "read_tag_keys")),
    "opening an alias": ((aliases, "unseal"),),
    # Accepting.
    "finding tags": ((requests, "find_tags"),),
    "accepting": ((requests, "_accept_new"),),
    "finding people": ((requests, "_require_known"),),
    "dating a request": ((requests, "day_of"),),
    "sealing new rows": ((requests, "seal_new_rows"),),
    "making a key": ((Keystore, "add"),),
    "writing what was accepted": ((requests, "_write_new"),),
    "writing the journal": ((Log, "_append"),),
    "beginning a transaction": ((engine, "_begin"),),
    # Applying.
    "waiting for the lock": ((lock, "sleep"),),
    "catching up": ((Log, "catch_up"),),
    "tidying keys": ((worker, "tidy_keys"),),
    "finishing": ((worker, "finish_committed"),),
    "settling": ((worker, "_settle_waiting"),),
    "reading new rows": ((worker, "_read_new_rows"),),
    "applying a batch": ((worker, "apply_batch"),),
    "adding rows": ((adding, "make_changes"),),
    "reading a checkpoint": ((Checkpoints, "read"),),
    "changing a model": ((changes, "change_model"),),
    "writing a checkpoint": ((Checkpoints, "write"),),
    "committing": ((worker, "commit_changes"),),
    "committing rows that were added": ((adding, "commit_changes"),),
    "writing to the database": ((Store, "write"),),
    # Completing.
    "erasing": ((Store, "erase_deleted"),),
    "destroying keys": ((Keystore, "shred"),),
    "deleting files of destroyed keys": ((Checkpoints, "delete_dead"),),
    "giving up keys": ((completion, "settle_keys"),),
    "writing keys": ((keystore, "_write_at"),),
    "preparing a statement": ((completion, "_make_statement"),),
    "stating": ((completion, "write_statement"),),
    "keeping the head": ((HeadFile, "write"),),
    # What users call.
    "sending requests": ((RegistryRequests, "accept"),),
    "applying requests": ((RegistryRequests, "apply"),),
    "getting ready": ((RegistryModels, "prepare"),),
    "sealing the trail": ((RegistryAccess, "seal_trail"),),
    # Everything else.
    "refusing": ((requests, "refuse_request"),),
    "asking who may be in a fit": ((fits, "require_nobody_returns"),),
    "taking a model in": ((models, "store_model"),),
    "finding a model": ((releases_table, "newest_number"),),
    "removing a model": ((models, "delete_model"),),
    "reanchoring": ((PrivateModel, "reanchor"),),
    "putting what is shipped in place": ((export, "put_in_place"),),
    "making a signing key": ((keys, "open_signing_key"),),
    "making a tag key": ((keys, "open_tag_key"),),
    "noting a tag key": ((keys, "write_tag_key_ids"),),
    "publishing a signing key": ((keys, "replace_file"),),
    "destroying a signing key": ((keys, "destroy"),),
    "stating a signing key": ((keys, "write_statement"),),
    "tidying keys after a change": ((keys, "tidy_keys"),),
    "reading a backup": ((restore, "_read_continuation"),),
    "replacing files": ((restore, "replace_file"),),
    "erasing the replaced database": ((backup, "erase_replaced"),),
    "replacing the database": ((restore, "replace_database"),),
    "destroying the copy of a backup": ((backup, "destroy"),),
    "bringing a backup up": ((restore, "_write_continuation"),),
    "finding lines for a new journal": ((new_log, "_complete"),),
    "placing a new journal": ((log, "sync_folder"),),
}


class Crash(BaseException):
    """The process is gone."""


def wrap(point: str, wrapper: Callable[[Function], Function]) -> None:
    """Put something else in the place of what is called at a point, for good."""
    for owner, name in POINTS[point]:
        setattr(owner, name, wrapper(getattr(owner, name)))


@contextmanager
def _wrapped(
    point: str, wrapper: Callable[[Function], Function], *, perhaps: bool = False
) -> Iterator[None]:
    """Put something else in the place of what is called at a point.

    Unless it is only reached ``perhaps``, a block that never comes there fails: what it
    is about would be tested by nobody.
    """
    reached: list[bool] = []

    def noted(real: Function) -> Function:
        other = wrapper(real)

        def call(*arguments: Any, **options: Any) -> Any:
            reached.append(True)
            return other(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in POINTS[point]:
            patch.setattr(owner, name, noted(getattr(owner, name)))
        yield
    assert reached or perhaps, f"nobody came to the point of {point}"


def before(point: str, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Do something right before a point, the first time that it is reached."""
    left = iter([act])

    def wrapper(real: Function) -> Function:
        def call(*arguments: Any, **options: Any) -> Any:
            for one in left:
                one()
            return real(*arguments, **options)

        return call

    return _wrapped(point, wrapper)


def after(point: str, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Do something right after a point, the first time that it is reached."""
    left = iter([act])

    def wrapper(real: Function) -> Function:
        def call(*arguments: Any, **options: Any) -> Any:
            answer = real(*arguments, **options)
            for one in left:
                if isinstance(answer, Iterator):  # so that its work is done by now
                    answer = [*answer]
                one()
            return answer

        return call

    return _wrapped(point, wrapper)


def before_each(point: str, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Do something right before a point, every time but those that it itself causes."""
    within: list[bool] = []

    def wrapper(real: Function) -> Function:
        def call(*arguments: Any, **options: Any) -> Any:
            if not within:
                within.append(True)
                try:
                    act()
                finally:
                    within.clear()
            return real(*arguments, **options)

        return call

    return _wrapped(point, wrapper)


def on_failure(
    point: str, act: Callable[[], object], *, nth: int = 1
) -> AbstractContextManager[None]:
    """Do something when what is called at a point has failed so often."""
    failures = count(1)

    def wrapper(real: Function) -> Function:
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return real(*arguments, **options)
            except Exception:
                if next(failures) == nth:
                    act()
                raise

        return call

    return _wrapped(point, wrapper)


def skipped(point: str) -> AbstractContextManager[None]:
    """Do nothing at a point."""
    return _wrapped(point, lambda real: lambda *arguments, **options: None)


@contextmanager
def perhaps_crashing_at(
    point: str, *, after: bool = False, nth: int = 1
) -> Iterator[None]:
    """Crash before or after a point, if it is reached so often."""
    calls = count(1)

    def wrapper(real: Function) -> Function:
        def call(*arguments: Any, **options: Any) -> Any:
            now = next(calls) == nth
            if now and not after:
                raise Crash
            answer = real(*arguments, **options)
            if now:
                raise Crash
            return answer

        @contextmanager
        def transaction(*arguments: Any) -> Iterator[Any]:
            now = next(calls) == nth
            with real(*arguments) as connection:
                yield connection
                if now and not after:
                    raise Crash
            if now:
                raise Crash

        return transaction if point == "writing to the database" else call

    with _wrapped(point, wrapper, perhaps=True):
        yield


@contextmanager
def crash_at(point: str, *, after: bool = False, nth: int = 1) -> Iterator[None]:
    """Do what must crash before or after a point, the first time or a later one."""
    with pytest.raises(Crash), perhaps_crashing_at(point, after=after, nth=nth):
        yield


@contextmanager
def crash_with_a_statement_in_the_journal_alone() -> Iterator[None]:
    """Do what must crash when the journal has a statement, and the database has not."""

    def wrapper(real: Function) -> Function:
        def append(log: Log, descriptor: int, data: bytes, **options: Any) -> None:
            real(log, descriptor, data, **options)
            if f'"{STATEMENT}"'.encode() in data:
                raise Crash

        return append

    with pytest.raises(Crash), _wrapped("writing the journal", wrapper):
        yield


def crash_with_a_line_in_the_journal_alone() -> AbstractContextManager[None]:
    """Do what must crash when the journal has a line, and the database has not."""
    return crash_at("writing the journal", after=True)


@contextmanager
def failing_at(point: str, error: BaseException) -> Iterator[None]:
    """Raise an error wherever a point is reached."""

    def fail() -> None:
        raise error

    with before_each(point, fail):
        yield


@contextmanager
def models_changed() -> Iterator[list[str]]:
    """Give a list of the models that requests change meanwhile."""
    names: list[str] = []

    def wrapper(real: Function) -> Function:
        def call(context: Context, name: str, **options: Any) -> Any:
            names.append(name)
            return real(context, name, **options)

        return call

    with _wrapped("changing a model", wrapper, perhaps=True):
        yield names


@contextmanager
def aliases_opened() -> Iterator[list[str]]:
    """Give a list of what is unsealed meanwhile to find people by aliases."""
    places: list[str] = []

    def wrapper(real: Function) -> Function:
        def call(sealed: bytes, key: bytes, *, place: str) -> Any:
            places.append(place)
            return real(sealed, key, place=place)

        return call

    with _wrapped("opening an alias", wrapper, perhaps=True):
        yield places
