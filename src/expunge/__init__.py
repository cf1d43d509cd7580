# SPDX-License-Identifier: Apache-2.0
"""Certified machine unlearning of regularised convex models.

Fit a ``LogisticRegression`` with ``subjects`` and a ``Budget``, call ``forget`` with
the ids of the people who leave, and check the ``certificate_`` with ``verify``. Save a
model with ``save`` and read it with ``load``; write a release for serving with
``ship``.

``__init__.pyi`` lists the public names. Each is imported on first use: NumPy, SciPy and
scikit-learn take a second to import, and ``--help`` need not wait for them.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

_LISTED = re.compile(r"^from (\.[\w.]+) import (\w+) as", re.MULTILINE)
_HOMES = {
    name: home
    for home, name in _LISTED.findall(Path(__file__).with_suffix(".pyi").read_text())
}

__version__ = "0.1.0"
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Return a public name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module 'expunge' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
