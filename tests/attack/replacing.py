# SPDX-License-Identifier: Apache-2.0
"""Replace a part of the package, in this process."""

from importlib import import_module
from typing import Any


def put(place: str, name: str, value: Any) -> None:
    """Replace an attribute of a module, or of a class in it."""
    module, _, inner = place.partition(":")
    found: Any = import_module(f"expunge.{module}")
    target = getattr(found, inner) if inner else found
    getattr(target, name)  # what is not there cannot be replaced
    setattr(target, name, value)
