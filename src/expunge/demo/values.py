# SPDX-License-Identifier: Apache-2.0
"""What one demo run measured, and how those figures read in plain English.

The page, its plots and the JSON output are pure functions of a ``DemoResult``. The
result names nobody, but distances, radii and times depend on the people who were
forgotten, so it belongs to the operator. The terminal and the page share the sentences
at the end of this module, so they cannot disagree.
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

# How many entries at the end of the ledger are drawn one by one.
N_LAST_ENTRIES = 4


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of the ledger's Merkle tree, and where to draw it.

    Parameters
    ----------
    start, stop
        The node covers entries ``start`` to ``stop - 1``.
    depth, x
        Steps below the root, and the column from left to right.
    role
        "entry" for the receipt's own entry; "path" for nodes computed from it on the
        way up; "proof" for hashes given in the receipt; otherwise "plain".
    digest
        In hexadecimal.
    children
        Two, or none if the subtree is drawn as a single box.
    """

    start: int
    stop: int
    depth: int
    x: float
    role: Role
    digest: str
    children: tuple["TreeNode", ...] = ()

    def walk(self) -> Iterator["TreeNode"]:
        """Yield this node and all nodes below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def build_tree(leaves: Sequence[bytes], index: int) -> TreeNode:
    """Return the tree over entry hashes, open around ``index`` and at the end.

    A ledger with hundreds of entries is too wide for a page. Subtrees away from the
    receipt's entry and from the end are drawn as one box each; every digest is that of
    the full tree.
    """
    builder = _TreeBuilder(leaves, index, count())
    return builder.build(0, len(leaves), depth=0, parent="path")


@dataclass(frozen=True, slots=True)
class _TreeBuilder:
    """What all nodes of one tree share."""

    leaves: Sequence[bytes]
    index: int
    columns: Iterator[int]

    def build(self, start: int, stop: int, *, depth: int, parent: Role) -> TreeNode:
        """Return the node over these entries; ``parent`` is its parent's role."""
        role = self._role(start, stop, parent=parent)
        children: tuple[TreeNode, ...] = ()
        at_the_end = stop > len(self.leaves) - N_LAST_ENTRIES
        if stop - start > 1 and (at_the_end or role == "path"):
            # RFC 9162 splits at the largest power of two below the size.
            middle = start + (1 << ((stop - start - 1).bit_length() - 1))
            children = tuple(
                self.build(*part, depth=depth + 1, parent=role)
                for part in ((start, middle), (middle, stop))
            )
        if children:
            x = 0.5 * (children[0].x + children[1].x)
        else:
            x = float(next(self.columns))
        digest = _hash_leaves(self.leaves[start:stop]).hex()
        return TreeNode(start, stop, depth, x, role, digest, children)

    def _role(self, start: int, stop: int, *, parent: Role) -> Role:
        if start <= self.index < stop:
            return "path" if stop - start > 1 else "entry"
        return "proof" if parent == "path" else "plain"


def _hash_leaves(leaves: Sequence[bytes]) -> bytes:
    """Return the root hash over these leaves alone."""
    frontier = Frontier()
    for leaf in leaves:
        frontier = frontier.append(leaf)
    return frontier.tree().root


