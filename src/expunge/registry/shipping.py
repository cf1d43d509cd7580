# SPDX-License-Identifier: Apache-2.0
"""Shipping: a release leaves the registry, and that is remembered.

It is written down before the file exists: a release that is out there must be known
when somebody whom it contains is forgotten.
"""

from pathlib import Path

from ..files.shipping import file_of, put_in_place
from ..stores import publications
from .held import released
from .looking import releases
from .site import Site, now
from .statuses import ReleaseStatus


def ship(site: Site, name: str, path: Path) -> ReleaseStatus:
    """Write the newest release of a model to a file; see ``Registry.ship``."""
    with site.store.writing() as connection:
        number = publications.number(connection, name)
        line = publications.release(connection, name, number)
        data = file_of(released(line.content)[0], path)  # or refuse, before anything
        shipment = {"model": name, "number": number, "time": now(), "name": path.name}
        site.journal.append([{"shipped": shipment}])
        publications.record_shipment(connection, shipment)
        left = releases(publications.shipped(connection, name))
    put_in_place(path, data)
    return next(one for one in left if one.number == number)
