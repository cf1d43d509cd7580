# SPDX-License-Identifier: Apache-2.0
"""The verdict: what must hold of a registry at the end, whatever happened before."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from expunge.ledger import (
    Head,
    KeyRotated,
    ModelRegistered,
    Receipt,
    ReleaseMade,
    RequestCompleted,
    RequestExtended,
    check_export,
    check_receipt,
    subject_tags,
)
from expunge.registry import Registry
from tests.registries import (
    leftovers_of,
    said_of_rows_apart,
    shipments_of,
    tag_keys_of,
    unnamed_in_journal,
)

from .backups import hidden
from .client import Memory
from .expected import Expected
from .opened import Opened, traces_of
from .oracles import (
    Arrays,
    differences,
    parameters_in,
    private_arrays,
    unlike_retraining,
)
from .story import Story


def complaints_about(
    story: Story, folder: Path, memory: Memory, in_peace: Arrays
) -> list[str]:
    """Return everything that does not hold; nothing if all is well.

    ``in_peace`` is left empty where no run in peace told the same story.
    """
    expected = Expected(story)
    with Registry.open(folder) as registry:
        found = [
            *_unfinished(story, registry),
            *_ledger(story, registry, expected),
            *_extensions(registry, expected),
            *_counted(registry),
            *_receipts(registry, memory, expected),
            *contradicted(registry, memory),
            *_keys(story, registry, folder),
            *_people(story, registry, expected),
            *_kept_out(story, registry, expected),
            *_shipped(registry, folder, memory),
        ]
    return [
        *found,
        *_leftovers(folder),
        *_sealed_apart(story, folder, expected),
        *_traces(story, folder, memory, expected),
        *_unlike_peace(story, folder, in_peace),
        *unlike_retraining(story, folder),
    ]


def _unlike_peace(story: Story, folder: Path, in_peace: Arrays) -> Iterator[str]:
    """Yield how models differ from those of a run in peace, if there was one.

    A state that is rebuilt once more than there, since nobody knew that it was done,
    is a Newton step better: such models are held against retraining alone.
    """
    better = {step.model for step in story.steps if step.how == "reanchor"}

    def compared(figures: Arrays) -> Arrays:
        return {
            name: figures[name] for name in figures if name.split()[0] not in better
        }

    if in_peace:
        yield from differences(compared(in_peace), compared(private_arrays(folder)))


def contradicted(registry: Registry, memory: Memory) -> Iterator[str]:
    """Yield what is wrong with the ledger, and whichever receipt speaks against it."""
    heads = [
        Head.from_json(json.dumps(json.loads(text)["head"], separators=(",", ":")))
        for text in memory.receipts.values()
    ]
    verdict = check_export(
        registry.ledger.export(), registry.keys.public_pem(), seen=heads
    )
    yield from (f"ledger: {failure}" for failure in verdict.failures)


def back_again(story: Story, registry: Registry) -> list[str]:
    """Return those who were forgotten and are in a model."""
    gone = sorted(Expected(story).forgotten)
    if not gone:  # a short story, in which nobody asked
        return []
    known = registry.requests.find_models(gone)
    return [person for person, models in known.items() if models]


def _unfinished(story: Story, registry: Registry) -> Iterator[str]:
    status = registry.status()
    for request in status.pending:
        yield f"{request.request}: {request.stage} only ({request.error})"
    there, done = len(story.requests()), len(Expected(story).answers)
    if (status.n_requests, status.n_completed) != (there, done):
        yield (
            f"{status.n_requests} requests, {status.n_completed} completed; there "
            f"were {there} and {done}"
        )
    for cancelled in story.cancelled():
        stage = registry.requests.status(cancelled).stage
        if stage != "cancelled":
            yield f"{cancelled}: {stage}, and it was cancelled"


def _ledger(story: Story, registry: Registry, expected: Expected) -> Iterator[str]:
    done = [
        one for one in registry.ledger.entries() if isinstance(one, RequestCompleted)
    ]
    times = Counter(entry.request for entry in done)
    requests = story.requests()
    for request in requests.keys() | times.keys():
        if times[request] != (request in expected.answers):
            yield f"{request}: {times[request]} times in the ledger"
    for entry in done:
        people = requests[entry.request].subjects if entry.request in requests else ()
        if entry.n_subjects != len(people):
            yield f"{entry.request}: {entry.n_subjects} people, not {len(people)}"
        models = expected.changed.get(entry.request, set())
        if set(entry.certificates) != models:
            yield f"{entry.request}: changed {set(entry.certificates)}, not {models}"
        answer = expected.answers.get(entry.request)
        if answer and (entry.outcome, entry.reason) != (answer.outcome, answer.reason):
            yield (
                f"{entry.request} ({entry.right}): {entry.outcome} ({entry.reason}), "
                f"and should be {answer.outcome} ({answer.reason})"
            )


def _extensions(registry: Registry, expected: Expected) -> Iterator[str]:
    entries = [
        one for one in registry.ledger.entries() if isinstance(one, RequestExtended)
    ]
    times = Counter(entry.request for entry in entries)
    for request in times.keys() | expected.extended.keys():
        if times[request] != (request in expected.extended):
            yield f"{request}: extended {times[request]} times in the ledger"


def _counted(registry: Registry) -> Iterator[str]:
    """See that every release that the ledger tells of counts."""
    made = Counter(
        entry.model
        for entry in registry.ledger.entries()
        if isinstance(entry, ModelRegistered | ReleaseMade)
    )
    for model in registry.status().models:
        if model.number != made[model.name]:
            yield f"{model.name} is at release {model.number} of {made[model.name]}"


def _receipts(registry: Registry, memory: Memory, expected: Expected) -> Iterator[str]:
    public = registry.keys.public_pem()
    for request, answer in expected.answers.items():
        text = registry.requests.receipt(request)
        if text is None:
            yield f"{request}: no receipt"
            continue
        for failure in check_receipt(text, public).failures:
            yield f"{request}: {failure}"
        if memory.receipts.get(request, text) != text:
            yield f"{request}: the receipt is not the one that was handed out"
        said = Receipt.from_json(text).handling
        if (said.retained, said.retained_until) != answer.retained:
            yield f"{request}: kept for {said.retained!r}, and not {answer.retained}"
        if said.extended != expected.extended.get(request, ""):
            yield f"{request}: the receipt is wrong about an extension"


def _keys(story: Story, registry: Registry, folder: Path) -> Iterator[str]:
    """See that keys changed as often as was asked, and that one is in force."""
    if (folder / "public.pem").read_text() != registry.keys.public_pem():
        yield "public.pem does not list the keys of the ledger"
    secret = [path.name for path in (folder / "keys").glob("signing-*")]
    if len(secret) != 1:
        yield f"{', '.join(secret)}: there should be one signing key"
    wanted = sum(step.how == "rotate signing key" for step in story.steps)
    rotated = sum(isinstance(one, KeyRotated) for one in registry.ledger.entries())
    if rotated < wanted:
        yield f"the signing key was rotated {rotated} times, and should be {wanted}"
    n_tag_keys = 1 + sum(step.how == "rotate tag key" for step in story.steps)
    if len(tag_keys_of(folder)) < n_tag_keys:
        yield f"there should be {n_tag_keys} tag keys"


def _people(story: Story, registry: Registry, expected: Expected) -> Iterator[str]:
    if {*registry.models.names()} != {*expected.people}:
        names = registry.models.names()
        yield f"there are models {names}, not {sorted(expected.people)}"
    known = registry.requests.find_models(sorted(story.everybody()))
    for person in known:
        wanted = {name for name, there in expected.people.items() if person in there}
        if {*known[person]} != wanted:
            yield f"{person} is in {known[person]}, and should be in {wanted}"


def _kept_out(story: Story, registry: Registry, expected: Expected) -> Iterator[str]:
    """See whom a fit refuses, unless the journal lost some of their names."""
    if unnamed_in_journal(registry):
        return
    found = {*registry.requests.find_forgotten(sorted(story.everybody()))}
    for person in found ^ expected.kept_out:
        out = "kept out of fits" if person in found else "let into fits"
        yield f"{person} is {out}"


def _shipped(registry: Registry, folder: Path, memory: Memory) -> Iterator[str]:
    """See that whatever left is known, and whatever came back is settled."""
    found = shipments_of(folder)
    names = {one.name for one in found}
    for path in folder.with_name("shipped").glob("*"):
        if path.name not in names and not path.name.startswith("."):
            yield f"{path.name} left, and the registry does not know"
    status = registry.status()
    outstanding = {(one.model, one.number) for one in status.outstanding}
    newest = {(model.name, model.number) for model in status.models}
    known = {(one.model, one.number) for one in found}
    for release, is_out in memory.out.items():
        wanted = is_out and release not in newest
        if release not in known or (release in outstanding) != wanted:
            yield f"{release} left, and what status says of it is wrong"


def _leftovers(folder: Path) -> Iterator[str]:
    # What is being written has a name with a dot in front until it is whole.
    for name in hidden(folder):
        yield f"{name} was left behind"
    yield from leftovers_of(folder)


def _sealed_apart(story: Story, folder: Path, expected: Expected) -> Iterator[str]:
    """See that rows are apart that should be, and that nothing else opens them."""
    opened = Opened(folder, sorted(story.everybody()))
    found = {
        (name, person)
        for (name, is_apart), there in opened.rows.items()
        if is_apart
        for person in there
    }
    wanted = {
        (name, person): one
        for name, there in expected.apart.items()
        for person, one in there.items()
    }
    for name, person in found ^ wanted.keys():
        yield f"rows of {person} in {name} are apart, or should be"
    for name, person in found & wanted.keys():
        traces = traces_of(wanted[name, person].rows)
        blob = opened.rows[name, True][person]
        if not all(trace in blob for trace in traces):
            yield f"the rows of {person} in {name} are not those that were set aside"
        if any(trace in blob for blob in opened.using(name) for trace in traces):
            yield f"the rows of {person} open with the key of {name}"
    columns = ("place", "reason", "until")
    said = Counter(
        tuple(getattr(one, key) for key in columns)
        for one in said_of_rows_apart(folder)
    )
    stated = Counter(
        tuple(getattr(one, key) for key in columns) for one in wanted.values()
    )
    if said != stated:
        yield f"rows are said to be apart as {said}, and should be as {stated}"
    everything = opened.everything()
    n_open = sum(trace in everything for trace in _gone(story, expected))
    if n_open:
        yield f"{n_open} rows should be gone, and a key opens them"


def _gone(story: Story, expected: Expected) -> set[bytes]:
    """Return traces of all rows that are not kept."""
    left = {trace for rows in expected.left_rows() for trace in traces_of(rows)}
    return {trace for rows in story.all_rows() for trace in traces_of(rows)} - left


def _traces(
    story: Story, folder: Path, memory: Memory, expected: Expected
) -> Iterator[str]:
    """Look in every file for rows, ids and tags of people of whom nothing is left.

    And for any row that should be gone, and for the parameters of releases that are
    superseded. Tags are in the journal.
    """
    keys = tag_keys_of(folder)
    rows, tags = [], []
    for person in sorted(story.everybody()):
        if not expected.models_of(person):
            tags += [tag.encode() for tag in subject_tags(person, keys)]
        rows.append(person.encode())
    rows += _gone(story, expected)
    for sample in story.all_rows():
        rows += [float(value).hex().encode() for value in sample.X[:, 0]]
    superseded = memory.parameters - parameters_in(folder)
    rows += [bytes.fromhex(figures) for figures in superseded]
    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        if any(trace in data for trace in rows):
            yield f"{path.name} holds a row, an id or a superseded parameter"
        if path.name != "journal" and any(tag in data for tag in tags):
            yield f"{path.name} holds the tag of somebody of whom nothing is left"
