# SPDX-License-Identifier: Apache-2.0
"""Journal: what a database that was put back from a backup would lack.

A private file beside the database, one line of JSON after another, each with a checksum
and on disk before what it tells of is promised to anybody: requests as they are
accepted, with the tags of the people; what was added to the ledger, with the receipts;
releases that left. Replaying it on a restored database makes sure that nobody who was
forgotten since comes back, that the ledger goes on from where it was, and that no
accepted request is lost.

The tags in it are personal data, kept for this purpose: they may be destroyed with the
last backup that still holds the people.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..durable import flush
from ..exceptions import StoreFailed
from ..private import Private
from .engine import translated
from .lock import locked


class Journal(Private):
    """The file, to append to and to read from a place on.

    Parameters
    ----------
    path
        Of the file.
    """

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, lines: Sequence[dict[str, Any]]) -> int:
        """Write lines, see them on disk, and return where the file ends then."""
        data = b"".join(_written(line) for line in lines)
        with translated(), locked(self.path) as descriptor:
            end = _whole(descriptor)
            os.ftruncate(descriptor, end)  # what a crash left half written
            try:
                _write(descriptor, data, end)
                os.fsync(descriptor)
                if not end:
                    flush(self.path.parent)  # a new file must be found, too
            except BaseException:
                os.ftruncate(descriptor, end)
                raise
            return end + len(data)

    def read(self, start: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the lines from a place on with theirs, one of a crash left out."""
        if not self.path.exists():
            return
        with translated(), self.path.open("rb") as file:
            if start > os.fstat(file.fileno()).st_size:
                start = 0  # another file: everything in it may be news
            file.seek(start)
            for line in file:
                if not _holds(line):
                    self._require_torn(file, start)
                    return
                yield start, json.loads(line.partition(b" ")[2])
                start += len(line)

    def _require_torn(self, rest: Iterable[bytes], place: int) -> None:
        """Refuse a line that does not hold, unless it is the last: then a crash did it.

        A disk may write the end of a line and not its beginning.
        """
        if any(_holds(line) for line in rest):
            raise StoreFailed(
                f"{self.path} is damaged at byte {place}; put it back from where it "
                "was copied"
            )


def _written(content: dict[str, Any]) -> bytes:
    """Return a line: a checksum, and JSON."""
    text = json.dumps(content, separators=(",", ":")).encode("ascii") + b"\n"
    return _checksum(text) + b" " + text


def _checksum(text: bytes) -> bytes:
    """Return what shows that a line was damaged; whoever can write can make it anew."""
    return sha256(text).hexdigest()[:16].encode("ascii")


def _holds(line: bytes) -> bool:
    """Whether a line is as it was written."""
    said, _, text = line.partition(b" ")
    return line.endswith(b"\n") and _checksum(text) == said


def _whole(descriptor: int) -> int:
    """Return where the last line ends that is as it was written."""
    size = os.fstat(descriptor).st_size
    length = 1 << 14
    while True:
        start = max(0, size - length)
        block = os.pread(descriptor, size - start, start)
        lines = block.splitlines(keepends=True)
        if start:
            lines[0] = b""  # its beginning may lie further ahead
            start += len(block) - sum(map(len, lines))
        ends = list(accumulate(map(len, lines), initial=start))[1:]
        for line, end in zip(reversed(lines), reversed(ends), strict=True):
            if _holds(line):
                return end
        if length >= size:
            return 0
        length *= 8


def _write(descriptor: int, data: bytes, place: int) -> None:
    """Write all of the data at a place."""
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], place + done)
