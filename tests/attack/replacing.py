# SPDX-License-Identifier: Apache-2.0
"""Replace a part of the package, in this process."""

import sys
from importlib import import_module
from typing import Any


def put(place: str, name: str, value: Any) -> None:
    """Replace an attribute of a module, or of a class in it."""
    module, _, inner = place.partition(":")
    found: Any = import_module(f"expunge.{module}")
    target = getattr(found, inner) if inner else found
    getattr(target, name)  # what is not there cannot be replaced
    setattr(target, name, value)


def put_everywhere(package: str, name: str, value: Any) -> None:
    """Replace what modules of a package that are loaded import under a name."""
    inside = f"expunge.{package}."
    found = [
        module
        for place, module in list(sys.modules.items())
        if place.startswith(inside) and hasattr(module, name)
    ]
    if not found:
        raise AttributeError(f"no module in {package} has {name}")
    for module in found:
        setattr(module, name, value)
