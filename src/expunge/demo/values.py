# SPDX-License-Identifier: Apache-2.0
"""Values: everything that one run of the demonstration measured.

The page, the plots and the JSON are pure functions of a ``Story``. It names nobody, but
distances and radii depend on the people who left: it belongs to the operator.

Tree: the end of a ledger as a drawing can show it.

A ledger of hundreds of entries is a tree too wide for a page. Subtrees far from the
receipt's entry and from the end stay closed, one node for all their entries; the rest
is open down to single entries. Every digest is that of the real tree.

Words: how figures are spoken of, in the terminal and on the page alike.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import count
from statistics import median
from typing import Any, Literal, TypeAlias

from ..ledger.merkle import Frontier
from ..promise.certificate import Certificate

Role: TypeAlias = Literal["entry", "path", "proof", "plain"]

# How many entries at the end are shown one by one.
SHOWN = 4


@dataclass(frozen=True, slots=True)
class Node:
    """The root over entries ``start`` to ``stop``, less one, and where to draw it.

    Parameters
    ----------
    start, stop
        Which entries lie below.
    depth, x
        Steps below the root of all, and the place from left to right.
    role
        The receipt's "entry"; "path", computed from it on the way up; "proof", given
        in the receipt; or "plain".
    digest
        In hexadecimal.
    children
        Two, or none if the subtree is drawn closed.
    """

    start: int
    stop: int
    depth: int
    x: float
    role: Role
    digest: str
    children: tuple["Node", ...] = ()

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def sketch(leaves: Sequence[bytes], index: int) -> Node:
    """Return the tree over hashes of entries, open around ``index`` and at the end."""
    return _Sketcher(leaves, index, count()).node(0, len(leaves), 0, "path")


@dataclass(frozen=True, slots=True)
class _Sketcher:
    """What all nodes of one drawing share."""

    leaves: Sequence[bytes]
    index: int
    columns: Iterator[int]

    def node(self, start: int, stop: int, depth: int, above: Role) -> Node:
        """Return the node over these entries; ``above`` is the role of its parent."""
        role = self._role(start, stop, above)
        children: tuple[Node, ...] = ()
        last = stop > len(self.leaves) - SHOWN
        if stop - start > 1 and (last or role == "path"):
            # The split of RFC 9162: the largest power of two below the size.
            middle = start + (1 << ((stop - start - 1).bit_length() - 1))
            parts = ((start, middle), (middle, stop))
            children = tuple(self.node(*part, depth + 1, role) for part in parts)
        if children:
            x = 0.5 * (children[0].x + children[1].x)
        else:
            x = float(next(self.columns))
        digest = _root(self.leaves[start:stop]).hex()
        return Node(start, stop, depth, x, role, digest, children)

    def _role(self, start: int, stop: int, above: Role) -> Role:
        if start <= self.index < stop:
            return "path" if stop - start > 1 else "entry"
        return "proof" if above == "path" else "plain"


def _root(leaves: Sequence[bytes]) -> bytes:
    """Return the hash over these leaves as a tree of their own."""
    frontier = Frontier()
    for leaf in leaves:
        frontier = frontier.append(leaf)
    return frontier.tree().root


@dataclass(frozen=True, slots=True)
class Setting:
    """Whose data, how many of them, and what is fitted.

    Parameters
    ----------
    n_people, n_held_out, n_features
        People in the model, people in no model, measurements of each.
    alpha
        Factor of the penalty.
    seed
        Decides who asks to be forgotten, and in which order.
    """

    n_people: int
    n_held_out: int
    n_features: int
    alpha: float
    seed: int


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the plan says of one kind of removal."""

    kind: str
    without_rows: int
    with_rows: int
    then: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """The plan in short: how many may go, and what the noise costs."""

    foreseen: tuple[Foreseen, ...]
    allowed: float
    noise_free: float
    released: float


