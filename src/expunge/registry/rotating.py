# SPDX-License-Identifier: Apache-2.0
"""Rotating keys: a new one from now on, and the old secret is destroyed.

The ledger's entry decides which key signs. Whatever a crash left undone around it, keys
that never came into force or are no longer in force, and public keys not yet listed, is
tidied up by whoever works next.
"""

from ..durable import destroy, replace_file
from ..ledger import KeyRotated, sign, signing_key, tag_key
from ..ledger.pages import day_of
from ..stores import chain
from ..stores.chain import Appending
from ..stores.engine import translated
from .keys import (
    next_signing_path,
    next_tag_path,
    note_tag_keys,
    signing_path_of,
    signing_paths,
)
from .site import Site, time_for
from .statement import Statement, conclude

READABLE = 0o644  # whatever the umask: others check by it, and must not change it


def rotate_signing_key(site: Site) -> None:
    """Let a new key sign from the next head on."""
    with site.store.reading() as connection:
        book = Appending(chain.ledger_in(connection))
    old = site.signing_key(book.ledger)
    new = signing_key(next_signing_path(site.places.keys))
    time = time_for(book.ledger)
    day = day_of(time)
    rotation = KeyRotated(
        sequence=book.ledger.size, day=day, public=new.public.raw.hex()
    )
    book.append(sign(rotation, old))
    conclude(site, Statement(book, book.ledger.head(new, day), time))
    tidy(site)


def rotate_tag_key(site: Site) -> None:
    """Tag new people under a new key."""
    tag_key(next_tag_path(site.places.keys))
    with site.changing() as connection:
        note_tag_keys(connection, site.places.keys)


@translated()
def tidy(site: Site) -> None:
    """List all public keys, and destroy secret ones that are not in force."""
    if len(signing_paths(site.places.keys)) < 2 and site.places.public.exists():
        return
    # While nobody can state a rotation: the key of one that is about to come must stay.
    with site.changing() as connection, site.journal.stating(site.stated):
        keys = chain.ledger_in(connection).keys
        replace_file(site.places.public, keys.to_pem().encode("ascii"), READABLE)
        current = signing_path_of(site.places.keys, keys.current)
        for path in signing_paths(site.places.keys):
            if path != current:
                destroy(path)
