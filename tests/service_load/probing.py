# SPDX-License-Identifier: Apache-2.0
"""Probing: an enemy watches how busy a service is while it applies requests.

One request is sent alone in a window. When the window closes, calls that have nothing
to do with anybody are timed: applying takes longer if the person is known, and delays
them. Windows hide this only where other people ask too, or where another process
applies (``--accept-only``).
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from expunge.service.windows import Windows
from tests.registries import now

from .calls import Line, format_call
from .crowd import Crowd, lend_store
from .load import make_post
from .processes import Plan, serve
from .spying import draw_people, sleep_until
from .telling import Separation, is_telling, separate_all

WINDOW = 2  # seconds
LATE = 1200  # milliseconds after which a window's request is sent
PROBING = 0.6  # seconds of probes after a window closed
SLOW = 0.004  # seconds: a probe that had to wait


@dataclass(frozen=True)
class ProbePlan:
    """How many requests, each alone in a window."""

    n_asks: int = 200
    store: str = "sqlite"
    seed: int = 0


def probe(plan: ProbePlan) -> list[Separation]:
    """Send one request in each window; return how well the load of others tells."""
    crowd = Crowd(n_people=max(1000, plan.n_asks), n_features=20, seed=plan.seed)
    asks = draw_people(crowd, plan.n_asks, seed=plan.seed)
    seen: dict[str, list[float]] = {"longest": [], "slow ones": [], "number": []}
    windows = Windows(WINDOW)
    with TemporaryDirectory() as name, lend_store(plan.store) as url:
        folder = Path(name) / "registry"
        token = crowd.build(folder, url)["request"]
        with serve(Plan(folder, WINDOW)) as (_, port), Line(port) as line:
            for ask in asks:
                sleep_until(windows.at(now()).start + LATE)
                answer = line.send(make_post(ask, token))
                assert answer.code == 201, answer
                sleep_until(windows.at(now()).close)
                times = send_probes(line)
                seen["longest"].append(max(times))
                seen["slow ones"].append(sum(one for one in times if one > SLOW))
                seen["number"].append(len(times))
    ways = [float(one.by_address) for one in asks]
    return separate_all(seen, [one.is_known for one in asks], groups=ways)


def send_probes(line: Line) -> list[float]:
    """Return how long calls take that have nothing to do with anybody."""
    call, end = format_call("GET", "/healthz", token=""), perf_counter() + PROBING
    times = []
    while perf_counter() < end:
        times.append(line.send(call).seconds)
    return times


def print_probed(options: Any) -> int:
    """Probe a service that applies requests, and print how well an enemy does."""
    found = probe(ProbePlan(options.count or 200, options.store, options.seed))
    print(*found, sep="\n")
    return int(is_telling(found))