@dataclass(frozen=True, slots=True)
class Step:
    """The model after one answer of the registry, held against retraining.

    Parameters
    ----------
    n_forgotten
        People gone so far; 0 is the fit itself.
    distance, radius
        From the noise-free model to scikit-learn's on the remaining people, and the
        bound on it that stands in the private record.
    accuracy, retrained_accuracy
        On people in no model: of the release, and of scikit-learn's model.
    seconds
        The whole answer: accepted, applied, erased, entered and signed.
    removal_seconds, retraining_seconds
        The removal alone, from the private record, and scikit-learn's fit alone.
    decision
        What the registry did to keep the contract.
    """

    n_forgotten: int
    distance: float
    radius: float
    accuracy: float
    retrained_accuracy: float
    seconds: float
    removal_seconds: float
    retraining_seconds: float
    decision: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stretch in the life of a request, in seconds since it was asked."""

    name: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class Opened:
    """A receipt as somebody with the public key alone reads it."""

    stands: bool
    findings: tuple[str, ...]
    says: str
    not_covered: tuple[str, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Forgery:
    """A copy that was tampered with: its file, what was done, what the check says."""

    name: str
    done: str
    stands: bool
    says: str


@dataclass(frozen=True, slots=True)
class Shipped:
    """A release that left as a file."""

    name: str
    number: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the times were measured."""

    processor: str
    system: str
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Story:
    """One run, in the order in which it happened.

    Parameters
    ----------
    setting, outlook
        Data and model, and the plan.
    certificate
        Of the last release: the contract, and what is promised.
    steps
        The fit, and every request that was answered alone.
    batch, n_batch
        The answer to so many requests at once.
    life
        One request from asking to checking the receipt.
    shipped, opened, forgeries
        What left, what stands, and what does not.
    tree
        The end of the ledger, with the proof in the receipt.
    n_entries, n_receipts
        Entries of the ledger, and how many requests have a receipt that stands.
    machine, seconds
        Where, and how long all of it took.
    """

    setting: Setting
    outlook: Outlook
    certificate: Certificate
    steps: tuple[Step, ...]
    batch: Step
    n_batch: int
    life: tuple[Stage, ...]
    shipped: Shipped
    opened: Opened
    forgeries: tuple[Forgery, ...]
    tree: Node
    n_entries: int
    n_receipts: int
    machine: Machine
    seconds: float

    @property
    def fit(self) -> Step:
        """The model before anybody left."""
        return self.steps[0]

    @property
    def requests(self) -> tuple[Step, ...]:
        """The requests answered alone."""
        return self.steps[1:]

    @property
    def answers(self) -> tuple[Step, ...]:
        """All steps, the batch at the end."""
        return (*self.steps, self.batch)

    @property
    def typical(self) -> "Timings":
        """What a person forgotten costs, by every way that was timed."""
        return Timings(
            alone=median(step.seconds for step in self.requests),
            in_batch=self.batch.seconds / self.n_batch,
            removal=median(step.removal_seconds for step in self.requests),
            retraining=median(step.retraining_seconds for step in self.requests),
        )

    @property
    def budget(self) -> float:
        """How far from retraining the contract lets a model be."""
        budget = self.certificate.radius_budget
        assert budget is not None  # the demonstration has a contract
        return budget

    def failures(self) -> tuple[str, ...]:
        """Return what did not come out as promised; nothing if all did."""
        answers, tau = self.answers, self.certificate.tau or 0.0
        found = {
            "a model is farther from retraining than its certified radius": any(
                step.distance > step.radius for step in answers
            ),
            "a radius does not fit the contract": any(
                step.radius + tau > self.budget for step in answers
            ),
            "a request has no receipt that stands": not self.opened.stands
            or self.n_receipts < self.batch.n_forgotten,
            "a forgery was taken for genuine": any(
                forgery.stands for forgery in self.forgeries
            ),
        }
        return tuple(failure for failure, is_so in found.items() if is_so)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dumps``."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Timings:
    """Median seconds for one person.

    ``alone`` and ``in_batch`` are whole answers of the registry; ``removal`` and
    ``retraining`` are the arithmetic without anything being written.
    """

    alone: float
    in_batch: float
    removal: float
    retraining: float


def _plain(value: Any) -> Any:
    """Return a part of the story as JSON data."""
    if isinstance(value, Certificate):
        return json.loads(value.to_json())
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    return value


def milliseconds(seconds: float) -> str:
    """Return a time, with two digits where it is short."""
    value = 1e3 * seconds
    return f"{value:.0f} ms" if value >= 10.0 else f"{value:.2g} ms"


