# SPDX-License-Identifier: Apache-2.0
"""Sending: what a process of the client asks of the registry, step by step."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from expunge.exceptions import (
    InvalidInput,
    NeedsDecision,
    NeedsRestore,
    RequestConflict,
    UnknownRequest,
)
from expunge.registry import Decider, Registry
from tests.registries import is_collision, today

from .backups import back_up, hidden, put_database_back
from .client import Line, Memory
from .oracles import parameters_of
from .story import FITS, Step, Story, tokens_beside, unfitted

UNKNOWN = "unknown"

Errors: TypeAlias = tuple[type[Exception], ...]


@dataclass(frozen=True)
class Telling:
    """How a process tells a story.

    Attributes
    ----------
    story, folder
        What it tells, and to which registry.
    order
        In which order it takes the steps; as they come if empty.
    tolerated
        Errors after which it sends again what was refused.
    after_refusal
        Called after such an error.
    spared
        Within it nothing strikes: a backup is taken by other means than the registry's.
    """

    story: Story
    folder: Path
    order: Sequence[int] = ()
    tolerated: Errors = ()
    after_refusal: Callable[[], object] = field(default=lambda: None)
    spared: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def backup(self) -> Path:
        """Where the registry is copied to."""
        return self.folder.with_name("backup")

    @property
    def shipped(self) -> Path:
        """Where releases are shipped to."""
        return self.folder.with_name("shipped")


def send_all(telling: Telling, memory: Memory, line: Line) -> None:
    """Send everything that was not acknowledged."""
    with line.at("between requests"):
        Sender(telling, memory, line).send_all()


def _must_restore(open_steps: Sequence[Step]) -> bool:
    """Whether a restore comes first, which may have been killed half-way."""
    return bool(open_steps) and open_steps[0].how == "restore"


class Sender:
    """A process of the client at work.

    Parameters
    ----------
    telling
        What it does, and how.
    memory
        What the client knows when the process begins.
    line
        To its parent.
    """

    def __init__(self, telling: Telling, memory: Memory, line: Line) -> None:
        self._telling = telling
        self._memory = memory
        self._line = line
        self._registry: Registry | None = None
        # Which model left as which release, as far as it was acknowledged.
        self._out = [key for key, is_out in memory.out.items() if is_out]

    def send_all(self) -> None:
        """Send what was not acknowledged, and fetch what is missing."""
        story, memory, line = self._telling.story, self._memory, self._line
        steps = [story.steps[place] for place in self._telling.order] or story.steps
        open_steps = [step for step in steps if memory.lacks(step)]
        self._patiently(self._come_back, open_steps)
        first = open_steps[:1] if _must_restore(open_steps) else []
        for step in first:  # until then nobody may look
            self._patiently(self._send, step)
        for request in sorted(memory.accepted - memory.receipts.keys()):
            if self._patiently(self._stage, request) == UNKNOWN:
                line.say("acknowledged, and forgotten", request)
        for step in open_steps[len(first) :]:
            self._patiently(self._send, step)
        self._patiently(self._apply)
        wanted = story.requests().keys() - story.cancelled() - memory.receipts.keys()
        self._patiently(self._collect, sorted(wanted))
        self._close()

    def _patiently(self, act: Callable[..., str | None], *what: object) -> str | None:
        """Do something, again and again if it is refused for a good reason."""
        while True:
            try:
                return act(*what)
            except self._telling.tolerated as error:
                if is_collision(error):
                    raise
                self._line.say("refused", self._line.failed())
                self._telling.after_refusal()

    def _come_back(self, open_steps: Sequence[Step]) -> None:
        """Open the registry, unless it has to be restored first.

        Where a restore may have been killed, half of all clients look before they do
        it again, and there should be nothing left of it then.
        """
        restoring = _must_restore(open_steps)
        if restoring and len(self._memory.receipts) % 2:
            return
        try:
            self._open()
        except NeedsRestore:
            if not restoring:
                raise
            return
        if restoring:
            left = ", ".join(hidden(self._telling.folder))
            if left:
                self._line.say("left behind by a restore after an open", left)
        for step in [step for step in open_steps if step.asked][:1]:
            self._line.say("found", self._stage(step.asked[0].request))

    def _open(self) -> Registry:
        if self._registry is None:
            with self._line.at("opening"):
                self._registry = Registry.open(self._telling.folder)
        return self._registry

    def _close(self) -> None:
        if self._registry is not None:
            self._registry.close()
        self._registry = None

    def _send(self, step: Step) -> None:
        """Take a step, and say so."""
        if step.how in COMMANDS:
            with self._line.at(step.how):
                COMMANDS[step.how](self, step)
            self._line.say("done", str(step.place))
        else:
            for _ in range(2 if step.twice else 1):
                self._ask(step)
        self._show_parameters()

    def _ask(self, step: Step) -> None:
        registry, line = self._open(), self._line
        if step.how == "forget":
            (one,) = step.asked
            if self._telling.story.four_eyes:
                with line.at("accepting"):
                    registry.requests.accept([one])
                line.say("accepted", one.request)
                with line.at("applying"):
                    self._approve([one.request])
            with line.at("forgetting"):
                receipt = registry.forget(one.subjects, one.request)
            line.say("receipt", one.request, receipt)
            return
        with line.at("accepting"):
            statuses = registry.requests.accept(step.asked, strangers=step.strangers)
        for status in statuses:
            line.say("accepted", status.request)
        if step.how == "accept and apply":
            self._apply()
            self._collect([one.request for one in step.asked])

    def _apply(self) -> None:
        registry = self._open()
        with self._line.at("applying"):
            self._approve()
            registry.requests.apply()

    def _approve(self, only: Sequence[str] = ()) -> None:
        """Let two people approve what waits for that; one of them is not enough."""
        requests = self._open().requests
        pending = self._open().status().pending
        waiting = [one.request for one in pending if one.missing]
        if not waiting:
            return
        for one in waiting:
            with suppress(RequestConflict):  # or it was killed before it said so
                requests.check_identity(one, "account")
        for secret in tokens_beside(self._telling.folder).read_text().split():
            with suppress(NeedsDecision):
                requests.apply(only=only or waiting)
            for one in waiting:
                made = requests.decisions(one)
                people = {by.person for by in made if by.step == "approval"}
                if requests.status(one).stage != "accepted" and len(people) < 2:
                    self._line.say("applied by fewer than two", one)
                with suppress(RequestConflict, NeedsDecision):
                    requests.approve(one, by=Decider(shown=secret))

    def _collect(self, requests: Iterable[str]) -> None:
        registry = self._open()
        for request in requests:
            with self._line.at("fetching a receipt"):
                receipt = registry.requests.receipt(request)
            if receipt is None:
                self._line.say("no receipt after everything was applied", request)
            else:
                self._line.say("receipt", request, receipt)

    def _stage(self, request: str) -> str:
        try:
            return str(self._open().requests.status(request).stage)
        except UnknownRequest:
            return UNKNOWN

    def _show_parameters(self) -> None:
        """Say what was released, so that what is superseded can be looked for."""
        for figures in parameters_of(self._open()).values():
            self._line.say("parameter", figures)

    def _fit(self, step: Step) -> None:
        registry = self._open()
        there = step.model in registry.models.names()
        if step.how == "fit" and there:
            return  # it was killed before it could say so
        sample = self._telling.story.samples[step.model].of(step.people)
        fit = registry.models.refit if there else registry.fit
        fit(
            step.model, unfitted(step.model), sample.X, sample.y, subjects=sample.owners
        )

    def _add(self, step: Step) -> None:
        registry, rows = self._open(), step.rows
        (new,) = registry.requests.find_models(rows.owners[:1]).values()
        if step.model not in new:  # or it was killed before it could say so
            registry.add(step.model, rows.X, rows.y, subjects=rows.owners)

    # What was done before it could say so is refused. A crash may also have left it in
    # the journal alone, where nobody can look. The verdict sees that it was done, once.
    def _cancel(self, step: Step) -> None:
        with suppress(InvalidInput):
            self._open().requests.cancel(step.request)

    def _refuse(self, step: Step) -> None:
        with suppress(InvalidInput):
            self._open().requests.refuse(step.request, step.reason)
        self._collect([step.request])

    def _extend(self, step: Step) -> None:
        with suppress(InvalidInput):
            self._open().requests.extend(
                step.request, step.reason, notified=today().isoformat()
            )
        with suppress(InvalidInput):  # or everything later would wait
            self._open().requests.proceed(step.request)

    def _remove(self, step: Step) -> None:
        registry = self._open()
        if step.model in registry.models.names():  # or it was killed before it said so
            registry.models.remove(step.model)

    def _ship(self, step: Step) -> None:
        registry = self._open()
        path = self._telling.shipped / f"{step.place}.safetensors"
        left = registry.models.ship(step.model, path)
        self._out.append((left.model, left.number))
        self._line.say("shipped", left.model, str(left.number))

    def _withdraw(self, step: Step) -> None:
        out = [number for name, number in self._out if name == step.model]
        if not out:
            return  # it was killed before it could say that this step is done
        name, number = step.model, out[-1]
        self._open().models.withdraw(name, number)
        self._line.say("withdrawn", name, str(number))

    def _back_up(self, step: Step) -> None:
        del step
        self._close()
        with self._telling.spared():
            back_up(self._telling.folder, self._telling.backup)

    def _restore(self, step: Step) -> None:
        del step
        self._close()
        put_database_back(self._telling.folder, self._telling.backup)
        self._registry = Registry.restore(self._telling.folder, self._telling.backup)


COMMANDS: Mapping[str, Callable[[Sender, Step], object]] = {
    **dict.fromkeys(FITS, Sender._fit),
    "reanchor": lambda sender, step: sender._open().models.reanchor(step.model),
    "add": Sender._add,
    "cancel": Sender._cancel,
    "refuse": Sender._refuse,
    "extend": Sender._extend,
    "remove": Sender._remove,
    "ship": Sender._ship,
    "withdraw": Sender._withdraw,
    "rotate signing key": lambda sender, step: sender._open().keys.rotate_signing_key(),
    "rotate tag key": lambda sender, step: sender._open().keys.rotate_tag_key(),
    "readmit": lambda sender, step: sender._open().requests.readmit(step.people),
    "look": lambda sender, step: sender._open().status(),
    "back up": Sender._back_up,
    "restore": Sender._restore,
}
