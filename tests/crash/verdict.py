# SPDX-License-Identifier: Apache-2.0
"""The verdict: what must hold of a registry at the end, whatever happened before."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from expunge.ledger import RequestCompleted, check_export, check_receipt
from expunge.registry import Registry
from expunge.registry.settings import Places

from .client import Memory
from .oracles import Arrays, differences, private_arrays, unlike_retraining
from .story import Story


def complaints_about(
    story: Story, folder: Path, memory: Memory, in_peace: Arrays
) -> list[str]:
    """Return everything that does not hold; nothing if all is well."""
    with Registry.open(folder) as registry:
        found = [
            *_unfinished(story, registry),
            *_ledger(story, registry),
            *_receipts(story, registry, memory),
            *_people(story, registry),
        ]
    return [
        *found,
        *_leftovers(story, folder),
        *differences(in_peace, private_arrays(folder)),
        *unlike_retraining(story, folder),
    ]


def _unfinished(story: Story, registry: Registry) -> Iterator[str]:
    status = registry.status()
    for request in status.pending:
        yield f"{request.request}: {request.stage} only ({request.error})"
    wanted = len(story.requests())
    if (status.n_requests, status.n_completed) != (wanted, wanted):
        yield (
            f"{status.n_requests} requests, {status.n_completed} completed; there "
            f"were {wanted}"
        )


def _ledger(story: Story, registry: Registry) -> Iterator[str]:
    verdict = check_export(registry.export(), registry.public_pem())
    yield from (f"ledger: {failure}" for failure in verdict.failures)
    done = [one for one in registry.log() if isinstance(one, RequestCompleted)]
    times = Counter(entry.request for entry in done)
    requests = story.requests()
    for request in requests.keys() | times.keys():
        if times[request] != (request in requests):
            yield f"{request}: {times[request]} times in the ledger"
    for entry in done:
        people = requests[entry.request].subjects if entry.request in requests else ()
        if entry.n_subjects != len(people):
            yield f"{entry.request}: {entry.n_subjects} people, not {len(people)}"
        models = {name for person in people for name in story.holding(person)}
        if set(entry.certificates) != models:
            yield f"{entry.request}: changed {set(entry.certificates)}, not {models}"


def _receipts(story: Story, registry: Registry, memory: Memory) -> Iterator[str]:
    public = registry.public_pem()
    for request in story.requests():
        receipt = registry.receipt(request)
        if receipt is None:
            yield f"{request}: no receipt"
            continue
        for failure in check_receipt(receipt, public).failures:
            yield f"{request}: {failure}"
        if memory.receipts.get(request, receipt) != receipt:
            yield f"{request}: the receipt is not the one that was handed out"


def _people(story: Story, registry: Registry) -> Iterator[str]:
    everybody = {owner for sample in story.samples.values() for owner in sample.owners}
    known = registry.known(sorted(everybody))
    for person in everybody:
        wanted = () if person in story.leaving() else story.holding(person)
        if set(known[person]) != set(wanted):
            yield f"{person} is in {known[person]}, and should be in {wanted}"


def _leftovers(story: Story, folder: Path) -> Iterator[str]:
    # What is being written has a name with a dot in front until it is whole.
    for path in folder.rglob(".*"):
        yield f"{path.name} was left behind"
    there = (path.name for path in Places(folder).checkpoints.iterdir())
    checkpoints = sorted(name for name in there if not name.startswith("spare~"))
    if len(checkpoints) != len(story.samples):
        yield f"{', '.join(checkpoints)}: there should be one for each model"
