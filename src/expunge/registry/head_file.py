# SPDX-License-Identifier: Apache-2.0
"""Head file: the last signed head of the ledger, kept outside the registry's folder.

Whoever puts a whole folder or volume back to an earlier day puts back database, log and
mark together, and nothing inside can tell: people come back. A file on another disk can
tell. It gets the head after each statement, every start compares it, and nothing is
signed while it cannot be written.

A head is public: it has the size and the root of the ledger, and a signature. With it
stands the first key of the ledger, so that two registries never share a file.
"""

import json
import os
from pathlib import Path

from sqlalchemy import Connection

from ..disk import draft_file, hidden_path, sync_folder, try_writing
from ..exceptions import InvalidInput, LedgerCorrupt, NeedsRestore, StoreFailed
from ..ledger import Head
from .storage import ledger_table
from .storage.tables import read_metadata

ENDING, DIGITS = ".head", 16
ACCEPT = "expunge restore --accept-mark"
READABLE = 0o644  # it is public
UNREADABLE = (OSError, LookupError, ValueError, TypeError)


class HeadFile:
    """The head file of a registry.

    Parameters
    ----------
    where
        The file, or a folder in which each registry has one.
    """

    def __init__(self, where: Path) -> None:
        self.where = where

    def path_for(self, first_key: str) -> Path:
        """Return where the file of the ledger with this first key is."""
        if self.where.is_dir():
            return self.where / f"{first_key[:DIGITS]}{ENDING}"
        return self.where

    def require_outside(self, folder: Path, first_key: str) -> None:
        """Refuse a place that would be put back with the registry, and one in use."""
        if self.where.resolve().is_relative_to(folder.resolve()):
            raise InvalidInput(
                f"the head file {self.where} would be put back with the registry's "
                "folder, in which it is; name a file or a folder on another disk"
            )
        path = self.path_for(first_key)
        try:
            of, _ = _load(path)
        except UNREADABLE:
            if path.is_file() and path.stat().st_size:
                raise InvalidInput(
                    f"{path} is a file, but no head file, and would be overwritten; "
                    "name another file, or a folder of head files"
                ) from None
        else:
            if of != first_key:
                raise InvalidInput(
                    f"{path} is the head file of another registry; name another file, "
                    "or a folder, in which each registry has its own"
                )
        self.require_writable(first_key)

    def require_writable(self, first_key: str) -> None:
        """Refuse a place where no head could be written; nothing is left there."""
        path = self.path_for(first_key)
        try:
            of, _ = _load(path)
        except UNREADABLE:
            of = first_key  # it is lost, and another may be written
        _require_own(path, of, first_key=first_key)
        try:
            try_writing(path.parent)
        except OSError as error:
            raise _unusable_error(path, error) from None

    def require_extended(self, connection: Connection) -> None:
        """Refuse a ledger that does not extend the head that is kept."""
        first = read_metadata(connection, ledger_table.FIRST_KEY)
        path = self.path_for(first)
        text = self.read(first)
        if not text or ledger_table.has_head(connection, text):
            return
        size, there = Head.from_json(text).size, ledger_table.count_entries(connection)
        if there >= size:
            raise LedgerCorrupt(
                f"the ledger contradicts the head over {size} entries in {path}, which "
                "receipts may show; nothing was done: put the newest copy of the "
                "registry in place"
            )
        raise NeedsRestore(
            f"the ledger has {there} entries, and {path} has a head over {size}: the "
            "whole folder was put back from a backup, and people who were forgotten "
            "are in it again; put the newest copy of the journal in place and run "
            f"expunge restore BACKUP, or, if there is no newer one, {ACCEPT}"
        )

    def read(self, first_key: str) -> str:
        """Return the head that is kept; empty before the first one."""
        path = self.path_for(first_key)
        try:
            of, text = _load(path)
        except UNREADABLE as error:
            raise _unusable_error(path, error) from None
        _require_own(path, of, first_key=first_key)
        return text

    def write(self, first_key: str, head: str, *, new: bool = False) -> None:
        """Write a head, on disk when this returns; the old one or the new one stays.

        Unless it is ``new``, there must be one of this registry already.
        """
        path = self.path_for(first_key)
        if new:
            self.require_writable(first_key)
        else:
            self.read(first_key)
        draft = hidden_path(path, "new")
        data = json.dumps({"registry": first_key, "head": head}) + "\n"
        try:
            draft.unlink(missing_ok=True)
            with draft_file(draft, data.encode(), mode=READABLE):
                os.replace(draft, path)
            sync_folder(path.parent)
        except OSError as error:
            raise _unusable_error(path, error) from None


def _load(path: Path) -> tuple[str, str]:
    """Return the first key of the ledger that a file is of, and the head in it."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    of, text = str(kept["registry"]), str(kept["head"])
    if text:
        Head.from_json(text)
    return of, text


def _require_own(path: Path, of: str, *, first_key: str) -> None:
    """Refuse the file of another registry."""
    if of != first_key:
        raise StoreFailed(
            f"{path} is the head file of another registry, so nothing is signed and "
            "accepted requests wait: put this registry's back; if it is lost for good, "
            f"move the other one away and run {ACCEPT}"
        )


def _unusable_error(path: Path, error: Exception) -> StoreFailed:
    """Return the error for a file that can be neither trusted nor written."""
    why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""
    return StoreFailed(
        f"the head file {path} cannot be used ({why or 'it is damaged'}), so nothing "
        "is signed, who starts now accepts nothing, and accepted requests wait: mount "
        "its disk or put it back; if it is lost for good, make its folder again and "
        f"run {ACCEPT}"
    )
