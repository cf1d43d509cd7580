# SPDX-License-Identifier: Apache-2.0
"""``expunge rotate``: a new key takes over."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from .exits import DONE
from .options import OnRegistry
from .printing import say, say_json


class Key(StrEnum):
    """Which key."""

    signing = "signing"
    tags = "tags"


@dataclass(frozen=True)
class Rotate(OnRegistry):
    """Replace a key.

    Either the one that signs the ledger, or the one that hides people's ids. After
    the signing key was rotated, publish public.pem again: it says where in the ledger
    each key begins and ends, and by it what a stolen old key signs is refused.
    """

    key: Annotated[Key, typer.Argument(metavar="KEY", help="signing or tags.")]

    def perform(self) -> int:
        """Rotate it and say what to do next."""
        with self.opened() as registry:
            if self.key is Key.signing:
                registry.rotate_signing_key()
            else:
                registry.rotate_tag_key()
            key = registry.status().key
        if self.as_json:
            say_json({"rotated": self.key.value, "key": key})
        elif self.key is Key.signing:
            say(f"key {key} signs from now on; publish {self.registry / 'public.pem'}")
        else:
            say("ids are hidden by a new key from now on")
        return DONE
