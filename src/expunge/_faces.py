# SPDX-License-Identifier: Apache-2.0
"""Names of the faces, imported when first asked for: scikit-learn takes a second."""

from importlib import import_module
from typing import Any

HOMES = {
    "LinearRegression": "linear_model",
    "LogisticRegression": "linear_model",
    "SoftmaxRegression": "linear_model",
    "from_sklearn": "adopt",
    "load": "files",
}


def __getattr__(name: str) -> Any:
    """Return a public name of a face; the package looks here for what it lacks."""
    if name not in HOMES:
        raise AttributeError(f"module 'expunge' has no attribute {name!r}")
    return getattr(import_module(f"expunge.{HOMES[name]}"), name)
