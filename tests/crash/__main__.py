# SPDX-License-Identifier: Apache-2.0
"""Kill a registry's processes, its server and its power; see that nothing is lost."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from tests.postgres import Server
from tests.stores import STORES

from .calls import can_record
from .client import Line
from .phases import NAMES, announce
from .sabotage import SABOTAGES
from .settings import Kills, PowerLosses, ServerKills
from .trial import N_STEPS, Course, Tally, trials

Results = dict[str, Tally]
UNSEEN = ("postgresql", "erasing")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    add = parser.add_argument
    add("--store", choices=STORES, action="append", help="where; both if not given")
    add("--kills", type=int, default=0, help="of a client's processes, in each store")
    add("--server-kills", type=int, default=0, help="of PostgreSQL, all of it")
    add("--power-losses", type=int, default=0, help="of the client, in each store")
    add("--seed", type=int, default=0, help="of stories and moments")
    add("--steps", type=int, default=N_STEPS, help="of a story")
    add("--sabotage", choices=SABOTAGES, help="break the registry on purpose")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Strike as often as asked; return 1 if anything does not hold."""
    options = parse(arguments)
    if options.power_losses and not can_record():
        raise SystemExit(
            "a power loss needs a record of calls, and strace is not there or not "
            "allowed: apt install strace, or leave --power-losses away"
        )
    results: Results = {}
    for name, setting, n_strikes in _settings(options):
        course = Course(n_strikes, options.seed, options.steps)
        for tally in trials(setting, course):
            results[name] = tally
            _progress(f"{name}: {tally.n_strikes} of {n_strikes}")
    _progress("")
    print(table(results))
    for name, tally in results.items():
        for complaint in tally.complaints:
            print(f"{name}: {complaint}")
    return int(any(tally.complaints for tally in results.values()))


def _settings(options: argparse.Namespace) -> Iterator[tuple[str, Kills, int]]:
    """Yield what to strike, where, and how often."""
    sabotage = SABOTAGES.get(options.sabotage)

    def before(line: Line) -> None:
        announce(line)
        if sabotage is not None:
            sabotage.begin(line)

    phases = NAMES if sabotage is None else sabotage.phases
    stores = options.store or STORES
    with ExitStack() as stack:
        servers: dict[str, Server | None] = {"sqlite": None}
        if "postgresql" in stores:
            servers["postgresql"] = stack.enter_context(Server())
        for store in stores:
            # PostgreSQL cannot erase, and so that phase is over before it is seen.
            seen = [name for name in phases if (store, name) != UNSEEN]
            given = servers[store], before, seen
            if options.kills:
                yield f"{store}, kills", Kills(*given), options.kills
            if options.server_kills and store == "postgresql":
                yield "server kills", ServerKills(*given), options.server_kills
            if options.power_losses:
                yield f"{store}, power", PowerLosses(*given), options.power_losses


def table(results: Results) -> str:
    """Return what was struck when, one column for each kind of strike."""
    tallies = list(results.values())
    lines: dict[str, list[int]] = {}
    for phase in sorted({phase for tally in tallies for phase in tally.strikes}):
        lines[phase] = [tally.strikes[phase] for tally in tallies]
    lines["strikes"] = [tally.n_strikes for tally in tallies]
    for stage in sorted({stage for tally in tallies for stage in tally.found}):
        lines[f"then found: {stage}"] = [tally.found[stage] for tally in tallies]
    lines["requests"] = [tally.n_requests for tally in tallies]
    lines["stories"] = [tally.n_stories for tally in tallies]
    lines["violations"] = [len(tally.complaints) for tally in tallies]
    width = max(map(len, lines))
    written = ["  ".join(["struck while".ljust(width), *results])]
    for name, figures in lines.items():
        cells = [f"{n:{len(head)}}" for n, head in zip(figures, results, strict=True)]
        written.append("  ".join([name.ljust(width), *cells]))
    return "\n".join(written)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
