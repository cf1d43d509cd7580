# SPDX-License-Identifier: Apache-2.0
"""Processes of a client: forked from one that has imported everything, and mortal."""

import json
import mmap
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .client import Job, Line, Memory, run

Answer = TypeVar("Answer")

PHASE_LENGTH = 64
# No request of these stories takes a second; a process that takes so long hangs.
PATIENCE = 120.0
# How often to look whether a phase has come: many times in the shortest.
GLANCE = 0.0002


@dataclass(frozen=True)
class Moment:
    """So many seconds after a process entered a phase, or after it began."""

    seconds: float
    phase: str = ""


@dataclass(frozen=True)
class Life:
    """How a process of the client ended.

    ``phase`` is what it was doing when ``struck``, if it was; ``seconds`` how long it
    lived.
    """

    struck: bool
    phase: str
    seconds: float


def unheard() -> Line:
    """Return a line on which nobody listens, for a process that was forked for more."""
    return Line(os.open(os.devnull, os.O_WRONLY), mmap.mmap(-1, PHASE_LENGTH))


def apart(function: Callable[..., Answer], *arguments: object) -> Answer:
    """Call a function in a process of its own, so that this one stays fit to fork."""
    listening, speaking = os.pipe()
    child = os.fork()
    if not child:
        answer: tuple[Answer | None, str]
        try:
            answer = (function(*arguments), "")
        except BaseException as error:
            said = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            answer = (None, said)
        with os.fdopen(speaking, "wb") as line:
            pickle.dump(answer, line)
        os._exit(0)
    os.close(speaking)
    with os.fdopen(listening, "rb") as line:
        result, failure = pickle.load(line)
    os.waitpid(child, 0)
    if failure:
        raise RuntimeError(f"in a process apart: {failure}")
    answered: Answer = result
    return answered


def judged(judge: Callable[..., list[str]], *arguments: object) -> list[str]:
    """Return the complaints of a judge, apart; that it could not judge is one, too."""
    try:
        return apart(judge, *arguments)
    except RuntimeError as error:
        return [str(error)]


class Worker:
    """A running process of the client, as its parent sees it.

    Parameters
    ----------
    memory
        Where its words go.
    job
        What it does.
    """

    def __init__(self, memory: Memory, job: Job) -> None:
        self._memory = memory
        self._heard = b""
        self._place = mmap.mmap(-1, PHASE_LENGTH)
        self._began = time.monotonic()
        self._listening, speaking = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._listening)
            run(job, Line(speaking, self._place))
        os.close(speaking)

    def live(self, moment: Moment | None, strike: Callable[["Worker"], None]) -> Life:
        """Let it work until a moment, strike, and see it end; None spares it."""
        ended = self._reached(moment)
        struck, phase = moment is not None and not ended, self.phase()
        if struck:
            strike(self)
            ended = self.listen(PATIENCE)
        if not ended:
            self._memory.hear("a process hangs", phase, self.phase())
            self.kill()
            self.listen(PATIENCE)
        self.bury()
        return Life(struck, phase, time.monotonic() - self._began)

    def bury(self) -> None:
        """Give back what is left of a process that ended."""
        os.close(self._listening)
        os.waitpid(self.pid, 0)

    def kill(self) -> None:
        """End it without a chance to say anything."""
        os.kill(self.pid, signal.SIGKILL)

    def _reached(self, moment: Moment | None) -> bool:
        """Hear the process out until a moment; return whether it ended before."""
        if moment is None:
            return self.listen(PATIENCE)
        end = time.monotonic() + PATIENCE
        while moment.phase not in ("", self.phase()):
            if self.listen(GLANCE):
                return True
            if time.monotonic() > end:
                self._memory.hear("a process hangs", self.phase())
                return False
        return self.listen(moment.seconds)

    def phase(self) -> str:
        """Return what the process is doing."""
        return self._place[:].rstrip(b"\0 ").decode("ascii") or "starting"

    def listen(self, seconds: float) -> bool:
        """Hear the process out for so long; return whether it ended by then."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._listening], [], [], left)[0]:
                return False
            words = os.read(self._listening, 1 << 16)
            if not words:
                return True
            *whole, self._heard = (self._heard + words).split(b"\n")
            for message in whole:
                said: list[Any] = json.loads(message)
                self._memory.hear(*said)
        return False
