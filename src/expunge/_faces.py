# SPDX-License-Identifier: Apache-2.0
"""Where public names live, imported when first asked for.

NumPy, SciPy and scikit-learn take a second to import: who asks for ``--help`` or for an
exception need not wait for them.
"""

from importlib import import_module
from typing import Any

NAMES = {
    "adopt": "from_sklearn",
    "budget": "Budget",
    "certificate": "Certificate",
    "exceptions": "ExpungeError",
    "files": "load",
    "learning": "learn",
    "linear_model": "LinearRegression LogisticRegression SoftmaxRegression",
    "losses": "HalfSquared Huber Logistic Multinomial OneVsRest SquaredHinge",
    "mechanisms": "Jackknife Newton Polish Rescaled Retrain residual",
    "objective": "Objective",
    "penalties": "L1 L2 ElasticNet GroupLasso NuclearNorm",
    "record": "Record",
    "rows": "Rows",
    "summary": "Summary summarise",
    "verification": "verify",
}
HOMES = {name: module for module, names in NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Return a public name; the package looks here for what it lacks."""
    if name not in HOMES:
        raise AttributeError(f"module 'expunge' has no attribute {name!r}")
    return getattr(import_module(f"expunge.{HOMES[name]}"), name)
