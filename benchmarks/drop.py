# SPDX-License-Identifier: Apache-2.0
"""What deletion lists cost: many hashes against a million known identifiers.

Matching is set against hashing the identifiers of everybody once, as a broker does who
compares tables. It has two steps: finding whom the hashes lead to, and recording what
was asked, durably, so that nobody comes back. Processor time, in turns.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time

from expunge.drop import import_identifiers
from expunge.registry import Registry
from expunge.registry.exclusions import Listed
from expunge.rights.drop import hash_identifier, to_digest

from .report import Section, Target, timings_table
from .timing import Measurement, progress

EMAIL, DAY = "Email", "2026-03-12"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many identifiers are known and listed, and one in how many is both."""

    known: int = 1_000_000
    listed: int = 100_000
    shared: int = 10
    repeats: int = 3


FULL = Sizes()


def hash_all(n: int, name: str = "person") -> list[str]:
    """Return the hashes of many addresses."""
    words = (f"{name}{number}@example.org" for number in range(n))
    return [hash_identifier(EMAIL, {"email": word}) for word in words]


def listed(known: list[str], sizes: Sizes) -> list[Listed]:
    """Return a list, of which some are known."""
    others = hash_all(sizes.listed, "stranger")
    step = len(known) // sizes.listed
    return [
        Listed(
            f"{number:012d}",
            EMAIL,
            to_digest(other if number % sizes.shared else known[number * step]) or "",
        )
        for number, other in enumerate(others)
    ]


def _processor_time(work: Callable[[], object]) -> float:
    begin = process_time()
    work()
    return process_time() - begin


def match(folder: Path, sizes: Sizes = FULL) -> Section:
    """Return what matching a list costs against hashing everybody once."""
    progress(f"{sizes.known} identifiers")
    hashes = hash_all(sizes.known)
    rows = ((f"p{number}", EMAIL, one) for number, one in enumerate(hashes))
    with Registry.create(folder / "registry") as registry:
        import_identifiers(registry, rows)
        asked = listed(hashes, sizes)
        steps: dict[str, Callable[[], object]] = {
            f"hashing {sizes.known} once": partial(hash_all, sizes.known),
            f"finding {sizes.listed}": partial(registry.exclusions.find_people, asked),
            f"recording {sizes.listed}": partial(
                registry.exclusions.record, asked, {}, day=DAY
            ),
        }
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(sizes.repeats):
            for name, step in steps.items():
                times[name].append(_processor_time(step))
        found = registry.exclusions.find_people(asked)
    least = [min(some) for some in times.values()]
    return Section(
        f"Deletion lists, {len(found)} of {sizes.listed} known",
        [timings_table([Measurement.of(*one) for one in times.items()], "s")],
        [
            Target("finding / hashing everybody once", least[1] / least[0], high=3.0),
            Target("both steps / hashing once", sum(least[1:]) / least[0], high=3.0),
        ],
    )


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield what a deletion list costs."""
    del data_dir
    with tempfile.TemporaryDirectory() as folder:
        yield match(Path(folder))
