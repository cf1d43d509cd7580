# SPDX-License-Identifier: Apache-2.0
"""Shipping: a release leaves the registry, and that is remembered.

It is written down before the file exists, in the journal and in the store: a release
that is out there must be known when somebody whom it contains is forgotten.
"""

from pathlib import Path

from sqlalchemy import Connection

from ..exceptions import InvalidInput
from ..files.shipping import file_of, put_in_place
from ..stores import publications
from .held import released
from .looking import releases
from .news import record
from .site import WAIT, Site, now
from .statuses import ReleaseStatus
from .working import begin


def ship(site: Site, name: str, path: Path) -> ReleaseStatus:
    """Write the newest release of a model to a file; see ``Registry.ship``."""
    with site.working(WAIT):
        begin(site, WAIT)  # what leaves is in the ledger
        with site.store.reading() as connection:
            number = publications.number(connection, name)
            line = publications.release(connection, name, number)
        data = file_of(released(line), path)  # or refuse, before anything
        # After it was taken back, should the clock be slow: it is out there again.
        time = max(now(), (line.withdrawn or 0) + 1)
        shipment = {"model": name, "number": number, "time": time, "name": path.name}
        with site.changing() as connection:
            publications.record_shipment(connection, shipment)
            left = _left(connection, name)
            record(site, connection, {"shipped": shipment})
    put_in_place(path, data)
    return left[number]


def withdraw(site: Site, name: str, number: int) -> None:
    """State that every copy of a release was taken back."""
    with site.working(WAIT):
        with site.store.reading() as connection:
            publications.release(connection, name, number)  # or refuse
            left = _left(connection, name)
        if number not in left:
            raise InvalidInput(
                f"release {number} of model {name!r} never left, so there is nothing "
                "to take back; see status"
            )
        time = max(now(), left[number].shipped[-1][0])
        line = {"model": name, "number": number, "time": time}
        with site.changing() as connection:
            publications.withdraw(connection, line)
            record(site, connection, {"withdrawn": line})


def _left(connection: Connection, name: str) -> dict[int, ReleaseStatus]:
    """Return the releases of a model that left, by number."""
    left = releases(publications.shipped(connection, name))
    return {one.number: one for one in left}
