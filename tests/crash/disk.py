# SPDX-License-Identifier: Apache-2.0
"""A disk that forgets: what a folder may look like when the power fails.

Written bytes are sure to be there once their file was flushed, and names once their
folder was. Of what came later anything may be there: each sector of each write, each
change of a length, and of the changes to names any first part, since file systems
journal these in order. Bytes next to a write are never damaged, which SQLite assumes
of a disk too (SQLITE_IOCAP_POWERSAFE_OVERWRITE).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .calls import Call, hexadecimal

SECTOR = 512
# SQLite's index of its log lives in shared memory and is rebuilt on first use.
REBUILT = "-shm"


@dataclass(frozen=True)
class Write:
    """Bytes at a place in a file."""

    offset: int
    data: bytes

    def on(self, content: bytearray) -> None:
        """Change the content."""
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(self.data)] = self.data

    def parts(self) -> Iterable["Write"]:
        """Yield the pieces that fall into one sector each."""
        at = 0
        while at < len(self.data):
            end = at + SECTOR - (self.offset + at) % SECTOR
            yield Write(self.offset + at, self.data[at:end])
            at = end


@dataclass(frozen=True)
class Cut:
    """A new length of a file."""

    size: int

    def on(self, content: bytearray) -> None:
        """Change the content."""
        content.extend(bytes(max(0, self.size - len(content))))
        del content[self.size :]

    def parts(self) -> Iterable["Cut"]:
        """Yield the whole: a length changes at once."""
        yield self


@dataclass
class File:
    """What of a file is sure to be on the disk, and what came after that."""

    flushed: bytearray = field(default_factory=bytearray)
    pending: list[Write | Cut] = field(default_factory=list)

    def size(self) -> int:
        """Return the length that the process sees."""
        return len(self.content(lambda: True))

    def flush(self) -> None:
        """Make sure of everything."""
        self.flushed, self.pending = bytearray(self.content(lambda: True)), []

    def content(self, kept: Callable[[], bool]) -> bytes:
        """Return the content if only some of the pending changes reached the disk."""
        content = bytearray(self.flushed)
        for change in self.pending:
            for part in change.parts():
                if kept():
                    part.on(content)
        return bytes(content)


@dataclass
class Handle:
    """An open file, and where the next write goes; None is its end."""

    file: File
    offset: int | None = 0


@dataclass(frozen=True)
class Renaming:
    """In one folder, what a name means from now on; None: nothing."""

    names: tuple[tuple[Path, File | None], ...]


class Disk:
    """The disk under one folder, which was all flushed at the beginning.

    Parameters
    ----------
    root
        The folder; it is looked at now, and never again.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._flushed = {
            path: File(bytearray(path.read_bytes()))
            for path in root.rglob("*")
            if path.is_file() and not path.name.endswith(REBUILT)
        }
        self._pending: list[Renaming] = []
        self._handles: dict[int, Handle] = {}

    def see(self, call: Call) -> None:
        """Take a call into account; refuse one whose effect is not known here."""
        meaning = MEANINGS.get(call.name)
        if meaning is not None:
            meaning(self, call)
        elif any(hexadecimal(self._root) in argument for argument in call.arguments):
            raise NotImplementedError(f"{call.name} on a file of the registry")

    def names(self, kept: int | None = None) -> dict[Path, File]:
        """Return what files there are if so many pending changes of names are kept."""
        names: dict[Path, File | None] = dict(self._flushed)
        for change in self._pending[:kept]:
            names.update(change.names)
        return {path: file for path, file in names.items() if file is not None}

    def doubtful(self) -> frozenset[Path]:
        """Return the files of which a power cut could lose something now."""
        named = [path for change in self._pending for path, _ in change.names]
        written = [path for path, file in self.names().items() if file.pending]
        return frozenset(named + written)

    def n_pending(self) -> int:
        """Return how many changes of names are not sure to be there."""
        return len(self._pending)

    def after(self, names: int | None, kept: Callable[[], bool]) -> dict[Path, bytes]:
        """Return what is found in the folder after the power failed.

        Parameters
        ----------
        names
            How many of the pending changes of names happened; None: all.
        kept
            Asked for each pending change of content in turn.
        """
        return {
            path.relative_to(self._root): file.content(kept)
            for path, file in self.names(names).items()
        }

    def _open(self, call: Call) -> None:
        path, flags = call.path(1), call.arguments[2].split("|")
        self._handles.pop(call.result, None)
        if not path.is_relative_to(self._root) or path.name.endswith(REBUILT):
            return
        file = self.names().get(path)
        if file is None and "O_CREAT" in flags:
            file = File()
            self._pending.append(Renaming(((path, file),)))
        if file is None:
            return  # a folder
        if "O_TRUNC" in flags:
            file.pending.append(Cut(0))
        offset = None if "O_APPEND" in flags else 0
        self._handles[call.result] = Handle(file, offset)

    def _write(self, call: Call) -> None:
        handle = self._handles.get(call.number(0))
        if handle is None:
            return
        data = call.data(1)[: call.result]
        if handle.offset is None:
            handle.file.pending.append(Write(handle.file.size(), data))
        else:
            handle.file.pending.append(Write(handle.offset, data))
            handle.offset += len(data)

    def _pwrite(self, call: Call) -> None:
        handle = self._handles.get(call.number(0))
        if handle is not None:
            data = call.data(1)[: call.result]
            handle.file.pending.append(Write(call.number(3), data))

    def _seek(self, call: Call) -> None:
        handle = self._handles.get(call.number(0))
        if handle is not None and handle.offset is not None:
            handle.offset = call.result

    def _cut(self, call: Call) -> None:
        handle = self._handles.get(call.number(0))
        if handle is not None:
            handle.file.pending.append(Cut(call.number(1)))

    def _flush(self, call: Call) -> None:
        handle = self._handles.get(call.number(0))
        if handle is not None:
            handle.file.flush()
            return
        folder, waiting = call.path(0), []
        for change in self._pending:
            if change.names[0][0].parent == folder:
                self._settle(change)
            else:
                waiting.append(change)
        self._pending = waiting

    def _settle(self, change: Renaming) -> None:
        for path, file in change.names:
            self._flushed.pop(path, None)
            if file is not None:
                self._flushed[path] = file

    def _rename(self, call: Call) -> None:
        old, new = call.path(0), call.path(1)
        if not old.is_relative_to(self._root):
            return
        if old.parent != new.parent:
            raise NotImplementedError(f"{old} to {new}: from one folder to another")
        self._pending.append(Renaming(((old, None), (new, self.names()[old]))))

    def _link(self, call: Call) -> None:
        old, new = call.path(0), call.path(1)
        if old.is_relative_to(self._root):
            self._pending.append(Renaming(((new, self.names()[old]),)))

    def _unlink(self, call: Call) -> None:
        path = call.path(0)
        if path.is_relative_to(self._root) and not path.name.endswith(REBUILT):
            self._pending.append(Renaming(((path, None),)))


MEANINGS: dict[str, Callable[[Disk, Call], None]] = {
    "openat": Disk._open,
    "write": Disk._write,
    "pwrite64": Disk._pwrite,
    "lseek": Disk._seek,
    "ftruncate": Disk._cut,
    "fsync": Disk._flush,
    "fdatasync": Disk._flush,
    "rename": Disk._rename,
    "link": Disk._link,
    "unlink": Disk._unlink,
}
