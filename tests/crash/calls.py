# SPDX-License-Identifier: Apache-2.0
"""Calls: what a process asked of the file system, in the order in which it did.

``strace`` writes the calls down with all bytes. Only those that change a file, its name
or its durability are of interest, and those on the line to the parent, which say what
had been acknowledged by then.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Whatever could change a file without one of these would show: a disk on which
# everything was kept must equal the real folder, byte for byte.
TRACED = (
    "open openat creat write writev pwrite64 pwritev pwritev2 sendfile copy_file_range "
    "fsync fdatasync sync syncfs sync_file_range ftruncate truncate fallocate lseek "
    "rename renameat renameat2 unlink unlinkat link linkat symlink symlinkat mkdir "
    "mkdirat rmdir"
).split()
HEXADECIMAL = re.compile(r"(?:\\x[0-9a-f]{2})+")
LINE = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)")
DESCRIPTOR = re.compile(r"(?P<number>\d+|AT_FDCWD)<(?P<path>[^>]*)>")
ANY_LENGTH = str(1 << 28)


@dataclass(frozen=True)
class Call:
    """One call that succeeded: its name, its arguments as printed, its result."""

    name: str
    arguments: tuple[str, ...]
    result: int

    def number(self, place: int) -> int:
        """Return an argument that is a number or a descriptor."""
        found = DESCRIPTOR.match(self.arguments[place])
        return int(found["number"] if found else self.arguments[place])

    def data(self, place: int) -> bytes:
        """Return an argument that is bytes."""
        return _bytes(self.arguments[place].strip('"'))

    def path(self, place: int) -> Path:
        """Return an argument that is a path, or the path behind a descriptor."""
        found = DESCRIPTOR.match(self.arguments[place])
        return Path((_bytes(found["path"]) if found else self.data(place)).decode())

    def is_word(self) -> bool:
        """Whether this is a word on a line to the parent."""
        return self.name == "write" and str(self.path(0)).startswith("pipe:")


def can_record() -> bool:
    """Whether calls can be recorded on this machine."""
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True)
    return tried.returncode == 0


@contextmanager
def recorded(process: int, log: Path) -> Iterator[None]:
    """Record the calls of a process, from now until it ends, in a file."""
    command = ["strace", "-f", "-xx", "-y", "-s", ANY_LENGTH]
    command += ["-e", f"trace={','.join(TRACED)}", "-o", str(log), "-p", str(process)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        said = strace.stderr.readline()
        if "attached" not in said:
            raise RuntimeError(f"strace cannot watch a process here: {said.strip()}")
        yield


def read_calls(lines: Iterable[str]) -> Iterator[Call]:
    """Yield the calls that succeeded, each at the moment when it returned."""
    begun: dict[str, str] = {}
    for line in lines:
        process, _, text = line.rstrip("\n").partition(" ")
        text = text.lstrip()
        if text.endswith("<unfinished ...>"):
            begun[process] = text.removesuffix("<unfinished ...>").rstrip()
            continue
        if text.startswith("<... "):
            text = begun.pop(process) + text.partition(" resumed>")[2].lstrip()
        found = LINE.match(text)
        if found is not None and int(found["result"]) >= 0:
            arguments = tuple(found["arguments"].split(", "))
            yield Call(found["name"], arguments, int(found["result"]))


def hexadecimal(path: Path) -> str:
    """Return a path as it is printed."""
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(path))


def _bytes(text: str) -> bytes:
    if HEXADECIMAL.fullmatch(text) is None and text:
        raise ValueError(f"{text[:80]!r} is not what strace -xx prints")
    return bytes.fromhex(text.replace("\\x", ""))