def ratio(numerator: float, denominator: float) -> str:
    """Return how many times as large one figure is as another."""
    value = numerator / denominator
    return f"{value:.0f}" if value >= 10.0 else f"{value:.2g}"


def percent(share: float) -> str:
    """Return a share of one, to a tenth of a percent."""
    return f"{100.0 * share:.1f}%"


def people(setting: Setting) -> str:
    """Return who the data are about."""
    return (
        f"{setting.n_people} patients with {setting.n_features} measurements each, "
        "from scikit-learn's breast cancer data. "
        f"{setting.n_held_out} others are in no model: they give the features their "
        "scale, since preprocessing fitted on the people in the model would not be "
        "unlearned, and they test its accuracy"
    )


def promise(paper: Certificate) -> str:
    """Return the contract in a sentence."""
    return (
        f"epsilon {paper.epsilon:g}, delta {paper.delta:g}, for each release on its "
        f"own; noise of standard deviation {paper.sigma:g} on every parameter. The "
        f"model may be {paper.radius_budget:.2g} from retraining"
    )


def nearness(story: Story) -> str:
    """Return how close to retraining every answer was."""
    answers = story.answers
    inside = sum(step.distance <= step.radius <= story.budget for step in answers)
    return (
        f"at most {max(step.distance for step in answers):.2g} from retraining. In "
        f"{inside} of {len(answers)} releases the distance is within the certified "
        f"radius, at most {max(step.radius for step in answers):.2g}, and that within "
        f"the budget of {story.budget:.2g}"
    )


def accuracies(story: Story) -> str:
    """Return what the released model is worth, before and after."""
    before, after = story.fit, story.batch
    return (
        f"released {percent(before.accuracy)} before, {percent(after.accuracy)} after "
        f"{after.n_forgotten} removals; retrained without noise "
        f"{percent(after.retrained_accuracy)}"
    )


def speeds(story: Story) -> tuple[str, ...]:
    """Return what times were measured, and how they compare."""
    times = story.typical
    return (
        f"a whole request, answered alone: {milliseconds(times.alone)}; in a batch of "
        f"{story.n_batch}: {milliseconds(times.in_batch)} a person, a ratio of "
        f"{ratio(times.alone, times.in_batch)}",
        f"the removal alone: {milliseconds(times.removal)}; scikit-learn's fit to the "
        f"remaining people: {milliseconds(times.retraining)}, a ratio of "
        f"{ratio(times.retraining, times.removal)}",
    )


def decisions(steps: tuple[Step, ...]) -> str:
    """Return how often the registry did what to keep the contract."""
    made = [step.decision for step in steps]
    counts = {word: made.count(word) for word in dict.fromkeys(made)}
    return ", ".join(f"{word} ({number})" for word, number in counts.items())


def first_sentence(text: str) -> str:
    """Return how a text begins."""
    return text.partition(". ")[0].rstrip(".")


def plan(outlook: Outlook) -> str:
    """Return how many people may leave, in short."""
    counts = "; ".join(
        f"{one.kind} {one.without_rows} and {one.with_rows}" for one in outlook.foreseen
    )
    return (
        "so many may leave before the remaining rows are looked at, and before the "
        f"model is moved towards retraining: {counts}"
    )


def outcome(story: Story) -> list[tuple[str, str]]:
    """Return what came of it, as lines with headings."""
    opened, shipped = story.opened, story.shipped
    return [
        (
            "Forgotten",
            f"{len(story.requests)} people one by one and {story.n_batch} together",
        ),
        ("Retraining", f"the model is {nearness(story)}"),
        ("Accuracy", accuracies(story)),
        *(("Time", sentence) for sentence in speeds(story)),
        ("Release", f"number {shipped.number} left as {shipped.name}"),
        (
            "Receipts",
            f"{story.n_receipts} of {story.batch.n_forgotten} stand, checked with the "
            f"public key alone. One of them: {first_sentence(opened.says)}",
        ),
        *(
            ("Forgery", f"{forgery.done}. {first_sentence(forgery.says)}")
            for forgery in story.forgeries
        ),
        (
            "Limits",
            f"of {len(opened.not_covered)} things a receipt says nothing, "
            f"{opened.not_covered[0].partition(':')[0]} among them; the report has all",
        ),
        *(("FAILED", failure) for failure in story.failures()),
    ]
