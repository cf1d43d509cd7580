# SPDX-License-Identifier: Apache-2.0
"""A client: what it was promised, and a process of it that sends what it was not.

The process says on a line to its parent what the registry acknowledged. Words on the
line outlive the process: whatever its parent has heard, the client relies upon.
"""

import copy
import json
import mmap
import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NoReturn

from expunge.exceptions import StoreFailed, UnknownRequest
from expunge.registry import Registry

from .story import Step, Story

UNKNOWN = "unknown"


@dataclass
class Memory:
    """What a client knows, whichever of its processes heard it.

    Attributes
    ----------
    accepted, receipts
        What was acknowledged.
    found
        How far the first request without an acknowledgement had come when the last
        process began.
    finished, store_failed
        How the last process ended; why, if the store failed.
    complaints
        What must not happen and did.
    """

    accepted: set[str] = field(default_factory=set)
    receipts: dict[str, str] = field(default_factory=dict)
    found: str = ""
    complaints: list[str] = field(default_factory=list)
    finished: bool = False
    store_failed: str = ""

    def hear(self, word: str, *rest: str) -> None:
        """Take in one message of a process."""
        match word, *rest:
            case "accepted", request:
                self.accepted.add(request)
            case "receipt", request, text:
                if self.receipts.setdefault(request, text) != text:
                    self.complaints.append(f"{request}: two receipts that differ")
            case "found", stage:
                self.found = stage
            case ("finished",):
                self.finished = True
            case "store failed", reason:
                self.store_failed = reason
            case _:
                self.complaints.append(f"{word}: {' '.join(rest)}")

    def become(self, other: "Memory") -> None:
        """Know what another knows, and nothing else."""
        for part in fields(self):
            setattr(self, part.name, copy.deepcopy(getattr(other, part.name)))

    def lacks(self, step: Step) -> bool:
        """Whether something about this step was not acknowledged."""
        known = self.accepted if step.how == "accept" else self.receipts
        return any(one.request not in known for one in step.asked)


class Line:
    """A process's end of the line: words for its parent, and where it is in its work.

    Parameters
    ----------
    descriptor
        Where words are written to.
    place
        Memory shared with the parent, who reads it when the process is dead.
    """

    def __init__(self, descriptor: int, place: mmap.mmap) -> None:
        self._descriptor = descriptor
        self._place = place

    def say(self, *words: str) -> None:
        """Tell the parent."""
        os.write(self._descriptor, json.dumps(words).encode("ascii") + b"\n")

    @contextmanager
    def at(self, phase: str) -> Iterator[None]:
        """Note what is being done meanwhile."""
        before = self._place[:]
        self._place[:] = phase.encode("ascii").ljust(len(before))
        yield
        self._place[:] = before


def work(story: Story, folder: Path, memory: Memory, line: Line) -> NoReturn:
    """Be a process of the client: send what was not acknowledged, then end."""
    try:
        _send_all(story, folder, memory, line)
        line.say("finished")
    except StoreFailed as error:
        line.say("store failed", str(error))
    except BaseException:
        line.say("a process broke", traceback.format_exc())
    os._exit(0)  # nothing of the parent's may run here


def _send_all(story: Story, folder: Path, memory: Memory, line: Line) -> None:
    with line.at("opening"), Registry.open(folder) as registry:
        open_steps = [step for step in story.steps if memory.lacks(step)]
        with line.at("between requests"):
            for request in memory.accepted - memory.receipts.keys():
                if _stage(registry, request) == UNKNOWN:
                    line.say("acknowledged, and forgotten", request)
            for step in open_steps[:1]:
                line.say("found", _stage(registry, step.asked[0].request))
            for step in open_steps:
                _send(registry, step, line)
            with line.at("applying"):
                registry.apply()
            _collect(registry, story.requests().keys() - memory.receipts.keys(), line)


def _send(registry: Registry, step: Step, line: Line) -> None:
    for _ in range(2 if step.twice else 1):
        if step.how == "forget":
            (one,) = step.asked
            with line.at("forgetting"):
                receipt = registry.forget(one.subjects, one.request)
            line.say("receipt", one.request, receipt)
            continue
        with line.at("accepting"):
            statuses = registry.accept(step.asked)
        for status in statuses:
            line.say("accepted", status.request)
        if step.how == "accept and apply":
            with line.at("applying"):
                registry.apply()
            _collect(registry, [one.request for one in step.asked], line)


def _collect(registry: Registry, requests: Iterable[str], line: Line) -> None:
    for request in requests:
        with line.at("fetching a receipt"):
            receipt = registry.receipt(request)
        if receipt is None:
            line.say("no receipt after everything was applied", request)
        else:
            line.say("receipt", request, receipt)


def _stage(registry: Registry, request: str) -> str:
    try:
        return str(registry.request(request).stage)
    except UnknownRequest:
        return UNKNOWN