@dataclass(frozen=True, slots=True)
class DemoSetup:
    """The data and the model.

    Parameters
    ----------
    n_people, n_held_out, n_features
        People in the model, people in no model, measurements of each person.
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
class Step:
    """The model after one answer of the registry, compared with retraining.

    Parameters
    ----------
    n_forgotten
        People forgotten so far; 0 is the fit itself.
    distance, radius
        Distance from the noise-free model to scikit-learn's model of the remaining
        people, and the bound on it in the private record.
    accuracy, retrained_accuracy
        On people in no model: of the release, and of scikit-learn's model.
    seconds
        Time for the whole answer: accepted, applied, erased, logged and signed.
    removal_seconds, retraining_seconds
        Time for the removal alone, from the private record, and for scikit-learn's fit.
    decision
        What the registry did to stay within the budget.
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
    """One stage of a request, in seconds since the request was made."""

    name: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class CheckedReceipt:
    """A receipt as someone with only the public key reads it."""

    valid: bool
    findings: tuple[str, ...]
    says: str
    not_covered: tuple[str, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class TamperedCopy:
    """A file that was tampered with: its name, the change, and the check's verdict."""

    name: str
    change: str
    valid: bool
    says: str


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """A release written to a file."""

    name: str
    number: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which the times were measured."""

    processor: str
    system: str
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Timings:
    """Median seconds for one person.

    ``alone`` and ``in_batch`` are whole answers of the registry; ``removal`` and
    ``retraining`` are the arithmetic, with nothing written to disk.
    """

    alone: float
    in_batch: float
    removal: float
    retraining: float


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Everything that one demo run measured, in the order in which it happened.

    Parameters
    ----------
    setup
        Data and model.
    certificate
        Certificate of the last release, which states the budget.
    steps
        The fit, then every request answered on its own.
    batch, n_batch
        The answer to ``n_batch`` requests at once.
    timeline
        The stages of one request, from making it to checking its receipt.
    release_file, receipt, tampered
        The release written to a file, one receipt, and copies that were tampered with.
    tree
        The end of the ledger, with the proof in the receipt.
    n_entries, n_receipts
        Entries in the ledger, and how many requests have a valid receipt.
    machine, seconds
        The machine, and how long the run took.
    """

    setup: DemoSetup
    certificate: Certificate
    steps: tuple[Step, ...]
    batch: Step
    n_batch: int
    timeline: tuple[Stage, ...]
    release_file: ReleaseFile
    receipt: CheckedReceipt
    tampered: tuple[TamperedCopy, ...]
    tree: TreeNode
    n_entries: int
    n_receipts: int
    machine: Machine
    seconds: float

    @property
    def fit(self) -> Step:
        """The model before anyone was forgotten."""
        return self.steps[0]

    @property
    def requests(self) -> tuple[Step, ...]:
        """The requests answered on their own."""
        return self.steps[1:]

    @property
    def answers(self) -> tuple[Step, ...]:
        """All steps, the batch last."""
        return (*self.steps, self.batch)

    @property
    def timings(self) -> Timings:
        """Time for one person, measured in four ways."""
        return Timings(
            alone=median(step.seconds for step in self.requests),
            in_batch=self.batch.seconds / self.n_batch,
            removal=median(step.removal_seconds for step in self.requests),
            retraining=median(step.retraining_seconds for step in self.requests),
        )

    @property
    def radius_budget(self) -> float:
        """How far from retraining the budget lets a model be."""
        budget = self.certificate.radius_budget
        assert budget is not None  # the demo always has a budget
        return budget

    def find_failures(self) -> tuple[str, ...]:
        """Return what did not come out as promised; empty if everything did."""
        answers, tau = self.answers, self.certificate.tau or 0.0
        checks = {
            "a model is farther from retraining than its certified radius": any(
                step.distance > step.radius for step in answers
            ),
            "a radius exceeds the budget": any(
                step.radius + tau > self.radius_budget for step in answers
            ),
            "a request has no valid receipt": not self.receipt.valid
            or self.n_receipts < self.batch.n_forgotten,
            "a tampered file was accepted as genuine": any(
                copy.valid for copy in self.tampered
            ),
        }
        return tuple(failure for failure, failed in checks.items() if failed)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dumps``."""
        return {
            field.name: _to_plain(getattr(self, field.name)) for field in fields(self)
        }


def _to_plain(value: Any) -> Any:
    """Return a part of the result as JSON data."""
    if isinstance(value, Certificate):
        return json.loads(value.to_json())
    if isinstance(value, tuple):
        return [_to_plain(part) for part in value]
    if is_dataclass(value):
        return {
            part.name: _to_plain(getattr(value, part.name)) for part in fields(value)
        }
    return value


def format_milliseconds(seconds: float) -> str:
    """Return a time in milliseconds, short ones with two digits."""
    value = 1e3 * seconds
    return f"{value:.0f} ms" if value >= 10.0 else f"{value:.2g} ms"


def format_ratio(numerator: float, denominator: float) -> str:
    """Return how many times larger one figure is than another."""
    value = numerator / denominator
    return f"{value:.0f}" if value >= 10.0 else f"{value:.2g}"


def format_percent(share: float) -> str:
    """Return a share of one, to a tenth of a percent."""
    return f"{100.0 * share:.1f}%"


def describe_people(setup: DemoSetup) -> str:
    """Return whose data these are."""
    return (
        f"{setup.n_people} patients with {setup.n_features} measurements each, from "
        f"scikit-learn's breast cancer data. {setup.n_held_out} other patients are in "
        "no model. They set the scale of the features, since preprocessing fitted on "
        "people in the model would not be unlearned, and accuracy is measured on them"
    )


def describe_budget(certificate: Certificate) -> str:
    """Return the budget in a sentence."""
    return (
        f"epsilon {certificate.epsilon:g}, delta {certificate.delta:g}, for each "
        f"release on its own; noise of standard deviation {certificate.sigma:g} on "
        f"every parameter. The model may be up to {certificate.radius_budget:.2g} away "
        "from retraining"
    )


def describe_distances(result: DemoResult) -> str:
    """Return how close to retraining every release was."""
    answers, budget = result.answers, result.radius_budget
    inside = sum(step.distance <= step.radius <= budget for step in answers)
    return (
        f"at most {max(step.distance for step in answers):.2g} from retraining. In "
        f"{inside} of {len(answers)} releases the distance is within the certified "
        f"radius of at most {max(step.radius for step in answers):.2g}, and the radius "
        f"is within the budget of {budget:.2g}"
    )


def describe_accuracy(result: DemoResult) -> str:
    """Return the accuracy of the released model, before and after."""
    before, after = result.fit, result.batch
    return (
        f"released model {format_percent(before.accuracy)} before and "
        f"{format_percent(after.accuracy)} after {after.n_forgotten} removals; "
        f"retrained without noise {format_percent(after.retrained_accuracy)}"
    )


def describe_times(result: DemoResult) -> tuple[str, ...]:
    """Return the times that were measured, and how they compare."""
    times = result.timings
    return (
        f"a whole request on its own: {format_milliseconds(times.alone)}; in a batch "
        f"of {result.n_batch}: {format_milliseconds(times.in_batch)} per person, a "
        f"ratio of {format_ratio(times.alone, times.in_batch)}",
        f"the removal alone: {format_milliseconds(times.removal)}; scikit-learn's fit "
        f"to the remaining people: {format_milliseconds(times.retraining)}, a ratio of "
        f"{format_ratio(times.retraining, times.removal)}",
    )


def describe_first_look(requests: Sequence[Step]) -> str:
    """Return how many people left before an answer had to read the remaining rows."""
    for n_left, step in enumerate(requests):
        if step.decision != "accepted":
            return (
                f"{n_left} people left before an answer had to read the rows that "
                "stay, where a model that keeps none must refuse"
            )
    return f"all {len(requests)} answers were found without reading the rows that stay"


def describe_decisions(steps: Sequence[Step]) -> str:
    """Return what the registry did to stay within the budget, and how often."""
    made = [step.decision for step in steps]
    counts = {decision: made.count(decision) for decision in dict.fromkeys(made)}
    return ", ".join(f"{decision} ({number})" for decision, number in counts.items())


def cut_to_first_sentence(text: str) -> str:
    """Return the first sentence of a text, without its full stop."""
    return text.partition(". ")[0].rstrip(".")


def summarise(result: DemoResult) -> list[tuple[str, str]]:
    """Return the outcome as headings and lines, for the terminal."""
    receipt, released = result.receipt, result.release_file
    return [
        (
            "Forgotten",
            f"{len(result.requests)} people one by one and {result.n_batch} in a batch",
        ),
        ("Retraining", f"the model is {describe_distances(result)}"),
        ("Rows read", describe_first_look(result.requests)),
        ("Accuracy", describe_accuracy(result)),
        *(("Time", sentence) for sentence in describe_times(result)),
        ("Release", f"release {released.number} was written to {released.name}"),
        (
            "Receipts",
            f"{result.n_receipts} of {result.batch.n_forgotten} valid, checked with "
            "only the public key. One of them: "
            f"{cut_to_first_sentence(receipt.says)}",
        ),
        *(
            ("Tampering", f"{copy.change}. {cut_to_first_sentence(copy.says)}")
            for copy in result.tampered
        ),
        (
            "Limits",
            f"a receipt says nothing about {len(receipt.not_covered)} things, such as "
            f"{receipt.not_covered[0].partition(':')[0]}; the report lists them all",
        ),
        *(("FAILED", failure) for failure in result.find_failures()),
    ]
