# SPDX-License-Identifier: Apache-2.0
"""What a registry costs that has answered many requests: batches, exports, logs.

A batch of 50,000 requests must cost four times what 12,500 cost, and on a registry that
has answered 50,000 and 100,000 before what it cost on a fresh one. An export of 100,000
entries is checked, with a head for each request and with one for each batch, in turns
with what no check can do without: reading each line as JSON, hashing it, and verifying
each signature, on one core. A log is read in turns with the first of these.

On SQLite, and on PostgreSQL where TEST_DATABASE_URL names an empty database.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from expunge.ledger import (
    Entry,
    Head,
    Ledger,
    ModelRegistered,
    ReleaseMade,
    ReleasesSuperseded,
    RequestCompleted,
    SigningKey,
    check_export,
    export,
)
from expunge.registry import Registry, Request
from expunge.registry.keys import find_signing_key
from expunge.registry.storage import ledger_table

from .registry import registry_of
from .report import Section, Target, timings_table
from .timing import Measurement, collection_off, progress, take_turns, time_call

BATCH, SMALL, AGES, D = 50_000, 12_500, 3, 10
ENTRIES, REPEATS = 100_000, 5
KEY, DAY = SigningKey(b"benchmark".ljust(32)), "2024-01-01"


def batches(folder: Path, url: str | None, size: int = BATCH) -> Section:
    """Return what a batch costs against a small one, and on an old registry."""
    small = size * SMALL // BATCH
    sizes = [small, *[size] * AGES]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    seconds = []
    with registry_of(folder, ends[-1] + 1000, D, url) as registry:
        for n, end in zip(sizes, ends, strict=True):
            asked = [Request((str(one),)) for one in range(end - n, end)]

            def together(asked: list[Request] = asked) -> None:
                registry.requests.accept(asked)
                registry.requests.apply()

            with collection_off():
                seconds.append(time_call(together)[1])
            progress(f"{n} requests in {seconds[-1]:.0f} s")
    found = [
        Measurement.of(f"{n} requests, after {end - n}", [taken])
        for n, end, taken in zip(sizes, ends, seconds, strict=True)
    ]
    first, fresh, *_, old = found
    store = "SQLite" if url is None else "PostgreSQL"
    return Section(
        f"Requests in one batch, d = {D}, {store}",
        [timings_table(found, "s")],
        [
            Target(f"{size} / {small} requests", fresh.over(first), high=4.6),
            Target(f"after {ends[-2]} / after {small}", old.over(fresh), high=1.15),
        ],
    )


def generate_ledger(n: int, per_head: int) -> Iterator[Entry | Head]:
    """Yield a ledger as a registry writes it, with so many requests in each batch."""
    ledger = Ledger.empty(KEY.public)
    digest = sha256(b"first").hexdigest()
    first = ModelRegistered(sequence=0, day=DAY, model="model", certificate=digest)
    entries: list[Entry] = [first]
    while True:
        for entry in entries:
            ledger = ledger.append(entry)
            yield entry
        yield ledger.head(KEY, DAY)
        if ledger.size >= n:
            return
        before, digest = digest, sha256(digest.encode()).hexdigest()
        entries = list(_batch_entries(ledger.size, (before, digest), per_head))


def _batch_entries(size: int, digests: tuple[str, str], n: int) -> Iterator[Entry]:
    """Yield the entries of a batch."""
    before, digest = digests
    yield ReleaseMade(sequence=size, day=DAY, model="model", certificate=digest)
    yield ReleasesSuperseded(
        sequence=size + 1, day=DAY, model="model", certificates=(before,), by=digest
    )
    for place in range(size + 2, size + 2 + n):
        yield RequestCompleted(
            sequence=place,
            day=DAY,
            request=sha256(b"%d" % place).hexdigest()[:32],
            certificates={"model": digest},
            n_subjects=1,
            submitted=DAY,
            accepted=DAY,
            deadline="2024-01-31",
            right="erase",
            regime="gdpr",
            outcome="done",
            reason="",
        )


def parse_and_hash(lines: list[bytes]) -> None:
    """Do with lines what nobody can leave out."""
    for line in lines:
        json.loads(line)
        sha256(line).digest()


def checks(n: int = ENTRIES) -> Section:
    """Return what the check of an export costs against its floor."""
    secret = Ed25519PrivateKey.generate()
    public, signature = secret.public_key(), secret.sign(b"head")
    found: dict[str, Measurement] = {}
    targets = []
    for per_head, most in ((1, 1.3), (5000, 3.0)):
        progress(f"an export with a head for every {per_head}")
        data = export(generate_ledger(n, per_head))
        lines = data.splitlines()
        n_heads = sum(b'"kind":"head"' in line for line in lines)

        def floor(lines: list[bytes] = lines, n_heads: int = n_heads) -> None:
            parse_and_hash(lines)
            for _ in range(n_heads):
                public.verify(signature, b"head")

        def check(data: bytes = data) -> None:
            assert check_export(data, KEY.public.to_pem()).valid

        names = [f"check, {n_heads} heads", f"floor, {n_heads} heads"]
        actions: dict[str, Callable[[], None]] = {names[0]: check, names[1]: floor}
        found |= take_turns(actions, REPEATS)
        ratio = found[names[0]].over(found[names[1]])
        targets.append(Target(f"check / floor, {n_heads} heads", ratio, high=most))
    title = f"Checking an export of {n} entries, {os.cpu_count()} cores"
    return Section(title, [timings_table(found.values(), "s")], targets)


def logs(folder: Path, url: str | None, n: int = ENTRIES) -> Section:
    """Return what reading the log costs against reading its lines as JSON."""
    with Registry.create(folder, url=url) as registry:
        entries = [page for page in generate_ledger(n, 1) if isinstance(page, Entry)]
        lines = export(entries).splitlines()
        context = registry._context
        with context.store.write() as connection:
            batch = ledger_table.LedgerBatch(ledger_table.read_ledger(connection))
            for entry in entries:
                batch.append(entry)
            batch.write(
                connection,
                batch.ledger.head(
                    find_signing_key(context.paths, batch.ledger.keys.current), DAY
                ),
            )
        actions: dict[str, Callable[[], object]] = {
            "log": lambda: sum(1 for _ in registry.ledger.entries()),
            "floor": lambda: parse_and_hash(lines),
        }
        found = take_turns(actions, REPEATS)
    store = "SQLite" if url is None else "PostgreSQL"
    return Section(
        f"The log of {n} entries, {store}",
        [timings_table(found.values(), "s")],
        [Target("log / floor", found["log"].over(found["floor"]), high=3.0)],
    )


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield the cost of checks, and of logs and batches on each store."""
    del data_dir
    yield checks()
    with tempfile.TemporaryDirectory() as folder:
        yield logs(Path(folder) / "log", None)
    given = os.environ.get("TEST_DATABASE_URL")
    for url in (None,) if given is None else (None, given):
        with tempfile.TemporaryDirectory() as folder:
            yield batches(Path(folder) / "batches", url)
