# SPDX-License-Identifier: Apache-2.0
"""A client: what it was promised, and a process of it that sends what it was not.

The process says on a line to its parent what the registry acknowledged. Words on the
line outlive the process: whatever its parent has heard, the client relies upon.
"""

import copy
import json
import logging
import mmap
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import NoReturn

from expunge.exceptions import StoreFailed

from .story import Step


@dataclass
class Memory:
    """What a client knows, whichever of its processes heard it.

    Attributes
    ----------
    accepted, receipts
        What was acknowledged of requests.
    done
        The places of the other steps that were acknowledged.
    out
        By model and number, whether copies of a release are out there; false once they
        were taken back.
    parameters
        One of every release that was seen, as its bytes.
    windows
        What a service with changing windows said, see ``windows``.
    found
        How far the first request without an acknowledgement had come when the last
        process began.
    finished, store_failed
        How the last process ended; why, if the store failed.
    refused
        What was being done whenever the registry said that it cannot be done now.
    complaints
        What must not happen and did.
    """

    accepted: set[str] = field(default_factory=set)
    receipts: dict[str, str] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    out: dict[tuple[str, int], bool] = field(default_factory=dict)
    parameters: set[str] = field(default_factory=set)
    windows: list[str] = field(default_factory=list)
    found: str = ""
    complaints: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
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
            case "done", place:
                self.done.add(int(place))
            case (("shipped" | "withdrawn"), model, number):
                self.out[model, int(number)] = word == "shipped"
            case "parameter", figures:
                self.parameters.add(figures)
            case "windows", said:
                self.windows.append(said)
            case "found", stage:
                self.found = stage
            case "refused", phase:
                self.refused.append(phase)
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
        if not step.asked:
            return step.place not in self.done
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
        self._failed = ""

    def say(self, *words: str) -> None:
        """Tell the parent."""
        os.write(self._descriptor, json.dumps(words).encode("ascii") + b"\n")

    def failed(self) -> str:
        """Return what was being done when something failed last, and forget it."""
        phase, self._failed = self._failed, ""
        return phase

    @contextmanager
    def at(self, phase: str) -> Iterator[None]:
        """Note what is being done meanwhile."""
        before = self._place[:]
        self._place[:] = phase.encode("ascii").ljust(len(before))
        try:
            yield
        except BaseException:
            self._failed = self._failed or phase
            raise
        finally:
            self._place[:] = before


Job = Callable[[Line], object]


def run(job: Job, line: Line) -> NoReturn:
    """Be a process of the client: do a job, say how it went, and end."""
    # Of sessions that are ended on purpose.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    try:
        job(line)
        line.say("finished")
    except StoreFailed as error:
        line.say("store failed", str(error))
    except BaseException as error:
        said = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        line.say("a process broke", said)
    os._exit(0)  # nothing of the parent's may run here
