# SPDX-License-Identifier: Apache-2.0
"""Customers: a table of people who do not exist, with the dirt that real tables have.

A phone company wants to know who will leave. There are gaps, dates, categories in two
spellings, amounts with a long tail, and notes in free text. Everything is a function of
a word, the same on every machine: ``shake_256`` gives the chance.
"""

import csv
from datetime import date, timedelta
from hashlib import shake_256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from ..core.arrays import Vector

SUBJECT, TARGET = "customer", "left"
COLUMNS = (
    *(SUBJECT, "joined", "age", "region", "plan"),
    *("fee", "minutes", "device", "calls", "note", TARGET),
)
LAST_DAY = date(2026, 6, 30)
PLANS = ("Basic", "Plus", "Family", "Unlimited", "Student")
FEES = (9.9, 19.9, 34.9, 49.9, 7.5)
DEVICES = ("phone", "router", "none", "tablet", "watch")
N_REGIONS = 24
DID = ("asked about", "complained about", "praised", "did not understand", "forgot")
WHAT = ("the bill", "the contract", "the signal", "the price", "the app", "the shop")
HOW = ("calmly", "twice", "again", "in writing", "and compared offers")


def write_customers(path: Path, n: int, *, word: str) -> None:
    """Write a CSV file of n customers.

    Parameters
    ----------
    path
        Where to.
    n
        How many; their ids are "customer 0" and so on.
    word
        Decides everything about them but the ids.
    """

    def uniform(what: str) -> Vector:
        """Return n numbers between 0 and 1."""
        drawn = np.frombuffer(shake_256(f"{word} {what}".encode()).digest(8 * n), "<u8")
        return np.asarray((drawn >> np.uint64(11)) + 0.5, dtype=float) * 2.0**-53

    def choose(what: str, *shares: float) -> NDArray[Any]:
        """Return n whole numbers from 0 on, in these shares."""
        return np.searchsorted(np.cumsum(shares[:-1]) / sum(shares), uniform(what))

    age = np.clip(46.0 + 17.0 * ndtri(uniform("age")), 18.0, 95.0).astype(int)
    days = (-700.0 * np.log(uniform("days"))).astype(int)
    region = choose("region", *[1.0] * N_REGIONS)
    plan = choose("plan", 35, 25, 20, 12, 8)
    fee = np.array(FEES)[plan] * np.exp(0.15 * ndtri(uniform("fee")))
    minutes = np.exp(5.0 + ndtri(uniform("minutes"))).astype(int)
    device = choose("device", 50, 20, 12, 10, 8)
    calls = (-np.log(uniform("calls"))).astype(int)
    did, what, how = (
        choose(name, *[1.0] * len(words))
        for name, words in (("did", DID), ("what", WHAT), ("how", HOW))
    )
    leaning = (
        *(-0.6 + 0.9 * (plan == 0) - 0.7 * (plan == 2), 0.02 * (fee - 20.0)),
        *(-0.0009 * days, 0.8 * calls, -1.1 * (age > 60), 0.5 * (device == 2)),
        *(0.3 * np.sin(5.0 * region), -0.3 * np.log(1.0 + minutes)),
        *(0.9 * (did == 1), -0.8 * (did == 2), 0.8 * (how == 4)),
    )
    left = uniform("left") < expit(sum(leaning))
    no_day, no_age, no_minutes, no_note, shouted = (
        uniform(f"no {name}") < share
        for name, share in (
            *(("day", 0.02), ("age", 0.06), ("minutes", 0.04), ("note", 0.3)),
            ("capitals", 0.03),
        )
    )
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(COLUMNS)
        for i in range(n):
            name = PLANS[plan[i]]
            note = f"{DID[did[i]]} {WHAT[what[i]]} {HOW[how[i]]}, {days[i]} days in"
            lines.writerow(
                (
                    f"{SUBJECT} {i}",
                    "" if no_day[i] else LAST_DAY - timedelta(days=int(days[i])),
                    "" if no_age[i] else age[i],
                    f"Region {region[i] + 1}",
                    name.upper() if shouted[i] else name,
                    f"{fee[i]:.2f}",
                    "n/a" if no_minutes[i] else minutes[i],
                    DEVICES[device[i]],
                    calls[i],
                    "" if no_note[i] else note,
                    "yes" if left[i] else "no",
                )
            )
