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
from pathlib import Path
from typing import Any, TypeVar

from .client import Line, Memory, work
from .story import Story

Answer = TypeVar("Answer")

PHASE_LENGTH = 64
# No request of these stories takes a second; whoever takes so long hangs.
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


def apart(function: Callable[..., Answer], *arguments: object) -> Answer:
    """Call a function in a process of its own, so that this one stays fit to fork."""
    listening, speaking = os.pipe()
    child = os.fork()
    if not child:
        answer: tuple[Answer | None, str]
        try:
            answer = (function(*arguments), "")
        except BaseException:
            answer = (None, traceback.format_exc())
        with os.fdopen(speaking, "wb") as line:
            pickle.dump(answer, line)
        os._exit(0)
    os.close(speaking)
    with os.fdopen(listening, "rb") as line:
        result, failure = pickle.load(line)
    os.waitpid(child, 0)
    if failure:
        raise RuntimeError(f"in a process apart:\n{failure}")
    answered: Answer = result
    return answered


class Worker:
    """A running process of the client, as its parent sees it.

    Parameters
    ----------
    story, folder
        What it tells, and to which registry.
    memory
        What the client knows; the process starts from it, and its words go there.
    before
        Called in the process before it begins.
    """

    def __init__(
        self,
        story: Story,
        folder: Path,
        memory: Memory,
        before: Callable[[Line], object] = lambda line: None,
    ) -> None:
        self._memory = memory
        self._heard = b""
        self._place = mmap.mmap(-1, PHASE_LENGTH)
        self._began = time.monotonic()
        self._listening, speaking = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._listening)
            line = Line(speaking, self._place)
            before(line)
            work(story, folder, memory, line)
        os.close(speaking)

    def live(self, moment: Moment | None, strike: Callable[["Worker"], None]) -> Life:
        """Let it work until a moment, strike, and see it end; None spares it."""
        ended = self._reached(moment)
        struck, phase = moment is not None and not ended, self._phase()
        if struck:
            strike(self)
            ended = self._listen(PATIENCE)
        if not ended:
            self._memory.hear("a process hangs", phase, self._phase())
            self.kill()
            self._listen(PATIENCE)
        os.close(self._listening)
        os.waitpid(self.pid, 0)
        return Life(struck, phase, time.monotonic() - self._began)

    def kill(self) -> None:
        """End it without a chance to say anything."""
        os.kill(self.pid, signal.SIGKILL)

    def _reached(self, moment: Moment | None) -> bool:
        """Hear the process out until a moment; return whether it ended before."""
        if moment is None:
            return self._listen(PATIENCE)
        end = time.monotonic() + PATIENCE
        while moment.phase not in ("", self._phase()):
            if self._listen(GLANCE):
                return True
            if time.monotonic() > end:
                self._memory.hear("a process hangs", self._phase())
                return False
        return self._listen(moment.seconds)

    def _phase(self) -> str:
        return self._place[:].rstrip(b"\0 ").decode("ascii") or "starting"

    def _listen(self, seconds: float) -> bool:
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
